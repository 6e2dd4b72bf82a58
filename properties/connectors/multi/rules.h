#pragma once

/// What must hold of one MultiConnector, whatever any other implementation says. The rules are
/// those of contract/connectors/multi/multi_connector.h, turned into statements about observations.

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "contract/connectors/multi/multi_connector_target.h"
#include "properties/connectors/multi/ledger.h"
#include "properties/core/divergence.h"

namespace kvfence::multi_connector {

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 16> kInvariants = {{
    {"M1", "answers_fit_the_command",
     "a command is refused with the first code whose condition holds, and answers with exactly "
     "what it returns"},
    {"M2", "nothing_changes_unasked",
     "a refused command, and one that children are only told of, changes nothing"},
    {"M3", "every_child_is_told",
     "each child is called once, in order, with what the operation was called with, whatever the "
     "others answer"},
    {"M4", "children_are_asked_in_order",
     "a lookup asks the children in order, up to one that wants to be asked again"},
    {"M5", "the_first_hit_is_answered",
     "a lookup answers with the tokens of the first child that has some, or that it has to be "
     "asked again"},
    {"M6", "one_child_loads",
     "the first child that had tokens at the last lookup that found some gets the request's blocks "
     "and tokens, the others empty groups and no tokens"},
    {"M7", "metadata_reach_their_child",
     "every rank gets the metadata of each step once, in order, and each child its own"},
    {"M8", "extra_saves_travel_once",
     "of the children that hold a finished request all but one are told to the workers, with the "
     "next metadata alone"},
    {"M9", "sent_with_the_last_child",
     "a rank reports a request as sent when every child that held it has, and no sooner"},
    {"M10", "received_is_passed_on",
     "a rank reports as received what any child received, whoever else holds it"},
    {"M11", "load_errors_are_those_of_all",
     "a rank reports each block that a child failed to load"},
    {"M12", "worker_metadata_reach_their_child",
     "each child gets what its own worker halves have to tell, rank by rank, and nothing of "
     "others"},
    {"M13", "statistics_are_kept_by_class",
     "the statistics of all children of a class and of all ranks are taken in once each"},
    {"M14", "a_request_ends_for_all",
     "blocks are held if any child holds them, and the parameters are those of the one child that "
     "has some"},
    {"M15", "events_and_resets_are_those_of_all",
     "the events of all children are handed out, in order; a reset fails if that of a child does"},
    {"M16", "nothing_is_kept_of_what_is_over",
     "a finished request has no chosen child; when all that was held is sent, no extra saves are "
     "left"},
}};

/// Watches one implementation. A value: copyable.
class Invariants {
 public:
  explicit Invariants(const Config& config) : config_(config), ledger_(config) {}

  /// For a fresh connector of the same configuration.
  void reset();

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command since reset. After a divergence only reset() may follow.
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step);

 private:
  Config config_;
  Ledger ledger_;
};

}  // namespace kvfence::multi_connector
