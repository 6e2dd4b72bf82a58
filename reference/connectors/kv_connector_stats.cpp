#include "reference/connectors/kv_connector_stats.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "contract/core/check.h"

namespace kvfence::reference {
namespace {

double total_size(const std::vector<OffloadingOperationMetrics>& ops) {
  double total = 0;
  for (const OffloadingOperationMetrics& op : ops) total += static_cast<double>(op.op_size);
  return total;
}

double total_time(const std::vector<OffloadingOperationMetrics>& ops) {
  double total = 0;
  for (const OffloadingOperationMetrics& op : ops) total += op.op_time;
  return total;
}

double count_up_to(const std::vector<OffloadingOperationMetrics>& ops, double bound) {
  const auto count = std::ranges::count_if(ops, [&](const OffloadingOperationMetrics& op) {
    return static_cast<double>(op.op_size) <= bound;
  });
  return static_cast<double>(count);
}

}  // namespace

std::vector<OffloadingOperationMetrics>& OffloadingConnectorStats::operations_of(
    const std::string& transfer_type) {
  const auto found = std::ranges::find(data_, transfer_type, &TransferOperations::transfer_type);
  if (found != data_.end()) return found->ops;
  data_.push_back({transfer_type, {}});
  return data_.back().ops;
}

// Source: vLLM v0.19.0 v1/.../offloading/metrics.py record_transfer
void OffloadingConnectorStats::record_transfer(std::uint64_t num_bytes, double time,
                                               const TransferType& type) {
  KVFENCE_CHECK(std::isfinite(time) && time >= 0, "a transfer takes a finite time");
  operations_of(std::string(type.src) + "_to_" + std::string(type.dst))
      .push_back({num_bytes, time});
}

// Source: vLLM v0.19.0 v1/.../offloading/metrics.py aggregate
void OffloadingConnectorStats::aggregate(std::span<const TransferOperations> data) {
  for (const TransferOperations& each : data) {
    std::vector<OffloadingOperationMetrics>& ops = operations_of(each.transfer_type);
    ops.insert(ops.end(), each.ops.begin(), each.ops.end());
  }
}

// Source: vLLM v0.19.0 v1/.../offloading/metrics.py reduce
void OffloadingConnectorStats::reduce(std::vector<TransferTotals>& out) const {
  out.clear();
  for (const TransferOperations& each : data_) {
    std::uint64_t total_bytes = 0;
    for (const OffloadingOperationMetrics& op : each.ops) total_bytes += op.op_size;
    out.push_back({each.transfer_type, total_bytes, total_time(each.ops)});
  }
}

// Source: vLLM v0.23.0 v1/.../multi_connector.py MultiKVConnectorStats.aggregate
void StatsByClass::aggregate(const std::string& connector_class,
                             std::span<const TransferOperations> data) {
  auto at = std::ranges::find_if(of_classes_,
                                 [&](const auto& each) { return each.first == connector_class; });
  if (at == of_classes_.end()) at = of_classes_.insert(at, {connector_class, {}});
  at->second.aggregate(data);
}

std::vector<TransferOperationsOfClass> StatsByClass::data() const {
  std::vector<TransferOperationsOfClass> found;
  for (const auto& [connector_class, stats] : of_classes_) {
    found.push_back({connector_class, {stats.data().begin(), stats.data().end()}});
  }
  return found;
}

OffloadPromMetrics::OffloadPromMetrics(const OffloadPromMetricsConfig& config) : config_(config) {
  KVFENCE_CHECK(!check_config(config), "no metrics can be built from this configuration");
}

// Source: vLLM v0.19.0 v1/.../offloading/metrics.py OffloadPromMetrics.observe
void OffloadPromMetrics::observe(std::span<const TransferOperations> data,
                                 std::uint32_t engine_idx) {
  const auto engine = config_.per_engine_labelvalues.find(engine_idx);
  KVFENCE_CHECK(engine != config_.per_engine_labelvalues.end(), "an engine without label values");
  for (const TransferOperations& each : data) {
    std::vector<std::string> labelvalues = engine->second;
    labelvalues.push_back(each.transfer_type);
    auto series = std::ranges::find(all_series_, labelvalues, &Series::labelvalues);
    if (series == all_series_.end()) series = all_series_.insert(series, {labelvalues, {}});
    series->ops.insert(series->ops.end(), each.ops.begin(), each.ops.end());
  }
}

std::vector<PrometheusLabel> OffloadPromMetrics::labels_of(const Series& series) const {
  std::vector<PrometheusLabel> labels;
  for (std::size_t index = 0; index < config_.labelnames.size(); ++index) {
    labels.push_back({config_.labelnames[index], series.labelvalues[index]});
  }
  labels.push_back({"transfer_type", series.labelvalues.back()});
  return labels;
}

// Source: vLLM v0.19.0 v1/.../offloading/metrics.py OffloadPromMetrics.__init__; prometheus_client
// metrics.py Counter._child_samples, Histogram._child_samples
void OffloadPromMetrics::collect(std::vector<PrometheusMetric>& out) const {
  PrometheusMetric bytes;
  bytes.name = kOffloadBytesName;
  bytes.help = kOffloadBytesHelp;
  PrometheusMetric time;
  time.name = kOffloadTimeName;
  time.help = kOffloadTimeHelp;
  PrometheusMetric size;
  size.name = kOffloadSizeName;
  size.help = kOffloadSizeHelp;
  size.type = PrometheusType::kHistogram;

  std::vector<double> bounds(kOffloadSizeBuckets.begin(), kOffloadSizeBuckets.end());
  bounds.push_back(std::numeric_limits<double>::infinity());
  for (const Series& series : all_series_) {
    const std::vector<PrometheusLabel> labels = labels_of(series);
    bytes.samples.push_back({"_total", labels, total_size(series.ops)});
    time.samples.push_back({"_total", labels, total_time(series.ops)});
    for (double bound : bounds) {
      std::vector<PrometheusLabel> labels_and_bound = labels;
      labels_and_bound.push_back({"le", prometheus_number(bound)});
      size.samples.push_back({"_bucket", labels_and_bound, count_up_to(series.ops, bound)});
    }
    size.samples.push_back({"_count", labels, static_cast<double>(series.ops.size())});
    size.samples.push_back({"_sum", labels, total_size(series.ops)});
  }
  out = {bytes, time, size};
}

}  // namespace kvfence::reference
