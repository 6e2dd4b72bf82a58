#include "reference/scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "contract/core/check.h"
#include "contract/core/lists.h"

namespace kvfence::reference {
namespace {

// Whether the step says anything of the request.
bool names(const SchedulerOutput& step, RequestIndex request) {
  return contains(step.scheduled, request, &SchedulerOutput::Scheduled::request) ||
         contains(step.preempted, request) || contains(step.finished, request) ||
         step.never_fits == request;
}

}  // namespace

// Source: vLLM v0.19.0 v1/core/sched/scheduler.py Scheduler.__init__
Scheduler::Scheduler(const SchedulerConfig& config, KVConnectorHandle connector)
    : config_(config),
      connector_(std::move(connector)),
      kv_cache_manager_(config.kv_cache),
      waiting_(config.policy),
      skipped_waiting_(config.policy) {
  KVFENCE_CHECK(!check_config(config, connector_.get() != nullptr),
                "a configuration that check_config refuses");
}

const SchedulerRequest* Scheduler::find(RequestIndex request) const {
  const auto found = std::ranges::find(requests_, request, &SchedulerRequest::index);
  return found == requests_.end() ? nullptr : &*found;
}

const SchedulerRequest& Scheduler::get(RequestIndex request) const {
  const SchedulerRequest* const found = find(request);
  KVFENCE_CHECK(found != nullptr, "a request that is not there");
  return *found;
}

// An index that is still to be reported as finished is not free either: the next step names it.
// Source: ours (contract/scheduler/scheduler.h add_request)
bool Scheduler::is_named(RequestIndex request) const {
  return find(request) != nullptr || contains(finished_, request) ||
         std::ranges::any_of(steps_in_flight_, [request](const SchedulerOutput& step) {
           return names(step, request);
         });
}

// Source: vLLM v0.19.0 v1/core/sched/scheduler.py add_request, _enqueue_waiting_request; hook:
// v0.23.0, the same function; refusals: ours
ErrorCode Scheduler::add_request(const NewRequest& new_request, RequestIndex& out) {
  const std::uint64_t num_prompt_tokens = new_request.spec.tokens.size();
  const std::uint64_t max_model_len = config_.kv_cache.max_model_len;
  if (find_request(new_request.id)) return ErrorCode::kAlreadyDeclared;
  if (num_prompt_tokens == 0 || new_request.max_tokens == 0) return ErrorCode::kNoTokens;
  if (new_request.min_tokens > new_request.max_tokens) return ErrorCode::kBadRange;
  if (num_prompt_tokens >= max_model_len ||
      num_prompt_tokens + new_request.min_tokens > max_model_len) {
    return ErrorCode::kBeyondModelLength;
  }

  RequestIndex index = 0;
  while (is_named(index)) ++index;
  const SchedulerRequest& request =
      requests_.emplace_back(index, new_request, config_.kv_cache.pool.hash);
  (new_request.needs_grammar ? skipped_waiting_ : waiting_).add_request(request);
  if (connector_ && rules().connector_learns_new_requests) {
    connector_->on_new_request(connector_request(request));
  }
  out = index;
  return ErrorCode::kNone;
}

// Source: vLLM v0.19.0 v1/core/sched/scheduler.py update_draft_token_ids; refusals: ours
ErrorCode Scheduler::update_draft_token_ids(RequestIndex request, std::span<const TokenId> tokens) {
  if (tokens.size() > config_.num_speculative_tokens || config_.async_scheduling) {
    return ErrorCode::kNotInConfig;
  }
  SchedulerRequest* const drafted = find(request);
  if (drafted == nullptr || is_finished(drafted->status)) return ErrorCode::kNone;
  drafted->spec_token_ids.clear();
  if (!drafted->is_prefill_chunk) drafted->spec_token_ids.assign(tokens.begin(), tokens.end());
  return ErrorCode::kNone;
}

void Scheduler::grammar_compiled(RequestIndex request) {
  SchedulerRequest* const waiting = find(request);
  if (waiting == nullptr || waiting->status != RequestStatus::kWaitingForGrammar) return;
  waiting->grammar_is_compiled = true;
}

// Source: vLLM v0.19.0 v1/core/sched/scheduler.py finish_requests
void Scheduler::finish_requests(std::span<const RequestIndex> requests, RequestStatus status) {
  KVFENCE_CHECK(is_finished(status), "a finished status");
  std::vector<SchedulerRequest*> unfinished;
  for (const RequestIndex index : requests) {
    SchedulerRequest* const request = find(index);
    if (request == nullptr || is_finished(request->status)) continue;
    if (contains(unfinished, request)) continue;
    unfinished.push_back(request);
  }
  for (const SchedulerRequest* const request : unfinished) {
    std::erase(running_, request->index);
    waiting_.remove_request(request->index);
    skipped_waiting_.remove_request(request->index);
  }
  for (SchedulerRequest* const request : unfinished) finish(*request, status);
}

void Scheduler::finish_all_requests(RequestStatus status) {
  std::vector<RequestIndex> all;
  requests(all);
  finish_requests(all, status);
}

// The request may be gone after the call.
// Source: vLLM v0.19.0 v1/core/sched/scheduler.py finish_requests (what a load delays),
// _free_request, _connector_finished; what is dropped: v0.23.0 _connector_finished
void Scheduler::finish(SchedulerRequest& request, RequestStatus status) {
  bool holds_blocks = request.is_loading();
  request.status = status;
  request.is_inflight_prefill = false;
  if (connector_) {
    kv_cache_manager_.remove_skipped_blocks(request.index, rules().finish_drops_by_computed_tokens
                                                               ? request.num_computed_tokens
                                                               : request.num_tokens());
    const bool connector_holds =
        connector_->request_finished(*this, connector_request(request), blocks_of(request.index));
    holds_blocks = holds_blocks || connector_holds;
  }
  finished_.push_back(request.index);
  if (!holds_blocks) free_request(request);
}

// The request is gone after the call.
// Source: vLLM v0.19.0 v1/core/sched/scheduler.py _free_blocks
void Scheduler::free_request(SchedulerRequest& request) {
  kv_cache_manager_.free(request.index);
  requests_.remove_if(
      [&request](const SchedulerRequest& candidate) { return &candidate == &request; });
}

// Source: vLLM v0.19.0 v1/core/sched/scheduler.py _preempt_request
void Scheduler::preempt(SchedulerRequest& request) {
  kv_cache_manager_.free(request.index);
  request.status = RequestStatus::kPreempted;
  request.num_computed_tokens = 0;
  request.spec_token_ids.clear();
  ++request.num_preemptions;
  request.is_inflight_prefill = false;
  waiting_.prepend_request(request);
}

// Without asynchronous scheduling the steps in flight become stale only when the request is
// admitted again (try_admit).
// Source: vLLM v0.19.0 v1/core/sched/scheduler.py reset_prefix_cache
bool Scheduler::reset_prefix_cache(bool reset_running_requests, bool reset_connector) {
  if (reset_running_requests) {
    while (!running_.empty()) {
      SchedulerRequest& request = get(running_.back());
      running_.pop_back();
      preempt(request);
      request.num_output_placeholders = 0;
      if (config_.async_scheduling) request.last_stale_step = num_steps_;
    }
    prev_step_scheduled_.clear();
  }
  const bool pool_is_reset = kv_cache_manager_.reset_prefix_cache();
  if (reset_running_requests && !pool_is_reset) return false;
  if (!reset_connector) return pool_is_reset;
  return reset_connector_cache() && pool_is_reset;
}

// Source: vLLM v0.19.0 v1/core/sched/scheduler.py reset_connector_cache
bool Scheduler::reset_connector_cache() {
  if (!connector_) return rules().reset_without_connector_succeeds;
  if (!connector_->reset_cache()) return false;
  connector_prefix_cache_stats_.reset = true;
  return true;
}

std::uint32_t Scheduler::num_tokens_in_flight(const SchedulerRequest& request) const {
  std::uint32_t num_tokens = 0;
  for (const SchedulerOutput& step : steps_in_flight_) {
    if (is_stale(request, step.step)) continue;
    for (const SchedulerOutput::Scheduled& scheduled : step.scheduled) {
      if (scheduled.request == request.index) num_tokens += scheduled.num_tokens;
    }
  }
  return num_tokens;
}

BlocksByGroup Scheduler::blocks_of(RequestIndex request) const {
  BlocksByGroup blocks;
  kv_cache_manager_.get_block_ids(request, blocks);
  return blocks;
}

std::optional<RequestIndex> Scheduler::find_request(std::string_view id) const {
  for (const SchedulerRequest& request : requests_) {
    if (request.added.id == id) return request.index;
  }
  return std::nullopt;
}

RequestView Scheduler::view(RequestIndex request) const {
  const SchedulerRequest& seen = get(request);
  return {.id = seen.added.id,
          .request = seen.request,
          .status = seen.status,
          .num_prompt_tokens = seen.num_prompt_tokens(),
          .num_computed_tokens = seen.num_computed_tokens,
          .num_output_placeholders = seen.num_output_placeholders,
          .num_preemptions = seen.num_preemptions,
          .spec_token_ids = seen.spec_token_ids};
}

ConnectorRequest Scheduler::request(RequestIndex index) const {
  return connector_request(get(index));
}

bool Scheduler::is_cached(BlockId block) const {
  return !kv_cache_manager_.block_pool().block_key(block).empty();
}

std::uint32_t Scheduler::num_output_placeholders(RequestIndex index) const {
  return get(index).num_output_placeholders;
}

std::string_view Scheduler::block_key(BlockId block) const {
  return kv_cache_manager_.block_pool().block_key(block);
}

void Scheduler::touch(std::span<const BlockId> blocks) {
  must(kv_cache_manager_.block_pool().touch(blocks),
       "a connector touches a block that is not there");
}

void Scheduler::free_blocks(std::span<const BlockId> blocks) {
  must(kv_cache_manager_.block_pool().free_blocks(blocks, FreeTo::kTail),
       "a connector frees a block that it does not hold");
}

bool Scheduler::is_free(BlockId block) const {
  std::vector<BlockId> queue;
  kv_cache_manager_.block_pool().get_all_free_blocks(queue);
  return contains(queue, block);
}

std::optional<BlockId> Scheduler::next_free_block(std::optional<BlockId> block) const {
  std::vector<BlockId> queue;
  kv_cache_manager_.block_pool().get_all_free_blocks(queue);
  auto next = queue.begin();
  if (block) {
    next = std::find(queue.begin(), queue.end(), *block);
    KVFENCE_CHECK(next != queue.end(), "the block after one that is not free");
    ++next;
  }
  return next == queue.end() ? std::nullopt : std::optional(*next);
}

void Scheduler::requests(std::vector<RequestIndex>& out) const {
  out.clear();
  for (const SchedulerRequest& request : requests_) out.push_back(request.index);
}

// Source: vLLM v0.19.0 v1/core/sched/scheduler.py get_num_unfinished_requests
std::uint32_t Scheduler::get_num_unfinished_requests() const {
  if (pause_state_ == PauseState::kPausedAll) return 0;
  if (pause_state_ == PauseState::kPausedNew) return static_cast<std::uint32_t>(running_.size());
  return static_cast<std::uint32_t>(running_.size() + waiting_.size() + skipped_waiting_.size());
}

// A request that is there and in no place is held.
// Source: vLLM v0.19.0 and v0.23.0 v1/core/sched/scheduler.py has_finished_requests
bool Scheduler::has_finished_requests() const {
  if (!finished_.empty()) return true;
  return rules().held_requests_are_work && connector_ &&
         requests_.size() > running_.size() + waiting_.size() + skipped_waiting_.size();
}

}  // namespace kvfence::reference
