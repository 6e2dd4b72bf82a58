#include <memory>
#include <string>
#include <vector>

#include "contract/connectors/multi/multi_connector_target.h"
#include "scenarios/story/explain_picture.h"
#include "scenarios/story/observed_member.h"

namespace kvfence {
namespace {

using multi_connector::Chosen;
using multi_connector::Extra;
using multi_connector::Rank;

std::string joined(std::string text, const std::string& more) {
  return text.empty() ? more : text + " " + more;
}

std::string chosen_text(const std::vector<Chosen>& all) {
  std::string text;
  for (const Chosen& chosen : all) {
    text = joined(text, chosen.request + ">" + std::to_string(chosen.child));
  }
  return text.empty() ? "-" : text;
}

std::string extra_text(const std::vector<Extra>& extras) {
  std::string text;
  for (const Extra& extra : extras) {
    text = joined(text, extra.request + "+" + std::to_string(extra.saves));
  }
  return text.empty() ? "-" : text;
}

std::string rank_text(const Rank& rank) {
  std::string text = extra_text(rank.extra);
  if (rank.num_waiting > 0) text += " " + std::to_string(rank.num_waiting) + "w";
  if (rank.in_step) text += " *";
  if (rank.num_reports > 0) text += " " + std::to_string(rank.num_reports) + "r";
  return text;
}

const std::vector<Chosen>* chosen_of(const Observation& observation) {
  return find_observed<std::vector<Chosen>>(observation, "chosen");
}
const std::vector<Extra>* extra_of(const Observation& observation) {
  return find_observed<std::vector<Extra>>(observation, "extra");
}
const std::vector<Rank>* ranks_of(const Observation& observation) {
  return find_observed<std::vector<Rank>>(observation, "ranks");
}

class ChoicesPicture final : public ScenePicture {
 public:
  bool has_state(const Observation& observation) const override {
    return chosen_of(observation) && extra_of(observation) && ranks_of(observation);
  }

  std::string legend() const override {
    return "A>1 loaded by child 1   A+2 two extra saves   2w two steps wait   * in a step   1r one "
           "report waits";
  }

  std::string heading() const override { return "chosen | extra | each rank"; }

  std::string row(const Observation& observation) const override {
    std::string row =
        chosen_text(*chosen_of(observation)) + " | " + extra_text(*extra_of(observation));
    for (const Rank& rank : *ranks_of(observation)) row += " | " + rank_text(rank);
    return row;
  }

  std::string marks(const Observation& expected, const Observation& actual) const override {
    return different({{*chosen_of(expected) != *chosen_of(actual), "who is chosen"},
                      {*extra_of(expected) != *extra_of(actual), "extra saves"},
                      {*ranks_of(expected) != *ranks_of(actual), "the ranks"}});
  }
};

}  // namespace

std::unique_ptr<ScenePicture> make_choices_picture() { return std::make_unique<ChoicesPicture>(); }

}  // namespace kvfence
