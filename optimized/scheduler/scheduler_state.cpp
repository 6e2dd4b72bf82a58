#include "optimized/scheduler/scheduler_state.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "contract/core/check.h"

namespace kvfence::optimized {
namespace {

std::uint32_t sum_at_most_max(std::uint32_t a, std::uint32_t b) {
  return a + std::min(b, std::numeric_limits<std::uint32_t>::max() - a);
}

}  // namespace

SchedulerState::SchedulerState(const SchedulerConfig& scheduler_config,
                               KVConnectorHandle kv_connector)
    : config(scheduler_config),
      connector(std::move(kv_connector)),
      kv_cache_manager(config.kv_cache),
      ids(config.kv_cache.pool.table_secret) {
  KVFENCE_CHECK(!check_config(config, static_cast<bool>(connector)),
                "a configuration that check_config refuses");
}

RequestIndex SchedulerState::take_slot() {
  if (!free_slots.empty()) {
    const RequestIndex request = free_slots.back();
    free_slots.pop_back();
    return request;
  }
  const auto request = static_cast<RequestIndex>(states.size());
  states.emplace_back();
  records.emplace_back(Request({}, config.kv_cache.pool.hash));
  admissions.push_back(0);
  // Asynchronous scheduling plans with placeholders only.
  draft_token_ids.resize(draft_token_ids.size() + config.num_speculative_tokens,
                         kPlaceholderTokenId);
  return request;
}

RequestIndex SchedulerState::insert(const NewRequest& new_request) {
  const RequestIndex request = take_slot();
  const auto num_prompt_tokens = static_cast<std::uint32_t>(new_request.spec.tokens.size());
  ScheduledState& state = states[request];
  state = {};
  state.num_tokens = num_prompt_tokens;
  state.num_prompt_tokens = num_prompt_tokens;
  state.max_total_tokens = sum_at_most_max(num_prompt_tokens, new_request.max_tokens);
  state.min_total_tokens = num_prompt_tokens + new_request.min_tokens;
  state.eos_token_id = new_request.eos_token_id.value_or(0);
  state.has_eos_token = new_request.eos_token_id.has_value();
  state.has_stop_tokens = !new_request.stop_token_ids.empty();

  RequestRecord& record = records[request];
  record.request.assign(new_request.spec, config.kv_cache.pool.hash);
  record.id = new_request.id;
  record.stop_token_ids = new_request.stop_token_ids;
  record.rank = std::uint64_t{new_request.priority} << 32 | new_request.arrival_time;
  record.forced_through = 0;
  record.kv_transfer_params = new_request.kv_transfer_params;
  record.skip_reading_prefix_cache = new_request.skip_reading_prefix_cache;
  record.is_promotable = false;
  record.is_load_failed = false;
  record.is_there = true;
  record.is_reported = false;
  ids.insert(record.id, request);
  requests.push_back(request);
  return request;
}

std::optional<RequestIndex> SchedulerState::find(std::string_view id) const {
  return ids.find(id,
                  [this](RequestIndex request) { return std::string_view(records[request].id); });
}

KVRequest SchedulerState::kv_request(RequestIndex request) const {
  const ScheduledState& state = states[request];
  const RequestRecord& record = records[request];
  return {.index = request,
          .request = record.request,
          .num_computed_tokens = state.num_computed_tokens,
          .num_prompt_tokens = state.num_prompt_tokens,
          .skip_reading_prefix_cache = record.skip_reading_prefix_cache,
          .was_preempted = state.num_preemptions > 0};
}

ConnectorRequest SchedulerState::connector_request(RequestIndex request) const {
  return {.index = request,
          .id = records[request].id,
          .request = records[request].request,
          .num_prompt_tokens = states[request].num_prompt_tokens,
          .num_computed_tokens = states[request].num_computed_tokens,
          .params = records[request].kv_transfer_params,
          .status = states[request].status};
}

void SchedulerState::push_waiting(RequestIndex request, bool at_front) {
  states[request].place = RequestPlace::kWaiting;
  if (is_priority()) {
    waiting_heap.push(request, by_rank());
  } else if (at_front) {
    waiting_list.push_front(request);
  } else {
    waiting_list.push_back(request);
  }
}

void SchedulerState::push_skipped(RequestIndex request) {
  states[request].place = RequestPlace::kSkippedWaiting;
  if (!is_priority()) records[request].rank = ++num_skips;
  skipped.push_back(request);
}

void SchedulerState::set_promotable(RequestIndex request) {
  if (std::exchange(records[request].is_promotable, true)) return;
  look_at(request);
}

void SchedulerState::sort_by_rank(std::vector<RequestIndex>& requests_to_sort) const {
  std::sort(requests_to_sort.begin(), requests_to_sort.end(), by_rank());
}

void SchedulerState::push_running(RequestIndex request) {
  states[request].place = RequestPlace::kRunning;
  running.push_back(request);
  if (!is_priority()) return;
  admissions[request] = ++num_admissions;
  victims.push(request, is_next_victim());
}

void SchedulerState::leave_place(RequestIndex request) {
  switch (std::exchange(states[request].place, RequestPlace::kNone)) {
    case RequestPlace::kNone:
      break;
    case RequestPlace::kWaiting:
      if (is_priority()) {
        waiting_heap.erase(request, by_rank());
      } else {
        waiting_list.erase(request);
      }
      break;
    case RequestPlace::kSkippedWaiting:
      skipped.erase(request);
      if (retries.contains(request)) do_not_look_at(request);
      break;
    case RequestPlace::kRunning:
      running.erase(request);
      if (is_priority()) victims.erase(request, is_next_victim());
      break;
  }
}

void SchedulerState::preempt(RequestIndex request) {
  leave_place(request);
  kv_cache_manager.free(request);
  do_not_reserve_for(request);
  ScheduledState& state = states[request];
  state.status = RequestStatus::kPreempted;
  state.num_computed_tokens = 0;
  state.num_spec_tokens = 0;
  state.num_settled_tokens = 0;
  state.last_step = 0;
  ++state.num_preemptions;
  push_waiting(request, /*at_front=*/true);
}

void SchedulerState::finish(RequestIndex request, RequestStatus status) {
  ScheduledState& state = states[request];
  bool is_held = is_loading(request);
  state.status = status;
  if (connector) {
    kv_cache_manager.remove_skipped_blocks(request, rules().finish_drops_by_computed_tokens
                                                        ? state.num_computed_tokens
                                                        : state.num_tokens);
    kv_cache_manager.get_block_ids(request, blocks);
    is_held = connector->request_finished(*this, connector_request(request), blocks) || is_held;
  }
  do_not_reserve_for(request);
  finished.push_back(request);
  if (!is_held) release(request);
}

void SchedulerState::release(RequestIndex request) {
  kv_cache_manager.free(request);
  RequestRecord& record = records[request];
  ids.erase(record.id, request);
  requests.erase(request);
  record.is_there = false;
  if (record.is_reported) free_slots.push_back(request);
}

void SchedulerState::set_reported(std::span<const RequestIndex> finished_requests) {
  for (RequestIndex request : finished_requests) {
    records[request].is_reported = true;
    if (!records[request].is_there) free_slots.push_back(request);
  }
}

StepInFlight& SchedulerState::add_step() {
  StepInFlight& added = steps[num_steps++];
  added.step = step;
  return added;
}

void SchedulerState::drop_oldest_step() {
  std::swap(steps[0], steps[1]);
  --num_steps;
}

}  // namespace kvfence::optimized
