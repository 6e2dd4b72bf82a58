#pragma once

/// The four halves of a disaggregated pair. The rules are in
/// contract/connectors/disaggregated/disaggregated_connector.h.

#include <cstdint>
#include <memory>

#include "contract/connectors/disaggregated/disaggregated_connector.h"

namespace kvfence::optimized {

/// Requires: check_spec(spec) finds nothing; rank is one of the engine's.
std::unique_ptr<kvfence::DisaggregatedProducer> make_disaggregated_producer(
    const DisaggregatedSpec& spec);
std::unique_ptr<kvfence::DisaggregatedConsumer> make_disaggregated_consumer(
    const DisaggregatedSpec& spec);
std::unique_ptr<KVConnectorWorker> make_disaggregated_producer_worker(const DisaggregatedSpec& spec,
                                                                      std::uint32_t rank,
                                                                      Transport& transport);
std::unique_ptr<KVConnectorWorker> make_disaggregated_consumer_worker(const DisaggregatedSpec& spec,
                                                                      std::uint32_t rank,
                                                                      Transport& transport);

}  // namespace kvfence::optimized
