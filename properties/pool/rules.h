#pragma once

/// What must hold of any correct block pool, of any release: statements about the observations of
/// one implementation alone. None predicts an answer; that is the reference's work.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "contract/pool/block_pool.h"
#include "contract/pool/block_pool_target.h"
#include "properties/core/divergence.h"
#include "properties/pool/event_mirror.h"

namespace kvfence::block_pool {

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 9> kInvariants = {{
    {"pool.1", "ref_cnt_counts_holders",
     "a block's ref_cnt is how often it was handed out or touched, less how often it was freed; "
     "what nobody holds cannot be freed"},
    {"pool.2", "queue_holds_the_unreferenced",
     "the free queue holds exactly the blocks that nobody references, once each"},
    {"pool.3", "null_block_stays_out",
     "the null block has no key, no reference and no place in the free queue"},
    {"pool.4", "numbers_add_up",
     "num_free_blocks, num_empty, num_cached, num_referenced, num_cached_keys and usage are those "
     "of the blocks: empty + cached + referenced is every block, empty + cached the queue"},
    {"pool.5", "new_blocks_are_unused",
     "get_new_blocks hands out as many blocks as asked, each once, that nobody references"},
    {"pool.6", "lookup_agrees_with_keys",
     "a hit is one block per group, in order, that carries the key asked for; a lookup misses only "
     "if no block of some group carries it"},
    {"pool.7", "keys_are_what_was_cached",
     "a block carries the key under which it was cached, or none; and none after it was handed "
     "out or evicted, or the cache was reset"},
    {"pool.8", "events_mirror_the_keys",
     "an index fed by the events holds exactly the hashes in the pool, removes none that it does "
     "not hold, and gets no event where events are off"},
    {"pool.9", "refused_changes_nothing",
     "a refused command changes neither blocks nor queue nor keys"},
}};

/// Whether a block's packed key is the one of that hash and group.
inline bool carries(const BlockHash& key, BlockHashView hash, GroupId group) {
  return key.size() == hash.size() + kGroupIdBytes && get_block_hash(key) == hash &&
         get_group_id(key) == group;
}

/// Watches one implementation. A value: copyable.
///
/// Holders and keys are counted from commands and answers, so an observation without the state is
/// checked by its numbers, and the next one with the state in full.
class Invariants {
 public:
  static constexpr auto& kRules = kInvariants;

  /// For a fresh pool.
  explicit Invariants(const BlockPoolConfig& config);

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command, with what was shown before it, null for the first one, and a world that
  /// has taken it in, until something is found.
  ///
  /// Cost: linear in the blocks; no allocation once warm, unless an invariant is broken.
  std::optional<Divergence> check(const Command& command, const Observation* before,
                                  const Observation& observation, const World& world,
                                  std::size_t step);

 private:
  using Found = std::optional<Divergence>;

  // What an accepted command changes in the model, and what is wrong with its answer.
  Found take(const GetNewBlocks& command, const Observation& shown, const World& world);
  Found take(const GetCachedBlock& command, const Observation& shown, const World& world);
  Found take(const Touch& command, const Observation& shown, const World& world);
  Found take(const CacheFullBlocks& command, const Observation& shown, const World& world);
  Found take(const FreeBlocks& command, const Observation& shown, const World& world);
  Found take(const EvictBlocks& command, const Observation& shown, const World& world);
  Found take(const ResetPrefixCache& command, const Observation& shown, const World& world);
  Found take(const TakeEvents& command, const Observation& shown, const World& world);
  template <class Declaration>
  Found take(const Declaration&, const Observation&, const World&) {
    return std::nullopt;
  }

  Found check_numbers(const Observation& shown, const World& world) const;
  Found check_state(const Observation& shown, const World& world);
  Found check_keys(const Observation& shown, const World& world);
  static Found check_unchanged(const Observation& before, const Observation& shown,
                               const World& world);

  bool can_be_held(BlockId block) const { return block != kNullBlockId && block < holders_.size(); }
  /// The request's hashes at that size; nothing where a lookup has nothing to look up.
  std::optional<BlockHashListView> hashes_of(const World& world, const std::string& request,
                                             std::uint32_t block_size) const;

  BlockPoolConfig config_;
  std::vector<std::uint32_t> holders_;  ///< by block
  std::uint32_t num_held_ = 0;          ///< blocks with holders
  KeyList cached_;                      ///< by block: the key under which it was cached last
  EventMirror index_;

  std::vector<std::uint8_t> has_key_;  ///< by block, where the state was shown last
  std::uint32_t num_keys_ = 0;         ///< different ones among the keys
  bool is_counted_ = false;            ///< they are those of has_key_ and cached_

  std::vector<std::uint8_t> is_queued_;     ///< scratch
  std::vector<std::string_view> distinct_;  ///< scratch
};

}  // namespace kvfence::block_pool
