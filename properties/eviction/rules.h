#pragma once

/// What must hold of one cache policy, whatever any other implementation says. The rules are those
/// of contract/eviction/cache_policy.h, turned into statements about observations.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "contract/eviction/cache_policy.h"
#include "contract/eviction/eviction_target.h"
#include "properties/core/divergence.h"
#include "properties/eviction/ledger.h"

namespace kvfence::eviction {

struct Invariant {
  std::string_view id;
  std::string_view name;  ///< Divergence::oracle
  std::string_view rule;  ///< Divergence::message
};

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 13> kInvariants = {{
    {"E1", "answers_fit_the_command",
     "a command is refused with the first code whose condition holds, and answers with exactly "
     "what it returns"},
    {"E2", "nothing_changes_unasked",
     "a refused command, a question and an evict that cannot be satisfied change nothing"},
    {"E3", "a_key_has_one_place", "a key stands in one list at most, and there once"},
    {"E4", "size_is_conserved",
     "size is what was inserted less what was removed and evicted, and at most the capacity"},
    {"E5", "target_moves_with_ghost_hits",
     "the target is at least 0 and at most the capacity, and moves only with a touched ghost, by "
     "the quotient of the ghosts' numbers or 1; LRU has none"},
    {"E6", "ghosts_are_bounded",
     "behind an evict neither B1 nor B2 holds more keys than the capacity"},
    {"E7", "what_may_go_goes",
     "an evict lets go exactly as many blocks as asked, each idle, unprotected and listed once, "
     "with its slot, and no other"},
    {"E8", "an_evict_fails_only_if_it_must",
     "an evict fails exactly if too few may go: of all blocks in LRU, and in ARC of T1 down to the "
     "target and of T2, where that rule holds"},
    {"E9", "the_oldest_go_first",
     "those that go are the oldest that may: of T1 down to the target, then of T2"},
    {"E10", "victims_become_ghosts",
     "what leaves T1 becomes the newest of B1, what leaves T2 of B2, in order; the oldest ghosts "
     "beyond the capacity are forgotten; LRU has none"},
    {"E11", "the_first_touched_is_the_newest",
     "touched keys go to the end of their list, the first one last, a ready block of T1 to T2; all "
     "others keep their order"},
    {"E12", "blocks_come_and_go_as_asked",
     "an inserted block is the newest, not ready, and no ghost; a removed one leaves no ghost; "
     "nothing else comes or goes"},
    {"E13", "readers_are_counted",
     "a block is written, then idle, then read by as many as acquired it less those that released "
     "it, and keeps its slot"},
}};

/// Watches one implementation. A value: copyable.
///
/// Bookkeeping goes by the commands, so an observation without the lists is checked by its answer
/// and its numbers, and the next one with them is checked in full.
class Invariants {
 public:
  explicit Invariants(const CachePolicyConfig& config) : ledger_(config) {}

  /// For a fresh policy of the same configuration.
  void reset();

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command since reset. After a divergence only reset() may follow.
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step);

 private:
  std::optional<Divergence> check_answer(const Command& command,
                                         const Observation& observation) const;
  std::optional<Divergence> check_presence(const Command& command,
                                           const Observation& observation) const;
  std::optional<Divergence> check_evict(const Evict& command, const Observation& observation) const;
  std::optional<Divergence> check_lists(const Command& command,
                                        const Observation& observation) const;
  std::optional<Divergence> check_numbers(const Command& command,
                                          const Observation& observation) const;

  Ledger ledger_;
  bool numbers_were_seen_ = false;  ///< by the command before
  bool lists_were_seen_ = false;
};

}  // namespace kvfence::eviction
