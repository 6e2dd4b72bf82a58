#include "optimized/scheduler/scheduler_state.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "contract/core/lists.h"

namespace kvfence::optimized {
namespace {

using Scheduled = SchedulerOutput::Scheduled;

bool fits(const FlatLists<TokenId>& sampled_token_ids, std::span<const Scheduled> scheduled) {
  if (sampled_token_ids.size() != scheduled.size()) return false;
  for (std::size_t i = 0; i < scheduled.size(); ++i) {
    const std::size_t num_sampled = sampled_token_ids[i].size();
    const bool is_right = scheduled[i].samples
                              ? num_sampled > 0 && num_sampled <= 1 + scheduled[i].num_spec_tokens
                              : num_sampled == 0;
    if (!is_right) return false;
  }
  return true;
}

bool has_duplicate(std::vector<std::uint32_t>& numbers) {
  std::sort(numbers.begin(), numbers.end());
  return std::adjacent_find(numbers.begin(), numbers.end()) != numbers.end();
}

class OutputTaker {
 public:
  OutputTaker(SchedulerState& state, EngineCoreOutputs& out)
      : state_(state),
        config_(state.config),
        manager_(state.kv_cache_manager),
        step_(state.steps_in_flight().front()),
        out_(out) {}

  void run(const ModelRunnerOutput& model_runner_output) {
    out_.outputs.clear();
    out_.new_token_ids.clear();
    SpecDecodingStats& stats = out_.spec_decoding_stats;
    stats.num_drafts = 0;
    stats.num_draft_tokens = 0;
    stats.num_accepted_tokens = 0;
    stats.num_accepted_tokens_per_pos.assign(config_.num_speculative_tokens, 0);

    const KVConnectorOutput* const connector_output = model_runner_output.kv_connector_output;
    if (connector_output && !connector_output->invalid_block_ids.empty()) {
      handle_invalid_blocks(connector_output->invalid_block_ids);
    }
    for (std::size_t i = 0; i < step_.scheduled.size(); ++i) {
      prefetch(i);
      take_tokens(step_.scheduled[i], model_runner_output.sampled_token_ids[i]);
    }
    finish_affected();
    if (connector_output) update_transfers(*connector_output);

    manager_.take_events(out_.events);
    if (state_.connector) state_.connector->take_events(out_.events);
    out_.prefix_cache_stats = manager_.take_prefix_cache_stats();
    out_.connector_prefix_cache_stats =
        std::exchange(state_.connector_prefix_cache_stats, PrefixCacheStats{});

    state_.set_reported(step_.finished);
    state_.drop_oldest_step();
  }

 private:
  /// kRunning: it does not end.
  struct End {
    RequestStatus status = RequestStatus::kRunning;
    bool is_stop_token = false;
  };

  /// Tokens that steps in flight have planned for a request and that still count.
  std::uint32_t num_tokens_in_flight(RequestIndex index) {
    std::uint32_t num_tokens = 0;
    for (const StepInFlight& step : state_.steps_in_flight()) {
      if (step.step <= state_.states[index].stale_through) continue;
      for (const Scheduled& scheduled : step.scheduled) {
        if (scheduled.request == index) num_tokens += scheduled.num_tokens;
      }
    }
    return num_tokens;
  }

  /// Whether the request has an invalid block. If so, cuts its computed tokens before the first one
  /// that no earlier request of the pass has.
  bool cut_back(RequestIndex index, std::vector<BlockId>* blocks_to_evict) {
    ScheduledState& request = state_.states[index];
    const std::uint32_t num_computed_tokens =
        request.num_computed_tokens - num_tokens_in_flight(index);
    const std::uint32_t block_size = config_.kv_cache.groups.front().block_size;
    const std::span<const BlockId> table = manager_.coordinator().groups().front().blocks(index);
    const std::size_t num_computed_blocks =
        std::min<std::size_t>((num_computed_tokens + block_size - 1) / block_size, table.size());
    bool is_affected = false;
    bool is_cut = false;
    for (std::size_t i = 0; i < num_computed_blocks; ++i) {
      const auto at = std::lower_bound(invalid_blocks_.begin(), invalid_blocks_.end(), table[i]);
      if (at == invalid_blocks_.end() || *at != table[i]) continue;
      is_affected = true;
      const auto mark = static_cast<std::size_t>(at - invalid_blocks_.begin());
      if (is_marked_[mark]) continue;
      is_marked_[mark] = true;
      if (std::exchange(is_cut, true)) continue;
      request.num_computed_tokens = static_cast<std::uint32_t>(i) * block_size;
      if (blocks_to_evict) {
        blocks_to_evict->insert(blocks_to_evict->end(),
                                table.begin() + static_cast<std::ptrdiff_t>(i), table.end());
      }
    }
    if (is_affected && !is_cut) request.num_computed_tokens = num_computed_tokens;
    return is_affected;
  }

  void handle_invalid_blocks(std::span<const BlockId> invalid_blocks) {
    const bool fails = config_.kv_load_failure_policy == KVLoadFailurePolicy::kFail;
    invalid_blocks_.assign(invalid_blocks.begin(), invalid_blocks.end());
    std::sort(invalid_blocks_.begin(), invalid_blocks_.end());

    std::vector<RequestIndex> requests;
    state_.skipped.copy_to(requests);
    std::erase_if(requests, [this](RequestIndex index) {
      return state_.states[index].status != RequestStatus::kWaitingForRemoteKVs;
    });
    if (state_.is_priority()) state_.sort_by_rank(requests);
    is_marked_.assign(invalid_blocks_.size(), false);
    for (RequestIndex index : requests) {
      if (!cut_back(index, nullptr)) continue;
      if (fails) {
        affected_.push_back(index);
      } else {
        state_.records[index].is_load_failed = true;
      }
    }

    std::vector<BlockId> blocks_to_evict;
    state_.running.copy_to(requests);
    is_marked_.assign(invalid_blocks_.size(), false);
    for (RequestIndex index : requests) {
      if (!cut_back(index, &blocks_to_evict)) continue;
      ScheduledState& request = state_.states[index];
      request.stale_through = state_.step;
      if (config_.async_scheduling) {
        request.num_spec_tokens = 0;
        request.num_output_placeholders = 0;
      }
      if (fails) affected_.push_back(index);
    }
    if (!fails || blocks_to_evict.empty()) return;
    keep_each_once(blocks_to_evict);
    manager_.evict_blocks(blocks_to_evict);
  }

  void count_drafts(const Scheduled& scheduled, std::size_t num_sampled) {
    SpecDecodingStats& stats = out_.spec_decoding_stats;
    ++stats.num_drafts;
    stats.num_draft_tokens += scheduled.num_spec_tokens;
    stats.num_accepted_tokens += static_cast<std::uint32_t>(num_sampled - 1);
    for (std::size_t i = 0; i + 1 < num_sampled; ++i) ++stats.num_accepted_tokens_per_pos[i];
  }

  /// How the request ends after its newest token, if it does.
  End end_after(RequestIndex index, TokenId token) const {
    const ScheduledState& request = state_.states[index];
    if (request.num_tokens < request.min_total_tokens) return {};
    const bool is_full = request.num_tokens >= config_.kv_cache.max_model_len ||
                         request.num_tokens >= request.max_total_tokens;
    if (request.has_eos_token && token == request.eos_token_id) {
      return {.status = RequestStatus::kFinishedStopped};
    }
    if (request.has_stop_tokens) {
      const std::vector<TokenId>& stops = state_.records[index].stop_token_ids;
      if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
        return {.status = RequestStatus::kFinishedStopped, .is_stop_token = true};
      }
    }
    if (is_full) return {.status = RequestStatus::kFinishedLengthCapped};
    return {};
  }

  /// Prefetches the destination of a later entry's tokens: first the request, then the end of its
  /// tokens.
  void prefetch(std::size_t entry) const {
    constexpr std::size_t kDistance = 16;
    const std::vector<Scheduled>& scheduled = step_.scheduled;
    if (entry + 2 * kDistance >= scheduled.size()) return;
    const RequestIndex far = scheduled[entry + 2 * kDistance].request;
    __builtin_prefetch(&state_.states[far], /*rw=*/1);
    __builtin_prefetch(&state_.records[far], /*rw=*/1);
    const RequestIndex near = scheduled[entry + kDistance].request;
    const std::vector<TokenId>& tokens = state_.records[near].request.all_token_ids();
    __builtin_prefetch(tokens.data() + tokens.size(), /*rw=*/1);
  }

  void take_tokens(const Scheduled& scheduled, std::span<const TokenId> sampled) {
    const RequestIndex index = scheduled.request;
    ScheduledState& request = state_.states[index];
    if (request.place == RequestPlace::kNone || step_.step <= request.stale_through) return;
    if (sampled.empty()) return;
    if (scheduled.num_spec_tokens > 0) {
      const auto num_rejected =
          static_cast<std::uint32_t>(scheduled.num_spec_tokens + 1 - sampled.size());
      if (request.num_computed_tokens > 0) request.num_computed_tokens -= num_rejected;
      if (request.num_output_placeholders > 0) request.num_output_placeholders -= num_rejected;
      count_drafts(scheduled, sampled.size());
    }

    End end;
    std::size_t num_kept = 0;
    while (num_kept < sampled.size() && end.status == RequestStatus::kRunning) {
      ++request.num_tokens;
      end = end_after(index, sampled[num_kept++]);
    }
    sampled = sampled.first(num_kept);
    state_.records[index].request.append_output_token_ids(sampled);
    if (config_.async_scheduling) {
      request.num_output_placeholders -= static_cast<std::uint32_t>(num_kept);
      const std::uint32_t num_known_tokens =
          request.num_computed_tokens - request.num_output_placeholders;
      if (request.status == RequestStatus::kRunning &&
          num_known_tokens > request.num_settled_tokens) {
        manager_.cache_blocks(state_.kv_request(index), num_known_tokens);
      }
    }
    if (end.status != RequestStatus::kRunning) {
      state_.leave_place(index);
      state_.finish(index, end.status);
    }
    // Filled in place: copying it right after its parts would wait for each of them.
    EngineCoreOutputs::Output& output = out_.outputs.emplace_back();
    output.request = index;
    output.status = end.status;
    if (end.is_stop_token) output.stop_reason = sampled.back();
    for (TokenId token : sampled) out_.new_token_ids.push_back(token);
    out_.new_token_ids.end_list();
  }

  void finish_affected() {
    for (RequestIndex index : affected_) state_.leave_place(index);
    for (RequestIndex index : affected_) state_.finish(index, RequestStatus::kFinishedError);
    for (RequestIndex index : affected_) {
      out_.outputs.push_back(
          {.request = index, .status = RequestStatus::kFinishedError, .stop_reason = std::nullopt});
      out_.new_token_ids.end_list();
    }
  }

  void update_transfers(const KVConnectorOutput& output) {
    state_.connector->update_connector_output(state_.connector_host(), output);
    for (RequestIndex index : output.finished_recving) {
      if (state_.states[index].place == RequestPlace::kNone) {
        state_.release(index);
      } else {
        state_.set_promotable(index);
      }
    }
    for (RequestIndex index : output.finished_sending) state_.release(index);
  }

  SchedulerState& state_;
  const SchedulerConfig& config_;
  KVCacheManager& manager_;
  const StepInFlight& step_;
  EngineCoreOutputs& out_;

  // Invalid blocks are rare, so this storage is not reused.
  std::vector<BlockId> invalid_blocks_;  ///< ascending
  std::vector<bool> is_marked_;          ///< as invalid_blocks_: new to an earlier request
  std::vector<RequestIndex> affected_;   ///< kFail: loading ones, then running ones
};

}  // namespace

ErrorCode check_output(SchedulerState& state, const SchedulerOutput& scheduler_output,
                       const ModelRunnerOutput& model_runner_output) {
  const std::span<const StepInFlight> steps = state.steps_in_flight();
  if (steps.empty() || steps.front().step != scheduler_output.step) {
    return ErrorCode::kNoStepInFlight;
  }
  if (!fits(model_runner_output.sampled_token_ids, steps.front().scheduled)) {
    return ErrorCode::kWrongTokenCount;
  }
  if (!model_runner_output.kv_connector_output) return ErrorCode::kNone;
  const KVConnectorOutput& output = *model_runner_output.kv_connector_output;
  if (!state.connector) return ErrorCode::kNotInConfig;
  const KVCacheManagerConfig& config = state.config.kv_cache;
  if (!output.invalid_block_ids.empty() && config.groups.size() > 1) {
    return ErrorCode::kSingleGroupOnly;
  }
  for (BlockId block : output.invalid_block_ids) {
    if (block == kNullBlockId || block >= config.pool.num_gpu_blocks) {
      return ErrorCode::kUnknownBlock;
    }
  }
  std::vector<std::uint32_t>& numbers = state.numbers;
  numbers = output.invalid_block_ids;
  if (has_duplicate(numbers)) return ErrorCode::kListedTwice;
  numbers = output.finished_recving;
  numbers.insert(numbers.end(), output.finished_sending.begin(), output.finished_sending.end());
  if (has_duplicate(numbers)) return ErrorCode::kListedTwice;

  const auto is_held = [&state](RequestIndex index) {
    return state.is_there(index) && is_finished(state.states[index].status);
  };
  for (RequestIndex index : output.finished_recving) {
    const bool is_loading = state.is_there(index) && state.is_loading(index);
    if (!is_loading && !is_held(index)) return ErrorCode::kNotLoading;
  }
  for (RequestIndex index : output.finished_sending) {
    if (!is_held(index)) return ErrorCode::kNotFinished;
  }
  return ErrorCode::kNone;
}

void take_output(SchedulerState& state, const ModelRunnerOutput& model_runner_output,
                 EngineCoreOutputs& out) {
  OutputTaker(state, out).run(model_runner_output);
}

}  // namespace kvfence::optimized
