#pragma once

/// What must hold of any correct KV-cache manager, of any release: statements about the
/// observations of one implementation alone. None predicts an answer; that is the reference's work.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/kv_cache/kv_cache_target.h"
#include "properties/core/divergence.h"
#include "properties/kv_cache/block_table_rules.h"
#include "properties/pool/event_mirror.h"

namespace kvfence::kv_cache {

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 16> kInvariants = {{
    {"kv_cache.1", "null_and_sinks_stay_out",
     "the null block and the blocks that sinks took have no key, no reference and no place in the "
     "free queue"},
    {"kv_cache.2", "ref_cnt_counts_places",
     "a block's ref_cnt is the number of places that hold it in the block tables"},
    {"kv_cache.3", "queue_holds_the_unreferenced",
     "the free queue holds exactly the blocks that no table holds, once each, but for sinks"},
    {"kv_cache.4", "a_block_has_one_place",
     "a block stands at one place of one table, unless requests of the same prefix share it at the "
     "same place"},
    {"kv_cache.5", "keys_fit_their_places",
     "a block in a table that carries a key carries that of its place in the request and group"},
    {"kv_cache.6", "numbers_add_up",
     "num_free_blocks, num_cached_keys and usage are those of the queue and the keys"},
    {"kv_cache.7", "nothing_is_held_when_all_is_freed",
     "a request that is not allocated has no table; while none is allocated every block but null "
     "and sinks is free"},
    {"kv_cache.8", "needed_places_keep_their_blocks",
     "a place of a table keeps its block until its request is freed, or its group needs the "
     "tokens no more"},
    {"kv_cache.9", "allocation_covers_the_tokens",
     "an allocation that succeeds leaves the request with places for its tokens in every group"},
    {"kv_cache.10", "keys_follow_computed_tokens",
     "a key appears only on a block of the request that is allocated or cached, at a place whose "
     "tokens are computed, or are now"},
    {"kv_cache.11", "evicted_is_gone",
     "an evicted block carries no key; after a reset that succeeds no block does"},
    {"kv_cache.12", "hit_is_cached_in_every_group",
     "a hit is shorter than the request, as long in every group, and each block that it needs "
     "carries the key of its place"},
    {"kv_cache.13", "state_of_this_step_is_not_hit",
     "a Mamba state that was cached in a step is hit in no allocation of that step: it is not "
     "written yet"},
    {"kv_cache.14", "common_prefix_is_held_by_all",
     "the leading blocks that get_num_common_prefix_blocks counts are held by every allocated "
     "request"},
    {"kv_cache.15", "events_mirror_the_keys",
     "an index fed by the events holds exactly the hashes in the pool, removes none that it does "
     "not hold, and gets no event where events are off"},
    {"kv_cache.16", "refused_changes_nothing",
     "a refused command changes neither blocks nor queue nor keys nor tables"},
}};

/// Whether queue, references, keys and tables are shown.
inline bool has_state(const Observation& shown) {
  return shown.free_queue.has_value() && shown.ref_cnts.has_value() && shown.keys.has_value() &&
         shown.tables.has_value();
}

/// Watches one implementation. A value: copyable.
///
/// What a command changed is checked where the state was observed before and after it; the state
/// itself, answers and numbers wherever they are observed.
class Invariants {
 public:
  static constexpr auto& kRules = kInvariants;

  /// For a fresh manager.
  explicit Invariants(const KVCacheManagerConfig& config)
      : config_(config), block_tables_(config) {}

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command, with a world that has taken it in, until something is found.
  ///
  /// Cost: linear in the blocks and the places of all tables.
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step);

 private:
  using Found = std::optional<Divergence>;

  // Answers: what is wrong with one that was accepted.
  Found check_answer(const GetComputedBlocks& command, const Observation& shown,
                     const World& world) const;
  Found check_answer(const GetNumCommonPrefixBlocks& command, const Observation& shown,
                     const World& world) const;
  Found check_answer(const AllocateSlots& command, const Observation& shown,
                     const World& world) const;
  Found check_answer(const EvictBlocks& command, const Observation& shown,
                     const World& world) const;
  Found check_answer(const ResetPrefixCache& command, const Observation& shown,
                     const World& world) const;
  Found check_answer(const TakeEvents& command, const Observation& shown, const World& world);
  template <class Other>
  Found check_answer(const Other&, const Observation&, const World&) const {
    return std::nullopt;
  }
  Found check_hit_group(GroupId group, const Request& request, const Observation& shown,
                        const World& world) const;

  // The state.
  Found check_numbers(const Observation& shown, const World& world) const;
  Found check_state(const Observation& shown, const World& world);

  // The change from the state before.
  Found check_unchanged(const Observation& shown, const World& world) const;
  Found check_kept_places(const Command& command, const Observation& shown,
                          const World& world) const;
  Found check_new_keys(const Command& command, const Observation& shown, const World& world) const;

  void count_allocated(const Command& command, const Observation& shown, const World& world);
  bool is_allocated(RequestIndex index) const {
    return index < allocated_.size() && allocated_[index];
  }

  KVCacheManagerConfig config_;
  BlockTableInvariants block_tables_;
  EventMirror index_;
  std::vector<bool> allocated_;     ///< by request
  std::vector<Aliasing> aliasing_;  ///< by request
  std::uint32_t num_allocated_ = 0;
  std::set<BlockHash> mamba_keys_;  ///< that appeared in this step, as far as it was observed

  // The state after the command before.
  bool was_seen_ = false;
  std::vector<BlockId> queue_;
  std::vector<std::uint32_t> ref_cnts_;
  KeyList keys_;
  std::vector<RequestBlocks> tables_;

  std::vector<TableOwner> owners_;  ///< scratch, by table
};

}  // namespace kvfence::kv_cache
