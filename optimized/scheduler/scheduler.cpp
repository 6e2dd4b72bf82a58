#include "optimized/scheduler/scheduler.h"

#include <algorithm>

#include "contract/core/check.h"

namespace kvfence::optimized {

ErrorCode Scheduler::add_request(const NewRequest& new_request, RequestIndex& out) {
  if (state_.find(new_request.id)) return ErrorCode::kAlreadyDeclared;
  const std::uint64_t num_prompt_tokens = new_request.spec.tokens.size();
  if (num_prompt_tokens == 0 || new_request.max_tokens == 0) return ErrorCode::kNoTokens;
  if (new_request.min_tokens > new_request.max_tokens) return ErrorCode::kBadRange;
  const std::uint64_t max_model_len = config().kv_cache.max_model_len;
  if (num_prompt_tokens >= max_model_len ||
      num_prompt_tokens + new_request.min_tokens > max_model_len) {
    return ErrorCode::kBeyondModelLength;
  }
  out = state_.insert(new_request);
  if (new_request.needs_grammar) {
    state_.states[out].status = RequestStatus::kWaitingForGrammar;
    state_.push_skipped(out);
  } else {
    state_.push_waiting(out, /*at_front=*/false);
  }
  if (state_.connector && state_.rules().connector_learns_new_requests) {
    state_.connector->on_new_request(state_.connector_request(out));
  }
  return ErrorCode::kNone;
}

ErrorCode Scheduler::schedule(SchedulerOutput& out) {
  if (state_.steps_in_flight().size() == config().max_concurrent_batches) {
    return ErrorCode::kStepsInFlight;
  }
  schedule_step(state_, out);
  return ErrorCode::kNone;
}

ErrorCode Scheduler::update_from_output(const SchedulerOutput& scheduler_output,
                                        const ModelRunnerOutput& model_runner_output,
                                        EngineCoreOutputs& out) {
  const ErrorCode code = check_output(state_, scheduler_output, model_runner_output);
  if (code == ErrorCode::kNone) take_output(state_, model_runner_output, out);
  return code;
}

ErrorCode Scheduler::update_draft_token_ids(RequestIndex request, std::span<const TokenId> tokens) {
  if (tokens.size() > config().num_speculative_tokens || config().async_scheduling) {
    return ErrorCode::kNotInConfig;
  }
  if (!state_.is_there(request)) return ErrorCode::kNone;
  ScheduledState& state = state_.states[request];
  if (is_finished(state.status)) return ErrorCode::kNone;
  if (state.is_prefill_chunk) tokens = {};
  std::copy(tokens.begin(), tokens.end(), state_.drafts(request).begin());
  state.num_spec_tokens = static_cast<std::uint32_t>(tokens.size());
  return ErrorCode::kNone;
}

void Scheduler::grammar_compiled(RequestIndex request) {
  if (!state_.is_there(request)) return;
  if (state_.states[request].status != RequestStatus::kWaitingForGrammar) return;
  state_.set_promotable(request);
}

void Scheduler::finish_requests(std::span<const RequestIndex> requests, RequestStatus status) {
  KVFENCE_CHECK(is_finished(status), "a request can only be finished with a finished status");
  std::vector<RequestIndex>& unfinished = state_.numbers;
  unfinished.clear();
  for (RequestIndex request : requests) {
    if (!state_.is_there(request) || state_.states[request].place == RequestPlace::kNone) continue;
    state_.leave_place(request);
    unfinished.push_back(request);
  }
  for (RequestIndex request : unfinished) state_.finish(request, status);
}

void Scheduler::finish_all_requests(RequestStatus status) {
  std::vector<RequestIndex> all;
  state_.requests.copy_to(all);
  finish_requests(all, status);
}

bool Scheduler::reset_prefix_cache(bool reset_running_requests, bool reset_connector) {
  while (reset_running_requests && !state_.running.empty()) {
    const RequestIndex request = state_.running.back();
    state_.preempt(request);
    ScheduledState& state = state_.states[request];
    state.num_output_placeholders = 0;
    if (config().async_scheduling) {
      state.stale_through = state_.step;
    } else {
      state_.records[request].forced_through = state_.step;
    }
  }
  const bool is_reset = state_.kv_cache_manager.reset_prefix_cache();
  if (!reset_connector || (reset_running_requests && !is_reset)) return is_reset;
  return reset_connector_cache() && is_reset;
}

bool Scheduler::reset_connector_cache() {
  if (!state_.connector) return state_.rules().reset_without_connector_succeeds;
  if (!state_.connector->reset_cache()) return false;
  state_.connector_prefix_cache_stats.reset = true;
  return true;
}

RequestView Scheduler::view(RequestIndex request) const {
  KVFENCE_CHECK(state_.is_there(request), "a view of a request that is not there");
  const ScheduledState& state = state_.states[request];
  const RequestRecord& record = state_.records[request];
  return {.id = record.id,
          .request = record.request,
          .status = state.status,
          .num_prompt_tokens = state.num_prompt_tokens,
          .num_computed_tokens = state.num_computed_tokens,
          .num_output_placeholders = state.num_output_placeholders,
          .num_preemptions = state.num_preemptions,
          .spec_token_ids = state_.drafts(request).first(state.num_spec_tokens)};
}

void Scheduler::waiting(std::vector<RequestIndex>& out) const {
  if (!state_.is_priority()) {
    state_.waiting_list.copy_to(out);
    return;
  }
  const std::span<const RequestIndex> heap = state_.waiting_heap.unordered();
  out.assign(heap.begin(), heap.end());
  state_.sort_by_rank(out);
}

void Scheduler::skipped_waiting(std::vector<RequestIndex>& out) const {
  state_.skipped.copy_to(out);
  if (state_.is_priority()) state_.sort_by_rank(out);
}

std::uint32_t Scheduler::get_num_unfinished_requests() const {
  if (pause_state() == PauseState::kPausedAll) return 0;
  if (pause_state() == PauseState::kPausedNew) return state_.running.size();
  return state_.running.size() + state_.num_waiting() + state_.skipped.size();
}

bool Scheduler::has_finished_requests() const {
  if (!state_.finished.empty()) return true;
  if (!state_.rules().held_requests_are_work || !state_.connector) return false;
  return state_.requests.size() >
         state_.running.size() + state_.num_waiting() + state_.skipped.size();
}

}  // namespace kvfence::optimized
