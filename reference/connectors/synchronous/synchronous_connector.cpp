#include "reference/connectors/synchronous/synchronous_connector.h"

#include "reference/connectors/synchronous/decode_bench_connector.h"
#include "reference/connectors/synchronous/example_connector.h"

namespace kvfence::reference {

std::unique_ptr<SynchronousConnectorScheduler> make_synchronous_connector_scheduler(
    const SynchronousConnectorSpec& spec, const SharedStorage& storage) {
  if (spec.kind == SynchronousConnectorKind::kExample) {
    return std::make_unique<ExampleConnector>(spec, storage);
  }
  return std::make_unique<DecodeBenchConnector>(spec);
}

std::unique_ptr<SynchronousConnectorWorker> make_synchronous_connector_worker(
    const SynchronousConnectorSpec& spec, SharedStorage& storage) {
  if (spec.kind == SynchronousConnectorKind::kExample) {
    return std::make_unique<ExampleConnectorWorker>(storage);
  }
  return std::make_unique<DecodeBenchConnectorWorker>();
}

}  // namespace kvfence::reference
