#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/multi/multi_connector_target.h"
#include "contract/scripted/scripted_child.h"
#include "optimized/connectors/kv_output_aggregator.h"
#include "optimized/connectors/multi/multi_connector.h"
#include "optimized/connectors/multi/multi_connector_worker.h"
#include "optimized/connectors/multi/planted_multi_connector_bugs.h"
#include "properties/connectors/multi/checks.h"
#include "properties/connectors/multi/driver.h"
#include "reference/connectors/kv_output_aggregator.h"
#include "reference/connectors/multi/multi_connector.h"
#include "reference/connectors/multi/multi_connector_worker.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

struct ReferenceSide {
  using Scheduler = reference::MultiConnector<ScriptedChild>;
  using Worker = reference::MultiConnectorWorker<ScriptedWorkerChild>;
  using Aggregator = reference::KVOutputAggregator;

  Scheduler make_scheduler(const Rules& rules, std::vector<ScriptedChild> children) const {
    return Scheduler(rules, std::move(children));
  }
  Worker make_worker(std::vector<ScriptedWorkerChild> children) const {
    return Worker(std::move(children));
  }
  Aggregator make_aggregator(std::uint32_t num_ranks) const { return Aggregator(num_ranks); }
};

/// Of optimized halves; the aggregator has no bug.
template <class Instrumentation>
struct InstrumentedSide {
  using Scheduler = optimized::BasicMultiConnector<ScriptedChild, Instrumentation>;
  using Worker = optimized::BasicMultiConnectorWorker<ScriptedWorkerChild, Instrumentation>;
  using Aggregator = optimized::KVOutputAggregator;

  Scheduler make_scheduler(const Rules& rules, std::vector<ScriptedChild> children) const {
    return Scheduler(rules, std::move(children), instrumentation);
  }
  Worker make_worker(std::vector<ScriptedWorkerChild> children) const {
    return Worker(std::move(children), instrumentation);
  }
  Aggregator make_aggregator(std::uint32_t num_ranks) const { return Aggregator(num_ranks); }

  [[no_unique_address]] Instrumentation instrumentation;
};

using OptimizedSide = InstrumentedSide<optimized::NoInstrumentation>;
using PlantedSide = InstrumentedSide<optimized::PlantedInstrumentation>;

struct Parts {
  static auto reference(std::string name) {
    return std::make_unique<MultiConnectorDriver<ReferenceSide>>(std::move(name), ReferenceSide{});
  }
  static auto optimized(std::string name) {
    return std::make_unique<MultiConnectorDriver<OptimizedSide>>(std::move(name), OptimizedSide{});
  }
  static auto planted(std::string name, optimized::PlantedMultiConnectorBug bug) {
    return std::make_unique<MultiConnectorDriver<PlantedSide>>(std::move(name), PlantedSide{bug});
  }

  static constexpr auto& kPlantedBugs = optimized::kPlantedMultiConnectorBugs;
  static constexpr auto& planted_bug_from_name = optimized::planted_multi_connector_bug_from_name;
};

}  // namespace

const TargetSides& multi_connector_sides() {
  static const TargetSides kSides = sides_of<Parts>(multi_connector_checks());
  return kSides;
}

}  // namespace kvfence
