#pragma once

/// The parts of the synchronous connectors. Their rules stand in
/// contract/connectors/synchronous/synchronous_connector.h.

#include <memory>

#include "contract/connectors/synchronous/shared_storage.h"
#include "contract/connectors/synchronous/synchronous_connector.h"

namespace kvfence::optimized {

/// Empty, in files of a temporary folder of its own (temporary_folder.h), which goes with it.
std::unique_ptr<StorageWorld> make_shared_storage();

/// Requires, here and below: check_spec(spec) finds nothing; what is made from outlives it.
std::unique_ptr<SynchronousConnectorScheduler> make_synchronous_connector_scheduler(
    const SynchronousConnectorSpec& spec, SharedStorage& storage);

/// Of any rank: what is the rank's is told by its KV cache.
std::unique_ptr<KVConnectorWorker> make_synchronous_connector_worker(
    const SynchronousConnectorSpec& spec, SharedStorage& storage, ScriptedKVCache& kv_cache,
    SynchronousWorkerReport& report);

/// Those of each kind.
std::unique_ptr<SynchronousConnectorScheduler> make_example_connector_scheduler(
    const SynchronousConnectorSpec& spec, SharedStorage& storage);
std::unique_ptr<SynchronousConnectorScheduler> make_decode_bench_connector_scheduler(
    const SynchronousConnectorSpec& spec);
std::unique_ptr<KVConnectorWorker> make_example_connector_worker(SharedStorage& storage,
                                                                 ScriptedKVCache& kv_cache,
                                                                 SynchronousWorkerReport& report);
std::unique_ptr<KVConnectorWorker> make_decode_bench_connector_worker(
    ScriptedKVCache& kv_cache, SynchronousWorkerReport& report);

}  // namespace kvfence::optimized
