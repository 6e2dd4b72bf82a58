#pragma once

/// What a suite of runs has reached: a green suite that never evicted a block has shown nothing
/// about eviction.

#include <array>
#include <cstdint>
#include <string_view>

#include "contract/pool/block_pool_target.h"
#include "properties/core/goals_counts.h"

namespace kvfence::block_pool {

/// The situations that are counted. The order is that of kReachGoals.
enum class Reached : std::uint8_t {
  kEvictionOnAllocation,
  kPoolExhausted,
  kLookupHitOnDuplicate,
  kMultiGroupHit,
  kMultiGroupMissByOneGroup,
  kHitOnFreeBlockThenTouch,
  kBlockTouchedTwice,
  kDuplicateKeyCached,
  kMergedHashCached,
  kBlockMaskedOut,
  kNullBlockInList,
  kFreedBlockStaysReferenced,
  kFreePrepended,
  kReferencedBlockEvicted,
  kFreeBlockEvicted,
  kResetDone,
  kResetRefused,
  kStoredEventWithoutHashes,
  kStoredEventWithExtraKeys,
  kStoredEventWithParent,
  kAppendCompletesHash,
  kErrorUnknownRequest,
  kErrorUnknownBlock,
  kErrorNoFreeBlocks,
  kErrorNotInProfile,
  kErrorCachingDisabled,
  kErrorBadBlockSize,
  kErrorBadRange,
  kErrorBadMask,
  kErrorMissingHash,
  kErrorAlreadyHashed,
  kErrorDoubleFree,
};

using ReachGoal = kvfence::ReachGoal<Reached>;

/// Every goal: what the command line and the documentation list.
inline constexpr std::array<ReachGoal, 32> kReachGoals = {{
    {Reached::kEvictionOnAllocation, "eviction_on_allocation", "an allocated block lost its key"},
    {Reached::kPoolExhausted, "pool_exhausted", "an allocation took the last free block"},
    {Reached::kLookupHitOnDuplicate, "lookup_hit_on_duplicate",
     "a lookup found a block whose key another block carries too", 1, true},
    {Reached::kMultiGroupHit, "multi_group_hit", "a lookup hit for two groups or more"},
    {Reached::kMultiGroupMissByOneGroup, "multi_group_miss_by_one_group",
     "a lookup missed although some of its groups have the block", 1, true},
    {Reached::kHitOnFreeBlockThenTouch, "hit_on_free_block_then_touch",
     "a lookup found a queued block and the next command touched it", 1, true},
    {Reached::kBlockTouchedTwice, "block_touched_twice", "one call touched a block twice"},
    {Reached::kDuplicateKeyCached, "duplicate_key_cached",
     "a block got a key that another block carries already"},
    {Reached::kMergedHashCached, "merged_hash_cached",
     "a block larger than hash_block_size got its merged hash"},
    {Reached::kBlockMaskedOut, "block_masked_out", "cache_full_blocks passed over a masked block"},
    {Reached::kNullBlockInList, "null_block_in_list", "an accepted list held the null block"},
    {Reached::kFreedBlockStaysReferenced, "freed_block_stays_referenced",
     "a freed block had another holder"},
    {Reached::kFreePrepended, "free_prepended", "freed blocks joined the head of the queue"},
    {Reached::kReferencedBlockEvicted, "referenced_block_evicted",
     "evict_blocks took the key of a referenced block", 1, true},
    {Reached::kFreeBlockEvicted, "free_block_evicted",
     "evict_blocks took the key of a queued block"},
    {Reached::kResetDone, "reset_done", "reset_prefix_cache took a key"},
    {Reached::kResetRefused, "reset_refused", "reset_prefix_cache answered false"},
    {Reached::kStoredEventWithoutHashes, "stored_event_without_hashes",
     "a BlockStored for a range that was passed over whole"},
    {Reached::kStoredEventWithExtraKeys, "stored_event_with_extra_keys",
     "a BlockStored with extra keys"},
    {Reached::kStoredEventWithParent, "stored_event_with_parent", "a BlockStored with a parent"},
    {Reached::kAppendCompletesHash, "append_completes_hash",
     "appended tokens completed a block's hash"},
    {Reached::kErrorUnknownRequest, "error_unknown_request", "refused with unknown_request"},
    {Reached::kErrorUnknownBlock, "error_unknown_block", "refused with unknown_block"},
    {Reached::kErrorNoFreeBlocks, "error_no_free_blocks", "refused with no_free_blocks"},
    {Reached::kErrorNotInProfile, "error_not_in_profile", "refused with not_in_profile"},
    {Reached::kErrorCachingDisabled, "error_caching_disabled", "refused with caching_disabled"},
    {Reached::kErrorBadBlockSize, "error_bad_block_size", "refused with bad_block_size"},
    {Reached::kErrorBadRange, "error_bad_range", "refused with bad_range"},
    {Reached::kErrorBadMask, "error_bad_mask", "refused with bad_mask"},
    {Reached::kErrorMissingHash, "error_missing_hash", "refused with missing_hash"},
    {Reached::kErrorAlreadyHashed, "error_already_hashed", "refused with already_hashed"},
    {Reached::kErrorDoubleFree, "error_double_free", "refused with double_free"},
}};

/// Counts of one suite.
class Reach : public ReachCounts<kReachGoals> {
 public:
  /// Takes in one command, whatever it was answered. `before` is the whole observation of the
  /// command before, answer included; a default one for the first command of a run.
  ///
  /// Cost: some comparisons; linear in the lists of the command, and in the blocks for a lookup.
  void count(const Command& command, const Observation& before, const Observation& after,
             const World& world);

 private:
  // One overload a command with something to count; all of them are called for accepted commands
  // only.
  void count_accepted(const DeclareRequest&, const Observation&, const Observation&, const World&) {
  }
  void count_accepted(const AppendTokens&, const Observation&, const Observation&, const World&);
  void count_accepted(const GetNewBlocks&, const Observation&, const Observation&, const World&);
  void count_accepted(const GetCachedBlock&, const Observation&, const Observation&, const World&);
  void count_accepted(const Touch&, const Observation&, const Observation&, const World&);
  void count_accepted(const CacheFullBlocks&, const Observation&, const Observation&, const World&);
  void count_accepted(const FreeBlocks&, const Observation&, const Observation&, const World&);
  void count_accepted(const EvictBlocks&, const Observation&, const Observation&, const World&);
  void count_accepted(const ResetPrefixCache&, const Observation&, const Observation&,
                      const World&);
  void count_accepted(const TakeEvents&, const Observation&, const Observation&, const World&);
};

}  // namespace kvfence::block_pool
