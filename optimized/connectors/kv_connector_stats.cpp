#include "optimized/connectors/kv_connector_stats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "contract/core/check.h"

namespace kvfence::optimized {
namespace {

bool is_joined(std::string_view text, std::string_view src, std::string_view to,
               std::string_view dst) {
  return text.size() == src.size() + to.size() + dst.size() && text.substr(0, src.size()) == src &&
         text.substr(src.size(), to.size()) == to && text.substr(src.size() + to.size()) == dst;
}

}  // namespace

std::size_t OffloadingConnectorStats::index_of(std::string_view src, std::string_view to,
                                               std::string_view dst) {
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

void OffloadingConnectorStats::append(std::size_t index, const OffloadingOperationMetrics& op) {
  operations_[index].ops.push_back(op);
  totals_[index].bytes += op.op_size;
  totals_[index].time += op.op_time;
}

void OffloadingConnectorStats::record_transfer(std::uint64_t num_bytes, double time,
                                               const TransferType& type) {
  KVFENCE_CHECK(std::isfinite(time) && time >= 0, "a transfer takes a finite time");
  append(index_of(type.src, "_to_", type.dst), {num_bytes, time});
}

void OffloadingConnectorStats::aggregate(std::span<const TransferOperations> data) {
  for (const TransferOperations& each : data) {
    const std::size_t index = index_of(each.transfer_type, {}, {});
    for (const OffloadingOperationMetrics& op : each.ops) append(index, op);
  }
}

void OffloadingConnectorStats::move_to(std::vector<TransferOperations>& out) {
  out.resize(num_types_);
  for (std::size_t index = 0; index < num_types_; ++index) out[index] = operations_[index];
  reset();
}

void OffloadingConnectorStats::reduce(std::vector<TransferTotals>& out) const {
  out.resize(num_types_);
  for (std::size_t index = 0; index < num_types_; ++index) {
    out[index].transfer_type = operations_[index].transfer_type;
    out[index].total_bytes = totals_[index].bytes;
    out[index].total_time = totals_[index].time;
  }
}

void StatsByClass::aggregate(std::string_view connector_class,
                             std::span<const TransferOperations> data) {
  for (OfClass& known : of_classes_) {
    if (known.connector_class != connector_class) continue;
    return known.stats.aggregate(data);
  }
  OfClass& added = of_classes_.emplace_back();
  added.connector_class = connector_class;
  added.stats.aggregate(data);
}

void StatsByClass::move_to(std::vector<TransferOperationsOfClass>& out) {
  out.resize(of_classes_.size());
  for (std::size_t at = 0; at < out.size(); ++at) {
    out[at].connector_class = std::move(of_classes_[at].connector_class);
    of_classes_[at].stats.move_to(out[at].stats);
  }
  of_classes_.clear();
}

OffloadPromMetrics::OffloadPromMetrics(const OffloadPromMetricsConfig& config)
    : labelnames_(config.labelnames) {
  KVFENCE_CHECK(!check_config(config), "no metrics can be built from the configuration");
  for (const auto& [engine_idx, values] : config.per_engine_labelvalues) {
    engines_[engine_idx].labelvalues = values;
  }
}

OffloadPromMetrics::Series& OffloadPromMetrics::series_of(Engine& engine,
                                                          const std::string& transfer_type) {
  for (std::size_t place : engine.series) {
    if (all_series_[place].transfer_type == transfer_type) return all_series_[place];
  }
  const auto found = std::ranges::find_if(all_series_, [&](const Series& series) {
    return series.labelvalues == engine.labelvalues && series.transfer_type == transfer_type;
  });
  engine.series.push_back(static_cast<std::size_t>(found - all_series_.begin()));
  if (found != all_series_.end()) return *found;
  Series& series = all_series_.emplace_back();
  series.labelvalues = engine.labelvalues;
  series.transfer_type = transfer_type;
  return series;
}

/// The first bucket with a bound not below the size.
std::size_t OffloadPromMetrics::bucket_of(std::uint64_t op_size) const {
  const auto* const begin = kOffloadSizeBuckets.data();
  const auto* const end = begin + kOffloadSizeBuckets.size();
  const double size = static_cast<double>(op_size);
  return static_cast<std::size_t>(std::lower_bound(begin, end, size) - begin);
}

void OffloadPromMetrics::count(Series& series, const OffloadingOperationMetrics& op) const {
  ++series.counts[bucket_of(op.op_size)];
  series.bytes += static_cast<double>(op.op_size);
  series.time += op.op_time;
}

void OffloadPromMetrics::observe(std::span<const TransferOperations> data,
                                 std::uint32_t engine_idx) {
  const auto engine = engines_.find(engine_idx);
  KVFENCE_CHECK(engine != engines_.end(), "an engine that the configuration does not have");
  for (const TransferOperations& each : data) {
    Series& series = series_of(engine->second, each.transfer_type);
    for (const OffloadingOperationMetrics& op : each.ops) count(series, op);
  }
}

std::vector<PrometheusLabel> OffloadPromMetrics::labels_of(const Series& series) const {
  std::vector<PrometheusLabel> labels;
  labels.reserve(labelnames_.size() + 1);
  for (std::size_t index = 0; index < labelnames_.size(); ++index) {
    labels.push_back({labelnames_[index], series.labelvalues[index]});
  }
  labels.push_back({"transfer_type", series.transfer_type});
  return labels;
}

void OffloadPromMetrics::collect(std::vector<PrometheusMetric>& out) const {
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

}  // namespace kvfence::optimized
