// What tests open: a connector that never knows anything and is for one group, of the kinds
// offloading and simple; half a connector; and none.

#include <memory>

#include "contract/connectors/kv_connector_registry.h"
#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/connectors/simple/simple_cpu_offload.h"

namespace kvfence {
namespace {

class KnowsNothing final : public SimpleCPUOffloadScheduler {
 public:
  std::unique_ptr<KVConnector> clone() const override {
    return std::make_unique<KnowsNothing>(*this);
  }
  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest&, std::uint32_t) override {
    return {0, false};
  }
  void update_state_after_alloc(ConnectorHost&, const ConnectorRequest&, const BlocksByGroup&,
                                std::uint32_t) override {}
  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(ConnectorHost&,
                                                                  const SchedulerOutput&) override {
    return nullptr;
  }
  bool request_finished(ConnectorHost&, const ConnectorRequest&, const BlocksByGroup&) override {
    return false;
  }
  bool supports_hma() const override { return false; }

  BlockCounts cpu_block_counts() const override { return {}; }
  void cpu_pool(ShownBlocks& out) const override { out = {}; }
  bool has_pending_stores() const override { return false; }
  std::optional<BlockId> lazy_cursor() const override { return std::nullopt; }
  void pinned_hits(std::vector<PinnedHit>& out) const override { out.clear(); }
};

class DoesNothing final : public KVConnectorWorker {
 public:
  std::unique_ptr<KVConnectorWorker> clone() const override {
    return std::make_unique<DoesNothing>(*this);
  }
  void handle_preemptions(const KVConnectorMetadata&) override {}
  void start_load_kv() override {}
  void get_finished(std::span<const std::string>, KVConnectorWorkerOutput&) override {}
};

}  // namespace
}  // namespace kvfence

extern "C" void kvfence_connector(kvfence::KVConnectorFactories& connectors) {
  connectors.make_offloading = [](const kvfence::ConnectorSetup&) {
    return std::make_unique<kvfence::KnowsNothing>();
  };
  connectors.make_offloading_worker = [](const kvfence::ConnectorSetup&, std::uint32_t) {
    return std::make_unique<kvfence::DoesNothing>();
  };
  connectors.make_simple = [](const kvfence::SimpleCPUOffloadSpec&) {
    return std::make_unique<kvfence::KnowsNothing>();
  };
  connectors.make_simple_worker = [](const kvfence::SimpleCPUOffloadSpec&) {
    return std::make_unique<kvfence::DoesNothing>();
  };
}

extern "C" void half_a_connector(kvfence::KVConnectorFactories& connectors) {
  kvfence_connector(connectors);
  connectors.make_simple_worker = nullptr;
}

extern "C" void no_connector(kvfence::KVConnectorFactories&) {}
