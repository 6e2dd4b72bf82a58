#pragma once

/// What must hold of one KV-cache manager, whatever any other implementation says. The rules are
/// those of contract/kv_cache/kv_cache_manager.h, turned into statements about observations.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/kv_cache/kv_cache_target.h"
#include "properties/core/divergence.h"
#include "properties/kv_cache/block_table_rules.h"
#include "properties/pool/event_mirror.h"

namespace kvfence::kv_cache {

struct Invariant {
  std::string_view id;
  std::string_view name;  ///< Divergence::oracle
  std::string_view rule;  ///< Divergence::message
};

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 22> kInvariants = {{
    {"K1", "answers_fit_the_command",
     "a command is refused with the first code whose condition holds, and answers with exactly "
     "what it returns"},
    {"K2", "nothing_changes_unasked",
     "a refused command, a question and a declaration change neither blocks nor queue nor keys nor "
     "tables; no command changes the table of another request"},
    {"K3", "numbers_add_up",
     "num_free_blocks, num_cached_keys and usage are those of the queue and the keys"},
    {"K4", "null_and_sinks_stay_out",
     "the null block and the blocks that sinks took have no key, no reference and no place in the "
     "free queue"},
    {"K5", "ref_cnt_counts_places",
     "a block's ref_cnt is the number of places that hold it in the block tables"},
    {"K6", "queue_holds_the_unreferenced",
     "the free queue holds exactly the blocks that no table holds, once each, but for sinks"},
    {"K7", "a_block_has_one_place",
     "a block stands at one place of one table, unless requests of the same prefix share it at the "
     "same place"},
    {"K8", "keys_fit_their_places",
     "a block in a table that carries a key carries that of its place in the request and group"},
    {"K9", "tables_grow_at_the_end",
     "a place of a table keeps its block until it turns to null, a table ends only by free, and "
     "only an allocation adds places, behind all others"},
    {"K10", "only_the_skipped_is_dropped",
     "places turn to null exactly where the group needs them no more, from the computed tokens "
     "downwards"},
    {"K11", "allocation_covers_the_tokens",
     "an allocation that succeeds gives every group the places for its tokens, and no more"},
    {"K12", "new_blocks_are_the_gain",
     "the new blocks answered are what the table gained behind the hit and the external tokens, "
     "and the hit stands before them as it was found"},
    {"K13", "queue_keeps_its_order",
     "dropped and freed blocks join the queue group by group, the last place first; new blocks "
     "come from its head; all others keep their order"},
    {"K14", "keys_change_as_asked",
     "keys appear only on full blocks of the request that is allocated or cached, and vanish only "
     "from new, evicted and reset blocks"},
    {"K15", "full_blocks_become_findable",
     "new blocks that the tokens fill carry a key, unless caching is delayed or masked"},
    {"K16", "hit_is_cached_in_every_group",
     "a hit is shorter than the request, as long in every group, and each block that it needs "
     "carries the key of its place"},
    {"K17", "reset_needs_an_idle_pool",
     "reset_prefix_cache succeeds exactly if every block but the null block is free, and leaves no "
     "key"},
    {"K18", "events_mirror_the_keys",
     "an index fed by the events holds exactly the hashes in the pool, removes none that it does "
     "not hold, and gets no event where events are off"},
    {"K19", "stats_add_up",
     "the statistics count each lookup since they were last taken, its tokens and its hit"},
    {"K20", "question_about_tables_is_answered_from_them",
     "take_new_block_ids lists what full attention took since the last call, group by group; "
     "get_num_common_prefix_blocks counts leading blocks that every table holds"},
    {"K21", "nothing_is_held_when_all_is_freed",
     "while no request is allocated every block but null and sinks is free"},
    {"K22", "allocation_waits_where_it_must",
     "no allocation succeeds whose Mamba state was cached in the same step, or that leaves fewer "
     "free blocks than are reserved"},
}};

/// Watches one implementation. A value: copyable.
///
/// What a command changed is checked where the state was observed before and after it; the state
/// itself, answers and numbers wherever they are observed.
class Invariants {
 public:
  explicit Invariants(const KVCacheManagerConfig& config);

  /// For a fresh manager of the same configuration.
  void reset();

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command since reset, with a world that has taken it in. After a divergence only
  /// reset() may follow.
  ///
  /// Cost: linear in the blocks and the places of all tables.
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step);

 private:
  using Tables = std::vector<RequestBlocks>;

  /// What a lookup found, for as long as nothing could have changed it.
  struct KnownHit {
    RequestIndex index = 0;
    std::uint32_t num_tokens = 0;
    BlocksByGroup blocks;
  };

  /// An allocation that succeeded or failed, as far as it is known.
  struct Allocation;

  // The answer.
  std::optional<Divergence> check_error(const Command& command, const Observation& observation,
                                        const World& world) const;
  std::optional<Divergence> check_present(const Command& command, const Observation& observation,
                                          const World& world) const;
  std::optional<Divergence> check_answer(const Command& command, const Observation& observation,
                                         const World& world);
  std::optional<Divergence> check_hit(const GetComputedBlocks& command,
                                      const Observation& observation, const World& world) const;
  std::optional<Divergence> check_hit_group(GroupId group, const Request& request,
                                            const Observation& observation,
                                            const World& world) const;
  std::optional<Divergence> check_stats(const std::vector<std::uint32_t>& shown,
                                        const World& world);
  std::optional<Divergence> check_events(const Observation& observation, const World& world);
  std::optional<Divergence> check_common_prefix(const GetNumCommonPrefixBlocks& command,
                                                const Observation& observation,
                                                const World& world) const;
  std::optional<Divergence> check_new_block_ids(const Observation& observation, const World& world);

  // The state.
  std::optional<Divergence> check_numbers(const Command& command, const Observation& observation,
                                          const World& world) const;
  std::optional<Divergence> check_blocks(const Observation& observation, const World& world);
  std::optional<Divergence> check_places(const Observation& observation, const World& world);

  // The change from the state before.
  std::optional<Divergence> check_change(const Command& command, const Observation& after,
                                         const World& world);
  std::optional<Divergence> check_unchanged(const Observation& after, const World& world,
                                            bool with_keys) const;
  std::optional<Divergence> check_other_tables(const std::string& request, const Observation& after,
                                               const World& world) const;
  std::optional<Divergence> check_freed(const std::string& request, const Observation& after,
                                        const World& world);
  std::optional<Divergence> check_dropped(const std::string& request, std::uint64_t num_computed,
                                          bool is_allocation, const Observation& after,
                                          const World& world);
  std::optional<Divergence> check_cached(const CacheBlocks& command, const Observation& after,
                                         const World& world) const;
  std::optional<Divergence> check_allocation(const AllocateSlots& command, const Observation& after,
                                             const World& world);
  std::optional<Divergence> check_wait(const Allocation& allocation, const Observation& after,
                                       const World& world) const;
  std::optional<Divergence> check_gain(const Allocation& allocation, const Observation& after,
                                       const World& world);
  std::optional<Divergence> check_taken(const Allocation& allocation, const Observation& after,
                                        const World& world) const;
  std::optional<Divergence> check_allocated_keys(const Allocation& allocation,
                                                 const Observation& after,
                                                 const World& world) const;
  std::optional<Divergence> check_queue(const Observation& after, const World& world) const;

  Allocation allocation_of(const AllocateSlots& command, const Observation& after,
                           const World& world) const;
  void join_queue(const std::vector<BlockId>& blocks, bool at_head);
  void keep_books(const Command& command, const Observation& observation, const World& world);
  void count_lookup(const std::string& request, bool was_preempted, const World& world,
                    std::optional<std::uint32_t> num_hit_tokens);
  std::optional<std::uint32_t> known_hit_tokens(const World& world,
                                                const std::string& request) const;
  bool is_allocated(RequestIndex index) const {
    return index < allocated_.size() && allocated_[index];
  }

  KVCacheManagerConfig config_;
  std::uint32_t num_sinks_ = 0;
  BlockTableInvariants block_tables_;

  // The state after the command before, where it was observed.
  bool numbers_were_seen_ = false;
  bool state_was_seen_ = false;
  std::uint32_t num_free_before_ = 0;
  std::uint32_t num_keys_before_ = 0;
  std::vector<BlockId> queue_;
  std::vector<std::uint32_t> ref_cnts_;
  KeyList keys_;
  Tables tables_;

  // The books.
  std::vector<bool> allocated_;     ///< by request
  std::vector<Aliasing> aliasing_;  ///< by request
  std::uint32_t num_allocated_ = 0;
  std::optional<KnownHit> known_hit_;
  PrefixCacheStats stats_;
  bool knows_hits_ = true;          ///< whether stats_.hits and preempted_hits are exact
  BlocksByGroup taken_;             ///< what take_new_block_ids owes, by group
  bool knows_taken_ = true;         ///< whether that is all
  std::set<BlockHash> mamba_keys_;  ///< cached in this step, as far as it was observed
  EventMirror index_;
  std::vector<BlockId> pending_;  ///< scratch: the queue as it should be
  std::vector<std::uint32_t> pending_refs_;
  std::vector<TableOwner> owners_;  ///< scratch, by table
};

}  // namespace kvfence::kv_cache
