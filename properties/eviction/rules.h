#pragma once

/// What must hold of any correct cache policy, of any release: statements about the observations of
/// one implementation alone. None predicts which block goes; that is the reference's work.

#include <array>
#include <cstddef>
#include <optional>

#include "contract/eviction/cache_policy.h"
#include "contract/eviction/eviction_target.h"
#include "properties/core/divergence.h"
#include "properties/eviction/held_blocks.h"

namespace kvfence::eviction {

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 7> kInvariants = {{
    {"eviction.1", "a_key_has_one_place", "a key stands in one list at most, and there once"},
    {"eviction.2", "sizes_are_bounded",
     "size is the number of blocks held; it, B1, B2 and the target are at most the capacity, the "
     "target at least 0"},
    {"eviction.3", "blocks_are_held_as_asked",
     "T1 and T2 are the blocks that were inserted and neither removed nor evicted, each with its "
     "slot, ready once it was written, with as many readers as acquired it less those that "
     "released it; get finds them so"},
    {"eviction.4", "nothing_in_use_is_evicted",
     "an evict that succeeds lets as many blocks go as asked: held, idle, unprotected, each once, "
     "with its slot"},
    {"eviction.5", "only_what_is_ready_is_read",
     "a block is acquired only once it was written, and released only by who acquired it"},
    {"eviction.6", "clear_forgets_everything",
     "after clear every list is empty, and the target is 0"},
    {"eviction.7", "refused_changes_nothing",
     "a refused command and an evict that fails leave all lists as they were"},
}};

/// Watches one implementation. A value: copyable.
///
/// What is held is counted from commands and answers, so an observation without the lists is
/// checked by its answer and its numbers, and the next one with them in full.
class Invariants {
 public:
  static constexpr auto& kRules = kInvariants;

  /// For a fresh policy.
  explicit Invariants(const CachePolicyConfig& config) : held_(config.capacity) {}

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command, until something is found.
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step);

 private:
  using Found = std::optional<Divergence>;

  // What an accepted command changes in what is held, and what is wrong with its answer.
  Found take(const Get& command, const Observation& shown);
  Found take(const Insert& command, const Observation& shown);
  Found take(const Remove& command, const Observation& shown);
  Found take(const MakeReady& command, const Observation& shown);
  Found take(const Acquire& command, const Observation& shown);
  Found take(const Release& command, const Observation& shown);
  Found take(const Touch&, const Observation&) { return std::nullopt; }
  Found take(const Evict& command, const Observation& shown);
  Found take(const Clear& command, const Observation& shown);

  HeldBlocks held_;
  ShownLists before_;
};

}  // namespace kvfence::eviction
