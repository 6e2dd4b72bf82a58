#pragma once

/// What must hold of one tiering manager, whatever any other implementation says. The rules are
/// those of contract/tiering/tiering_manager.h, turned into statements about observations.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/tiering/tiering_target.h"
#include "properties/core/divergence.h"
#include "properties/tiering/ledger.h"

namespace kvfence::tiering {

struct Invariant {
  std::string_view id;
  std::string_view name;  ///< Divergence::oracle
  std::string_view rule;  ///< Divergence::message
};

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 17> kInvariants = {{
    {"T1", "answers_fit_the_command",
     "a command is refused with the first code whose condition holds behind its poll, and answers "
     "with exactly what it returns"},
    {"T2", "nothing_changes_unasked",
     "but for their poll, a refused command, a store that cannot be, take_events, reset_cache, and "
     "what happens in the tiers change nothing"},
    {"T3", "tiers_are_polled_once_a_step",
     "each tier in order is asked for its finished jobs at the first lookup, prepare_load, "
     "prepare_store or on_schedule_end of a step, before anything else, and not again"},
    {"T4", "tiers_are_searched_in_order",
     "a lookup asks the tiers in order for what the primary tier does not hold, up to the first "
     "that has it"},
    {"T5", "what_is_held_is_found",
     "a lookup hits what is ready in the primary tier, and misses only what no tier has, or what "
     "nothing can go for"},
    {"T6", "an_ask_again_has_a_cause",
     "a lookup is put off only by a store or promotion under way, one that it begins, or a tier "
     "that asks for it: from the first poll behind the end of a job that job puts nothing off"},
    {"T7", "a_promoted_block_is_pinned",
     "from its lookup to the report of its job a promoted block is not ready and keeps its slot; "
     "then it is released once"},
    {"T8", "failure_is_never_success",
     "a block whose promotion failed is forgotten and its slot free; a store that failed goes to "
     "no tier"},
    {"T9", "a_cascaded_block_is_pinned",
     "a block is read by as many loads and cascades as are under way; the report of a cascade, "
     "good or bad, releases its blocks once"},
    {"T10", "stores_go_down_to_every_tier",
     "a store that succeeded is submitted to each tier in order with its keys and their slots; "
     "blocks that are ready already to each tier at request level; nothing else is"},
    {"T11", "promotions_are_submitted_once",
     "the end of a step submits what was queued, one load a tier and request, keys in the order of "
     "their lookups with their slots, and nothing else"},
    {"T12", "jobs_are_numbered_in_order",
     "jobs are numbered in the order of their submission, over all tiers, and are under way until "
     "their own tier reports them"},
    {"T13", "every_tier_is_told",
     "touch, on_new_request, on_request_finished and on_schedule_end reach each tier once, in "
     "order; a request is at request level if any tier wants that"},
    {"T14", "nothing_is_held_when_all_is_done",
     "while no load, store, promotion or cascade is under way every block is ready and nobody "
     "reads it"},
    {"T15", "the_primary_is_an_offloading_manager",
     "slots, victims, lists and events of the primary tier are as the rules of the target offload "
     "demand"},
    {"T16", "what_is_ready_is_what_was_stored",
     "the slot of a ready block holds the bytes of its key, wherever they came from"},
    {"T17", "files_keep_what_was_stored",
     "a file tier serves what was stored and nothing else, and while nothing goes wrong in its "
     "files each job with what is there succeeds; a store is done if and only if its file is "
     "there; what could not be loaded, or has another size, is missed until it is stored again; "
     "a whole file stays, a temporary one only if it could not be removed"},
}};

/// Watches one implementation. A value: copyable.
///
/// Bookkeeping goes by the commands, so an observation without the lists is checked by its answer,
/// its calls and its numbers, and the next one with them is checked in full.
class Invariants {
 public:
  Invariants(const OffloadingManagerConfig& primary, std::uint32_t num_tiers,
             std::vector<std::uint32_t> file_tiers = {})
      : primary_(primary),
        num_tiers_(num_tiers),
        file_tiers_(std::move(file_tiers)),
        ledger_(primary, num_tiers, file_tiers_) {}

  /// For a fresh manager of the same configuration.
  void reset();

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command since reset. After a divergence only reset() may follow.
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step);

 private:
  std::optional<Divergence> check_presence(const Expected& expected, const Command& command,
                                           const Observation& observation) const;
  std::optional<Divergence> check_calls(const Expected& expected, const Command& command,
                                        const Observation& observation) const;
  std::optional<Divergence> check_lookup(const Expected& expected, const Command& command,
                                         const Observation& observation) const;
  std::optional<Divergence> check_store(const Expected& expected,
                                        const Observation& observation) const;
  std::optional<Divergence> check_events(const std::vector<offload::Event>& events);
  std::optional<Divergence> check_lists(const Expected& expected, const Command& command,
                                        const Observation& observation) const;
  std::optional<Divergence> check_tiers(bool unasked, const Observation& observation) const;
  std::optional<Divergence> check_numbers(const Expected& expected, const Command& command,
                                          const Observation& observation) const;

  OffloadingManagerConfig primary_;
  std::uint32_t num_tiers_;
  std::vector<std::uint32_t> file_tiers_;  ///< by place
  Ledger ledger_;
  bool was_shown_ = false;  ///< the lists, by the command before
};

}  // namespace kvfence::tiering
