#pragma once

/// The differences between upstream releases, one named behaviour each.
///
/// Code asks for the behaviour (`rules.free_blocks_prepend`), never for a version; a profile is a
/// preset of the whole struct. A new difference is a new member here, and its place in kRuleFields.

#include <array>
#include <cstdint>
#include <string_view>

#include "contract/core/words.h"

namespace kvfence {

/// kRuleFields says what each stands for. Defaults are those of v0.19.
struct Rules {
  bool free_blocks_prepend = false;
  bool cache_full_blocks_mask = false;
  bool events_carry_group = false;
  bool full_sequence_gate_in_allocate_slots = false;
  bool sliding_window_mask = false;
  bool unhashed_blocks_first = false;
  bool eagle_by_group = false;
  bool mamba_align_keeps_blocks = false;
  bool mamba_align_loads = false;
  bool sink_groups = true;
  bool events_carry_spec = false;
  bool external_blocks_after_hits = false;
  bool priority_victim_shifts_loop = true;
  bool lookahead_at_admission = false;
  bool reserve_for_prefills = false;
  bool connector_learns_new_requests = false;
  bool finish_drops_by_computed_tokens = false;
  bool held_requests_are_work = false;
  bool reset_without_connector_succeeds = false;
  bool lookup_by_key = false;
  bool offload_reset = false;
  bool arc_refuses_with_idle_t1 = true;
  bool tiering = false;
  bool offload_fences_reuse = false;
  bool multi_connector_hma = false;
  bool multi_connector_shares_blocks = false;
  bool stopped_requests_are_sent = false;
  bool kv_lease_heartbeats = false;
  bool simple_offload_pins_hits = false;
  bool simple_offload_skips_stores_under_way = false;
  bool simple_offload_skips_unhashed_blocks = false;
  bool simple_offload_aligns_stores = false;
  bool decode_bench_hma = false;

  friend bool operator==(const Rules&, const Rules&) = default;
};

struct RuleField {
  std::string_view name;
  bool Rules::*member;
  bool in_v023;
  std::string_view doc;
};

/// Every rule by name: what the config line, `kvfence list` and the documentation iterate.
inline constexpr std::array<RuleField, 33> kRuleFields = {{
    // Source: vLLM v0.23.0 v1/core/block_pool.py free_blocks; absent in v0.19.0.
    {"free_blocks_prepend", &Rules::free_blocks_prepend, true,
     "free_blocks takes prepend=true: freed blocks go to the head of the free queue"},
    // Source: vLLM v0.23.0 v1/core/block_pool.py cache_full_blocks; absent in v0.19.0.
    {"cache_full_blocks_mask", &Rules::cache_full_blocks_mask, true,
     "cache_full_blocks takes a mask: masked-out blocks are passed over like null blocks"},
    // Source: vLLM v0.23.0 distributed/kv_events.py group_idx; absent in v0.19.0.
    {"events_carry_group", &Rules::events_carry_group, true,
     "BlockStored and BlockRemoved carry the group id"},
    // allocate_slots takes full_sequence_must_fit and reserved_blocks, and the gate counts what a
    // window or chunk can hold at most; before, can_fit_full_sequence is an operation of its own.
    // Source: vLLM v0.23.0 v1/core/kv_cache_manager.py allocate_slots; v0.19.0
    // can_fit_full_sequence.
    {"full_sequence_gate_in_allocate_slots", &Rules::full_sequence_gate_in_allocate_slots, true,
     "allocate_slots takes full_sequence_must_fit and reserved_blocks; no can_fit_full_sequence"},
    // Source: vLLM v0.23.0 v1/core/single_type_kv_cache_manager.py reachable_block_mask.
    {"sliding_window_mask", &Rules::sliding_window_mask, true,
     "sliding-window groups cache only blocks that a later lookup can use"},
    // Source: vLLM v0.23.0 v1/core/single_type_kv_cache_manager.py remove_skipped_blocks (every
    // kind) and SlidingWindowManager.free.
    {"unhashed_blocks_first", &Rules::unhashed_blocks_first, true,
     "dropped window blocks without a hash go to the head of the free queue"},
    // Eagle is a property of a group: its lookup looks one block further, drops it once, and hybrid
    // caching is rounded down to scheduler_block_size. Before, every lookup of every group drops a
    // block. Source: vLLM v0.23.0 v1/core/kv_cache_coordinator.py HybridKVCacheCoordinator;
    // SlidingWindowManager find_longest_cache_hit.
    {"eagle_by_group", &Rules::eagle_by_group, true,
     "eagle is a property of a group; a lookup drops its block once"},
    // Mamba in align mode leaves a table alone that is longer than needed; before, upstream
    // asserts. Source: vLLM v0.23.0 v1/core/single_type_kv_cache_manager.py
    // MambaManager.allocate_new_blocks.
    {"mamba_align_keeps_blocks", &Rules::mamba_align_keeps_blocks, true,
     "Mamba align leaves a table alone that is longer than needed"},
    // The split of a prefill counts external tokens; before, upstream asserts that there are none.
    // Source: vLLM v0.23.0 v1/core/sched/scheduler.py _mamba_block_aligned_split.
    {"mamba_align_loads", &Rules::mamba_align_loads, true, "Mamba align goes with a connector"},
    // Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py SinkFullAttentionManager; that
    // of v0.23.0 raises TypeError at construction (scheduler_block_size).
    {"sink_groups", &Rules::sink_groups, false, "groups with an attention sink can be built"},
    // Source: vLLM v0.23.0 v1/core/kv_cache_manager.py take_events.
    {"events_carry_spec", &Rules::events_carry_spec, true,
     "BlockStored carries the kind and the window of its group"},
    // Blocks for external tokens are taken when every group holds its hit; before, group by group,
    // so that those of one may be the hit of a later one (vllm#33775). Source: vLLM v0.33.0
    // v1/core/kv_cache_coordinator.py allocate_new_computed_blocks; absent in v0.19.0 and v0.23.0.
    {"external_blocks_after_hits", &Rules::external_blocks_after_hits, false,
     "a group takes blocks for external tokens when all groups hold their hits"},
    // A priority victim that is before the request at hand in the running list, and was not
    // scheduled in this step, makes the loop pass over the next request (vllm#49097, #49206).
    // Source: vLLM v0.19.0 and v0.23.0 v1/core/sched/scheduler.py schedule.
    {"priority_victim_shifts_loop", &Rules::priority_victim_shifts_loop, true,
     "a priority victim before the request at hand hides the next running request for a step"},
    // A request is admitted with lookahead slots, unless it loads asynchronously under eagle;
    // before, never while nothing of it is computed. Source: vLLM v0.23.0
    // v1/core/sched/scheduler.py schedule, limit_lookahead_tokens.
    {"lookahead_at_admission", &Rules::lookahead_at_admission, true,
     "a request is admitted with lookahead slots"},
    // Source: vLLM v0.23.0 v1/core/sched/scheduler.py _inflight_prefill_reserved_blocks.
    {"reserve_for_prefills", &Rules::reserve_for_prefills, true,
     "an asynchronous load leaves room for the prefills under way"},
    // Source: vLLM v0.23.0 v1/core/sched/scheduler.py add_request, on_new_request.
    {"connector_learns_new_requests", &Rules::connector_learns_new_requests, true,
     "the connector learns of a request when it is added"},
    // Before the connector sees a finished request, blocks are dropped that its computed tokens do
    // not need any more; before, that all of its tokens do not need. Source: vLLM v0.23.0
    // v1/core/sched/scheduler.py _connector_finished.
    {"finish_drops_by_computed_tokens", &Rules::finish_drops_by_computed_tokens, true,
     "what a finished request drops first depends on its computed tokens, not on all of them"},
    // Source: vLLM v0.23.0 v1/core/sched/scheduler.py has_finished_requests.
    {"held_requests_are_work", &Rules::held_requests_are_work, true,
     "finished requests whose blocks are held count as work"},
    // Source: vLLM v0.23.0 v1/core/sched/scheduler.py reset_connector_cache.
    {"reset_without_connector_succeeds", &Rules::reset_without_connector_succeeds, true,
     "resetting a connector where there is none succeeds"},
    // An offloading manager is asked key by key, and answers "ask again" for a block that is being
    // written; before, it counts the leading blocks that are ready. Source: vLLM v0.23.0
    // v1/kv_offload/cpu/manager.py lookup; v0.19.0 lookup.
    {"lookup_by_key", &Rules::lookup_by_key, true,
     "an offloading manager is asked key by key; a block that is being written is no miss"},
    // Source: vLLM v0.23.0 v1/kv_offload/cpu/manager.py reset_cache; absent in v0.19.0.
    {"offload_reset", &Rules::offload_reset, true, "an offloading manager can be reset"},
    // ARC looks into T2 alone while T1 is smaller than its target, and refuses to evict if nothing
    // there can go, although blocks of T1 could. Source: vLLM v0.19.0 and v0.23.0
    // v1/kv_offload/cpu/policies/arc.py evict.
    {"arc_refuses_with_idle_t1", &Rules::arc_refuses_with_idle_t1, true,
     "ARC refuses to evict from a T1 below its target"},
    // Source: vLLM v0.23.0 v1/kv_offload/tiering/manager.py; absent in v0.19.0.
    {"tiering", &Rules::tiering, true, "an offloading manager can have secondary tiers below it"},
    // An offloading connector gives the blocks of a finished request back at once and waits for the
    // transfers that touch a block before the block is used again; before, it holds the blocks of a
    // finished request until its stores are done. Source: vLLM v0.23.0
    // distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py jobs_to_flush; v0.19.0
    // request_finished.
    {"offload_fences_reuse", &Rules::offload_fences_reuse, true,
     "an offloading connector frees at once and flushes transfers of blocks that are used again"},
    // A MultiConnector hands the blocks of all groups on, if all of its children can take them;
    // before, it is for one group. Source: vLLM v0.23.0
    // distributed/kv_transfer/kv_connector/v1/multi_connector.py request_finished_all_groups.
    {"multi_connector_hma", &Rules::multi_connector_hma, true,
     "a MultiConnector hands the blocks of all groups on, if all of its children can take them"},
    // Before, only the child that loads gets the blocks, so that an offloading connector does not
    // wait for its store of a block into which another child loads (vllm#46865). Source: vLLM
    // v0.33.0 distributed/kv_transfer/kv_connector/v1/multi_connector.py, offloading/scheduler.py
    // update_state_after_alloc; absent in v0.19.0 and v0.23.0.
    {"multi_connector_shares_blocks", &Rules::multi_connector_shares_blocks, false,
     "a MultiConnector hands the blocks to every child; a store of them is waited for"},
    // A producer keeps the blocks of a request that ended at a stop token for its consumer too;
    // before, of one that reached its length alone. Source: vLLM v0.23.0
    // distributed/kv_transfer/kv_connector/v1/nixl/scheduler.py request_finished; v0.19.0
    // v1/nixl_connector.py NixlConnectorScheduler.request_finished.
    {"stopped_requests_are_sent", &Rules::stopped_requests_are_sent, true,
     "a producer keeps the blocks of a request that ended at a stop token too"},
    // What a producer holds is leased: a consumer asks for more time while its requests wait.
    // Before, the deadline is fixed. Source: vLLM v0.23.0
    // distributed/kv_transfer/kv_connector/v1/nixl/scheduler.py on_new_request, worker.py
    // _handle_heartbeat; absent in v0.19.0.
    {"kv_lease_heartbeats", &Rules::kv_lease_heartbeats, true,
     "a consumer renews the lease of blocks that a producer holds for it"},
    // A simple CPU offload connector holds what a lookup found until it is loaded, or looked up
    // again; before, it looks it up a second time at the allocation. Source: vLLM v0.23.0
    // v1/simple_kv_offload/manager.py _pending_cpu_hits; v0.19.0 update_state_after_alloc.
    {"simple_offload_pins_hits", &Rules::simple_offload_pins_hits, true,
     "a simple CPU offload connector holds what a lookup found until it is loaded"},
    // A block whose store is under way is not stored once more; before, only one whose store is
    // planned in the same step. Source: vLLM v0.23.0 v1/simple_kv_offload/manager.py
    // _in_flight_store_gpu_blocks; v0.19.0 gpu_blocks_this_step.
    {"simple_offload_skips_stores_under_way", &Rules::simple_offload_skips_stores_under_way, true,
     "a block whose store is under way is not stored once more"},
    // Source: vLLM v0.23.0 v1/simple_kv_offload/manager.py _prepare_eager_store_specs.
    {"simple_offload_skips_unhashed_blocks", &Rules::simple_offload_skips_unhashed_blocks, true,
     "eager stores pass a block without a key over; else they wait for its key"},
    // Eager stores end at a multiple of scheduler_block_size; before, at that of each group's
    // blocks. Source: vLLM v0.23.0 v1/simple_kv_offload/manager.py aligned_tokens.
    {"simple_offload_aligns_stores", &Rules::simple_offload_aligns_stores, true,
     "eager stores end at a multiple of scheduler_block_size"},
    // A DecodeBenchConnector can be built for several groups; before, for one. Source: vLLM v0.23.0
    // distributed/kv_transfer/kv_connector/v1/decode_bench_connector.py SupportsHMA; absent in
    // v0.19.0.
    {"decode_bench_hma", &Rules::decode_bench_hma, true,
     "a DecodeBenchConnector can be built for several groups"},
}};

/// A pinned upstream release.
enum class Profile : std::uint8_t { kV019, kV023 };
constexpr auto words_of(Profile) { return words({"v0.19", "v0.23"}); }

inline constexpr std::array<Profile, 2> kProfiles = {Profile::kV019, Profile::kV023};

/// The rules of a release.
Rules rules_of(Profile profile);

class DeclaredObject;

/// Takes over what settings say of rules: their members with a rule's name.
void override_rules(const DeclaredObject& settings, Rules& rules);

}  // namespace kvfence
