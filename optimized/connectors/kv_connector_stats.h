#pragma once

/// Statistics of transfers and their metrics. The rules are in
/// contract/connectors/kv_connector_stats.h.
///
/// Totals are kept beside the operations. A series keeps only what its samples show: two sums and a
/// counter per bucket. There are few transfer types, so a linear search finds them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/kv_connector_stats.h"

namespace kvfence::optimized {

/// After a reset, types and lists are used again: an interval like the last one allocates nothing.
class OffloadingConnectorStats {
 public:
  /// Cost: O(types).
  void record_transfer(std::uint64_t num_bytes, double time, const TransferType& type);
  /// Cost: O(operations of data).
  void aggregate(std::span<const TransferOperations> data);
  /// Cost: O(types).
  void reduce(std::vector<TransferTotals>& out) const;
  bool is_empty() const { return num_types_ == 0; }
  /// Replaces out by data(), and resets. Cost: O(operations). Reuses the storage of out as far as
  /// it has the same number of types.
  void move_to(std::vector<TransferOperations>& out);
  /// Cost: O(1).
  void reset() { num_types_ = 0; }
  std::span<const TransferOperations> data() const {
    return std::span(operations_).first(num_types_);
  }

 private:
  struct Totals {
    std::uint64_t bytes = 0;
    double time = 0;
  };

  /// The index of the type with the name src + to + dst.
  std::size_t index_of(std::string_view src, std::string_view to, std::string_view dst);
  void append(std::size_t index, const OffloadingOperationMetrics& op);

  std::vector<TransferOperations> operations_;  ///< those after num_types_ are spare
  std::vector<Totals> totals_;                  ///< of each of them
  std::size_t num_types_ = 0;
};

/// The statistics of several connectors by class, in the order in which the classes came.
class StatsByClass {
 public:
  /// Cost: O(classes + operations).
  void aggregate(std::string_view connector_class, std::span<const TransferOperations> data);
  /// Replaces out, and resets. Cost: O(classes + operations).
  void move_to(std::vector<TransferOperationsOfClass>& out);

 private:
  struct OfClass {
    std::string connector_class;
    OffloadingConnectorStats stats;
  };
  std::vector<OfClass> of_classes_;
};

class OffloadPromMetrics {
 public:
  explicit OffloadPromMetrics(const OffloadPromMetricsConfig& config);

  /// Cost: O(operations + types * (log engines + types)); a type that is new to the engine:
  /// O(series * labels).
  void observe(std::span<const TransferOperations> data, std::uint32_t engine_idx);
  /// Cost: O(series).
  void collect(std::vector<PrometheusMetric>& out) const;

 private:
  static constexpr std::size_t kNumBuckets = kOffloadSizeBuckets.size() + 1;

  struct Engine {
    std::vector<std::string> labelvalues;
    std::vector<std::size_t> series;  ///< the places in all_series_ that it has used
  };
  struct Series {
    std::vector<std::string> labelvalues;
    std::string transfer_type;
    std::array<std::uint64_t, kNumBuckets> counts = {};  ///< not cumulative
    double bytes = 0;
    double time = 0;
  };

  Series& series_of(Engine& engine, const std::string& transfer_type);
  std::size_t bucket_of(std::uint64_t op_size) const;
  void count(Series& series, const OffloadingOperationMetrics& op) const;
  std::vector<PrometheusLabel> labels_of(const Series& series) const;

  std::vector<std::string> labelnames_;
  std::map<std::uint32_t, Engine> engines_;
  std::vector<Series> all_series_;
};

static_assert(kvfence::OffloadingConnectorStats<OffloadingConnectorStats>);
static_assert(kvfence::OffloadPromMetrics<OffloadPromMetrics>);

}  // namespace kvfence::optimized
