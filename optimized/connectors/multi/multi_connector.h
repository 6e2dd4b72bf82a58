#pragma once

/// Both halves of MultiConnector. The rules of every operation are in
/// contract/connectors/multi/multi_connector.h. Not thread-safe.

#include <memory>
#include <vector>

#include "contract/connectors/multi/multi_connector.h"

namespace kvfence::optimized {

std::unique_ptr<KVConnector> make_multi_connector_scheduler(
    const Rules& rules, std::vector<KVConnectorHandle> children);
std::unique_ptr<KVConnectorWorker> make_multi_connector_worker(
    std::vector<MultiConnectorChildWorker> children);

}  // namespace kvfence::optimized
