#pragma once

/// The OffloadingConnector in an engine: its tiers and slots, its commands and its observations.
///
/// Codes besides those that the commands name:
///   kBadRange  advance_transfer: to "submitted"
/// With file tiers, slots have bytes (properties/tiering/slot_bytes.h).

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/kv_output_aggregator.h"
#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/engine/engine_target.h"
#include "contract/scripted/scripted_tier.h"
#include "properties/engine/engine_parts.h"
#include "properties/engine/offloading/stat_loggers.h"
#include "properties/engine/rank.h"
#include "properties/tiering/slot_bytes.h"

namespace kvfence::engine::offloading {

class Facet {
 public:
  /// Gives the setup's connector its tiers, and slots with bytes if needed. make_tier_files: as in
  /// EngineParts; outlives the engine.
  void start(const Config& config, ConnectorSetup& setup, TransferNumbers numbers,
             const MakeTierFiles& make_tier_files);
  /// Call it when the ranks exist. The loggers start here.
  void watch(std::vector<EngineRank>& ranks, std::unique_ptr<StatLoggers> loggers);

  /// The parts of the engine that commands use.
  struct Around {
    OffloadingConnectorScheduler& connector;
    std::vector<EngineRank>& ranks;
    const World& world;
  };
  ErrorCode run(const AdvanceTransfer& command, const Around& around);
  ErrorCode run(const ReportTransferAgain& command, const Around& around);
  ErrorCode run(const TierFinish& command, const Around& around);
  ErrorCode run(const TierAskAgain& command, const Around& around);
  ErrorCode run(const TierAdd& command, const Around& around);
  ErrorCode run(const TierDrop& command, const Around& around);
  ErrorCode run(const TierFaults& command, const Around& around);
  ErrorCode run(const TierDamage& command, const Around& around);

  ErrorCode run(const LogStats& command, Observed& observed);

  bool has_tiers() const { return setup_.spec.has_tiers; }

  void observe_plan(const OffloadingConnectorMetadata& metadata,
                    const OffloadingConnectorScheduler& connector, Observed& observed);
  static void observe_report(const AggregatedOutput& report, Observed& observed);
  /// The engine core sends the statistics of a step's ranks, under a MultiConnector those of the
  /// connector's class. class_name: its name there.
  void send_stats(const AggregatedOutput& report, std::string_view class_name);
  void observe_numbers(OffloadingConnectorScheduler& connector, Observed& observed);
  /// Call it after observe_numbers. On a device the transfers are the device's.
  void observe_state(OffloadingConnectorScheduler& connector, const std::vector<EngineRank>& ranks,
                     Observed& observed);
  void add_to(StateHash& hash) const { hash.add_all(slots_, loggers_, engine_idx_); }

 private:
  /// Fills keys_.
  ErrorCode find_keys(std::uint32_t place, const std::string& request, GroupId group,
                      const std::vector<std::uint32_t>& blocks, const Around& around);
  void plan_slots(const std::vector<TransferJob>& stores,
                  const OffloadingConnectorScheduler& connector);
  void observe_tiers(OffloadingConnectorScheduler& connector, Observed& observed);

  ConnectorSetup setup_;
  TransferNumbers numbers_;
  bool transfers_may_fail_ = false;
  std::shared_ptr<TierCalls> tier_calls_;
  std::shared_ptr<SlotBytes> slots_;  ///< with file tiers
  std::unique_ptr<StatLoggers> loggers_;
  std::uint32_t engine_idx_ = 0;  ///< of the statistics of the next steps
  std::vector<PrometheusMetric> metrics_;
  PolicyLists lists_;
  std::vector<OffloadKey> keys_;
  std::vector<TierTransferState> transfers_;
};

}  // namespace kvfence::engine::offloading
