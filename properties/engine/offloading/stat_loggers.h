#pragma once

/// The state of vLLM's loggers for the statistics of an OffloadingConnector: those of the interval,
/// whose totals are logged, and the metrics, which last as long as the engine. Source: vLLM v0.23.0
/// v1/metrics/loggers.py; kv_connector/v1/metrics.py KVConnectorLogging, KVConnectorProm.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "contract/connectors/kv_connector_stats.h"
#include "contract/core/state_digest.h"

namespace kvfence {

/// The loggers of one engine.
class StatLoggers {
 public:
  StatLoggers() = default;
  StatLoggers(const StatLoggers&) = delete;
  StatLoggers& operator=(const StatLoggers&) = delete;
  virtual ~StatLoggers() = default;

  /// Adds what the engine core of that index sent with a step. Requires: metrics have the index.
  virtual void observe(std::span<const TransferOperations> stats, std::uint32_t engine_idx) = 0;
  /// Statistics since the last log; valid until the next change.
  virtual std::span<const TransferOperations> interval() const = 0;
  /// Logs the totals, if anything was observed, and starts another interval.
  virtual std::optional<std::string> log() = 0;
  virtual void collect(std::vector<PrometheusMetric>& out) const = 0;

  void add_to(StateHash& hash) const {
    std::vector<PrometheusMetric> metrics;
    collect(metrics);
    hash.add_all(interval(), print(metrics));
  }
};

/// Loggers with the statistics and metrics of one side.
template <OffloadingConnectorStats Stats, OffloadPromMetrics Metrics>
class StatLoggersOf final : public StatLoggers {
 public:
  explicit StatLoggersOf(const OffloadPromMetricsConfig& config) : metrics_(config) {}

  void observe(std::span<const TransferOperations> stats, std::uint32_t engine_idx) override {
    interval_.aggregate(stats);
    metrics_.observe(stats, engine_idx);
  }
  std::span<const TransferOperations> interval() const override { return interval_.data(); }
  std::optional<std::string> log() override {
    if (interval_.is_empty()) return std::nullopt;
    interval_.reduce(totals_);
    interval_.reset();
    return to_log_text(totals_);
  }
  void collect(std::vector<PrometheusMetric>& out) const override { metrics_.collect(out); }

 private:
  Stats interval_;
  Metrics metrics_;
  std::vector<TransferTotals> totals_;  ///< of the last log
};

template <class Stats, class Metrics>
std::unique_ptr<StatLoggers> make_stat_loggers(const OffloadPromMetricsConfig& config) {
  return std::make_unique<StatLoggersOf<Stats, Metrics>>(config);
}

}  // namespace kvfence
