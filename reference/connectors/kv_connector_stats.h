#pragma once

/// Statistics of transfers and their metrics, as lists of what was recorded; everything else is
/// added up on request. The rules are in contract/connectors/kv_connector_stats.h.

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/kv_connector_stats.h"

namespace kvfence::reference {

class OffloadingConnectorStats {
 public:
  void record_transfer(std::uint64_t num_bytes, double time, const TransferType& type);
  void aggregate(std::span<const TransferOperations> data);
  void reduce(std::vector<TransferTotals>& out) const;
  bool is_empty() const { return data_.empty(); }
  void reset() { data_.clear(); }
  std::span<const TransferOperations> data() const { return data_; }

 private:
  std::vector<OffloadingOperationMetrics>& operations_of(const std::string& transfer_type);

  std::vector<TransferOperations> data_;
};

/// Those of several connectors by class, in the order in which the classes came.
class StatsByClass {
 public:
  void aggregate(const std::string& connector_class, std::span<const TransferOperations> data);
  std::vector<TransferOperationsOfClass> data() const;

 private:
  std::vector<std::pair<std::string, OffloadingConnectorStats>> of_classes_;
};

class OffloadPromMetrics {
 public:
  explicit OffloadPromMetrics(const OffloadPromMetricsConfig& config);

  void observe(std::span<const TransferOperations> data, std::uint32_t engine_idx);
  void collect(std::vector<PrometheusMetric>& out) const;

 private:
  /// Everything that was observed under these label values.
  struct Series {
    std::vector<std::string> labelvalues;  ///< the transfer type last
    std::vector<OffloadingOperationMetrics> ops;
  };
  std::vector<PrometheusLabel> labels_of(const Series& series) const;

  OffloadPromMetricsConfig config_;
  std::vector<Series> all_series_;
};

static_assert(kvfence::OffloadingConnectorStats<OffloadingConnectorStats>);
static_assert(kvfence::OffloadPromMetrics<OffloadPromMetrics>);

}  // namespace kvfence::reference
