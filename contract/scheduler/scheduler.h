#pragma once

/// The scheduler: it decides, step by step, which requests get how many tokens, which get blocks,
/// which lose them, and which resume. This file states the rules of each operation once;
/// `reference/` and `optimized/` implement them independently.
///
/// Source of all of them, unless a line says otherwise: vLLM v0.19.0 v1/core/sched/scheduler.py,
/// async_scheduler.py, request_queue.py, utils.py, v1/request.py.
///
/// Not modelled: encoder inputs, streaming sessions, pooling, the limit on LoRA adapters,
/// structured output beyond waiting for its grammar, stops at repetitions, context parallelism,
/// DFlash (a lookahead slot more), and steps for the second model runner (use_v2_model_runner),
/// which list resumed requests as new ones and, with pipeline stages, keep decodes apart.
///
/// Common to all operations:
///   - A refused operation changes nothing, its outputs included. Codes are checked in the order
///     given (contract/core/status.h).
///   - A scheduler is a value: copyable, no clocks, no globals, no threads.
///   - Where upstream keeps a set, the order here is the order in which things happened, or the one
///     that an operation names.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/kv_connector.h"
#include "contract/core/flat_lists.h"
#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/core/types.h"
#include "contract/core/words.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/pool/block_pool.h"
#include "contract/pool/kv_events.h"
#include "contract/pool/pool_values.h"
#include "contract/pool/request.h"
#include "contract/scheduler/request_status.h"

namespace kvfence {

enum class SchedulingPolicy : std::uint8_t { kFCFS, kPriority };
constexpr auto words_of(SchedulingPolicy) { return words({"fcfs", "priority"}); }

/// What happens to requests whose blocks could not be loaded.
enum class KVLoadFailurePolicy : std::uint8_t { kFail, kRecompute };
constexpr auto words_of(KVLoadFailurePolicy) { return words({"fail", "recompute"}); }

/// A speculative token that only the worker knows: asynchronous scheduling plans with it.
inline constexpr TokenId kPlaceholderTokenId = 0xFFFF'FFFF;

/// What a scheduler is configured with besides its KV cache.
struct SchedulerSettings {
  SchedulingPolicy policy = SchedulingPolicy::kFCFS;
  std::uint32_t max_num_seqs = 0;                  ///< requests that run at once
  std::uint32_t max_num_scheduled_tokens = 0;      ///< tokens per step; 0: max_num_batched_tokens
  std::uint32_t long_prefill_token_threshold = 0;  ///< tokens of a request per step; 0: no bound
  bool enable_chunked_prefill = true;
  bool scheduler_reserve_full_isl = true;    ///< admit only what fits with its full length
  std::uint32_t num_speculative_tokens = 0;  ///< drafts per request and step
  bool draft_model = false;                  ///< drafts need slots, as those of eagle do
  bool async_scheduling = false;             ///< AsyncScheduler
  std::uint32_t max_concurrent_batches = 1;  ///< steps planned before the first output: 1 or 2
  KVLoadFailurePolicy kv_load_failure_policy = KVLoadFailurePolicy::kFail;
  friend bool operator==(const SchedulerSettings&, const SchedulerSettings&) = default;
};

struct SchedulerConfig : SchedulerSettings {
  KVCacheManagerConfig kv_cache;  ///< rules, groups, max_model_len, max_num_batched_tokens

  /// Tokens per step.
  std::uint32_t token_budget() const {
    return max_num_scheduled_tokens > 0 ? max_num_scheduled_tokens
                                        : kv_cache.max_num_batched_tokens;
  }

  /// Slots after a request's tokens for the draft's own.
  std::uint32_t num_lookahead_tokens() const {
    return kv_cache.use_eagle || draft_model ? num_speculative_tokens : 0;
  }

  /// The block size by which prefill is cut, if a Mamba group in align mode wants that.
  std::optional<std::uint32_t> mamba_split_block_size() const;

  friend bool operator==(const SchedulerConfig&, const SchedulerConfig&) = default;
};

/// Returns what is wrong with a configuration, or nothing if a scheduler can be built from it.
/// Besides check_config of the KV cache: max_num_seqs and the token budget are positive; a single
/// group has hash_block_size; eagle and a draft model have speculative tokens;
/// max_concurrent_batches is 1 or 2 (with more, outputs of a preempted request arrive after it
/// resumed, which upstream does not distinguish), and 1 with drafts but without asynchronous
/// scheduling (upstream plans a negative number of tokens); no cross attention, which needs an
/// encoder; Mamba align has a budget and threshold of at least its block size, and no connector
/// without Rules::mamba_align_loads.
std::optional<std::string> check_config(const SchedulerConfig& config, bool has_connector);

/// What a client asks for besides a prompt.
struct RequestSettings {
  std::uint32_t max_tokens = 16;
  std::uint32_t min_tokens = 0;
  std::optional<TokenId> eos_token_id;
  std::vector<TokenId> stop_token_ids;
  std::uint32_t priority = 0;      ///< the smaller, the sooner
  std::uint32_t arrival_time = 0;  ///< any unit
  bool skip_reading_prefix_cache = false;
  bool needs_grammar = false;  ///< waits until grammar_compiled
};

/// What add_request is given.
struct NewRequest : RequestSettings {
  std::string id;
  RequestSpec spec;                     ///< prompt tokens, LoRA adapter, cache salt
  KVTransferParams kv_transfer_params;  ///< for the connector
  void add_to(StateHash& hash) const {
    hash.add_all(static_cast<const RequestSettings&>(*this), id, spec, kv_transfer_params);
  }
};

/// The state of a request between two operations.
struct RequestView {
  std::string_view id;
  const Request& request;  ///< prompt and output tokens
  RequestStatus status = RequestStatus::kWaiting;
  std::uint32_t num_prompt_tokens = 0;
  std::uint32_t num_computed_tokens = 0;
  std::uint32_t num_output_placeholders = 0;  ///< outputs planned and not yet there
  std::uint32_t num_preemptions = 0;
  std::span<const TokenId> spec_token_ids;
};

/// What schedule decided: what a worker needs for one step, as differences.
struct SchedulerOutput {
  static constexpr std::uint32_t kNoLists = 0xFFFF'FFFF;

  /// One entry per scheduled request, in the order of upstream's num_scheduled_tokens.
  struct Scheduled {
    RequestIndex request = 0;
    std::uint32_t num_tokens = 0;
    std::uint32_t num_spec_tokens = 0;  ///< of num_tokens; scheduled_spec_decode_tokens
    bool samples = false;               ///< it will produce output: no chunk of a longer prefill
    friend bool operator==(const Scheduled&, const Scheduled&) = default;
  };

  /// Scheduled for the first time.
  struct New {
    RequestIndex request = 0;
    std::uint32_t num_computed_tokens = 0;  ///< this step's excluded
    std::uint32_t first_list = 0;           ///< all its blocks: block_lists[first_list + group]
    friend bool operator==(const New&, const New&) = default;
  };

  /// Scheduled before: running ones first, then resumed ones.
  struct Cached {
    RequestIndex request = 0;
    bool resumed = false;              ///< its blocks are all of them, not the new ones
    bool sends_all_token_ids = false;  ///< it was not in the step before
    std::uint32_t num_computed_tokens = 0;
    std::uint32_t num_output_tokens = 0;  ///< with placeholders
    std::uint32_t first_list = kNoLists;  ///< new blocks by group; kNoLists: none in any group
    friend bool operator==(const Cached&, const Cached&) = default;
  };

  std::uint64_t step = 0;  ///< 1, 2, ...
  std::vector<Scheduled> scheduled;
  std::vector<New> scheduled_new_reqs;
  std::vector<Cached> scheduled_cached_reqs;
  FlatLists<BlockId> block_lists;
  FlatLists<TokenId> spec_token_ids;  ///< one list per entry of scheduled
  std::uint32_t total_num_scheduled_tokens = 0;
  std::vector<std::uint32_t> num_common_prefix_blocks;  ///< by group; zeros with nothing running
  std::vector<RequestIndex> preempted;                  ///< in this call, first victim first
  std::vector<RequestIndex> finished;                   ///< since the call before, in order
  std::vector<BlockId> new_block_ids;                   ///< KVCacheManager take_new_block_ids
  /// Finished with kFinishedError at the end of this call: it does not fit although nothing else
  /// holds a block. At most one per step.
  std::optional<RequestIndex> never_fits;
  std::shared_ptr<const KVConnectorMetadata> kv_connector_metadata;  ///< from the connector

  friend bool operator==(const SchedulerOutput&, const SchedulerOutput&) = default;
};

/// What came back from the workers for one step.
struct ModelRunnerOutput {
  /// One list per entry of SchedulerOutput::scheduled: 1 to 1 + num_spec_tokens tokens where it
  /// samples, else none.
  FlatLists<TokenId> sampled_token_ids;
  const KVConnectorOutput* kv_connector_output = nullptr;  ///< null: nothing to report
};

/// Drafts and what became of them. Source: vLLM v0.19.0 v1/spec_decode/metrics.py.
struct SpecDecodingStats {
  std::uint32_t num_drafts = 0;
  std::uint32_t num_draft_tokens = 0;
  std::uint32_t num_accepted_tokens = 0;
  std::vector<std::uint32_t> num_accepted_tokens_per_pos;  ///< [num_speculative_tokens]
  friend bool operator==(const SpecDecodingStats&, const SpecDecodingStats&) = default;
};

/// What update_from_output reports to the clients.
struct EngineCoreOutputs {
  struct Output {
    RequestIndex request = 0;
    RequestStatus status = RequestStatus::kRunning;  ///< finished, if it finished here
    std::optional<TokenId> stop_reason;              ///< the stop token that it ended at
    friend bool operator==(const Output&, const Output&) = default;
  };
  std::vector<Output> outputs;
  FlatLists<TokenId> new_token_ids;               ///< one list per output
  std::vector<KVCacheEvent> events;               ///< one batch: the pool's, then the connector's
  PrefixCacheStats prefix_cache_stats;            ///< since the last update
  PrefixCacheStats connector_prefix_cache_stats;  ///< tokens asked of the connector, and found
  SpecDecodingStats spec_decoding_stats;          ///< of this step
};

/// Scheduler.
///
/// Three places hold unfinished requests: `running` in order of admission, `waiting`, and
/// `skipped_waiting` for those that were looked at and could not be admitted for a reason of their
/// own. FCFS: both waiting places are queues. Priority: both are ordered by (priority,
/// arrival_time, id).
///
/// A *step in flight* is one that schedule planned and update_from_output has not seen. A step is
/// *stale* for a request if the request was force-preempted (reset_prefix_cache) or cut back at an
/// invalid block after the step was planned: what comes back for the request is dropped, and no
/// longer counts as planned. Upstream v0.19.0 drops one output at most and v0.23.0 counts tokens
/// for steps (vllm#34484 for invalid blocks); one step in flight is the case in which all agree.
///
/// add_request(new_request, out)
///     Into waiting; into skipped_waiting if it needs a grammar. The index comes back into use only
///     when the request is gone, was reported in SchedulerOutput::finished, and no step in flight
///     names it.
///     Errors:
///       kAlreadyDeclared    a request of that id is there
///       kNoTokens           no prompt token, or max_tokens is 0
///       kBadRange           min_tokens are more than max_tokens
///       kBeyondModelLength  the prompt has max_model_len tokens or more, or the prompt and
///                           min_tokens are more than max_model_len
///
/// schedule(out)
///     Plans a step with the token budget (0 where all is paused).
///     1. new_step_starts of the KV cache.
///     2. Running requests in order, while there is budget. Passed over: one whose planned outputs
///        reach its limit (placeholders > 0 and num_computed_tokens + 2 - placeholders >= prompt +
///        max_tokens). Tokens: num_tokens + drafts + placeholders - computed, at most the
///        long-prefill threshold, the budget, and max_model_len - 1 - computed; with Mamba align
///        cut at block boundaries (below). 0 tokens: passed over. allocate_slots with lookahead;
///        while it fails (an error of the manager counts as failure), a victim is preempted: FCFS
///        the last of running; priority the first in running order among those with the greatest
///        (priority, arrival_time), whose tokens of this step go back to the budget. Once the
///        request itself was the victim, phase 2 ends. Rules::priority_victim_shifts_loop.
///        A scheduled request's drafts: as many as its tokens reach beyond num_tokens +
///        placeholders are sent along; then they are cleared.
///     3. If no request was preempted and the scheduler is unpaused: waiting requests while there
///        is budget and running has room. FCFS: skipped_waiting before waiting; priority: the
///        lesser head, skipped_waiting's where neither is less.
///        - A blocked request that cannot be promoted is skipped. Promotion: a compiled grammar; a
///          load that was reported finished. A load without failed blocks caches its computed
///          tokens; a failed one caches what is left of them, or frees its blocks if nothing is.
///          Then computed == num_tokens becomes one less (upstream: not after a failed load), and
///          it is kPreempted if it ever was preempted, else kWaiting.
///        - With num_computed_tokens == 0: get_computed_blocks, then the connector, whose "ask
///          again" skips the request.
///        - Tokens: none for an asynchronous load; else num_tokens - computed, at most the
///          threshold and the budget. More than the budget without chunked prefill ends phase 3,
///          as does Mamba align leaving 0.
///        - can_fit_full_sequence (scheduler_reserve_full_isl; or as arguments of allocate_slots,
///          Rules::full_sequence_gate_in_allocate_slots), then allocate_slots, with
///          delay_cache_blocks for an asynchronous load, with lookahead unless
///          num_computed_tokens == 0 (Rules::lookahead_at_admission), with reserved blocks for an
///          asynchronous load (Rules::reserve_for_prefills). Failure ends phase 3; an error of the
///          manager counts as failure.
///        - update_state_after_alloc; where the connector was asked, its statistics count the
///          tokens after the local hit as asked, the answer as found. An asynchronous load:
///          kWaitingForRemoteKVs, num_computed_tokens count what is being loaded, skipped. Else
///          into running.
///        Skipped requests are in skipped_waiting before those not looked at, in the order in which
///        they were looked at.
///     4. Preempted: blocks freed, num_computed_tokens 0, drafts cleared, num_preemptions + 1, to
///        the head of waiting.
///     5. The output; build_connector_meta; then num_computed_tokens advance. Asynchronous: a
///        request that samples gains 1 + num_spec_tokens placeholders, and num_speculative_tokens
///        placeholder drafts.
///     6. If phase 2 ended with a request that was its own victim, or phase 3 ended at a request,
///        although now no request holds a block, that request is finished with kFinishedError and
///        named in never_fits. Upstream tries it for ever (vllm#35541).
///     Mamba align (block size b), while computed < max(prompt, num_tokens - 1): let last =
///     num_tokens rounded down to b, less b under eagle (not below 0); tokens that end before last
///     are rounded down to b; tokens that pass last from below end at it.
///     Rules::reserve_for_prefills: reserved are the remaining blocks (get_num_remaining_blocks) of
///     all requests that were admitted with tokens left to prefill after the step, or as
///     asynchronous loads, and have not been preempted, finished, or scheduled to their end since,
///     nor lost all that was loaded (upstream goes on to reserve for those).
///     Errors:
///       kStepsInFlight      max_concurrent_batches steps are in flight
///
/// update_from_output(scheduler_output, model_runner_output, out)
///     In this order:
///     1. Invalid blocks. Two passes: loading requests in skipped_waiting order, then running. In a
///        pass, let c be a request's num_computed_tokens less the tokens of its steps in flight,
///        this one's included; among its first ceil(c / block_size) blocks each invalid one is
///        *new* unless an earlier request of the pass had it as new. At its first new one the
///        request is cut back to the tokens before that block; with none but others' the request
///        keeps c. A running request with any invalid block is affected: its steps in flight are
///        stale; asynchronous: its drafts and placeholders are cleared (else drafts stay).
///        kFail: the blocks of affected running requests from the first new one on are evicted, in
///        ascending order; affected requests, loading ones first, finish with kFinishedError in
///        step 4. kRecompute: a loading one is marked as failed until it is promoted.
///     2. For each scheduled request, in order, unless affected, gone, finished, or this step is
///        stale for it: rejected drafts (num_spec_tokens + 1 - sampled) are taken off
///        num_computed_tokens if that is > 0, and off placeholders if those are > 0; tokens are
///        appended one by one until one stops the request (rest dropped). Stops, in this order:
///        not before min_tokens; eos; a stop token; num_tokens >= max_model_len or max_tokens
///        outputs. Asynchronous: placeholders go down by the tokens kept, and a request that was
///        running caches num_computed_tokens - placeholders. A stopped request is freed at once
///        (below). One output per request with tokens. A preempted request takes its tokens too,
///        and may stop.
///     3. Stopped requests leave their place; upstream forgets skipped_waiting.
///     4. Under kFail, affected requests finish, with an output each.
///     5. update_connector_output; each finished_recving: loading: may be promoted from now on;
///        finished: freed. Each finished_sending: freed.
///     6. Events and statistics are taken.
///     Freed (at finish): drop what is not needed (Rules::finish_drops_by_computed_tokens; only
///     with a connector), request_finished of the connector; unless it says to hold them, or the
///     request was still loading, blocks are freed and the request is gone. Otherwise it is held
///     until finished_sending or finished_recving names it.
///     Errors:
///       kNoStepInFlight     scheduler_output is not the oldest step in flight
///       kWrongTokenCount    sampled_token_ids does not fit the step
///       kNotInConfig        a connector output without connector
///       kSingleGroupOnly    invalid blocks and more than one group
///       kUnknownBlock       an invalid block that is no block of the pool, or the null block
///       kListedTwice        a request or block occurs twice in the three lists
///       kNotLoading         finished_recving names a request that neither loads nor is held, or
///                           whose load was reported before
///       kNotFinished        finished_sending names a request that is not held
///
/// update_draft_token_ids(request, tokens)
///     Drafts for the next step of a request. Cleared instead if the last step that had it did not
///     sample. Nothing for a finished request.
///     Errors:
///       kNotInConfig        more than num_speculative_tokens, or asynchronous scheduling
///
/// grammar_compiled(request)
///     It may be promoted from now on. Nothing for a request that does not wait for one.
///
/// finish_requests(requests, status)
///     Those that are not finished leave their place, then are freed one by one, in the order given
///     (each once). A loading request's blocks stay until finished_recving names it, unless that
///     was reported.
///     Requires: a finished status.
/// finish_all_requests(status)
///     The same, in the order in which they were added.
///
/// set_pause_state(state), pause_state()
///
/// reset_prefix_cache(reset_running_requests, reset_connector) -> whether all succeeded
///     With reset_running_requests: preempts running requests, the last first; their steps in
///     flight are stale, placeholders 0, and no request was in the step before. Then the pool's
///     reset, which fails while blocks are held. Then the connector's, with reset_connector,
///     unless the pool failed after reset_running_requests (upstream raises there).
///     Without a connector: Rules::reset_without_connector_succeeds.
///     Stale steps: in asynchronous scheduling. Otherwise a step's output for a request that is
///     still kPreempted when it comes is taken, and dropped once the request has moved on.
///
/// find_request(id) -> index, or nothing. view(index). Requires: a request that is there.
/// requests(out), running(out), waiting(out), skipped_waiting(out)
///     Requests that are there, held ones included, in the order in which they were added; the
///     three places in their order.
/// get_num_unfinished_requests()
///     Running ones; those that wait too unless new ones are paused; 0 where all is paused.
/// has_finished_requests()
///     Whether the next step will report finished requests (Rules::held_requests_are_work).
///
/// For an observer: block_counts(), and observe_blocks and get_block_ids, which replace their
/// outputs (contract/pool/observe_blocks.h).
class Scheduler {
 public:
  virtual ~Scheduler() = default;

  virtual ErrorCode add_request(const NewRequest& new_request, RequestIndex& out) = 0;
  virtual ErrorCode schedule(SchedulerOutput& out) = 0;
  virtual ErrorCode update_from_output(const SchedulerOutput& scheduler_output,
                                       const ModelRunnerOutput& model_runner_output,
                                       EngineCoreOutputs& out) = 0;
  virtual ErrorCode update_draft_token_ids(RequestIndex request,
                                           std::span<const TokenId> tokens) = 0;
  virtual void grammar_compiled(RequestIndex request) = 0;
  virtual void finish_requests(std::span<const RequestIndex> requests, RequestStatus status) = 0;
  virtual void finish_all_requests(RequestStatus status) = 0;
  virtual void set_pause_state(PauseState state) = 0;
  virtual PauseState pause_state() const = 0;
  virtual bool reset_prefix_cache(bool reset_running_requests, bool reset_connector) = 0;

  virtual std::optional<RequestIndex> find_request(std::string_view id) const = 0;
  virtual RequestView view(RequestIndex request) const = 0;
  virtual void requests(std::vector<RequestIndex>& out) const = 0;
  virtual void running(std::vector<RequestIndex>& out) const = 0;
  virtual void waiting(std::vector<RequestIndex>& out) const = 0;
  virtual void skipped_waiting(std::vector<RequestIndex>& out) const = 0;
  virtual std::uint32_t get_num_unfinished_requests() const = 0;
  virtual bool has_finished_requests() const = 0;

  virtual const SchedulerConfig& config() const = 0;
  virtual KVConnector* connector() = 0;

  virtual BlockCounts block_counts() const = 0;
  virtual void observe_blocks(ShownBlocks& out) const = 0;
  virtual void get_block_ids(RequestIndex request, BlocksByGroup& out) const = 0;

  virtual void add_to(StateHash& hash) const = 0;

 protected:
  Scheduler() = default;
  Scheduler(const Scheduler&) = default;
  Scheduler& operator=(const Scheduler&) = default;
};

}  // namespace kvfence
