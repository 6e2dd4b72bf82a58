#pragma once

/// What an engine is built from: what its configuration (contract/engine/engine_config.h) says,
/// with the connectors' own parts.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "contract/connectors/offloading/offloading_setup.h"
#include "contract/core/engine_role.h"
#include "contract/engine/engine_device.h"
#include "contract/engine/engine_target.h"
#include "contract/scheduler/scheduler.h"

namespace kvfence {

namespace engine {

/// A connector whose parts a setup has.
enum class ConnectorKind : std::uint8_t { kOffloading, kSimple, kFiles, kNixl, kScripted };
inline constexpr std::size_t kNumConnectorKinds = 5;

/// A child of a MultiConnector.
struct ChildSetup {
  ConnectorKind kind = ConnectorKind::kScripted;
  ScriptedRecord scripted;  ///< of a scripted one
  // Over a device: its pages of CPU memory.
  std::uint32_t first_page = 0;
  std::uint32_t block_size_factor = 1;  ///< pages of a slot
};

}  // namespace engine

/// What the devices and connectors of one engine are built from: only those that the configuration
/// names.
struct ConnectorParts {
  std::optional<engine::DeviceOptions> device;  ///< each rank's
  std::optional<ConnectorSetup> offloading;
  std::optional<SimpleCPUOffloadSpec> simple;
  std::optional<SynchronousConnectorSpec> files;
};

/// What an engine, or a pair, is built from; the parts are the producer's.
struct EngineSetup : ConnectorParts {
  std::vector<SchedulerConfig> schedulers;  ///< by EngineRole: one, or two
  std::vector<std::uint32_t> num_ranks;     ///< likewise
  engine::Assembly assembly = engine::Assembly::kScheduler;
  bool is_scripted = false;  ///< the connector's answers are commands

  ConnectorParts consumer;  ///< of a pair
  std::optional<DisaggregatedSpec> nixl;
  /// The children of each engine's MultiConnector, in order, with each scripted one; none without
  /// one.
  std::vector<engine::ChildSetup> children;

  bool is_virtual = false;
  std::vector<std::uint32_t> windows;  ///< by group: tokens; 0: full attention
  bool tokens_only = false;

  ConnectorParts& of(EngineRole role) { return role == EngineRole::kProducer ? *this : consumer; }
  const ConnectorParts& of(EngineRole role) const {
    return role == EngineRole::kProducer ? *this : consumer;
  }
  const SchedulerConfig& scheduler() const { return schedulers.front(); }
  bool is_pair() const { return schedulers.size() > 1; }
  bool has_connector() const { return is_scripted || has_workers(); }
  /// Whether the connector has workers' halves, which report.
  bool has_workers() const { return offloading || simple || files || nixl || !children.empty(); }
  bool has_ranks() const { return has_workers() || device; }
  /// Whether a request may read the GPU's cache: engine::AddRequest.
  bool may_read_gpu_cache() const;
  bool has_child(std::uint32_t place, engine::ConnectorKind kind) const {
    return place < children.size() && children[place].kind == kind;
  }

  // Over a device, by the number that the engine of a rank has for a transfer.

  bool is_of_simple(JobId transfer) const;
  /// The number that its connector has for it.
  JobId own_number(JobId transfer) const;
  /// The pages of CPU memory, one per GPU block. Requires: counts that fit.
  std::vector<std::uint32_t> cpu_pages_of(const engine::DeviceTransfer& transfer) const;
};

}  // namespace kvfence
