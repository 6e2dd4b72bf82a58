/// The scheduler's half of a simple CPU offload connector. The rules are in
/// contract/connectors/simple/simple_cpu_offload.h.
///
/// An eager step is O(its requests + their new ids + the blocks that are due to be stored), a lazy
/// step O(the free blocks that it looks at). A report is O(the blocks of the transfers that it
/// ends).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/core/check.h"
#include "contract/core/cloned.h"
#include "contract/core/flat_lists.h"
#include "contract/core/state_digest.h"
#include "contract/pool/observe_blocks.h"
#include "contract/scheduler/scheduler.h"
#include "optimized/base/ceil_div.h"
#include "optimized/base/request_list.h"
#include "optimized/base/slots.h"
#include "optimized/connectors/simple/simple_cpu_offload.h"
#include "optimized/kv_cache/kv_cache_coordinator.h"

namespace kvfence::optimized {
namespace {

/// Free blocks that the lazy walk looks at in a step: twice the most that a step takes of a group.
std::uint32_t num_blocks_to_walk(const KVCacheManagerConfig& config) {
  std::uint32_t num_blocks = 0;
  for (const KVCacheSpec& spec : config.groups) {
    switch (spec.kind) {
      case KVCacheSpecKind::kMamba:
        num_blocks += 2;
        break;
      case KVCacheSpecKind::kSlidingWindow:
        num_blocks += ceil_div(spec.sliding_window, spec.block_size) + 1;
        break;
      default:
        num_blocks += ceil_div(config.max_num_batched_tokens, spec.block_size);
    }
  }
  return 2 * num_blocks;
}

GroupId first_full_attention(const std::vector<KVCacheSpec>& groups) {
  const auto found = std::ranges::find(groups, KVCacheSpecKind::kFullAttention, &KVCacheSpec::kind);
  return static_cast<GroupId>(found - groups.begin());
}

const SimpleCPUOffloadSpec& checked(const SimpleCPUOffloadSpec& spec) {
  KVFENCE_CHECK(!check_spec(spec), "no connector can be built from the spec");
  return spec;
}

bool is_key_of(std::string_view key, BlockHashView hash, GroupId group) {
  return key.size() == hash.size() + kGroupIdBytes && get_block_hash(key) == hash &&
         get_group_id(key) == group;
}

GpuBlockPool& gpu_pool_of(ConnectorHost& host) {
  GpuBlockPool* const pool = host.gpu_block_pool();
  KVFENCE_CHECK(pool, "a simple CPU offload connector without a GPU block pool");
  return *pool;
}

class SimpleCPUOffload final : public Cloning<SimpleCPUOffload, SimpleCPUOffloadScheduler> {
 public:
  /// Requires: check_spec(spec) finds nothing.
  /// Cost: O(CPU blocks + GPU blocks). Later allocations: the metadata, lists as long as the
  /// longest call, and storage for the requests and the events under way.
  explicit SimpleCPUOffload(const SimpleCPUOffloadSpec& spec)
      : rules_(checked(spec).kv_cache.pool.rules),
        lazy_offload_(spec.lazy_offload),
        num_workers_(spec.num_workers),
        scheduler_block_size_(spec.kv_cache.scheduler_block_size()),
        groups_(spec.kv_cache.groups),
        reference_group_(first_full_attention(groups_)),
        num_blocks_to_walk_(num_blocks_to_walk(spec.kv_cache)),
        cpu_(cpu_kv_cache_config(spec)),
        last_store_of_block_(spec.lazy_offload ? 0 : spec.kv_cache.pool.num_gpu_blocks),
        empty_metadata_(std::make_shared<SimpleCPUOffloadMetadata>()) {}

  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override {
    Tracked& tracked = track(request.index);
    if (pinning_.erase(request.index)) free_pinned(tracked);
    const auto num_tokens = static_cast<std::uint32_t>(request.request.all_token_ids().size());
    if (num_tokens <= num_local_tokens + 1) return {0, false};
    const bool pins = rules_.simple_offload_pins_hits;
    const std::uint32_t num_found =
        cpu_.find_longest_cache_hit(request.request, num_tokens - 1 - num_local_tokens,
                                    pins ? tracked.hit : hit_, num_local_tokens);
    if (num_found == 0) return {0, false};
    if (pins) pin(request.index, tracked);
    return {num_found, true};
  }

  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override {
    Tracked& tracked = track(request.index);
    if (!lazy_offload_ && !tracked.is_known) {
      forget_blocks(tracked);
      tracked.is_known = true;
    }
    const bool was_pinned = pinning_.erase(request.index);
    if (num_external_tokens == 0) {
      if (was_pinned) free_pinned(tracked);
      return;
    }
    KVFENCE_CHECK(!tracked.is_loading, "a second load of a request while one is under way");
    const std::vector<BlockId>& reference_blocks = blocks[reference_group_];
    const auto num_cached = static_cast<std::uint32_t>(std::ranges::count_if(
        reference_blocks, [&host](BlockId block) { return host.is_cached(block); }));
    const std::uint32_t num_local_tokens = groups_[reference_group_].block_size * num_cached;
    if (!rules_.simple_offload_pins_hits) {
      cpu_.find_longest_cache_hit(request.request, num_external_tokens, hit_, num_local_tokens);
    }
    gather_load(tracked, rules_.simple_offload_pins_hits ? tracked.hit : hit_, blocks,
                num_local_tokens, num_external_tokens);
    take(cpu_pool().touch(tracked.load_cpu_blocks));
    if (was_pinned) free_pinned(tracked);
    gpu_pool_of(host).touch(tracked.load_gpu_blocks);
    tracked.is_loading = true;
    if (!unsent_.contains(request.index)) unsent_.push_back(request.index);
  }

  // ---- A step and its results ----

  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override {
    if (lazy_offload_) {
      plan_lazy_stores(gpu_pool_of(host));
    } else {
      plan_eager_stores(host, output);
    }
    add_stores_to_metadata();
    add_loads_to_metadata(host);
    metadata_.need_flush = !output.preempted.empty();
    if (!metadata_.load_event && !metadata_.store_event && !metadata_.need_flush) {
      return empty_metadata_;
    }
    return std::make_shared<SimpleCPUOffloadMetadata>(std::exchange(metadata_, {}));
  }

  void update_connector_output(ConnectorHost& host, const KVConnectorOutput& output) override {
    GpuBlockPool& gpu_pool = gpu_pool_of(host);
    for (RequestIndex request : output.finished_recving) {
      if (Tracked* const tracked = find_tracked(request)) end_load(gpu_pool, *tracked);
    }
    for (const CompletedJob& completed : output.completed_jobs) {
      const std::uint32_t slot = stores_.find(completed.job);
      KVFENCE_CHECK(slot != stores_.kNone, "a report of a store that is not under way");
      Store& store = stores_[slot];
      store.num_reports += completed.num_workers;
      if (store.num_reports < num_workers_) continue;
      complete(gpu_pool, store);
      store.num_reports = 0;
      stores_.erase(completed.job);
    }
  }

  bool request_finished(ConnectorHost& host, const ConnectorRequest& request,
                        const BlocksByGroup&) override {
    Tracked* const tracked = find_tracked(request.index);
    if (!tracked) return false;
    tracked->is_known = false;
    if (pinning_.erase(request.index)) free_pinned(*tracked);
    if (unsent_.erase(request.index)) end_load(gpu_pool_of(host), *tracked);
    return false;
  }

  bool reset_cache() override { return false; }

  BlockCounts cpu_block_counts() const override { return cpu_pool().block_counts(); }

  // ---- For observers ----

  void cpu_pool(ShownBlocks& out) const override { observe_blocks(cpu_pool(), out); }

  bool has_pending_stores() const override { return stores_.size() > 0; }
  std::optional<BlockId> lazy_cursor() const override { return cursor_; }

  void pinned_hits(std::vector<PinnedHit>& out) const override {
    out.resize(pinning_.size());
    auto hit = out.begin();
    for (RequestIndex request = pinning_.front(); request != kNoRequest;
         request = pinning_.next(request), ++hit) {
      hit->request = request;
      hit->cpu_blocks = tracked_[request].pinned;
    }
  }

  void add_to(StateHash& hash) const override {
    hash.add_all(pinning_, unsent_, stores_, cursor_, next_load_event_, next_store_event_);
    hash.add_kept(cpu_, tracked_, last_store_of_block_);
  }

 private:
  /// A request in one group; eager.
  struct Table {
    std::vector<BlockId> block_ids;
    std::uint32_t place = 0;  ///< of the next block to look at
  };

  /// The record of a request, in a place that the next request of its index reuses.
  struct Tracked {
    bool is_known = false;
    std::vector<Table> tables;  ///< by group
    BlocksByGroup hit;          ///< of the last lookup that found something
    std::vector<BlockId> pinned;
    bool is_loading = false;
    std::vector<BlockId> load_gpu_blocks;
    std::vector<BlockId> load_cpu_blocks;
  };

  /// A store event; block k goes to block k under key k.
  struct Store {
    std::uint32_t num_reports = 0;
    std::vector<BlockId> gpu_blocks;
    std::vector<BlockId> cpu_blocks;
    FlatLists<char> keys;
  };

  std::uint32_t num_groups() const { return static_cast<std::uint32_t>(groups_.size()); }
  BlockPool& cpu_pool() { return cpu_.block_pool(); }
  const BlockPool& cpu_pool() const { return cpu_.block_pool(); }

  static void take(ErrorCode answer) {
    KVFENCE_CHECK(answer == ErrorCode::kNone,
                  "the CPU's pool refuses what its own connector asks of it");
  }

  // ---- Requests ----

  Tracked& track(RequestIndex request) {
    if (request >= tracked_.size()) tracked_.resize(std::size_t{request} + 1);
    return tracked_[request];
  }

  Tracked* find_tracked(RequestIndex request) {
    return request < tracked_.size() ? &tracked_[request] : nullptr;
  }

  void forget_blocks(Tracked& tracked) const {
    tracked.tables.resize(groups_.size());
    for (Table& table : tracked.tables) {
      table.block_ids.clear();
      table.place = 0;
    }
  }

  // ---- Loads ----

  void pin(RequestIndex request, Tracked& tracked) {
    tracked.pinned.clear();
    for (const std::vector<BlockId>& blocks : tracked.hit) {
      std::copy_if(blocks.begin(), blocks.end(), std::back_inserter(tracked.pinned),
                   [](BlockId block) { return block != kNullBlockId; });
    }
    take(cpu_pool().touch(tracked.pinned));
    pinning_.push_back(request);
  }

  void free_pinned(const Tracked& tracked) { take(cpu_pool().free_blocks(tracked.pinned)); }

  void gather_load(Tracked& tracked, const BlocksByGroup& hit, const BlocksByGroup& blocks,
                   std::uint32_t num_local_tokens, std::uint32_t num_external_tokens) {
    tracked.load_gpu_blocks.clear();
    tracked.load_cpu_blocks.clear();
    for (GroupId group = 0; group < num_groups(); ++group) {
      const std::uint32_t block_size = groups_[group].block_size;
      const std::vector<BlockId>& table = blocks[group];
      const std::size_t num_hit =
          std::min<std::size_t>(num_external_tokens / block_size, hit[group].size());
      const std::size_t end = ceil_div(num_local_tokens + num_external_tokens, block_size);
      KVFENCE_CHECK(num_hit <= end && end <= table.size(),
                    "a load of more than the request has blocks for");
      const std::size_t begin = end - num_hit;
      for (std::size_t index = 0; index < num_hit; ++index) {
        const BlockId cpu_block = hit[group][index];
        if (cpu_block == kNullBlockId) continue;
        tracked.load_gpu_blocks.push_back(table[begin + index]);
        tracked.load_cpu_blocks.push_back(cpu_block);
      }
    }
  }

  void end_load(GpuBlockPool& gpu_pool, Tracked& tracked) {
    if (!std::exchange(tracked.is_loading, false)) return;
    take(cpu_pool().free_blocks(tracked.load_cpu_blocks));
    gpu_pool.free_blocks(tracked.load_gpu_blocks);
  }

  void add_loads_to_metadata(ConnectorHost& host) {
    if (unsent_.empty()) return;
    metadata_.load_event = next_load_event_++;
    while (!unsent_.empty()) {
      const RequestIndex request = unsent_.front();
      const Tracked& tracked = tracked_[request];
      metadata_.load_gpu_blocks.insert(metadata_.load_gpu_blocks.end(),
                                       tracked.load_gpu_blocks.begin(),
                                       tracked.load_gpu_blocks.end());
      metadata_.load_cpu_blocks.insert(metadata_.load_cpu_blocks.end(),
                                       tracked.load_cpu_blocks.begin(),
                                       tracked.load_cpu_blocks.end());
      metadata_.load_requests.emplace_back(host.request(request).id);
      unsent_.erase(request);
    }
  }

  // ---- Stores ----

  void plan_eager_stores(ConnectorHost& host, const SchedulerOutput& output) {
    GpuBlockPool& gpu_pool = gpu_pool_of(host);
    const auto plan_request = [&](RequestIndex index, bool is_resumed, std::uint32_t first_list) {
      Tracked* const tracked = find_tracked(index);
      if (!tracked || !tracked->is_known) return;
      if (is_resumed) forget_blocks(*tracked);
      append_block_ids(*tracked, output, first_list);
      const ConnectorRequest request = host.request(index);
      plan_stores_of(gpu_pool, request.request, *tracked, num_storable_tokens(host, request));
      take_planned(gpu_pool);
    };
    for (const SchedulerOutput::New& entry : output.scheduled_new_reqs) {
      plan_request(entry.request, /*is_resumed=*/false, entry.first_list);
    }
    for (const SchedulerOutput::Cached& entry : output.scheduled_cached_reqs) {
      plan_request(entry.request, entry.resumed, entry.first_list);
    }
  }

  void append_block_ids(Tracked& tracked, const SchedulerOutput& output, std::uint32_t first_list) {
    if (first_list == SchedulerOutput::kNoLists) return;
    for (GroupId group = 0; group < num_groups(); ++group) {
      const std::span<const BlockId> blocks = output.block_lists[first_list + group];
      std::vector<BlockId>& ids = tracked.tables[group].block_ids;
      ids.insert(ids.end(), blocks.begin(), blocks.end());
    }
  }

  std::uint32_t num_storable_tokens(const ConnectorHost& host,
                                    const ConnectorRequest& request) const {
    std::uint32_t num_tokens =
        request.num_computed_tokens -
        std::min(request.num_computed_tokens, host.num_output_placeholders(request.index));
    if (rules_.simple_offload_aligns_stores) num_tokens -= num_tokens % scheduler_block_size_;
    return num_tokens;
  }

  void plan_stores_of(GpuBlockPool& gpu_pool, const Request& request, Tracked& tracked,
                      std::uint32_t num_tokens) {
    for (GroupId group = 0; group < num_groups(); ++group) {
      Table& table = tracked.tables[group];
      const BlockHashListView hashes = request.block_hashes(groups_[group].block_size);
      const std::size_t end = std::min({std::size_t{num_tokens / groups_[group].block_size},
                                        table.block_ids.size(), hashes.size()});
      for (; table.place < end; ++table.place) {
        const Turn turn =
            plan_block(gpu_pool, table.block_ids[table.place], hashes[table.place], group);
        if (turn == Turn::kEndsGroup) break;
        if (turn == Turn::kEndsRequest) return;
      }
    }
  }

  enum class Turn : std::uint8_t { kPassedOver, kPlanned, kEndsGroup, kEndsRequest };

  Turn plan_block(const GpuBlockPool& gpu_pool, BlockId block, BlockHashView hash, GroupId group) {
    if (block == kNullBlockId) return Turn::kPassedOver;
    const std::string_view key = gpu_pool.block_key(block);
    if (key.empty()) {
      return rules_.simple_offload_skips_unhashed_blocks ? Turn::kPassedOver : Turn::kEndsGroup;
    }
    if (!is_key_of(key, hash, group)) return Turn::kPassedOver;
    JobId& last_store = last_store_of_block_[block];
    if (last_store == next_store_event_ + 1) return Turn::kPassedOver;
    if (rules_.simple_offload_skips_stores_under_way && last_store != 0 &&
        stores_.find(last_store - 1) != stores_.kNone) {
      return Turn::kPassedOver;
    }
    if (cpu_pool().has_key(key)) return Turn::kPassedOver;
    if (!has_space_left()) return Turn::kEndsRequest;
    plan(block, key);
    last_store = next_store_event_ + 1;
    return Turn::kPlanned;
  }

  void plan_lazy_stores(GpuBlockPool& gpu_pool) {
    if (cursor_ && !gpu_pool.is_free(*cursor_)) cursor_.reset();
    for (std::uint32_t num_left = num_blocks_to_walk_; num_left > 0 && has_space_left();
         --num_left) {
      const std::optional<BlockId> block = gpu_pool.next_free_block(cursor_);
      if (!block) break;
      cursor_ = block;
      const std::string_view key = gpu_pool.block_key(*block);
      if (!key.empty() && !cpu_pool().has_key(key)) plan(*block, key);
    }
    take_planned(gpu_pool);
  }

  void plan(BlockId block, std::string_view key) {
    planned_.gpu_blocks.push_back(block);
    planned_.keys.append(key);
    planned_.keys.end_list();
  }

  /// Whether more CPU blocks are free than the planned stores are going to take.
  bool has_space_left() const {
    return planned_.gpu_blocks.size() - num_taken_ < cpu_pool().get_num_free_blocks();
  }

  /// Takes CPU blocks for the stores planned since the last call.
  void take_planned(GpuBlockPool& gpu_pool) {
    const std::size_t first = std::exchange(num_taken_, planned_.gpu_blocks.size());
    if (first == num_taken_) return;
    planned_.cpu_blocks.resize(num_taken_);
    take(cpu_pool().get_new_blocks(std::span(planned_.cpu_blocks).subspan(first)));
    gpu_pool.touch(std::span(planned_.gpu_blocks).subspan(first));
  }

  void add_stores_to_metadata() {
    if (planned_.gpu_blocks.empty()) return;
    metadata_.store_event = next_store_event_;
    metadata_.store_gpu_blocks = planned_.gpu_blocks;
    metadata_.store_cpu_blocks = planned_.cpu_blocks;
    // The next plan reuses the storage of an event that is over.
    std::swap(planned_, stores_[stores_.insert(next_store_event_)]);
    planned_.num_reports = 0;
    planned_.gpu_blocks.clear();
    planned_.cpu_blocks.clear();
    planned_.keys.clear();
    num_taken_ = 0;
    ++next_store_event_;
  }

  void complete(GpuBlockPool& gpu_pool, const Store& store) {
    for (std::size_t index = 0; index < store.cpu_blocks.size(); ++index) {
      const std::span<const char> key = store.keys[index];
      take(cpu_pool().cache_block(store.cpu_blocks[index], {key.data(), key.size()}));
    }
    take(cpu_pool().free_blocks(store.cpu_blocks));
    gpu_pool.free_blocks(store.gpu_blocks);
  }

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
  RequestList unsent_;                      ///< loads that are in no metadata yet
  NumberedSlots<JobId, Store> stores_;      ///< events that are not completed
  std::vector<JobId> last_store_of_block_;  ///< by GPU block: its last event + 1, or 0; eager
  std::optional<BlockId> cursor_;
  JobId next_load_event_ = 0;
  JobId next_store_event_ = 0;

  // Of the step under way.
  Store planned_;
  std::size_t num_taken_ = 0;  ///< how many of planned_ have their CPU block
  SimpleCPUOffloadMetadata metadata_;
  std::shared_ptr<const SimpleCPUOffloadMetadata> empty_metadata_;

  BlocksByGroup hit_;  ///< storage of single calls, kept for the next one
};

}  // namespace

std::unique_ptr<SimpleCPUOffloadScheduler> make_simple_cpu_offload_scheduler(
    const SimpleCPUOffloadSpec& spec) {
  return std::make_unique<SimpleCPUOffload>(spec);
}

}  // namespace kvfence::optimized
