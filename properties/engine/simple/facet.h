#pragma once

/// The SimpleCPUOffloadConnector in an engine: its command and its observations.

#include <vector>

#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/core/status.h"
#include "contract/engine/engine_target.h"
#include "properties/engine/rank.h"

namespace kvfence::engine::simple {

class Facet {
 public:
  void start(ConnectorPlace place) { place_ = place; }

  ErrorCode run(const AdvanceCopy& command, Engine& engine) const;

  void observe_plan(const KVConnectorMetadata& of_step, Observed& observed) const;
  /// On a device the copies are the device's.
  void observe(Engine& engine, bool has_state, Observed& observed);

 private:
  void observe_copies(const Engine& engine, Observed& observed) const;

  ConnectorPlace place_;
  std::vector<PinnedHit> hits_;
};

}  // namespace kvfence::engine::simple
