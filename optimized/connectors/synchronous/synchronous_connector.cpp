#include "optimized/connectors/synchronous/synchronous_connector.h"

#include "optimized/connectors/synchronous/decode_bench_connector.h"
#include "optimized/connectors/synchronous/example_connector.h"
#include "optimized/connectors/synchronous/file_storage.h"
#include "optimized/files/posix_file_operations.h"
#include "optimized/files/temporary_folder.h"

namespace kvfence::optimized {
namespace {

/// A base, so that it is there before the storage that uses it, and goes after it.
struct OwnFolder {
  TemporaryFolder folder = TemporaryFolder("storage");
  PosixFileOperations file_operations;
};

template <class Instrumentation>
class TemporaryFileStorage final : private OwnFolder, public BasicFileStorage<Instrumentation> {
 public:
  explicit TemporaryFileStorage(Instrumentation instrumentation)
      : BasicFileStorage<Instrumentation>(folder.path(), file_operations, instrumentation) {}
};

template <class Instrumentation>
std::unique_ptr<SynchronousConnectorScheduler> make_scheduler(const SynchronousConnectorSpec& spec,
                                                              SharedStorage& storage,
                                                              Instrumentation instrumentation) {
  if (spec.kind == SynchronousConnectorKind::kExample) {
    return std::make_unique<BasicExampleConnectorScheduler<Instrumentation>>(spec, storage,
                                                                             instrumentation);
  }
  return std::make_unique<BasicDecodeBenchConnectorScheduler<Instrumentation>>(spec,
                                                                               instrumentation);
}

template <class Instrumentation>
std::unique_ptr<SynchronousConnectorWorker> make_worker(const SynchronousConnectorSpec& spec,
                                                        SharedStorage& storage,
                                                        Instrumentation instrumentation) {
  if (spec.kind == SynchronousConnectorKind::kExample) {
    return std::make_unique<BasicExampleConnectorWorker<Instrumentation>>(storage, instrumentation);
  }
  return std::make_unique<BasicDecodeBenchConnectorWorker<Instrumentation>>(instrumentation);
}

}  // namespace

std::unique_ptr<SharedStorage> make_shared_storage() {
  return std::make_unique<TemporaryFileStorage<NoInstrumentation>>(NoInstrumentation());
}

std::unique_ptr<SynchronousConnectorScheduler> make_synchronous_connector_scheduler(
    const SynchronousConnectorSpec& spec, SharedStorage& storage) {
  return make_scheduler(spec, storage, NoInstrumentation());
}

std::unique_ptr<SynchronousConnectorWorker> make_synchronous_connector_worker(
    const SynchronousConnectorSpec& spec, SharedStorage& storage) {
  return make_worker(spec, storage, NoInstrumentation());
}

std::unique_ptr<SharedStorage> make_planted_shared_storage(PlantedInstrumentation instrumentation) {
  return std::make_unique<TemporaryFileStorage<PlantedInstrumentation>>(instrumentation);
}

std::unique_ptr<SynchronousConnectorScheduler> make_planted_synchronous_connector_scheduler(
    const SynchronousConnectorSpec& spec, SharedStorage& storage,
    PlantedInstrumentation instrumentation) {
  return make_scheduler(spec, storage, instrumentation);
}

std::unique_ptr<SynchronousConnectorWorker> make_planted_synchronous_connector_worker(
    const SynchronousConnectorSpec& spec, SharedStorage& storage,
    PlantedInstrumentation instrumentation) {
  return make_worker(spec, storage, instrumentation);
}

}  // namespace kvfence::optimized
