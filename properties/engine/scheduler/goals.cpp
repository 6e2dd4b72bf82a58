/// The coverage goals of scheduler runs. A suite in which no request was preempted has not tested
/// preemption.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "contract/core/lists.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "properties/core/invariant_values.h"
#include "properties/engine/shown_requests.h"
#include "properties/kv_cache/arithmetic.h"

namespace kvfence::engine::scheduler {
namespace {

constexpr Goal kGoals[] = {
    {"crowd", "a step had more than 32 requests"},
    {"chunk", "a step computed a part of a prompt"},
    {"threshold_cut", "a part was as long as long_prefill_token_threshold"},
    {"two_steps_in_flight", "a step was planned before the one before it came back"},
    {"paused_new", "a request waited because new ones are paused"},
    {"paused_all", "a step was empty because all is paused"},
    {"nothing_to_compute", "a running request was passed over, since all its tokens are planned"},
    {"outputs_planned", "a running request was passed over, since its last output is planned"},
    {"model_length_cut", "max_model_len left a running request fewer tokens than it wanted"},
    {"drafts_sent", "a step had speculative tokens"},
    {"drafts_cut", "a step had fewer drafts than the request"},
    {"preempted_fcfs", "a request was preempted under fcfs"},
    {"preempted_priority", "a request was preempted under priority"},
    {"victim_scheduled", "a preempted request gave tokens of the same step back to the budget"},
    {"victim_shifts_loop",
     "a preempted request without tokens came before the one being scheduled"},
    {"self_victim", "a request preempted itself, since no other was left"},
    {"preempted_in_flight", "a preempted request had a step in flight"},
    {"resumed", "a preempted request ran again"},
    {"all_token_ids", "a running request had not been in the step before"},
    {"common_prefix", "several running requests share their first blocks"},
    {"hit_at_admission", "a new request found blocks"},
    {"hit_at_resume", "a resumed request found blocks"},
    {"priority_overtakes", "a request was admitted before an earlier one, by priority"},
    {"no_room_to_run", "admission ended at max_num_seqs"},
    {"blocks_stop_admission", "admission ended, since too few blocks were free"},
    {"gate_stops_admission", "admission ended although a first part would have fitted"},
    {"budget_stops_admission", "admission ended at a prompt that may not be cut"},
    {"reserve_stops_admission", "a load waited for what prefills still need"},
    {"never_fits", "a request ended because it does not fit into the empty pool"},
    {"grammar_skipped", "a request was passed over until its grammar was compiled"},
    {"grammar_promoted", "a request went on with its grammar"},
    {"ask_again", "the connector wanted to be asked again"},
    {"sync_load", "tokens were loaded within a step"},
    {"async_load", "a request waits while it is loaded"},
    {"load_promoted", "a loaded request went on"},
    {"load_of_preempted", "a load of a request that was preempted before went on"},
    {"hit_before_load_of_groups", "with several groups tokens were loaded after a hit"},
    {"drafts_of_loaded", "a request whose tokens were loaded took drafts"},
    {"load_under_eagle", "tokens were loaded with eagle"},
    {"load_under_mamba_align", "tokens were loaded with a Mamba group in align mode"},
    {"last_token_recomputed", "everything was loaded, so the last token is computed again"},
    {"drafts_all_accepted", "every draft of a request was right"},
    {"drafts_some_accepted", "some drafts of a request were right"},
    {"drafts_rejected", "no draft of a request was right"},
    {"stop_within_drafts", "a request stopped before its last accepted token"},
    {"stopped_by_eos", "a request ended at its eos token"},
    {"stopped_by_token", "a request ended at a stop token"},
    {"kept_going", "min_tokens kept a request from stopping"},
    {"stopped_by_max_tokens", "a request ended at max_tokens"},
    {"stopped_by_model_length", "a request ended at max_model_len"},
    {"stopped_while_preempted", "a request ended by a step from before its preemption"},
    {"output_while_preempted", "a preempted request took a token"},
    {"stale_output", "a step's output for a request was dropped"},
    {"output_of_finished", "the step of a request that had ended came back"},
    {"load_failed_partly", "some loaded blocks of a waiting request stayed valid"},
    {"load_failed_wholly", "no loaded block of a waiting request stayed valid"},
    {"load_failed_for_good", "a failed load ended a waiting request"},
    {"running_cut_back", "an invalid block cut a running request back"},
    {"running_failed_for_good", "an invalid block ended a running request"},
    {"shared_block_kept", "an earlier request computed a shared invalid block again"},
    {"invalid_blocks_evicted", "a key of an invalid block was removed"},
    {"held", "the connector kept the blocks of a request that ended"},
    {"held_freed", "held blocks were freed by finished_sending"},
    {"aborted_load_freed", "the load of a request that had ended was over"},
    {"aborted_waiting", "a waiting request was ended from outside"},
    {"aborted_in_flight", "a running request with a step in flight was ended from outside"},
    {"aborted_preempted_in_flight",
     "a preempted request with a step in flight was ended from outside"},
    {"aborted_while_loading", "a request was ended from outside while it was loading"},
    {"aborted_after_load", "a request was ended from outside between load and promotion"},
    {"aborted_while_held", "a held request was ended again"},
    {"drafts_taken", "a request took drafts"},
    {"drafts_ignored", "a request took no drafts, since its prompt was not computed yet"},
    {"reset_done", "a reset took keys"},
    {"reset_refused", "a reset did not succeed"},
    {"running_reset", "a reset preempted running requests"},
    {"reset_in_flight", "a reset preempted a request with a step in flight"},
    {"connector_reset", "the connector's cache was reset"},
    {"connector_reset_failed", "the connector's cache could not be reset"},
};

bool loads(const RequestState& request) {
  return request.status == RequestStatus::kWaitingForRemoteKVs;
}

/// The first call of a method about a request; null if there is none.
const ConnectorCall* find_call(const Observation& observation, std::string_view method,
                               const std::string& name) {
  const std::vector<ConnectorCall>& calls = observation.connector_calls.or_empty();
  const auto at = std::ranges::find_if(calls, [&](const ConnectorCall& call) {
    return call.method == method && call.request == name;
  });
  return at == calls.end() ? nullptr : &*at;
}

/// Tokens that the connector loads for a request that is admitted.
std::uint32_t num_external_tokens(const Observation& observation, const std::string& name) {
  const auto* call = find_call(observation, "update_state_after_alloc", name);
  return call ? call->num_tokens : 0;
}

/// Whether the pool has a key of one of the prompt's blocks.
bool may_hit(const Observation& observation, const World& world, const std::string& name) {
  const Request* request = world.requests().find(name);
  const auto hashes = request->block_hashes(world.requests().config().hash_block_size);
  for (std::size_t index = 0; index < hashes.size(); ++index) {
    const BlockHash hash(hashes[index]);
    for (const BlockHash& key : *observation.keys) {
      if (key.compare(0, hash.size(), hash) == 0) return true;
    }
  }
  return false;
}

/// The tokens that each request of a step samples.
std::size_t num_sampled(const Update& update, const ScheduledRequest& scheduled) {
  if (const auto* sample = find_by(update.samples, &Sample::request, scheduled.request)) {
    return sample->tokens.size();
  }
  if (!scheduled.samples) return 0;
  return 1 + std::min<std::size_t>(update.accepted, scheduled.spec_tokens.size());
}

class Counter : public GoalCounter<EngineTarget, kGoals> {
 public:
  using GoalCounter::GoalCounter;

  /// Refused commands count, too: their observations may show that a load is over.
  void count_any(const Command&) {
    if (!has_state(before())) return;
    std::erase_if(reported_, [this](const std::string& name) {
      const RequestState* const state = find_state(before(), name);
      return !state || !loads(*state);
    });
  }

  void count(const AddRequest& command) { added_[command.id] = command; }
  void count(const SetPauseState& command) { pause_state_ = command.state; }

  void count(const Schedule&) {
    const Step& scheduled = *after().scheduled;
    const std::vector<std::string>& preempted = *after().preempted;
    add("crowd", scheduled.size() > 32);
    for (const ScheduledRequest& each : scheduled) {
      add("chunk", !each.samples);
      add("threshold_cut",
          !each.samples && each.num_tokens == config_.long_prefill_token_threshold);
      add("drafts_sent", !each.spec_tokens.empty());
      add("sync_load", num_external_tokens(after(), each.request) > 0);
    }
    for (const ScheduledCached& cached : *after().cached_reqs) {
      add("resumed", cached.resumed);
      add("all_token_ids", cached.all_token_ids && !cached.resumed);
    }
    const std::vector<std::uint32_t>& common = *after().common_prefix;
    add("common_prefix",
        after().num_running > 1 && std::ranges::any_of(common, [](auto n) { return n > 0; }));
    add("paused_new", pause_state_ == PauseState::kPausedNew && after().num_waiting > 0 &&
                          after().num_running < config_.max_num_seqs);
    add("paused_all", pause_state_ == PauseState::kPausedAll && after().num_running > 0);
    const bool is_fcfs = config_.policy == SchedulingPolicy::kFCFS;
    add(is_fcfs ? Name("preempted_fcfs") : Name("preempted_priority"), !preempted.empty());
    add("self_victim", !preempted.empty() && after().num_running == 0);
    for (const std::string& name : preempted) add("preempted_in_flight", is_in_flight(name));
    add("never_fits", after().never_fits.has_value());
    for (const ConnectorCall& call : after().connector_calls.or_empty()) {
      add("ask_again", call.answer == "again");
    }
    add("two_steps_in_flight", !in_flight_.empty());
    const bool admits = preempted.empty() && pause_state_ == PauseState::kUnpaused;
    if (has_state(after()) && admits) count_end_of_admission();
    if (has_state(before()) && has_state(after())) {
      if (pause_state_ != PauseState::kPausedAll) count_running();
      count_first_victim();
      count_admissions();
      count_blocked();
    }
    in_flight_.push_back(scheduled);
  }

  void count(const Update& command) {
    if (in_flight_.empty()) return;
    const bool has_states = has_state(before()) && has_state(after());
    // The step counts as in flight while its output is processed.
    for (const ScheduledRequest& scheduled : in_flight_.front()) {
      const std::size_t num_tokens = num_sampled(command, scheduled);
      if (!scheduled.spec_tokens.empty() && num_tokens > 0) count_drafts(scheduled, num_tokens);
      const auto* output = find_by(*after().outputs, &RequestOutput::request, scheduled.request);
      const RequestState* request = has_states ? find_state(before(), scheduled.request) : nullptr;
      if (output && !output->tokens.empty()) {
        count_stop(added_.at(scheduled.request), request, *output, num_tokens);
      }
      if (!has_states) continue;
      const bool is_gone = !request || is_finished(request->status);
      add("output_of_finished", is_gone);
      add("stale_output", !is_gone && num_tokens > 0 && !output && command.invalid_blocks.empty());
    }
    if (has_states && !command.invalid_blocks.empty()) count_invalid_blocks(command);
    add("held_freed", !command.finished_sending.empty());
    if (has_states) count_reports(command);
    in_flight_.pop_front();
  }

  void count(const FinishRequests& command) {
    if (!has_state(before()) || !has_state(after())) return;
    for (const RequestState& was : *before().requests) {
      if (!contains(command.requests, was.id)) continue;
      const bool in_flight = is_in_flight(was.id);
      const bool is_preempted = was.status == RequestStatus::kPreempted;
      const bool is_reported = reported_.count(was.id) > 0;
      add("aborted_waiting", was.status == RequestStatus::kWaiting);
      add("aborted_in_flight", in_flight && was.status == RequestStatus::kRunning);
      add("aborted_preempted_in_flight", in_flight && is_preempted);
      add("aborted_while_loading", loads(was) && !is_reported);
      add("aborted_after_load", loads(was) && is_reported);
      add("aborted_while_held", is_finished(was.status));
      count_finished(was);
    }
  }

  void count(const FinishAllRequests& command) {
    if (!has_state(before())) return;
    FinishRequests all{{}, {}, command.status};
    for (const RequestState& request : *before().requests) all.requests.push_back(request.id);
    count(all);
  }

  void count(const UpdateDraftTokenIds& command) {
    if (!has_state(after()) || command.tokens.empty()) return;
    const RequestState* request = find_state(after(), command.request);
    if (!request || is_finished(request->status)) return;
    add(request->spec_tokens.empty() ? Name("drafts_ignored") : Name("drafts_taken"));
    add("drafts_of_loaded", !request->spec_tokens.empty() && loaded_.contains(command.request));
  }

  void count(const ResetPrefixCache& command) {
    add("reset_refused", !*after().success);
    const bool resets_running = command.reset_running_requests && before().num_running > 0;
    add("running_reset", resets_running);
    for (const ConnectorCall& call : after().connector_calls.or_empty()) {
      if (call.method != "reset_cache") continue;
      add(call.answer == "done" ? Name("connector_reset") : Name("connector_reset_failed"));
    }
    if (!has_state(before()) || !has_state(after())) return;
    const auto is_cached = [](const BlockHash& key) { return !key.empty(); };
    add("reset_done", std::ranges::any_of(*before().keys, is_cached) &&
                          std::ranges::none_of(*after().keys, is_cached));
    add("reset_in_flight",
        resets_running && std::ranges::any_of(*before().running, [&](const std::string& name) {
          return is_in_flight(name);
        }));
  }

 private:
  bool is_in_flight(const std::string& name) const { return num_tokens_in_flight(name) > 0; }

  std::uint32_t num_tokens_in_flight(const std::string& name) const {
    std::uint32_t num_tokens = 0;
    for (const Step& step : in_flight_) {
      const auto* scheduled = find_by(step, &ScheduledRequest::request, name);
      if (scheduled) num_tokens += scheduled->num_tokens;
    }
    return num_tokens;
  }

  /// Whether a running request gets no tokens for any budget.
  bool is_passed_over(const RequestState& request) const {
    const AddRequest& added = added_.at(request.id);
    const std::uint64_t num_computed = request.num_computed_tokens;
    const std::uint64_t num_placeholders = request.num_output_placeholders;
    const bool is_planned =
        num_placeholders > 0 && num_computed + 2 >= std::uint64_t{added.max_tokens} +
                                                        added.tokens.size() + num_placeholders;
    return is_planned ||
           num_computed >= request.num_tokens + request.spec_tokens.size() + num_placeholders ||
           num_computed + 1 >= config_.kv_cache.max_model_len;
  }

  void count_running() {
    for (const std::string& name : *before().running) {
      if (!contains(*after().running, name)) continue;
      const RequestState& request = *find_state(before(), name);
      const auto* scheduled = find_by(*after().scheduled, &ScheduledRequest::request, name);
      const std::uint64_t num_wanted = std::uint64_t{request.num_tokens} +
                                       request.spec_tokens.size() + request.num_output_placeholders;
      const std::uint64_t num_reached =
          request.num_computed_tokens + (scheduled ? scheduled->num_tokens : 0);
      if (!scheduled && is_passed_over(request)) {
        const bool wants_more = num_wanted > request.num_computed_tokens;
        const bool is_at_end = num_reached + 1 >= config_.kv_cache.max_model_len;
        add("nothing_to_compute", !wants_more);
        add("outputs_planned", wants_more && !is_at_end);
      }
      add("model_length_cut",
          num_wanted > num_reached && num_reached + 1 == config_.kv_cache.max_model_len);
      add("drafts_cut", scheduled && scheduled->spec_tokens.size() < request.spec_tokens.size());
    }
  }

  /// Counts if the first victim had been visited when it was preempted: no request before it took a
  /// block or was preempted, so none of them preempted it, and a request after it ran.
  void count_first_victim() {
    if (after().preempted->empty() || config_.mamba_split_block_size()) return;
    const std::string& victim = after().preempted->front();
    bool stands_before = true;
    bool ran_after = false;
    for (const std::string& name : *before().running) {
      if (name == victim) {
        stands_before = false;
        continue;
      }
      const auto* cached = find_by(*after().cached_reqs, &ScheduledCached::request, name);
      if (stands_before &&
          (contains(*after().preempted, name) || (cached && cached->blocks.has_value())))
        return;
      ran_after = ran_after || (!stands_before && cached);
    }
    if (!ran_after) return;
    const bool got_nothing = is_passed_over(*find_state(before(), victim));
    add(got_nothing ? Name("victim_shifts_loop") : Name("victim_scheduled"));
  }

  void count_admissions() {
    const auto found_blocks = [&](const std::string& name, std::uint32_t num_computed) {
      const RequestState* request = find_state(before(), name);
      return request && request->num_computed_tokens == 0 &&
             num_computed > num_external_tokens(after(), name);
    };
    for (const ScheduledNew& each : *after().new_reqs) {
      const bool has_hit = found_blocks(each.request, each.num_computed_tokens);
      const bool is_loaded = num_external_tokens(after(), each.request) > 0;
      add("hit_at_admission", has_hit);
      add("hit_before_load_of_groups", has_hit && is_loaded && config().groups.size() > 1);
      add("load_under_eagle", is_loaded && config().use_eagle);
      add("load_under_mamba_align", is_loaded && config_.mamba_split_block_size().has_value());
      if (is_loaded) loaded_.insert(each.request);
    }
    for (const ScheduledCached& each : *after().cached_reqs) {
      add("hit_at_resume", each.resumed && found_blocks(each.request, each.num_computed_tokens));
    }
    if (config_.policy != SchedulingPolicy::kPriority) return;
    bool waits = false;
    for (const RequestState& request : *after().requests) {
      waits = waits || contains(*after().waiting, request.id);
      const bool is_new = find_by(*after().new_reqs, &ScheduledNew::request, request.id) != nullptr;
      add("priority_overtakes", waits && is_new);
    }
  }

  /// Free blocks that suffice for so many tokens of a request without blocks.
  std::uint64_t blocks_needed(std::uint64_t num_tokens) const {
    std::uint64_t num_blocks = 0;
    for (const KVCacheSpec& spec : config_.kv_cache.groups) {
      num_blocks +=
          kv_cache::blocks_for(num_tokens + config_.num_lookahead_tokens(), spec.block_size);
      if (!spec.is_full_attention()) num_blocks += spec.num_speculative_blocks + 1;
    }
    return num_blocks;
  }

  /// Counts why the first waiting request was not admitted, if observations show it: requests
  /// visited before it were blocked for reasons of their own.
  void count_end_of_admission() {
    std::uint32_t num_left = config_.token_budget();
    for (const ScheduledRequest& each : *after().scheduled) num_left -= each.num_tokens;
    if (num_left == 0 || after().waiting->empty() || after().never_fits.has_value()) return;
    if (after().num_running == config_.max_num_seqs) {
      add("no_room_to_run");
      return;
    }
    for (const std::string& name : *after().skipped_waiting) {
      const RequestStatus status = find_state(after(), name)->status;
      const auto* asked = find_call(after(), "get_num_new_matched_tokens", name);
      const bool is_blocked = status == RequestStatus::kWaitingForGrammar ||
                              status == RequestStatus::kWaitingForRemoteKVs ||
                              (asked && asked->answer == "again");
      if (!is_blocked) return;
    }
    const RequestState& head = *find_state(after(), after().waiting->front());
    std::uint32_t chunk = std::min(head.num_tokens, num_left);
    if (config_.long_prefill_token_threshold > 0) {
      chunk = std::min(chunk, config_.long_prefill_token_threshold);
    }
    const std::uint64_t num_free =
        std::uint64_t{after().num_empty_blocks} + after().num_cached_blocks;
    const bool fits_whole = num_free >= blocks_needed(head.num_tokens);
    const auto* asked = find_call(after(), "get_num_new_matched_tokens", head.id);
    const bool would_load = asked && asked->answer.find("async") != std::string::npos;
    if (!fits_whole) {
      const bool fits_chunk =
          num_free >= blocks_needed(chunk) && !may_hit(after(), world(), head.id);
      const bool is_gate = config_.scheduler_reserve_full_isl && fits_chunk && !would_load;
      add(is_gate ? Name("gate_stops_admission") : Name("blocks_stop_admission"));
    } else if (would_load) {
      add("reserve_stops_admission");
    } else {
      add("budget_stops_admission",
          !config_.enable_chunked_prefill && !config_.mamba_split_block_size());
    }
  }

  /// Counts requests that waited for a load or a grammar.
  void count_blocked() {
    for (const RequestState& now : *after().requests) {
      const RequestState* was = find_state(before(), now.id);
      if (!was) continue;
      add("async_load", loads(now) && !loads(*was));
      if (loads(*was) && !loads(now)) {
        add("load_promoted");
        loaded_.insert(now.id);
        add("load_of_preempted", was->num_preemptions > 0);
        add("last_token_recomputed", was->num_computed_tokens == was->num_tokens);
      }
      if (was->status != RequestStatus::kWaitingForGrammar) continue;
      const bool still_waits = now.status == RequestStatus::kWaitingForGrammar;
      add("grammar_skipped", still_waits && !after().scheduled->empty());
      add("grammar_promoted", !still_waits);
    }
  }

  void count_drafts(const ScheduledRequest& scheduled, std::size_t num_sampled) {
    const std::size_t num_accepted = num_sampled - 1;
    if (num_accepted == 0) {
      add("drafts_rejected");
    } else {
      add(num_accepted == scheduled.spec_tokens.size() ? Name("drafts_all_accepted")
                                                       : Name("drafts_some_accepted"));
    }
  }

  void count_stop(const AddRequest& added, const RequestState* before, const RequestOutput& output,
                  std::size_t num_sampled) {
    const bool is_over = is_finished(output.status);
    add("stop_within_drafts", is_over && output.tokens.size() < num_sampled);
    add("stopped_by_token", output.stop_reason.has_value());
    add("stopped_by_eos", output.status == RequestStatus::kFinishedStopped && !output.stop_reason);
    const bool has_stop = std::ranges::any_of(output.tokens, [&](TokenId token) {
      return token == added.eos_token_id || contains(added.stop_token_ids, token);
    });
    add("kept_going", has_stop && !is_over);
    if (!before) return;
    const bool was_preempted = before->status == RequestStatus::kPreempted;
    add(is_over ? Name("stopped_while_preempted") : Name("output_while_preempted"), was_preempted);
    if (output.status != RequestStatus::kFinishedLengthCapped) return;
    const std::size_t num_tokens = before->num_tokens + output.tokens.size();
    const bool has_all = num_tokens - added.tokens.size() == added.max_tokens;
    add(has_all ? Name("stopped_by_max_tokens") : Name("stopped_by_model_length"));
  }

  void count_invalid_blocks(const Update& command) {
    const std::uint32_t block_size = config_.kv_cache.groups.front().block_size;
    for (const RequestState& was : *before().requests) {
      const bool is_running = was.status == RequestStatus::kRunning;
      const auto* table = find_by(*before().tables, &RequestBlocks::request, was.id);
      if ((!is_running && !loads(was)) || !table) continue;
      const std::uint32_t num_planned = num_tokens_in_flight(was.id);
      // Tokens of steps from before a reset no longer count as planned.
      if (num_planned > was.num_computed_tokens) continue;
      const std::uint32_t num_computed = was.num_computed_tokens - num_planned;
      const std::uint32_t num_blocks = kv_cache::blocks_for(num_computed, block_size);
      const std::vector<BlockId>& blocks = table->blocks.front();
      bool is_affected = false;
      for (std::size_t index = 0; index < std::min<std::size_t>(num_blocks, blocks.size());
           ++index) {
        is_affected = is_affected || contains(command.invalid_blocks, blocks[index]);
      }
      if (!is_affected) continue;
      const auto* output = find_by(*after().outputs, &RequestOutput::request, was.id);
      if (output && output->status == RequestStatus::kFinishedError) {
        add(is_running ? Name("running_failed_for_good") : Name("load_failed_for_good"));
      }
      const RequestState* now = find_state(after(), was.id);
      if (!now || is_finished(now->status)) continue;
      const std::uint32_t num_valid = now->num_computed_tokens;
      if (is_running) {
        add(num_valid == num_computed ? Name("shared_block_kept") : Name("running_cut_back"));
      } else if (num_valid < num_computed) {
        add(num_valid > 0 ? Name("load_failed_partly") : Name("load_failed_wholly"));
      }
    }
    for (BlockId block : command.invalid_blocks) {
      add("invalid_blocks_evicted",
          !(*before().keys)[block].empty() && (*after().keys)[block].empty());
    }
  }

  void count_reports(const Update& command) {
    for (const RequestState& was : *before().requests) {
      const bool is_reported = contains(command.finished_recving, was.id);
      if (is_reported && loads(was)) reported_.insert(was.id);
      add("aborted_load_freed", is_reported && is_finished(was.status));
      count_finished(was);
    }
  }

  /// Counts a request that ended and keeps its blocks.
  void count_finished(const RequestState& before) {
    const RequestState* now = find_state(after(), before.id);
    add("held", now && is_finished(now->status) && !is_finished(before.status) && !loads(before));
  }

  using Step = std::vector<ScheduledRequest>;

  const SchedulerConfig& config_ = setup().scheduler();
  PauseState pause_state_ = PauseState::kUnpaused;
  std::unordered_map<std::string, AddRequest> added_;
  std::deque<Step> in_flight_;      ///< oldest first
  std::set<std::string> reported_;  ///< still waiting, but the load was reported as finished
  std::set<std::string> loaded_;    ///< requests whose tokens were loaded
};

}  // namespace

GoalSuite goals() { return goal_suite<EngineTarget, kGoals, Counter>(); }

}  // namespace kvfence::engine::scheduler
