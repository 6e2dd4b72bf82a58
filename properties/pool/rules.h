#pragma once

/// What must hold of one block pool, whatever any other implementation says. The rules are those of
/// contract/pool/block_pool.h, turned into statements about observations.

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "contract/pool/block_pool.h"
#include "contract/pool/block_pool_target.h"
#include "properties/core/divergence.h"
#include "properties/pool/ledger.h"

namespace kvfence::block_pool {

struct Invariant {
  std::string_view id;
  std::string_view name;  ///< Divergence::oracle
  std::string_view rule;  ///< Divergence::message
};

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 12> kInvariants = {{
    {"I1", "ref_cnt_counts_holders",
     "a block's ref_cnt is how often it was handed out or touched, less how often it was freed"},
    {"I2", "queue_holds_the_unreferenced",
     "the free queue holds exactly the blocks that nobody references, once each"},
    {"I3", "lookup_agrees_with_keys",
     "a lookup answers, group by group in order, with the first inserted block that carries the "
     "key, and misses only if a group has none"},
    {"I4", "numbers_add_up",
     "num_free_blocks, num_empty, num_cached, num_referenced, num_cached_keys and usage are those "
     "of the blocks: empty + cached + referenced is every block, empty + cached the queue"},
    {"I5", "new_blocks_are_the_head",
     "get_new_blocks hands out the head of the free queue, in order, with ref_cnt 1 and no key"},
    {"I6", "nothing_changes_unasked",
     "a refused command, a lookup, a declaration and take_events change neither blocks nor queue "
     "nor keys"},
    {"I7", "events_mirror_the_keys",
     "an index fed by the events holds exactly the hashes in the pool, removes none that it does "
     "not hold, and gets no event where events are off"},
    {"I8", "queue_keeps_its_order",
     "freed blocks join the tail, or the head if prepended, in the given order; touched ones "
     "leave; all others keep their order"},
    {"I9", "keys_change_as_asked",
     "only cache_full_blocks adds keys, exactly those of its range, and only get_new_blocks, "
     "evict_blocks and reset_prefix_cache remove them"},
    {"I10", "null_block_stays_out",
     "the null block has no key, no reference and no place in the free queue"},
    {"I11", "reset_needs_an_idle_pool",
     "reset_prefix_cache succeeds exactly if only the null block is referenced, and leaves no key"},
    {"I12", "answers_fit_the_command",
     "a command is refused with the first code whose condition holds, and answers with exactly "
     "what it returns"},
}};

/// Watches one implementation. A value: copyable.
///
/// Bookkeeping goes by the commands, so an observation without the state is checked by its answer
/// and its numbers, and the next one with the state is checked in full.
class Invariants {
 public:
  explicit Invariants(const BlockPoolConfig& config);

  /// For a fresh pool of the same configuration.
  void reset();

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command since reset, with a world that has taken it in. After a divergence only
  /// reset() may follow.
  ///
  /// Cost: linear in the blocks; no allocation once warm, unless an invariant is broken.
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step);

 private:
  std::optional<Divergence> check_answer(const Command& command, const Observation& observation,
                                         const World& world);
  std::optional<Divergence> check_present(const Command& command, const Observation& observation,
                                          const World& world) const;
  std::optional<Divergence> check_lookup(const GetCachedBlock& command,
                                         const Observation& observation, const World& world);
  std::optional<Divergence> check_new_blocks(const GetNewBlocks& command,
                                             const Observation& observation,
                                             const World& world) const;
  std::optional<Divergence> check_events(const std::vector<KVCacheEvent>& events,
                                         const World& world);
  std::optional<Divergence> check_state(const Command& command, const Observation& observation,
                                        const World& world) const;
  std::optional<Divergence> check_numbers(const Command& command, const Observation& observation,
                                          const World& world) const;
  std::optional<Divergence> check_null_block(const Observation& observation,
                                             const World& world) const;
  bool is_new_block(const Command& command, const Observation& observation,
                    std::size_t block) const;
  bool holds_the_unreferenced(const std::vector<BlockId>& free_queue) const;

  Ledger ledger_;
  std::vector<BlockId> found_;      ///< scratch: what a lookup has to answer
  bool numbers_were_seen_ = false;  ///< by the command before
  bool state_was_seen_ = false;
};

}  // namespace kvfence::block_pool
