// A connector of another kind, for `kvfence check --target engine --config assembly=simple
// --connector-library FILE`: the scheduler's half is kvfence's, the worker's half is yours. The
// rules are in contract/connectors/simple/simple_cpu_offload.h.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "contract/connectors/kv_connector_registry.h"
#include "contract/connectors/simple/simple_cpu_offload.h"
#include "optimized/connectors/simple/simple_cpu_offload.h"

namespace {

using namespace kvfence;

class MySimpleWorker final : public KVConnectorWorker {
 public:
  explicit MySimpleWorker(const SimpleCPUOffloadSpec& spec)
      : inner_(optimized::make_simple_cpu_offload_worker(spec)) {}

  std::unique_ptr<KVConnectorWorker> clone() const override {
    return std::make_unique<MySimpleWorker>(*this);
  }

  bool prefer_cross_layer_blocks() const override { return inner_->prefer_cross_layer_blocks(); }
  void register_kv_caches(TransferEngine& copies) override { inner_->register_kv_caches(copies); }
  void register_cross_layers_kv_cache(TransferEngine& copies) override {
    inner_->register_cross_layers_kv_cache(copies);
  }
  std::shared_ptr<const KVConnectorHandshakeMetadata> get_handshake_metadata() override {
    return inner_->get_handshake_metadata();
  }

  void handle_preemptions(const KVConnectorMetadata& metadata) override {
#ifndef MY_CONNECTOR_FORGETS_FLUSHES
    inner_->handle_preemptions(metadata);
#endif
  }

  void bind_connector_metadata(const KVConnectorMetadata& metadata) override {
    inner_->bind_connector_metadata(metadata);
  }

  void start_load_kv() override { inner_->start_load_kv(); }
  void wait_for_layer_load(std::uint32_t layer) override { inner_->wait_for_layer_load(layer); }
  void save_kv_layer(std::uint32_t layer) override { inner_->save_kv_layer(layer); }
  void wait_for_save() override { inner_->wait_for_save(); }

  void get_finished(std::span<const std::string> finished_requests,
                    KVConnectorWorkerOutput& out) override {
    inner_->get_finished(finished_requests, out);
  }

  void clear_connector_metadata() override { inner_->clear_connector_metadata(); }
  bool shutdown() override { return inner_->shutdown(); }

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
