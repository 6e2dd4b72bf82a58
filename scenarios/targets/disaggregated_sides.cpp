#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "contract/connectors/disaggregated/disaggregated_target.h"
#include "optimized/connectors/disaggregated/disaggregated_connector.h"
#include "optimized/connectors/disaggregated/planted_disaggregated_bugs.h"
#include "optimized/connectors/kv_output_aggregator.h"
#include "optimized/scheduler/scheduler.h"
#include "properties/connectors/disaggregated/checks.h"
#include "properties/connectors/disaggregated/driver.h"
#include "reference/connectors/disaggregated/disaggregated_connector.h"
#include "reference/connectors/disaggregated/disaggregated_worker.h"
#include "reference/connectors/kv_output_aggregator.h"
#include "reference/scheduler/scheduler.h"
#include "scenarios/targets/engine_side.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

struct ReferenceSide : EngineSide<reference::Scheduler, reference::KVOutputAggregator> {
  auto make_producer(const DisaggregatedSpec& spec) const {
    return std::make_unique<reference::DisaggregatedProducer>(spec);
  }
  auto make_consumer(const DisaggregatedSpec& spec) const {
    return std::make_unique<reference::DisaggregatedConsumer>(spec);
  }
  std::unique_ptr<DisaggregatedWorker> make_producer_worker(const DisaggregatedSpec& spec,
                                                            std::uint32_t rank) const {
    return std::make_unique<reference::DisaggregatedProducerWorker>(spec, rank);
  }
  std::unique_ptr<DisaggregatedWorker> make_consumer_worker(const DisaggregatedSpec& spec,
                                                            std::uint32_t rank) const {
    return std::make_unique<reference::DisaggregatedConsumerWorker>(spec, rank);
  }
};

struct OptimizedSide : EngineSide<optimized::Scheduler, optimized::KVOutputAggregator> {
  auto make_producer(const DisaggregatedSpec& spec) const {
    return optimized::make_disaggregated_producer(spec);
  }
  auto make_consumer(const DisaggregatedSpec& spec) const {
    return optimized::make_disaggregated_consumer(spec);
  }
  auto make_producer_worker(const DisaggregatedSpec& spec, std::uint32_t rank) const {
    return optimized::make_disaggregated_producer_worker(spec, rank);
  }
  auto make_consumer_worker(const DisaggregatedSpec& spec, std::uint32_t rank) const {
    return optimized::make_disaggregated_consumer_worker(spec, rank);
  }
};

/// The bug is in one of the pair's halves or in an aggregator; the schedulers have none.
struct PlantedSide : EngineSide<optimized::Scheduler, optimized::PlantedKVOutputAggregator> {
  auto make_producer(const DisaggregatedSpec& spec) const {
    return optimized::make_planted_disaggregated_producer(spec, bug);
  }
  auto make_consumer(const DisaggregatedSpec& spec) const {
    return optimized::make_planted_disaggregated_consumer(spec, bug);
  }
  auto make_producer_worker(const DisaggregatedSpec& spec, std::uint32_t rank) const {
    return optimized::make_planted_disaggregated_producer_worker(spec, rank, bug);
  }
  auto make_consumer_worker(const DisaggregatedSpec& spec, std::uint32_t rank) const {
    return optimized::make_planted_disaggregated_consumer_worker(spec, rank, bug);
  }
  Aggregator make_aggregator(std::uint32_t num_workers) const {
    return Aggregator(num_workers, bug);
  }

  optimized::PlantedDisaggregatedBug bug = optimized::PlantedDisaggregatedBug::kNone;
};

struct Parts {
  static auto reference(std::string name) {
    return std::make_unique<DisaggregatedDriver<ReferenceSide>>(std::move(name), ReferenceSide{});
  }
  static auto optimized(std::string name) {
    return std::make_unique<DisaggregatedDriver<OptimizedSide>>(std::move(name), OptimizedSide{});
  }
  static auto planted(std::string name, optimized::PlantedDisaggregatedBug bug) {
    return std::make_unique<DisaggregatedDriver<PlantedSide>>(std::move(name),
                                                              PlantedSide{{}, bug});
  }

  static constexpr auto& kPlantedBugs = optimized::kPlantedDisaggregatedBugs;
  static constexpr auto& planted_bug_from_name = optimized::planted_disaggregated_bug_from_name;
};

}  // namespace

const TargetSides& disaggregated_sides() {
  static const TargetSides kSides = sides_of<Parts>(disaggregated_checks());
  return kSides;
}

}  // namespace kvfence
