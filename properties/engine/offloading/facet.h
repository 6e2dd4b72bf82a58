#pragma once

/// The OffloadingConnector in an engine: the tiers and slots around it, its commands, and what is
/// observed of it.
///
/// Besides the codes that the commands name:
///   kBadRange  advance_transfer: to "submitted"
///
/// Where there are file tiers, slots have bytes (properties/tiering/slot_bytes.h).

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
  /// Gives the setup's connector its world: tiers, and slots where they have bytes.
  /// make_tier_files: as EngineParts has it; outlives the engine.
  void start(const Config& config, ConnectorSetup& setup, TransferNumbers numbers,
             const MakeTierFiles& make_tier_files);
  /// The ranks are there, and loggers begin.
  void watch(std::vector<EngineRank>& ranks, std::unique_ptr<StatLoggers> loggers);

  /// What a command is run on.
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
  /// The engine core sends what its ranks measured in a step. Under a MultiConnector that is what
  /// its class did; class_name: what it is called there.
  void send_stats(const AggregatedOutput& report, std::string_view class_name);
  void observe_numbers(OffloadingConnectorScheduler& connector, Observed& observed);
  /// After the numbers. Over a device the transfers are the device's.
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
  std::shared_ptr<SlotBytes> slots_;  ///< where there are file tiers
  std::unique_ptr<StatLoggers> loggers_;
  std::uint32_t engine_idx_ = 0;  ///< under which steps are counted
  std::vector<PrometheusMetric> metrics_;
  PolicyLists lists_;
  std::vector<OffloadKey> keys_;
  std::vector<TierTransferState> transfers_;
};

}  // namespace kvfence::engine::offloading
