#include "optimized/connectors/synchronous/synchronous_connector.h"

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

class TemporaryFileStorage final : private OwnFolder, public FileStorage {
 public:
  TemporaryFileStorage() : FileStorage(folder.path(), file_operations) {}
};

}  // namespace

std::unique_ptr<SharedStorage> make_shared_storage() {
  return std::make_unique<TemporaryFileStorage>();
}

std::unique_ptr<SynchronousConnectorScheduler> make_synchronous_connector_scheduler(
    const SynchronousConnectorSpec& spec, SharedStorage& storage) {
  if (spec.kind == SynchronousConnectorKind::kExample) {
    return make_example_connector_scheduler(spec, storage);
  }
  return make_decode_bench_connector_scheduler(spec);
}

std::unique_ptr<SynchronousConnectorWorker> make_synchronous_connector_worker(
    const SynchronousConnectorSpec& spec, SharedStorage& storage) {
  if (spec.kind == SynchronousConnectorKind::kExample) {
    return make_example_connector_worker(storage);
  }
  return make_decode_bench_connector_worker();
}

}  // namespace kvfence::optimized
