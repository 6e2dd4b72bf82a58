#pragma once

/// HoldingConnectorScheduler: the scheduler's half of an offloading connector without
/// Rules::offload_fences_reuse. The rules stand in
/// contract/connectors/offloading/offloading_connector.h under "hold".
///
/// A step costs its requests, their new blocks, and what it stores.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/core/state_digest.h"
#include "contract/scheduler/scheduler.h"
#include "optimized/connectors/offloading/offloaded_blocks.h"
#include "optimized/offload/offload_keys.h"

namespace kvfence::optimized {

class HoldingConnectorScheduler final : public OffloadingConnectorScheduler {
 public:
  /// Requires: check_spec(spec) finds nothing, and not the rule offload_fences_reuse.
  explicit HoldingConnectorScheduler(const OffloadingSpec& spec);

  std::unique_ptr<KVConnector> clone() const override {
    return std::make_unique<HoldingConnectorScheduler>(*this);
  }
  void on_new_request(const ConnectorRequest&) override {}
  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override;
  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override;
  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override;
  void update_connector_output(ConnectorHost& host, const KVConnectorOutput& output) override;
  bool request_finished(ConnectorHost& host, const ConnectorRequest& request,
                        const BlocksByGroup& blocks) override;
  void take_events(std::vector<KVCacheEvent>& out) override {
    offloaded_.take_events(offloaded_block_size_, /*has_groups=*/false, out);
  }
  bool reset_cache() override { return true; }

  void policy_lists(PolicyLists& out) const override { offloaded_.cpu().policy().lists(out); }
  std::uint32_t num_free_slots() const override { return offloaded_.cpu().num_free_slots(); }

  void add_to(StateHash& hash) const override {
    hash.add_all(offloaded_, tracked_);
    metadata_.add_to(hash);
  }

 private:
  /// A request, from its first lookup until its index names another one.
  struct Tracked {
    OffloadKeys keys;
    std::vector<BlockId> block_ids;
    std::uint32_t cursor = 0;            ///< the next offloaded block to store
    std::vector<std::uint32_t> pending;  ///< blocks being stored, in the order of planning
    std::vector<std::uint32_t> loading;  ///< blocks being loaded
    std::uint32_t num_scheduled = 0;     ///< tokens, of the step under way
    bool has_stored = false;             ///< and was neither reported as sent nor loaded since
    bool is_finished = false;

    void add_to(StateHash& hash) const {
      hash.add_all(keys, block_ids, pending, loading, has_stored, is_finished);
    }
  };

  Tracked& tracked(RequestIndex request);
  void update_keys(Tracked& tracked, const Request& request);
  void view_keys(const OffloadKeys& keys, std::uint32_t begin, std::uint32_t end);
  void view_keys(const Tracked& tracked, const std::vector<std::uint32_t>& indices);
  void complete_stores(Tracked& tracked);
  void plan_store(Tracked& tracked, const ConnectorRequest& request);
  void add_store(Tracked& tracked, const ConnectorRequest& request, std::uint32_t num_blocks);

  std::uint32_t block_size_;            ///< tokens of a GPU block
  std::uint32_t block_size_factor_;     ///< GPU blocks an offloaded block
  std::uint32_t offloaded_block_size_;  ///< tokens
  OffloadKeyShape key_shape_;
  OffloadedBlocks offloaded_;
  std::vector<Tracked> tracked_;  ///< by RequestIndex
  OffloadingConnectorMetadata metadata_;
  std::shared_ptr<const OffloadingConnectorMetadata> nothing_to_tell_;

  // Storage of single calls, kept for the next one.
  std::vector<OffloadKeyView> views_;
  std::vector<OffloadKeyView> touched_;
  PrepareStoreOutput prepared_;
};

}  // namespace kvfence::optimized
