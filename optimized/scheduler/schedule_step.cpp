#include "optimized/scheduler/scheduler_state.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace kvfence::optimized {
namespace {

/// Whether a waiting request must be promoted first.
bool is_blocked(RequestStatus status) {
  return status != RequestStatus::kWaiting && status != RequestStatus::kPreempted;
}

void clear_scheduled(SchedulerOutput& output) {
  output.scheduled.clear();
  output.scheduled_new_reqs.clear();
  output.scheduled_cached_reqs.clear();
  output.block_lists.clear();
  output.spec_token_ids.clear();
}

class StepPlanner {
 public:
  StepPlanner(SchedulerState& state, SchedulerOutput& out)
      : state_(state),
        config_(state.config),
        manager_(state.kv_cache_manager),
        out_(out),
        num_lookahead_tokens_(config_.num_lookahead_tokens()),
        mamba_block_size_(config_.mamba_split_block_size()) {}

  void run() {
    start();
    schedule_running();
    if (num_dropped_ > 0) remove_dropped();
    if (is_admitting()) schedule_waiting();
    finish_output();
    out_.kv_connector_metadata.reset();
    if (state_.connector) {
      out_.kv_connector_metadata =
          state_.connector->build_connector_meta(state_.connector_host(), out_);
    }
    advance();
    end_what_never_fits();
  }

 private:
  using Scheduled = SchedulerOutput::Scheduled;

  /// The computed tokens at an admission.
  struct Computed {
    const ComputedBlocks* hit = nullptr;
    std::uint32_t num_tokens = 0;  ///< with external ones
    std::uint32_t num_local_tokens = 0;
    std::uint32_t num_external_tokens = 0;
    bool load_async = false;
    bool asks_again = false;
    bool asked_connector = false;
  };

  void start() {
    out_.step = ++state_.step;
    clear_scheduled(out_);
    out_.preempted.clear();
    out_.never_fits.reset();
    manager_.new_step_starts();
    state_.running.close_holes();
    budget_ = state_.pause_state == PauseState::kPausedAll ? 0 : config_.token_budget();
  }

  bool is_admitting() const {
    return out_.preempted.empty() && state_.pause_state == PauseState::kUnpaused;
  }

  /// Whether its planned outputs reach its limit.
  bool reaches_limit(const ScheduledState& request) const {
    return request.num_output_placeholders > 0 &&
           std::int64_t{request.num_computed_tokens} + 2 - request.num_output_placeholders >=
               std::int64_t{request.max_total_tokens};
  }

  std::int64_t mamba_block_aligned(const ScheduledState& request, std::int64_t num_computed_tokens,
                                   std::int64_t num_new_tokens) const {
    if (!mamba_block_size_) return num_new_tokens;
    const std::int64_t prefill_end =
        std::max<std::int64_t>(request.num_prompt_tokens, std::int64_t{request.num_tokens} - 1);
    if (num_computed_tokens >= prefill_end) return num_new_tokens;
    const std::int64_t block_size = *mamba_block_size_;
    std::int64_t last = request.num_tokens / block_size * block_size;
    if (config_.kv_cache.use_eagle) last = std::max<std::int64_t>(last - block_size, 0);
    const std::int64_t end = num_computed_tokens + num_new_tokens;
    if (end < last) return num_new_tokens / block_size * block_size;
    if (num_computed_tokens < last && last < end) return last - num_computed_tokens;
    return num_new_tokens;
  }

  std::uint32_t num_running_tokens(const ScheduledState& request) const {
    const std::int64_t num_computed_tokens = request.num_computed_tokens;
    std::int64_t num_new_tokens = std::int64_t{request.num_tokens} + request.num_spec_tokens +
                                  request.num_output_placeholders - num_computed_tokens;
    const std::uint32_t threshold = config_.long_prefill_token_threshold;
    if (threshold > 0) num_new_tokens = std::min<std::int64_t>(num_new_tokens, threshold);
    num_new_tokens = std::min<std::int64_t>(num_new_tokens, budget_);
    num_new_tokens = std::min(
        num_new_tokens, std::int64_t{config_.kv_cache.max_model_len} - 1 - num_computed_tokens);
    num_new_tokens = mamba_block_aligned(request, num_computed_tokens, num_new_tokens);
    return static_cast<std::uint32_t>(std::max<std::int64_t>(num_new_tokens, 0));
  }

  void schedule_running() {
    for (std::size_t place = 0; place < state_.running.num_places() && budget_ > 0; ++place) {
      const RequestIndex index = state_.running.at(place);
      if (index == kNoRequest) continue;
      if (num_hidden_ > 0) {
        --num_hidden_;
        continue;
      }
      ScheduledState& request = state_.states[index];
      if (reaches_limit(request)) continue;
      const std::uint32_t num_new_tokens = num_running_tokens(request);
      if (num_new_tokens == 0) continue;

      std::uint32_t first_list = SchedulerOutput::kNoLists;
      if (request.num_computed_tokens + num_new_tokens > request.num_settled_tokens) {
        if (!allocate_running(index, num_new_tokens)) {
          ended_at_ = index;
          break;
        }
        first_list = add_blocks(state_.blocks);
      }
      add_cached(index, /*resumed=*/false, first_list);
      const std::uint32_t num_spec_tokens = add_drafts(index, num_new_tokens);
      add_scheduled(index, num_new_tokens, num_spec_tokens);
    }
  }

  /// Allocates slots for the tokens, and preempts other running requests if needed; false if the
  /// request itself was preempted.
  bool allocate_running(RequestIndex index, std::uint32_t num_new_tokens) {
    while (!try_allocate_running(index, num_new_tokens)) {
      make_room(index);
      if (state_.states[index].place != RequestPlace::kRunning) return false;
    }
    const KVRequest request = state_.kv_request(index);
    state_.states[index].num_settled_tokens =
        manager_.num_settled_tokens(request, num_lookahead_tokens_);
    return true;
  }

  bool try_allocate_running(RequestIndex index, std::uint32_t num_new_tokens) {
    const KVRequest request = state_.kv_request(index);
    bool allocated = false;
    const ErrorCode code = manager_.allocate_slots({.request = request,
                                                    .num_new_tokens = num_new_tokens,
                                                    .num_lookahead_tokens = num_lookahead_tokens_},
                                                   allocated, state_.blocks);
    return code == ErrorCode::kNone && allocated;
  }

  /// Preempts the next victim on behalf of a request.
  void make_room(RequestIndex index) {
    const RequestIndex victim = state_.victim();
    if (state_.states[victim].last_step == out_.step) {
      take_back(victim);
    } else if (state_.rules().priority_victim_shifts_loop &&
               state_.running.place_of(victim) < state_.running.place_of(index)) {
      ++num_hidden_;
    }
    state_.preempt(victim);
    out_.preempted.push_back(victim);
  }

  /// Takes back the tokens that this step planned for a request. Entries are in the order of the
  /// running places.
  void take_back(RequestIndex victim) {
    const std::uint32_t place = state_.running.place_of(victim);
    const auto entry = std::ranges::lower_bound(
        out_.scheduled, place, {},
        [this](const Scheduled& other) { return state_.running.place_of(other.request); });
    budget_ += std::exchange(entry->num_tokens, 0);
    ++num_dropped_;
  }

  /// Rewrites the output without the entries that were taken back.
  void remove_dropped() {
    SchedulerOutput& kept = state_.kept;
    clear_scheduled(kept);
    const std::size_t num_groups = config_.kv_cache.groups.size();
    for (std::size_t i = 0; i < out_.scheduled.size(); ++i) {
      if (out_.scheduled[i].num_tokens == 0) continue;
      SchedulerOutput::Cached cached = out_.scheduled_cached_reqs[i];
      if (cached.first_list != SchedulerOutput::kNoLists) {
        const std::uint32_t first_list =
            std::exchange(cached.first_list, static_cast<std::uint32_t>(kept.block_lists.size()));
        for (std::size_t group = 0; group < num_groups; ++group) {
          kept.block_lists.append(out_.block_lists[first_list + group]);
          kept.block_lists.end_list();
        }
      }
      kept.scheduled.push_back(out_.scheduled[i]);
      kept.scheduled_cached_reqs.push_back(cached);
      kept.spec_token_ids.append(out_.spec_token_ids[i]);
      kept.spec_token_ids.end_list();
    }
    std::swap(out_.scheduled, kept.scheduled);
    std::swap(out_.scheduled_cached_reqs, kept.scheduled_cached_reqs);
    std::swap(out_.block_lists, kept.block_lists);
    std::swap(out_.spec_token_ids, kept.spec_token_ids);
  }

  // Entries are filled in place: copying one right after its parts would wait for each of them.
  void add_cached(RequestIndex index, bool resumed, std::uint32_t first_list) {
    const ScheduledState& request = state_.states[index];
    SchedulerOutput::Cached& cached = out_.scheduled_cached_reqs.emplace_back();
    cached.request = index;
    cached.resumed = resumed;
    cached.sends_all_token_ids = request.last_step != out_.step - 1;
    cached.num_computed_tokens = request.num_computed_tokens;
    cached.num_output_tokens =
        request.num_tokens - request.num_prompt_tokens + request.num_output_placeholders;
    cached.first_list = first_list;
  }

  void add_scheduled(RequestIndex index, std::uint32_t num_tokens, std::uint32_t num_spec_tokens) {
    ScheduledState& request = state_.states[index];
    Scheduled& scheduled = out_.scheduled.emplace_back();
    scheduled.request = index;
    scheduled.num_tokens = num_tokens;
    scheduled.num_spec_tokens = num_spec_tokens;
    scheduled.samples = request.num_computed_tokens + num_tokens >=
                        request.num_tokens + request.num_output_placeholders;
    request.last_step = out_.step;
    budget_ -= num_tokens;
  }

  /// Adds the drafts that the request's tokens reach to its entry, and drops the others.
  std::uint32_t add_drafts(RequestIndex index, std::uint32_t num_new_tokens) {
    ScheduledState& request = state_.states[index];
    std::uint32_t num_spec_tokens = 0;
    if (request.num_spec_tokens > 0) {
      const std::int64_t num_reached = std::int64_t{num_new_tokens} + request.num_computed_tokens -
                                       request.num_tokens - request.num_output_placeholders;
      num_spec_tokens = static_cast<std::uint32_t>(
          std::clamp<std::int64_t>(num_reached, 0, request.num_spec_tokens));
      out_.spec_token_ids.append(state_.drafts(index).first(num_spec_tokens));
      request.num_spec_tokens = 0;
    }
    out_.spec_token_ids.end_list();
    return num_spec_tokens;
  }

  std::uint32_t add_blocks(const BlocksByGroup& blocks) {
    if (!has_blocks(blocks)) return SchedulerOutput::kNoLists;
    const auto first_list = static_cast<std::uint32_t>(out_.block_lists.size());
    for (const std::vector<BlockId>& group : blocks) {
      out_.block_lists.append(group);
      out_.block_lists.end_list();
    }
    return first_list;
  }

  std::uint32_t add_all_blocks(RequestIndex index) {
    const auto first_list = static_cast<std::uint32_t>(out_.block_lists.size());
    for (const auto& group : manager_.coordinator().groups()) {
      out_.block_lists.append(group.blocks(index));
      out_.block_lists.end_list();
    }
    return first_list;
  }

  /// Does not look at blocked requests that cannot be promoted, since skipping one would not move
  /// it.
  RequestIndex next_waiting() const {
    const RequestIndex skipped = state_.retries.empty() ? kNoRequest : state_.retries.top();
    if (!state_.has_waiting()) return skipped;
    const RequestIndex waiting = state_.first_waiting();
    if (skipped == kNoRequest) return waiting;
    return state_.is_priority() && state_.ranks_before(waiting, skipped) ? waiting : skipped;
  }

  void schedule_waiting() {
    std::vector<RequestIndex>& again = state_.asked_again;
    again.clear();
    while (budget_ > 0 && state_.running.size() < config_.max_num_seqs) {
      const RequestIndex index = next_waiting();
      if (index == kNoRequest) break;
      if (!admit(index)) {
        ended_at_ = index;
        break;
      }
    }
    for (RequestIndex index : again) state_.look_at(index);
  }

  /// Runs, loads or skips the request; false if it ends the phase.
  bool admit(RequestIndex index) {
    const ScheduledState& request = state_.states[index];
    if (is_blocked(request.status)) promote(index);
    const Computed computed = find_computed(index);
    if (computed.asks_again) {
      skip(index);
      state_.asked_again.push_back(index);
      return true;
    }

    std::int64_t num_new_tokens = 0;
    if (!computed.load_async) {
      num_new_tokens = std::int64_t{request.num_tokens} - computed.num_tokens;
      const std::uint32_t threshold = config_.long_prefill_token_threshold;
      if (threshold > 0) num_new_tokens = std::min<std::int64_t>(num_new_tokens, threshold);
      if (!config_.enable_chunked_prefill && num_new_tokens > budget_) return false;
      num_new_tokens = std::min<std::int64_t>(num_new_tokens, budget_);
      num_new_tokens = mamba_block_aligned(request, computed.num_tokens, num_new_tokens);
      if (num_new_tokens <= 0) return false;
    }
    const auto num_tokens = static_cast<std::uint32_t>(num_new_tokens);
    if (!allocate_waiting(index, computed, num_tokens)) return false;
    if (state_.connector) notify_connector(index, computed);
    if (computed.load_async) {
      start_loading(index, computed);
    } else {
      start_running(index, computed, num_tokens);
    }
    return true;
  }

  void promote(RequestIndex index) {
    ScheduledState& request = state_.states[index];
    RequestRecord& record = state_.records[index];
    record.is_promotable = false;
    if (request.status == RequestStatus::kWaitingForRemoteKVs) {
      const bool is_failed = std::exchange(record.is_load_failed, false);
      if (is_failed && request.num_computed_tokens == 0) {
        manager_.free(index);
        state_.do_not_reserve_for(index);
      } else {
        manager_.cache_blocks(state_.kv_request(index), request.num_computed_tokens);
      }
      // A sampled token needs the logits of the last one.
      if (request.num_computed_tokens == request.num_tokens) --request.num_computed_tokens;
    }
    request.status =
        request.num_preemptions > 0 ? RequestStatus::kPreempted : RequestStatus::kWaiting;
  }

  Computed find_computed(RequestIndex index) {
    const ScheduledState& request = state_.states[index];
    Computed computed;
    computed.num_tokens = request.num_computed_tokens;
    if (computed.num_tokens > 0) return computed;
    manager_.get_computed_blocks(state_.kv_request(index), state_.hit);
    computed.hit = &state_.hit;
    computed.num_local_tokens = state_.hit.num_tokens;
    if (state_.connector) {
      const MatchedTokens matched = state_.connector->get_num_new_matched_tokens(
          state_.connector_request(index), computed.num_local_tokens);
      computed.asked_connector = true;
      computed.asks_again = !matched.num_tokens;
      computed.num_external_tokens = matched.num_tokens.value_or(0);
      computed.load_async = matched.load_async;
    }
    computed.num_tokens = computed.num_local_tokens + computed.num_external_tokens;
    return computed;
  }

  std::uint32_t num_reserved_blocks() const {
    std::uint32_t num_blocks = 0;
    for (RequestIndex index = state_.prefills.front(); index != kNoRequest;
         index = state_.prefills.next(index)) {
      num_blocks += manager_.get_num_remaining_blocks(state_.kv_request(index));
    }
    return num_blocks;
  }

  bool allocate_waiting(RequestIndex index, const Computed& computed,
                        std::uint32_t num_new_tokens) {
    const Rules& rules = state_.rules();
    const KVRequest request = state_.kv_request(index);
    const bool gate_is_argument = rules.full_sequence_gate_in_allocate_slots;
    const bool must_fit = config_.scheduler_reserve_full_isl;
    if (must_fit && !gate_is_argument) {
      bool fits = false;
      const ErrorCode code = manager_.can_fit_full_sequence(
          request, computed.hit, computed.num_external_tokens, /*num_encoder_tokens=*/0, fits);
      if (code != ErrorCode::kNone || !fits) return false;
    }
    const bool looks_ahead = rules.lookahead_at_admission
                                 ? !(computed.load_async && config_.kv_cache.use_eagle)
                                 : request.num_computed_tokens > 0;
    const bool reserves = rules.reserve_for_prefills && computed.load_async;
    bool allocated = false;
    const ErrorCode code =
        manager_.allocate_slots({.request = request,
                                 .num_new_tokens = num_new_tokens,
                                 .hit = computed.hit,
                                 .num_lookahead_tokens = looks_ahead ? num_lookahead_tokens_ : 0,
                                 .num_external_tokens = computed.num_external_tokens,
                                 .delay_cache_blocks = computed.load_async,
                                 .full_sequence_must_fit = must_fit && gate_is_argument,
                                 .reserved_blocks = reserves ? num_reserved_blocks() : 0},
                                allocated, state_.blocks);
    return code == ErrorCode::kNone && allocated;
  }

  void notify_connector(RequestIndex index, const Computed& computed) {
    manager_.get_block_ids(index, state_.blocks);
    state_.connector->update_state_after_alloc(state_.connector_host(),
                                               state_.connector_request(index), state_.blocks,
                                               computed.num_external_tokens);
    if (!computed.asked_connector) return;
    const ScheduledState& request = state_.states[index];
    const std::uint32_t num_asked = request.num_tokens - computed.num_local_tokens;
    PrefixCacheStats& stats = state_.connector_prefix_cache_stats;
    const bool was_preempted = request.num_preemptions > 0;
    ++(was_preempted ? stats.preempted_requests : stats.requests);
    (was_preempted ? stats.preempted_queries : stats.queries) += num_asked;
    (was_preempted ? stats.preempted_hits : stats.hits) += computed.num_external_tokens;
  }

  /// Moves the request to skipped_waiting, or leaves it there; this step does not look at it again.
  void skip(RequestIndex index) {
    if (state_.states[index].place == RequestPlace::kSkippedWaiting) {
      state_.do_not_look_at(index);
      return;
    }
    state_.leave_place(index);
    state_.push_skipped(index);
  }

  /// Makes the steps from before a forced preemption stale when the request stops being preempted.
  void move_on(RequestIndex index) {
    ScheduledState& request = state_.states[index];
    if (request.status != RequestStatus::kPreempted) return;
    request.stale_through = std::max(request.stale_through, state_.records[index].forced_through);
  }

  void start_loading(RequestIndex index, const Computed& computed) {
    skip(index);
    move_on(index);
    ScheduledState& request = state_.states[index];
    request.status = RequestStatus::kWaitingForRemoteKVs;
    request.num_computed_tokens = computed.num_tokens;
    state_.reserve_for(index);
  }

  void start_running(RequestIndex index, const Computed& computed, std::uint32_t num_new_tokens) {
    state_.leave_place(index);
    state_.push_running(index);
    move_on(index);
    ScheduledState& request = state_.states[index];
    const bool is_resumed =
        std::exchange(request.status, RequestStatus::kRunning) == RequestStatus::kPreempted;
    request.num_computed_tokens = computed.num_tokens;
    const std::uint32_t first_list = add_all_blocks(index);
    if (is_resumed) {
      add_cached(index, /*resumed=*/true, first_list);
    } else {
      out_.scheduled_new_reqs.push_back(
          {.request = index, .num_computed_tokens = computed.num_tokens, .first_list = first_list});
    }
    out_.spec_token_ids.end_list();
    add_scheduled(index, num_new_tokens, /*num_spec_tokens=*/0);
    if (computed.num_tokens + num_new_tokens < request.num_tokens) state_.reserve_for(index);
  }

  void finish_output() {
    out_.total_num_scheduled_tokens =
        (state_.pause_state == PauseState::kPausedAll ? 0 : config_.token_budget()) - budget_;
    out_.num_common_prefix_blocks.assign(config_.kv_cache.groups.size(), 0);
    if (!state_.running.empty()) {
      manager_.get_num_common_prefix_blocks(state_.running.front(), out_.num_common_prefix_blocks);
    }
    manager_.take_new_block_ids(out_.new_block_ids);
    out_.finished = state_.finished;

    StepInFlight& step = state_.add_step();
    step.scheduled = out_.scheduled;
    step.finished.clear();
    step.finished.swap(state_.finished);
  }

  void advance() {
    for (const Scheduled& scheduled : out_.scheduled) {
      ScheduledState& request = state_.states[scheduled.request];
      request.num_computed_tokens += scheduled.num_tokens;
      request.is_prefill_chunk = !scheduled.samples;
      if (!scheduled.samples) continue;
      state_.do_not_reserve_for(scheduled.request);
      if (!config_.async_scheduling) continue;
      request.num_output_placeholders += 1 + scheduled.num_spec_tokens;
      request.num_spec_tokens = config_.num_speculative_tokens;
    }
  }

  void end_what_never_fits() {
    if (ended_at_ == kNoRequest ||
        manager_.block_pool().get_num_free_blocks() != config_.kv_cache.num_usable_blocks()) {
      return;
    }
    state_.leave_place(ended_at_);
    state_.finish(ended_at_, RequestStatus::kFinishedError);
    out_.never_fits = ended_at_;
  }

  SchedulerState& state_;
  const SchedulerConfig& config_;
  KVCacheManager& manager_;
  SchedulerOutput& out_;
  const std::uint32_t num_lookahead_tokens_;
  const std::optional<std::uint32_t> mamba_block_size_;

  std::uint32_t budget_ = 0;
  /// Running requests that the loop will miss (Rules::priority_victim_shifts_loop).
  std::uint32_t num_hidden_ = 0;
  std::uint32_t num_dropped_ = 0;  ///< entries of out_ whose request was preempted afterwards
  /// The request that preempted itself, or at which the waiting phase ended.
  RequestIndex ended_at_ = kNoRequest;
};

}  // namespace

void schedule_step(SchedulerState& state, SchedulerOutput& out) { StepPlanner(state, out).run(); }

}  // namespace kvfence::optimized
