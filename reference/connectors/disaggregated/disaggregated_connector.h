#pragma once

/// Both halves of a disaggregated pair, the workers' one object a rank. The rules are in
/// contract/connectors/disaggregated/disaggregated_connector.h.

#include <cstdint>
#include <memory>

#include "contract/connectors/disaggregated/disaggregated_connector.h"

namespace kvfence::reference {

/// All require: check_spec(spec) finds nothing wrong; rank below the world size of its engine
std::unique_ptr<DisaggregatedProducer> make_disaggregated_producer(const DisaggregatedSpec& spec);
std::unique_ptr<DisaggregatedConsumer> make_disaggregated_consumer(const DisaggregatedSpec& spec);
std::unique_ptr<KVConnectorWorker> make_disaggregated_producer_worker(const DisaggregatedSpec& spec,
                                                                      std::uint32_t rank,
                                                                      Transport& transport);
std::unique_ptr<KVConnectorWorker> make_disaggregated_consumer_worker(const DisaggregatedSpec& spec,
                                                                      std::uint32_t rank,
                                                                      Transport& transport);

}  // namespace kvfence::reference
