#pragma once

/// The scheduler's half of the simple CPU offload connector: the executable specification. The
/// rules of each function stand in contract/connectors/simple/simple_cpu_offload.h.
/// Source: vLLM v0.19.0 and v0.23.0 v1/simple_kv_offload/manager.py SimpleCPUOffloadScheduler.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/core/state_digest.h"
#include "reference/connectors/offloading/offloading_connector.h"
#include "reference/kv_cache/kv_cache_coordinator.h"

namespace kvfence::reference {

class SimpleCPUOffload final : public SimpleCPUOffloadScheduler {
 public:
  /// Requires: check_spec(spec) finds nothing wrong
  explicit SimpleCPUOffload(const SimpleCPUOffloadSpec& spec);

  std::unique_ptr<KVConnector> clone() const override;
  void on_new_request(const ConnectorRequest& request) override;
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
  void take_events(std::vector<KVCacheEvent>& out) override;
  bool reset_cache() override;

  BlockCounts cpu_block_counts() const override;
  void cpu_pool(CpuPoolState& out) const override;
  bool has_pending_stores() const override { return !stores_.empty(); }
  std::optional<BlockId> lazy_cursor() const override { return cursor_; }
  void pinned_hits(std::vector<PinnedHit>& out) const override;
  void add_to(StateHash& hash) const override {
    hash.add_all(coordinator_, pins_, loads_, known_, stores_, num_load_events_, num_store_events_,
                 cursor_);
  }

 private:
  /// A hit that is held in the CPU pool until it is loaded.
  struct Pin {
    RequestIndex request = 0;
    BlocksByGroup hit;
    void add_to(StateHash& hash) const { hash.add_all(request, hit); }
  };

  struct Load {
    RequestIndex request = 0;
    std::string id;
    std::vector<BlockId> gpu_blocks;
    std::vector<BlockId> cpu_blocks;
    bool is_told = false;  ///< some metadata has it
    void add_to(StateHash& hash) const {
      hash.add_all(request, id, gpu_blocks, cpu_blocks, is_told);
    }
  };

  /// Eager: what is known of a request whose blocks are stored.
  struct Known {
    RequestIndex request = 0;
    BlocksByGroup block_ids;          ///< as the steps told them
    std::vector<std::size_t> places;  ///< by group: blocks stored or passed over
    void add_to(StateHash& hash) const { hash.add_all(request, block_ids, places); }
  };

  struct Store {
    JobId event = 0;
    std::vector<BlockId> gpu_blocks;
    std::vector<BlockId> cpu_blocks;
    std::vector<std::string> keys;
    std::uint32_t num_reports = 0;  ///< workers that are done
    void add_to(StateHash& hash) const {
      hash.add_all(event, gpu_blocks, cpu_blocks, keys, num_reports);
    }
  };

  /// What became of one block of a request.
  enum class Verdict : std::uint8_t { kStored, kPassedOver, kGroupEnds, kRequestEnds };

  const Rules& rules() const { return spec_.kv_cache.pool.rules; }
  BlockPool& cpu() { return coordinator_.block_pool(); }
  const BlockPool& cpu() const { return coordinator_.block_pool(); }
  std::size_t block_size(std::size_t group) const {
    return spec_.kv_cache.groups[group].block_size;
  }

  Known* find_known(RequestIndex request);
  std::optional<BlocksByGroup> take_pin(RequestIndex request);
  void free_in_cpu_pool(const std::vector<BlockId>& blocks);
  /// What the GPU's cache gave the request whose table this is.
  std::size_t num_local_tokens(const ConnectorHost& host, const BlocksByGroup& blocks) const;
  void end_load(ConnectorHost& host, RequestIndex request);

  Store plan_stores(ConnectorHost& host, const SchedulerOutput& output);
  void plan_eager_stores(ConnectorHost& host, const SchedulerOutput& output, Store& store);
  void plan_eager_stores_of(ConnectorHost& host, const RequestData& data, Known& known,
                            Store& store);
  Verdict verdict(const GpuBlockPool& gpu, const RequestData& data, const Known& known,
                  std::size_t group, std::size_t place, const Store& store,
                  std::size_t num_chosen) const;
  std::size_t num_confirmed_tokens(const ConnectorHost& host,
                                   const ConnectorRequest& request) const;
  bool is_being_stored(BlockId gpu_block, const Store& store) const;
  void plan_lazy_stores(ConnectorHost& host, Store& store);
  std::size_t num_lazy_target_blocks() const;
  /// Takes CPU blocks for the GPU blocks, which are held from now on.
  void take_cpu_blocks(Store& store, GpuBlockPool& gpu, const std::vector<BlockId>& gpu_blocks);
  void complete(ConnectorHost& host, const Store& store);

  SimpleCPUOffloadSpec spec_;
  KVCacheCoordinator coordinator_;  ///< of the CPU pool
  std::vector<Pin> pins_;           ///< in the order of pinning
  std::vector<Load> loads_;         ///< not over, in order
  std::vector<Known> known_;
  std::vector<Store> stores_;  ///< not completed, by event
  JobId num_load_events_ = 0;
  JobId num_store_events_ = 0;
  std::optional<BlockId> cursor_;  ///< lazy
};

/// Requires: check_spec(spec) finds nothing wrong
std::unique_ptr<SimpleCPUOffloadScheduler> make_simple_cpu_offload_scheduler(
    const SimpleCPUOffloadSpec& spec);

}  // namespace kvfence::reference
