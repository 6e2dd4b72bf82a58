#pragma once

/// The OffloadingConnector in an engine: its tiers and slots, its commands and its observations.
///
/// Codes besides those that the commands name:
///   kBadRange  advance_transfer: to "submitted"
/// With file tiers, slots have bytes (properties/tiering/slot_bytes.h).

#include <cstdint>
#include <memory>
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
  void start(const Config& config, ConnectorSetup& setup, ConnectorPlace place,
             const MakeTierFiles& make_tier_files);
  /// Call it when the ranks exist. The loggers start here.
  void watch(std::vector<EngineRank>& ranks, std::unique_ptr<StatLoggers> loggers);

  ErrorCode run(const AdvanceTransfer& command, Engine& engine, const World& world);
  ErrorCode run(const ReportTransferAgain& command, Engine& engine, const World& world);
  ErrorCode run(const TierFinish& command, Engine& engine, const World& world);
  ErrorCode run(const TierAskAgain& command, Engine& engine, const World& world);
  ErrorCode run(const TierAdd& command, Engine& engine, const World& world);
  ErrorCode run(const TierDrop& command, Engine& engine, const World& world);
  ErrorCode run(const TierFaults& command, Engine& engine, const World& world);
  ErrorCode run(const TierDamage& command, Engine& engine, const World& world);

  ErrorCode run(const LogStats& command, Observed& observed);

  bool has_tiers() const { return setup_.spec.has_tiers; }

  void observe_plan(const KVConnectorMetadata& of_step, Engine& engine, Observed& observed);
  static void observe_report(const AggregatedOutput& report, Observed& observed);
  /// The engine core sends the statistics of a step's ranks, under a MultiConnector those of the
  /// connector's class. class_name: its name there.
  void send_stats(const AggregatedOutput& report, std::string_view class_name);
  /// On a device the transfers are the device's.
  void observe(Engine& engine, bool has_state, Observed& observed);
  void add_to(StateHash& hash) const { hash.add_all(slots_, loggers_, engine_idx_); }

 private:
  /// Fills keys_.
  ErrorCode find_keys(const OfPrompt& prompt, GroupId group,
                      const std::vector<std::uint32_t>& blocks, Engine& engine, const World& world);
  OffloadingConnectorScheduler& connector_of(Engine& engine) const;
  ScriptedTier* tier_at(std::uint32_t place, Engine& engine) const;
  void plan_slots(const std::vector<TransferJob>& stores,
                  const OffloadingConnectorScheduler& connector);
  void observe_transfers(const Engine& engine, Observed& observed) const;
  void observe_tiers(TieringView* view, bool has_state, Observed& observed);

  ConnectorSetup setup_;
  ConnectorPlace place_;
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
