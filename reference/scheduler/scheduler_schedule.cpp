#include <algorithm>
#include <tuple>
#include <utility>

#include "contract/core/check.h"
#include "contract/core/lists.h"
#include "reference/scheduler/scheduler.h"

namespace kvfence::reference {
namespace {

// Source: vLLM v0.19.0 v1/core/sched/scheduler.py _is_blocked_waiting_status
bool is_blocked(RequestStatus status) {
  return status == RequestStatus::kWaitingForGrammar ||
         status == RequestStatus::kWaitingForRemoteKVs;
}

// A threshold of 0 is none.
std::int64_t at_most_threshold(std::int64_t num_tokens, std::uint32_t threshold) {
  return threshold > 0 ? std::min<std::int64_t>(num_tokens, threshold) : num_tokens;
}

// Appends one list per group and returns the place of the first.
std::uint32_t append_lists(const BlocksByGroup& blocks, FlatLists<BlockId>& out) {
  const auto first_list = static_cast<std::uint32_t>(out.size());
  for (const std::vector<BlockId>& group : blocks) {
    out.append(group);
    out.end_list();
  }
  return first_list;
}

}  // namespace

// Source: vLLM v0.19.0 v1/core/sched/scheduler.py schedule; never_fits: ours
ErrorCode Scheduler::schedule(SchedulerOutput& out) {
  if (steps_in_flight_.size() >= config_.max_concurrent_batches) return ErrorCode::kStepsInFlight;

  Plan plan;
  plan.token_budget = pause_state_ == PauseState::kPausedAll ? 0 : config_.token_budget();
  kv_cache_manager_.new_step_starts();
  schedule_running(plan);
  if (plan.preempted.empty() && pause_state_ == PauseState::kUnpaused) schedule_waiting(plan);

  make_output(plan, out);
  out.kv_connector_metadata = connector_ ? connector_->build_connector_meta(*this, out) : nullptr;
  advance(out);

  const bool holds_nothing =
      kv_cache_manager_.block_pool().get_num_free_blocks() == config_.kv_cache.num_usable_blocks();
  if (plan.ended_at && holds_nothing) {
    out.never_fits = plan.ended_at;
    finish_requests(std::span(&*plan.ended_at, 1), RequestStatus::kFinishedError);
  }
  steps_in_flight_.push_back(out);
  return ErrorCode::kNone;
}

// Source: vLLM v0.19.0 v1/core/sched/scheduler.py schedule, its first loop
void Scheduler::schedule_running(Plan& plan) {
  std::size_t position = 0;
  while (position < running_.size() && plan.token_budget > 0) {
    SchedulerRequest& request = get(running_[position]);
    const std::uint32_t num_new_tokens = num_new_tokens_of_running(request, plan.token_budget);
    if (num_new_tokens == 0) {
      ++position;
      continue;
    }
    BlocksByGroup new_blocks;
    if (!allocate_or_preempt(request, num_new_tokens, position, plan, new_blocks)) {
      plan.ended_at = request.index;
      break;
    }
    plan.scheduled.push_back({.request = request.index,
                              .kind = Kind::kRunning,
                              .num_tokens = num_new_tokens,
                              .blocks = std::move(new_blocks),
                              .spec_token_ids = take_drafts(request, num_new_tokens)});
    plan.token_budget -= num_new_tokens;
    ++position;
  }
}

// Planned outputs that reach the limit even if every draft is rejected: nothing more to plan. With
// drafts planned and no placeholder for them, more may be computed than there is: nothing either.
// Source: vLLM v0.19.0 v1/core/sched/scheduler.py schedule
std::uint32_t Scheduler::num_new_tokens_of_running(const SchedulerRequest& request,
                                                   std::uint32_t token_budget) const {
  const std::int64_t num_computed = request.num_computed_tokens;
  const std::int64_t num_placeholders = request.num_output_placeholders;
  const std::int64_t max_num_tokens =
      std::int64_t{request.num_prompt_tokens()} + request.added.max_tokens;
  if (num_placeholders > 0 && num_computed + 2 - num_placeholders >= max_num_tokens) return 0;

  const auto num_drafts = static_cast<std::int64_t>(request.spec_token_ids.size());
  std::int64_t num_new = request.num_tokens() + num_drafts + num_placeholders - num_computed;
  num_new = at_most_threshold(num_new, config_.long_prefill_token_threshold);
  num_new = std::min<std::int64_t>(num_new, token_budget);
  num_new = std::min(num_new, std::int64_t{config_.kv_cache.max_model_len} - 1 - num_computed);
  if (num_new <= 0) return 0;
  return mamba_block_aligned_split(request, request.num_computed_tokens,
                                   static_cast<std::uint32_t>(num_new));
}

// A victim that was scheduled in this step gives its tokens back, and the loop follows the requests
// that move up. A victim before the loop that was not scheduled makes them move up, too, and
// upstream's loop does not follow. Returns whether the request got its slots; if not, it was
// preempted itself.
// Source: vLLM v0.19.0 v1/core/sched/scheduler.py schedule
bool Scheduler::allocate_or_preempt(const SchedulerRequest& request, std::uint32_t num_new_tokens,
                                    std::size_t& position, Plan& plan, BlocksByGroup& new_blocks) {
  while (true) {
    const KVRequest kv = kv_request(request);
    bool allocated = false;
    const ErrorCode error =
        kv_cache_manager_.allocate_slots({.request = kv,
                                          .num_new_tokens = num_new_tokens,
                                          .num_lookahead_tokens = config_.num_lookahead_tokens()},
                                         allocated, new_blocks);
    if (error == ErrorCode::kNone && allocated) return true;

    const std::size_t place = victim_position();
    const RequestIndex victim = running_[place];
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(place));
    const auto planned = std::ranges::find(plan.scheduled, victim, &Planned::request);
    const bool was_scheduled = planned != plan.scheduled.end();
    if (was_scheduled) {
      plan.token_budget += planned->num_tokens;
      plan.scheduled.erase(planned);
    }
    if (was_scheduled || (place < position && !rules().priority_victim_shifts_loop)) --position;
    preempt(get(victim));
    plan.preempted.push_back(victim);
    if (victim == request.index) return false;
  }
}

// Source: vLLM v0.19.0 v1/core/sched/scheduler.py schedule
std::size_t Scheduler::victim_position() const {
  if (config_.policy == SchedulingPolicy::kFCFS) return running_.size() - 1;
  const auto key = [this](RequestIndex request) {
    const NewRequest& added = find(request)->added;
    return std::tuple(added.priority, added.arrival_time);
  };
  const auto first_greatest = std::ranges::max_element(running_, {}, key);
  return static_cast<std::size_t>(first_greatest - running_.begin());
}

// Drafts that the step does not reach are lost.
// Source: vLLM v0.19.0 v1/core/sched/scheduler.py schedule
std::vector<TokenId> Scheduler::take_drafts(SchedulerRequest& request,
                                            std::uint32_t num_new_tokens) const {
  std::vector<TokenId> drafts = std::exchange(request.spec_token_ids, {});
  const std::size_t end = std::size_t{request.num_computed_tokens} + num_new_tokens;
  const std::size_t start = std::size_t{request.num_tokens()} + request.num_output_placeholders;
  drafts.resize(std::min(drafts.size(), minus_or_0(end, start)));
  return drafts;
}

// Each skipped request goes to the front of a queue, and that queue, one by one, to the front of
// skipped_waiting: reversed twice, they keep the order in which they were looked at.
// Source: vLLM v0.19.0 v1/core/sched/scheduler.py schedule, its second loop
void Scheduler::schedule_waiting(Plan& plan) {
  RequestQueue step_skipped_waiting(config_.policy);
  while ((!waiting_.empty() || !skipped_waiting_.empty()) && plan.token_budget > 0 &&
         running_.size() < config_.max_num_seqs) {
    RequestQueue& queue = select_waiting_queue();
    SchedulerRequest& request = get(queue.peek_request());
    const Admission admission = try_admit(request, plan);
    if (admission == Admission::kEnds) {
      plan.ended_at = request.index;
      break;
    }
    queue.pop_request();
    if (admission == Admission::kSkipped) {
      step_skipped_waiting.prepend_request(request);
    } else {
      running_.push_back(request.index);
    }
  }
  skipped_waiting_.prepend_requests(step_skipped_waiting);
}

// Source: vLLM v0.19.0 v1/core/sched/scheduler.py _select_waiting_queue_for_scheduling
RequestQueue& Scheduler::select_waiting_queue() {
  if (waiting_.empty()) return skipped_waiting_;
  if (skipped_waiting_.empty()) return waiting_;
  if (config_.policy == SchedulingPolicy::kFCFS) return skipped_waiting_;
  const bool waiting_is_less = get(waiting_.peek_request()).priority_key() <
                               get(skipped_waiting_.peek_request()).priority_key();
  return waiting_is_less ? waiting_ : skipped_waiting_;
}

// One turn of upstream's second loop. Lookups and the connector come before it is known whether
// there is room, and are repeated at the next attempt. Steps in flight are stale for a request that
// is admitted again.
// Source: vLLM v0.19.0 v1/core/sched/scheduler.py schedule
Scheduler::Admission Scheduler::try_admit(SchedulerRequest& request, Plan& plan) {
  if (is_blocked(request.status) && !try_promote(request)) return Admission::kSkipped;

  const std::uint32_t num_tokens = request.num_tokens();
  ComputedBlocks hit;
  MatchedTokens external = {.num_tokens = 0, .load_async = false};
  const bool is_looked_up = request.num_computed_tokens == 0;
  if (is_looked_up) {
    kv_cache_manager_.get_computed_blocks(kv_request(request), hit);
    if (connector_) {
      external = connector_->get_num_new_matched_tokens(connector_request(request), hit.num_tokens);
      if (!external.num_tokens) return Admission::kSkipped;
    }
  }
  const std::uint32_t num_computed_tokens =
      request.num_computed_tokens + hit.num_tokens + *external.num_tokens;
  KVFENCE_CHECK(num_computed_tokens <= num_tokens, "a connector finds no more than there is");

  std::uint32_t num_new_tokens = 0;
  if (!external.load_async) {
    const auto num_wanted = static_cast<std::uint32_t>(
        at_most_threshold(num_tokens - num_computed_tokens, config_.long_prefill_token_threshold));
    if (!config_.enable_chunked_prefill && num_wanted > plan.token_budget) return Admission::kEnds;
    num_new_tokens = mamba_block_aligned_split(request, num_computed_tokens,
                                               std::min(num_wanted, plan.token_budget));
    if (num_new_tokens == 0) return Admission::kEnds;
  }
  if (!allocate_for_admission(request, hit, num_new_tokens, external)) return Admission::kEnds;

  if (connector_) {
    connector_->update_state_after_alloc(*this, connector_request(request),
                                         blocks_of(request.index), *external.num_tokens);
    if (is_looked_up) {
      PrefixCacheStats& stats = connector_prefix_cache_stats_;
      const bool was_preempted = request.num_preemptions > 0;
      ++(was_preempted ? stats.preempted_requests : stats.requests);
      (was_preempted ? stats.preempted_queries : stats.queries) += num_tokens - hit.num_tokens;
      (was_preempted ? stats.preempted_hits : stats.hits) += *external.num_tokens;
    }
  }
  request.num_computed_tokens = num_computed_tokens;
  request.last_stale_step = num_steps_;
  if (external.load_async) {
    request.status = RequestStatus::kWaitingForRemoteKVs;
    request.is_inflight_prefill = true;
    return Admission::kSkipped;
  }
  plan.scheduled.push_back(
      {.request = request.index,
       .kind = request.status == RequestStatus::kPreempted ? Kind::kResumed : Kind::kNew,
       .num_tokens = num_new_tokens,
       .blocks = blocks_of(request.index),
       .spec_token_ids = {}});
  plan.token_budget -= num_new_tokens;
  request.status = RequestStatus::kRunning;
  if (num_computed_tokens + num_new_tokens < num_tokens) request.is_inflight_prefill = true;
  return Admission::kScheduled;
}

// The last token of a loaded request is recomputed, though its block is findable already.
// Source: vLLM v0.19.0 v1/core/sched/scheduler.py _try_promote_blocked_waiting_request,
// _update_waiting_for_remote_kv
bool Scheduler::try_promote(SchedulerRequest& request) {
  if (request.status == RequestStatus::kWaitingForGrammar) {
    if (request.grammar_is_compiled) request.status = RequestStatus::kWaiting;
    return request.grammar_is_compiled;
  }
  if (!request.load_is_finished) return false;

  if (request.load_has_failed && request.num_computed_tokens == 0) {
    kv_cache_manager_.free(request.index);
    request.is_inflight_prefill = false;
  } else {
    must(kv_cache_manager_.cache_blocks(kv_request(request), request.num_computed_tokens),
         "what was loaded has blocks");
    if (request.num_computed_tokens == request.num_tokens()) --request.num_computed_tokens;
  }
  request.load_is_finished = false;
  request.load_has_failed = false;
  request.status =
      request.num_preemptions > 0 ? RequestStatus::kPreempted : RequestStatus::kWaiting;
  return true;
}

// Source: vLLM v0.19.0 v1/core/sched/scheduler.py schedule: gate, then slots; v0.23.0, the same
// function: the gate and the reserve are arguments
bool Scheduler::allocate_for_admission(const SchedulerRequest& request, const ComputedBlocks& hit,
                                       std::uint32_t num_new_tokens,
                                       const MatchedTokens& external) {
  const KVRequest kv = kv_request(request);
  const bool reserve_full_isl = config_.scheduler_reserve_full_isl;
  const bool gate_is_argument = rules().full_sequence_gate_in_allocate_slots;
  if (reserve_full_isl && !gate_is_argument) {
    bool fits = false;
    const ErrorCode error =
        kv_cache_manager_.can_fit_full_sequence(kv, &hit, *external.num_tokens, 0, fits);
    if (error != ErrorCode::kNone || !fits) return false;
  }

  const bool is_without_lookahead = rules().lookahead_at_admission
                                        ? external.load_async && config_.kv_cache.use_eagle
                                        : request.num_computed_tokens == 0;
  const bool reserves = rules().reserve_for_prefills && external.load_async;
  bool allocated = false;
  BlocksByGroup new_blocks;
  const ErrorCode error = kv_cache_manager_.allocate_slots(
      {.request = kv,
       .num_new_tokens = num_new_tokens,
       .hit = &hit,
       .num_lookahead_tokens = is_without_lookahead ? 0 : config_.num_lookahead_tokens(),
       .num_external_tokens = *external.num_tokens,
       .delay_cache_blocks = external.load_async,
       .full_sequence_must_fit = reserve_full_isl && gate_is_argument,
       .reserved_blocks = reserves ? num_reserved_blocks() : 0},
      allocated, new_blocks);
  return error == ErrorCode::kNone && allocated;
}

// Source: vLLM v0.23.0 v1/core/sched/scheduler.py _inflight_prefill_reserved_blocks
std::uint32_t Scheduler::num_reserved_blocks() const {
  std::uint32_t num_blocks = 0;
  for (const SchedulerRequest& request : requests_) {
    if (!request.is_inflight_prefill) continue;
    num_blocks += kv_cache_manager_.get_num_remaining_blocks(kv_request(request));
  }
  return num_blocks;
}

// Cuts a step so that a Mamba state is there at the end of each block that is worth caching.
// Source: vLLM v0.19.0 v1/core/sched/scheduler.py _mamba_block_aligned_split
std::uint32_t Scheduler::mamba_block_aligned_split(const SchedulerRequest& request,
                                                   std::uint32_t num_computed_tokens,
                                                   std::uint32_t num_new_tokens) const {
  const std::optional<std::uint32_t> block_size = config_.mamba_split_block_size();
  if (!block_size) return num_new_tokens;
  const std::uint32_t num_tokens = request.num_tokens();
  if (num_computed_tokens >= std::max(request.num_prompt_tokens(), num_tokens - 1)) {
    return num_new_tokens;
  }
  std::uint32_t last = num_tokens - num_tokens % *block_size;
  if (config_.kv_cache.use_eagle) last -= std::min(last, *block_size);
  const std::uint32_t end = num_computed_tokens + num_new_tokens;
  if (end < last) return num_new_tokens - num_new_tokens % *block_size;
  if (num_computed_tokens < last && last < end) return last - num_computed_tokens;
  return num_new_tokens;
}

// Source: vLLM v0.19.0 v1/core/sched/scheduler.py schedule, _make_cached_request_data
void Scheduler::make_output(const Plan& plan, SchedulerOutput& out) {
  out = {};
  out.step = ++num_steps_;
  for (const Planned& planned : plan.scheduled) {
    const SchedulerRequest& request = get(planned.request);
    const std::uint32_t end = request.num_computed_tokens + planned.num_tokens;
    out.scheduled.push_back(
        {.request = planned.request,
         .num_tokens = planned.num_tokens,
         .num_spec_tokens = static_cast<std::uint32_t>(planned.spec_token_ids.size()),
         .samples = end >= request.num_tokens() + request.num_output_placeholders});
    out.spec_token_ids.append(planned.spec_token_ids);
    out.spec_token_ids.end_list();
    out.total_num_scheduled_tokens += planned.num_tokens;
    if (planned.kind == Kind::kNew) {
      out.scheduled_new_reqs.push_back(
          {.request = planned.request,
           .num_computed_tokens = request.num_computed_tokens,
           .first_list = append_lists(planned.blocks, out.block_lists)});
    }
  }
  for (const Kind kind : {Kind::kRunning, Kind::kResumed}) {
    for (const Planned& planned : plan.scheduled) {
      if (planned.kind != kind) continue;
      const SchedulerRequest& request = get(planned.request);
      out.scheduled_cached_reqs.push_back(
          {.request = planned.request,
           .resumed = kind == Kind::kResumed,
           .sends_all_token_ids = !contains(prev_step_scheduled_, planned.request),
           .num_computed_tokens = request.num_computed_tokens,
           .num_output_tokens = request.num_output_tokens() + request.num_output_placeholders,
           .first_list = has_blocks(planned.blocks) ? append_lists(planned.blocks, out.block_lists)
                                                    : SchedulerOutput::kNoLists});
    }
  }
  prev_step_scheduled_.clear();
  for (const Planned& planned : plan.scheduled) prev_step_scheduled_.push_back(planned.request);

  out.num_common_prefix_blocks.assign(config_.kv_cache.groups.size(), 0);
  if (!running_.empty()) {
    must(kv_cache_manager_.get_num_common_prefix_blocks(running_.front(),
                                                        out.num_common_prefix_blocks),
         "a running request is allocated");
  }
  out.preempted = plan.preempted;
  out.finished = std::exchange(finished_, {});
  kv_cache_manager_.take_new_block_ids(out.new_block_ids);
}

// Source: vLLM v0.19.0 v1/core/sched/scheduler.py and async_scheduler.py _update_after_schedule
void Scheduler::advance(const SchedulerOutput& step) {
  for (const SchedulerOutput::Scheduled& scheduled : step.scheduled) {
    SchedulerRequest& request = get(scheduled.request);
    request.num_computed_tokens += scheduled.num_tokens;
    request.is_prefill_chunk = !scheduled.samples;
    if (!scheduled.samples) continue;
    request.is_inflight_prefill = false;
    if (!config_.async_scheduling) continue;
    request.num_output_placeholders += 1 + scheduled.num_spec_tokens;
    request.spec_token_ids.assign(config_.num_speculative_tokens, kPlaceholderTokenId);
  }
}

}  // namespace kvfence::reference
