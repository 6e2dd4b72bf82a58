#pragma once

/// What a suite of kv_cache runs has reached: a green suite in which no window ever slid has shown
/// nothing about windows.

#include <array>
#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "contract/kv_cache/kv_cache_target.h"
#include "properties/core/goals_counts.h"

namespace kvfence::kv_cache {

/// The situations that are counted. The order is that of kReachGoals.
enum class Reached : std::uint8_t {
  kFullAllocated,
  kSlidingAllocated,
  kChunkedAllocated,
  kMambaAllAllocated,
  kMambaAlignAllocated,
  kCrossAllocated,
  kSinkAllocated,
  kHit,
  kWindowHit,
  kMambaHit,
  kChunkedHit,
  kHybridHit,
  kHitShortenedByAGroup,
  kHitShortenedTwice,
  kEagleDrop,
  kSharedPrefix,
  kHitAgainAfterPreemption,
  kReadingSkipped,
  kSkippedBlockDropped,
  kSpeculativeBlockMoved,
  kAllocationFailed,
  kAllocationFailedAfterDropping,
  kMambaRefusedInSameStep,
  kFullSequenceGateClosed,
  kExternalTokens,
  kExternalTokensBehindAHit,
  kCachingDelayed,
  kDelayedBlocksCached,
  kLookahead,
  kSpeculationRewound,
  kModelLengthCapsSlots,
  kMaskLeftABlockOut,
  kUnhashedBlockToTheHead,
  kCachedBlockEvictedByAllocation,
  kDuplicateKey,
  kCommonPrefixOfSeveral,
  kFitsNot,
  kResetDone,
  kResetRefused,
  kErrorUnknownRequest,
  kErrorUnknownBlock,
  kErrorNotInProfile,
  kErrorBadRange,
  kErrorMissingHash,
  kErrorAlreadyDeclared,
  kErrorAlreadyAllocated,
  kErrorNotAllocated,
  kErrorNoTokens,
  kErrorBeyondModelLength,
  kErrorTableShrinks,
};

using ReachGoal = kvfence::ReachGoal<Reached>;

/// Every goal: what the command line and the documentation list.
inline constexpr std::array<ReachGoal, 50> kReachGoals = {{
    {Reached::kFullAllocated, "full_allocated", "full attention took new blocks", 1, true},
    {Reached::kSlidingAllocated, "sliding_allocated", "a sliding window took new blocks", 1, true},
    {Reached::kChunkedAllocated, "chunked_allocated", "chunked local attention took new blocks", 1,
     true},
    {Reached::kMambaAllAllocated, "mamba_all_allocated", "Mamba in mode all took new blocks", 1,
     true},
    {Reached::kMambaAlignAllocated, "mamba_align_allocated", "Mamba in mode align took new blocks",
     1, true},
    {Reached::kCrossAllocated, "cross_allocated", "cross attention took new blocks", 1, true},
    {Reached::kSinkAllocated, "sink_allocated", "full attention with a sink took new blocks", 1,
     true},
    {Reached::kHit, "hit", "a lookup found a block"},
    {Reached::kWindowHit, "window_hit", "a window was found and what lies before it was not", 1,
     true},
    {Reached::kMambaHit, "mamba_hit", "a Mamba state was found", 1, true},
    {Reached::kChunkedHit, "chunked_hit", "a block of a chunk was found", 1, true},
    {Reached::kHybridHit, "hybrid_hit", "a lookup found blocks for two groups or more"},
    {Reached::kHitShortenedByAGroup, "hit_shortened_by_a_group",
     "full attention had more blocks than the hit of all groups", 1, true},
    {Reached::kHitShortenedTwice, "hit_shortened_twice",
     "two groups each had less than the one before, so that the search goes round again", 1, true},
    {Reached::kEagleDrop, "eagle_drop", "eagle dropped a block that was there", 1, true},
    {Reached::kSharedPrefix, "shared_prefix", "two requests held the same block", 1, true},
    {Reached::kHitAgainAfterPreemption, "hit_again_after_preemption",
     "a preempted request found its blocks"},
    {Reached::kReadingSkipped, "reading_skipped", "a lookup of a request that reads nothing"},
    {Reached::kSkippedBlockDropped, "skipped_block_dropped",
     "a place turned to null because its group needs it no more", 1, true},
    {Reached::kSpeculativeBlockMoved, "speculative_block_moved",
     "Mamba in mode align moved a speculative block to the end", 1, true},
    {Reached::kAllocationFailed, "allocation_failed", "too few blocks were free"},
    {Reached::kAllocationFailedAfterDropping, "allocation_failed_after_dropping",
     "too few blocks were free even after skipped ones were dropped", 1, true},
    {Reached::kMambaRefusedInSameStep, "mamba_refused_in_same_step",
     "an allocation waited because its Mamba state was cached in this step", 1, true},
    {Reached::kFullSequenceGateClosed, "full_sequence_gate_closed",
     "an allocation failed with full_sequence_must_fit"},
    {Reached::kExternalTokens, "external_tokens", "an allocation brought external tokens"},
    {Reached::kExternalTokensBehindAHit, "external_tokens_behind_a_hit",
     "external tokens followed blocks that were found"},
    {Reached::kCachingDelayed, "caching_delayed", "an allocation delayed its caching"},
    {Reached::kDelayedBlocksCached, "delayed_blocks_cached", "cache_blocks added keys", 1, true},
    {Reached::kLookahead, "lookahead", "an allocation had lookahead tokens"},
    {Reached::kSpeculationRewound, "speculation_rewound",
     "an allocation began before the end of the blocks that the request has", 1, true},
    {Reached::kModelLengthCapsSlots, "model_length_caps_slots",
     "lookahead tokens reached beyond max_model_len"},
    {Reached::kMaskLeftABlockOut, "mask_left_a_block_out",
     "a full block of a window stayed without a key", 1, true},
    {Reached::kUnhashedBlockToTheHead, "unhashed_block_to_the_head",
     "a dropped or freed block became the head of the queue", 1, true},
    {Reached::kCachedBlockEvictedByAllocation, "cached_block_evicted_by_allocation",
     "a new block lost the key of another prefix", 1, true},
    {Reached::kDuplicateKey, "duplicate_key", "two blocks carry the same key", 1, true},
    {Reached::kCommonPrefixOfSeveral, "common_prefix_of_several",
     "several requests hold the same leading block", 1, true},
    {Reached::kFitsNot, "fits_not", "can_fit_full_sequence answered false"},
    {Reached::kResetDone, "reset_done", "reset_prefix_cache took a key"},
    {Reached::kResetRefused, "reset_refused", "reset_prefix_cache answered false"},
    {Reached::kErrorUnknownRequest, "error_unknown_request", "refused with unknown_request"},
    {Reached::kErrorUnknownBlock, "error_unknown_block", "refused with unknown_block"},
    {Reached::kErrorNotInProfile, "error_not_in_profile", "refused with not_in_profile"},
    {Reached::kErrorBadRange, "error_bad_range", "refused with bad_range"},
    {Reached::kErrorMissingHash, "error_missing_hash", "refused with missing_hash"},
    {Reached::kErrorAlreadyDeclared, "error_already_declared", "refused with already_declared"},
    {Reached::kErrorAlreadyAllocated, "error_already_allocated", "refused with already_allocated"},
    {Reached::kErrorNotAllocated, "error_not_allocated", "refused with not_allocated"},
    {Reached::kErrorNoTokens, "error_no_tokens", "refused with no_tokens"},
    {Reached::kErrorBeyondModelLength, "error_beyond_model_length",
     "refused with beyond_model_length"},
    {Reached::kErrorTableShrinks, "error_table_shrinks", "refused with table_shrinks"},
}};

/// Counts of one suite.
class Reach : public ReachCounts<kReachGoals> {
 public:
  /// A run begins under that configuration, which has to be valid; the counts stay.
  void start(const Config& config);

  /// Takes in one command, whatever it was answered. `before` is the whole observation of the
  /// command before, answer included; a default one for the first command of a run.
  ///
  /// Cost: linear in the blocks and the places of all tables.
  void count(const Command& command, const Observation& before, const Observation& after,
             const World& world);

 private:
  void count_lookup(const GetComputedBlocks& command, const Observation& after, const World& world);
  void count_allocation(const AllocateSlots& command, const Observation& before,
                        const Observation& after, const World& world);
  void count_new_blocks(const AllocateSlots& command, const Observation& before,
                        const Observation& after, const World& world);
  void count_state(const Command& command, const Observation& before, const Observation& after);
  /// Whether a group can serve a hit of so many tokens out of these keys.
  bool has_hit(GroupId group, const Request& request, std::uint32_t num_tokens,
               const KeyList& keys) const;

  KVCacheManagerConfig config_;
  std::vector<std::uint64_t> reached_tokens_;  ///< by request: where its slots ended last
  std::set<BlockHash> mamba_keys_;             ///< cached since the step began
};

}  // namespace kvfence::kv_cache
