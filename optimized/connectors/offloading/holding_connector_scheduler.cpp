/// HoldingConnectorScheduler: the scheduler's half of an offloading connector without
/// Rules::offload_fences_reuse. The rules are in
/// contract/connectors/offloading/offloading_connector.h under "hold".
///
/// A step is O(its requests + their new blocks + the blocks that it stores).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/core/cloned.h"
#include "contract/core/state_digest.h"
#include "contract/scheduler/scheduler.h"
#include "optimized/connectors/offloading/offloaded_blocks.h"
#include "optimized/connectors/offloading/offloading_connector.h"
#include "optimized/offload/offload_keys.h"

namespace kvfence::optimized {
namespace {

class HoldingConnectorScheduler final
    : public Cloning<HoldingConnectorScheduler, OffloadingConnectorScheduler> {
 public:
  /// Requires: check_spec(spec) finds nothing, and the rule offload_fences_reuse is off.
  explicit HoldingConnectorScheduler(const OffloadingSpec& spec)
      : block_size_(spec.kv_cache.groups.front().block_size),
        block_size_factor_(spec.block_size_factor),
        offloaded_block_size_(block_size_ * block_size_factor_),
        offloaded_(spec, /*tiers=*/{}),
        empty_metadata_(std::make_shared<OffloadingConnectorMetadata>()) {
    key_shape_.hash_bytes = hash_bytes(spec.kv_cache.pool.hash.algorithm);
    key_shape_.hashes_per_key = block_size_factor_;
    key_shape_.hash_of_key = block_size_factor_ - 1;
  }

  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override {
    Tracked& state = tracked(request.index);
    update_keys(state, request.request);
    const OffloadKeys& keys = state.keys;
    const std::uint32_t num_blocks = keys.size();
    view_keys(keys, 0, num_blocks);
    offloaded_.touch(views_, {request.id});
    if (num_blocks * offloaded_block_size_ < num_local_tokens + offloaded_block_size_) {
      return {0, false};
    }
    const std::uint32_t begin = num_local_tokens / offloaded_block_size_;
    view_keys(keys, begin, num_blocks);
    const std::uint32_t num_hits = offloaded_.lookup(views_);
    if (num_hits == 0) return {0, false};
    const std::uint32_t hit_end = offloaded_block_size_ * (begin + num_hits);
    if (hit_end < num_local_tokens + offloaded_block_size_) return {0, false};
    views_.resize(num_hits);
    if (offloaded_.is_any_loading() && offloaded_.is_any_loading(views_)) {
      return {std::nullopt, false};
    }
    return {hit_end - num_local_tokens, true};
  }

  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override {
    Tracked& state = tracked(request.index);
    state.block_ids.clear();
    if (num_external_tokens == 0) return;
    update_keys(state, request.request);
    const std::vector<BlockId>& table = blocks.front();
    std::uint32_t num_computed = 0;
    for (BlockId block : table) num_computed += host.is_cached(block) ? 1 : 0;
    const std::uint32_t num_tokens = num_computed * block_size_ + num_external_tokens;
    const std::uint32_t end = std::min(num_tokens / offloaded_block_size_, state.keys.size());
    TransferJob& load = metadata_.loads.emplace_back();
    load.request = request.id;
    load.spec.gpu_blocks.assign(table.begin() + num_computed, table.end());
    load.spec.group_sizes = {static_cast<std::uint32_t>(load.spec.gpu_blocks.size())};
    load.spec.block_indices = {num_computed};
    for (std::uint32_t index = num_computed / block_size_factor_; index < end; ++index) {
      state.loading.push_back(index);
    }
    view_keys(state, state.loading);
    load.spec.slots.reserve(views_.size());
    offloaded_.prepare_load(views_, load.spec.slots);
    state.cursor = end;
    state.pending.clear();
    state.has_stored = false;
  }

  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override {
    for (const SchedulerOutput::Scheduled& scheduled : output.scheduled) {
      tracked(scheduled.request).num_scheduled = scheduled.num_tokens;
    }
    const auto plan = [&](RequestIndex index, std::uint32_t first_list) {
      Tracked& state = tracked(index);
      if (first_list != SchedulerOutput::kNoLists) {
        const std::span<const BlockId> new_ids = output.block_lists[first_list];
        state.block_ids.insert(state.block_ids.end(), new_ids.begin(), new_ids.end());
      }
      plan_store(state, host.request(index));
    };
    for (const SchedulerOutput::New& entry : output.scheduled_new_reqs) {
      plan(entry.request, entry.first_list);
    }
    for (const SchedulerOutput::Cached& entry : output.scheduled_cached_reqs) {
      if (entry.resumed) tracked(entry.request).block_ids.clear();
      plan(entry.request, entry.first_list);
    }
    for (RequestIndex index : output.preempted) {
      metadata_.requests_to_flush.emplace_back(host.request(index).id);
      complete_stores(tracked(index));
    }
    if (metadata_.loads.empty() && metadata_.stores.empty() &&
        metadata_.requests_to_flush.empty()) {
      return empty_metadata_;
    }
    return std::make_shared<OffloadingConnectorMetadata>(std::exchange(metadata_, {}));
  }

  void update_connector_output(ConnectorHost&, const KVConnectorOutput& output) override {
    for (RequestIndex index : output.finished_sending) {
      if (index >= tracked_.size()) continue;
      complete_stores(tracked_[index]);
      tracked_[index].has_stored = false;
    }
    for (RequestIndex index : output.finished_recving) {
      if (index >= tracked_.size() || tracked_[index].loading.empty()) continue;
      view_keys(tracked_[index], tracked_[index].loading);
      offloaded_.complete_load(views_);
      tracked_[index].loading.clear();
    }
  }

  bool request_finished(ConnectorHost&, const ConnectorRequest& request,
                        const BlocksByGroup&) override {
    Tracked& state = tracked(request.index);
    state.is_finished = true;
    return state.has_stored;
  }

  void take_events(std::vector<KVCacheEvent>& out) override {
    offloaded_.take_events(offloaded_block_size_, /*has_groups=*/false, out);
  }

  void policy_lists(PolicyLists& out) const override { offloaded_.cpu().policy().lists(out); }
  std::uint32_t num_free_slots() const override { return offloaded_.cpu().num_free_slots(); }

  void add_to(StateHash& hash) const override {
    hash.add(offloaded_);
    hash.add_kept(tracked_);
    metadata_.add_to(hash);
  }

 private:
  /// A request, from its first lookup until another request has its index.
  struct Tracked {
    OffloadKeys keys;
    std::vector<BlockId> block_ids;
    std::uint32_t cursor = 0;            ///< the next offloaded block to store
    std::vector<std::uint32_t> pending;  ///< blocks being stored, in the order of planning
    std::vector<std::uint32_t> loading;  ///< blocks being loaded
    std::uint32_t num_scheduled = 0;     ///< tokens, of the step under way
    bool has_stored = false;             ///< and was not reported as sent or loaded since
    bool is_finished = false;

    void add_to(StateHash& hash) const {
      hash.add_all(keys, block_ids, pending, loading, has_stored, is_finished);
    }
  };

  /// The request of that index. Forgets the former request of the index, if it has finished.
  Tracked& tracked(RequestIndex request) {
    if (request >= tracked_.size()) tracked_.resize(request + 1);
    Tracked& tracked = tracked_[request];
    if (!tracked.is_finished) return tracked;
    tracked.keys.clear();
    tracked.block_ids.clear();
    tracked.cursor = 0;
    tracked.pending.clear();
    tracked.loading.clear();
    tracked.has_stored = false;
    tracked.is_finished = false;
    return tracked;
  }

  void update_keys(Tracked& tracked, const Request& request) {
    tracked.keys.update(request, key_shape_);
  }

  /// Fills views_.
  void view_keys(const OffloadKeys& keys, std::uint32_t begin, std::uint32_t end) {
    views_.clear();
    for (std::uint32_t index = begin; index < end; ++index) views_.push_back(keys[index]);
  }

  void view_keys(const Tracked& tracked, const std::vector<std::uint32_t>& indices) {
    views_.clear();
    for (std::uint32_t index : indices) views_.push_back(tracked.keys[index]);
  }

  /// All pending blocks are stored.
  void complete_stores(Tracked& tracked) {
    if (tracked.pending.empty()) return;
    view_keys(tracked, tracked.pending);
    offloaded_.complete_store(views_, /*request=*/{}, /*success=*/true);
    tracked.pending.clear();
  }

  void plan_store(Tracked& tracked, const ConnectorRequest& request) {
    update_keys(tracked, request.request);
    const auto num_tokens = static_cast<std::uint32_t>(request.request.all_token_ids().size());
    const std::uint32_t num_computed =
        std::min(request.num_computed_tokens + tracked.num_scheduled, num_tokens);
    const std::uint32_t cursor = num_computed / offloaded_block_size_;
    if (cursor <= tracked.cursor) return;
    const auto num_allocated =
        static_cast<std::uint32_t>(tracked.block_ids.size() / block_size_factor_);
    const std::uint32_t num_blocks = std::min({cursor, tracked.keys.size(), num_allocated});
    view_keys(tracked.keys, tracked.cursor, num_blocks);
    if (!offloaded_.prepare_store(views_, {request.id}, prepared_)) return;
    if (!prepared_.keys_to_store.empty()) add_store(tracked, request, num_blocks);
    tracked.cursor = cursor;
  }

  /// Stores the prepared blocks of views_, which begin at the cursor.
  void add_store(Tracked& tracked, const ConnectorRequest& request, std::uint32_t num_blocks) {
    touched_.clear();
    for (std::uint32_t index = 0; index < num_blocks; ++index) {
      touched_.push_back(tracked.keys[index]);
    }
    offloaded_.touch(touched_, {request.id});
    TransferJob& store = metadata_.stores.emplace_back();
    store.request = request.id;
    store.spec.is_store = true;
    store.spec.slots = prepared_.slots;
    store.spec.gpu_blocks.reserve(prepared_.slots.size() * block_size_factor_);
    auto to_store = prepared_.keys_to_store.begin();
    for (std::uint32_t index = tracked.cursor;
         index < num_blocks && to_store != prepared_.keys_to_store.end(); ++index) {
      if (tracked.keys[index].data() != to_store->data()) continue;
      ++to_store;
      tracked.pending.push_back(index);
      const auto first = tracked.block_ids.begin() + std::ptrdiff_t{index} * block_size_factor_;
      store.spec.gpu_blocks.insert(store.spec.gpu_blocks.end(), first, first + block_size_factor_);
    }
    store.spec.group_sizes = {static_cast<std::uint32_t>(store.spec.gpu_blocks.size())};
    tracked.has_stored = true;
  }

  std::uint32_t block_size_;            ///< tokens of a GPU block
  std::uint32_t block_size_factor_;     ///< GPU blocks per offloaded block
  std::uint32_t offloaded_block_size_;  ///< tokens
  OffloadKeyShape key_shape_;
  OffloadedBlocks offloaded_;
  std::vector<Tracked> tracked_;  ///< by RequestIndex
  OffloadingConnectorMetadata metadata_;
  std::shared_ptr<const OffloadingConnectorMetadata> empty_metadata_;

  // Storage of single calls, kept for the next one.
  std::vector<OffloadKeyView> views_;
  std::vector<OffloadKeyView> touched_;
  PrepareStoreOutput prepared_;
};

}  // namespace

std::unique_ptr<OffloadingConnectorScheduler> make_holding_connector_scheduler(
    const OffloadingSpec& spec) {
  return std::make_unique<HoldingConnectorScheduler>(spec);
}

}  // namespace kvfence::optimized
