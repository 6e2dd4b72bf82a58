#pragma once

/// The SimpleCPUOffloadConnector in an engine: its command and its observations.

#include <vector>

#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/core/status.h"
#include "contract/engine/engine_target.h"
#include "properties/engine/observer.h"
#include "properties/engine/rank.h"

namespace kvfence::engine::simple {

class Facet {
 public:
  void start(TransferNumbers numbers) { numbers_ = numbers; }

  ErrorCode run(const AdvanceCopy& command, std::vector<EngineRank>& ranks) const;

  static void observe_plan(const SimpleCPUOffloadMetadata& metadata, Observed& observed);
  static void observe_numbers(const SimpleCPUOffloadScheduler& connector, Observed& observed);
  /// On a device the copies are the device's.
  void observe_state(const SimpleCPUOffloadScheduler& connector,
                     const std::vector<EngineRank>& ranks, const SchedulerObserver& observer,
                     Observed& observed);

 private:
  void observe_copies(const std::vector<EngineRank>& ranks, Observed& observed) const;

  TransferNumbers numbers_;
  std::vector<PinnedHit> hits_;
};

}  // namespace kvfence::engine::simple
