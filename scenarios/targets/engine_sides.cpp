#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/kv_connector_registry.h"
#include "contract/connectors/offloading/offloading_setup.h"
#include "contract/core/check.h"
#include "contract/core/lists.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "cuda/worker/engine_on_virtual_device.h"
#include "optimized/connectors/disaggregated/disaggregated_connector.h"
#include "optimized/connectors/kv_connector_stats.h"
#include "optimized/connectors/kv_output_aggregator.h"
#include "optimized/connectors/multi/multi_connector.h"
#include "optimized/connectors/offloading/offloading_connector.h"
#include "optimized/connectors/simple/simple_cpu_offload.h"
#include "optimized/connectors/synchronous/synchronous_connector.h"
#include "optimized/scheduler/scheduler.h"
#include "optimized/tiering/tier_files.h"
#include "planted/cuda/worker/engine_on_virtual_device.h"
#include "planted/optimized/connectors/disaggregated/disaggregated_connector.h"
#include "planted/optimized/connectors/kv_connector_stats.h"
#include "planted/optimized/connectors/kv_output_aggregator.h"
#include "planted/optimized/connectors/multi/multi_connector.h"
#include "planted/optimized/connectors/offloading/offloading_connector.h"
#include "planted/optimized/connectors/simple/simple_cpu_offload.h"
#include "planted/optimized/connectors/synchronous/synchronous_connector.h"
#include "planted/optimized/scheduler/scheduler.h"
#include "planted/optimized/tiering/tier_files.h"
#include "properties/core/confirmed_implementation.h"
#include "properties/core/replayed_implementation.h"
#include "properties/engine/checks.h"
#include "properties/engine/driver.h"
#include "properties/engine/engine_parts.h"
#include "properties/engine/offloading/stat_loggers.h"
#include "reference/connectors/disaggregated/disaggregated_connector.h"
#include "reference/connectors/kv_connector_stats.h"
#include "reference/connectors/kv_output_aggregator.h"
#include "reference/connectors/multi/multi_connector.h"
#include "reference/connectors/offloading/offloading_connector.h"
#include "reference/connectors/simple/simple_cpu_offload.h"
#include "reference/connectors/synchronous/shared_storage.h"
#include "reference/connectors/synchronous/synchronous_connector.h"
#include "reference/engine/engine_device.h"
#include "reference/scheduler/scheduler.h"
#include "reference/tiering/file_tier.h"
#include "scenarios/story/watched_engine.h"
#include "scenarios/targets/planted_side.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

std::unique_ptr<ReplayedImplementation> make_driver(std::string name, EngineParts parts) {
  return std::make_unique<ReplayedImplementation>(
      [name = std::move(name), parts = std::move(parts)] {
        return make_engine_driver(name, parts);
      });
}

/// Makes a part whose constructor takes what the function does.
template <class Side>
constexpr auto kMake =
    [](auto&&... from) { return std::make_unique<Side>(std::forward<decltype(from)>(from)...); };

template <auto kMakeScheduler>
std::unique_ptr<KVConnector> make_offloading(const ConnectorSetup& setup) {
  return kMakeScheduler(setup.spec, make_secondary_tiers(setup));
}

template <auto kMakeWorker>
std::unique_ptr<KVConnectorWorker> make_offloading_worker(const ConnectorSetup& setup,
                                                          std::uint32_t) {
  return kMakeWorker(setup.spec);
}

template <class Side>
std::unique_ptr<Side> make_device(const EngineSetup& setup, EngineRole role) {
  return std::make_unique<Side>(*setup.of(role).device);
}

EngineParts reference_parts() {
  using namespace reference;
  EngineParts parts;
  parts.make_scheduler = kMake<reference::Scheduler>;
  parts.make_simple = make_simple_cpu_offload_scheduler;
  parts.make_simple_worker = make_simple_cpu_offload_worker;
  parts.make_multi = make_multi_connector_scheduler;
  parts.make_multi_worker = make_multi_connector_worker;
  parts.make_offloading = make_offloading<make_offloading_connector_scheduler>;
  parts.make_offloading_worker = make_offloading_worker<make_offloading_connector_worker>;
  parts.make_storage = [](const auto&) { return make_shared_storage(); };
  parts.make_files_connector = make_synchronous_connector_scheduler;
  parts.make_files_worker = make_synchronous_connector_worker;
  parts.make_producer = make_disaggregated_producer;
  parts.make_consumer = make_disaggregated_consumer;
  parts.make_producer_worker = make_disaggregated_producer_worker;
  parts.make_consumer_worker = make_disaggregated_consumer_worker;
  parts.make_aggregator = kMake<reference::KVOutputAggregator>;
  parts.make_device = make_device<EngineDevice>;
  parts.make_stat_loggers =
      make_stat_loggers<reference::OffloadingConnectorStats, reference::OffloadPromMetrics>;
  parts.make_tier_files = make_tier_files;
  return parts;
}

EngineParts optimized_parts() {
  using namespace optimized;
  EngineParts parts;
  parts.make_scheduler = kMake<optimized::Scheduler>;
  parts.make_simple = make_simple_cpu_offload_scheduler;
  parts.make_simple_worker = make_simple_cpu_offload_worker;
  parts.make_multi = make_multi_connector_scheduler;
  parts.make_multi_worker = make_multi_connector_worker;
  parts.make_offloading = make_offloading<make_offloading_connector_scheduler>;
  parts.make_offloading_worker = make_offloading_worker<make_offloading_connector_worker>;
  parts.make_storage = [](const auto&) { return make_shared_storage(); };
  parts.make_files_connector = make_synchronous_connector_scheduler;
  parts.make_files_worker = make_synchronous_connector_worker;
  parts.make_producer = make_disaggregated_producer;
  parts.make_consumer = make_disaggregated_consumer;
  parts.make_producer_worker = make_disaggregated_producer_worker;
  parts.make_consumer_worker = make_disaggregated_consumer_worker;
  parts.make_aggregator = kMake<optimized::KVOutputAggregator>;
  parts.make_device = [](const EngineSetup& setup,
                         EngineRole role) -> std::unique_ptr<engine::EngineDevice> {
    if (!setup.is_virtual) return make_device<reference::EngineDevice>(setup, role);
    return make_device<cuda::EngineOnVirtualDevice>(setup, role);
  };
  parts.make_stat_loggers =
      make_stat_loggers<optimized::OffloadingConnectorStats, optimized::OffloadPromMetrics>;
  parts.make_tier_files = make_tier_files;
  return parts;
}

// ---- Planted bugs ----

/// The files of properties/planted/ with the bugs of an assembly's parts. The offloading
/// connector's file also has the bugs of the aggregator.
std::vector<std::string_view> planted_rooms_of(engine::Assembly assembly) {
  std::vector<std::string_view> rooms = {"scheduler", "kv_cache", "pool"};
  if (assembly == engine::Assembly::kOnDevice) {
    rooms.insert(rooms.end(), {"on_device", "worker", "disaggregated"});
  }
  const bool is_multi =
      assembly == engine::Assembly::kMulti || assembly == engine::Assembly::kOnDevice;
  if (is_multi) rooms.push_back("multi");
  if (assembly == engine::Assembly::kSimple || is_multi) rooms.push_back("simple");
  if (assembly == engine::Assembly::kSynchronous || is_multi) rooms.push_back("synchronous");
  if (assembly == engine::Assembly::kPrefillDecode) rooms.push_back("disaggregated");
  if (assembly != engine::Assembly::kScheduler) {
    rooms.insert(rooms.end(),
                 {"offloading", "connectors", "files", "offload", "eviction", "tiering"});
  }
  if (assembly == engine::Assembly::kOffloadingOnDevice) rooms.push_back("worker");
  return rooms;
}

/// The number of the bug of that name that an assembly has; kSound if it has none.
int planted_bug_of(engine::Assembly assembly, std::string_view name) {
  for (std::string_view room : planted_rooms_of(assembly)) {
    if (const planted::Bug* const bug = find_planted_bug(room, name)) return bug->number;
  }
  return planted::kSound;
}

/// Whether some assembly has a bug of that name. Several bugs may share a name, but not in one
/// assembly.
bool is_planted_bug(std::string_view name) {
  return std::any_of(std::begin(engine::kAssemblies), std::end(engine::kAssemblies),
                     [name](const engine::AssemblyInfo& info) {
                       return planted_bug_of(info.assembly, name) != planted::kSound;
                     });
}

using OnDevice = std::function<void(planted::cuda::EngineOnVirtualDevice&)>;

EngineParts planted_parts(OnDevice on_device) {
  using namespace planted::optimized;
  EngineParts parts;
  parts.make_scheduler = kMake<planted::optimized::Scheduler>;
  parts.make_simple = make_simple_cpu_offload_scheduler;
  parts.make_simple_worker = make_simple_cpu_offload_worker;
  parts.make_multi = make_multi_connector_scheduler;
  parts.make_multi_worker = make_multi_connector_worker;
  parts.make_offloading = make_offloading<make_offloading_connector_scheduler>;
  parts.make_offloading_worker = make_offloading_worker<make_offloading_connector_worker>;
  parts.make_storage = [](const auto&) { return make_shared_storage(); };
  parts.make_files_connector = make_synchronous_connector_scheduler;
  parts.make_files_worker = make_synchronous_connector_worker;
  parts.make_producer = make_disaggregated_producer;
  parts.make_consumer = make_disaggregated_consumer;
  parts.make_producer_worker = make_disaggregated_producer_worker;
  parts.make_consumer_worker = make_disaggregated_consumer_worker;
  parts.make_aggregator = kMake<planted::optimized::KVOutputAggregator>;
  parts.make_device = [on_device = std::move(on_device)](
                          const EngineSetup& setup,
                          EngineRole role) -> std::unique_ptr<engine::EngineDevice> {
    if (!setup.is_virtual) return make_device<reference::EngineDevice>(setup, role);
    auto device = make_device<planted::cuda::EngineOnVirtualDevice>(setup, role);
    if (on_device) on_device(*device);
    return device;
  };
  parts.make_stat_loggers = make_stat_loggers<planted::optimized::OffloadingConnectorStats,
                                              planted::optimized::OffloadPromMetrics>;
  parts.make_tier_files = make_tier_files;
  return parts;
}

/// Each assembly has the mistake of that name in its parts; none: no mistake. A scheduler without a
/// mistake tolerates what a broken connector does to its pool.
std::unique_ptr<Implementation> make_planted(std::string name, std::string_view bug,
                                             OnDevice on_device = {}) {
  const auto bug_of = [bug = std::string(bug)](const Setup& setup) {
    return planted_bug_of(setup.as<EngineSetup>().assembly, bug);
  };
  return std::make_unique<PlantedSide>(
      bug_of, [&] { return make_driver(std::move(name), planted_parts(std::move(on_device))); });
}

/// The assembly that lists the bugs of a file; none if these belong to another target.
std::optional<engine::Assembly> assembly_of_room(std::string_view room) {
  if (room == "connectors") return engine::Assembly::kOffloading;
  if (room == "disaggregated") return engine::Assembly::kPrefillDecode;
  return from_text<engine::Assembly>(room);
}

std::vector<PlantedBugInfo> planted_bug_infos() {
  std::vector<PlantedBugInfo> infos;
  for (const auto& [assembly, name, doc, connectors, device] : engine::kAssemblies) {
    for (std::string_view room : planted_rooms_of(assembly)) {
      for (const planted::Bug& bug : planted::bugs_of(room)) {
        for (const std::string_view also : bug.also_of) {
          const auto other = from_text<engine::Assembly>(also);
          KVFENCE_CHECK(also.empty() || (other && contains(planted_rooms_of(*other), room)),
                        "a planted bug is also of an assembly without its room");
        }
        if (assembly_of_room(room) == assembly || contains(bug.also_of, name)) {
          infos.push_back({bug.name, bug.doc, bug.thread, name});
        }
      }
    }
  }
  return infos;
}

/// With the copy worker. On a virtual device the same engine on the reference's device is its
/// witness: a difference between the two is a fault of the copies; a difference of both from the
/// reference is not.
std::unique_ptr<Implementation> make_optimized() {
  const auto make_witness = [] {
    EngineParts on_symbols = optimized_parts();
    on_symbols.make_device = reference_parts().make_device;
    return make_driver("optimized on symbols", std::move(on_symbols));
  };
  return std::make_unique<ConfirmedImplementation>(
      make_driver("optimized", optimized_parts()), make_witness,
      [](const Setup& setup) { return setup.as<EngineSetup>().is_virtual; });
}

TargetSides make_sides() {
  return {.checks = &engine_checks(),
          .make_reference = [] { return make_driver("reference", reference_parts()); },
          .make_optimized = make_optimized,
          .make_planted = [](std::string_view name) -> std::unique_ptr<Implementation> {
            if (!name.empty() && !is_planted_bug(name)) return nullptr;
            return make_planted("optimized with " + std::string(name), name);
          },
          .planted_bugs = planted_bug_infos()};
}

}  // namespace

const TargetSides& engine_sides() {
  static const TargetSides kSides = make_sides();
  return kSides;
}

std::unique_ptr<Implementation> make_watched_engine(std::string_view planted_bug,
                                                    OnDevice on_device) {
  KVFENCE_CHECK(planted_bug.empty() || is_planted_bug(planted_bug),
                "a planted bug that the engine does not have");
  return make_planted("engine", planted_bug, std::move(on_device));
}

Parsed<std::unique_ptr<Implementation>> make_engine_with_library(const std::string& path) {
  KVConnectorRegistry registry;
  (void)registry.register_library(path, path);
  const Parsed<KVConnectorFactories> factories = registry.get(path);
  if (!factories) return factories.error();
  EngineParts parts = optimized_parts();
  parts.take(*factories);
  parts.judged_kinds = factories->kinds();
  return std::unique_ptr<Implementation>(make_driver("connector of " + path, std::move(parts)));
}

}  // namespace kvfence
