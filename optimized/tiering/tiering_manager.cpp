#include "optimized/tiering/tiering_manager.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "contract/core/check.h"

namespace kvfence::optimized {

namespace {

/// For calls whose arguments were checked before.
void must(ErrorCode code) {
  KVFENCE_CHECK(code == ErrorCode::kNone, "refused by the primary tier");
}

}  // namespace

TieringOffloadingManager::TieringOffloadingManager(const OffloadingManagerConfig& primary,
                                                   std::vector<SecondaryTierHandle> tiers)
    : primary_(primary),
      tiers_(std::move(tiers)),
      queues_(tiers_.size(), {RequestIds(primary.cache.table_secret), {}, 0}),
      request_levels_(primary.cache.table_secret),
      uses_(primary.cache.capacity) {
  queue_order_.reserve(tiers_.size());
}

void TieringOffloadingManager::poll() {
  if (has_polled_) return;
  has_polled_ = true;
  for (std::uint32_t tier = 0; tier < tiers_.size(); ++tier) {
    results_.clear();
    tiers_[tier]->get_finished_jobs(results_);
    for (const JobResult& result : results_) end_job(tier, result);
  }
}

void TieringOffloadingManager::end_job(std::uint32_t tier, const JobResult& result) {
  const std::uint32_t slot = jobs_.find(result.job_id);
  if (slot == jobs_.kNone || jobs_[slot].tier != tier) return;
  const Job& job = jobs_[slot];
  if (job.is_promotion) {
    end_promotion(job, result.success);
  } else {
    must(primary_.complete_load(views_of(job.blocks)));
  }
  jobs_.erase(result.job_id);
}

void TieringOffloadingManager::end_promotion(const Job& job, bool success) {
  for (Index block : job.blocks) use_of(block).is_promoted = false;
  primary_.complete_store(views_of(job.blocks), success);
}

LookupResult TieringOffloadingManager::lookup(OffloadKeyView key, const RequestContext& request) {
  poll();
  LookupResult result = LookupResult::kMiss;
  must(primary_.lookup_key(key, result));
  return result == LookupResult::kMiss ? ask_tiers(key, request) : result;
}

/// For a block that the primary tier does not hold.
LookupResult TieringOffloadingManager::ask_tiers(OffloadKeyView key,
                                                 const RequestContext& request) {
  LookupResult result = LookupResult::kMiss;
  for (std::uint32_t tier = 0; tier < tiers_.size(); ++tier) {
    const LookupResult found = tiers_[tier]->lookup(key, request);
    if (found == LookupResult::kHit) {
      return initiate_promotion(tier, key, request) ? LookupResult::kPending : LookupResult::kMiss;
    }
    if (found != LookupResult::kMiss) result = LookupResult::kPending;
  }
  return result;
}

/// False if no block can be evicted for it.
bool TieringOffloadingManager::initiate_promotion(std::uint32_t tier, OffloadKeyView key,
                                                  const RequestContext& request) {
  bool stored = false;
  must(primary_.prepare_store({&key, 1}, stored, promoted_));
  if (!stored) return false;
  const Index block = policy().find(key);
  use_of(block) = {.is_promoted = true};
  group_of(tier, request.req_id).blocks.push_back(block);
  ++num_pending_;
  return true;
}

/// The group for a new promotion.
auto TieringOffloadingManager::group_of(std::uint32_t tier, std::string_view req_id) -> Group& {
  Queue& queue = queues_[tier];
  const auto id_of = [&](RequestIndex group) -> std::string_view {
    return queue.groups[group].req_id;
  };
  if (queue.num_groups > 0) {
    // Lookups of one request mostly come together.
    Group& last = queue.groups[queue.num_groups - 1];
    if (last.req_id == req_id) return last;
    const auto found = queue.ids.find(req_id, id_of);
    if (found) return queue.groups[*found];
  } else {
    queue_order_.push_back(tier);
  }
  if (queue.num_groups == queue.groups.size()) queue.groups.emplace_back();
  Group& group = queue.groups[queue.num_groups];
  group.req_id = req_id;
  queue.ids.insert(req_id, queue.num_groups);
  ++queue.num_groups;
  return group;
}

void TieringOffloadingManager::touch(std::span<const OffloadKeyView> keys,
                                     const RequestContext& request) {
  primary_.touch(keys);
  for (SecondaryTierHandle& tier : tiers_) tier->touch(keys, request);
}

ErrorCode TieringOffloadingManager::prepare_load(std::span<const OffloadKeyView> keys,
                                                 std::vector<SlotId>& slots) {
  poll();
  const ErrorCode code = primary_.prepare_load(keys, slots);
  if (code != ErrorCode::kNone) return code;
  for (SlotId slot : slots) ++uses_[slot].num_loads;
  return ErrorCode::kNone;
}

ErrorCode TieringOffloadingManager::complete_load(std::span<const OffloadKeyView> keys) {
  slots_.clear();
  for (OffloadKeyView key : keys) {
    const Index block = policy().find(key);
    if (block == CachePolicy::kNone) return ErrorCode::kUnknownKey;
    slots_.push_back(policy().slot(block));
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (uses_[slots_[i]].num_loads > 0) {
      --uses_[slots_[i]].num_loads;
      continue;
    }
    for (SlotId slot : std::span(slots_).first(i)) ++uses_[slot].num_loads;
    return ErrorCode::kNotReading;
  }
  const ErrorCode code = primary_.complete_load(keys);
  must(code);
  return code;
}

ErrorCode TieringOffloadingManager::prepare_store(std::span<const OffloadKeyView> keys,
                                                  const RequestContext& request, bool& stored,
                                                  PrepareStoreOutput& out) {
  poll();
  const ErrorCode code = primary_.prepare_store(keys, stored, out);
  if (code != ErrorCode::kNone || !stored) return code;
  if (const auto wanted = request_levels_.find(request.req_id)) {
    cascade_held(keys, request, request_levels_[*wanted]);
  }
  return ErrorCode::kNone;
}

/// New blocks are not ready, so they do not cascade.
void TieringOffloadingManager::cascade_held(std::span<const OffloadKeyView> keys,
                                            const RequestContext& request,
                                            const RequestLevel& wanted) {
  ready_.clear();
  for (OffloadKeyView key : keys) {
    const Index block = policy().find(key);
    if (policy().ref_cnt(block) != kNotReady) ready_.push_back(key);
  }
  if (ready_.empty()) return;
  for (std::uint32_t tier : wanted.tiers) cascade(tier, ready_, request);
}

void TieringOffloadingManager::cascade(std::uint32_t tier, std::span<const OffloadKeyView> keys,
                                       const RequestContext& request) {
  must(primary_.prepare_load(keys, slots_));
  const TierJobId id = next_job_id_++;
  Job& job = jobs_[jobs_.insert(id)];
  job.tier = tier;
  job.is_promotion = false;
  job.req_id = request.req_id;
  job.blocks.clear();
  for (OffloadKeyView key : keys) job.blocks.push_back(policy().find(key));
  tiers_[tier]->submit_store({id, keys, slots_, request});
}

ErrorCode TieringOffloadingManager::complete_store(std::span<const OffloadKeyView> keys,
                                                   const RequestContext& request, bool success) {
  bool any_promoted = false;
  for (OffloadKeyView key : keys) {
    const Index block = policy().find(key);
    if (block != CachePolicy::kNone) {
      any_promoted |= use_of(block).is_promoted;
    } else if (success) {
      return ErrorCode::kUnknownKey;
    }
  }
  if (any_promoted) return ErrorCode::kNotReady;

  primary_.complete_store(keys, success);
  if (!success) return ErrorCode::kNone;
  for (std::uint32_t tier = 0; tier < tiers_.size(); ++tier) cascade(tier, keys, request);
  return ErrorCode::kNone;
}

OffloadPolicy TieringOffloadingManager::on_new_request(const RequestContext& request) {
  for (std::uint32_t tier = 0; tier < tiers_.size(); ++tier) {
    if (tiers_[tier]->on_new_request(request) != OffloadPolicy::kRequestLevel) continue;
    add_request_level(request.req_id, tier);
  }
  return request_levels_.find(request.req_id) ? OffloadPolicy::kRequestLevel
                                              : OffloadPolicy::kBlockLevel;
}

void TieringOffloadingManager::on_request_finished(const RequestContext& request) {
  for (SecondaryTierHandle& tier : tiers_) tier->on_request_finished(request);
  forget_request_level(request.req_id);
}

void TieringOffloadingManager::on_schedule_end() {
  poll();
  has_polled_ = false;
  submit_promotions();
  for (SecondaryTierHandle& tier : tiers_) tier->on_schedule_end();
}

void TieringOffloadingManager::submit_promotions() {
  for (std::uint32_t tier : queue_order_) {
    Queue& queue = queues_[tier];
    for (std::uint32_t at = 0; at < queue.num_groups; ++at) {
      Group& group = queue.groups[at];
      queue.ids.erase(group.req_id, at);
      submit_group(tier, group);
    }
    queue.num_groups = 0;
  }
  queue_order_.clear();
  num_pending_ = 0;
}

/// Empties the group.
void TieringOffloadingManager::submit_group(std::uint32_t tier, Group& group) {
  const TierJobId id = next_job_id_++;
  Job& job = jobs_[jobs_.insert(id)];
  job.tier = tier;
  job.is_promotion = true;
  std::swap(job.req_id, group.req_id);
  std::swap(job.blocks, group.blocks);
  group.blocks.clear();
  slots_.clear();
  for (Index block : job.blocks) slots_.push_back(policy().slot(block));
  tiers_[tier]->submit_load({id, views_of(job.blocks), slots_, {job.req_id}});
}

/// Valid until the next call, while the blocks stay or nothing is inserted.
std::span<const OffloadKeyView> TieringOffloadingManager::views_of(std::span<const Index> blocks) {
  views_.clear();
  for (Index block : blocks) views_.push_back(policy().key_of(block));
  return views_;
}

void TieringOffloadingManager::add_request_level(std::string_view req_id, std::uint32_t tier) {
  auto at = request_levels_.find(req_id);
  if (!at) at = request_levels_.insert(req_id);
  std::vector<std::uint32_t>& tiers = request_levels_[*at].tiers;
  const auto place = std::lower_bound(tiers.begin(), tiers.end(), tier);
  if (place == tiers.end() || *place != tier) tiers.insert(place, tier);
}

void TieringOffloadingManager::forget_request_level(std::string_view req_id) {
  const auto found = request_levels_.find(req_id);
  if (!found) return;
  request_levels_[*found].tiers.clear();
  request_levels_.erase(*found);
}

TierTransferState TieringOffloadingManager::shown(std::optional<TierJobId> id, std::uint32_t tier,
                                                  bool is_promotion, const std::string& req_id,
                                                  std::span<const Index> blocks) const {
  TierTransferState state{id, tier, is_promotion, req_id, {}, {}};
  for (Index block : blocks) {
    state.keys.emplace_back(policy().key_of(block));
    state.slots.push_back(policy().slot(block));
  }
  return state;
}

void TieringOffloadingManager::jobs(std::vector<TierTransferState>& out) const {
  out.clear();
  jobs_.for_each([&](TierJobId id, const Job& job) {
    out.push_back(shown(id, job.tier, job.is_promotion, job.req_id, job.blocks));
  });
  std::ranges::sort(out, {}, &TierTransferState::id);
}

void TieringOffloadingManager::add_to(StateHash& hash) const {
  std::vector<TierTransferState> job_states;
  jobs(job_states);
  std::vector<TierTransferState> pending_states;
  pending(pending_states);
  hash.add_all(primary_, tiers_, next_job_id_, job_states, pending_states, has_polled_);
  for (const SlotUse& use : uses_) hash.add_all(use.num_loads, use.is_promoted);
  StateHash wanted;
  for (std::uint32_t slot = 0; slot < request_levels_.size(); ++slot) {
    const RequestLevel& level = request_levels_[slot];
    if (level.tiers.empty()) continue;
    StateHash one;
    one.add_all(level.id, level.tiers);
    wanted.add_unordered(one);
  }
  hash.add(wanted);
}

void TieringOffloadingManager::pending(std::vector<TierTransferState>& out) const {
  out.clear();
  for (std::uint32_t tier : queue_order_) {
    const Queue& queue = queues_[tier];
    for (const Group& group : std::span(queue.groups).first(queue.num_groups)) {
      out.push_back(shown(std::nullopt, tier, /*is_promotion=*/true, group.req_id, group.blocks));
    }
  }
}

}  // namespace kvfence::optimized
