#include "reference/tiering/tiering_manager.h"

#include <algorithm>
#include <utility>

#include "contract/core/check.h"
#include "contract/core/lists.h"

namespace kvfence::reference {
namespace {

std::vector<OffloadKeyView> views_of(const std::vector<OffloadKey>& keys) {
  return {keys.begin(), keys.end()};
}

}  // namespace

TieringOffloadingManager::TieringOffloadingManager(const OffloadingManagerConfig& primary,
                                                   std::vector<SecondaryTierHandle> tiers)
    : primary_(primary), tiers_(std::move(tiers)) {
  KVFENCE_CHECK(!check_tiering_config(primary), "no manager can be built from this configuration");
}

// A hit in a tier ends the search, also if it cannot be promoted; a tier that wants to be asked
// again does not.
// Source: vLLM v0.23.0 v1/kv_offload/tiering/manager.py lookup
LookupResult TieringOffloadingManager::lookup(OffloadKeyView key, const RequestContext& request) {
  poll();
  LookupResult result = LookupResult::kMiss;
  must(primary_.lookup_key(key, result), "the manager is asked key by key above tiers");
  if (result != LookupResult::kMiss) return result;

  for (std::uint32_t tier = 0; tier < num_tiers(); ++tier) {
    switch (tiers_[tier]->lookup(key, request)) {
      case LookupResult::kHit:
        return initiate_promotion(tier, key, request) ? LookupResult::kPending
                                                      : LookupResult::kMiss;
      case LookupResult::kPending:
        result = LookupResult::kPending;
        break;
      case LookupResult::kMiss:
        break;
    }
  }
  return result;
}

// Source: vLLM v0.23.0 v1/kv_offload/tiering/manager.py touch
void TieringOffloadingManager::touch(std::span<const OffloadKeyView> keys,
                                     const RequestContext& request) {
  primary_.touch(keys);
  for (SecondaryTierHandle& tier : tiers_) tier->touch(keys, request);
}

// Source: vLLM v0.23.0 v1/kv_offload/tiering/manager.py prepare_load
ErrorCode TieringOffloadingManager::prepare_load(std::span<const OffloadKeyView> keys,
                                                 std::vector<SlotId>& slots) {
  poll();
  return primary_.prepare_load(keys, slots);
}

// Upstream would also take away what a cascade holds.
// Source: vLLM v0.23.0 v1/kv_offload/tiering/manager.py complete_load. kNotReading of blocks that
// only cascades read: ours
ErrorCode TieringOffloadingManager::complete_load(std::span<const OffloadKeyView> keys) {
  BlockStatus status;
  for (const OffloadKeyView key : keys) {
    if (!primary_.policy().get(key, status)) return ErrorCode::kUnknownKey;
  }
  for (const OffloadKeyView key : keys) {
    if (std::count(keys.begin(), keys.end(), key) > num_loads_of(key)) {
      return ErrorCode::kNotReading;
    }
  }
  return primary_.complete_load(keys);
}

// The tiers that want the whole request get what is there already, unless it is being written.
// Source: vLLM v0.23.0 v1/kv_offload/tiering/manager.py prepare_store,
// _cascade_existing_blocks_to_request_level_tiers, where the order of those tiers is that of a set
ErrorCode TieringOffloadingManager::prepare_store(std::span<const OffloadKeyView> keys,
                                                  const RequestContext& request, bool& stored,
                                                  PrepareStoreOutput& out) {
  poll();
  const ErrorCode code = primary_.prepare_store(keys, stored, out);
  if (code != ErrorCode::kNone || !stored) return code;

  // What is new is not ready.
  std::vector<OffloadKeyView> ready;
  for (const OffloadKeyView key : keys) {
    LookupResult result = LookupResult::kMiss;
    must(primary_.lookup_key(key, result), "the manager is asked key by key above tiers");
    if (result == LookupResult::kHit) ready.push_back(key);
  }
  for (std::uint32_t tier = 0; tier < num_tiers() && !ready.empty(); ++tier) {
    if (is_request_level(tier, request.req_id)) cascade(tier, ready, request);
  }
  return ErrorCode::kNone;
}

// Source: vLLM v0.23.0 v1/kv_offload/tiering/manager.py complete_store. kUnknownKey: ours, where
// upstream asserts after the first half; kNotReady: ours
ErrorCode TieringOffloadingManager::complete_store(std::span<const OffloadKeyView> keys,
                                                   const RequestContext& request, bool success) {
  BlockStatus status;
  for (const OffloadKeyView key : keys) {
    if (success && !primary_.policy().get(key, status)) return ErrorCode::kUnknownKey;
  }
  for (const OffloadKeyView key : keys) {
    if (is_promoted(key)) return ErrorCode::kNotReady;
  }

  primary_.complete_store(keys, success);
  for (std::uint32_t tier = 0; tier < num_tiers() && success; ++tier) {
    cascade(tier, keys, request);
  }
  return ErrorCode::kNone;
}

// Source: vLLM v0.23.0 v1/kv_offload/tiering/manager.py on_new_request
OffloadPolicy TieringOffloadingManager::on_new_request(const RequestContext& request) {
  for (std::uint32_t tier = 0; tier < num_tiers(); ++tier) {
    if (tiers_[tier]->on_new_request(request) == OffloadPolicy::kRequestLevel) {
      request_level_.push_back({std::string(request.req_id), tier});
    }
  }
  const bool any = contains(request_level_, request.req_id, &RequestLevel::req_id);
  return any ? OffloadPolicy::kRequestLevel : OffloadPolicy::kBlockLevel;
}

// Source: vLLM v0.23.0 v1/kv_offload/tiering/manager.py on_request_finished
void TieringOffloadingManager::on_request_finished(const RequestContext& request) {
  for (SecondaryTierHandle& tier : tiers_) tier->on_request_finished(request);
  std::erase_if(request_level_,
                [&](const RequestLevel& wanted) { return wanted.req_id == request.req_id; });
}

// Source: vLLM v0.23.0 v1/kv_offload/tiering/manager.py on_schedule_end
void TieringOffloadingManager::on_schedule_end() {
  poll();
  has_polled_ = false;
  submit_promotions();
  for (SecondaryTierHandle& tier : tiers_) tier->on_schedule_end();
}

// Grouped by tier, then by request, each in the order of its first promotion.
// Source: vLLM v0.23.0 v1/kv_offload/tiering/manager.py _pending_load_submissions
void TieringOffloadingManager::pending(std::vector<TierTransferState>& out) const {
  out.clear();
  std::vector<std::uint32_t> tiers;
  for (const Promotion& promotion : promotions_) {
    if (!contains(tiers, promotion.tier)) tiers.push_back(promotion.tier);
  }
  for (const std::uint32_t tier : tiers) {
    const std::size_t first_of_tier = out.size();
    for (const Promotion& promotion : promotions_) {
      if (promotion.tier != tier) continue;
      const auto first = out.begin() + static_cast<std::ptrdiff_t>(first_of_tier);
      auto group =
          std::ranges::find(first, out.end(), promotion.req_id, &TierTransferState::req_id);
      if (group == out.end()) {
        group = out.insert(out.end(), {{}, tier, true, promotion.req_id, {}, {}});
      }
      group->keys.push_back(promotion.key);
      group->slots.push_back(promotion.slot);
    }
  }
}

// Source: vLLM v0.23.0 v1/kv_offload/tiering/manager.py _maybe_process_finished_jobs,
// _process_finished_jobs
void TieringOffloadingManager::poll() {
  if (has_polled_) return;
  has_polled_ = true;
  for (std::uint32_t tier = 0; tier < num_tiers(); ++tier) {
    std::vector<JobResult> results;
    tiers_[tier]->get_finished_jobs(results);
    for (const JobResult& result : results) end_job(tier, result);
  }
}

// Source: vLLM v0.23.0 v1/kv_offload/tiering/manager.py _process_finished_jobs, which asserts that
// the job is under way, at whichever tier. Passing over: ours
void TieringOffloadingManager::end_job(std::uint32_t tier, const JobResult& result) {
  const auto found = std::ranges::find_if(jobs_, [&](const TierTransferState& job) {
    return job.id == result.job_id && job.tier == tier;
  });
  if (found == jobs_.end()) return;
  if (found->is_promotion) {
    primary_.complete_store(views_of(found->keys), result.success);
  } else {
    must(primary_.complete_load(views_of(found->keys)), "what a job reads stays held");
  }
  jobs_.erase(found);
}

// False: nothing can go for it.
// Source: vLLM v0.23.0 v1/kv_offload/tiering/manager.py _initiate_promotion
bool TieringOffloadingManager::initiate_promotion(std::uint32_t tier, OffloadKeyView key,
                                                  const RequestContext& request) {
  bool stored = false;
  PrepareStoreOutput out;
  must(primary_.prepare_store({&key, 1}, stored, out), "one key repeats none");
  if (!stored) return false;
  promotions_.push_back({tier, std::string(request.req_id), OffloadKey(key), out.slots.front()});
  return true;
}

// Source: vLLM v0.23.0 v1/kv_offload/tiering/manager.py complete_store, Step 2
void TieringOffloadingManager::cascade(std::uint32_t tier, std::span<const OffloadKeyView> keys,
                                       const RequestContext& request) {
  TierTransferState job;
  job.id = next_job_id_++;
  job.tier = tier;
  job.req_id = request.req_id;
  job.keys.assign(keys.begin(), keys.end());
  must(primary_.prepare_load(keys, job.slots), "what was stored is held and ready");
  jobs_.push_back(job);
  tiers_[tier]->submit_store({*job.id, keys, job.slots, request});
}

// Source: vLLM v0.23.0 v1/kv_offload/tiering/manager.py _flush_pending_promotions
void TieringOffloadingManager::submit_promotions() {
  std::vector<TierTransferState> groups;
  pending(groups);
  promotions_.clear();
  for (TierTransferState& group : groups) {
    group.id = next_job_id_++;
    jobs_.push_back(group);
    tiers_[group.tier]->submit_load({*group.id, views_of(group.keys), group.slots, {group.req_id}});
  }
}

bool TieringOffloadingManager::is_request_level(std::uint32_t tier, std::string_view req_id) const {
  return std::any_of(request_level_.begin(), request_level_.end(), [&](const RequestLevel& wanted) {
    return wanted.tier == tier && wanted.req_id == req_id;
  });
}

/// Queued or under way.
bool TieringOffloadingManager::is_promoted(OffloadKeyView key) const {
  return contains(promotions_, key, &Promotion::key) ||
         std::any_of(jobs_.begin(), jobs_.end(), [&](const TierTransferState& job) {
           return job.is_promotion && contains(job.keys, key);
         });
}

/// The readers of a held block that are no cascades.
std::int32_t TieringOffloadingManager::num_loads_of(OffloadKeyView key) const {
  BlockStatus status;
  primary_.policy().get(key, status);
  std::int32_t num_loads = status.ref_cnt;
  for (const TierTransferState& job : jobs_) {
    if (job.is_promotion) continue;
    num_loads -= static_cast<std::int32_t>(std::count(job.keys.begin(), job.keys.end(), key));
  }
  return num_loads;
}

}  // namespace kvfence::reference
