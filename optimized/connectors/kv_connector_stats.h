#pragma once

/// Statistics of transfers and their metrics. The rules stand in
/// contract/connectors/kv_connector_stats.h.
///
/// Totals are kept beside the operations, and a series is what its samples show: two sums and a
/// counter a bucket. There are few transfer types, so they are looked for one after the other.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/kv_connector_stats.h"
#include "contract/core/check.h"

namespace kvfence::optimized {

inline bool is_joined(std::string_view text, std::string_view src, std::string_view to,
                      std::string_view dst) {
  return text.size() == src.size() + to.size() + dst.size() && text.substr(0, src.size()) == src &&
         text.substr(src.size(), to.size()) == to && text.substr(src.size() + to.size()) == dst;
}

/// After a reset, types and lists are used again: an interval like the last one allocates nothing.
class OffloadingConnectorStats {
 public:
  OffloadingConnectorStats() = default;
  explicit OffloadingConnectorStats(std::span<const TransferOperations> data) { aggregate(data); }

  /// Cost: O(types).
  void record_transfer(std::uint64_t num_bytes, double time, const TransferType& type) {
    KVFENCE_CHECK(std::isfinite(time) && time >= 0, "a transfer takes a finite time");
    append(index_of(type.src, "_to_", type.dst), {num_bytes, time});
  }

  /// Cost: O(operations of other).
  void aggregate(const OffloadingConnectorStats& other) {
    // By index and by counts from before: other may be this one.
    const std::size_t num_types = other.num_types_;
    for (std::size_t from = 0; from < num_types; ++from) {
      const std::size_t index = index_of(other.operations_[from].transfer_type, {}, {});
      const std::size_t num_ops = other.operations_[from].ops.size();
      for (std::size_t k = 0; k < num_ops; ++k) {
        const OffloadingOperationMetrics op = other.operations_[from].ops[k];
        append(index, op);
      }
    }
  }

  /// The same with what another one's data() was. Cost: O(operations).
  void aggregate(std::span<const TransferOperations> data) {
    for (const TransferOperations& each : data) {
      const std::size_t index = index_of(each.transfer_type, {}, {});
      for (const OffloadingOperationMetrics& op : each.ops) append(index, op);
    }
  }

  /// Cost: O(types).
  void reduce(std::vector<TransferTotals>& out) const {
    out.resize(num_types_);
    for (std::size_t index = 0; index < num_types_; ++index) {
      out[index].transfer_type = operations_[index].transfer_type;
      out[index].total_bytes = totals_[index].bytes;
      out[index].total_time = totals_[index].time;
    }
  }

  bool is_empty() const { return num_types_ == 0; }

  /// Replaces out by data(), and resets. Cost: O(operations); storage of out is used again as far
  /// as it has the same number of types.
  void move_to(std::vector<TransferOperations>& out) {
    out.resize(num_types_);
    for (std::size_t index = 0; index < num_types_; ++index) out[index] = operations_[index];
    reset();
  }

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

  /// Where the type stands whose name is these three, one behind the other.
  std::size_t index_of(std::string_view src, std::string_view to, std::string_view dst) {
    for (std::size_t index = 0; index < num_types_; ++index) {
      if (is_joined(operations_[index].transfer_type, src, to, dst)) return index;
    }
    if (num_types_ == operations_.size()) {
      operations_.emplace_back();
      totals_.emplace_back();
    }
    std::string& transfer_type = operations_[num_types_].transfer_type;
    transfer_type.assign(src).append(to).append(dst);
    operations_[num_types_].ops.clear();
    totals_[num_types_] = {};
    return num_types_++;
  }

  void append(std::size_t index, const OffloadingOperationMetrics& op) {
    operations_[index].ops.push_back(op);
    totals_[index].bytes += op.op_size;
    totals_[index].time += op.op_time;
  }

  std::vector<TransferOperations> operations_;  ///< those behind num_types_ are spare
  std::vector<Totals> totals_;                  ///< of each of them
  std::size_t num_types_ = 0;
};

class OffloadPromMetrics {
 public:
  explicit OffloadPromMetrics(const OffloadPromMetricsConfig& config)
      : labelnames_(config.labelnames) {
    KVFENCE_CHECK(!check_config(config), "no metrics can be built from the configuration");
    std::map<std::vector<std::string>, std::size_t> places;
    for (const auto& [engine_idx, values] : config.per_engine_labelvalues) {
      auto place = places.find(values);
      if (place == places.end()) {
        place = places.emplace(values, labelvalues_.size()).first;
        labelvalues_.push_back(values);
      }
      engines_[engine_idx].labelvalues = place->second;
    }
  }

  /// Cost: O(operations + types * (log engines + types)); a new series: O(series).
  void observe(std::span<const TransferOperations> data, std::uint32_t engine_idx) {
    const auto engine = engines_.find(engine_idx);
    KVFENCE_CHECK(engine != engines_.end(), "an engine that the configuration does not have");
    for (const TransferOperations& each : data) {
      Series& series = series_of(engine->second, each.transfer_type);
      for (const OffloadingOperationMetrics& op : each.ops) count(series, op);
    }
  }

  /// Cost: O(series).
  void collect(std::vector<PrometheusMetric>& out) const {
    out.assign(3, {});
    PrometheusMetric& bytes = out[0];
    PrometheusMetric& time = out[1];
    PrometheusMetric& size = out[2];
    bytes.name = kOffloadBytesName;
    bytes.help = kOffloadBytesHelp;
    time.name = kOffloadTimeName;
    time.help = kOffloadTimeHelp;
    size.name = kOffloadSizeName;
    size.help = kOffloadSizeHelp;
    size.type = PrometheusType::kHistogram;
    for (const Series& series : all_series_) {
      const std::vector<PrometheusLabel> labels = labels_of(series);
      bytes.samples.push_back({"_total", labels, series.bytes});
      time.samples.push_back({"_total", labels, series.time});
      std::uint64_t count = 0;
      for (std::size_t bucket = 0; bucket < kNumBuckets; ++bucket) {
        count += series.counts[bucket];
        const double bound = bucket < kOffloadSizeBuckets.size()
                                 ? kOffloadSizeBuckets[bucket]
                                 : std::numeric_limits<double>::infinity();
        PrometheusSample& sample = size.samples.emplace_back();
        sample.suffix = "_bucket";
        sample.labels = labels;
        sample.labels.push_back({"le", prometheus_number(bound)});
        sample.value = static_cast<double>(count);
      }
      size.samples.push_back({"_count", labels, static_cast<double>(count)});
      size.samples.push_back({"_sum", labels, series.bytes});
    }
  }

 private:
  static constexpr std::size_t kNumBuckets = kOffloadSizeBuckets.size() + 1;

  struct Engine {
    std::size_t labelvalues = 0;      ///< place in labelvalues_
    std::vector<std::size_t> series;  ///< places in all_series_ that it has used
  };
  struct Series {
    std::size_t labelvalues = 0;  ///< place in labelvalues_
    std::string transfer_type;
    std::array<std::uint64_t, kNumBuckets> counts = {};  ///< not cumulative
    double bytes = 0;
    double time = 0;
  };

  Series& series_of(Engine& engine, const std::string& transfer_type) {
    for (std::size_t place : engine.series) {
      if (all_series_[place].transfer_type == transfer_type) return all_series_[place];
    }
    const auto found =
        std::find_if(all_series_.begin(), all_series_.end(), [&](const Series& series) {
          return series.labelvalues == engine.labelvalues && series.transfer_type == transfer_type;
        });
    engine.series.push_back(static_cast<std::size_t>(found - all_series_.begin()));
    if (found != all_series_.end()) return *found;
    Series& series = all_series_.emplace_back();
    series.labelvalues = engine.labelvalues;
    series.transfer_type = transfer_type;
    return series;
  }

  /// The first bucket whose bound is not below the size.

  std::size_t bucket_of(std::uint64_t op_size) const {
    const auto* const begin = kOffloadSizeBuckets.data();
    const auto* const end = begin + kOffloadSizeBuckets.size();
    const double size = static_cast<double>(op_size);
    return static_cast<std::size_t>(std::lower_bound(begin, end, size) - begin);
  }

  void count(Series& series, const OffloadingOperationMetrics& op) const {
    ++series.counts[bucket_of(op.op_size)];
    series.bytes += static_cast<double>(op.op_size);
    series.time += op.op_time;
  }

  std::vector<PrometheusLabel> labels_of(const Series& series) const {
    const std::vector<std::string>& values = labelvalues_[series.labelvalues];
    std::vector<PrometheusLabel> labels(labelnames_.size() + 1);
    for (std::size_t index = 0; index < labelnames_.size(); ++index) {
      labels[index].name = labelnames_[index];
      labels[index].value = values[index];
    }
    labels.back().name = "transfer_type";
    labels.back().value = series.transfer_type;
    return labels;
  }

  std::vector<std::string> labelnames_;
  std::vector<std::vector<std::string>> labelvalues_;  ///< each combination once
  std::map<std::uint32_t, Engine> engines_;
  std::vector<Series> all_series_;
};

static_assert(kvfence::OffloadingConnectorStats<OffloadingConnectorStats>);
static_assert(kvfence::OffloadPromMetrics<OffloadPromMetrics>);

}  // namespace kvfence::optimized
