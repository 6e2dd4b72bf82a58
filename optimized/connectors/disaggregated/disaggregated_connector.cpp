#include "optimized/connectors/disaggregated/disaggregated_connector.h"

#include "contract/core/check.h"
#include "optimized/connectors/disaggregated/disaggregated_consumer.h"
#include "optimized/connectors/disaggregated/disaggregated_producer.h"
#include "optimized/connectors/disaggregated/disaggregated_worker.h"

namespace kvfence::optimized {
namespace {

void check(const DisaggregatedSpec& spec) {
  KVFENCE_CHECK(!check_spec(spec), "no half can be built from the spec");
}

template <class Worker, class Instrumentation>
std::unique_ptr<DisaggregatedWorker> make_worker(const DisaggregatedSpec& spec, std::uint32_t rank,
                                                 std::uint32_t world_size,
                                                 Instrumentation instrumentation) {
  check(spec);
  KVFENCE_CHECK(rank < world_size, "a rank beyond those of the engine");
  return std::make_unique<Worker>(spec, rank, instrumentation);
}

}  // namespace

std::unique_ptr<DisaggregatedProducer> make_disaggregated_producer(const DisaggregatedSpec& spec) {
  check(spec);
  return std::make_unique<BasicDisaggregatedProducer<NoInstrumentation>>(spec);
}

std::unique_ptr<DisaggregatedConsumer> make_disaggregated_consumer(const DisaggregatedSpec& spec) {
  check(spec);
  return std::make_unique<BasicDisaggregatedConsumer<NoInstrumentation>>(spec);
}

std::unique_ptr<DisaggregatedWorker> make_disaggregated_producer_worker(
    const DisaggregatedSpec& spec, std::uint32_t rank) {
  return make_worker<BasicDisaggregatedProducerWorker<NoInstrumentation>>(
      spec, rank, spec.producer_world_size, NoInstrumentation());
}

std::unique_ptr<DisaggregatedWorker> make_disaggregated_consumer_worker(
    const DisaggregatedSpec& spec, std::uint32_t rank) {
  return make_worker<BasicDisaggregatedConsumerWorker<NoInstrumentation>>(
      spec, rank, spec.consumer_world_size, NoInstrumentation());
}

std::unique_ptr<DisaggregatedProducer> make_planted_disaggregated_producer(
    const DisaggregatedSpec& spec, PlantedInstrumentation instrumentation) {
  check(spec);
  return std::make_unique<BasicDisaggregatedProducer<PlantedInstrumentation>>(spec,
                                                                              instrumentation);
}

std::unique_ptr<DisaggregatedConsumer> make_planted_disaggregated_consumer(
    const DisaggregatedSpec& spec, PlantedInstrumentation instrumentation) {
  check(spec);
  return std::make_unique<BasicDisaggregatedConsumer<PlantedInstrumentation>>(spec,
                                                                              instrumentation);
}

std::unique_ptr<DisaggregatedWorker> make_planted_disaggregated_producer_worker(
    const DisaggregatedSpec& spec, std::uint32_t rank, PlantedInstrumentation instrumentation) {
  return make_worker<BasicDisaggregatedProducerWorker<PlantedInstrumentation>>(
      spec, rank, spec.producer_world_size, instrumentation);
}

std::unique_ptr<DisaggregatedWorker> make_planted_disaggregated_consumer_worker(
    const DisaggregatedSpec& spec, std::uint32_t rank, PlantedInstrumentation instrumentation) {
  return make_worker<BasicDisaggregatedConsumerWorker<PlantedInstrumentation>>(
      spec, rank, spec.consumer_world_size, instrumentation);
}

}  // namespace kvfence::optimized
