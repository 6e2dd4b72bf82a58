#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "contract/connectors/kv_connector_registry.h"
#include "contract/connectors/offloading/connector_target.h"
#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/core/check.h"
#include "contract/tiering/tier_files.h"
#include "optimized/connectors/kv_output_aggregator.h"
#include "optimized/connectors/offloading/offloading_connector.h"
#include "optimized/connectors/offloading/planted_connector_bugs.h"
#include "optimized/files/planted_file_tier_bugs.h"
#include "optimized/scheduler/scheduler.h"
#include "optimized/tiering/tier_files.h"
#include "properties/connectors/offloading/checks.h"
#include "properties/connectors/offloading/driver.h"
#include "reference/connectors/kv_output_aggregator.h"
#include "reference/scheduler/scheduler.h"
#include "reference/tiering/tier_files.h"
#include "scenarios/targets/built_in_connectors.h"
#include "scenarios/targets/engine_side.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

/// A side whose connectors stand in a registry.
template <class Scheduler, class Aggregator>
class RegisteredSide : public EngineSide<Scheduler, Aggregator> {
 public:
  RegisteredSide(KVConnectorRegistry connectors, MakeTierFiles make_files)
      : connectors_(std::move(connectors)), make_files_(std::move(make_files)) {}

  /// Null if it is another kind of connector, which shows less than the target compares.
  std::unique_ptr<OffloadingConnectorScheduler> make_connector(const ConnectorSetup& setup) {
    auto connector = class_of(setup).make_scheduler(setup);
    auto* offloading = dynamic_cast<OffloadingConnectorScheduler*>(connector.get());
    if (offloading) static_cast<void>(connector.release());
    return std::unique_ptr<OffloadingConnectorScheduler>(offloading);
  }
  std::unique_ptr<KVConnectorWorker> make_worker(const ConnectorSetup& setup, std::uint32_t rank) {
    return class_of(setup).make_worker(setup, rank);
  }
  std::unique_ptr<TierFiles> make_tier_files(PrimaryKvView primary) const {
    return make_files_(primary);
  }

 private:
  KVConnectorClass class_of(const ConnectorSetup& setup) {
    Parsed<KVConnectorClass> connector = connectors_.get(setup.kv_connector);
    KVFENCE_CHECK(connector, "every side has the connectors that a configuration can name");
    return std::move(*connector);
  }

  KVConnectorRegistry connectors_;
  MakeTierFiles make_files_;
};

using ReferenceSide = RegisteredSide<reference::Scheduler, reference::KVOutputAggregator>;
using OptimizedSide = RegisteredSide<optimized::Scheduler, optimized::KVOutputAggregator>;

/// The bug is in one of the connector's halves, the aggregator or a file tier; the scheduler has
/// none.
struct PlantedSide : EngineSide<optimized::Scheduler, optimized::PlantedKVOutputAggregator> {
  auto make_connector(const ConnectorSetup& setup) const {
    return optimized::make_planted_offloading_connector_scheduler(setup.spec, bug,
                                                                  make_secondary_tiers(setup));
  }
  std::unique_ptr<TierFiles> make_tier_files(PrimaryKvView primary) const {
    return file_bug ? optimized::make_planted_tier_files(primary, *file_bug)
                    : optimized::make_tier_files(primary);
  }
  auto make_worker(const ConnectorSetup& setup, std::uint32_t) const {
    return optimized::make_planted_offloading_connector_worker(setup.spec, bug);
  }
  Aggregator make_aggregator(std::uint32_t num_workers) const {
    return Aggregator(num_workers, bug);
  }

  optimized::PlantedConnectorBug bug = optimized::PlantedConnectorBug::kNone;
  std::optional<optimized::PlantedFileTierBug> file_bug = std::nullopt;
};

/// A mistake of the connector, or the one of the file tiers that only the bytes of slots show: the
/// others are for the target tiering.
using ConnectorBug = std::variant<optimized::PlantedConnectorBug, optimized::PlantedFileTierBug>;

constexpr const optimized::PlantedFileTierBugInfo& kFileBug =
    *std::find_if(optimized::kPlantedFileTierBugs.begin(), optimized::kPlantedFileTierBugs.end(),
                  [](const optimized::PlantedFileTierBugInfo& info) {
                    return info.bug == optimized::PlantedFileTierBug::kBlockDigestNotChecked;
                  });

std::optional<ConnectorBug> planted_bug_from_name(std::string_view name) {
  if (name == kFileBug.name) return kFileBug.bug;
  if (const auto bug = optimized::planted_connector_bug_from_name(name)) return *bug;
  return std::nullopt;
}

std::vector<PlantedBugInfo> planted_bug_infos() {
  std::vector<PlantedBugInfo> infos;
  for (const optimized::PlantedConnectorBugInfo& info : optimized::kPlantedConnectorBugs) {
    infos.push_back({info.name, info.doc, info.thread});
  }
  infos.push_back({kFileBug.name, kFileBug.doc, kFileBug.thread});
  return infos;
}

struct Parts {
  static auto reference(std::string name) {
    return std::make_unique<ConnectorDriver<ReferenceSide>>(
        std::move(name),
        ReferenceSide(built_in_connectors_reference(), reference::make_tier_files));
  }
  static auto optimized(std::string name) {
    return std::make_unique<ConnectorDriver<OptimizedSide>>(
        std::move(name),
        OptimizedSide(built_in_connectors_optimized(), optimized::make_tier_files));
  }
  static auto planted(std::string name, const ConnectorBug& bug) {
    PlantedSide side;
    if (const auto* of_files = std::get_if<optimized::PlantedFileTierBug>(&bug)) {
      side.file_bug = *of_files;
    } else {
      side.bug = std::get<optimized::PlantedConnectorBug>(bug);
    }
    return std::make_unique<ConnectorDriver<PlantedSide>>(std::move(name), std::move(side));
  }

  static inline const std::vector<PlantedBugInfo> kPlantedBugs = planted_bug_infos();
  static constexpr auto& planted_bug_from_name = kvfence::planted_bug_from_name;
};

}  // namespace

const TargetSides& connector_sides() {
  static const TargetSides kSides = sides_of<Parts>(connector_checks());
  return kSides;
}

Parsed<std::unique_ptr<Implementation>> make_connector_from_library(const std::string& path) {
  KVConnectorRegistry connectors;
  for (const std::string& name : built_in_connectors_optimized().names()) {
    (void)connectors.register_library(name, path);
    // A library that cannot be opened is an error here, not in the middle of a run.
    if (const auto found = connectors.get(name); !found) return found.error();
  }
  std::unique_ptr<Implementation> driver = std::make_unique<ConnectorDriver<OptimizedSide>>(
      "connector of " + path, OptimizedSide(std::move(connectors), optimized::make_tier_files));
  return driver;
}

}  // namespace kvfence
