#pragma once

/// The scheduler's half of a simple CPU offload connector. The rules stand in
/// contract/connectors/simple/simple_cpu_offload.h.
///
/// A step costs its requests, the ids that they get, and the blocks whose turn it is to be stored;
/// lazily, the free blocks that are looked at. A report costs the blocks of what it says is over.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/core/flat_lists.h"
#include "contract/core/state_digest.h"
#include "contract/scheduler/scheduler.h"
#include "optimized/base/job_table.h"
#include "optimized/base/request_list.h"
#include "optimized/kv_cache/kv_cache_coordinator.h"

namespace kvfence::optimized {

class SimpleCPUOffload final : public SimpleCPUOffloadScheduler {
 public:
  /// Requires: check_spec(spec) finds nothing.
  /// Cost: O(CPU blocks + GPU blocks). What is allocated later are the metadata, lists as long as
  /// the longest call, and what the requests and the events under way take.
  explicit SimpleCPUOffload(const SimpleCPUOffloadSpec& spec);

  std::unique_ptr<KVConnector> clone() const override {
    return std::make_unique<SimpleCPUOffload>(*this);
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
  void take_events(std::vector<KVCacheEvent>&) override {}
  bool reset_cache() override { return false; }

  BlockCounts cpu_block_counts() const override { return cpu_pool().block_counts(); }
  void cpu_pool(CpuPoolState& out) const override;
  bool has_pending_stores() const override { return stores_.size() > 0; }
  std::optional<BlockId> lazy_cursor() const override { return cursor_; }
  void pinned_hits(std::vector<PinnedHit>& out) const override;
  void add_to(StateHash& hash) const override {
    hash.add_all(cpu_, tracked_, pinning_, untold_, stores_, last_store_of_block_, cursor_,
                 next_load_event_, next_store_event_);
  }

 private:
  /// A request in one group; eager.
  struct Table {
    std::vector<BlockId> block_ids;
    std::uint32_t place = 0;  ///< of the next block to look at
    void add_to(StateHash& hash) const { hash.add_all(block_ids, place); }
  };

  /// What is kept of a request, in a place that the next one of its index takes over.
  struct Tracked {
    bool is_known = false;
    std::vector<Table> tables;  ///< by group
    BlocksByGroup hit;          ///< of the last lookup that found something
    std::vector<BlockId> pinned;
    bool is_loading = false;
    std::vector<BlockId> load_gpu_blocks;
    std::vector<BlockId> load_cpu_blocks;

    void add_to(StateHash& hash) const {
      hash.add_all(is_known, tables, hit, pinned, is_loading, load_gpu_blocks, load_cpu_blocks);
    }
  };

  /// A store event; block k goes to block k under key k.
  struct Store {
    std::uint32_t num_reports = 0;
    std::vector<BlockId> gpu_blocks;
    std::vector<BlockId> cpu_blocks;
    FlatLists<char> keys;

    void add_to(StateHash& hash) const { hash.add_all(num_reports, gpu_blocks, cpu_blocks, keys); }
  };

  std::uint32_t num_groups() const { return static_cast<std::uint32_t>(groups_.size()); }
  BlockPool& cpu_pool() { return cpu_.block_pool(); }
  const BlockPool& cpu_pool() const { return cpu_.block_pool(); }

  static void take(ErrorCode answer) {
    KVFENCE_CHECK(answer == ErrorCode::kNone,
                  "the CPU's pool refuses what its own connector asks of it");
  }

  // Requests
  Tracked& track(RequestIndex request);
  Tracked* find_tracked(RequestIndex request) {
    return request < tracked_.size() ? &tracked_[request] : nullptr;
  }
  void forget_blocks(Tracked& tracked) const;

  // Loads
  void pin(RequestIndex request, Tracked& tracked);
  void free_pinned(const Tracked& tracked);
  void gather_load(Tracked& tracked, const BlocksByGroup& hit, const BlocksByGroup& blocks,
                   std::uint32_t num_local_tokens, std::uint32_t num_external_tokens);
  void end_load(GpuBlockPool& gpu_pool, Tracked& tracked);
  void tell_loads(ConnectorHost& host);

  // Stores
  void plan_eager_stores(ConnectorHost& host, const SchedulerOutput& output);
  void append_block_ids(Tracked& tracked, const SchedulerOutput& output, std::uint32_t first_list);
  std::uint32_t num_storable_tokens(const ConnectorHost& host,
                                    const ConnectorRequest& request) const;
  void plan_stores_of(GpuBlockPool& gpu_pool, const Request& request, Tracked& tracked,
                      std::uint32_t num_tokens);
  enum class Turn : std::uint8_t { kPassedOver, kPlanned, kEndsGroup, kEndsRequest };
  Turn plan_block(const GpuBlockPool& gpu_pool, BlockId block, BlockHashView hash, GroupId group);
  void plan_lazy_stores(GpuBlockPool& gpu_pool);
  void plan(BlockId block, std::string_view key);
  bool has_space_left() const;
  void take_planned(GpuBlockPool& gpu_pool);
  void tell_stores();
  void complete(GpuBlockPool& gpu_pool, const Store& store);

  Rules rules_;
  bool lazy_offload_;
  std::uint32_t num_workers_;
  std::uint32_t scheduler_block_size_;  ///< tokens
  std::vector<KVCacheSpec> groups_;
  GroupId reference_group_ = 0;
  std::uint32_t num_blocks_to_walk_ = 0;  ///< lazy, a step
  KVCacheCoordinator cpu_;

  std::vector<Tracked> tracked_;            ///< by RequestIndex
  RequestList pinning_;                     ///< in the order of pinning
  RequestList untold_;                      ///< loads that no metadata told of
  JobTable<Store> stores_;                  ///< events that are not completed
  std::vector<JobId> last_store_of_block_;  ///< by GPU block: its last event + 1, or 0; eager
  std::optional<BlockId> cursor_;
  JobId next_load_event_ = 0;
  JobId next_store_event_ = 0;

  // Of the step under way.
  Store planned_;
  std::size_t num_taken_ = 0;  ///< of planned_: those that have their CPU block
  SimpleCPUOffloadMetadata metadata_;
  std::shared_ptr<const SimpleCPUOffloadMetadata> nothing_to_tell_;

  BlocksByGroup hit_;  ///< storage of single calls, kept for the next one
};

/// Requires: check_spec(spec) finds nothing.
std::unique_ptr<SimpleCPUOffloadScheduler> make_simple_cpu_offload_scheduler(
    const SimpleCPUOffloadSpec& spec);

}  // namespace kvfence::optimized
