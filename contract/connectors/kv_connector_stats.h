#pragma once

/// Statistics of an offloading connector's transfers: those of an interval, as workers send them,
/// and the Prometheus metrics made from them. This file states the rules of each operation once;
/// `reference/` and `optimized/` implement them independently.
///
/// Source: vLLM v0.19.0 and v0.23.0 (alike) distributed/kv_transfer/kv_connector/v1/metrics.py,
/// v1/offloading/metrics.py, v1/offloading/worker.py.
///
/// A worker records a transfer that succeeded, if its engine reports a duration other than 0
/// (upstream takes 0 as unknown). It sends the statistics with each step, unless they are empty,
/// and resets them. Those of all workers are aggregated, rank 0 first.

#include <array>
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/prometheus_text.h"

namespace kvfence {

/// From which medium to which. Upstream's media: "GPU", "CPU".
struct TransferType {
  std::string_view src;
  std::string_view dst;
};

struct OffloadingOperationMetrics {
  std::uint64_t op_size = 0;  ///< bytes
  double op_time = 0;         ///< seconds; finite, not negative
  friend bool operator==(const OffloadingOperationMetrics&,
                         const OffloadingOperationMetrics&) = default;
};

/// The transfers of one type, oldest first.
struct TransferOperations {
  std::string transfer_type;  ///< src + "_to_" + dst, as "GPU_to_CPU"
  std::vector<OffloadingOperationMetrics> ops;
  friend bool operator==(const TransferOperations&, const TransferOperations&) = default;
};

/// The same for a connector below a MultiConnector. Each class occurs once; a deeper one is
/// prefixed with the names on its path, as in "multi_connector/offloading".
/// Source: vLLM v0.23.0 kv_connector/v1/multi_connector.py MultiKVConnectorStats, a dictionary by
/// class, nested; v0.19.0 keeps the last one of a class alone.
struct TransferOperationsOfClass {
  std::string connector_class;
  std::vector<TransferOperations> stats;
  friend bool operator==(const TransferOperationsOfClass&,
                         const TransferOperationsOfClass&) = default;
};

/// What reduce makes of one type.
struct TransferTotals {
  std::string transfer_type;
  std::uint64_t total_bytes = 0;  ///< modulo 2^64
  double total_time = 0;          ///< seconds, added up in order, from 0
  friend bool operator==(const TransferTotals&, const TransferTotals&) = default;
};

/// OffloadingConnectorStats()
///
/// record_transfer(num_bytes, time, type)
///     After the others of its type; a type that is new comes last.
///     Requires: time is finite and not negative (a counter of time would refuse it).
///
/// aggregate(data)
///     The operations of each type of another one's data() come after those that are here; types
///     that are new come last, in the order of data. (Upstream shares the lists of new types
///     between the two, so that recording goes on in both.)
///
/// reduce(out)
///     Replaces out by the totals of each type.
///
/// is_empty(): no type. One without operations, which only data can bring, counts.
///
/// reset(): as constructed.
///
/// data(): all types in the order in which they came; valid until the next change.
template <class S>
concept OffloadingConnectorStats = std::copyable<S> && std::default_initializable<S> &&
    requires(S stats, const S& const_stats, std::uint64_t num_bytes, double time,
             const TransferType& type, std::span<const TransferOperations> data,
             std::vector<TransferTotals>& totals) {
  { stats.record_transfer(num_bytes, time, type) } -> std::same_as<void>;
  { stats.aggregate(data) } -> std::same_as<void>;
  { const_stats.reduce(totals) } -> std::same_as<void>;
  { const_stats.is_empty() } -> std::same_as<bool>;
  { stats.reset() } -> std::same_as<void>;
  { const_stats.data() } -> std::same_as<std::span<const TransferOperations>>;
};

/// "GPU_to_CPU_total_bytes=8, GPU_to_CPU_total_time=0.5, ...": the text in the log.
/// Source: vLLM v0.19.0 kv_connector/v1/metrics.py KVConnectorLogging.log.
std::string to_log_text(std::span<const TransferTotals> totals);

/// The labels of the metrics.
struct OffloadPromMetricsConfig {
  std::vector<std::string> labelnames;  ///< vLLM: "model_name", "engine"
  std::map<std::uint32_t, std::vector<std::string>> per_engine_labelvalues;  ///< a value per name
  friend bool operator==(const OffloadPromMetricsConfig&,
                         const OffloadPromMetricsConfig&) = default;
};

/// Returns what is wrong with a configuration, or nothing if metrics can be built from it: each
/// engine has a value for each name; a name is a letter or underscore with letters, digits and
/// underscores after it, does not start with two underscores, occurs once, and is neither le nor
/// transfer_type.
std::optional<std::string> check_config(const OffloadPromMetricsConfig& config);

inline constexpr std::string_view kOffloadBytesName = "vllm:kv_offload_total_bytes";
inline constexpr std::string_view kOffloadBytesHelp = "Number of bytes offloaded by KV connector";
inline constexpr std::string_view kOffloadTimeName = "vllm:kv_offload_total_time";
inline constexpr std::string_view kOffloadTimeHelp =
    "Total time measured by all KV offloading operations";
inline constexpr std::string_view kOffloadSizeName = "vllm:kv_offload_size";
inline constexpr std::string_view kOffloadSizeHelp =
    "Histogram of KV offload transfer size, in bytes.";

/// Upper bounds of the histogram's buckets, which hold what is equal; one without a bound follows.
inline constexpr std::array<double, 10> kOffloadSizeBuckets = {1e6,  5e6,  10e6,  20e6,  40e6,
                                                               60e6, 80e6, 100e6, 150e6, 200e6};

/// OffloadPromMetrics(config). Requires: check_config finds nothing wrong.
///
/// A series belongs to the label values of an engine and a transfer type; engines with equal values
/// share theirs.
///
/// observe(data, engine_idx)
///     Type by type: its series, at 0 where it is new, counts each operation's size and time, in
///     order, as floating-point numbers.
///     Requires: the engine is in the configuration (upstream raises).
///
/// collect(out)
///     Replaces out by the metrics, in this order, each with the series in the order in which they
///     came, and with the labels of the configuration, then transfer_type:
///       counter    kOffloadBytesName   `_total`, the sizes added up
///       counter    kOffloadTimeName    `_total`, the times added up
///       histogram  kOffloadSizeName    `_bucket` with le after the labels, a sample per bound and
///                                      "+Inf": operations of at most this size; `_count`: all;
///                                      `_sum`: the sizes added up
template <class M>
concept OffloadPromMetrics = std::copyable<M> &&
    std::constructible_from<M, const OffloadPromMetricsConfig&> &&
    requires(M metrics, const M& const_metrics, std::span<const TransferOperations> data,
             std::uint32_t engine_idx, std::vector<PrometheusMetric>& out) {
  { metrics.observe(data, engine_idx) } -> std::same_as<void>;
  { const_metrics.collect(out) } -> std::same_as<void>;
};

}  // namespace kvfence
