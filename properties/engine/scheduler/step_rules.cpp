#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "properties/engine/scheduler/rule_parts.h"
#include "properties/engine/scheduler/rules.h"
#include "properties/kv_cache/arithmetic.h"

namespace kvfence::engine::scheduler {

using namespace detail;  // NOLINT: the other parts of this class

namespace {

const BlockLists* told_blocks(const ScheduledCached& entry) {
  return entry.blocks.has_value() ? &*entry.blocks : nullptr;
}

}  // namespace

std::optional<Divergence> Invariants::check_schedule(Answer& answer) {
  if (auto found = check_told(answer)) return found;
  books_.begin_step();
  num_scheduled_ = 0;
  num_new_ = 0;
  num_cached_ = 0;
  budget_ = books_.pause_state == PauseState::kPausedAll ? 0 : config_.token_budget();
  queue_before_step();
  if (auto found = check_victims(answer)) return found;
  if (auto found = check_running_part(answer)) return found;
  may_admit_ = answer.shown.preempted->empty() && budget_ > 0 &&
               books_.pause_state == PauseState::kUnpaused &&
               books_.running.size() < config_.max_num_seqs;
  for (RequestNumber number : books_.there) {
    Track& track = books_.tracks[number];
    track.may_be_promoted =
        track.may_be_promoted || (may_admit_ && track.is_blocked() && track.is_ready());
  }
  if (auto found = find_attempts(answer)) return found;
  if (auto found = check_admissions(answer)) return found;
  return check_end_of_step(answer);
}

std::optional<Divergence> Invariants::check_told(const Answer& answer) {
  const std::vector<std::string>& shown = *answer.shown.finished;
  const std::vector<RequestNumber>& owed = books_.finished;
  const bool is_told = std::equal(owed.begin(), owed.end(), shown.begin(), shown.end(),
                                  [this](RequestNumber number, const std::string& name) {
                                    return books_.tracks[number].name == name;
                                  });
  if (is_told) {
    books_.finished.clear();
    return std::nullopt;
  }
  std::vector<std::string> expected;
  for (RequestNumber number : owed) expected.push_back(books_.tracks[number].name);
  return broken(kS18, "finished", expected, shown, answer.world);
}

/// The waiting requests in the order in which a step looks at them.
void Invariants::queue_before_step() {
  queue_order_.clear();
  if (!books_.waiting_is_known) return;
  queue_order_ = books_.skipped_waiting;
  queue_order_.insert(queue_order_.end(), books_.waiting.begin(), books_.waiting.end());
  if (config_.policy == SchedulingPolicy::kFCFS) return;
  std::sort(queue_order_.begin(), queue_order_.end(),
            [this](RequestNumber a, RequestNumber b) { return books_.precedes(a, b); });
}

std::optional<Divergence> Invariants::check_victims(const Answer& answer) {
  const std::vector<std::string>& shown = *answer.shown.preempted;
  for (std::size_t at = 0; at < shown.size(); ++at) {
    const std::string place = "preempted[" + std::to_string(at) + "]";
    if (books_.running.empty()) {
      return broken_values(kS17, place, Value(), to_value(shown[at]), answer.world);
    }
    const RequestNumber victim = books_.victim_of(books_.running);
    if (books_.tracks[victim].name != shown[at]) {
      return broken(kS17, place, books_.tracks[victim].name, shown[at], answer.world);
    }
    books_.preempt(victim);
  }
  return std::nullopt;
}

// ---- Running requests. ----

std::optional<Divergence> Invariants::check_running_part(const Answer& answer) {
  const auto& scheduled = *answer.shown.scheduled;
  // Tokens that a victim gave back were not there yet for requests before it, and none may have
  // been looked at behind it.
  const bool is_exact =
      config_.policy == SchedulingPolicy::kFCFS || answer.shown.preempted->empty();
  std::size_t place = 0;
  const auto pass_over = [&](std::size_t end) -> Found {
    for (; is_exact && place < end; ++place) {
      const RequestNumber number = books_.running[place];
      if (books_.num_wanted_tokens(number, budget_) == 0) continue;
      return broken_phrase(kS13, "scheduled", books_.tracks[number].name + " among them", scheduled,
                           answer.world);
    }
    place = end;
    return std::nullopt;
  };
  for (; num_scheduled_ < scheduled.size(); ++num_scheduled_) {
    const World::Entry* entry = answer.world.find(scheduled[num_scheduled_].request);
    const auto from = books_.running.begin() + static_cast<std::ptrdiff_t>(place);
    const auto at =
        entry ? std::find(from, books_.running.end(), entry->number) : books_.running.end();
    if (at == books_.running.end()) break;
    if (auto found = pass_over(static_cast<std::size_t>(at - books_.running.begin()))) return found;
    if (auto found = check_running_entry(entry->number, is_exact, answer)) return found;
    ++place;
  }
  return pass_over(books_.running.size());
}

std::optional<Divergence> Invariants::check_running_entry(RequestNumber number, bool is_exact,
                                                          const Answer& answer) {
  const ScheduledRequest& entry = (*answer.shown.scheduled)[num_scheduled_];
  Track& track = books_.tracks[number];
  const auto member = [&](std::string_view name) {
    return member_of("scheduled", num_scheduled_, name);
  };
  const std::uint32_t wanted = books_.num_wanted_tokens(number, budget_);
  const bool fits =
      is_exact ? entry.num_tokens == wanted : entry.num_tokens > 0 && entry.num_tokens <= wanted;
  if (!fits || wanted == 0) {
    return broken(kS13, member("num_tokens"), wanted, entry.num_tokens, answer.world);
  }
  const std::int64_t end = std::int64_t{track.num_computed_tokens} + entry.num_tokens;
  const std::int64_t known = std::int64_t{track.num_tokens()} + track.num_output_placeholders;
  const auto num_drafts =
      std::clamp<std::int64_t>(end - known, 0, static_cast<std::int64_t>(track.spec_tokens.size()));
  if (!std::equal(track.spec_tokens.begin(), track.spec_tokens.begin() + num_drafts,
                  entry.spec_tokens.begin(), entry.spec_tokens.end())) {
    const std::vector<TokenId> drafts(track.spec_tokens.begin(),
                                      track.spec_tokens.begin() + num_drafts);
    return broken(kS13, member("spec_tokens"), drafts, entry.spec_tokens, answer.world);
  }
  const bool samples = end >= known;
  if (entry.samples != samples) {
    return broken(kS13, member("samples"), samples, entry.samples, answer.world);
  }
  if (auto found = check_cached_entry(number, /*resumed=*/false, answer)) return found;
  track.spec_tokens.clear();
  budget_ -= entry.num_tokens;
  const std::uint32_t num_slots =
      track.num_computed_tokens + entry.num_tokens + config_.num_lookahead_tokens();
  slots_.push_back({number, num_slots, /*is_admission=*/false});
  track.change = TableChange::kGrows;
  books_.plan({number, entry.num_tokens, static_cast<std::uint32_t>(num_drafts), samples});
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_cached_entry(RequestNumber number, bool resumed,
                                                         const Answer& answer) {
  const auto& list = *answer.shown.cached_reqs;
  const std::size_t at = num_cached_++;
  Track& track = books_.tracks[number];
  if (at >= list.size()) {
    return broken_phrase(kS16, "cached_reqs", track.name + " among them", list, answer.world);
  }
  const ScheduledCached& entry = list[at];
  const auto member = [&](std::string_view name) { return member_of("cached_reqs", at, name); };
  if (entry.request != track.name) {
    return broken(kS16, member("request"), track.name, entry.request, answer.world);
  }
  if (entry.resumed != resumed) {
    return broken(kS16, member("resumed"), resumed, entry.resumed, answer.world);
  }
  const bool is_new_to_worker = track.last_step == 0 || track.last_step != books_.step_before;
  if (entry.all_token_ids != is_new_to_worker) {
    return broken(kS16, member("all_token_ids"), is_new_to_worker, entry.all_token_ids,
                  answer.world);
  }
  if (!resumed && entry.num_computed_tokens != track.num_computed_tokens) {
    return broken(kS16, member("num_computed_tokens"), track.num_computed_tokens,
                  entry.num_computed_tokens, answer.world);
  }
  const std::uint32_t num_outputs = track.num_output_tokens() + track.num_output_placeholders;
  if (entry.num_output_tokens != num_outputs) {
    return broken(kS16, member("num_output_tokens"), num_outputs, entry.num_output_tokens,
                  answer.world);
  }
  track.told_blocks = told_blocks(entry);
  track.is_told_whole = resumed;
  return std::nullopt;
}

// ---- Waiting requests. ----

/// What the calls of the connector say of attempts to admit requests. Without one, each admission
/// is an attempt that succeeded.
std::optional<Divergence> Invariants::find_attempts(Answer& answer) {
  attempts_.clear();
  if (!has_connector_) {
    for (std::size_t at = num_scheduled_; at < answer.shown.scheduled->size(); ++at) {
      const World::Entry* entry = answer.world.find((*answer.shown.scheduled)[at].request);
      if (!entry) break;
      attempts_.push_back({.number = entry->number, .is_allocated = true});
    }
    return std::nullopt;
  }
  if (!answer.shown.connector_calls.has_value()) return std::nullopt;
  const auto& calls = *answer.shown.connector_calls;
  for (; answer.next_call < calls.size(); ++answer.next_call) {
    const ConnectorCallRecord& call = calls[answer.next_call];
    const bool is_lookup = call.method == "get_num_new_matched_tokens";
    const bool is_told = call.method == "update_state_after_alloc";
    if (!is_lookup && !is_told) break;
    const std::string name = "connector_calls[" + std::to_string(answer.next_call) + "]";
    const World::Entry* entry = answer.world.find(call.request);
    if (!entry || entry->number >= books_.tracks.size()) {
      return broken_phrase(kS25, name, "a request that is there", call.request, answer.world);
    }
    if (is_lookup) {
      const bool is_repeated =
          std::any_of(attempts_.begin(), attempts_.end(),
                      [&](const Attempt& attempt) { return attempt.number == entry->number; });
      if (is_repeated) {
        return broken_phrase(kS25, name, "one lookup a request and step", call.request,
                             answer.world);
      }
      Attempt& attempt = attempts_.emplace_back();
      attempt.number = entry->number;
      attempt.was_asked = true;
      attempt.again = call.answer == "again";
      attempt.load_async = call.answer.find("async") != std::string::npos;
      attempt.num_local_tokens = call.num_tokens;
      std::from_chars(call.answer.data(), call.answer.data() + call.answer.size(),
                      attempt.num_external_tokens);
      continue;
    }
    const bool is_asked = !attempts_.empty() && attempts_.back().number == entry->number &&
                          attempts_.back().was_asked && !attempts_.back().is_allocated &&
                          !attempts_.back().again;
    if (!is_asked) attempts_.push_back({.number = entry->number});
    Attempt& attempt = attempts_.back();
    attempt.is_allocated = true;
    attempt.blocks = &call.blocks;
    if (call.num_tokens != attempt.num_external_tokens) {
      return broken(kS25, member_of("connector_calls", answer.next_call, "num_tokens"),
                    attempt.num_external_tokens, call.num_tokens, answer.world);
    }
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_may_be_admitted(RequestNumber number,
                                                            const Answer& answer) const {
  const Track& track = books_.tracks[number];
  const auto wrong = [&](std::string_view expected) {
    return broken_phrase(kS14, "scheduled", expected, track.name, answer.world);
  };
  if (books_.pause_state != PauseState::kUnpaused) return wrong("nobody: admission is paused");
  if (!answer.shown.preempted->empty()) return wrong("nobody: there are victims");
  if (!track.is_unfinished() || track.status == RequestStatus::kRunning) {
    return wrong("a request that waits");
  }
  if (track.skipped_step == books_.num_steps || !track.is_ready()) {
    return wrong("a request that nothing blocks");
  }
  if (!may_admit_ || budget_ == 0 || books_.running.size() >= config_.max_num_seqs) {
    return wrong("nobody: there is no room");
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_admissions(const Answer& answer) {
  const RequestNumber* last_looked_at = nullptr;
  for (std::size_t at = 0; at < attempts_.size(); ++at) {
    const Attempt& attempt = attempts_[at];
    if (auto found = check_may_be_admitted(attempt.number, answer)) return found;
    Track& track = books_.tracks[attempt.number];
    last_looked_at = &attempt.number;
    if (track.is_blocked()) books_.promote(attempt.number);
    // A request of which something is computed is not asked about again, and every other one is.
    const bool is_fresh = track.num_computed_tokens == 0;
    if (has_connector_ && attempt.was_asked != is_fresh) {
      return broken_phrase(kS25, "connector_calls",
                           is_fresh ? "a lookup of " + track.name : "no lookup of " + track.name,
                           *answer.shown.connector_calls, answer.world);
    }
    if (attempt.was_asked) {
      if (auto found = check_local_hit(attempt.number, attempt.num_local_tokens, answer)) {
        return found;
      }
      count_lookup(attempt);
    }
    if (attempt.again) {
      track.skipped_step = books_.num_steps;
      continue;
    }
    if (!attempt.is_allocated) {
      if (at + 1 == attempts_.size()) break;
      return broken_phrase(kS14, "connector_calls", "an end of admission behind " + track.name,
                           books_.tracks[attempts_[at + 1].number].name, answer.world);
    }
    if (attempt.load_async) {
      take_in_load(attempt, answer);
    } else if (auto found = check_admission(attempt, answer)) {
      return found;
    }
  }
  const auto& scheduled = *answer.shown.scheduled;
  if (num_scheduled_ < scheduled.size()) {
    const std::string& name = scheduled[num_scheduled_].request;
    if (!has_connector_ || !answer.world.find(name)) {
      return broken_phrase(kS14, "scheduled", "requests that wait", name, answer.world);
    }
    if (auto found = check_may_be_admitted(answer.world.find(name)->number, answer)) return found;
    return broken_phrase(kS25, "connector_calls", "update_state_after_alloc of " + name,
                         static_cast<std::uint32_t>(attempts_.size()), answer.world);
  }
  if (num_new_ < answer.shown.new_reqs->size() || num_cached_ < answer.shown.cached_reqs->size()) {
    return broken_phrase(kS16,
                         num_new_ < answer.shown.new_reqs->size() ? "new_reqs" : "cached_reqs",
                         "requests of the step", scheduled, answer.world);
  }
  return check_turn(last_looked_at, answer);
}

std::optional<Divergence> Invariants::check_local_hit(RequestNumber number,
                                                      std::uint32_t num_hit_tokens,
                                                      const Answer& answer) const {
  const Track& track = books_.tracks[number];
  const bool reads = config_.kv_cache.pool.enable_caching && !track.skip_reading_prefix_cache;
  const std::uint32_t most = reads ? track.num_tokens() - 1 : 0;
  const std::string field = "hit of " + track.name;
  if (num_hit_tokens > most) return broken(kS19, field, most, num_hit_tokens, answer.world);
  if (num_hit_tokens % config_.kv_cache.scheduler_block_size() == 0) return std::nullopt;
  return broken_phrase(kS19, field, "a multiple of every group's block size", num_hit_tokens,
                       answer.world);
}

void Invariants::count_lookup(const Attempt& attempt) {
  const Track& track = books_.tracks[attempt.number];
  const bool was_preempted = track.num_preemptions > 0;
  const auto count = [&](PrefixCacheStats& stats, std::uint32_t queries, std::uint32_t hits) {
    (was_preempted ? stats.preempted_requests : stats.requests) += 1;
    (was_preempted ? stats.preempted_queries : stats.queries) += queries;
    (was_preempted ? stats.preempted_hits : stats.hits) += hits;
  };
  const std::uint32_t num_local = attempt.num_local_tokens;
  if (config_.kv_cache.pool.enable_caching && !track.skip_reading_prefix_cache) {
    count(books_.stats, track.num_tokens(), num_local);
  }
  if (attempt.was_asked && attempt.is_allocated) {
    count(books_.connector_stats, track.num_tokens() - num_local, attempt.num_external_tokens);
  }
}

void Invariants::set_aliasing(const Attempt& attempt, const Observation& shown) {
  const bool may_alias = attempt.num_local_tokens > 0 && attempt.num_external_tokens > 0;
  books_.tracks[attempt.number].aliasing = !may_alias                 ? Aliasing::kNone
                                           : shown.tables.has_value() ? Aliasing::kShown
                                                                      : Aliasing::kUnknown;
}

void Invariants::take_in_load(const Attempt& attempt, const Answer& answer) {
  Track& track = books_.tracks[attempt.number];
  books_.start_load(attempt.number, attempt.num_local_tokens, attempt.num_external_tokens);
  const Rules& rules = config_.kv_cache.pool.rules;
  const bool looks_ahead = rules.lookahead_at_admission && !config_.kv_cache.use_eagle;
  set_aliasing(attempt, answer.shown);
  track.change = TableChange::kBegins;
  track.told_blocks = attempt.blocks;
  track.is_told_whole = true;
  const std::uint32_t num_lookahead = looks_ahead ? config_.num_lookahead_tokens() : 0;
  slots_.push_back(
      {attempt.number, track.num_computed_tokens + num_lookahead, /*is_admission=*/true});
  hits_.push_back({attempt.number, attempt.num_local_tokens});
}

std::optional<Divergence> Invariants::check_admission(const Attempt& attempt,
                                                      const Answer& answer) {
  const World& world = answer.world;
  const auto& scheduled = *answer.shown.scheduled;
  Track& track = books_.tracks[attempt.number];
  if (num_scheduled_ >= scheduled.size() || scheduled[num_scheduled_].request != track.name) {
    return broken_phrase(kS16, "scheduled[" + std::to_string(num_scheduled_) + "]", track.name,
                         scheduled, world);
  }
  const ScheduledRequest& entry = scheduled[num_scheduled_];
  const auto member = [&](std::string_view name) {
    return member_of("scheduled", num_scheduled_, name);
  };

  // What is told of it.
  std::uint32_t shown_computed = 0;
  std::string computed_field;
  const bool resumed = track.status == RequestStatus::kPreempted;
  if (resumed) {
    const std::size_t at = num_cached_;
    if (auto found = check_cached_entry(attempt.number, resumed, answer)) return found;
    shown_computed = (*answer.shown.cached_reqs)[at].num_computed_tokens;
    computed_field = member_of("cached_reqs", at, "num_computed_tokens");
  } else {
    const std::size_t at = num_new_++;
    const auto& list = *answer.shown.new_reqs;
    if (at >= list.size() || list[at].request != track.name) {
      return broken_phrase(kS16, "new_reqs[" + std::to_string(at) + "]", track.name, list, world);
    }
    shown_computed = list[at].num_computed_tokens;
    computed_field = member_of("new_reqs", at, "num_computed_tokens");
    track.told_blocks = &list[at].blocks;
    track.is_told_whole = true;
  }

  // What is computed of it.
  const bool is_fresh = track.num_computed_tokens == 0;
  if (is_fresh && !has_connector_) {
    if (auto found = check_local_hit(attempt.number, shown_computed, answer)) return found;
    Attempt with_hit = attempt;
    with_hit.num_local_tokens = shown_computed;
    count_lookup(with_hit);
  } else {
    const std::uint32_t computed = is_fresh ? attempt.num_local_tokens + attempt.num_external_tokens
                                            : track.num_computed_tokens;
    if (shown_computed != computed) {
      return broken(kS16, computed_field, computed, shown_computed, world);
    }
  }
  if (shown_computed >= track.num_tokens()) {
    return broken_phrase(kS19, computed_field, "fewer than the request has", shown_computed, world);
  }
  if (attempt.blocks && track.told_blocks && !(*attempt.blocks == *track.told_blocks)) {
    return broken(kS25, "connector_calls", *track.told_blocks, *attempt.blocks, world);
  }

  // What it gets.
  std::uint32_t wanted = track.num_tokens() - shown_computed;
  const std::uint32_t threshold = config_.long_prefill_token_threshold;
  if (threshold > 0) wanted = std::min(wanted, threshold);
  if (!config_.enable_chunked_prefill && wanted > budget_) {
    return broken_phrase(kS14, "scheduled", "no part of a prompt", track.name, world);
  }
  wanted = books_.split_at_blocks(track, shown_computed, std::min(wanted, budget_));
  if (entry.num_tokens != wanted || wanted == 0) {
    return broken(kS13, member("num_tokens"), wanted, entry.num_tokens, world);
  }
  if (!entry.spec_tokens.empty()) {
    return broken(kS13, member("spec_tokens"), std::vector<TokenId>(), entry.spec_tokens, world);
  }
  const bool samples =
      shown_computed + wanted >= track.num_tokens() + track.num_output_placeholders;
  if (entry.samples != samples) {
    return broken(kS13, member("samples"), samples, entry.samples, world);
  }

  const bool looks_ahead = !is_fresh || config_.kv_cache.pool.rules.lookahead_at_admission;
  const std::uint32_t num_lookahead = looks_ahead ? config_.num_lookahead_tokens() : 0;
  slots_.push_back(
      {attempt.number, shown_computed + wanted + num_lookahead, /*is_admission=*/true});
  if (is_fresh) {
    const std::uint32_t num_local = has_connector_ ? attempt.num_local_tokens : shown_computed;
    hits_.push_back({attempt.number, num_local});
    set_aliasing(attempt, answer.shown);
    track.change = TableChange::kBegins;
  } else {
    track.change = TableChange::kGrows;
  }
  books_.admit(attempt.number);
  track.num_computed_tokens = shown_computed;
  track.is_prefill_under_way = shown_computed + wanted < track.num_tokens();
  books_.plan({attempt.number, wanted, 0, samples});
  budget_ -= wanted;
  ++num_scheduled_;
  return std::nullopt;
}

/// Whether the request would fit with its whole length beside everything else.
bool Invariants::surely_fits(const Track& track, const Observation& shown) const {
  const KVCacheManagerConfig& kv_cache = config_.kv_cache;
  // A load may have to leave room for others; Mamba waits for a state of the same step.
  if (has_connector_ && kv_cache.pool.rules.reserve_for_prefills) return false;
  if (!config_.enable_chunked_prefill && track.num_tokens() > budget_) return false;
  if (kv_cache::hit_may_overshoot(kv_cache)) return false;
  std::uint32_t num_needed = 0;
  for (const KVCacheSpec& spec : kv_cache.groups) {
    if (spec.kind == KVCacheSpecKind::kMamba) return false;
    const std::uint32_t num_tokens = track.num_tokens() + config_.num_lookahead_tokens();
    num_needed += kv_cache::blocks_for(num_tokens, spec.block_size);
  }
  return num_needed <= shown.num_empty_blocks + shown.num_cached_blocks;
}

/// Whoever stands before the last that was looked at has a reason to wait, and so has the first
/// behind it while there is budget and a seat.
std::optional<Divergence> Invariants::check_turn(const RequestNumber* last_looked_at,
                                                 const Answer& answer) const {
  if (!may_admit_) return std::nullopt;
  bool is_behind = last_looked_at == nullptr;
  for (RequestNumber number : queue_order_) {
    const Track& track = books_.tracks[number];
    const bool was_tried = !is_behind && number == *last_looked_at;
    is_behind = is_behind || was_tried;
    const bool came_in = track.status == RequestStatus::kRunning;
    if (came_in || track.skipped_step == books_.num_steps || !track.is_ready()) continue;
    if (!is_behind) {
      return broken(kS14, "scheduled", track.name, books_.tracks[*last_looked_at].name,
                    answer.world);
    }
    // Here admission ended. Where the connector is asked first, that shows.
    const bool has_room = budget_ > 0 && books_.running.size() < config_.max_num_seqs;
    const bool is_passed_by = has_connector_ && track.num_computed_tokens == 0 && !was_tried;
    if (!has_room || (!is_passed_by && !surely_fits(track, answer.shown))) return std::nullopt;
    return broken_values(kS26, "scheduled", phrase(track.name + " among them"),
                         to_value(*answer.shown.scheduled), answer.world);
  }
  return std::nullopt;
}

// ---- The end of a step. ----

std::optional<Divergence> Invariants::check_end_of_step(Answer& answer) {
  const Observation& shown = answer.shown;
  books_.step_before = books_.num_steps;
  if (has_connector_) {
    const std::size_t at = answer.next_call;
    if (auto found = check_call("build_connector_meta", "", answer)) return found;
    std::uint32_t total = 0;
    for (const ScheduledRequest& entry : *shown.scheduled) total += entry.num_tokens;
    const std::uint32_t told = (*shown.connector_calls)[at].num_tokens;
    if (told != total) {
      return broken(kS25, member_of("connector_calls", at, "num_tokens"), total, told,
                    answer.world);
    }
  }
  return check_never_fits(answer);
}

std::optional<Divergence> Invariants::check_never_fits(Answer& answer) {
  const Observation& shown = answer.shown;
  const bool is_idle = shown.num_referenced_blocks == num_base_blocks();
  // Who was the last victim with nothing left that holds a block was its own.
  const bool has_victims = !shown.preempted->empty();
  const auto could_start = [&](const Track& track) {
    return track.is_unfinished() && track.is_ready() && track.skipped_step != books_.num_steps &&
           (has_victims ? track.name == shown.preempted->back() : may_admit_);
  };
  if (shown.never_fits.has_value()) {
    const std::string& name = *shown.never_fits;
    const World::Entry* entry = answer.world.find(name);
    if (!is_idle || !entry || !could_start(books_.tracks[entry->number])) {
      return broken_values(kS26, "never_fits", Value(), to_value(name), answer.world);
    }
    return check_finish(entry->number, RequestStatus::kFinishedError, /*is_held=*/false, answer);
  }
  // Steps without tokens come to this: each has a victim, and none comes in beside it. A request
  // may run on null blocks alone, where its window is that small.
  if (!is_idle || !books_.running.empty()) return std::nullopt;
  for (RequestNumber number : books_.there) {
    const Track& track = books_.tracks[number];
    if (!could_start(track)) continue;
    return broken_values(kS26, "never_fits", phrase(track.name + ", or its admission"), Value(),
                         answer.world);
  }
  return std::nullopt;
}

}  // namespace kvfence::engine::scheduler
