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

template <class Worker>
std::unique_ptr<DisaggregatedWorker> make_worker(const DisaggregatedSpec& spec, std::uint32_t rank,
                                                 std::uint32_t world_size) {
  check(spec);
  KVFENCE_CHECK(rank < world_size, "a rank beyond those of the engine");
  return std::make_unique<Worker>(spec, rank);
}

}  // namespace

std::unique_ptr<kvfence::DisaggregatedProducer> make_disaggregated_producer(
    const DisaggregatedSpec& spec) {
  check(spec);
  return std::make_unique<DisaggregatedProducer>(spec);
}

std::unique_ptr<kvfence::DisaggregatedConsumer> make_disaggregated_consumer(
    const DisaggregatedSpec& spec) {
  check(spec);
  return std::make_unique<DisaggregatedConsumer>(spec);
}

std::unique_ptr<DisaggregatedWorker> make_disaggregated_producer_worker(
    const DisaggregatedSpec& spec, std::uint32_t rank) {
  return make_worker<DisaggregatedProducerWorker>(spec, rank, spec.producer_world_size);
}

std::unique_ptr<DisaggregatedWorker> make_disaggregated_consumer_worker(
    const DisaggregatedSpec& spec, std::uint32_t rank) {
  return make_worker<DisaggregatedConsumerWorker>(spec, rank, spec.consumer_world_size);
}

}  // namespace kvfence::optimized
