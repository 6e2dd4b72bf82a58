#include "optimized/connectors/simple/simple_cpu_offload_scheduler.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "contract/core/check.h"

namespace kvfence::optimized {
namespace {

using Bug = PlantedSimpleOffloadBug;

std::uint32_t ceil_div(std::uint32_t dividend, std::uint32_t divisor) {
  return dividend / divisor + (dividend % divisor != 0 ? 1 : 0);
}

/// Free blocks that the lazy walk looks at in a step: twice what a step may take of a group.
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
  const auto found = std::find_if(groups.begin(), groups.end(), [](const KVCacheSpec& spec) {
    return spec.kind == KVCacheSpecKind::kFullAttention;
  });
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

}  // namespace

template <class Instrumentation>
BasicSimpleCPUOffloadScheduler<Instrumentation>::BasicSimpleCPUOffloadScheduler(
    const SimpleCPUOffloadSpec& spec, Instrumentation instrumentation)
    : instrumentation_(instrumentation),
      rules_(checked(spec).kv_cache.pool.rules),
      lazy_offload_(spec.lazy_offload),
      num_workers_(spec.num_workers),
      scheduler_block_size_(spec.kv_cache.scheduler_block_size()),
      groups_(spec.kv_cache.groups),
      reference_group_(first_full_attention(groups_)),
      num_blocks_to_walk_(num_blocks_to_walk(spec.kv_cache)),
      cpu_(cpu_kv_cache_config(spec)),
      last_store_of_block_(spec.lazy_offload ? 0 : spec.kv_cache.pool.num_gpu_blocks),
      nothing_to_tell_(std::make_shared<SimpleCPUOffloadMetadata>()) {}

// ---- What an observer reads ----

template <class Instrumentation>
void BasicSimpleCPUOffloadScheduler<Instrumentation>::cpu_pool(CpuPoolState& out) const {
  const Pool& pool = cpu_pool();
  const std::uint32_t num_blocks = pool.config().num_gpu_blocks;
  pool.get_all_free_blocks(out.free_queue);
  out.ref_cnts.resize(num_blocks);
  out.keys.resize(num_blocks);
  for (BlockId block = 0; block < num_blocks; ++block) {
    out.ref_cnts[block] = pool.ref_cnt(block);
    out.keys[block] = pool.block_key(block);
  }
}

template <class Instrumentation>
void BasicSimpleCPUOffloadScheduler<Instrumentation>::pinned_hits(
    std::vector<PinnedHit>& out) const {
  out.resize(pinning_.size());
  auto hit = out.begin();
  for (RequestIndex request = pinning_.front(); request != kNoRequest;
       request = pinning_.next(request), ++hit) {
    hit->request = request;
    hit->cpu_blocks = tracked_[request].pinned;
  }
}

// ---- Requests ----

template <class Instrumentation>
typename BasicSimpleCPUOffloadScheduler<Instrumentation>::Tracked&
BasicSimpleCPUOffloadScheduler<Instrumentation>::track(RequestIndex request) {
  if (request >= tracked_.size()) tracked_.resize(std::size_t{request} + 1);
  return tracked_[request];
}

template <class Instrumentation>
void BasicSimpleCPUOffloadScheduler<Instrumentation>::forget_blocks(Tracked& tracked) const {
  tracked.tables.resize(groups_.size());
  for (Table& table : tracked.tables) {
    table.block_ids.clear();
    table.place = 0;
  }
}

template <class Instrumentation>
bool BasicSimpleCPUOffloadScheduler<Instrumentation>::request_finished(
    ConnectorHost& host, const ConnectorRequest& request, const BlocksByGroup&) {
  Tracked* const tracked = find_tracked(request.index);
  if (!tracked) return false;
  if (!planted(Bug::kFinishedStaysKnown)) tracked->is_known = false;
  if (pinning_.contains(request.index)) {
    unpin(request.index, *tracked);
    if (!planted(Bug::kPinLeaksAtFinish)) free_pinned(*tracked);
  }
  const bool is_untold = untold_.contains(request.index);
  if (is_untold) untold_.erase(request.index);
  if (is_untold || planted(Bug::kLoadFreedAtFinish)) end_load(gpu_pool_of(host), *tracked);
  return false;
}

// ---- Loads ----

template <class Instrumentation>
void BasicSimpleCPUOffloadScheduler<Instrumentation>::pin(RequestIndex request, Tracked& tracked) {
  tracked.pinned.clear();
  for (const std::vector<BlockId>& blocks : tracked.hit) {
    std::copy_if(blocks.begin(), blocks.end(), std::back_inserter(tracked.pinned),
                 [](BlockId block) { return block != kNullBlockId; });
  }
  take(cpu_pool().touch(tracked.pinned));
  pinning_.push_back(request);
}

/// The blocks stay held.
template <class Instrumentation>
void BasicSimpleCPUOffloadScheduler<Instrumentation>::unpin(RequestIndex request,
                                                            Tracked& tracked) {
  instrumentation_.on_table_entries(tracked.pinned.size());
  pinning_.erase(request);
}

template <class Instrumentation>
void BasicSimpleCPUOffloadScheduler<Instrumentation>::free_pinned(const Tracked& tracked) {
  take(cpu_pool().free_blocks(tracked.pinned));
}

template <class Instrumentation>
MatchedTokens BasicSimpleCPUOffloadScheduler<Instrumentation>::get_num_new_matched_tokens(
    const ConnectorRequest& request, std::uint32_t num_local_tokens) {
  Tracked& tracked = track(request.index);
  if (pinning_.contains(request.index)) {
    unpin(request.index, tracked);
    if (!planted(Bug::kStalePinKept)) free_pinned(tracked);
  }
  const auto num_tokens = static_cast<std::uint32_t>(request.request.all_token_ids().size());
  const std::uint32_t num_left = planted(Bug::kLastTokenNotLeft) ? 0 : 1;
  if (num_tokens <= num_local_tokens + num_left) return {0, false};
  const bool pins = rules_.simple_offload_pins_hits;
  const std::uint32_t num_found = cpu_.find_longest_cache_hit(
      request.request, num_tokens - num_left - num_local_tokens, pins ? tracked.hit : hit_,
      planted(Bug::kLocalHitIgnored) ? 0 : num_local_tokens);
  if (num_found == 0) return {0, false};
  if (pins) pin(request.index, tracked);
  return {num_found, true};
}

template <class Instrumentation>
void BasicSimpleCPUOffloadScheduler<Instrumentation>::update_state_after_alloc(
    ConnectorHost& host, const ConnectorRequest& request, const BlocksByGroup& blocks,
    std::uint32_t num_external_tokens) {
  Tracked& tracked = track(request.index);
  if (!lazy_offload_ && !tracked.is_known) {
    forget_blocks(tracked);
    tracked.is_known = true;
  }
  const bool was_pinned = pinning_.contains(request.index);
  if (was_pinned) unpin(request.index, tracked);
  if (num_external_tokens == 0) {
    if (was_pinned) free_pinned(tracked);
    return;
  }
  KVFENCE_CHECK(Instrumentation::kPlants || !tracked.is_loading,
                "a second load of a request while one is under way");
  const std::vector<BlockId>& reference_blocks = blocks[reference_group_];
  const auto num_cached = static_cast<std::uint32_t>(
      std::count_if(reference_blocks.begin(), reference_blocks.end(),
                    [&host](BlockId block) { return host.is_cached(block); }));
  instrumentation_.on_table_entries(reference_blocks.size());
  const std::uint32_t num_local_tokens = groups_[reference_group_].block_size * num_cached;
  if (!rules_.simple_offload_pins_hits) {
    cpu_.find_longest_cache_hit(request.request, num_external_tokens, hit_,
                                planted(Bug::kLocalHitIgnored) ? 0 : num_local_tokens);
  }
  gather_load(tracked, rules_.simple_offload_pins_hits ? tracked.hit : hit_, blocks,
              num_local_tokens, num_external_tokens);
  if (!planted(Bug::kLoadSourceNotTouched)) take(cpu_pool().touch(tracked.load_cpu_blocks));
  if (was_pinned && !planted(Bug::kPinKeptByLoad)) free_pinned(tracked);
  if (!planted(Bug::kLoadTargetNotTouched)) gpu_pool_of(host).touch(tracked.load_gpu_blocks);
  tracked.is_loading = true;
  if (!untold_.contains(request.index)) untold_.push_back(request.index);
}

template <class Instrumentation>
void BasicSimpleCPUOffloadScheduler<Instrumentation>::gather_load(
    Tracked& tracked, const BlocksByGroup& hit, const BlocksByGroup& blocks,
    std::uint32_t num_local_tokens, std::uint32_t num_external_tokens) {
  tracked.load_gpu_blocks.clear();
  tracked.load_cpu_blocks.clear();
  for (GroupId group = 0; group < num_groups(); ++group) {
    const std::uint32_t block_size = groups_[group].block_size;
    const std::vector<BlockId>& table = blocks[group];
    const std::size_t num_hit =
        std::min<std::size_t>(num_external_tokens / block_size, hit[group].size());
    const std::size_t end = ceil_div(num_local_tokens + num_external_tokens, block_size);
    const std::size_t begin = planted(Bug::kLoadIntoTableStart) ? 0 : end - num_hit;
    KVFENCE_CHECK(Instrumentation::kPlants || (num_hit <= end && end <= table.size()),
                  "a load of more than the request has blocks for");
    instrumentation_.on_table_entries(num_hit);
    for (std::size_t index = 0; index < num_hit && begin + index < table.size(); ++index) {
      const BlockId cpu_block = hit[group][index];
      if (cpu_block == kNullBlockId && !planted(Bug::kNullBlockLoaded)) continue;
      tracked.load_gpu_blocks.push_back(table[begin + index]);
      tracked.load_cpu_blocks.push_back(cpu_block);
    }
  }
}

template <class Instrumentation>
void BasicSimpleCPUOffloadScheduler<Instrumentation>::end_load(GpuBlockPool& gpu_pool,
                                                               Tracked& tracked) {
  if (!std::exchange(tracked.is_loading, false)) return;
  instrumentation_.on_table_entries(tracked.load_gpu_blocks.size());
  if (!planted(Bug::kLoadSourceNotTouched)) take(cpu_pool().free_blocks(tracked.load_cpu_blocks));
  if (!planted(Bug::kLoadTargetNotTouched)) gpu_pool.free_blocks(tracked.load_gpu_blocks);
}

template <class Instrumentation>
void BasicSimpleCPUOffloadScheduler<Instrumentation>::tell_loads(ConnectorHost& host) {
  if (untold_.empty()) return;
  metadata_.load_event = next_load_event_++;
  const bool keeps = planted(Bug::kUntoldLoadToldTwice) && next_load_event_ % 2 == 1;
  for (RequestIndex request = untold_.front(); request != kNoRequest;) {
    const Tracked& tracked = tracked_[request];
    instrumentation_.on_requests(1);
    instrumentation_.on_table_entries(tracked.load_gpu_blocks.size());
    metadata_.load_gpu_blocks.insert(metadata_.load_gpu_blocks.end(),
                                     tracked.load_gpu_blocks.begin(),
                                     tracked.load_gpu_blocks.end());
    metadata_.load_cpu_blocks.insert(metadata_.load_cpu_blocks.end(),
                                     tracked.load_cpu_blocks.begin(),
                                     tracked.load_cpu_blocks.end());
    metadata_.load_requests.emplace_back(host.request(request).id);
    const RequestIndex next = untold_.next(request);
    if (!keeps) untold_.erase(request);
    request = next;
  }
}

// ---- Stores ----

template <class Instrumentation>
void BasicSimpleCPUOffloadScheduler<Instrumentation>::plan(BlockId block, std::string_view key) {
  planned_.gpu_blocks.push_back(block);
  planned_.keys.append(key);
  planned_.keys.end_list();
}

/// Whether a CPU block is free that nothing planned is going to take.
template <class Instrumentation>
bool BasicSimpleCPUOffloadScheduler<Instrumentation>::has_space_left() const {
  return planned_.gpu_blocks.size() - num_taken_ < cpu_pool().get_num_free_blocks();
}

/// CPU blocks for what was planned since the last call.
template <class Instrumentation>
void BasicSimpleCPUOffloadScheduler<Instrumentation>::take_planned(GpuBlockPool& gpu_pool) {
  const std::size_t first = std::exchange(num_taken_, planned_.gpu_blocks.size());
  if (first == num_taken_) return;
  planned_.cpu_blocks.resize(num_taken_);
  take(cpu_pool().get_new_blocks(std::span(planned_.cpu_blocks).subspan(first)));
  if (!planted(Bug::kStoreSourceNotTouched)) {
    gpu_pool.touch(std::span(planned_.gpu_blocks).subspan(first));
  }
  for (std::size_t index = first; planted(Bug::kFindableAtPlanning) && index < num_taken_;
       ++index) {
    const std::span<const char> key = planned_.keys[index];
    take(cpu_pool().cache_block(planned_.cpu_blocks[index], {key.data(), key.size()}));
  }
}

template <class Instrumentation>
void BasicSimpleCPUOffloadScheduler<Instrumentation>::plan_eager_stores(
    ConnectorHost& host, const SchedulerOutput& output) {
  GpuBlockPool& gpu_pool = gpu_pool_of(host);
  const auto plan_request = [&](RequestIndex index, bool is_resumed, std::uint32_t first_list) {
    instrumentation_.on_requests(1);
    Tracked* const tracked = find_tracked(index);
    if (!tracked || !tracked->is_known) return;
    if (is_resumed && !planted(Bug::kResumeKeepsIds)) forget_blocks(*tracked);
    append_block_ids(*tracked, output, first_list);
    const ConnectorRequest request = host.request(index);
    plan_stores_of(gpu_pool, request.request, *tracked, num_storable_tokens(host, request, output));
    take_planned(gpu_pool);
  };
  for (const SchedulerOutput::New& entry : output.scheduled_new_reqs) {
    plan_request(entry.request, /*is_resumed=*/false, entry.first_list);
  }
  for (const SchedulerOutput::Cached& entry : output.scheduled_cached_reqs) {
    plan_request(entry.request, entry.resumed, entry.first_list);
  }
}

template <class Instrumentation>
void BasicSimpleCPUOffloadScheduler<Instrumentation>::append_block_ids(
    Tracked& tracked, const SchedulerOutput& output, std::uint32_t first_list) {
  if (first_list == SchedulerOutput::kNoLists) return;
  for (GroupId group = 0; group < num_groups(); ++group) {
    const std::span<const BlockId> blocks = output.block_lists[first_list + group];
    instrumentation_.on_table_entries(blocks.size());
    std::vector<BlockId>& ids = tracked.tables[group].block_ids;
    ids.insert(ids.end(), blocks.begin(), blocks.end());
  }
}

template <class Instrumentation>
std::uint32_t BasicSimpleCPUOffloadScheduler<Instrumentation>::num_storable_tokens(
    const ConnectorHost& host, const ConnectorRequest& request,
    const SchedulerOutput& output) const {
  const std::uint32_t num_placeholders =
      planted(Bug::kPlaceholdersCounted) ? 0 : host.num_output_placeholders(request.index);
  std::uint32_t num_tokens =
      request.num_computed_tokens - std::min(request.num_computed_tokens, num_placeholders);
  if (planted(Bug::kStepTokensStored)) {
    for (const SchedulerOutput::Scheduled& scheduled : output.scheduled) {
      if (scheduled.request == request.index) num_tokens += scheduled.num_tokens;
    }
  }
  if (rules_.simple_offload_aligns_stores && !planted(Bug::kStoresNotAligned)) {
    num_tokens -= num_tokens % scheduler_block_size_;
  }
  return num_tokens;
}

template <class Instrumentation>
void BasicSimpleCPUOffloadScheduler<Instrumentation>::plan_stores_of(GpuBlockPool& gpu_pool,
                                                                     const Request& request,
                                                                     Tracked& tracked,
                                                                     std::uint32_t num_tokens) {
  for (GroupId group = 0; group < num_groups(); ++group) {
    Table& table = tracked.tables[group];
    const BlockHashListView hashes = request.block_hashes(groups_[group].block_size);
    const std::size_t end = std::min({std::size_t{num_tokens / groups_[group].block_size},
                                      table.block_ids.size(), hashes.size()});
    for (; table.place < end; ++table.place) {
      instrumentation_.on_table_entries(1);
      const Turn turn =
          plan_block(gpu_pool, table.block_ids[table.place], hashes[table.place], group);
      if (turn == Turn::kEndsGroup) break;
      if (turn == Turn::kEndsRequest && !planted(Bug::kFullMovesPlace)) return;
    }
  }
}

template <class Instrumentation>
typename BasicSimpleCPUOffloadScheduler<Instrumentation>::Turn
BasicSimpleCPUOffloadScheduler<Instrumentation>::plan_block(const GpuBlockPool& gpu_pool,
                                                            BlockId block, BlockHashView hash,
                                                            GroupId group) {
  if (block == kNullBlockId) return Turn::kPassedOver;
  const std::string_view key = gpu_pool.block_key(block);
  if (key.empty()) {
    const bool passes =
        rules_.simple_offload_skips_unhashed_blocks && !planted(Bug::kUnhashedBlockEndsGroup);
    return passes ? Turn::kPassedOver : Turn::kEndsGroup;
  }
  if (!is_key_of(key, hash, group) && !planted(Bug::kStaleWindowIdStored)) {
    return Turn::kPassedOver;
  }
  JobId& last_store = last_store_of_block_[block];
  if (last_store == next_store_event_ + 1) return Turn::kPassedOver;
  const bool skips_under_way =
      rules_.simple_offload_skips_stores_under_way && !planted(Bug::kStoreUnderWayRepeated);
  if (skips_under_way && last_store != 0 && stores_.find(last_store - 1)) return Turn::kPassedOver;
  if (cpu_pool().has_key(key) && !planted(Bug::kStoredAgain)) return Turn::kPassedOver;
  if (!has_space_left()) return Turn::kEndsRequest;
  plan(block, key);
  last_store = next_store_event_ + 1;
  return Turn::kPlanned;
}

template <class Instrumentation>
void BasicSimpleCPUOffloadScheduler<Instrumentation>::plan_lazy_stores(GpuBlockPool& gpu_pool) {
  if (cursor_ && !gpu_pool.is_free(*cursor_)) {
    if (planted(Bug::kCursorNotForgotten)) return;
    cursor_.reset();
  }
  std::uint32_t num_left = num_blocks_to_walk_;
  if (planted(Bug::kWalkBeyondTarget)) num_left = 0xFFFF'FFFF;
  for (; num_left > 0; --num_left) {
    const bool has_space = has_space_left();
    if (!has_space && !planted(Bug::kWalkBeyondSpace)) break;
    const std::optional<BlockId> block = gpu_pool.next_free_block(cursor_);
    if (!block) break;
    instrumentation_.on_links(1);
    cursor_ = block;
    const std::string_view key = gpu_pool.block_key(*block);
    if (!has_space || key.empty()) continue;
    if (!cpu_pool().has_key(key) || planted(Bug::kStoredAgain)) plan(*block, key);
  }
  take_planned(gpu_pool);
}

template <class Instrumentation>
void BasicSimpleCPUOffloadScheduler<Instrumentation>::tell_stores() {
  if (planned_.gpu_blocks.empty()) return;
  metadata_.store_event = next_store_event_;
  metadata_.store_gpu_blocks = planned_.gpu_blocks;
  metadata_.store_cpu_blocks = planned_.cpu_blocks;
  // What an event that is over has left behind is the storage of the next plan.
  std::swap(planned_, stores_.insert(next_store_event_));
  planned_.num_reports = 0;
  planned_.gpu_blocks.clear();
  planned_.cpu_blocks.clear();
  planned_.keys.clear();
  num_taken_ = 0;
  ++next_store_event_;
}

template <class Instrumentation>
void BasicSimpleCPUOffloadScheduler<Instrumentation>::complete(GpuBlockPool& gpu_pool,
                                                               const Store& store) {
  instrumentation_.on_table_entries(store.gpu_blocks.size());
  if (!planted(Bug::kNeverFindable) && !planted(Bug::kFindableAtPlanning)) {
    for (std::size_t index = 0; index < store.cpu_blocks.size(); ++index) {
      const std::span<const char> key = store.keys[index];
      take(cpu_pool().cache_block(store.cpu_blocks[index], {key.data(), key.size()}));
    }
  }
  const bool to_head =
      planted(Bug::kStoredFreedToHead) && cpu_pool().config().rules.free_blocks_prepend;
  take(cpu_pool().free_blocks(store.cpu_blocks, to_head ? FreeTo::kHead : FreeTo::kTail));
  if (!planted(Bug::kStoreSourceNotTouched)) gpu_pool.free_blocks(store.gpu_blocks);
}

// ---- A step, and what came of it ----

template <class Instrumentation>
std::shared_ptr<const KVConnectorMetadata>
BasicSimpleCPUOffloadScheduler<Instrumentation>::build_connector_meta(
    ConnectorHost& host, const SchedulerOutput& output) {
  if (lazy_offload_) {
    plan_lazy_stores(gpu_pool_of(host));
  } else {
    plan_eager_stores(host, output);
  }
  tell_stores();
  tell_loads(host);
  metadata_.need_flush = !output.preempted.empty() && !planted(Bug::kFlushNotTold);
  if (!metadata_.load_event && !metadata_.store_event && !metadata_.need_flush) {
    return nothing_to_tell_;
  }
  return std::make_shared<SimpleCPUOffloadMetadata>(std::exchange(metadata_, {}));
}

template <class Instrumentation>
void BasicSimpleCPUOffloadScheduler<Instrumentation>::update_connector_output(
    ConnectorHost& host, const KVConnectorOutput& output) {
  GpuBlockPool& gpu_pool = gpu_pool_of(host);
  for (RequestIndex request : output.finished_recving) {
    if (Tracked* const tracked = find_tracked(request)) end_load(gpu_pool, *tracked);
  }
  for (const CompletedJob& completed : output.completed_jobs) {
    Store* const store = stores_.find(completed.job);
    KVFENCE_CHECK(Instrumentation::kPlants || store, "a report of a store that is not under way");
    if (!store) continue;
    store->num_reports += completed.num_workers;
    if (store->num_reports < num_workers_ && !planted(Bug::kStoreDoneAtFirstWorker)) continue;
    complete(gpu_pool, *store);
    store->num_reports = 0;
    stores_.erase(completed.job);
  }
}

template class BasicSimpleCPUOffloadScheduler<NoInstrumentation>;
template class BasicSimpleCPUOffloadScheduler<CountingInstrumentation>;
template class BasicSimpleCPUOffloadScheduler<PlantedInstrumentation>;

std::unique_ptr<SimpleCPUOffloadScheduler> make_simple_cpu_offload_scheduler(
    const SimpleCPUOffloadSpec& spec) {
  return std::make_unique<BasicSimpleCPUOffloadScheduler<NoInstrumentation>>(spec);
}

std::unique_ptr<SimpleCPUOffloadScheduler> make_planted_simple_cpu_offload_scheduler(
    const SimpleCPUOffloadSpec& spec, PlantedInstrumentation instrumentation) {
  return std::make_unique<BasicSimpleCPUOffloadScheduler<PlantedInstrumentation>>(spec,
                                                                                  instrumentation);
}

}  // namespace kvfence::optimized
