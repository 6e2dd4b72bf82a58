#pragma once

/// What must hold of any correct offloading manager, of any release: statements about the
/// observations of one implementation alone. None predicts what is stored or what goes; that is the
/// reference's work.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>

#include "contract/offload/offload_target.h"
#include "contract/offload/offloading_manager.h"
#include "properties/core/divergence.h"
#include "properties/eviction/held_blocks.h"

namespace kvfence::offload {

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 10> kInvariants = {{
    {"offload.1", "a_key_has_one_place", "a key stands in one list at most, and there once"},
    {"offload.2", "sizes_are_bounded",
     "size is the number of blocks held; it, B1, B2 and the target are at most the capacity, the "
     "target at least 0"},
    {"offload.3", "blocks_are_held_as_asked",
     "T1 and T2 are the blocks that were stored and neither evicted nor failed, each with its "
     "slot, ready once it was written, with as many readers as loads began less those that ended"},
    {"offload.4", "a_slot_has_one_block",
     "a store gets slots that no block has, and that are below the capacity; slots of no block are "
     "free"},
    {"offload.5", "nothing_in_use_is_evicted",
     "a store evicts blocks that are held and idle, none of its own keys unless a filter drops "
     "some, each once, with its slot"},
    {"offload.6", "only_what_is_ready_is_read",
     "a load gets the slots of its keys, which are written; it ends once"},
    {"offload.7", "only_what_is_missing_is_stored",
     "what a store writes are keys of its own that are not held, each once, with a slot each"},
    {"offload.8", "lookup_agrees_with_blocks",
     "a lookup finds what is held and ready, and nothing else; a block that is written is pending"},
    {"offload.9", "events_mirror_the_blocks",
     "an index fed by the events holds exactly what became ready and was not evicted since (a "
     "reset sends none), hears of none more often than it became ready, removes none that it "
     "does not hold, and gets no event where events are off"},
    {"offload.10", "refused_changes_nothing",
     "a refused command and a store that fails leave all lists as they were"},
}};

/// Watches one implementation. A value: copyable.
///
/// What is held is counted from commands and answers, so an observation without the lists is
/// checked by its answer and its numbers, and the next one with them in full.
class Invariants {
 public:
  static constexpr auto& kRules = kInvariants;

  /// For a fresh manager.
  explicit Invariants(const OffloadingManagerConfig& config)
      : config_(config), held_(config.cache.capacity) {}

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command, until something is found.
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step);

 private:
  using Found = std::optional<Divergence>;

  // What an accepted command changes in what is held, and what is wrong with its answer.
  Found take(const Lookup& command, const Observation& shown);
  Found take(const LookupKey& command, const Observation& shown);
  Found take(const Touch&, const Observation&) { return std::nullopt; }
  Found take(const PrepareLoad& command, const Observation& shown);
  Found take(const CompleteLoad& command, const Observation& shown);
  Found take(const PrepareStore& command, const Observation& shown);
  Found take(const CompleteStore& command, const Observation& shown);
  Found take(const ResetCache& command, const Observation& shown);
  Found take(const TakeEvents& command, const Observation& shown);

  OffloadingManagerConfig config_;
  eviction::HeldBlocks held_;
  eviction::ShownLists before_;
  std::set<std::uint32_t> reported_;           ///< what an index fed by all events should hold
  std::set<std::uint32_t> index_;              ///< what one fed by those taken so far holds
  std::multiset<std::uint32_t> became_ready_;  ///< and no event reported it yet
};

}  // namespace kvfence::offload
