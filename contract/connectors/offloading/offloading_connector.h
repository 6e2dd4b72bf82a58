#pragma once

/// The OffloadingConnector: which blocks of which request are copied to CPU memory and back, and
/// when a block that a transfer still touches may be reused. This file states the rules of its two
/// halves once; `reference/` and `optimized/` implement them independently.
///
/// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/v1/offloading/{scheduler,worker}.py;
/// v0.23.0 where Rules::offload_fences_reuse holds, also v1/kv_offload/{cpu,tiering}/spec.py. What
/// v0.19.0 does is called *hold* here, what v0.23.0 does *fence*.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/connectors/kv_connector.h"
#include "contract/connectors/kv_connector_worker.h"
#include "contract/connectors/transfer_engine.h"
#include "contract/core/state_digest.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/offload/offloading_manager.h"
#include "contract/tiering/secondary_tier.h"
#include "contract/tiering/secondary_tier_factory.h"
#include "contract/tiering/tiering_manager.h"

namespace kvfence {

/// An OffloadingSpec: what an offloading connector is built from.
struct OffloadingSpec {
  OffloadingManagerConfig manager;      ///< with the rules; a slot holds one offloaded block
  KVCacheManagerConfig kv_cache;        ///< the groups, and whether prefix caching is on
  std::uint32_t block_size_factor = 1;  ///< GPU blocks per offloaded block
  std::uint32_t num_workers = 1;
  bool offload_prompt_only = true;    ///< fence: nothing that decoding adds is stored
  bool request_level_policy = false;  ///< fence: a loaded prefix is stored again (REQUEST_LEVEL)
  bool has_tiers = false;             ///< fence: above secondary tiers (TieringOffloadingSpec)
  std::vector<SecondaryTierConfig> secondary_tiers = {};  ///< with tiers: what they are made from
  friend bool operator==(const OffloadingSpec&, const OffloadingSpec&) = default;
};

/// Returns what is wrong with a spec, or nothing if a connector can be built from it:
///   - block_size_factor and num_workers are positive, the manager's configuration is sound;
///   - hold: one group, of full attention, whose block size is hash_block_size;
///   - fence: groups of full attention, sliding window or Mamba; hash_block_size divides each
///     group's block size;
///   - with tiers: a TieringOffloadingManager can be built from the manager's configuration
///     (check_tiering_config), and what a request wants stored again is the tiers' to say: no
///     request_level_policy.
std::optional<std::string> check_spec(const OffloadingSpec& spec);

/// What the scheduler's half sends to the workers for a step.
struct OffloadingConnectorMetadata final : KVConnectorMetadata {
  /// hold: TransferJob::job is 0, each worker counts its own. One per request.
  std::vector<TransferJob> loads;              ///< in the order of their update_state_after_alloc
  std::vector<TransferJob> stores;             ///< in the order of planning
  std::vector<std::string> requests_to_flush;  ///< hold: preempted requests, as the step lists them
  std::vector<JobId> jobs_to_flush;            ///< fence: ascending

  void add_to(StateHash& hash) const override {
    hash.add_all(loads, stores, requests_to_flush, jobs_to_flush);
  }
};

/// The scheduler's half, as KVConnector, with what an observer reads.
///
/// The key of an offloaded block: of the request's hashes at hash_block_size, the one of the
/// block's last hash block; fence: packed with the group's number (contract/pool/block_hash.h), as
/// block keys. The manager is an OffloadingManager; "looks up", "touches" and so on are its
/// operations. Lookups count for the reuse filter, so the rules also say which keys are looked up,
/// and how often. With tiers it is a TieringOffloadingManager, whose operations name the request;
/// only that manager gets the calls marked *(tiers)*.
/// g: tokens of a GPU block; f: block_size_factor; o = f * g.
///
/// hold (one group)
/// ----------------
///
/// get_num_new_matched_tokens(request, c)
///     All full offloaded blocks of the request, n = num_tokens / o, are touched, first. 0 if
///     n * o - c < o. Else the blocks from c / o on are looked up at once, which finds h: 0 if
///     none. t = o * (c / o + h) - c; 0 if t < o. "Ask again" with prefix caching if one of the
///     found blocks is being loaded. Else t, asynchronously.
///
/// update_state_after_alloc(request, blocks, n_ext)
///     Forgets the block ids known of the request. With n_ext > 0: the first d = number of blocks
///     with a key are computed; the offloaded blocks from d * g / o to (d * g + n_ext) / o are
///     prepared for loading into blocks d and on, in the next metadata. They are being loaded from
///     now on. The cursor of the request is after them, even if it was further before. Its earlier
///     stores are forgotten: they ended when it was preempted, and its load alone holds it from now
///     on. (v0.19.0 remembers them: finished while it loads, such a request is reported as sent
///     too, which frees its blocks under the load.)
///     Requires (as upstream asserts): d * g + n_ext is a multiple of o; n_ext is what the blocks
///     after d hold.
///
/// build_connector_meta(output)
///     The loads since the last one. Then, request by request, new ones first: resumed ones forget
///     their block ids; new ids are appended. n = min(num_computed + scheduled, num_tokens) / o. If
///     n is beyond the cursor (at first 0), the blocks between are prepared for storing: refused:
///     nothing, and the cursor stays. Else the cursor is at n. If anything is to be stored, all n
///     blocks are touched, and the keys to store with their GPU blocks are a store of this
///     metadata, *pending* for the request.
///     requests_to_flush are the preempted ones; each one's pending stores are completed here, at
///     once, since the workers wait for them before the blocks are used again.
///
/// update_connector_output(output)
///     finished_sending: all pending stores of the request are completed, in one call, keys in the
///     order of planning. finished_recving: its load is completed; nothing of it is being loaded.
///
/// request_finished(request)
///     Whether it ever had a pending store, also if none is pending any more; the answer "hold"
///     ends with finished_sending. Nothing of it is known any more but what is pending or being
///     loaded.
///
/// reset_cache()
///     Changes nothing, and succeeds: there is none, which upstream's scheduler takes for success.
///
/// fence
/// -----
///
/// Groups have an own o. A group with a window (sliding window: ceil(window / o) offloaded blocks;
/// Mamba: 1) is *windowed*. The groups are asked in the order of lookup: full attention by number,
/// then windowed ones by window, greatest first, equal ones by number.
/// Jobs are numbered from 0, loads and stores alike. A job is done when num_workers workers have
/// reported it; then its keys are completed: loads complete_load, stores complete_store, with
/// success unless a worker's transfer failed. Reports of jobs from before a reset are passed over.
///
/// on_new_request(request): known from now on. max_offload_tokens as its params say. It is
///     REQUEST_LEVEL where request_level_policy is set, or the manager says so *(tiers)*; else
///     BLOCK_LEVEL.
///     Requires: no request of that id is known (upstream would mix up their jobs).
///
/// get_num_new_matched_tokens(request, c)
///     Forgets the block ids known of the request, in all groups. "Ask again" while a job of the
///     request is under way, and nothing else happens: with run-ahead, the stores of a preempted
///     request are reported after it may come in again (vllm#46014; v0.23.0 asserts that there is
///     none when it loads). hit = lookup, below. Then each group's keys are touched in order of
///     group number: all of a full-attention group; of a windowed one those from max(0, (c + hit) /
///     o - window) on, where "ask again" counts as 0. (hit, asynchronously if > 0).
///
///   lookup: limit = num_tokens, one less if a group is windowed; total = 0; deferred = false. A
///     pass asks groups in the order of lookup, at first all. For each: keys = full offloaded
///     blocks of the request in the group; limit = min(limit, keys * o); limit - c < o ends the
///     lookup with 0. It looks at keys from s = c / o up to min(ceil(limit / o), keys):
///       full attention: one after the other until a miss; "pending" counts as found and defers;
///         r = number found, "deferred" if one was pending.
///       windowed: from the last to the first; "pending" counts as a miss and defers; ends with
///         `window` hits in a row: r = index after that run, in this range; without such a run:
///         r = hits in a row that reach the first key. "deferred" if one was pending.
///     r = 0, not deferred, ends the lookup with 0. Deferred: the lookup is deferred. Else limit =
///     min(limit, o * (s + r)). new = limit - c; new < o ends with 0. If new < total: a deferred
///     lookup is no longer deferred and all groups will be asked again in a further pass; else,
///     if a windowed group came before in this pass and no further pass is due, the windowed groups
///     will be asked again. total = new. A further pass, if due, begins after the last group.
///     At the end: deferred: ask again. With prefix caching, ask again if a key being loaded is
///     among those from c / o to ceil((c + total) / o) of some group, of a windowed one among the
///     last `window` of them. Else total.
///
/// update_state_after_alloc(request, blocks, n_ext)
///     All non-null blocks count as allocated in this step, where n_ext = 0 only with the rule
///     multi_connector_shares_blocks. Nothing else if n_ext = 0. Else t = c + n_ext, where c is
///     that of the last lookup. By group: of the first ceil(t / g) blocks, d is the index of the
///     first one that is not null and has no key, or all; the blocks from d on are loaded; if any,
///     the keys from d / f to ceil(t / o) are. BLOCK_LEVEL: the group's cursor
///     is at ceil(t / o). One job loads all groups; its keys are prepared for loading and, with
///     prefix caching, are being loaded.
///     Requires (as upstream asserts): no other job of the request is under way; a windowed group
///     loads at most window * f blocks.
///
/// build_connector_meta(output)
///     1. For new requests, then cached ones: resumed ones forget their block ids; new ids are
///        appended, and the non-null ones count as allocated in this step. If a group is windowed
///        and anything was allocated: in the windowed groups of every known request, ids before the
///        length before the appending that were allocated become 0. (v0.23.0: only those after the
///        cursor, so that after a reset it stores blocks that were reused since.) Then
///        on_schedule_end *(tiers)*, so that the stores below are of the manager's next step.
///     2. To flush: all jobs of preempted requests; jobs that watch a block that was allocated in
///        this step; and, if requests are known and all of them are finished, every job.
///     3. Stores, in the order of output.scheduled: n = min(num_computed + scheduled, num_tokens,
///        max_offload_tokens), and with offload_prompt_only at most the prompt. By group: the
///        blocks from the cursor to n / o whose last GPU block is not 0, with a sliding window
///        those that have no GPU block 0 (v0.23.0 looks at the last one there too, and reports
///        slots that it wrote a part of); where full-attention groups have one common offloaded
///        size greater than o, with a = that size / o and window < a, only those whose number
///        modulo a is at least a - window. None in any group: the
///        cursors are at n / o. Else they are prepared for storing, group after group: refused:
///        the cursors stay. If anything is to be stored, the request is touched as above, and a job
///        stores it: by group, of each key to store, the GPU blocks that are not 0. The job watches
///        its blocks in windowed groups from now on. Unless refused, the cursors are at n / o, even
///        those that were further before. A store is not among the jobs to flush of the metadata
///        that plans it.
///        Requires (as upstream asserts): no load of the request is under way.
///
/// update_connector_output(output)
///     Counts completed_jobs. A done job watches nothing; a done load's keys are not being loaded.
///     A finished request without jobs is no longer known.
///
/// request_finished(request)
///     on_request_finished *(tiers)*. Never holds. With jobs under way: they watch their blocks in
///     full-attention groups from now on; else it is no longer known.
///
/// reset_cache()
///     The next metadata flushes every job under way; the manager is reset; cursors are 0; no job
///     is under way any more, nothing is watched, nothing is being loaded. (v0.23.0 keeps the
///     requests' sets of jobs, and fails at the next store of such a request; it also asserts that
///     a step lies between two resets with jobs under way.) Succeeds.
///     A finished request without jobs is no longer known.
///     With tiers: changes nothing, and does not succeed. (v0.23.0 forgets the jobs under way above
///     a manager that cannot be reset: their blocks stay reserved, or acquired, for ever;
///     vllm#44541.)
///
/// take_events(out)
///     The manager's: one BlockStored (no parent, no tokens, medium CPU; block size o with hold, 0
///     with fence) an event; one BlockRemoved a key, medium CPU.
class OffloadingConnectorScheduler : public KVConnector {
 public:
  /// What an observer reads of the manager.
  virtual void policy_lists(PolicyLists& out) const = 0;
  virtual std::uint32_t num_free_slots() const = 0;

  /// Null if it has no tiers.
  virtual TieringView* tiering() { return nullptr; }
};

/// The worker's half, as KVConnectorWorker. A *queued* store is submitted by the next
/// handle_preemptions or start_load_kv, in the order of queueing.
///
/// hold: transfers are numbered by this worker, from 0, in the order of starting loads and queueing
/// stores.
///     handle_preemptions  submits what is queued; waits for the stores of each request to flush
///     start_load_kv       submits what is queued; starts the loads; forgets of those requests that
///                         they had stores
///     wait_for_save       queues the stores
///     get_finished        takes what ended. A load: finished_recving. The last store of
///                         a request that waits for its stores: finished_sending. Then, for each
///                         finished request: with stores that did not end it waits for them;
///                         without, but with ones that did: finished_sending, once.
/// fence: transfers have the scheduler's numbers.
///     handle_preemptions  submits what is queued; waits for the jobs to flush
///     start_load_kv       submits what is queued; starts the loads
///     wait_for_save       nothing
///     get_finished        queues the stores; takes what ended: completed_jobs, and a load:
///                         finished_recving
/// Both: a transfer that succeeded, and whose duration is known, is recorded in this step's
/// statistics (contract/connectors/kv_connector_stats.h), as GPU_to_CPU or CPU_to_GPU, in the order
/// of the results. A result of a transfer that is not under way is passed over. A failed load is
/// reported as finished_recving, and its GPU blocks as invalid. hold: stores do not fail.
///
/// Aggregation over ranks: KVOutputAggregator (contract/connectors/kv_output_aggregator.h).

}  // namespace kvfence
