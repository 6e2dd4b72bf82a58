#pragma once

/// Factories for the parts of the synchronous connectors. Their rules are in
/// contract/connectors/synchronous/synchronous_connector.h.

#include <memory>

#include "contract/connectors/synchronous/shared_storage.h"
#include "contract/connectors/synchronous/synchronous_connector.h"

namespace kvfence::optimized {

/// Empty storage, in files of its own temporary folder (temporary_folder.h), which it removes.
std::unique_ptr<StorageWorld> make_shared_storage();

/// Requires, here and below: check_spec(spec) finds nothing; the arguments outlive the result.
std::unique_ptr<SynchronousConnectorScheduler> make_synchronous_connector_scheduler(
    const SynchronousConnectorSpec& spec, SharedStorage& storage);

/// For any rank: the KV cache has what depends on the rank.
std::unique_ptr<KVConnectorWorker> make_synchronous_connector_worker(
    const SynchronousConnectorSpec& spec, SharedStorage& storage, ScriptedKVCache& kv_cache,
    SynchronousWorkerReport& report);

}  // namespace kvfence::optimized
