// A connector of another kind, for `kvfence check --target engine --config assembly=simple
// --connector-library FILE`: the scheduler's half is kvfence's, the worker's half is yours. The
// rules stand in contract/connectors/simple/simple_cpu_offload.h.

#include <memory>
#include <span>
#include <string>

#include "contract/connectors/kv_connector_registry.h"
#include "contract/connectors/simple/simple_cpu_offload.h"
#include "optimized/connectors/simple/simple_cpu_offload_scheduler.h"
#include "optimized/connectors/simple/simple_cpu_offload_worker.h"

namespace {

using namespace kvfence;

class MySimpleWorker final : public KVConnectorWorker {
 public:
  explicit MySimpleWorker(const SimpleCPUOffloadSpec& spec)
      : inner_(optimized::make_simple_cpu_offload_worker(spec)) {}

  std::unique_ptr<KVConnectorWorker> clone() const override {
    return std::make_unique<MySimpleWorker>(*this);
  }

  void handle_preemptions(const KVConnectorMetadata& metadata, TransferEngine& engine) override {
#ifndef MY_CONNECTOR_FORGETS_FLUSHES
    inner_->handle_preemptions(metadata, engine);
#endif
  }

  void start_load_kv(const KVConnectorMetadata& metadata, TransferEngine& engine) override {
    inner_->start_load_kv(metadata, engine);
  }

  void wait_for_save(const KVConnectorMetadata& metadata, TransferEngine& engine) override {
    inner_->wait_for_save(metadata, engine);
  }

  void get_finished(const KVConnectorMetadata& metadata,
                    std::span<const std::string> finished_requests, TransferEngine& engine,
                    KVConnectorWorkerOutput& out) override {
    inner_->get_finished(metadata, finished_requests, engine, out);
  }

 private:
  KVConnectorWorkerHandle inner_;
};

}  // namespace

extern "C" void kvfence_connector(kvfence::KVConnectorFactories& connectors) {
  connectors.make_simple = &optimized::make_simple_cpu_offload_scheduler;
  connectors.make_simple_worker = [](const SimpleCPUOffloadSpec& spec) {
    return std::make_unique<MySimpleWorker>(spec);
  };
}
