#include <algorithm>
#include <set>
#include <utility>

#include "contract/core/check.h"
#include "contract/core/lists.h"
#include "reference/scheduler/scheduler.h"

namespace kvfence::reference {
namespace {

template <class Id>
bool has_duplicates(std::vector<Id> ids) {
  std::sort(ids.begin(), ids.end());
  return std::adjacent_find(ids.begin(), ids.end()) != ids.end();
}

struct Stop {
  RequestStatus status = RequestStatus::kFinishedStopped;
  std::optional<TokenId> stop_reason;
};

// Whether the request ends at its last token.
// Source: vLLM v0.19.0 v1/core/sched/utils.py check_stop
std::optional<Stop> check_stop(const SchedulerRequest& request, std::uint32_t max_model_len) {
  const NewRequest& added = request.added;
  if (request.num_output_tokens() < added.min_tokens) return std::nullopt;
  const TokenId last = request.request.all_token_ids().back();
  if (last == added.eos_token_id) return Stop{RequestStatus::kFinishedStopped, std::nullopt};
  if (contains(added.stop_token_ids, last)) {
    return Stop{RequestStatus::kFinishedStopped, last};
  }
  if (request.num_tokens() >= max_model_len || request.num_output_tokens() >= added.max_tokens) {
    return Stop{RequestStatus::kFinishedLengthCapped, std::nullopt};
  }
  return std::nullopt;
}

// Source: vLLM v0.19.0 v1/spec_decode/metrics.py SpecDecodingStats.observe_draft
void observe_draft(std::uint32_t num_draft_tokens, std::uint32_t num_accepted_tokens,
                   SpecDecodingStats& stats) {
  ++stats.num_drafts;
  stats.num_draft_tokens += num_draft_tokens;
  stats.num_accepted_tokens += num_accepted_tokens;
  for (std::uint32_t i = 0; i < num_accepted_tokens; ++i) ++stats.num_accepted_tokens_per_pos[i];
}

}  // namespace

// Source: vLLM v0.19.0 v1/core/sched/scheduler.py update_from_output
ErrorCode Scheduler::update_from_output(const SchedulerOutput& scheduler_output,
                                        const ModelRunnerOutput& model_runner_output,
                                        EngineCoreOutputs& out) {
  if (const ErrorCode error = check_update(scheduler_output, model_runner_output);
      error != ErrorCode::kNone) {
    return error;
  }
  out = {};
  out.spec_decoding_stats.num_accepted_tokens_per_pos.assign(config_.num_speculative_tokens, 0);

  const KVConnectorOutput* const report = model_runner_output.kv_connector_output;
  std::vector<RequestIndex> affected;
  if (report != nullptr) affected = handle_invalid_blocks(report->invalid_block_ids);
  take_sampled_tokens(steps_in_flight_.front(), model_runner_output.sampled_token_ids, affected,
                      out);
  if (config_.kv_load_failure_policy == KVLoadFailurePolicy::kFail) {
    finish_requests(affected, RequestStatus::kFinishedError);
    for (const RequestIndex request : affected) {
      out.outputs.push_back({request, RequestStatus::kFinishedError, std::nullopt});
      out.new_token_ids.end_list();
    }
  }
  if (report != nullptr) update_from_kv_xfer_finished(*report);
  steps_in_flight_.pop_front();

  kv_cache_manager_.take_events(out.events);
  if (connector_) connector_->take_events(out.events);
  out.prefix_cache_stats = kv_cache_manager_.take_prefix_cache_stats();
  out.connector_prefix_cache_stats = std::exchange(connector_prefix_cache_stats_, {});
  return ErrorCode::kNone;
}

// Source: ours (contract/scheduler/scheduler.h)
ErrorCode Scheduler::check_update(const SchedulerOutput& scheduler_output,
                                  const ModelRunnerOutput& model_runner_output) const {
  if (steps_in_flight_.empty() || steps_in_flight_.front().step != scheduler_output.step) {
    return ErrorCode::kNoStepInFlight;
  }
  const SchedulerOutput& step = steps_in_flight_.front();
  const FlatLists<TokenId>& sampled = model_runner_output.sampled_token_ids;
  if (sampled.size() != step.scheduled.size()) return ErrorCode::kWrongTokenCount;
  for (std::size_t k = 0; k < sampled.size(); ++k) {
    const SchedulerOutput::Scheduled& scheduled = step.scheduled[k];
    const std::size_t least = scheduled.samples ? 1 : 0;
    const std::size_t most = scheduled.samples ? 1 + scheduled.num_spec_tokens : 0;
    if (sampled[k].size() < least || sampled[k].size() > most) return ErrorCode::kWrongTokenCount;
  }
  if (model_runner_output.kv_connector_output == nullptr) return ErrorCode::kNone;
  return check_connector_output(*model_runner_output.kv_connector_output);
}

// Source: ours (contract/scheduler/scheduler.h); upstream unpacks one group, and asserts the others
ErrorCode Scheduler::check_connector_output(const KVConnectorOutput& report) const {
  if (!connector_) return ErrorCode::kNotInConfig;
  const std::vector<BlockId>& invalid_blocks = report.invalid_block_ids;
  if (!invalid_blocks.empty() && config_.kv_cache.groups.size() > 1) {
    return ErrorCode::kSingleGroupOnly;
  }
  if (std::any_of(invalid_blocks.begin(), invalid_blocks.end(), [this](BlockId block) {
        return block == kNullBlockId || block >= config_.kv_cache.pool.num_gpu_blocks;
      })) {
    return ErrorCode::kUnknownBlock;
  }
  std::vector<RequestIndex> requests = report.finished_recving;
  requests.insert(requests.end(), report.finished_sending.begin(), report.finished_sending.end());
  if (has_duplicates(invalid_blocks) || has_duplicates(requests)) return ErrorCode::kListedTwice;

  const auto is_held = [this](RequestIndex index) {
    const SchedulerRequest* const request = find(index);
    return request != nullptr && is_finished(request->status);
  };
  const auto loads = [this](RequestIndex index) {
    const SchedulerRequest* const request = find(index);
    return request != nullptr && request->is_loading();
  };
  for (const RequestIndex request : report.finished_recving) {
    if (!loads(request) && !is_held(request)) return ErrorCode::kNotLoading;
  }
  for (const RequestIndex request : report.finished_sending) {
    if (!is_held(request)) return ErrorCode::kNotFinished;
  }
  return ErrorCode::kNone;
}

// An invalid block that several requests share is recomputed by the first of them; the others may
// count it as computed. What is still being loaded is not cached yet, so nothing of it is evicted.
// Returns whom step 2 passes over, loading requests first; under the policy "recompute" those are
// the running ones alone.
// Source: vLLM v0.19.0 v1/core/sched/scheduler.py _handle_invalid_blocks,
// _update_requests_with_invalid_blocks; steps that are stale: ours (contract/scheduler/scheduler.h)
std::vector<RequestIndex> Scheduler::handle_invalid_blocks(
    std::span<const BlockId> invalid_blocks) {
  if (invalid_blocks.empty()) return {};
  const std::set<BlockId> invalid(invalid_blocks.begin(), invalid_blocks.end());
  const bool fails = config_.kv_load_failure_policy == KVLoadFailurePolicy::kFail;
  const std::uint32_t block_size = config_.kv_cache.groups.front().block_size;
  std::vector<RequestIndex> affected;
  std::set<BlockId> blocks_to_evict;

  const auto scan = [&](const std::vector<RequestIndex>& requests, bool is_running) {
    std::set<BlockId> marked;
    for (const RequestIndex index : requests) {
      SchedulerRequest& request = get(index);
      if (!is_running && request.status != RequestStatus::kWaitingForRemoteKVs) continue;
      const std::uint32_t num_computed =
          request.num_computed_tokens - num_tokens_in_flight(request);
      const std::vector<BlockId> blocks = blocks_of(index).front();
      const std::size_t num_blocks = std::min(cdiv(num_computed, block_size), blocks.size());
      bool is_affected = false;
      std::optional<std::size_t> first_marked;
      for (std::size_t i = 0; i < num_blocks; ++i) {
        if (!invalid.contains(blocks[i])) continue;
        is_affected = true;
        if (marked.insert(blocks[i]).second && !first_marked) first_marked = i;
      }
      if (!is_affected) continue;

      request.num_computed_tokens =
          first_marked ? static_cast<std::uint32_t>(*first_marked) * block_size : num_computed;
      if (is_running) {
        request.last_stale_step = num_steps_;
        if (config_.async_scheduling) {
          request.spec_token_ids.clear();
          request.num_output_placeholders = 0;
        }
        for (std::size_t i = first_marked.value_or(blocks.size()); i < blocks.size(); ++i) {
          blocks_to_evict.insert(blocks[i]);
        }
      } else if (!fails) {
        request.load_has_failed = true;
      }
      if (is_running || fails) affected.push_back(index);
    }
  };
  scan(skipped_waiting_.requests(), /*is_running=*/false);
  scan(running_, /*is_running=*/true);

  if (fails) {
    const std::vector<BlockId> in_order(blocks_to_evict.begin(), blocks_to_evict.end());
    must(kv_cache_manager_.evict_blocks(in_order), "blocks of a table are blocks of the pool");
  }
  return affected;
}

// Source: vLLM v0.19.0 v1/core/sched/scheduler.py update_from_output, its loop,
// _update_request_with_output; async_scheduler.py, the same function
void Scheduler::take_sampled_tokens(const SchedulerOutput& step,
                                    const FlatLists<TokenId>& sampled_token_ids,
                                    std::span<const RequestIndex> affected,
                                    EngineCoreOutputs& out) {
  std::vector<RequestIndex> stopped;
  for (std::size_t k = 0; k < step.scheduled.size(); ++k) {
    const SchedulerOutput::Scheduled& scheduled = step.scheduled[k];
    const std::span<const TokenId> sampled = sampled_token_ids[k];
    SchedulerRequest* const found = find(scheduled.request);
    if (contains(affected, scheduled.request) || found == nullptr || is_finished(found->status) ||
        is_stale(*found, step.step) || sampled.empty()) {
      continue;
    }
    SchedulerRequest& request = *found;
    const auto num_sampled = static_cast<std::uint32_t>(sampled.size());
    if (scheduled.num_spec_tokens > 0) {
      const std::uint32_t num_rejected = scheduled.num_spec_tokens + 1 - num_sampled;
      // Nothing of a preempted request is computed. Placeholders are of asynchronous scheduling.
      if (request.num_computed_tokens > 0) request.num_computed_tokens -= num_rejected;
      if (request.num_output_placeholders > 0) request.num_output_placeholders -= num_rejected;
      observe_draft(scheduled.num_spec_tokens, num_sampled - 1, out.spec_decoding_stats);
    }

    std::uint32_t num_kept = 0;
    std::optional<Stop> stop;
    while (num_kept < num_sampled && !stop) {
      request.request.append_output_token_ids(sampled.subspan(num_kept, 1));
      ++num_kept;
      stop = check_stop(request, config_.kv_cache.max_model_len);
    }
    if (config_.async_scheduling) {
      KVFENCE_CHECK(num_kept <= request.num_output_placeholders, "outputs were planned");
      request.num_output_placeholders -= num_kept;
      if (request.status == RequestStatus::kRunning) {
        const std::uint32_t num_tokens =
            request.num_computed_tokens - request.num_output_placeholders;
        must(kv_cache_manager_.cache_blocks(kv_request(request), num_tokens),
             "what is computed has blocks and hashes");
      }
    }
    EngineCoreOutputs::Output output;
    output.request = request.index;
    if (stop) {
      output.status = stop->status;
      output.stop_reason = stop->stop_reason;
      stopped.push_back(request.index);
      finish(request, stop->status);
    }
    out.outputs.push_back(output);
    out.new_token_ids.append(sampled.first(num_kept));
    out.new_token_ids.end_list();
  }
  for (const RequestIndex request : stopped) {
    std::erase(running_, request);
    waiting_.remove_request(request);
    skipped_waiting_.remove_request(request);
  }
}

// Source: vLLM v0.19.0 v1/core/sched/scheduler.py _update_from_kv_xfer_finished
void Scheduler::update_from_kv_xfer_finished(const KVConnectorOutput& report) {
  connector_->update_connector_output(*this, report);
  for (const RequestIndex index : report.finished_recving) {
    SchedulerRequest& request = get(index);
    if (is_finished(request.status)) {
      free_request(request);
    } else {
      request.load_is_finished = true;
    }
  }
  for (const RequestIndex index : report.finished_sending) free_request(get(index));
}

}  // namespace kvfence::reference
