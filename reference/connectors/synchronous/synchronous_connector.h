#pragma once

/// The halves of the synchronous connector that a spec names.

#include <memory>

#include "contract/connectors/synchronous/synchronous_connector.h"

namespace kvfence::reference {

/// Both require: check_spec(spec) finds nothing wrong; storage outlives what is made
std::unique_ptr<SynchronousConnectorScheduler> make_synchronous_connector_scheduler(
    const SynchronousConnectorSpec& spec, const SharedStorage& storage);
std::unique_ptr<KVConnectorWorker> make_synchronous_connector_worker(
    const SynchronousConnectorSpec& spec, SharedStorage& storage, ScriptedKVCache& kv_cache,
    SynchronousWorkerReport& report);

}  // namespace kvfence::reference
