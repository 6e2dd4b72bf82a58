// A connector for `kvfence check --target engine --config assembly=offloading
// --connector-library FILE`. It leaves every decision to the connector that kvfence has; replace
// them by yours, one function after the other. The rules by which it is judged stand in
// contract/connectors/offloading/offloading_connector.h.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/kv_connector_registry.h"
#include "contract/connectors/offloading/offloading_setup.h"
#include "optimized/connectors/offloading/offloading_connector.h"

namespace {

using namespace kvfence;

class MyConnectorScheduler final : public OffloadingConnectorScheduler {
 public:
  explicit MyConnectorScheduler(const ConnectorSetup& setup)
      : inner_(optimized::make_offloading_connector_scheduler(setup.spec,
                                                              make_secondary_tiers(setup))) {}

  std::unique_ptr<KVConnector> clone() const override {
    return std::make_unique<MyConnectorScheduler>(*this);
  }

  void set_xfer_handshake_metadata(const HandshakesByRank& handshakes) override {
    inner_->set_xfer_handshake_metadata(handshakes);
  }

  void on_new_request(const ConnectorRequest& request) override { inner_->on_new_request(request); }

  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override {
    return inner_->get_num_new_matched_tokens(request, num_local_tokens);
  }

  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override {
    inner_->update_state_after_alloc(host, request, blocks, num_external_tokens);
  }

  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override {
    auto metadata = std::static_pointer_cast<const OffloadingConnectorMetadata>(
        inner_->build_connector_meta(host, output));
#ifdef MY_CONNECTOR_FORGETS_FLUSHES
    auto changed = std::make_shared<OffloadingConnectorMetadata>(*metadata);
    changed->requests_to_flush.clear();
    changed->jobs_to_flush.clear();
    metadata = std::move(changed);
#endif
    return metadata;
  }

  void update_connector_output(ConnectorHost& host, const KVConnectorOutput& output) override {
    inner_->update_connector_output(host, output);
  }

  bool request_finished(ConnectorHost& host, const ConnectorRequest& request,
                        const BlocksByGroup& blocks) override {
    return inner_->request_finished(host, request, blocks);
  }

  void take_events(std::vector<KVCacheEvent>& out) override { inner_->take_events(out); }
  bool reset_cache() override { return inner_->reset_cache(); }
  bool shutdown() override { return inner_->shutdown(); }

  void policy_lists(PolicyLists& out) const override { inner().policy_lists(out); }
  std::uint32_t num_free_slots() const override { return inner().num_free_slots(); }
  std::span<SecondaryTierHandle> tiers() override {
    return static_cast<OffloadingConnectorScheduler&>(*inner_.get()).tiers();
  }
  std::uint32_t num_tier_jobs() const override { return inner().num_tier_jobs(); }
  std::uint32_t num_pending_promotions() const override { return inner().num_pending_promotions(); }
  void tier_jobs(std::vector<TierJobState>& out) const override { inner().tier_jobs(out); }
  void pending_promotions(std::vector<PendingPromotionState>& out) const override {
    inner().pending_promotions(out);
  }

 private:
  const OffloadingConnectorScheduler& inner() const {
    return static_cast<const OffloadingConnectorScheduler&>(*inner_.get());
  }

  KVConnectorHandle inner_;  ///< copies what it holds
};

class MyConnectorWorker final : public KVConnectorWorker {
 public:
  explicit MyConnectorWorker(const ConnectorSetup& setup)
      : inner_(optimized::make_offloading_connector_worker(setup.spec)) {}

  std::unique_ptr<KVConnectorWorker> clone() const override {
    return std::make_unique<MyConnectorWorker>(*this);
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
    inner_->handle_preemptions(metadata);
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
  connectors.make_offloading = [](const ConnectorSetup& setup) {
    return std::make_unique<MyConnectorScheduler>(setup);
  };
  connectors.make_offloading_worker = [](const ConnectorSetup& setup, std::uint32_t) {
    return std::make_unique<MyConnectorWorker>(setup);
  };
}
