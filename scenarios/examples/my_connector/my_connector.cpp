// A connector for `kvfence check --target engine --config assembly=offloading
// --connector-library FILE`. The scheduler's half leaves every decision to the connector that
// kvfence has; replace them by yours, one function after the other. The worker's half is kvfence's;
// my_simple_connector.cpp implements one. The rules for a connector are in
// contract/connectors/offloading/offloading_connector.h.

#include <cstdint>
#include <memory>
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
  TieringView* tiering() override { return inner().tiering(); }

 private:
  OffloadingConnectorScheduler& inner() const {
    return static_cast<OffloadingConnectorScheduler&>(*inner_.get());
  }

  KVConnectorHandle inner_;  ///< copies what it holds
};

}  // namespace

extern "C" void kvfence_connector(kvfence::KVConnectorFactories& connectors) {
  connectors.make_offloading = [](const ConnectorSetup& setup) {
    return std::make_unique<MyConnectorScheduler>(setup);
  };
  connectors.make_offloading_worker = [](const ConnectorSetup& setup, std::uint32_t) {
    return optimized::make_offloading_connector_worker(setup.spec);
  };
}
