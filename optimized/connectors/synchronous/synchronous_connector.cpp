#include "optimized/connectors/synchronous/synchronous_connector.h"

namespace kvfence::optimized {

std::unique_ptr<SynchronousConnectorScheduler> make_synchronous_connector_scheduler(
    const SynchronousConnectorSpec& spec, SharedStorage& storage) {
  if (spec.kind == SynchronousConnectorKind::kExample) {
    return make_example_connector_scheduler(spec, storage);
  }
  return make_decode_bench_connector_scheduler(spec);
}

std::unique_ptr<KVConnectorWorker> make_synchronous_connector_worker(
    const SynchronousConnectorSpec& spec, SharedStorage& storage, ScriptedKVCache& kv_cache,
    SynchronousWorkerReport& report) {
  if (spec.kind == SynchronousConnectorKind::kExample) {
    return make_example_connector_worker(storage, kv_cache, report);
  }
  return make_decode_bench_connector_worker(kv_cache, report);
}

}  // namespace kvfence::optimized
