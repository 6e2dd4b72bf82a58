#pragma once

/// The SimpleCPUOffloadConnector: CPU memory as a second block pool, with the groups of the GPU's,
/// and which blocks are copied between the two. This file states the rules of its two halves once;
/// `reference/` and `optimized/` implement them independently.
///
/// Source: vLLM v0.19.0 and v0.23.0 v1/simple_kv_offload/{manager,worker,copy_backend,metadata}.py,
/// distributed/kv_transfer/kv_connector/v1/simple_cpu_offload_connector.py.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/connectors/kv_connector.h"
#include "contract/connectors/kv_connector_worker.h"
#include "contract/connectors/transfer_engine.h"
#include "contract/core/state_digest.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/pool/pool_values.h"

namespace kvfence {

/// What a simple CPU offload connector is built from.
struct SimpleCPUOffloadSpec {
  KVCacheManagerConfig kv_cache;     ///< the GPU's, with the rules
  std::uint32_t num_cpu_blocks = 2;  ///< with the null block
  bool lazy_offload = false;
  std::uint32_t num_workers = 1;
  friend bool operator==(const SimpleCPUOffloadSpec&, const SimpleCPUOffloadSpec&) = default;
};

/// Returns what is wrong with a spec, or nothing if a connector can be built from it:
///   - prefix caching is on (without it upstream's connector does nothing);
///   - num_cpu_blocks and num_workers are positive;
///   - groups of full attention, sliding window or Mamba, one of full attention among them. (A
///     lookup that does not begin at the request's first token is wrong for chunked attention;
///     upstream asserts that there is full attention.)
///   - no Mamba group is in eagle_groups: a hit in CPU memory may then overshoot
///     (hit_may_overshoot), and upstream loads blocks into the places of others;
///   - with eagle_groups: Rules::simple_offload_pins_hits (a second lookup drops a block again);
///   - before Rules::simple_offload_pins_hits: the reference group, below, has blocks of
///     hash_block_size (upstream counts in these there), and windows have at least 2 tokens (one of
///     a token needs nothing from before, and upstream loads into the null block).
std::optional<std::string> check_spec(const SimpleCPUOffloadSpec& spec);

/// The KV-cache configuration of CPU memory: the GPU's groups and rules over num_cpu_blocks,
/// without events, and without eagle but for eagle_groups: these are flags of the groups, which
/// lookups in CPU memory follow too.
/// Source: vLLM v0.19.0 and v0.23.0 v1/simple_kv_offload/manager.py _derive_cpu_config, __init__;
/// flags: v0.23.0 v1/core/kv_cache_coordinator.py KVCacheCoordinator.__init__.
KVCacheManagerConfig cpu_kv_cache_config(const SimpleCPUOffloadSpec& spec);

/// Loads and stores are *events*, each numbered from 0. A rank's engine has one sequence of numbers
/// for both: transfer_number maps an event to it; the other two map back.
constexpr JobId transfer_number(JobId event, bool is_store) {
  return 2 * event + (is_store ? 1 : 0);
}
constexpr JobId event_of(JobId transfer) { return transfer / 2; }
constexpr bool is_store_transfer(JobId transfer) { return transfer % 2 == 1; }

/// What the scheduler's half sends to the workers for a step. The lists of a direction have one
/// length: block k goes to block k.
struct SimpleCPUOffloadMetadata final : KVConnectorMetadata {
  std::optional<JobId> load_event;  ///< nothing: no loads in this step
  std::vector<BlockId> load_gpu_blocks;
  std::vector<BlockId> load_cpu_blocks;
  std::vector<std::string> load_requests;  ///< whose loads the event has, in order; upstream has
                                           ///< of those of all events under way
  std::optional<JobId> store_event;        ///< nothing: no stores in this step
  std::vector<BlockId> store_gpu_blocks;
  std::vector<BlockId> store_cpu_blocks;
  bool need_flush = false;

  void add_to(StateHash& hash) const override {
    hash.add_all(load_event, load_gpu_blocks, load_cpu_blocks, load_requests, store_event,
                 store_gpu_blocks, store_cpu_blocks, need_flush);
  }
};

/// What a lookup found and holds (Rules::simple_offload_pins_hits).
struct PinnedHit {
  RequestIndex request = 0;
  std::vector<BlockId> cpu_blocks;  ///< group after group, without null blocks
  friend bool operator==(const PinnedHit&, const PinnedHit&) = default;
};

/// The scheduler's half, as KVConnector, with what an observer reads.
///
/// GPU pool: host.gpu_block_pool(), which is there. CPU pool: a block pool and the coordinator of
/// its groups over cpu_kv_cache_config. A pool's operations have the rules of
/// contract/pool/block_pool.h. The *reference group* is the first of full attention. g: tokens of a
/// group's block; a: scheduler_block_size. A key is a packed one: of a block's hash and its group.
///
/// get_num_new_matched_tokens(request, c)
///     pins_hits: what is pinned for the request is freed in the CPU pool, first.
///     The coordinator's longest hit in the CPU pool of at most num_tokens - 1 - c tokens, looked
///     for in the request's tokens from c on as if it began there: what a group needs from before
///     is in the GPU's hit. 0 if nothing is found, else its length, asynchronously.
///     pins_hits: the hit's blocks, group after group, are touched in the CPU pool, and pinned.
///     Requires: c is a multiple of a.
///
/// update_state_after_alloc(request, blocks, n_ext)
///     Eager: the request is *known* from now on, if it was not; nothing of it is stored.
///     pins_hits: its pinned hit is taken out of the pins; n_ext 0: it is freed, if there is one.
///     With n_ext > 0: the hit is the pinned one; before pins_hits, it is looked up again among the
///     n_ext tokens after the local hit c = g of the reference group * number of its blocks that
///     carry a key. By group, the n_ext / g first blocks of the hit belong to the table's blocks
///     that end with number ceil((c + n_ext) / g); pairs whose CPU block is null are passed over.
///     These pairs, group after group, are the request's *load*: the CPU blocks are touched in the
///     CPU pool; then the pin is freed; then the GPU blocks are touched in the GPU pool.
///     Requires: no load of the request is under way; the lookup found n_ext tokens (upstream
///     asserts that a second lookup finds them again; without a pin of the request v0.23.0 loads
///     nothing, and the request waits for ever).
///
/// build_connector_meta(output)
///     1. Stores, eager or lazy, below. If any, they are the next store event. Their CPU blocks are
///        taken (get_new_blocks, which evicts); after that, the GPU blocks are touched.
///     2. The loads that are in no metadata yet, in the order of their update_state_after_alloc,
///        are together the next load event.
///     3. need_flush: a request was preempted in this step.
///
///   Eager: of each request of the step, new ones first, then cached ones, that is known: a resumed
///     one forgets its block ids and its places; new ids are appended. n = num_computed_tokens -
///     num_output_placeholders, not below 0: what is computed without this step's tokens.
///     aligns_stores: n is rounded down to a multiple of a. Then its groups, in order, from the
///     group's place to n / g, as far as there are ids. For each id:
///       null                              passed over
///       its block carries no key          skips_unhashed_blocks: passed over; before: the group
///                                         ends
///       carries another key than the      passed over: the block was given back, as a window
///       request's at this place           moves, and reused. (Upstream stores it under the
///                                         key that it has, though its tokens may not be computed;
///                                         and the same block twice, if it is the request's own in
///                                         another group: freed in one call, it is queued twice.)
///       is in a store of this step,       passed over. skips_stores_under_way: or in one that is
///       of a request before               not completed
///       the CPU pool has its key          passed over
///       no free CPU block is left         the request ends, all its groups
///       else                              is stored; one free CPU block less is left
///     The group's place is after what was stored or passed over. The request's CPU blocks are
///     taken and its GPU blocks touched before the next request's turn.
///   Lazy: t = 2 * the sum over groups of: Mamba 2; sliding window ceil(window / g) + 1; else
///     ceil(max_num_batched_tokens / g). The cursor, if its block is no longer free, is
///     forgotten. From the block after the cursor, at first the head, along the GPU's free queue:
///     at most t blocks, and no further once as many are to be stored as CPU blocks are free; the
///     cursor is at the last one looked at. Each that carries a key that is not in the CPU pool is
///     stored, also if another one of that key is.
///
/// update_connector_output(output)
///     finished_recving: the request's load, if there is one, is over: its CPU blocks are freed in
///     the CPU pool, then its GPU blocks in the GPU pool. After them completed_jobs, which are
///     store events: one is completed when num_workers workers have reported it, in this step and
///     before. Then its CPU blocks get the keys that the GPU blocks had when it was planned, in
///     order, are findable from now on, and are freed in the CPU pool; then the GPU blocks in the
///     GPU pool. Until then they have no key. (Upstream writes it into the block, but not into the
///     map, when the store is planned, which nothing sees.)
///     Requires: the events are under way.
///
/// request_finished(request)
///     Its pinned hit is freed. A load that is in no metadata yet is over, as above. It is not
///     known any more. Never holds: what copies touch is held in the GPU pool.
///
/// take_events(out)
///     Nothing. (Upstream reports evictions from CPU memory as removals from the GPU's, and reports
///     no stores.)
///
/// reset_cache()
///     Fails, and changes nothing: upstream has none, and raises.
///
/// on_new_request(request): nothing.
class SimpleCPUOffloadScheduler : public KVConnector {
 public:
  /// What an observer reads.
  virtual BlockCounts cpu_block_counts() const = 0;
  virtual void cpu_pool(ShownBlocks& out) const = 0;

  /// Upstream's has_pending_transfers: whether a store event is not completed.
  virtual bool has_pending_stores() const = 0;

  /// Lazy: the last block that the walk looked at, unless it was forgotten.
  virtual std::optional<BlockId> lazy_cursor() const = 0;

  /// In the order of pinning.
  virtual void pinned_hits(std::vector<PinnedHit>& out) const = 0;
};

/// The worker's half, as KVConnectorWorker.
///     handle_preemptions  need_flush: waits for every transfer under way. (Upstream waits for
///                         those that its copying thread has started, and forgets one that the
///                         thread starts meanwhile, so that it is reported with a later one only.)
///     start_load_kv       nothing
///     wait_for_save       nothing
///     get_finished        submits the metadata's loads, then its stores, under transfer_number,
///                         for no request; then takes what ended. The mark of a direction is the
///                         greatest event of it that ended so far. Events up to the mark that were
///                         not reported: of a load, load_requests are finished_recving, in order;
///                         of a store, the event is in completed_jobs. Ascending.
/// Transfers of one direction end in the order of their submission: one stream copies them.
/// Transfers do not fail: upstream cannot report it.
///
/// Aggregation over ranks: KVOutputAggregator (contract/connectors/kv_output_aggregator.h).

}  // namespace kvfence
