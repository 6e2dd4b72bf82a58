#pragma once

/// The picture of a MultiConnector: who is chosen, and the extra saves of all halves.

#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/multi/multi_connector_target.h"
#include "scenarios/story/explain_picture.h"

namespace kvfence {

/// For observations with chosen, extra and ranks.
template <class Target>
class ChoicesPicture {
 public:
  using Observation = typename Target::Observation;
  using Scenes = std::vector<Scene<Observation>>;

  ChoicesPicture(const typename Target::Config&, const Scenes&) {}

  static bool has_state(const Observation& observation) {
    return observation.chosen.has_value() && observation.extra.has_value() &&
           observation.ranks.has_value();
  }

  std::string legend() const {
    return "A>1 loaded by child 1   A+2 two extra saves   2w two steps wait   * in a step   1r one "
           "report waits";
  }

  std::string heading() const { return "chosen | extra | each rank"; }

  /// Requires: has_state(observation)
  std::string row(const Observation& observation) const {
    std::string row = chosen_text(observation) + " | " + extra_text(*observation.extra);
    for (const multi_connector::Rank& rank : *observation.ranks) row += " | " + rank_text(rank);
    return row;
  }

  std::vector<std::string> more_of(const Scene<Observation>&, const Scene<Observation>*) const {
    return {};
  }

  /// What differs between the two rows. Requires: both have the state.
  std::string marks(const Observation& expected, const Observation& actual) const {
    std::string names;
    const auto add = [&](bool differs, std::string_view name) {
      if (differs) names += " " + std::string(name);
    };
    add(*expected.chosen != *actual.chosen, "who is chosen");
    add(*expected.extra != *actual.extra, "extra saves");
    add(*expected.ranks != *actual.ranks, "the ranks");
    return names.empty() ? "" : "^ different:" + names;
  }

  std::string histories(const Scenes&) const { return ""; }

 private:
  static std::string joined(std::string text, const std::string& more) {
    return text.empty() ? more : text + " " + more;
  }

  static std::string chosen_text(const Observation& observation) {
    std::string text;
    for (const multi_connector::Chosen& chosen : *observation.chosen) {
      text = joined(text, chosen.request + ">" + std::to_string(chosen.child));
    }
    return text.empty() ? "-" : text;
  }

  static std::string extra_text(const std::vector<multi_connector::Extra>& extras) {
    std::string text;
    for (const multi_connector::Extra& extra : extras) {
      text = joined(text, extra.request + "+" + std::to_string(extra.saves));
    }
    return text.empty() ? "-" : text;
  }

  static std::string rank_text(const multi_connector::Rank& rank) {
    std::string text = extra_text(rank.extra);
    if (rank.num_waiting > 0) text += " " + std::to_string(rank.num_waiting) + "w";
    if (rank.in_step) text += " *";
    if (rank.num_reports > 0) text += " " + std::to_string(rank.num_reports) + "r";
    return text;
  }
};

}  // namespace kvfence
