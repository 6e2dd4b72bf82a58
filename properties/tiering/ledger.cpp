#include "properties/tiering/ledger.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace kvfence::tiering {
namespace {

using Keys = std::vector<std::uint32_t>;

std::uint32_t count(const Keys& keys, std::uint32_t key) {
  return static_cast<std::uint32_t>(std::count(keys.begin(), keys.end(), key));
}

}  // namespace

Expected Ledger::apply(const Command& command, const Observation* shown) {
  Expected expected;
  shown_ = shown;
  begin_of_files();
  if (polls(command)) poll(expected);
  expected.error = std::visit([&](const auto& one) { return refusal(one); }, command);
  if (expected.error == ErrorCode::kNone) {
    std::visit([&](const auto& one) { run(one, expected); }, command);
  }
  end_of_files();
  shown_ = nullptr;
  return expected;
}

void Ledger::begin_of_files() {
  for (Tier& tier : tiers_) {
    tier.kept.clear();
    if (!tier.last_held || tier.ends_early) continue;
    std::set_difference(tier.last_held->begin(), tier.last_held->end(), tier.damaged.begin(),
                        tier.damaged.end(), std::inserter(tier.kept, tier.kept.end()));
  }
}

void Ledger::end_of_files() {
  for (std::uint32_t place = 0; place < tiers_.size(); ++place) {
    tiers_[place].last_held.reset();
    if (const Keys* held = shown_held(place))
      tiers_[place].last_held.emplace(held->begin(), held->end());
  }
}

const Keys* Ledger::shown_held(std::uint32_t tier) const {
  const bool is_shown =
      tiers_[tier].has_files && shown_ && shown_->tiers.has_value() && tier < shown_->tiers->size();
  return is_shown ? &(*shown_->tiers)[tier].held : nullptr;
}

/// Whether a job that was just tried was done, as far as the files tell: if one is missing it was
/// not, and if its only one is new it was.
std::optional<bool> Ledger::must_be_stored(std::uint32_t tier, const Keys& keys) const {
  const Keys* const held = shown_held(tier);
  if (!held) return std::nullopt;
  const bool all_held = std::all_of(keys.begin(), keys.end(),
                                    [&](std::uint32_t key) { return count(*held, key) > 0; });
  if (!all_held) return false;
  const auto& before = tiers_[tier].last_held;
  const bool is_new = keys.size() == 1 && before && before->count(keys.front()) == 0;
  return is_new ? std::optional(true) : std::nullopt;
}

bool Ledger::polls(const Command& command) {
  return std::holds_alternative<Lookup>(command) || std::holds_alternative<PrepareLoad>(command) ||
         std::holds_alternative<PrepareStore>(command) ||
         std::holds_alternative<OnScheduleEnd>(command);
}

void Ledger::poll(Expected& expected) {
  if (has_polled_) return;
  has_polled_ = true;
  for (std::uint32_t tier = 0; tier < tiers_.size(); ++tier) {
    TierCallRecord& asked = call("get_finished_jobs", tier, {}, expected);
    for (std::size_t index = 0; index < tiers_[tier].finished.size(); ++index) {
      Finished& finished = tiers_[tier].finished[index];
      if (finished.is_tried && !tiers_[tier].is_exact) take_result(tier, index, finished);
      asked.answer += (asked.answer.empty() ? "" : " ") + std::to_string(finished.job) +
                      (finished.success ? " done" : " failed");
      const auto job = std::find_if(jobs_.begin(), jobs_.end(), [&](const Transfer& candidate) {
        return candidate.job == finished.job && candidate.tier == tier;
      });
      if (finished.load_of && !finished.success) tiers_[tier].lost.insert(*finished.load_of);
      if (job == jobs_.end()) continue;
      end_job(*job, finished.success, expected);
      jobs_.erase(job);
    }
    tiers_[tier].finished.clear();
  }
}

const std::string* Ledger::shown_answer(std::string_view method, std::uint32_t tier) const {
  if (!shown_ || !shown_->tier_calls.has_value()) return nullptr;
  for (const TierCallRecord& call : *shown_->tier_calls) {
    if (call.method == method && call.tier == tier) return &call.answer;
  }
  return nullptr;
}

/// What files made of a job: as it is shown, if that can be.
void Ledger::take_result(std::uint32_t place, std::size_t index, Finished& finished) const {
  if (finished.must) {
    finished.success = *finished.must;
    return;
  }
  const std::string* const answer = shown_answer("get_finished_jobs", place);
  if (!answer) return;
  std::istringstream words(*answer);
  std::string job;
  std::string end;
  for (std::size_t at = 0; at <= index; ++at) words >> job >> end;
  if (job == std::to_string(finished.job)) finished.success = end == "done";
}

void Ledger::end_job(const Transfer& job, bool success, Expected& expected) {
  if (!job.promotion) {
    primary_.apply(offload::CompleteLoad{job.keys});
    return;
  }
  primary_.apply(offload::CompleteStore{job.keys, success});
  if (success) return;
  expected.failed_promotions.insert(expected.failed_promotions.end(), job.keys.begin(),
                                    job.keys.end());
}

void Ledger::cascade(std::uint32_t tier, const Keys& keys, const std::string& request,
                     Expected& expected) {
  Transfer job{next_job_++, tier, /*promotion=*/false, request, keys, {}};
  for (std::uint32_t key : keys) job.slots.push_back(primary_.cache().find(key)->slot);
  primary_.apply(offload::PrepareLoad{keys});
  TierCallRecord& submitted = call("submit_store", tier, request, expected);
  submitted.job = job.job;
  submitted.keys = keys;
  submitted.slots = job.slots;
  tiers_[tier].jobs[*job.job] = {/*is_load=*/false, keys};
  jobs_.push_back(std::move(job));
}

TierCallRecord& Ledger::call(std::string_view method, std::uint32_t tier,
                             const std::string& request, Expected& expected) const {
  TierCallRecord& record = expected.calls.emplace_back();
  record.method = method;
  record.tier = tier;
  record.request = request;
  return record;
}

void Ledger::tell_all(std::string_view method, const std::string& request, const Keys& keys,
                      Expected& expected) const {
  for (std::uint32_t tier = 0; tier < tiers_.size(); ++tier) {
    call(method, tier, request, expected).keys = keys;
  }
}

std::vector<Transfer> Ledger::pending() const {
  // A stable order by the first promotion of the tier, then by that of tier and request.
  const auto first_of = [&](const Promotion& promotion, bool of_request) {
    return std::find_if(promotions_.begin(), promotions_.end(),
                        [&](const Promotion& other) {
                          return other.tier == promotion.tier &&
                                 (!of_request || other.request == promotion.request);
                        }) -
           promotions_.begin();
  };
  std::vector<Promotion> sorted = promotions_;
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Promotion& a, const Promotion& b) {
    return std::pair(first_of(a, false), first_of(a, true)) <
           std::pair(first_of(b, false), first_of(b, true));
  });
  std::vector<Transfer> groups;
  for (const Promotion& promotion : sorted) {
    if (groups.empty() || groups.back().tier != promotion.tier ||
        groups.back().request != promotion.request) {
      groups.push_back(
          {std::nullopt, promotion.tier, /*promotion=*/true, promotion.request, {}, {}});
    }
    groups.back().keys.push_back(promotion.key);
    groups.back().slots.push_back(promotion.slot);
  }
  return groups;
}

std::vector<TierState> Ledger::tiers() const {
  std::vector<TierState> states;
  for (const Tier& tier : tiers_) states.push_back({Keys(tier.held.begin(), tier.held.end()), 0});
  return states;
}

bool Ledger::has_files() const {
  return std::any_of(tiers_.begin(), tiers_.end(), [](const Tier& tier) { return tier.has_files; });
}

bool Ledger::may_hold(std::uint32_t place, const TierState& state) const {
  const Tier& tier = tiers_[place];
  const auto& held = state.held;
  return std::includes(tier.seen.begin(), tier.seen.end(), held.begin(), held.end()) &&
         std::includes(held.begin(), held.end(), tier.kept.begin(), tier.kept.end()) &&
         state.num_temporary_files <= tier.num_faults_of_remove;
}

bool Ledger::is_promoted(std::uint32_t key) const {
  return std::any_of(promotions_.begin(), promotions_.end(),
                     [&](const Promotion& promotion) { return promotion.key == key; }) ||
         std::any_of(jobs_.begin(), jobs_.end(), [&](const Transfer& job) {
           return job.promotion && count(job.keys, key) > 0;
         });
}

bool Ledger::is_cascaded(std::uint32_t key) const {
  return std::any_of(jobs_.begin(), jobs_.end(), [&](const Transfer& job) {
    return !job.promotion && count(job.keys, key) > 0;
  });
}

bool Ledger::is_at_rest() const {
  const auto is_idle = [](const eviction::Entry& block) {
    return block.ready && block.readers == 0;
  };
  const eviction::Ledger& cache = primary_.cache();
  return jobs_.empty() && promotions_.empty() &&
         std::all_of(cache.t1().begin(), cache.t1().end(), is_idle) &&
         std::all_of(cache.t2().begin(), cache.t2().end(), is_idle);
}

std::uint32_t Ledger::num_loads(std::uint32_t key) const {
  std::uint32_t num_readers = primary_.cache().find(key)->readers;
  for (const Transfer& job : jobs_) {
    if (!job.promotion) num_readers -= count(job.keys, key);
  }
  return num_readers;
}

ErrorCode Ledger::refusal(const PrepareLoad& command) const {
  return primary_.refusal(offload::PrepareLoad{command.keys});
}

ErrorCode Ledger::refusal(const CompleteLoad& command) const {
  for (std::uint32_t key : command.keys) {
    if (primary_.cache().find(key) == nullptr) return ErrorCode::kUnknownKey;
  }
  const bool all_loaded =
      std::all_of(command.keys.begin(), command.keys.end(),
                  [&](std::uint32_t key) { return count(command.keys, key) <= num_loads(key); });
  return all_loaded ? ErrorCode::kNone : ErrorCode::kNotReading;
}

ErrorCode Ledger::refusal(const PrepareStore& command) const {
  return primary_.refusal(offload::PrepareStore{command.keys});
}

ErrorCode Ledger::refusal(const CompleteStore& command) const {
  const Keys& keys = command.keys;
  const auto is_absent = [&](std::uint32_t key) { return primary_.cache().find(key) == nullptr; };
  if (command.success && std::any_of(keys.begin(), keys.end(), is_absent)) {
    return ErrorCode::kUnknownKey;
  }
  const bool any_promoted =
      std::any_of(keys.begin(), keys.end(), [&](std::uint32_t key) { return is_promoted(key); });
  return any_promoted ? ErrorCode::kNotReady : ErrorCode::kNone;
}

ErrorCode Ledger::refusal(const OnNewRequest& command) const {
  for (std::uint32_t tier : command.request_level) {
    if (tier >= tiers_.size()) return ErrorCode::kNotInConfig;
  }
  return ErrorCode::kNone;
}

ErrorCode Ledger::refusal_of_tier(std::uint32_t tier) const {
  return tier < tiers_.size() ? ErrorCode::kNone : ErrorCode::kNotInConfig;
}

ErrorCode Ledger::refusal_of_files(std::uint32_t tier) const {
  return tier < tiers_.size() && tiers_[tier].has_files ? ErrorCode::kNone
                                                        : ErrorCode::kNotInConfig;
}

ErrorCode Ledger::refusal(const TierFaults& command) const {
  const ErrorCode refused = refusal_of_files(command.tier);
  if (refused != ErrorCode::kNone) return refused;
  const bool all_can_be = std::all_of(command.faults.begin(), command.faults.end(),
                                      [](const Fault& fault) { return file_fault_of(fault); });
  return all_can_be ? ErrorCode::kNone : ErrorCode::kBadRange;
}

void Ledger::run(const Lookup& command, Expected& expected) {
  LookupResult& result = expected.result.emplace(LookupResult::kMiss);
  if (const eviction::Entry* block = primary_.cache().find(command.key)) {
    result = block->ready ? LookupResult::kHit : LookupResult::kPending;
    return;
  }
  for (std::uint32_t place = 0; place < tiers_.size(); ++place) {
    TierCallRecord& asked = call("lookup", place, command.request, expected);
    asked.keys = {command.key};
    Tier& tier = tiers_[place];
    if (std::uint32_t& times = tier.ask_again[command.key]; times > 0) {
      --times;
      asked.answer = "pending";
      result = LookupResult::kPending;
      continue;
    }
    asked.answer = tier.held.count(command.key) > 0 ? "hit" : "miss";
    if (!tier.is_exact) {
      const std::string* const shown = shown_answer("lookup", place);
      const bool may_hit = tier.seen.count(command.key) > 0 && tier.lost.count(command.key) == 0 &&
                           tier.torn.count(command.key) == 0;
      asked.answer = may_hit && shown && *shown == "hit" ? "hit" : "miss";
    }
    if (asked.answer == "miss") continue;
    const offload::PrepareStore store{{command.key}};
    const auto plan = primary_.plan(store);
    result = plan ? LookupResult::kPending : LookupResult::kMiss;
    if (!plan) return;
    primary_.apply(store);
    promotions_.push_back({command.key, place, command.request, plan->slots.front()});
    return;
  }
}

void Ledger::run(const Touch& command, Expected& expected) {
  primary_.apply(eviction::Touch{command.keys});
  tell_all("touch", command.request, command.keys, expected);
}

void Ledger::run(const PrepareLoad& command, Expected& expected) {
  std::vector<SlotId>& slots = expected.slots.emplace();
  for (std::uint32_t key : command.keys) slots.push_back(primary_.cache().find(key)->slot);
  primary_.apply(offload::PrepareLoad{command.keys});
}

void Ledger::run(const CompleteLoad& command, Expected&) {
  primary_.apply(offload::CompleteLoad{command.keys});
}

void Ledger::run(const PrepareStore& command, Expected& expected) {
  const offload::PrepareStore store{command.keys};
  expected.plan = primary_.plan(store);
  expected.stored = expected.plan.has_value();
  if (!expected.plan) return;
  expected.slots = expected.plan->slots;
  primary_.apply(store);
  Keys ready;
  for (std::uint32_t key : command.keys) {
    if (primary_.cache().find(key)->ready) ready.push_back(key);
  }
  const auto wanted = request_level_.find(command.request);
  if (ready.empty() || wanted == request_level_.end()) return;
  for (std::uint32_t tier : wanted->second) cascade(tier, ready, command.request, expected);
}

void Ledger::run(const CompleteStore& command, Expected& expected) {
  primary_.apply(offload::CompleteStore{command.keys, command.success});
  if (!command.success) return;
  for (std::uint32_t tier = 0; tier < tiers_.size(); ++tier) {
    cascade(tier, command.keys, command.request, expected);
  }
}

void Ledger::run(const OnNewRequest& command, Expected& expected) {
  for (std::uint32_t tier = 0; tier < tiers_.size(); ++tier) {
    const bool wants = count(command.request_level, tier) > 0;
    call("on_new_request", tier, command.request, expected).answer =
        wants ? "request_level" : "block_level";
    if (wants) request_level_[command.request].insert(tier);
  }
  expected.request_level = request_level_.count(command.request) > 0;
}

void Ledger::run(const OnRequestFinished& command, Expected& expected) {
  tell_all("on_request_finished", command.request, {}, expected);
  request_level_.erase(command.request);
}

void Ledger::run(const OnScheduleEnd&, Expected& expected) {
  has_polled_ = false;
  for (Transfer& group : pending()) {
    group.job = next_job_++;
    TierCallRecord& submitted = call("submit_load", group.tier, group.request, expected);
    submitted.job = group.job;
    submitted.keys = group.keys;
    submitted.slots = group.slots;
    tiers_[group.tier].jobs[*group.job] = {/*is_load=*/true, group.keys};
    jobs_.push_back(std::move(group));
  }
  promotions_.clear();
  tell_all("on_schedule_end", {}, {}, expected);
}

void Ledger::run(const TierFinish& command, Expected&) {
  Tier& tier = tiers_[command.tier];
  Finished finished{command.job, command.success, /*is_tried=*/false, std::nullopt, std::nullopt};
  const auto found = tier.jobs.find(command.job);
  if (found != tier.jobs.end()) {
    const Keys& keys = found->second.keys;
    if (command.success && found->second.is_load && tier.has_files) {
      const auto is_held = [&](std::uint32_t key) { return tier.held.count(key) > 0; };
      finished.success = std::all_of(keys.begin(), keys.end(), is_held);
      finished.is_tried = true;
      if (keys.size() == 1 && !tier.is_lied_to) finished.load_of = keys.front();
    } else if (command.success && !found->second.is_load) {
      tier.held.insert(keys.begin(), keys.end());
      for (std::uint32_t key : keys) see_file(tier, key);
      finished.is_tried = tier.has_files;
      if (tier.has_files) finished.must = must_be_stored(command.tier, keys);
    }
    tier.jobs.erase(found);
  } else if (has_files()) {
    return;
  }
  tier.finished.push_back(std::move(finished));
}

/// Something was done to a key's file, or tried to be: what became of loads before says nothing.
void Ledger::see_file(Tier& tier, std::uint32_t key) {
  tier.seen.insert(key);
  tier.lost.erase(key);
  tier.torn.erase(key);
  for (Finished& finished : tier.finished) {
    if (finished.load_of == key) finished.load_of.reset();
  }
}

void Ledger::run(const TierAskAgain& command, Expected&) {
  tiers_[command.tier].ask_again[command.key] = command.times;
}

void Ledger::run(const TierAdd& command, Expected&) {
  Tier& tier = tiers_[command.tier];
  tier.held.insert(command.keys.begin(), command.keys.end());
  for (std::uint32_t key : command.keys) see_file(tier, key);
}

void Ledger::run(const TierDrop& command, Expected&) {
  for (std::uint32_t key : command.keys) {
    tiers_[command.tier].held.erase(key);
    tiers_[command.tier].kept.erase(key);
  }
}

void Ledger::run(const TierFaults& command, Expected&) {
  Tier& tier = tiers_[command.tier];
  tier.is_exact = false;
  for (const Fault& fault : command.faults) {
    tier.num_faults_of_remove += fault.operation == FileOperation::kRemove;
    tier.ends_early |= fault.operation == FileOperation::kRead &&
                       fault.fails_with == FileError::kNone && fault.num_bytes == 0;
    tier.is_lied_to |= fault.fails_with == FileError::kENOENT;
  }
}

void Ledger::run(const TierDamage& command, Expected&) {
  Tier& tier = tiers_[command.tier];
  tier.is_exact = false;
  see_file(tier, command.key);
  tier.damaged.insert(command.key);
  tier.kept.erase(command.key);
  const bool is_size =
      command.damage == FileDamage::kTruncate || command.damage == FileDamage::kGrow;
  if (is_size) tier.torn.insert(command.key);
}

}  // namespace kvfence::tiering
