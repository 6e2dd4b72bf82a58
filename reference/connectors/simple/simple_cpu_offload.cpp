#include "reference/connectors/simple/simple_cpu_offload.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/core/check.h"
#include "contract/core/lists.h"
#include "contract/core/state_digest.h"
#include "contract/pool/observe_blocks.h"
#include "reference/connectors/offloading/offloading_connector.h"
#include "reference/kv_cache/kv_cache_coordinator.h"

namespace kvfence::reference {
namespace {

GpuBlockPool& gpu_of(ConnectorHost& host) {
  GpuBlockPool* const gpu = host.gpu_block_pool();
  KVFENCE_CHECK(gpu != nullptr, "this connector needs the GPU's pool");
  return *gpu;
}

// Source: vLLM v0.23.0 v1/simple_kv_offload/manager.py get_num_new_matched_tokens
std::vector<BlockId> without_null_blocks(const BlocksByGroup& blocks) {
  std::vector<BlockId> all;
  for (const std::vector<BlockId>& group : blocks) {
    for (const BlockId block : group) {
      if (block != kNullBlockId) all.push_back(block);
    }
  }
  return all;
}

/// Source: vLLM v0.19.0 and v0.23.0 v1/simple_kv_offload/manager.py SimpleCPUOffloadScheduler.
class SimpleCPUOffload final : public Cloning<SimpleCPUOffload, SimpleCPUOffloadScheduler> {
 public:
  /// Requires: check_spec(spec) finds nothing wrong
  // Source: vLLM v0.19.0 v1/simple_kv_offload/manager.py SimpleCPUOffloadScheduler.__init__
  explicit SimpleCPUOffload(const SimpleCPUOffloadSpec& spec)
      : spec_(spec), coordinator_(cpu_kv_cache_config(spec)) {
    KVFENCE_CHECK(!check_spec(spec), "no connector can be built from this spec");
  }

  // Lookup and pin.
  // Source: vLLM v0.19.0 v1/simple_kv_offload/manager.py get_num_new_matched_tokens; pins: v0.23.0,
  // the same function
  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override {
    if (const auto stale = take_pin(request.index)) free_in_cpu_pool(without_null_blocks(*stale));
    const std::size_t num_tokens = request.request.all_token_ids().size();
    ComputedBlocks hit = coordinator_.find_longest_cache_hit(
        request.request, minus_or_0(num_tokens, num_local_tokens + std::size_t{1}),
        num_local_tokens);
    if (hit.num_tokens == 0) return {0, /*load_async=*/false};
    const std::uint32_t num_matched = hit.num_tokens;
    if (rules().simple_offload_pins_hits) {
      must(cpu().touch(without_null_blocks(hit.blocks)), "a hit has blocks of the CPU pool");
      pins_.push_back({request.index, std::move(hit.blocks)});
    }
    return {num_matched, /*load_async=*/true};
  }

  // Source: vLLM v0.19.0 and v0.23.0 v1/simple_kv_offload/manager.py update_state_after_alloc
  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override {
    const std::size_t num_groups = blocks.size();
    if (!spec_.lazy_offload && find_known(request.index) == nullptr) {
      known_.push_back(
          {request.index, BlocksByGroup(num_groups), std::vector<std::size_t>(num_groups, 0)});
    }
    const std::optional<BlocksByGroup> pinned = take_pin(request.index);
    if (num_external_tokens == 0) {
      if (pinned) free_in_cpu_pool(without_null_blocks(*pinned));
      return;
    }

    const std::size_t num_local = num_local_tokens(host, blocks);
    BlocksByGroup hit;
    if (rules().simple_offload_pins_hits) {
      KVFENCE_CHECK(pinned, "external tokens that no lookup found");
      hit = *pinned;
    } else {
      ComputedBlocks found =
          coordinator_.find_longest_cache_hit(request.request, num_external_tokens, num_local);
      KVFENCE_CHECK(found.num_tokens == num_external_tokens, "what was found is there no more");
      hit = std::move(found.blocks);
    }

    Load load;
    load.request = request.index;
    load.id = request.id;
    for (std::size_t group = 0; group < num_groups; ++group) {
      const std::size_t num_blocks = num_external_tokens / block_size(group);
      const std::size_t first =
          cdiv(num_local + num_external_tokens, block_size(group)) - num_blocks;
      for (std::size_t i = 0; i < num_blocks; ++i) {
        if (hit[group][i] == kNullBlockId) continue;
        load.cpu_blocks.push_back(hit[group][i]);
        load.gpu_blocks.push_back(blocks[group][first + i]);
      }
    }
    must(cpu().touch(load.cpu_blocks), "a hit has blocks of the CPU pool");
    if (pinned) free_in_cpu_pool(without_null_blocks(*pinned));
    gpu_of(host).touch(load.gpu_blocks);
    for (const Load& other : loads_) {
      KVFENCE_CHECK(other.request != request.index, "one load of a request at a time");
    }
    loads_.push_back(std::move(load));
  }

  // Source: vLLM v0.19.0 v1/simple_kv_offload/manager.py build_connector_meta, prepare_store_specs
  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override {
    auto metadata = std::make_shared<SimpleCPUOffloadMetadata>();
    Store store;
    if (spec_.lazy_offload) {
      plan_lazy_stores(host, store);
    } else {
      plan_eager_stores(host, output, store);
    }
    if (!store.gpu_blocks.empty()) {
      store.event = num_store_events_++;
      metadata->store_event = store.event;
      metadata->store_gpu_blocks = store.gpu_blocks;
      metadata->store_cpu_blocks = store.cpu_blocks;
      stores_.push_back(std::move(store));
    }
    for (Load& load : loads_) {
      if (load.is_sent) continue;
      load.is_sent = true;
      const auto append = [](const std::vector<BlockId>& blocks, std::vector<BlockId>& all) {
        all.insert(all.end(), blocks.begin(), blocks.end());
      };
      append(load.gpu_blocks, metadata->load_gpu_blocks);
      append(load.cpu_blocks, metadata->load_cpu_blocks);
      metadata->load_requests.push_back(load.id);
    }
    if (!metadata->load_requests.empty()) metadata->load_event = num_load_events_++;
    metadata->need_flush = !output.preempted.empty();
    return metadata;
  }

  // Source: vLLM v0.19.0 v1/simple_kv_offload/manager.py update_connector_output
  void update_connector_output(ConnectorHost& host, const KVConnectorOutput& output) override {
    for (const RequestIndex request : output.finished_recving) end_load(host, request);
    for (const CompletedJob& job : output.completed_jobs) {
      const auto store = std::ranges::find(stores_, job.job, &Store::event);
      KVFENCE_CHECK(store != stores_.end(), "a report of a store that is not under way");
      store->num_reports += job.num_workers;
      if (store->num_reports < spec_.num_workers) continue;
      complete(host, *store);
      stores_.erase(store);
    }
  }

  // Source: vLLM v0.19.0 and v0.23.0 v1/simple_kv_offload/manager.py request_finished
  bool request_finished(ConnectorHost& host, const ConnectorRequest& request,
                        const BlocksByGroup& /*blocks*/) override {
    if (const auto pinned = take_pin(request.index)) free_in_cpu_pool(without_null_blocks(*pinned));
    const bool has_unsent_load = std::ranges::any_of(
        loads_, [&](const Load& load) { return load.request == request.index && !load.is_sent; });
    if (has_unsent_load) end_load(host, request.index);
    std::erase_if(known_, [&](const Known& known) { return known.request == request.index; });
    return false;
  }

  // Source: vLLM v0.19.0 v1/simple_cpu_offload_connector.py reset_cache (raises)
  bool reset_cache() override { return false; }

  BlockCounts cpu_block_counts() const override { return cpu().block_counts(); }

  void cpu_pool(ShownBlocks& out) const override { observe_blocks(cpu(), out); }

  bool has_pending_stores() const override { return !stores_.empty(); }
  std::optional<BlockId> lazy_cursor() const override { return cursor_; }

  void pinned_hits(std::vector<PinnedHit>& out) const override {
    out.clear();
    for (const Pin& pin : pins_) out.push_back({pin.request, without_null_blocks(pin.hit)});
  }

  void add_to(StateHash& hash) const override {
    hash.add_kept(coordinator_);
    hash.add_all(pins_, loads_, known_, stores_, num_load_events_, num_store_events_, cursor_);
  }

 private:
  /// A hit that is held in the CPU pool until it is loaded.
  struct Pin {
    RequestIndex request = 0;
    BlocksByGroup hit;
  };

  struct Load {
    RequestIndex request = 0;
    std::string id;
    std::vector<BlockId> gpu_blocks;
    std::vector<BlockId> cpu_blocks;
    bool is_sent = false;  ///< some metadata has it
  };

  /// Eager: what is known of a request whose blocks are stored.
  struct Known {
    RequestIndex request = 0;
    BlocksByGroup block_ids;          ///< as the steps reported them
    std::vector<std::size_t> places;  ///< by group: blocks stored or passed over
  };

  struct Store {
    JobId event = 0;
    std::vector<BlockId> gpu_blocks;
    std::vector<BlockId> cpu_blocks;
    std::vector<std::string> keys;
    std::uint32_t num_reports = 0;  ///< workers that are done
  };

  /// What became of one block of a request.
  enum class Verdict : std::uint8_t { kStored, kPassedOver, kGroupEnds, kRequestEnds };

  const Rules& rules() const { return spec_.kv_cache.pool.rules; }
  BlockPool& cpu() { return coordinator_.block_pool(); }
  const BlockPool& cpu() const { return coordinator_.block_pool(); }
  std::size_t block_size(std::size_t group) const {
    return spec_.kv_cache.groups[group].block_size;
  }

  Known* find_known(RequestIndex request) {
    const auto found = std::ranges::find(known_, request, &Known::request);
    return found == known_.end() ? nullptr : &*found;
  }

  std::optional<BlocksByGroup> take_pin(RequestIndex request) {
    const auto pin = std::ranges::find(pins_, request, &Pin::request);
    if (pin == pins_.end()) return std::nullopt;
    std::optional<BlocksByGroup> hit(std::move(pin->hit));
    pins_.erase(pin);
    return hit;
  }

  void free_in_cpu_pool(const std::vector<BlockId>& blocks) {
    must(cpu().free_blocks(blocks, FreeTo::kTail), "what is freed in the CPU pool is held");
  }

  /// What the GPU's cache gave the request whose table this is.
  // Source: vLLM v0.19.0 v1/simple_kv_offload/manager.py update_state_after_alloc
  std::size_t num_local_tokens(const ConnectorHost& host, const BlocksByGroup& blocks) const {
    std::size_t group = 0;
    while (spec_.kv_cache.groups[group].kind != KVCacheSpecKind::kFullAttention) ++group;
    const auto num_cached = std::ranges::count_if(
        blocks[group], [&host](BlockId block) { return host.is_cached(block); });
    return static_cast<std::size_t>(num_cached) * block_size(group);
  }

  // Source: vLLM v0.19.0 v1/simple_kv_offload/manager.py _cleanup_load_request
  void end_load(ConnectorHost& host, RequestIndex request) {
    const auto load = std::ranges::find(loads_, request, &Load::request);
    if (load == loads_.end()) return;
    free_in_cpu_pool(load->cpu_blocks);
    gpu_of(host).free_blocks(load->gpu_blocks);
    loads_.erase(load);
  }

  // Source: vLLM v0.19.0 v1/simple_kv_offload/manager.py _prepare_eager_store_specs
  void plan_eager_stores(ConnectorHost& host, const SchedulerOutput& output, Store& store) {
    const std::size_t num_groups = spec_.kv_cache.groups.size();
    for (const RequestData& data : request_data(host, output, num_groups)) {
      Known* const known = find_known(data.request.index);
      if (known == nullptr) continue;
      if (data.resumed) {
        known->block_ids = BlocksByGroup(num_groups);
        known->places.assign(num_groups, 0);
      }
      for (std::size_t group = 0; group < num_groups; ++group) {
        std::vector<BlockId>& ids = known->block_ids[group];
        ids.insert(ids.end(), data.new_blocks[group].begin(), data.new_blocks[group].end());
      }
      plan_eager_stores_of(host, data, *known, store);
    }
  }

  void plan_eager_stores_of(ConnectorHost& host, const RequestData& data, Known& known,
                            Store& store) {
    const std::size_t num_tokens = num_confirmed_tokens(host, data.request);
    std::vector<BlockId> chosen;
    bool request_ends = false;
    for (std::size_t group = 0; group < known.block_ids.size() && !request_ends; ++group) {
      const std::size_t end =
          std::min(num_tokens / block_size(group), known.block_ids[group].size());
      std::size_t& place = known.places[group];
      while (place < end) {
        const Verdict made = verdict(gpu_of(host), data, known, group, place, store, chosen.size());
        request_ends = made == Verdict::kRequestEnds;
        if (request_ends || made == Verdict::kGroupEnds) break;
        if (made == Verdict::kStored) chosen.push_back(known.block_ids[group][place]);
        ++place;
      }
    }
    take_cpu_blocks(store, gpu_of(host), chosen);
  }

  // Source: vLLM v0.19.0 and v0.23.0 v1/simple_kv_offload/manager.py _prepare_eager_store_specs;
  // another key than the request's: ours
  Verdict verdict(const GpuBlockPool& gpu, const RequestData& data, const Known& known,
                  std::size_t group, std::size_t place, const Store& store,
                  std::size_t num_chosen) const {
    const BlockId block = known.block_ids[group][place];
    if (block == kNullBlockId) return Verdict::kPassedOver;
    const std::string key(gpu.block_key(block));
    if (key.empty()) {
      return rules().simple_offload_skips_unhashed_blocks ? Verdict::kPassedOver
                                                          : Verdict::kGroupEnds;
    }
    const BlockHashListView hashes =
        data.request.request.block_hashes(spec_.kv_cache.groups[group].block_size);
    const bool is_own =
        place < hashes.size() &&
        key == make_block_hash_with_group_id(hashes[place], static_cast<GroupId>(group));
    if (!is_own || is_being_stored(block, store) || cpu().find_key(key))
      return Verdict::kPassedOver;
    return num_chosen < cpu().get_num_free_blocks() ? Verdict::kStored : Verdict::kRequestEnds;
  }

  // Source: vLLM v0.19.0 v1/simple_kv_offload/manager.py _prepare_eager_store_specs (confirmed);
  // rounding: v0.23.0, the same function
  std::size_t num_confirmed_tokens(const ConnectorHost& host,
                                   const ConnectorRequest& request) const {
    const std::size_t num_confirmed =
        minus_or_0(request.num_computed_tokens, host.num_output_placeholders(request.index));
    if (!rules().simple_offload_aligns_stores) return num_confirmed;
    const std::size_t alignment = spec_.kv_cache.scheduler_block_size();
    return num_confirmed / alignment * alignment;
  }

  // Source: vLLM v0.19.0 v1/simple_kv_offload/manager.py gpu_blocks_this_step; v0.23.0
  // _in_flight_store_gpu_blocks
  bool is_being_stored(BlockId gpu_block, const Store& store) const {
    if (contains(store.gpu_blocks, gpu_block)) return true;
    return rules().simple_offload_skips_stores_under_way &&
           std::any_of(stores_.begin(), stores_.end(), [gpu_block](const Store& under_way) {
             return contains(under_way.gpu_blocks, gpu_block);
           });
  }

  // The walk changes nothing: what it chose leaves the queue afterwards.
  // Source: vLLM v0.19.0 v1/simple_kv_offload/manager.py _prepare_lazy_store_specs
  void plan_lazy_stores(ConnectorHost& host, Store& store) {
    GpuBlockPool& gpu = gpu_of(host);
    if (cursor_ && !gpu.is_free(*cursor_)) cursor_.reset();
    std::vector<BlockId> chosen;
    std::optional<BlockId> block = gpu.next_free_block(cursor_);
    for (std::size_t num_looked_at = 0; block && num_looked_at < num_lazy_target_blocks() &&
                                        chosen.size() < cpu().get_num_free_blocks();
         ++num_looked_at) {
      cursor_ = block;
      const std::string key(gpu.block_key(*block));
      if (!key.empty() && !cpu().find_key(key)) chosen.push_back(*block);
      block = gpu.next_free_block(block);
    }
    take_cpu_blocks(store, gpu, chosen);
  }

  // Source: vLLM v0.19.0 v1/simple_kv_offload/manager.py _estimate_lazy_target_blocks
  std::size_t num_lazy_target_blocks() const {
    std::size_t num_blocks = 0;
    for (const KVCacheSpec& group : spec_.kv_cache.groups) {
      if (group.kind == KVCacheSpecKind::kMamba) {
        num_blocks += 2;
      } else if (group.kind == KVCacheSpecKind::kSlidingWindow) {
        num_blocks += cdiv(group.sliding_window, group.block_size) + 1;
      } else {
        num_blocks += cdiv(spec_.kv_cache.max_num_batched_tokens, group.block_size);
      }
    }
    return 2 * num_blocks;
  }

  /// Takes CPU blocks for the GPU blocks, which are held from now on.
  // Source: vLLM v0.19.0 v1/simple_kv_offload/manager.py _prepare_lazy_store_specs,
  // _prepare_eager_store_specs (its second phase)
  void take_cpu_blocks(Store& store, GpuBlockPool& gpu, const std::vector<BlockId>& gpu_blocks) {
    if (gpu_blocks.empty()) return;
    std::vector<BlockId> cpu_blocks(gpu_blocks.size());
    must(cpu().get_new_blocks(cpu_blocks), "no more blocks are chosen than are free");
    for (std::size_t i = 0; i < gpu_blocks.size(); ++i) {
      store.gpu_blocks.push_back(gpu_blocks[i]);
      store.cpu_blocks.push_back(cpu_blocks[i]);
      store.keys.emplace_back(gpu.block_key(gpu_blocks[i]));
    }
    gpu.touch(gpu_blocks);
  }

  // Source: vLLM v0.19.0 v1/simple_kv_offload/manager.py _process_store_completion
  void complete(ConnectorHost& host, const Store& store) {
    for (std::size_t i = 0; i < store.cpu_blocks.size(); ++i) {
      cpu().set_key(store.cpu_blocks[i], store.keys[i]);
    }
    free_in_cpu_pool(store.cpu_blocks);
    gpu_of(host).free_blocks(store.gpu_blocks);
  }

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

}  // namespace

std::unique_ptr<SimpleCPUOffloadScheduler> make_simple_cpu_offload_scheduler(
    const SimpleCPUOffloadSpec& spec) {
  return std::make_unique<SimpleCPUOffload>(spec);
}

}  // namespace kvfence::reference
