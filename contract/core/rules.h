#pragma once

/// The differences between upstream releases, one named behaviour each.
///
/// Code asks for the behaviour (`rules.free_blocks_prepend`), never for a version; a profile is a
/// preset of the whole struct. A new difference is a new member here, a line in kRuleFields, and a
/// value in each preset.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvfence {

struct Rules {
  /// free_blocks takes `prepend`, which puts the freed blocks at the head of the free queue.
  /// Source: vLLM v0.23.0 v1/core/block_pool.py free_blocks; absent in v0.19.0.
  bool free_blocks_prepend = false;

  /// cache_full_blocks takes a mask; a masked-out block is passed over like a null block.
  /// Source: vLLM v0.23.0 v1/core/block_pool.py cache_full_blocks; absent in v0.19.0.
  bool cache_full_blocks_mask = false;

  /// BlockStored and BlockRemoved carry the group id.
  /// Source: vLLM v0.23.0 distributed/kv_events.py group_idx; absent in v0.19.0.
  bool events_carry_group = false;

  /// allocate_slots takes full_sequence_must_fit and reserved_blocks, and the gate counts what a
  /// window or chunk can hold at most; before, can_fit_full_sequence is an operation of its own.
  /// Source: vLLM v0.23.0 v1/core/kv_cache_manager.py allocate_slots; v0.19.0
  /// can_fit_full_sequence.
  bool full_sequence_gate_in_allocate_slots = false;

  /// Sliding-window groups cache only blocks that a later lookup can use.
  /// Source: vLLM v0.23.0 v1/core/single_type_kv_cache_manager.py reachable_block_mask.
  bool sliding_window_mask = false;

  /// A window's blocks that carry no hash go to the head of the free queue when they are dropped or
  /// freed. Source: vLLM v0.23.0 v1/core/single_type_kv_cache_manager.py remove_skipped_blocks
  /// (every kind) and SlidingWindowManager.free.
  bool unhashed_blocks_first = false;

  /// Eagle is a property of a group: its lookup looks one block further, drops it once, and hybrid
  /// caching is rounded down to scheduler_block_size. Before, every lookup of every group drops a
  /// block. Source: vLLM v0.23.0 v1/core/kv_cache_coordinator.py HybridKVCacheCoordinator;
  /// SlidingWindowManager find_longest_cache_hit.
  bool eagle_by_group = false;

  /// Mamba in align mode leaves a table alone that is longer than needed; before, upstream asserts.
  /// Source: vLLM v0.23.0 v1/core/single_type_kv_cache_manager.py MambaManager.allocate_new_blocks.
  bool mamba_align_keeps_blocks = false;

  /// Groups with an attention sink can be built.
  /// Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py SinkFullAttentionManager; that of
  /// v0.23.0 raises TypeError at construction (scheduler_block_size).
  bool sink_groups = true;

  /// BlockStored carries the kind and the window of its group.
  /// Source: vLLM v0.23.0 v1/core/kv_cache_manager.py take_events.
  bool events_carry_spec = false;

  /// A priority victim that stands before the request at hand in the running list, and was not
  /// scheduled in this step, makes the loop pass over the request behind (vllm#49097, #49206).
  /// Source: vLLM v0.19.0 and v0.23.0 v1/core/sched/scheduler.py schedule.
  bool priority_victim_shifts_loop = true;

  /// A request is admitted with lookahead slots, unless it loads asynchronously under eagle;
  /// before, never while nothing of it is computed.
  /// Source: vLLM v0.23.0 v1/core/sched/scheduler.py schedule, limit_lookahead_tokens.
  bool lookahead_at_admission = false;

  /// An asynchronous load is admitted only beside what the prefills under way still need.
  /// Source: vLLM v0.23.0 v1/core/sched/scheduler.py _inflight_prefill_reserved_blocks.
  bool reserve_for_prefills = false;

  /// The connector is told of a request when it is added.
  /// Source: vLLM v0.23.0 v1/core/sched/scheduler.py add_request, on_new_request.
  bool connector_learns_new_requests = false;

  /// Before the connector sees a finished request, blocks are dropped that its computed tokens do
  /// not need any more; before, that all of its tokens do not need.
  /// Source: vLLM v0.23.0 v1/core/sched/scheduler.py _connector_finished.
  bool finish_drops_by_computed_tokens = false;

  /// Finished requests whose blocks are held count as work.
  /// Source: vLLM v0.23.0 v1/core/sched/scheduler.py has_finished_requests.
  bool held_requests_are_work = false;

  /// Resetting a connector where there is none succeeds; before, it fails.
  /// Source: vLLM v0.23.0 v1/core/sched/scheduler.py reset_connector_cache.
  bool reset_without_connector_succeeds = false;

  /// An offloading manager is asked key by key, and answers "ask again" for a block that is being
  /// written; before, it counts the leading blocks that are ready.
  /// Source: vLLM v0.23.0 v1/kv_offload/cpu/manager.py lookup; v0.19.0 lookup.
  bool lookup_by_key = false;

  /// An offloading manager can be reset.
  /// Source: vLLM v0.23.0 v1/kv_offload/cpu/manager.py reset_cache; absent in v0.19.0.
  bool offload_reset = false;

  /// ARC looks into T2 alone while T1 is smaller than its target, and refuses to evict if nothing
  /// there can go, although blocks of T1 could.
  /// Source: vLLM v0.19.0 and v0.23.0 v1/kv_offload/cpu/policies/arc.py evict.
  bool arc_refuses_with_idle_t1 = true;

  /// An offloading manager can have secondary tiers below it.
  /// Source: vLLM v0.23.0 v1/kv_offload/tiering/manager.py; absent in v0.19.0.
  bool tiering = false;

  /// An offloading connector gives the blocks of a finished request back at once and waits for the
  /// transfers that touch a block before the block is used again; before, it holds the blocks of a
  /// finished request until its stores are done.
  /// Source: vLLM v0.23.0 distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py
  /// jobs_to_flush; v0.19.0 request_finished.
  bool offload_fences_reuse = false;

  /// A MultiConnector hands the blocks of all groups on, if all of its children can take them;
  /// before, it is for one group. Source: vLLM v0.23.0
  /// distributed/kv_transfer/kv_connector/v1/multi_connector.py request_finished_all_groups.
  bool multi_connector_hma = false;

  /// A MultiConnector hands the blocks of a request to every child, and an offloading connector
  /// counts them as allocated; before, only the child that loads gets them, so that a store which
  /// reads a block is not waited for when another child loads into that block (vllm#46865).
  /// Source: vLLM v0.33.0 distributed/kv_transfer/kv_connector/v1/multi_connector.py,
  /// offloading/scheduler.py update_state_after_alloc; absent in v0.19.0 and v0.23.0.
  bool multi_connector_shares_blocks = false;

  /// A producer keeps the blocks of a request that ended at a stop token for its consumer too;
  /// before, of one that reached its length alone.
  /// Source: vLLM v0.23.0 distributed/kv_transfer/kv_connector/v1/nixl/scheduler.py
  /// request_finished; v0.19.0 v1/nixl_connector.py NixlConnectorScheduler.request_finished.
  bool stopped_requests_are_sent = false;

  /// What a producer holds is leased: a consumer asks for more time while its requests wait.
  /// Before, the deadline stands.
  /// Source: vLLM v0.23.0 distributed/kv_transfer/kv_connector/v1/nixl/scheduler.py
  /// on_new_request, worker.py _handle_heartbeat; absent in v0.19.0.
  bool kv_lease_heartbeats = false;

  /// A simple CPU offload connector holds what a lookup found until it is loaded, or asked for
  /// anew; before, it looks it up a second time at the allocation.
  /// Source: vLLM v0.23.0 v1/simple_kv_offload/manager.py _pending_cpu_hits; v0.19.0
  /// update_state_after_alloc.
  bool simple_offload_pins_hits = false;

  /// A block whose store is under way is not stored once more; before, only one whose store is
  /// planned in the same step.
  /// Source: vLLM v0.23.0 v1/simple_kv_offload/manager.py _in_flight_store_gpu_blocks; v0.19.0
  /// gpu_blocks_this_step.
  bool simple_offload_skips_stores_under_way = false;

  /// Eager stores pass a block without a key over; before, they wait for its key.
  /// Source: vLLM v0.23.0 v1/simple_kv_offload/manager.py _prepare_eager_store_specs.
  bool simple_offload_skips_unhashed_blocks = false;

  /// Eager stores end at a multiple of scheduler_block_size; before, at that of each group's
  /// blocks. Source: vLLM v0.23.0 v1/simple_kv_offload/manager.py aligned_tokens.
  bool simple_offload_aligns_stores = false;

  /// A DecodeBenchConnector can be built for several groups; before, for one.
  /// Source: vLLM v0.23.0 distributed/kv_transfer/kv_connector/v1/decode_bench_connector.py
  /// SupportsHMA; absent in v0.19.0.
  bool decode_bench_hma = false;

  friend bool operator==(const Rules&, const Rules&) = default;
};

struct RuleField {
  std::string_view name;
  bool Rules::*member;
  std::string_view doc;
};

/// Every rule by name: what the config line, `kvfence list` and the documentation iterate.
inline constexpr std::array<RuleField, 31> kRuleFields = {{
    {"free_blocks_prepend", &Rules::free_blocks_prepend,
     "free_blocks takes prepend=true: freed blocks go to the head of the free queue"},
    {"cache_full_blocks_mask", &Rules::cache_full_blocks_mask,
     "cache_full_blocks takes a mask: masked-out blocks are passed over like null blocks"},
    {"events_carry_group", &Rules::events_carry_group,
     "BlockStored and BlockRemoved carry the group id"},
    {"full_sequence_gate_in_allocate_slots", &Rules::full_sequence_gate_in_allocate_slots,
     "allocate_slots takes full_sequence_must_fit and reserved_blocks; no can_fit_full_sequence"},
    {"sliding_window_mask", &Rules::sliding_window_mask,
     "sliding-window groups cache only blocks that a later lookup can use"},
    {"unhashed_blocks_first", &Rules::unhashed_blocks_first,
     "dropped window blocks without a hash go to the head of the free queue"},
    {"eagle_by_group", &Rules::eagle_by_group,
     "eagle is a property of a group; a lookup drops its block once"},
    {"mamba_align_keeps_blocks", &Rules::mamba_align_keeps_blocks,
     "Mamba align leaves a table alone that is longer than needed"},
    {"sink_groups", &Rules::sink_groups, "groups with an attention sink can be built"},
    {"events_carry_spec", &Rules::events_carry_spec,
     "BlockStored carries the kind and the window of its group"},
    {"priority_victim_shifts_loop", &Rules::priority_victim_shifts_loop,
     "a priority victim before the request at hand hides the next running request for a step"},
    {"lookahead_at_admission", &Rules::lookahead_at_admission,
     "a request is admitted with lookahead slots"},
    {"reserve_for_prefills", &Rules::reserve_for_prefills,
     "an asynchronous load leaves room for the prefills under way"},
    {"connector_learns_new_requests", &Rules::connector_learns_new_requests,
     "the connector is told of a request when it is added"},
    {"finish_drops_by_computed_tokens", &Rules::finish_drops_by_computed_tokens,
     "what a finished request drops first depends on its computed tokens, not on all of them"},
    {"held_requests_are_work", &Rules::held_requests_are_work,
     "finished requests whose blocks are held count as work"},
    {"reset_without_connector_succeeds", &Rules::reset_without_connector_succeeds,
     "resetting a connector where there is none succeeds"},
    {"lookup_by_key", &Rules::lookup_by_key,
     "an offloading manager is asked key by key; a block that is being written is no miss"},
    {"offload_reset", &Rules::offload_reset, "an offloading manager can be reset"},
    {"arc_refuses_with_idle_t1", &Rules::arc_refuses_with_idle_t1,
     "ARC refuses to evict from a T1 below its target"},
    {"tiering", &Rules::tiering, "an offloading manager can have secondary tiers below it"},
    {"offload_fences_reuse", &Rules::offload_fences_reuse,
     "an offloading connector frees at once and flushes transfers of blocks that are used again"},
    {"multi_connector_hma", &Rules::multi_connector_hma,
     "a MultiConnector hands the blocks of all groups on, if all of its children can take them"},
    {"multi_connector_shares_blocks", &Rules::multi_connector_shares_blocks,
     "a MultiConnector hands the blocks to every child; a store of them is waited for"},
    {"stopped_requests_are_sent", &Rules::stopped_requests_are_sent,
     "a producer keeps the blocks of a request that ended at a stop token too"},
    {"kv_lease_heartbeats", &Rules::kv_lease_heartbeats,
     "a consumer renews the lease of blocks that a producer holds for it"},
    {"simple_offload_pins_hits", &Rules::simple_offload_pins_hits,
     "a simple CPU offload connector holds what a lookup found until it is loaded"},
    {"simple_offload_skips_stores_under_way", &Rules::simple_offload_skips_stores_under_way,
     "a block whose store is under way is not stored once more"},
    {"simple_offload_skips_unhashed_blocks", &Rules::simple_offload_skips_unhashed_blocks,
     "eager stores pass a block without a key over; else they wait for its key"},
    {"simple_offload_aligns_stores", &Rules::simple_offload_aligns_stores,
     "eager stores end at a multiple of scheduler_block_size"},
    {"decode_bench_hma", &Rules::decode_bench_hma,
     "a DecodeBenchConnector can be built for several groups"},
}};

/// A pinned upstream release.
enum class Profile : std::uint8_t { kV019, kV023 };

inline constexpr std::array<Profile, 2> kProfiles = {Profile::kV019, Profile::kV023};

/// The rules of a release.
Rules rules_of(Profile profile);

/// "v0.19", "v0.23".
std::string_view to_text(Profile profile);
std::optional<Profile> profile_from_text(std::string_view text);

}  // namespace kvfence
