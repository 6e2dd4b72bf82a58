#pragma once

/// Both halves of MultiConnector: the executable specification. The rules of each function are in
/// contract/connectors/multi/multi_connector.h.

#include <memory>
#include <vector>

#include "contract/connectors/multi/multi_connector.h"

namespace kvfence::reference {

std::unique_ptr<KVConnector> make_multi_connector_scheduler(
    const Rules& rules, std::vector<KVConnectorHandle> children);
std::unique_ptr<KVConnectorWorker> make_multi_connector_worker(
    std::vector<MultiConnectorChildWorker> children);

}  // namespace kvfence::reference
