#include "optimized/tiering/tiering_manager.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "contract/core/check.h"

namespace kvfence::optimized {

using Bug = PlantedTieringBug;

template <class Instrumentation>
BasicTieringOffloadingManager<Instrumentation>::BasicTieringOffloadingManager(
    const OffloadingManagerConfig& primary, std::vector<SecondaryTierHandle> tiers,
    Instrumentation instrumentation)
    : instrumentation_(instrumentation),
      primary_(primary),
      tiers_(std::move(tiers)),
      queues_(tiers_.size()),
      uses_(primary.cache.capacity) {
  queue_order_.reserve(tiers_.size());
}

template <class Instrumentation>
void BasicTieringOffloadingManager<Instrumentation>::poll() {
  if (has_polled_) return;
  has_polled_ = true;
  for (std::uint32_t tier = 0; tier < tiers_.size(); ++tier) {
    results_.clear();
    instrumentation_.on_table_entries(1);
    tiers_[tier].get_finished_jobs(results_);
    for (const JobResult& result : results_) end_job(tier, result);
  }
}

template <class Instrumentation>
void BasicTieringOffloadingManager<Instrumentation>::end_job(std::uint32_t tier,
                                                             const JobResult& result) {
  const Job* const job = jobs_.find(result.job_id);
  if (job == nullptr) return;
  instrumentation_.on_table_entries(1 + job->blocks.size());
  if (job->tier != tier && !planted(Bug::kResultOfAnotherTierTaken)) return;
  if (job->is_promotion) {
    end_promotion(*job, result.success);
  } else if (!planted(Bug::kCascadeNotPinned) &&
             (result.success || !planted(Bug::kFailedCascadeStaysPinned))) {
    must(primary_.complete_load(views_of(job->blocks)));
  }
  jobs_.erase(result.job_id);
}

template <class Instrumentation>
void BasicTieringOffloadingManager<Instrumentation>::end_promotion(const Job& job, bool success) {
  if (!success && planted(Bug::kFailedPromotionStaysPending)) return;
  for (Index block : job.blocks) use_of(block).is_promoted = false;
  const bool hides_failure =
      planted(Bug::kFailedPromotionIsReady) || planted(PlantedConnectorBug::kFailedPromotionServed);
  if (hides_failure) success = true;
  primary_.complete_store(views_of(job.blocks), success);
  if (success && planted(Bug::kUnreadPromotionHeld)) hold_unread(job);
}

template <class Instrumentation>
LookupResult BasicTieringOffloadingManager<Instrumentation>::lookup(OffloadKeyView key,
                                                                    const RequestContext& request) {
  LookupResult result = LookupResult::kMiss;
  if (planted(Bug::kLookupBeforePoll)) must(primary_.lookup_key(key, result));
  poll();
  if (!planted(Bug::kLookupBeforePoll)) must(primary_.lookup_key(key, result));
  return result == LookupResult::kMiss ? ask_tiers(key, request) : result;
}

/// For a block that the primary tier does not hold.
template <class Instrumentation>
LookupResult BasicTieringOffloadingManager<Instrumentation>::ask_tiers(
    OffloadKeyView key, const RequestContext& request) {
  LookupResult result = LookupResult::kMiss;
  for (std::uint32_t tier = 0; tier < tiers_.size(); ++tier) {
    instrumentation_.on_table_entries(1);
    const LookupResult found = tiers_[tier].lookup(key, request);
    if (found == LookupResult::kHit) {
      const bool asks_again = initiate_promotion(tier, key, request) ||
                              planted(Bug::kFullPrimaryAsksAgain) ||
                              planted(PlantedConnectorBug::kFullCacheAsksAgain);
      return asks_again ? LookupResult::kPending : LookupResult::kMiss;
    }
    if (found == LookupResult::kMiss) continue;
    result = LookupResult::kPending;
    if (planted(Bug::kAgainEndsTheSearch)) break;
  }
  return result;
}

/// False if nothing can go for the block.
template <class Instrumentation>
bool BasicTieringOffloadingManager<Instrumentation>::initiate_promotion(
    std::uint32_t tier, OffloadKeyView key, const RequestContext& request) {
  bool stored = false;
  must(primary_.prepare_store({&key, 1}, stored, promoted_));
  if (!stored) return false;
  const Index block = policy().find(key);
  use_of(block) = {.is_promoted = true};
  group_of(tier, request.req_id).blocks.push_back(block);
  ++num_pending_;
  return true;
}

/// The one to which a promotion is to be added.
template <class Instrumentation>
auto BasicTieringOffloadingManager<Instrumentation>::group_of(std::uint32_t tier,
                                                              std::string_view req_id) -> Group& {
  Queue& queue = queues_[tier];
  const auto id_of = [&](RequestIndex group) -> std::string_view {
    instrumentation_.on_requests(1);
    return queue.groups[group].req_id;
  };
  if (queue.num_groups > 0) {
    // Lookups of a request mostly come together.
    Group& last = queue.groups[queue.num_groups - 1];
    if (planted(Bug::kPromotionsOfAllRequestsMerged)) return last;
    if (last.req_id == req_id && !planted(Bug::kPromotionsNotGrouped)) return last;
    const auto found = queue.ids.find(req_id, id_of);
    if (found && !planted(Bug::kPromotionsNotGrouped)) return queue.groups[*found];
  } else {
    queue_order_.push_back(tier);
  }
  if (queue.num_groups == queue.groups.size()) queue.groups.emplace_back();
  Group& group = queue.groups[queue.num_groups];
  group.req_id = req_id;
  if (!planted(Bug::kPromotionsNotGrouped)) queue.ids.insert(req_id, queue.num_groups);
  ++queue.num_groups;
  return group;
}

template <class Instrumentation>
void BasicTieringOffloadingManager<Instrumentation>::touch(std::span<const OffloadKeyView> keys,
                                                           const RequestContext& request) {
  primary_.touch(keys);
  if (planted(Bug::kTouchStaysInPrimary)) return;
  for (SecondaryTierHandle& tier : tiers_) tier.touch(keys, request);
}

template <class Instrumentation>
ErrorCode BasicTieringOffloadingManager<Instrumentation>::prepare_load(
    std::span<const OffloadKeyView> keys, std::vector<SlotId>& slots) {
  poll();
  const ErrorCode code = primary_.prepare_load(keys, slots);
  if (code != ErrorCode::kNone) return code;
  instrumentation_.on_table_entries(slots.size());
  for (SlotId slot : slots) ++uses_[slot].num_loads;
  if (planted(Bug::kUnreadPromotionHeld)) release_unread(keys);
  return ErrorCode::kNone;
}

template <class Instrumentation>
ErrorCode BasicTieringOffloadingManager<Instrumentation>::complete_load(
    std::span<const OffloadKeyView> keys) {
  slots_.clear();
  instrumentation_.on_table_entries(keys.size());
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
    if (planted(Bug::kLoadReleasesCascade)) continue;
    for (SlotId slot : std::span(slots_).first(i)) ++uses_[slot].num_loads;
    return ErrorCode::kNotReading;
  }
  const ErrorCode code = primary_.complete_load(keys);
  must(code);
  return code;
}

template <class Instrumentation>
ErrorCode BasicTieringOffloadingManager<Instrumentation>::prepare_store(
    std::span<const OffloadKeyView> keys, const RequestContext& request, bool& stored,
    PrepareStoreOutput& out) {
  poll();
  const ErrorCode code = primary_.prepare_store(keys, stored, out);
  if (code != ErrorCode::kNone || !stored) return code;
  if (const RequestLevel* wanted = find_request_level(request.req_id)) {
    cascade_held(keys, request, *wanted);
  }
  return ErrorCode::kNone;
}

/// What is new is not ready.
template <class Instrumentation>
void BasicTieringOffloadingManager<Instrumentation>::cascade_held(
    std::span<const OffloadKeyView> keys, const RequestContext& request,
    const RequestLevel& wanted) {
  ready_.clear();
  bool any_pending = false;
  for (OffloadKeyView key : keys) {
    const Index block = policy().find(key);
    if constexpr (Instrumentation::kPlants) {
      if (block == CachePolicy::kNone) continue;
    }
    if (policy().ref_cnt(block) == kNotReady) {
      any_pending = true;
    } else {
      ready_.push_back(key);
    }
  }
  if (ready_.empty()) return;
  if (any_pending && planted(Bug::kPendingKeyStopsRequestLevel)) return;
  for (std::uint32_t tier : wanted.tiers) cascade(tier, ready_, request);
}

template <class Instrumentation>
void BasicTieringOffloadingManager<Instrumentation>::cascade(std::uint32_t tier,
                                                             std::span<const OffloadKeyView> keys,
                                                             const RequestContext& request) {
  const ErrorCode code = primary_.prepare_load(keys, slots_);
  must(code);
  if (code != ErrorCode::kNone) return;
  if (planted(Bug::kCascadeNotPinned)) must(primary_.complete_load(keys));
  const TierJobId id = next_job_id_++;
  Job& job = jobs_.insert(id);
  job.tier = tier;
  job.is_promotion = false;
  job.req_id = request.req_id;
  job.blocks.clear();
  for (OffloadKeyView key : keys) job.blocks.push_back(policy().find(key));
  instrumentation_.on_table_entries(1 + keys.size());
  tiers_[tier].submit_store({id, keys, slots_, request});
}

template <class Instrumentation>
ErrorCode BasicTieringOffloadingManager<Instrumentation>::complete_store(
    std::span<const OffloadKeyView> keys, const RequestContext& request, bool success) {
  bool any_promoted = false;
  instrumentation_.on_table_entries(keys.size());
  for (OffloadKeyView key : keys) {
    const Index block = policy().find(key);
    if (block != CachePolicy::kNone) {
      any_promoted |= use_of(block).is_promoted;
    } else if (success) {
      return ErrorCode::kUnknownKey;
    }
  }
  if (any_promoted && !planted(Bug::kCallerEndsPromotion)) return ErrorCode::kNotReady;

  primary_.complete_store(keys, success);
  if (!success && planted(Bug::kFailedStoreCascaded)) {
    ready_.clear();
    for (OffloadKeyView key : keys) {
      if (policy().find(key) != CachePolicy::kNone) ready_.push_back(key);
    }
    keys = ready_;
    success = !keys.empty();
  }
  if (!success || loses_store_of(request.req_id)) return ErrorCode::kNone;
  for (std::uint32_t tier = 0; tier < tiers_.size(); ++tier) {
    cascade(tier, keys, request);
    if (planted(Bug::kCascadeToFirstTierOnly)) break;
  }
  return ErrorCode::kNone;
}

template <class Instrumentation>
OffloadPolicy BasicTieringOffloadingManager<Instrumentation>::on_new_request(
    const RequestContext& request) {
  instrumentation_.on_table_entries(tiers_.size());
  for (std::uint32_t tier = 0; tier < tiers_.size(); ++tier) {
    if (tiers_[tier].on_new_request(request) != OffloadPolicy::kRequestLevel) continue;
    add_request_level(request.req_id, tier);
  }
  return find_request_level(request.req_id) != nullptr ? OffloadPolicy::kRequestLevel
                                                       : OffloadPolicy::kBlockLevel;
}

template <class Instrumentation>
void BasicTieringOffloadingManager<Instrumentation>::on_request_finished(
    const RequestContext& request) {
  for (SecondaryTierHandle& tier : tiers_) tier.on_request_finished(request);
  forget_request_level(request.req_id);
  if (planted(Bug::kPromotionLostWithItsRequest)) drop_promotions(request.req_id);
  if (planted(Bug::kLateStoreNotCascaded)) finished_.emplace_back(request.req_id);
}

template <class Instrumentation>
void BasicTieringOffloadingManager<Instrumentation>::on_schedule_end() {
  poll();
  has_polled_ = planted(Bug::kPolledOnceForGood);
  submit_promotions();
  for (SecondaryTierHandle& tier : tiers_) tier.on_schedule_end();
  if (planted(Bug::kRequestLevelForgotten)) {
    for (RequestLevel& level : request_levels_) level.tiers.clear();
  }
}

template <class Instrumentation>
void BasicTieringOffloadingManager<Instrumentation>::reset_cache() {
  if (planted(Bug::kResetUnderTransfers)) must(primary_.reset_cache());
}

template <class Instrumentation>
void BasicTieringOffloadingManager<Instrumentation>::submit_promotions() {
  for (std::uint32_t tier : queue_order_) {
    Queue& queue = queues_[tier];
    for (std::uint32_t at = 0; at < queue.num_groups; ++at) {
      Group& group = queue.groups[at];
      instrumentation_.on_table_entries(1 + group.blocks.size());
      if (!planted(Bug::kPromotionsNotGrouped)) queue.ids.erase(group.req_id, at);
      // Only a planted bug empties a group.
      if (!group.blocks.empty()) submit_group(tier, group);
    }
    queue.num_groups = 0;
  }
  queue_order_.clear();
  num_pending_ = 0;
}

/// Leaves the group without blocks.
template <class Instrumentation>
void BasicTieringOffloadingManager<Instrumentation>::submit_group(std::uint32_t tier,
                                                                  Group& group) {
  const TierJobId id = next_job_id_++;
  Job& job = jobs_.insert(id);
  job.tier = tier;
  job.is_promotion = true;
  std::swap(job.req_id, group.req_id);
  std::swap(job.blocks, group.blocks);
  group.blocks.clear();
  slots_.clear();
  for (Index block : job.blocks) slots_.push_back(policy().slot(block));
  tiers_[tier].submit_load({id, views_of(job.blocks), slots_, {job.req_id}});
  if (planted(PlantedConnectorBug::kPromotionReadyAtOnce)) {
    primary_.complete_store(views_of(job.blocks), /*success=*/true);
  }
}

/// Good until the next call, and as long as the blocks stay or nothing is inserted.
template <class Instrumentation>
std::span<const OffloadKeyView> BasicTieringOffloadingManager<Instrumentation>::views_of(
    std::span<const Index> blocks) {
  views_.clear();
  for (Index block : blocks) views_.push_back(policy().key_of(block));
  return views_;
}

template <class Instrumentation>
auto BasicTieringOffloadingManager<Instrumentation>::find_request_level(
    std::string_view req_id) const -> const RequestLevel* {
  const auto found = request_level_ids_.find(req_id, [this](RequestIndex at) -> std::string_view {
    instrumentation_.on_requests(1);
    return request_levels_[at].req_id;
  });
  return found ? &request_levels_[*found] : nullptr;
}

template <class Instrumentation>
void BasicTieringOffloadingManager<Instrumentation>::add_request_level(std::string_view req_id,
                                                                       std::uint32_t tier) {
  const auto id_of = [this](RequestIndex at) -> std::string_view {
    instrumentation_.on_requests(1);
    return request_levels_[at].req_id;
  };
  auto at = request_level_ids_.find(req_id, id_of);
  if (!at) {
    if (free_request_levels_.empty()) {
      free_request_levels_.push_back(static_cast<RequestIndex>(request_levels_.size()));
      request_levels_.emplace_back();
    }
    at = free_request_levels_.back();
    free_request_levels_.pop_back();
    request_levels_[*at].req_id = req_id;
    request_level_ids_.insert(req_id, *at);
  }
  std::vector<std::uint32_t>& tiers = request_levels_[*at].tiers;
  const auto place = std::lower_bound(tiers.begin(), tiers.end(), tier);
  if (place == tiers.end() || *place != tier) tiers.insert(place, tier);
}

template <class Instrumentation>
void BasicTieringOffloadingManager<Instrumentation>::forget_request_level(std::string_view req_id) {
  const RequestLevel* const found = find_request_level(req_id);
  if (found == nullptr) return;
  const auto at = static_cast<RequestIndex>(found - request_levels_.data());
  request_level_ids_.erase(req_id, at);
  request_levels_[at].tiers.clear();
  free_request_levels_.push_back(at);
}

template <class Instrumentation>
void BasicTieringOffloadingManager<Instrumentation>::jobs(std::vector<TierJobState>& out) const {
  out.clear();
  jobs_.for_each([&](TierJobId id, const Job& job) {
    TierJobState& shown = out.emplace_back();
    shown.id = id;
    shown.tier = job.tier;
    shown.is_promotion = job.is_promotion;
    shown.req_id = job.req_id;
    for (Index block : job.blocks) {
      shown.keys.emplace_back(policy().key_of(block));
      shown.slots.push_back(policy().slot(block));
    }
  });
  std::sort(out.begin(), out.end(),
            [](const TierJobState& a, const TierJobState& b) { return a.id < b.id; });
}

template <class Instrumentation>
void BasicTieringOffloadingManager<Instrumentation>::pending(
    std::vector<PendingPromotionState>& out) const {
  out.clear();
  for (std::uint32_t tier : queue_order_) {
    const Queue& queue = queues_[tier];
    for (const Group& group : std::span(queue.groups).first(queue.num_groups)) {
      PendingPromotionState& shown = out.emplace_back();
      shown.tier = tier;
      shown.req_id = group.req_id;
      for (Index block : group.blocks) {
        shown.keys.emplace_back(policy().key_of(block));
        shown.slots.push_back(policy().slot(block));
      }
    }
  }
}

/// What was checked before is not refused, unless a planted bug broke something.
template <class Instrumentation>
void BasicTieringOffloadingManager<Instrumentation>::must(ErrorCode code) const {
  KVFENCE_CHECK(code == ErrorCode::kNone || Instrumentation::kPlants,
                "refused by the primary tier");
}

template <class Instrumentation>
void BasicTieringOffloadingManager<Instrumentation>::drop_promotions(std::string_view req_id) {
  for (Queue& queue : queues_) {
    for (Group& group : std::span(queue.groups).first(queue.num_groups)) {
      if (group.req_id != req_id) continue;
      num_pending_ -= static_cast<std::uint32_t>(group.blocks.size());
      group.blocks.clear();
    }
  }
}

template <class Instrumentation>
void BasicTieringOffloadingManager<Instrumentation>::hold_unread(const Job& job) {
  if (primary_.prepare_load(views_of(job.blocks), slots_) != ErrorCode::kNone) return;
  for (Index block : job.blocks) use_of(block).is_unread = true;
}

template <class Instrumentation>
void BasicTieringOffloadingManager<Instrumentation>::release_unread(
    std::span<const OffloadKeyView> keys) {
  for (OffloadKeyView key : keys) {
    SlotUse& use = use_of(policy().find(key));
    if (use.is_unread) must(primary_.complete_load({&key, 1}));
    use.is_unread = false;
  }
}

template <class Instrumentation>
bool BasicTieringOffloadingManager<Instrumentation>::loses_store_of(std::string_view req_id) const {
  return planted(Bug::kLateStoreNotCascaded) &&
         std::find(finished_.begin(), finished_.end(), req_id) != finished_.end();
}

template class BasicTieringOffloadingManager<NoInstrumentation>;
template class BasicTieringOffloadingManager<CountingInstrumentation>;
template class BasicTieringOffloadingManager<PlantedInstrumentation>;

}  // namespace kvfence::optimized
