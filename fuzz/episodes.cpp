#include "fuzz/episodes.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "contract/core/check.h"
#include "properties/core/campaign.h"

namespace kvfence::fuzz {

std::optional<Divergence> run_input(Lockstep& lockstep, std::span<const std::uint8_t> bytes,
                                    Scenario& scenario, Marks* marks) {
  // Bounds the time of one input; most episodes end earlier with the bytes.
  constexpr std::size_t kCommandsMax = 200;
  Choices choices = Choices::from_bytes(bytes);
  const Setup setup = prepared(*lockstep.checks().target, lockstep.checks().draw_config(choices));
  const auto mark = [&] {
    if (marks) marks->push_back(choices.num_used());
  };
  auto divergence = run_episode(lockstep, setup, choices, kCommandsMax, scenario, mark);
  mark();
  return divergence;
}

std::string to_scenario_text(const Divergence& divergence, Scenario scenario) {
  cut_after(scenario, divergence);
  scenario.comments = {
      " divergence at command " + std::to_string(divergence.step + 1) + ", seen by " +
          divergence.oracle,
      " " + divergence.message,
      " " + divergence.field,
      "   expected " + divergence.expected,
      "   actual   " + divergence.actual,
  };
  return print(to_document(scenario));
}

Episodes::Episodes(const CheckedPart& part, std::string_view planted_bug,
                   const LockstepOptions& options)
    : part_(part),
      planted_bug_(planted_bug),
      options_(options),
      counts_(part.checks->goals.size()) {}

void Episodes::run(std::span<const std::uint8_t> bytes) {
  const auto reference = part_.sides->make_reference();
  const auto actual = planted_bug_.empty() ? part_.sides->make_optimized()
                                           : part_.sides->make_planted(planted_bug_);
  KVFENCE_CHECK(actual, "a planted bug that the part does not have");
  Lockstep lockstep(*part_.checks, *reference, *actual, options_);
  Scenario scenario(*part_.checks->target);
  Marks marks;
  const std::optional<Divergence> divergence = run_input(lockstep, bytes, scenario, &marks);
  known_marks_.add(bytes, marks);
  num_commands_ += lockstep.num_commands();
  for (std::size_t goal = 0; goal < counts_.size(); ++goal) {
    counts_[goal] += lockstep.goal_counts().count_of(goal);
  }
  if (!divergence) return;
  const std::string text = to_scenario_text(*divergence, std::move(scenario));
  std::fprintf(stderr, "%s# end of the scenario\n", text.c_str());
  std::abort();
}

std::vector<CorpusGoal> Episodes::goals() const {
  std::vector<CorpusGoal> goals;
  for (std::size_t goal = 0; goal < counts_.size(); ++goal) {
    goals.push_back({part_.checks->goals[goal].name, counts_[goal]});
  }
  return goals;
}

}  // namespace kvfence::fuzz
