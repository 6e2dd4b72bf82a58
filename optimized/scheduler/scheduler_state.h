#pragma once

/// SchedulerState: the requests of a scheduler and their places, with preemption and end of a
/// request. Planning a step and taking its output share it.
///
/// Requests are in slots that are indexed by RequestIndex. The data that every step reads are in 64
/// bytes (ScheduledState), the rest elsewhere (RequestRecord).

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/kv_connector.h"
#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/core/types.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/pool/request.h"
#include "contract/scheduler/scheduler.h"
#include "optimized/base/request_ids.h"
#include "optimized/base/request_list.h"
#include "optimized/kv_cache/kv_cache_manager.h"
#include "optimized/scheduler/request_heap.h"
#include "optimized/scheduler/running_requests.h"

namespace kvfence::optimized {

/// The place of a request.
enum class RequestPlace : std::uint8_t {
  kNone,  ///< finished, and held or released
  kWaiting,
  kSkippedWaiting,
  kRunning,
};

/// The data of a request that its steps read and write. Counts are tokens.
struct alignas(64) ScheduledState {
  std::uint32_t num_tokens = 0;
  std::uint32_t num_prompt_tokens = 0;
  std::uint32_t num_computed_tokens = 0;
  std::uint32_t num_output_placeholders = 0;
  std::uint32_t num_spec_tokens = 0;
  std::uint32_t max_total_tokens = 0;  ///< prompt and max_tokens
  std::uint32_t min_total_tokens = 0;  ///< prompt and min_tokens
  /// Up to here the KV cache has nothing to do for it (KVCacheManager::num_settled_tokens).
  std::uint32_t num_settled_tokens = 0;
  std::uint64_t last_step = 0;      ///< the last that scheduled it and was not reset since
  std::uint64_t stale_through = 0;  ///< steps up to this one are stale for it
  TokenId eos_token_id = 0;
  std::uint32_t num_preemptions = 0;
  RequestStatus status = RequestStatus::kWaiting;
  RequestPlace place = RequestPlace::kNone;
  bool has_eos_token = false;
  bool has_stop_tokens = false;
  bool is_prefill_chunk = false;  ///< its last step did not sample

  /// Without num_settled_tokens, which follows from the KV cache.
  void add_to(StateHash& hash) const {
    hash.add_all(num_tokens, num_prompt_tokens, num_computed_tokens, num_output_placeholders,
                 num_spec_tokens, max_total_tokens, min_total_tokens, last_step, stale_through,
                 eos_token_id, num_preemptions, status, place, has_eos_token, has_stop_tokens,
                 is_prefill_chunk);
  }
};

/// The rest of a request. A new token writes only to the first cache line.
struct alignas(64) RequestRecord {
  explicit RequestRecord(Request tokens) : request(std::move(tokens)) {}

  Request request;
  std::string id;
  std::vector<TokenId> stop_token_ids;
  /// Its rank in skipped_waiting and, under priority, in waiting: the smaller first, then the id.
  std::uint64_t rank = 0;
  /// Steps up to this one become stale once it is no longer kPreempted.
  std::uint64_t forced_through = 0;
  KVTransferParams kv_transfer_params;
  bool skip_reading_prefix_cache = false;
  bool is_promotable = false;   ///< its grammar, or its load, is ready
  bool is_load_failed = false;  ///< blocks of its load are invalid
  bool is_there = false;        ///< unfinished or held
  bool is_reported = false;     ///< finished, and the step that says so is over

  void add_to(StateHash& hash) const {
    hash.add_all(request, id, stop_token_ids, rank, forced_through, kv_transfer_params,
                 skip_reading_prefix_cache, is_promotable, is_load_failed, is_there, is_reported);
  }
};

/// The record of a step until its output comes.
struct StepInFlight {
  std::uint64_t step = 0;
  std::vector<SchedulerOutput::Scheduled> scheduled;
  std::vector<RequestIndex> finished;
};

class SchedulerState final : private ConnectorHost, private GpuBlockPool {
 public:
  SchedulerState(const SchedulerConfig& scheduler_config, KVConnectorHandle kv_connector);

  const Rules& rules() const { return config.kv_cache.pool.rules; }
  bool is_priority() const { return config.policy == SchedulingPolicy::kPriority; }

  /// Puts the request into a slot, in no place yet.
  RequestIndex insert(const NewRequest& new_request);
  std::optional<RequestIndex> find(std::string_view id) const;
  bool is_there(RequestIndex request) const {
    return request < records.size() && records[request].is_there;
  }

  /// Whether it has a load under way that was not reported yet.
  bool is_loading(RequestIndex request) const {
    return states[request].status == RequestStatus::kWaitingForRemoteKVs &&
           !records[request].is_promotable;
  }

  KVRequest kv_request(RequestIndex request) const;
  ConnectorRequest connector_request(RequestIndex request) const;
  ConnectorHost& connector_host() { return *this; }
  std::span<TokenId> drafts(RequestIndex request) {
    return {draft_token_ids.data() + std::size_t{request} * config.num_speculative_tokens,
            config.num_speculative_tokens};
  }
  std::span<const TokenId> drafts(RequestIndex request) const {
    return {draft_token_ids.data() + std::size_t{request} * config.num_speculative_tokens,
            config.num_speculative_tokens};
  }

  /// By (priority, arrival_time, id), or by age in skipped_waiting.
  bool ranks_before(RequestIndex left, RequestIndex right) const {
    const RequestRecord& a = records[left];
    const RequestRecord& b = records[right];
    return a.rank != b.rank ? a.rank < b.rank : a.id < b.id;
  }
  auto by_rank() const {
    return [this](RequestIndex left, RequestIndex right) { return ranks_before(left, right); };
  }
  void sort_by_rank(std::vector<RequestIndex>& requests_to_sort) const;

  // waiting
  bool has_waiting() const { return is_priority() ? !waiting_heap.empty() : !waiting_list.empty(); }
  std::uint32_t num_waiting() const {
    return is_priority() ? waiting_heap.size() : waiting_list.size();
  }
  RequestIndex first_waiting() const {
    return is_priority() ? waiting_heap.top() : waiting_list.front();
  }
  /// Under priority the rank decides the position.
  void push_waiting(RequestIndex request, bool at_front);

  // skipped_waiting: a list of all requests, and a heap of those that the next step must look at.
  // Under FCFS the list is in order: requests join at its end and leave from anywhere, and those
  // that a step looks at and leaves there keep their order before the others.
  void push_skipped(RequestIndex request);
  void look_at(RequestIndex request) { retries.push(request, by_rank()); }
  void do_not_look_at(RequestIndex request) { retries.erase(request, by_rank()); }
  void set_promotable(RequestIndex request);

  void push_running(RequestIndex request);

  // Rules::reserve_for_prefills
  void reserve_for(RequestIndex request) {
    if (rules().reserve_for_prefills && !prefills.contains(request)) prefills.push_back(request);
  }
  void do_not_reserve_for(RequestIndex request) { prefills.erase(request); }

  /// The running request that loses its blocks next.
  RequestIndex victim() const { return is_priority() ? victims.top() : running.back(); }

  /// Removes an unfinished request from its place.
  void leave_place(RequestIndex request);

  /// Moves the request to the head of waiting, without blocks. Requires: it runs.
  void preempt(RequestIndex request);

  /// Ends a request that has left its place. It keeps its blocks while its load is under way and
  /// not reported.
  void finish(RequestIndex request, RequestStatus status);

  /// Frees the blocks of a finished request, and forgets the request.
  void release(RequestIndex request);

  /// The step that reported these finished requests to the workers is over.
  void set_reported(std::span<const RequestIndex> finished_requests);

  /// The steps in flight, oldest first.
  std::span<StepInFlight> steps_in_flight() { return std::span(steps).first(num_steps); }
  StepInFlight& add_step();
  void drop_oldest_step();

  void add_to(StateHash& hash) const {
    hash.add_all(connector, kv_cache_manager, pause_state, step, requests, running, victims,
                 waiting_list, waiting_heap, skipped, retries, prefills, finished,
                 connector_prefix_cache_stats, std::span(steps).first(num_steps), num_admissions,
                 num_skips);
    hash.add_pool(records, free_slots);
    hash.add_kept(states, draft_token_ids, admissions);
  }

  SchedulerConfig config;
  KVConnectorHandle connector;
  KVCacheManager kv_cache_manager;
  PauseState pause_state = PauseState::kUnpaused;
  std::uint64_t step = 0;  ///< the last one planned

  std::vector<ScheduledState> states;
  std::vector<RequestRecord> records;
  std::vector<TokenId> draft_token_ids;  ///< [request][num_speculative_tokens]
  std::vector<RequestIndex> free_slots;
  RequestIds ids;
  RequestList requests;  ///< unfinished and held ones, in the order in which they were added

  RunningRequests running;
  RequestHeap victims;       ///< priority: running ones, the next victim first
  RequestList waiting_list;  ///< FCFS
  RequestHeap waiting_heap;  ///< priority
  RequestList skipped;
  RequestHeap retries;  ///< of skipped: promotable ones, and those that may be admitted as they are
  RequestList prefills;  ///< Rules::reserve_for_prefills

  std::vector<RequestIndex> finished;  ///< since the last step
  PrefixCacheStats connector_prefix_cache_stats;

  // Storage of single calls, kept for the next one.
  BlocksByGroup blocks;
  ComputedBlocks hit;
  std::vector<RequestIndex> asked_again;
  SchedulerOutput kept;
  std::vector<std::uint32_t> numbers;

 private:
  // ConnectorHost
  ConnectorRequest request(RequestIndex index) const override { return connector_request(index); }
  bool is_cached(BlockId block) const override { return !block_key(block).empty(); }
  std::uint32_t num_output_placeholders(RequestIndex index) const override {
    return states[index].num_output_placeholders;
  }
  GpuBlockPool* gpu_block_pool() override { return this; }

  // GpuBlockPool
  std::string_view block_key(BlockId block) const override {
    return kv_cache_manager.block_pool().block_key(block);
  }
  void touch(std::span<const BlockId> touched) override {
    must(kv_cache_manager.block_pool().touch(touched), "a connector touches an unknown block");
  }
  void free_blocks(std::span<const BlockId> freed) override {
    must(kv_cache_manager.block_pool().free_blocks(freed),
         "a connector frees a block that it does not hold");
  }
  bool is_free(BlockId block) const override {
    return kv_cache_manager.block_pool().is_free(block);
  }
  std::optional<BlockId> next_free_block(std::optional<BlockId> block) const override {
    return kv_cache_manager.block_pool().next_free_block(block);
  }

  RequestIndex take_slot();
  auto is_next_victim() const {
    return [this](RequestIndex left, RequestIndex right) {
      const RequestRecord& a = records[left];
      const RequestRecord& b = records[right];
      if (a.rank != b.rank) return a.rank > b.rank;
      return admissions[left] < admissions[right];
    };
  }

  std::array<StepInFlight, 2> steps;
  std::uint32_t num_steps = 0;
  std::vector<std::uint64_t> admissions;  ///< by request: the number of its last admission
  std::uint64_t num_admissions = 0;
  std::uint64_t num_skips = 0;
};

/// Plans a step: the rules of schedule in contract/scheduler/scheduler.h (schedule_step.cpp).
/// Overwrites out. Requires: fewer than max_concurrent_batches steps in flight.
/// Cost: O(requests scheduled, preempted, admitted or asked again, and their new blocks).
void schedule_step(SchedulerState& state, SchedulerOutput& out);

// Takes the output of a step: the rules of update_from_output (take_output.cpp).

/// The error of update_from_output, if any. Changes only scratch storage.
ErrorCode check_output(SchedulerState& state, const SchedulerOutput& scheduler_output,
                       const ModelRunnerOutput& model_runner_output);

/// Overwrites out. Requires: check_output finds nothing.
/// Cost: O(requests of the step, their tokens and the blocks of those that end); with invalid
/// blocks, O(blocks of loading and running requests).
void take_output(SchedulerState& state, const ModelRunnerOutput& model_runner_output,
                 EngineCoreOutputs& out);

}  // namespace kvfence::optimized
