#include "properties/engine/scheduler/rules.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "contract/core/check.h"
#include "properties/engine/refusals.h"
#include "properties/engine/scheduler/rule_parts.h"
#include "properties/kv_cache/arithmetic.h"

namespace kvfence::engine::scheduler {

using namespace detail;  // NOLINT: the other parts of this class

namespace {

bool all_known(const std::vector<std::string>& names, const World& world) {
  return std::all_of(names.begin(), names.end(),
                     [&](const std::string& name) { return world.find(name) != nullptr; });
}

const Sample* sample_of(const Update& command, const std::string& name) {
  for (const Sample& sample : command.samples) {
    if (sample.request == name) return &sample;
  }
  return nullptr;
}

std::vector<std::uint32_t> numbers_of_stats(const PrefixCacheStats& stats) {
  std::vector<std::uint32_t> numbers;
  for (std::uint64_t number :
       {std::uint64_t{stats.reset}, stats.requests, stats.queries, stats.hits,
        stats.preempted_requests, stats.preempted_queries, stats.preempted_hits}) {
    numbers.push_back(static_cast<std::uint32_t>(number));
  }
  return numbers;
}

/// Whether these are the blocks that a request still has at its end: what no group needs any more
/// was dropped before.
bool are_blocks_of(const Track& track, const BlocksByGroup& blocks) {
  if (blocks.size() != track.table.size()) return false;
  for (std::size_t group = 0; group < blocks.size(); ++group) {
    const std::vector<BlockId>& before = track.table[group];
    if (track.change == TableChange::kEnds) {
      if (!blocks[group].empty()) return false;
      continue;
    }
    const bool is_same =
        std::equal(blocks[group].begin(), blocks[group].end(), before.begin(), before.end(),
                   [](BlockId now, BlockId then) { return now == then || now == kNullBlockId; });
    if (!is_same) return false;
  }
  return true;
}

/// How a request ends at the last of its tokens, if it does.
std::optional<RequestStatus> stop_status(const Track& track, std::uint32_t num_tokens,
                                         TokenId last_token, std::uint32_t max_model_len) {
  const std::uint32_t num_output_tokens = num_tokens - track.num_prompt_tokens;
  if (num_output_tokens < track.min_tokens) return std::nullopt;
  if (last_token == track.eos_token || contains(track.stop_tokens, last_token)) {
    return RequestStatus::kFinishedStopped;
  }
  if (num_tokens >= max_model_len || num_output_tokens >= track.max_tokens) {
    return RequestStatus::kFinishedLengthCapped;
  }
  return std::nullopt;
}

}  // namespace

Invariants::Invariants(const EngineSetup& setup)
    : setup_(setup),
      config_(setup.scheduler()),
      has_connector_(setup.is_scripted),
      num_sinks_(kv_cache::num_sink_blocks(config_.kv_cache)),
      books_(config_),
      block_tables_(config_.kv_cache) {
  reset();
}

void Invariants::reset() {
  books_.reset();
  is_lost_ = false;
  block_tables_.reset();
  mirror_.clear();
  numbers_were_seen_ = false;
  state_was_seen_ = false;
}

std::optional<Divergence> Invariants::check(const Command& command, const Observation& observation,
                                            const World& world, std::size_t step) {
  Answer answer{command, observation, world};
  const bool has_state = observation.requests.has_value();
  for (RequestNumber number : books_.there) {
    books_.tracks[number].change = TableChange::kStays;
    books_.tracks[number].told_blocks = nullptr;
  }
  evicted_.clear();
  slots_.clear();
  hits_.clear();
  may_admit_ = false;

  Found found;
  const ErrorCode expected = expected_error(answer);
  if (!is_lost_ && observation.error != expected) {
    found = broken(kS1, "error", expected, observation.error, world);
  }
  if (!found) found = check_present(answer);
  if (!found && has_state) found = check_blocks(answer);
  if (!found) found = check_answer(answer);
  if (!found) found = check_numbers(answer);
  if (!found && has_state && !is_lost_) found = check_state(answer);
  if (found) {
    found->step = step;
    return found;
  }
  remember(answer);
  return std::nullopt;
}

// ---- Refusals. ----

ErrorCode Invariants::expected_error(const Answer& answer) const {
  const World& world = answer.world;
  if (const auto foreign = kvfence::detail::refusal_of_foreign(answer.command, setup_, world))
    return *foreign;
  if (const auto* added = std::get_if<AddRequest>(&answer.command)) {
    return kvfence::detail::refusal_of_request(*added, setup_, world);
  } else if (std::holds_alternative<Schedule>(answer.command)) {
    const bool is_full = books_.num_in_flight == config_.max_concurrent_batches;
    return is_full ? ErrorCode::kStepsInFlight : ErrorCode::kNone;
  } else if (const auto* update = std::get_if<Update>(&answer.command)) {
    return expected_update_error(*update, answer);
  } else if (const auto* ended = std::get_if<FinishRequests>(&answer.command)) {
    if (!all_known(ended->requests, world)) return ErrorCode::kUnknownRequest;
    return is_finished(ended->status) ? ErrorCode::kNone : ErrorCode::kBadRange;
  } else if (const auto* all_ended = std::get_if<FinishAllRequests>(&answer.command)) {
    return is_finished(all_ended->status) ? ErrorCode::kNone : ErrorCode::kBadRange;
  }
  return ErrorCode::kNone;
}

ErrorCode Invariants::expected_update_error(const Update& command, const Answer& answer) const {
  const World& world = answer.world;
  for (const Sample& sample : command.samples) {
    if (!world.find(sample.request)) return ErrorCode::kUnknownRequest;
  }
  if (!all_known(command.finished_recving, world) || !all_known(command.finished_sending, world)) {
    return ErrorCode::kUnknownRequest;
  }
  if (books_.num_in_flight == 0) return ErrorCode::kNoStepInFlight;
  std::size_t num_named = 0;
  bool fits = true;
  for (const Planned& planned : books_.oldest_step()) {
    const Sample* sample = sample_of(command, books_.tracks[planned.number].name);
    if (!sample) continue;
    ++num_named;
    const std::size_t size = sample->tokens.size();
    fits = fits && (planned.samples ? size >= 1 && size <= 1 + planned.num_spec_tokens : size == 0);
  }
  if (!fits || num_named != command.samples.size()) return ErrorCode::kWrongTokenCount;

  const std::vector<BlockId>& blocks = command.invalid_blocks;
  const std::vector<std::string>& received = command.finished_recving;
  const std::vector<std::string>& sent = command.finished_sending;
  if (received.empty() && sent.empty() && blocks.empty()) return ErrorCode::kNone;
  if (!has_connector_) return ErrorCode::kNotInConfig;
  if (!blocks.empty() && config_.kv_cache.groups.size() > 1) return ErrorCode::kSingleGroupOnly;
  const auto is_unknown = [&](BlockId block) {
    return block == kNullBlockId || block >= config_.kv_cache.pool.num_gpu_blocks;
  };
  if (std::any_of(blocks.begin(), blocks.end(), is_unknown)) return ErrorCode::kUnknownBlock;
  const auto repeats = [](const auto& list, const auto& element) {
    return std::count(list.begin(), list.end(), element) > 1;
  };
  for (BlockId block : blocks) {
    if (repeats(blocks, block)) return ErrorCode::kListedTwice;
  }
  for (const std::string& name : received) {
    if (repeats(received, name) || contains(sent, name)) return ErrorCode::kListedTwice;
  }
  for (const std::string& name : sent) {
    if (repeats(sent, name)) return ErrorCode::kListedTwice;
  }
  for (const std::string& name : received) {
    const Track& track = books_.tracks[world.find(name)->number];
    const bool is_loading = track.is_there && track.status == RequestStatus::kWaitingForRemoteKVs &&
                            !track.load_is_reported;
    if (!is_loading && !track.is_held()) return ErrorCode::kNotLoading;
  }
  for (const std::string& name : sent) {
    if (!books_.tracks[world.find(name)->number].is_held()) return ErrorCode::kNotFinished;
  }
  return ErrorCode::kNone;
}

// ---- Answers. ----

std::optional<Divergence> Invariants::check_present(const Answer& answer) const {
  const Observation& shown = answer.shown;
  const bool accepted = shown.error == ErrorCode::kNone;
  const bool planned = accepted && std::holds_alternative<Schedule>(answer.command);
  const bool updated = accepted && std::holds_alternative<Update>(answer.command);
  const bool was_reset = accepted && std::holds_alternative<ResetPrefixCache>(answer.command);
  Found found;
  const auto check_member = [&](std::string_view member, bool is_shown, bool wanted) {
    if (found || is_shown == wanted) return;
    found = broken_values(kS1, member, wanted ? phrase("an answer") : Value(),
                          wanted ? Value() : phrase("an answer"), answer.world);
  };
  check_member("scheduled", shown.scheduled.has_value(), planned);
  check_member("new_reqs", shown.new_reqs.has_value(), planned);
  check_member("cached_reqs", shown.cached_reqs.has_value(), planned);
  check_member("common_prefix", shown.common_prefix.has_value(), planned);
  check_member("preempted", shown.preempted.has_value(), planned);
  check_member("finished", shown.finished.has_value(), planned);
  check_member("new_block_ids", shown.new_block_ids.has_value(), planned);
  if (!planned) check_member("never_fits", shown.never_fits.has_value(), false);
  check_member("outputs", shown.outputs.has_value(), updated);
  check_member("events", shown.events.has_value(), updated);
  check_member("stats", shown.stats.has_value(), updated);
  check_member("connector_stats", shown.connector_stats.has_value(), updated);
  check_member("spec_stats", shown.spec_stats.has_value(), updated);
  check_member("success", shown.success.has_value(), was_reset);
  if (!has_connector_) {
    check_member("connector_calls", shown.connector_calls.has_value(), false);
  }
  return found;
}

std::optional<Divergence> Invariants::check_answer(Answer& answer) {
  const bool accepted = answer.shown.error == ErrorCode::kNone;
  Found found;
  if (const auto* added = std::get_if<AddRequest>(&answer.command)) {
    books_.add(*added, accepted, answer.world);
    if (accepted && config_.kv_cache.pool.rules.connector_learns_new_requests) {
      found = check_call("on_new_request", added->id, answer);
    }
  } else if (const auto* handed_over = std::get_if<HandOver>(&answer.command)) {
    books_.add_refused(handed_over->id, answer.world);
  } else if (const auto* paused = std::get_if<SetPauseState>(&answer.command)) {
    if (accepted) books_.pause_state = paused->state;
  } else if (is_lost_) {
    answer.next_call = kAllCalls;
  } else if (!accepted) {
    return check_no_more_calls(answer);
  } else if (std::holds_alternative<Schedule>(answer.command)) {
    found = check_schedule(answer);
  } else if (const auto* update = std::get_if<Update>(&answer.command)) {
    found = check_update(*update, answer);
  } else if (const auto* drafts = std::get_if<UpdateDraftTokenIds>(&answer.command)) {
    Track& track = books_.tracks[answer.world.find(drafts->request)->number];
    if (track.is_unfinished()) {
      track.spec_tokens = track.last_step_sampled ? drafts->tokens : std::vector<TokenId>();
    }
  } else if (const auto* compiled = std::get_if<GrammarCompiled>(&answer.command)) {
    books_.tracks[answer.world.find(compiled->request)->number].grammar_is_compiled = true;
  } else if (const auto* ended = std::get_if<FinishRequests>(&answer.command)) {
    numbers_.clear();
    for (const std::string& name : ended->requests) {
      numbers_.push_back(answer.world.find(name)->number);
    }
    found = check_finish_requests(numbers_, ended->status, answer);
  } else if (const auto* all_ended = std::get_if<FinishAllRequests>(&answer.command)) {
    numbers_ = books_.there;
    found = check_finish_requests(numbers_, all_ended->status, answer);
  } else if (const auto* cleared = std::get_if<ResetPrefixCache>(&answer.command)) {
    found = check_reset(*cleared, answer);
  }
  if (found) return found;
  return check_no_more_calls(answer);
}

std::optional<Divergence> Invariants::check_no_more_calls(const Answer& answer) const {
  if (!answer.shown.connector_calls.has_value()) return std::nullopt;
  const auto& calls = *answer.shown.connector_calls;
  if (answer.next_call >= calls.size()) return std::nullopt;
  return broken_phrase(kS25, "connector_calls[" + std::to_string(answer.next_call) + "]",
                       "no further call", calls[answer.next_call].method, answer.world);
}

std::optional<Divergence> Invariants::check_call(std::string_view method, std::string_view request,
                                                 Answer& answer) const {
  if (!has_connector_) return std::nullopt;
  const std::size_t at = answer.next_call++;
  const bool is_there =
      answer.shown.connector_calls.has_value() && at < answer.shown.connector_calls->size();
  const std::string name = "connector_calls[" + std::to_string(at) + "]";
  const std::string expected =
      std::string(method) + (request.empty() ? "" : " ") + std::string(request);
  if (!is_there) {
    return broken_values(kS25, name, phrase(expected), Value(), answer.world);
  }
  const ConnectorCallRecord& call = (*answer.shown.connector_calls)[at];
  if (call.method == method && call.request == request) return std::nullopt;
  const std::string shown = call.method + (call.request.empty() ? "" : " ") + call.request;
  return broken(kS25, name, expected, shown, answer.world);
}

std::optional<Divergence> Invariants::check_finish(RequestNumber number, RequestStatus status,
                                                   bool is_held, Answer& answer) {
  const Track& track = books_.tracks[number];
  if (has_connector_) {
    const std::size_t at = answer.next_call;
    if (auto found = check_call("request_finished", track.name, answer)) return found;
    const ConnectorCallRecord& call = (*answer.shown.connector_calls)[at];
    is_held = is_held || call.answer == "hold";
    if (state_was_seen_ && !are_blocks_of(track, call.blocks)) {
      BlockLists expected;
      if (track.change != TableChange::kEnds) {
        expected.assign(track.table.begin(), track.table.end());
      }
      return broken(kS25, member_of("connector_calls", at, "blocks"), expected, call.blocks,
                    answer.world);
    }
  }
  books_.finish(number, status, is_held);
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_finish_requests(
    const std::vector<RequestNumber>& numbers, RequestStatus status, Answer& answer) {
  for (RequestNumber number : numbers) {
    const Track& track = books_.tracks[number];
    if (!track.is_unfinished()) continue;
    const bool is_loading =
        track.status == RequestStatus::kWaitingForRemoteKVs && !track.load_is_reported;
    if (auto found = check_finish(number, status, is_loading, answer)) return found;
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_reset(const ResetPrefixCache& command, Answer& answer) {
  if (command.reset_running_requests) {
    while (!books_.running.empty()) books_.preempt_by_force(books_.running.back());
    books_.step_before = 0;
  }
  const Observation& shown = answer.shown;
  const bool pool_succeeds = shown.num_referenced_blocks == 1;
  books_.stats.reset = books_.stats.reset || pool_succeeds;
  bool success = pool_succeeds;
  if (command.reset_connector && (pool_succeeds || !command.reset_running_requests)) {
    if (has_connector_) {
      if (auto found = check_call("reset_cache", "", answer)) return found;
      success = success && !command.connector_fails;
      if (!command.connector_fails) {
        ++books_.num_connector_events;
        books_.connector_stats.reset = true;
      }
    } else {
      success = success && config_.kv_cache.pool.rules.reset_without_connector_succeeds;
    }
  }
  if (*shown.success != success) {
    return broken(kS31, "success", success, *shown.success, answer.world);
  }
  if (!pool_succeeds) return std::nullopt;
  if (shown.num_cached_blocks != 0) {
    return broken(kS31, "num_cached_blocks", 0U, shown.num_cached_blocks, answer.world);
  }
  return std::nullopt;
}

// ---- A step comes back. ----

std::optional<Divergence> Invariants::check_update(const Update& command, Answer& answer) {
  books_.spec_stats = {};
  books_.spec_stats.num_accepted_tokens_per_pos.assign(config_.num_speculative_tokens, 0);
  num_outputs_ = 0;
  if (!command.invalid_blocks.empty()) {
    if (!state_was_seen_) {
      is_lost_ = true;
      answer.next_call = kAllCalls;
      return std::nullopt;
    }
    fail_loads(command);
  } else {
    failed_.clear();
  }
  if (auto found = check_outputs(command, answer)) return found;
  books_.end_oldest_step();

  if (config_.kv_load_failure_policy == KVLoadFailurePolicy::kFail) {
    constexpr RequestStatus kError = RequestStatus::kFinishedError;
    for (RequestNumber number : failed_) {
      const Track& track = books_.tracks[number];
      const bool is_loading =
          track.status == RequestStatus::kWaitingForRemoteKVs && !track.load_is_reported;
      if (auto found = check_output(number, {}, kError, std::nullopt, answer)) return found;
      if (auto found = check_finish(number, kError, is_loading, answer)) return found;
    }
  }
  if (num_outputs_ < answer.shown.outputs->size()) {
    return broken_phrase(kS23, "outputs[" + std::to_string(num_outputs_) + "]", "no further output",
                         (*answer.shown.outputs)[num_outputs_].request, answer.world);
  }

  const bool has_reports = !command.finished_recving.empty() || !command.finished_sending.empty() ||
                           !command.invalid_blocks.empty();
  if (has_reports) {
    if (auto found = check_call("update_connector_output", "", answer)) return found;
  }
  for (const std::string& name : command.finished_recving) {
    const RequestNumber number = answer.world.find(name)->number;
    Track& track = books_.tracks[number];
    if (track.is_held()) {
      books_.remove(number);
    } else {
      track.load_is_reported = true;
    }
  }
  for (const std::string& name : command.finished_sending) {
    books_.remove(answer.world.find(name)->number);
  }
  if (auto found = check_events(answer)) return found;
  return check_stats(answer);
}

void Invariants::fail_loads(const Update& command) {
  failed_.clear();
  const bool fails = config_.kv_load_failure_policy == KVLoadFailurePolicy::kFail;
  const std::uint32_t block_size = config_.kv_cache.groups.front().block_size;
  is_listed_.assign(config_.kv_cache.pool.num_gpu_blocks, 0);
  constexpr std::uint8_t kInvalid = 1;
  constexpr std::uint8_t kTaken = 2;  // an earlier request of the pass computes it anew
  for (BlockId block : command.invalid_blocks) is_listed_[block] = kInvalid;

  const auto look_at = [&](RequestNumber number) {
    Track& track = books_.tracks[number];
    const bool is_running = track.status == RequestStatus::kRunning;
    const std::uint32_t computed = track.num_computed_tokens - books_.num_tokens_in_flight(number);
    const std::vector<BlockId>& blocks = track.table.front();
    const std::size_t num_blocks =
        std::min<std::size_t>(kv_cache::blocks_for(computed, block_size), blocks.size());
    std::optional<std::size_t> first_new;
    bool is_affected = false;
    for (std::size_t index = 0; index < num_blocks; ++index) {
      std::uint8_t& listed = is_listed_[blocks[index]];
      is_affected = is_affected || listed != 0;
      if (listed != kInvalid) continue;
      listed = kTaken;
      if (!first_new) first_new = index;
    }
    if (!is_affected) return;
    track.num_computed_tokens =
        first_new ? static_cast<std::uint32_t>(*first_new) * block_size : computed;
    if (is_running) {
      books_.mark_stale(number);
      if (config_.async_scheduling) track.spec_tokens.clear();
      if (fails && first_new) {
        evicted_.insert(evicted_.end(), blocks.begin() + static_cast<std::ptrdiff_t>(*first_new),
                        blocks.end());
      }
    } else {
      track.load_has_failed = !fails;
    }
    failed_.push_back(number);
  };
  for (RequestNumber number : books_.skipped_waiting) {
    if (books_.tracks[number].status == RequestStatus::kWaitingForRemoteKVs) look_at(number);
  }
  for (BlockId block : command.invalid_blocks) is_listed_[block] = kInvalid;
  for (RequestNumber number : books_.running) look_at(number);
}

std::optional<Divergence> Invariants::check_outputs(const Update& command, Answer& answer) {
  const std::uint32_t max_model_len = config_.kv_cache.max_model_len;
  for (const Planned& planned : books_.oldest_step()) {
    Track& track = books_.tracks[planned.number];
    if (!track.is_unfinished() || planned.is_stale || !planned.samples) continue;
    sampled_.clear();
    if (const Sample* sample = sample_of(command, track.name)) {
      sampled_ = sample->tokens;
    } else {
      sampled_.assign(1 + std::min(command.accepted, planned.num_spec_tokens), command.token);
    }
    if (config_.async_scheduling) {
      track.num_output_placeholders -= 1 + planned.num_spec_tokens;
    }
    if (planned.num_spec_tokens > 0) {
      const auto num_accepted = static_cast<std::uint32_t>(sampled_.size() - 1);
      if (track.num_computed_tokens > 0) {
        track.num_computed_tokens -= planned.num_spec_tokens - num_accepted;
      }
      SpecDecodingStats& stats = books_.spec_stats;
      ++stats.num_drafts;
      stats.num_draft_tokens += planned.num_spec_tokens;
      stats.num_accepted_tokens += num_accepted;
      for (std::uint32_t k = 0; k < num_accepted; ++k) ++stats.num_accepted_tokens_per_pos[k];
    }
    std::optional<RequestStatus> stopped;
    std::size_t num_kept = 0;
    while (!stopped && num_kept < sampled_.size()) {
      const TokenId token = sampled_[num_kept++];
      stopped = stop_status(track, track.num_tokens() + static_cast<std::uint32_t>(num_kept), token,
                            max_model_len);
    }
    sampled_.resize(num_kept);
    const TokenId last = sampled_.back();
    const bool at_stop_token =
        stopped == RequestStatus::kFinishedStopped && last != track.eos_token;
    const std::optional<TokenId> stop_reason =
        at_stop_token ? std::optional<TokenId>(last) : std::nullopt;
    if (auto found = check_output(planned.number, sampled_,
                                  stopped.value_or(RequestStatus::kRunning), stop_reason, answer)) {
      return found;
    }
    track.request->append_output_token_ids(sampled_);
    if (config_.async_scheduling && track.status == RequestStatus::kRunning) {
      track.num_cacheable_tokens = std::max(
          track.num_cacheable_tokens, track.num_computed_tokens - track.num_output_placeholders);
    }
    if (!stopped) continue;
    if (auto found = check_finish(planned.number, *stopped, /*is_held=*/false, answer)) {
      return found;
    }
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_output(RequestNumber number,
                                                   const std::vector<TokenId>& tokens,
                                                   RequestStatus status,
                                                   std::optional<TokenId> stop_reason,
                                                   const Answer& answer) {
  const auto& outputs = *answer.shown.outputs;
  const std::size_t at = num_outputs_++;
  const std::string& name = books_.tracks[number].name;
  if (at >= outputs.size()) {
    return broken_values(kS23, "outputs[" + std::to_string(at) + "]", phrase("one of " + name),
                         Value(), answer.world);
  }
  const RequestOutput& output = outputs[at];
  if (output.request != name) {
    return broken(kS23, member_of("outputs", at, "request"), name, output.request, answer.world);
  }
  if (output.tokens != tokens) {
    return broken(kS23, member_of("outputs", at, "tokens"), tokens, output.tokens, answer.world);
  }
  if (output.status != status) {
    return broken_values(kS24, member_of("outputs", at, "status"), kvfence::to_value(status),
                         kvfence::to_value(output.status), answer.world);
  }
  if (output.stop_reason != stop_reason) {
    return broken(kS24, member_of("outputs", at, "stop_reason"), stop_reason, output.stop_reason,
                  answer.world);
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_events(const Answer& answer) {
  const std::vector<KVCacheEvent>& events = *answer.shown.events;
  const std::uint32_t num_own = std::exchange(books_.num_connector_events, 0);
  const bool has_own = events.size() >= num_own &&
                       std::all_of(events.end() - num_own, events.end(), [](const auto& event) {
                         return std::holds_alternative<AllBlocksCleared>(event);
                       });
  if (!has_own) {
    return broken_phrase(kS9, "events", "the connector's at the end", events, answer.world);
  }
  const std::span<const KVCacheEvent> of_pool(events.data(), events.size() - num_own);
  std::optional<Mismatch> found = mirror_.take(of_pool, config_.kv_cache.pool);
  if (!found && answer.shown.keys.has_value()) {
    found = mirror_.compare(*answer.shown.keys, config_.kv_cache.pool);
  }
  if (!found) return std::nullopt;
  return broken_mismatch(kS9, std::move(*found), answer.world);
}

std::optional<Divergence> Invariants::check_stats(const Answer& answer) {
  const Observation& shown = answer.shown;
  const World& world = answer.world;
  constexpr std::size_t kNumStats = 7;
  if (shown.stats->size() != kNumStats) {
    return broken_phrase(kS1, "stats", "seven numbers", *shown.stats, world);
  }
  std::vector<std::uint32_t> expected = numbers_of_stats(books_.stats);
  if (!has_connector_) {
    // Attempts that failed are not shown: they may have looked up, and found, more.
    for (std::size_t at = 1; at < kNumStats; ++at) {
      const bool is_hits = at % 3 == 0;
      const bool may_be = config_.kv_cache.pool.enable_caching &&
                          (*shown.stats)[at] >= expected[at] &&
                          (!is_hits || (*shown.stats)[at] <= (*shown.stats)[at - 1]);
      if (may_be) expected[at] = (*shown.stats)[at];
    }
  }
  if (*shown.stats != expected) return broken(kS29, "stats", expected, *shown.stats, world);
  const std::vector<std::uint32_t> connector = numbers_of_stats(books_.connector_stats);
  if (*shown.connector_stats != connector) {
    return broken(kS29, "connector_stats", connector, *shown.connector_stats, world);
  }
  const SpecDecodingStats& spec = books_.spec_stats;
  expected = {spec.num_drafts, spec.num_draft_tokens, spec.num_accepted_tokens};
  expected.insert(expected.end(), spec.num_accepted_tokens_per_pos.begin(),
                  spec.num_accepted_tokens_per_pos.end());
  if (*shown.spec_stats != expected) {
    return broken(kS29, "spec_stats", expected, *shown.spec_stats, world);
  }
  books_.stats = {};
  books_.connector_stats = {};
  return std::nullopt;
}

}  // namespace kvfence::engine::scheduler
