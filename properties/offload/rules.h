#pragma once

/// What must hold of one offloading manager, whatever any other implementation says. The rules are
/// those of contract/offload/offloading_manager.h, turned into statements about observations.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "contract/offload/offload_target.h"
#include "contract/offload/offloading_manager.h"
#include "properties/core/divergence.h"
#include "properties/offload/ledger.h"

namespace kvfence::offload {

struct Invariant {
  std::string_view id;
  std::string_view name;  ///< Divergence::oracle
  std::string_view rule;  ///< Divergence::message
};

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 14> kInvariants = {{
    {"O1", "answers_fit_the_command",
     "a command is refused with the first code whose condition holds, and answers with exactly "
     "what it returns"},
    {"O2", "nothing_changes_unasked",
     "a refused command, a lookup, take_events and a store that cannot be change neither blocks "
     "nor slots nor the policy's lists"},
    {"O3", "a_slot_has_one_block",
     "the slots of the blocks are different and below the capacity, and those that are not held "
     "are free"},
    {"O4", "slots_are_used_in_order",
     "new blocks get the slots that were never used, ascending, then the last freed first, the "
     "victims' among them; a load answers with the slots of its keys"},
    {"O5", "only_what_is_missing_is_stored",
     "a store answers with those of its keys that are not held, in their order"},
    {"O6", "the_filter_wants_lookups",
     "no key is stored that was looked up fewer than store_threshold times since it entered the "
     "tracker, and all others are"},
    {"O7", "nothing_in_use_is_evicted",
     "as many blocks as slots are missing go, with their slots: idle ones, and none of the "
     "store's own keys"},
    {"O8", "the_oldest_go_first",
     "those that go are the oldest that may: in ARC of T1 down to the target, then of T2"},
    {"O9", "a_store_fails_only_if_it_must",
     "a store fails exactly if too few blocks may go, by the rules of the policy"},
    {"O10", "a_lookup_finds_what_is_ready",
     "a lookup tells the leading keys that are ready, or of one key whether it is held, and "
     "whether it is being written"},
    {"O11", "a_block_is_written_then_read",
     "a block is not ready until its store ends, is forgotten if that failed, and is then read by "
     "as many loads as began less those that ended"},
    {"O12", "lists_change_as_asked",
     "new blocks are the newest; touched keys go to the end, the first one last, in ARC from T1 to "
     "T2; victims become ghosts; a touched ghost moves the target; all others keep their order"},
    {"O13", "lists_are_sound",
     "a key stands in one list at most, and there once; the target is at least 0 and at most the "
     "capacity; behind an eviction no more ghosts of a list are left than the capacity"},
    {"O14", "events_mirror_the_blocks",
     "an index fed by the events holds exactly what became ready and was not evicted since (a "
     "reset tells nothing), hears of none more often than it became ready, removes none that it "
     "does not hold, and gets no event where events are off"},
}};

/// Watches one implementation. A value: copyable.
///
/// Bookkeeping goes by the commands, so an observation without the lists is checked by its answer
/// and its numbers, and the next one with them is checked in full.
class Invariants {
 public:
  explicit Invariants(const OffloadingManagerConfig& config) : ledger_(config) {}

  /// For a fresh manager of the same configuration.
  void reset();

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command since reset. After a divergence only reset() may follow.
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step);

 private:
  std::optional<Divergence> check_answer(const Command& command, const Observation& observation);
  std::optional<Divergence> check_presence(const Command& command,
                                           const Observation& observation) const;
  std::optional<Divergence> check_lookup(const Command& command,
                                         const Observation& observation) const;
  std::optional<Divergence> check_load(const PrepareLoad& command,
                                       const Observation& observation) const;
  std::optional<Divergence> check_store(const PrepareStore& command,
                                        const Observation& observation) const;
  std::optional<Divergence> check_events(const std::vector<Event>& events);
  std::optional<Divergence> check_lists(const Command& command,
                                        const Observation& observation) const;
  std::optional<Divergence> check_numbers(const Command& command,
                                          const Observation& observation) const;

  Ledger ledger_;
  bool numbers_were_seen_ = false;  ///< by the command before
  bool lists_were_seen_ = false;
};

}  // namespace kvfence::offload
