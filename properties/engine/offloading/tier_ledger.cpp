#include "properties/engine/offloading/tier_ledger.h"

#include <algorithm>
#include <sstream>
#include <utility>
#include <variant>

namespace kvfence::engine::offloading {
namespace {

using Broken = std::optional<BrokenTierRule>;

BrokenTierRule broken(TierRule rule, std::string where, std::string expected, std::string actual) {
  return {rule, std::move(where), std::move(expected), std::move(actual)};
}

std::string tier_name(std::uint32_t tier) { return "tier " + std::to_string(tier); }

std::string job_name(const TierTransfer& job) {
  return "job " + std::to_string(*job.job) + " of " + tier_name(job.tier);
}

const OffloadedBlock* find_block(const Observation& observation, const std::string& key) {
  for (const auto* list : {&*observation.t1, &*observation.t2}) {
    for (const OffloadedBlock& block : *list) {
      if (block.key.bytes == key) return &block;
    }
  }
  return nullptr;
}

std::vector<SlotId> sorted(std::vector<SlotId> slots) {
  std::sort(slots.begin(), slots.end());
  return slots;
}

}  // namespace

TierLedger::TierLedger(const ConnectorSetup& setup)
    : has_tiers_(setup.spec.has_tiers),
      num_tiers_(setup.num_tiers()),
      num_workers_(setup.spec.num_workers),
      contents_(num_tiers_),
      polled_(num_tiers_),
      unfinished_(num_tiers_),
      num_ends_(num_tiers_) {
  for (std::uint32_t tier = 0; tier < num_tiers_; ++tier) {
    contents_[tier].has_files = setup.has_files(tier);
    has_files_ |= setup.has_files(tier);
  }
}

Broken TierLedger::take_in(const Command& command, const Observation& observation,
                           const std::vector<OffloadKey>& keys) {
  ended_.clear();
  begun_.clear();
  begun_keys_.clear();
  cascades_.clear();
  num_ends_.assign(num_tiers_, 0);
  new_.clear();
  asked_.clear();
  put_off_.clear();
  last_asked_.clear();
  step_has_ended_ = false;
  if (!has_tiers_) return std::nullopt;
  if (observation.error == ErrorCode::kNone) take_in_commands(command, keys);
  if (observation.tier_calls.has_value()) {
    for (const TierCallRecord& call : *observation.tier_calls) {
      if (auto found = take_in_call(call)) return found;
    }
  }
  if (auto found = check_told(command, observation)) return found;
  return check_cascades(command, observation);
}

// ---- What the tiers hold ----

void TierLedger::take_in_commands(const Command& command, const std::vector<OffloadKey>& keys) {
  if (const auto* finished = std::get_if<TierFinish>(&command)) {
    finish(*finished);
  } else if (const auto* added = std::get_if<TierAdd>(&command)) {
    contents_[added->tier].held.insert(keys.begin(), keys.end());
    contents_[added->tier].seen.insert(keys.begin(), keys.end());
  } else if (const auto* dropped = std::get_if<TierDrop>(&command)) {
    for (const OffloadKey& key : keys) contents_[dropped->tier].held.erase(key);
  } else if (const auto* faults = std::get_if<TierFaults>(&command)) {
    if (!faults->faults.empty()) contents_[faults->tier].is_exact = false;
  } else if (const auto* damage = std::get_if<TierDamage>(&command)) {
    contents_[damage->tier].is_exact = false;
    contents_[damage->tier].seen.insert(keys.begin(), keys.end());
  }
}

/// Without bytes a tier also tells of jobs that it does not have, or does not have yet. The first
/// word about a job counts.
void TierLedger::finish(const TierFinish& command) {
  Contents& tier = contents_[command.tier];
  const auto job = tier.jobs.find(command.job);
  if (job == tier.jobs.end()) {
    if (!has_files_) tier.finished.emplace(command.job, Finished{command.success, true});
    return;
  }
  const KeyList& keys = job->second.keys;
  bool success = command.success;
  if (job->second.promotion) {
    // One that knows keys alone brings up what it is asked for; files have to be there.
    const auto is_held = [&](const auto& key) { return tier.held.count(key) > 0; };
    success = success && (!tier.has_files || std::all_of(keys.begin(), keys.end(), is_held));
  } else if (success) {
    tier.held.insert(keys.begin(), keys.end());
    tier.seen.insert(keys.begin(), keys.end());
  }
  const bool is_certain = !command.success || !tier.has_files || tier.is_exact;
  tier.finished.emplace(command.job, Finished{success, is_certain});
  tier.jobs.erase(job);
}

Broken TierLedger::check_contents(const Observation& observation) const {
  for (std::uint32_t place = 0; place < num_tiers_; ++place) {
    const Contents& tier = contents_[place];
    const TierState& shown = (*observation.tiers)[place];
    const auto wrong = [&](std::string expected, std::string actual) {
      return broken(TierRule::kStoredIsKept, tier_name(place), std::move(expected),
                    std::move(actual));
    };
    const std::set<std::string> held(shown.held.begin(), shown.held.end());
    if (tier.is_exact && held != tier.held) {
      return wrong(std::to_string(tier.held.size()) + " blocks, those that were stored",
                   "other ones, of " + std::to_string(held.size()));
    }
    if (tier.is_exact && shown.num_temporary_files > 0) {
      return wrong("no temporary file", std::to_string(shown.num_temporary_files));
    }
    if (!std::includes(tier.seen.begin(), tier.seen.end(), held.begin(), held.end())) {
      return wrong("blocks that were stored there", "another one");
    }
  }
  if (!observation.damaged.has_value() || observation.damaged->empty()) return std::nullopt;
  const OffloadedBlock* block = find_block(observation, observation.damaged->front());
  return broken(TierRule::kStoredIsKept, "slot " + std::to_string(block ? block->slot : 0),
                "the bytes that were stored", "other bytes, in a block that can be found");
}

// ---- Calls ----

Broken TierLedger::take_in_call(const TierCallRecord& call) {
  if (call.tier >= num_tiers_) {
    return broken(TierRule::kTiersAreTold, call.method, "a call on one of the tiers",
                  tier_name(call.tier));
  }
  const auto wrong = [&](std::string expected, std::string actual) -> Broken {
    return broken(TierRule::kTiersAreTold, call.method + " of " + tier_name(call.tier),
                  std::move(expected), std::move(actual));
  };
  if (call.method == "get_finished_jobs") {
    if (polled_[call.tier]) return wrong("one poll a step", "a second one");
    polled_[call.tier] = true;
    return end_jobs(call);
  }
  if (call.method == "submit_store" || call.method == "submit_load") return begin_job(call);
  if (call.method == "on_schedule_end") {
    step_has_ended_ = true;
    ++num_ends_[call.tier];
    if (!polled_[call.tier]) return wrong("a poll before the end of the step", "none");
    polled_[call.tier] = false;
  } else if (call.method == "on_new_request") {
    new_.push_back(call.request);
    unfinished_[call.tier].insert(call.request);
    if (call.answer == "request_level") {
      request_level_.insert(call.request);
      request_level_tiers_.insert(call.tier);
    }
  } else if (call.method == "on_request_finished") {
    if (unfinished_[call.tier].erase(call.request) == 0) {
      return wrong("a request that has not ended", call.request);
    }
  } else if (call.method == "lookup") {
    if (call.answer == "pending") put_off_.insert(call.request);
  } else if (call.method == "touch" && !step_has_ended_) {
    // Behind the lookups of a request; behind the end of the step, of a store.
    asked_.insert(call.request);
    last_asked_ = call.request;
  }
  return std::nullopt;
}

/// What a tier reports that is no job of its own is passed over.
Broken TierLedger::end_jobs(const TierCallRecord& call) {
  std::istringstream results(call.answer);
  std::uint32_t id = 0;
  std::string word;
  while (results >> id >> word) {
    const auto at = jobs_.find(id);
    if (at == jobs_.end() || at->second.tier != call.tier) continue;
    const TierTransfer& job = at->second;
    const std::map<std::uint32_t, Finished>& all_finished = contents_[call.tier].finished;
    const auto finished = all_finished.find(id);
    if (finished == all_finished.end()) {
      return broken(TierRule::kStoredIsKept, job_name(job), "under way", word);
    }
    if (finished->second.is_certain && finished->second.success != (word == "done")) {
      return broken(TierRule::kStoredIsKept, job_name(job),
                    finished->second.success ? "done" : "failed", word);
    }
    for (std::size_t index = 0; job.promotion && index < job.keys.size(); ++index) {
      ended_.push_back({job.keys[index], job.slots[index], word == "done"});
    }
    jobs_.erase(at);
  }
  contents_[call.tier].finished.clear();
  return std::nullopt;
}

Broken TierLedger::begin_job(const TierCallRecord& call) {
  TierTransfer job;
  job.job = call.job;
  job.tier = call.tier;
  job.promotion = call.method == "submit_load";
  job.request = call.request;
  job.keys = call.keys;
  job.slots = call.slots;
  const bool is_sound =
      job.job == next_job_ && !job.keys.empty() && job.keys.size() == job.slots.size();
  if (!is_sound) {
    return broken(TierRule::kPromotionsComeWhole, call.method + " of " + tier_name(call.tier),
                  "job " + std::to_string(next_job_) + ", with a slot for each block",
                  "another one");
  }
  ++next_job_;
  if (job.promotion) {
    begun_.insert(begun_.end(), job.slots.begin(), job.slots.end());
    begun_keys_.insert(job.keys.begin(), job.keys.end());
  } else {
    cascades_.push_back({call.tier, call.request, sorted(call.slots)});
  }
  contents_[call.tier].jobs.emplace(*job.job, job);
  jobs_.emplace(*job.job, std::move(job));
  return std::nullopt;
}

// ---- Who is told what ----

Broken TierLedger::check_told(const Command& command, const Observation& observation) const {
  const bool is_accepted = observation.error == ErrorCode::kNone;
  const auto* added = std::get_if<AddRequest>(&command);
  const bool adds = added && is_accepted;
  const bool plans = std::holds_alternative<Schedule>(command) && is_accepted;
  const std::size_t num_new = adds ? num_tiers_ : 0;
  const bool are_told =
      new_.size() == num_new && std::all_of(new_.begin(), new_.end(), [&](const std::string& name) {
        return added && name == added->id;
      });
  if (!are_told) {
    return broken(TierRule::kTiersAreTold, "on_new_request", "each tier once",
                  std::to_string(new_.size()) + " calls");
  }
  for (std::uint32_t tier = 0; tier < num_tiers_; ++tier) {
    if (num_ends_[tier] == (plans ? 1U : 0U)) continue;
    return broken(TierRule::kTiersAreTold, "on_schedule_end of " + tier_name(tier),
                  plans ? "one call" : "no call", std::to_string(num_ends_[tier]) + " calls");
  }
  const std::uint32_t num_pending =
      observation.num_pending_promotions.has_value() ? *observation.num_pending_promotions : 0;
  if (num_pending == 0) return std::nullopt;
  return broken(TierRule::kTiersAreTold, "num_pending_promotions", "0 behind a step",
                std::to_string(num_pending));
}

// ---- What goes down ----

void TierLedger::plan(const Observation& observation) {
  const auto add = [&](const std::vector<Transfer>& transfers, bool is_store) {
    for (const Transfer& each : transfers) {
      copy_jobs_[each.job] = {each.request, is_store, each.slots, num_workers_, false};
    }
  };
  add(*observation.loads, false);
  add(*observation.stores, true);
}

/// Of a step that came back: each store that is over now goes down to each tier.
std::vector<TierLedger::Cascade> TierLedger::due_cascades(const Observation& observation) {
  std::vector<Cascade> due;
  for (const Completed& completed : *observation.completed_jobs) {
    const auto at = copy_jobs_.find(completed.job);
    if (at == copy_jobs_.end()) continue;
    CopyJob& job = at->second;
    job.num_pending -= std::min(job.num_pending, completed.num_workers);
    job.has_failed = job.has_failed || completed.num_failed > 0;
    if (job.num_pending > 0) continue;
    for (std::uint32_t tier = 0; job.is_store && !job.has_failed && tier < num_tiers_; ++tier) {
      due.push_back({tier, job.request, sorted(job.slots)});
    }
    copy_jobs_.erase(at);
  }
  return due;
}

Broken TierLedger::check_cascades(const Command& command, const Observation& observation) {
  const bool is_accepted = observation.error == ErrorCode::kNone;
  if (std::holds_alternative<Schedule>(command) && is_accepted) {
    plan(observation);
    for (const Cascade& cascade : cascades_) {
      if (request_level_tiers_.count(cascade.tier) > 0) continue;
      return broken(TierRule::kStoresGoDown, "submit_store of " + tier_name(cascade.tier),
                    "held blocks for a tier that wants whole requests", "for another one");
    }
    return std::nullopt;
  }
  std::vector<Cascade> due;
  if (std::holds_alternative<Update>(command) && is_accepted) due = due_cascades(observation);
  if (cascades_ == due) return std::nullopt;
  return broken(TierRule::kStoresGoDown, "submit_store",
                std::to_string(due.size()) + " for what was stored", "other ones");
}

bool TierLedger::is_being_loaded(SlotId slot) const {
  return std::any_of(copy_jobs_.begin(), copy_jobs_.end(), [&](const auto& entry) {
    const std::vector<SlotId>& slots = entry.second.slots;
    return !entry.second.is_store && std::find(slots.begin(), slots.end(), slot) != slots.end();
  });
}

bool TierLedger::has_copies(const std::string& request) const {
  return std::any_of(copy_jobs_.begin(), copy_jobs_.end(),
                     [&](const auto& entry) { return entry.second.request == request; });
}

// ---- The state ----

Broken TierLedger::check_state(const Observation& observation) const {
  if (!has_tiers_) return std::nullopt;
  if (auto found = check_contents(observation)) return found;
  std::vector<TierTransfer> jobs;
  for (const auto& [id, job] : jobs_) jobs.push_back(job);
  if (*observation.tier_jobs != jobs || *observation.num_tier_jobs != jobs.size()) {
    return broken(TierRule::kPromotionsComeWhole, "tier_jobs",
                  "what was submitted and not reported", "other ones");
  }
  for (const TierTransfer& job : jobs) {
    if (auto found = check_blocks(job, observation)) return found;
  }
  for (const EndedPromotion& promotion : ended_) {
    const OffloadedBlock* block = find_block(observation, promotion.key);
    if (promotion.success || !block || !block->ready) continue;
    return broken(TierRule::kPromotionsComeWhole, "slot " + std::to_string(block->slot),
                  "no block, since its promotion has failed", "a ready one");
  }
  std::set<std::string> unfinished;
  for (const RequestState& state : *observation.requests) {
    if (!is_finished(state.status)) unfinished.insert(state.id);
  }
  for (std::uint32_t tier = 0; tier < num_tiers_; ++tier) {
    if (unfinished_[tier] == unfinished) continue;
    return broken(TierRule::kTiersAreTold, "on_request_finished of " + tier_name(tier),
                  "the end of each request", "another one");
  }
  return std::nullopt;
}

/// A block that comes up has a slot and is not ready; one that goes down stays, and is read.
Broken TierLedger::check_blocks(const TierTransfer& job, const Observation& observation) const {
  for (std::size_t index = 0; index < job.keys.size(); ++index) {
    const OffloadedBlock* block = find_block(observation, job.keys[index]);
    const bool has_slot = block && block->slot == job.slots[index];
    const bool is_right =
        has_slot && (job.promotion ? !block->ready : block->ready && block->readers > 0);
    if (is_right) continue;
    return broken(TierRule::kPromotionsComeWhole, "slot " + std::to_string(job.slots[index]),
                  job.promotion ? "reserved for " + job_name(job) : "held for " + job_name(job),
                  has_slot ? block->ready ? "ready" : "not ready" : "another block");
  }
  return std::nullopt;
}

}  // namespace kvfence::engine::offloading
