#include "properties/engine/offloading/goals.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>
#include <variant>

#include "contract/core/check.h"
#include "properties/core/invariant_values.h"

namespace kvfence::engine::offloading {
namespace {

using detail::contains;

bool has_state(const Observation& observation) {
  return observation.requests.has_value() && observation.transfers.has_value() &&
         observation.t1.has_value() && observation.t2.has_value() &&
         observation.skipped_waiting.has_value() && observation.keys.has_value();
}

const RequestState* find_state(const Observation& observation, std::string_view name) {
  if (!observation.requests.has_value()) return nullptr;
  for (const RequestState& state : *observation.requests) {
    if (state.id == name) return &state;
  }
  return nullptr;
}

bool is_under_way(const EngineTransfer& transfer) {
  return transfer.progress == TransferProgress::kSubmitted ||
         transfer.progress == TransferProgress::kPart;
}

bool has_transfer(const Observation& observation, std::string_view name, bool store) {
  return observation.transfers.has_value() &&
         std::any_of(observation.transfers->begin(), observation.transfers->end(),
                     [&](const EngineTransfer& transfer) {
                       return transfer.request == name && transfer.store == store &&
                              is_under_way(transfer);
                     });
}

std::vector<std::string> keys_of(const Observation& observation) {
  std::vector<std::string> keys;
  for (const auto* list : {&*observation.t1, &*observation.t2}) {
    for (const OffloadedBlock& block : *list) keys.push_back(block.key.bytes);
  }
  return keys;
}

double target_t1_size_of(const Observation& observation) {
  return observation.target_t1_size.has_value() ? *observation.target_t1_size : 0;
}

bool has_readers(const Observation& observation) {
  for (const auto* list : {&*observation.t1, &*observation.t2}) {
    for (const OffloadedBlock& block : *list) {
      if (block.readers > 0) return true;
    }
  }
  return false;
}

}  // namespace

void Reach::start(const Config& config) {
  Parsed<EngineSetup> parsed = EngineTarget::prepare(config, {}, {});
  KVFENCE_CHECK(parsed, "a run under a configuration that was not validated");
  setup_ = std::move(*parsed->offloading);
  fences_ = setup_.spec.manager.rules.offload_fences_reuse;
  num_in_flight_ = 0;
  added_.clear();
  is_store_.clear();
  was_reset_ = false;
  promoted_.clear();
  tried_.clear();
}

void Reach::count(const Command& command, const Observation& before, const Observation& after,
                  const World& world) {
  if (after.error != ErrorCode::kNone) {
    add_error(after.error);
    return;
  }
  add(Reached::kGhostHit, target_t1_size_of(before) != target_t1_size_of(after) &&
                              std::holds_alternative<Schedule>(command));
  if (after.tier_calls.has_value()) count_tier_calls(command, before, after);
  if (const auto* added = std::get_if<AddRequest>(&command)) {
    added_[added->id] = *added;
  } else if (std::holds_alternative<Schedule>(command)) {
    count_step(before, after, world);
  } else if (std::holds_alternative<Update>(command)) {
    count_update(before, after);
  } else if (const auto* finish = std::get_if<FinishRequests>(&command)) {
    count_finish(finish->requests, before);
  } else if (std::holds_alternative<FinishAllRequests>(command) && before.requests.has_value()) {
    std::vector<std::string> names;
    for (const RequestState& state : *before.requests) names.push_back(state.id);
    count_finish(names, before);
  } else if (const auto* reset = std::get_if<ResetPrefixCache>(&command)) {
    count_reset(*reset, before, after);
  } else if (const auto* finish_job = std::get_if<TierFinish>(&command)) {
    tried_.emplace(finish_job->job, finish_job->success);
  } else if (std::holds_alternative<ReportTransferAgain>(command)) {
    add(Reached::kReportedAgain);
  }
}

// ---- A step is planned ----

void Reach::count_step(const Observation& before, const Observation& after, const World& world) {
  add(Reached::kTwoStepsInFlight, num_in_flight_ > 0);
  ++num_in_flight_;
  for (const Transfer& load : *after.loads) count_load(load, before, after);
  for (const Transfer& store : *after.stores) count_store(store);
  count_not_stored(before, after, world);
  count_flush(after);
  for (const std::string& name : *after.preempted) {
    add(Reached::kPreemptedWhileStoring, has_transfer(before, name, true));
  }
  was_reset_ = false;
  if (!has_state(after)) return;
  for (const std::string& name : *after.skipped_waiting) {
    const RequestState* state = find_state(after, name);
    if (state && state->status == RequestStatus::kWaitingForRemoteKVs) continue;
    add(has_readers(after) ? Reached::kAskAgainLoading : Reached::kAskAgainWriting);
  }
  if (!has_state(before) || after.stores->empty()) return;
  const std::vector<std::string> keys = keys_of(after);
  for (const std::string& key : keys_of(before)) {
    add(Reached::kStoreEvicts, !contains(keys, key));
  }
}

void Reach::count_load(const Transfer& load, const Observation& before, const Observation& after) {
  add(Reached::kLoad);
  is_store_[load.job] = false;
  add(Reached::kPromotionLoaded,
      std::any_of(load.slots.begin(), load.slots.end(),
                  [this](SlotId slot) { return promoted_.count(slot) > 0; }));
  const std::vector<KVCacheSpec>& groups = setup_.scheduler.kv_cache.groups;
  std::size_t num_groups = 0;
  std::uint32_t longest = 0;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    if (load.group_sizes[group] == 0) continue;
    ++num_groups;
    longest = std::max(longest, load.group_sizes[group]);
    if (!groups[group].is_full_attention()) continue;
    const std::uint32_t first = load.block_indices[group];
    add(Reached::kLoadBehindHit, first > 0);
    add(Reached::kLoadWithinSlot, first % setup_.spec.block_size_factor != 0);
  }
  add(Reached::kSeveralGroupsLoad, num_groups > 1);
  for (std::size_t group = 0; group < groups.size(); ++group) {
    add(Reached::kWindowedGroupLoadsLess,
        !groups[group].is_full_attention() && load.group_sizes[group] < longest);
  }
  const RequestState* state = find_state(after, load.request);
  add(Reached::kUnroundedLoad,
      state && state->num_computed_tokens % groups.front().block_size != 0);
  const RequestState* state_before = find_state(before, load.request);
  add(Reached::kLoadOfPreempted, state_before && state_before->num_preemptions > 0);
}

void Reach::count_store(const Transfer& store) {
  add(Reached::kStore);
  is_store_[store.job] = true;
  for (SlotId slot : store.slots) promoted_.erase(slot);
  const std::size_t most = store.slots.size() * setup_.spec.block_size_factor;
  add(Reached::kWindowedStoreLeavesOut, store.gpu_blocks.size() < most);
}

/// Why full blocks of a prompt were not stored, where there is one group of full attention.
void Reach::count_not_stored(const Observation& before, const Observation& after,
                             const World& world) {
  const KVCacheSpec& group = setup_.scheduler.kv_cache.groups.front();
  if (!has_state(before) || !has_state(after) || setup_.scheduler.kv_cache.groups.size() > 1 ||
      !group.is_full_attention()) {
    return;
  }
  const std::uint32_t size = group.block_size * setup_.spec.block_size_factor;
  const std::uint32_t hash_block_size = setup_.scheduler.kv_cache.pool.hash.hash_block_size;
  const std::vector<std::string> keys = keys_of(after);
  const std::vector<std::string> keys_before = keys_of(before);
  std::unordered_map<std::string, std::uint32_t> num_computed;
  for (const ScheduledNew& each : *after.new_reqs) {
    num_computed[each.request] = each.num_computed_tokens;
  }
  for (const ScheduledCached& each : *after.cached_reqs) {
    num_computed[each.request] = each.num_computed_tokens;
  }
  for (const ScheduledRequest& each : *after.scheduled) {
    const auto added = added_.find(each.request);
    const Request* request = world.requests().find(each.request);
    if (added == added_.end() || !request) continue;
    const std::uint32_t end = num_computed[each.request] + each.num_tokens;
    const auto num_prompt = static_cast<std::uint32_t>(added->second.tokens.size());
    const std::uint32_t bound = fences_ ? added->second.max_offload_tokens.value_or(end) : end;
    const bool has_store =
        std::any_of(after.stores->begin(), after.stores->end(),
                    [&](const Transfer& store) { return store.request == each.request; });
    add(Reached::kDecodedStored, has_store && num_computed[each.request] >= num_prompt);
    add(Reached::kPromptOnlyKept,
        fences_ && setup_.spec.offload_prompt_only && !has_store && end / size > num_prompt / size);
    add(Reached::kMaxOffloadTokens, bound / size < std::min(end, num_prompt) / size);
    const std::uint32_t num_blocks = std::min({end, bound, num_prompt}) / size;
    if (num_blocks == 0 || has_store) continue;
    const BlockHashListView hashes = request->block_hashes(hash_block_size);
    const BlockHashView hash = hashes[num_blocks * (size / hash_block_size) - 1];
    const std::string key = fences_ ? make_block_hash_with_group_id(hash, 0) : std::string(hash);
    // Only what this step fills: what came before may have been stored and evicted.
    const bool fills = num_blocks * size > num_computed[each.request];
    if (!fills || contains(keys, key) || contains(keys_before, key)) continue;
    const bool has_filter = setup_.spec.manager.store_threshold >= 2;
    add(has_filter ? Reached::kFilterStops : Reached::kStoreRefused);
  }
}

void Reach::count_flush(const Observation& after) {
  add(Reached::kFlushOfPreempted, !after.requests_to_flush->empty());
  if (after.jobs_to_flush->empty()) return;
  const bool is_idle = after.scheduled->empty() && after.num_unfinished == 0;
  add(was_reset_                  ? Reached::kFlushOfReset
      : !after.preempted->empty() ? Reached::kFlushOfPreempted
      : is_idle                   ? Reached::kFlushOfIdle
                                  : Reached::kFlushOfReused);
}

// ---- A step comes back ----

void Reach::count_update(const Observation& before, const Observation& after) {
  if (num_in_flight_ > 0) --num_in_flight_;
  add(Reached::kLoadFailed, !after.invalid_blocks->empty());
  add(Reached::kHeldFreed, !after.finished_sending->empty());
  for (const Completed& completed : *after.completed_jobs) {
    if (completed.num_failed == 0) continue;
    const bool on_a_rank = completed.num_failed < completed.num_workers;
    const auto store = is_store_.find(completed.job);
    const bool is_store = store != is_store_.end() && store->second;
    add(Reached::kStoreFailed, is_store);
    add(is_store ? Reached::kStoreFailedOnARank : Reached::kLoadFailedOnARank, on_a_rank);
  }
  for (const Operation& operation : *after.transfer_stats) {
    add(operation.type == "GPU_to_CPU" ? Reached::kMeasuredStore : Reached::kMeasuredLoad);
  }
  for (const std::string& name : *after.finished_recving) {
    const RequestState* state = find_state(before, name);
    add(Reached::kAbortedLoadFreed, state && is_finished(state->status));
  }
  if (!has_state(before) || !has_state(after)) return;
  // A rank still makes what another one has reported in this step.
  for (const EngineTransfer& left : *after.transfers) {
    const bool others_had = std::any_of(
        before.transfers->begin(), before.transfers->end(), [&](const EngineTransfer& other) {
          return other.rank != left.rank && other.job == left.job && other.store == left.store;
        });
    const bool others_have = std::any_of(
        after.transfers->begin(), after.transfers->end(), [&](const EngineTransfer& other) {
          return other.rank != left.rank && other.job == left.job && other.store == left.store;
        });
    add(Reached::kLateRank, others_had && !others_have);
  }
  for (const RequestState& state : *after.requests) {
    const RequestState* state_before = find_state(before, state.id);
    if (!state_before) continue;
    add(Reached::kHeld, is_finished(state.status) && !is_finished(state_before->status) &&
                            state_before->status == RequestStatus::kRunning);
  }
  for (const RequestOutput& output : *after.outputs) {
    add(Reached::kLoadFailedForGood,
        output.status == RequestStatus::kFinishedError && !after.invalid_blocks->empty());
  }
  if (after.invalid_blocks->empty()) return;
  for (const RequestState& state : *after.requests) {
    const RequestState* state_before = find_state(before, state.id);
    add(Reached::kLoadRecomputed,
        state_before && !is_finished(state.status) &&
            state.num_computed_tokens < state_before->num_computed_tokens);
  }
}

// ---- Tiers ----

void Reach::count_tier_calls(const Command& command, const Observation& before,
                             const Observation& after) {
  const bool plans = std::holds_alternative<Schedule>(command);
  std::vector<std::string> promoted;
  std::vector<std::string> found;
  for (const TierCallRecord& call : *after.tier_calls) {
    if (call.method == "get_finished_jobs") count_tier_results(call, before);
    if (call.method == "submit_load") {
      promoted.insert(promoted.end(), call.keys.begin(), call.keys.end());
      for (SlotId slot : call.slots) promoted_.erase(slot);
    } else if (call.method == "lookup") {
      add(Reached::kAskAgainTier, call.answer == "pending");
      if (call.answer == "hit") found.push_back(call.keys.front());
    }
    add(Reached::kHeldWentDown, plans && call.method == "submit_store");
    const bool ends = call.method == "on_request_finished" && before.tier_jobs.has_value();
    add(Reached::kEndedWhilePromoting,
        ends && std::any_of(before.tier_jobs->begin(), before.tier_jobs->end(),
                            [&](const TierTransfer& job) {
                              return job.promotion && job.request == call.request;
                            }));
  }
  for (const std::string& key : found) add(Reached::kNoRoomToPromote, !contains(promoted, key));
  if (promoted.empty() || !has_state(before) || !has_state(after)) return;
  const std::vector<std::string> keys = keys_of(after);
  for (const std::string& key : keys_of(before)) {
    add(Reached::kPromotionEvicts, after.stores->empty() && !contains(keys, key));
  }
}

void Reach::count_tier_results(const TierCallRecord& call, const Observation& before) {
  if (!before.tier_jobs.has_value()) return;
  std::istringstream results(call.answer);
  std::uint32_t id = 0;
  std::string word;
  while (results >> id >> word) {
    for (const TierTransfer& job : *before.tier_jobs) {
      if (job.job != id || job.tier != call.tier) continue;
      const bool success = word == "done";
      add(job.promotion ? success ? Reached::kPromoted : Reached::kPromotionFailed
          : success     ? Reached::kStoreWentDown
                        : Reached::kStoreLostBelow);
      if (setup_.has_files(job.tier)) count_file_result(job.promotion, success, id);
      if (job.promotion && success) promoted_.insert(job.slots.begin(), job.slots.end());
    }
  }
}

void Reach::count_file_result(bool promotion, bool success, std::uint32_t job) {
  const auto tried = tried_.find(job);
  const bool could_not = !success && tried != tried_.end() && tried->second;
  add(Reached::kPromotedFromFile, promotion && success);
  add(Reached::kFileStoreFailed, !promotion && could_not);
  add(Reached::kFileLoadFailed, promotion && could_not);
}

// ---- What comes from outside ----

void Reach::count_finish(const std::vector<std::string>& names, const Observation& before) {
  for (const std::string& name : names) {
    const RequestState* state = find_state(before, name);
    if (!state || is_finished(state->status)) continue;
    const bool loads = state->status == RequestStatus::kWaitingForRemoteKVs;
    add(Reached::kAbortedWhileStoring, has_transfer(before, name, true));
    add(Reached::kAbortedWhileLoading, loads && has_transfer(before, name, false));
  }
}

void Reach::count_reset(const ResetPrefixCache& command, const Observation& before,
                        const Observation& after) {
  add(Reached::kResetRefused, !*after.success);
  if (has_state(before) && has_state(after)) {
    add(Reached::kResetDone, *after.success && *before.keys != *after.keys);
  }
  if (!command.reset_connector || !fences_) return;
  add(Reached::kCPUCacheReset);
  was_reset_ = true;
  if (!has_state(before)) return;
  add(Reached::kResetWithJobs, !before.transfers->empty());
  for (const RequestState& state : *before.requests) {
    add(Reached::kResetWhileLoading, state.status == RequestStatus::kWaitingForRemoteKVs);
  }
}

}  // namespace kvfence::engine::offloading
