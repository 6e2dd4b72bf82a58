#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "contract/core/check.h"
#include "contract/engine/engine_target.h"
#include "cuda/worker/engine_on_virtual_device.h"
#include "cuda/worker/planted_worker_bugs.h"
#include "optimized/connectors/kv_output_aggregator.h"
#include "optimized/connectors/offloading/offloading_connector.h"
#include "optimized/connectors/offloading/planted_connector_bugs.h"
#include "optimized/scheduler/scheduler.h"
#include "properties/core/confirmed_implementation.h"
#include "properties/engine/checks.h"
#include "properties/engine/driver.h"
#include "reference/connectors/kv_output_aggregator.h"
#include "reference/connectors/offloading/offloading_connector.h"
#include "reference/engine/engine_device.h"
#include "reference/scheduler/scheduler.h"
#include "scenarios/story/told_engine.h"
#include "scenarios/targets/engine_side.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

struct ReferenceSide : EngineSide<reference::Scheduler, reference::KVOutputAggregator> {
  using Device = reference::EngineDevice;

  auto make_connector(const ConnectorSetup& setup) const {
    return reference::make_offloading_connector_scheduler(setup.spec);
  }
  auto make_worker(const ConnectorSetup& setup, std::uint32_t) const {
    return reference::make_offloading_connector_worker(setup.spec);
  }
  auto make_device(const engine::DeviceOptions& options) const {
    return std::make_unique<Device>(options);
  }
};

template <class DeviceType>
struct OptimizedSide : EngineSide<optimized::Scheduler, optimized::KVOutputAggregator> {
  using Device = DeviceType;

  auto make_connector(const ConnectorSetup& setup) const {
    return optimized::make_offloading_connector_scheduler(setup.spec);
  }
  auto make_worker(const ConnectorSetup& setup, std::uint32_t) const {
    return optimized::make_offloading_connector_worker(setup.spec);
  }
  auto make_device(const engine::DeviceOptions& options) const {
    return std::make_unique<Device>(options);
  }
};

/// A bug of the connector or of the copy worker.
struct PlantedEngineBug {
  optimized::PlantedConnectorBug connector = optimized::PlantedConnectorBug::kNone;
  cuda::PlantedWorkerBug worker = cuda::PlantedWorkerBug::kNone;
};

struct PlantedEngineBugInfo {
  PlantedEngineBug bug;
  std::string_view name;
  std::string_view doc;
  std::string_view thread;
};

constexpr PlantedEngineBugInfo info_of(optimized::PlantedConnectorBug bug) {
  const optimized::PlantedConnectorBugInfo& info = optimized::planted_bug_info(bug);
  return {{.connector = bug}, info.name, info.doc, info.thread};
}

constexpr PlantedEngineBugInfo info_of(cuda::PlantedWorkerBug bug) {
  for (const cuda::PlantedWorkerBugInfo& info : cuda::kPlantedWorkerBugs) {
    if (info.bug == bug) return {{.worker = bug}, info.name, info.doc, info.thread};
  }
  return {};
}

/// Those that break what the layers owe one another.
constexpr std::array kPlantedEngineBugs = {
    info_of(optimized::PlantedConnectorBug::kPreemptedStoresNotFlushed),
    info_of(optimized::PlantedConnectorBug::kReusedBlockNotFlushed),
    info_of(optimized::PlantedConnectorBug::kLoadedBlocksNotFenced),
    info_of(optimized::PlantedConnectorBug::kFinishedStoresNotWatched),
    info_of(optimized::PlantedConnectorBug::kFlushBeforeSubmit),
    info_of(optimized::PlantedConnectorBug::kBlocksNotHeld),
    info_of(optimized::PlantedConnectorBug::kUncomputedTokensStored),
    info_of(optimized::PlantedConnectorBug::kDeferredServed),
    info_of(optimized::PlantedConnectorBug::kFirstHashNamesBlock),
    info_of(optimized::PlantedConnectorBug::kLoadFromOffloadedBoundary),
    info_of(optimized::PlantedConnectorBug::kFailedStoreCompleted),
    info_of(optimized::PlantedConnectorBug::kFailedLoadNotReported),
    info_of(optimized::PlantedConnectorBug::kFailureNotReported),
    info_of(optimized::PlantedConnectorBug::kJobDoneAtFirstWorker),
    info_of(optimized::PlantedConnectorBug::kRank0SpeaksForAll),
    info_of(optimized::PlantedConnectorBug::kInvalidBlocksOfRank0),
    info_of(optimized::PlantedConnectorBug::kRepeatedJobCountedOnce),
    info_of(optimized::PlantedConnectorBug::kWindowedBlocksNotWatched),
    info_of(optimized::PlantedConnectorBug::kStaleWindowIdsStored),
    info_of(optimized::PlantedConnectorBug::kLostIdsKept),
    info_of(cuda::PlantedWorkerBug::kStoreIgnoresCompute),
    info_of(cuda::PlantedWorkerBug::kWaitReturnsAtOnce),
    info_of(cuda::PlantedWorkerBug::kEndEventBeforeCopy),
    info_of(cuda::PlantedWorkerBug::kLoadIgnoresReaders),
    info_of(cuda::PlantedWorkerBug::kErrorsIgnored),
    info_of(cuda::PlantedWorkerBug::kFailureReportedInFlight),
    info_of(cuda::PlantedWorkerBug::kRecordErrorIgnored),
    info_of(cuda::PlantedWorkerBug::kFirstBlockNotSkipped),
};

std::optional<PlantedEngineBug> planted_engine_bug_from_name(std::string_view name) {
  for (const PlantedEngineBugInfo& info : kPlantedEngineBugs) {
    if (info.name == name) return info.bug;
  }
  return std::nullopt;
}

struct PlantedSide : EngineSide<optimized::Scheduler, optimized::PlantedKVOutputAggregator> {
  using Device = cuda::PlantedEngineOnVirtualDevice;

  auto make_connector(const ConnectorSetup& setup) const {
    return optimized::make_planted_offloading_connector_scheduler(setup.spec, bug.connector);
  }
  auto make_worker(const ConnectorSetup& setup, std::uint32_t) const {
    return optimized::make_planted_offloading_connector_worker(setup.spec, bug.connector);
  }
  Aggregator make_aggregator(std::uint32_t num_workers) const {
    return Aggregator(num_workers, bug.connector);
  }
  auto make_device(const engine::DeviceOptions& options) const {
    auto device = std::make_unique<Device>(options, cuda::PlantedWorkerInstrumentation{bug.worker});
    if (on_device) on_device(*device);
    return device;
  }

  PlantedEngineBug bug = {};
  std::function<void(Device&)> on_device = {};
};

template <class Side>
auto make_driver(std::string name, Side side) {
  return std::make_unique<EngineDriver<Side>>(std::move(name), std::move(side));
}

struct Parts {
  static auto reference(std::string name) { return make_driver(std::move(name), ReferenceSide{}); }
  /// With the copy worker, and beside it the same on the reference's device: what the two disagree
  /// about is the copies' fault, what both do otherwise than the reference is none of theirs.
  static auto optimized(std::string name) {
    auto on_symbols = make_driver(name + " on symbols", OptimizedSide<reference::EngineDevice>{});
    return std::make_unique<ConfirmedImplementation>(
        make_driver(std::move(name), OptimizedSide<cuda::EngineOnVirtualDevice>{}),
        std::move(on_symbols));
  }
  static auto planted(std::string name, PlantedEngineBug bug) {
    return make_driver(std::move(name), PlantedSide{{}, bug, {}});
  }

  static constexpr auto& kPlantedBugs = kPlantedEngineBugs;
  static constexpr auto& planted_bug_from_name = planted_engine_bug_from_name;
};

}  // namespace

const TargetSides& engine_sides() {
  static const TargetSides kSides = sides_of<Parts>(engine_checks());
  return kSides;
}

std::unique_ptr<Implementation> make_told_engine(
    std::string_view planted_bug,
    std::function<void(cuda::PlantedEngineOnVirtualDevice&)> on_device) {
  PlantedEngineBug bug;
  if (!planted_bug.empty()) {
    const auto found = planted_engine_bug_from_name(planted_bug);
    KVFENCE_CHECK(found, "a planted bug that the engine does not have");
    bug = *found;
  }
  return make_driver("engine", PlantedSide{{}, bug, std::move(on_device)});
}

}  // namespace kvfence
