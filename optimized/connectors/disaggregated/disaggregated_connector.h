#pragma once

/// The four halves of a disaggregated pair, sound and planted.

#include <cstdint>
#include <memory>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "optimized/base/instrumentation.h"

namespace kvfence::optimized {

/// Requires: check_spec(spec) finds nothing; rank is one of that engine.
std::unique_ptr<DisaggregatedProducer> make_disaggregated_producer(const DisaggregatedSpec& spec);
std::unique_ptr<DisaggregatedConsumer> make_disaggregated_consumer(const DisaggregatedSpec& spec);
std::unique_ptr<DisaggregatedWorker> make_disaggregated_producer_worker(
    const DisaggregatedSpec& spec, std::uint32_t rank);
std::unique_ptr<DisaggregatedWorker> make_disaggregated_consumer_worker(
    const DisaggregatedSpec& spec, std::uint32_t rank);

/// With a PlantedDisaggregatedBug.
std::unique_ptr<DisaggregatedProducer> make_planted_disaggregated_producer(
    const DisaggregatedSpec& spec, PlantedInstrumentation instrumentation);
std::unique_ptr<DisaggregatedConsumer> make_planted_disaggregated_consumer(
    const DisaggregatedSpec& spec, PlantedInstrumentation instrumentation);
std::unique_ptr<DisaggregatedWorker> make_planted_disaggregated_producer_worker(
    const DisaggregatedSpec& spec, std::uint32_t rank, PlantedInstrumentation instrumentation);
std::unique_ptr<DisaggregatedWorker> make_planted_disaggregated_consumer_worker(
    const DisaggregatedSpec& spec, std::uint32_t rank, PlantedInstrumentation instrumentation);

}  // namespace kvfence::optimized
