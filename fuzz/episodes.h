#pragma once

/// Fuzz inputs as episodes of a target, in lockstep against its reference.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/implementation.h"
#include "contract/core/line.h"
#include "contract/core/scenario.h"
#include "fuzz/corpus_goals.h"
#include "properties/core/campaign.h"
#include "properties/core/checks.h"
#include "properties/core/choices.h"
#include "properties/core/divergence.h"
#include "properties/core/lockstep.h"
#include "scenarios/targets/implementations.h"

namespace kvfence::fuzz {

/// Bounds the time of one input; the bytes end most episodes earlier.
inline constexpr std::size_t kCommandsMax = 200;

/// Runs the episode that the bytes spell; `scenario` receives its configuration and commands.
template <class Target>
std::optional<Divergence> run_input(Lockstep<Target>& lockstep, std::span<const std::uint8_t> bytes,
                                    Scenario<Target>& scenario) {
  Choices choices = Choices::from_bytes(bytes);
  return run_episode(lockstep, choices, kCommandsMax, scenario);
}

/// A divergence and what leads to it, as one scenario: the report stands in its comments, so the
/// text of a crash is a `.kvs` file.
template <class Target>
std::string to_scenario_text(const Divergence& divergence, Scenario<Target> scenario) {
  scenario.steps.resize(std::min(scenario.steps.size(), divergence.step + 1));
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

/// Runs inputs one by one and counts what they reached. Nothing else is kept between two of them,
/// so an input behaves alike wherever it stands, and libFuzzer sees each give back its memory.
template <class Target>
class Episodes {
 public:
  using MakeActual = std::unique_ptr<Implementation<Target>> (*)();

  explicit Episodes(MakeActual make_actual) : make_actual_(make_actual) {}

  /// Runs the episode that the bytes spell. At a divergence it prints to_scenario_text to stderr
  /// and aborts.
  void run(std::span<const std::uint8_t> bytes) {
    const auto reference = Implementations<Target>::make_reference();
    const auto actual = make_actual_();
    Lockstep<Target> lockstep(*reference, *actual);
    Scenario<Target> scenario;
    const std::optional<Divergence> divergence = run_input(lockstep, bytes, scenario);
    num_commands_ += lockstep.num_commands();
    reach_.merge(lockstep.reach());
    if (!divergence) return;
    const std::string text = to_scenario_text(*divergence, std::move(scenario));
    std::fprintf(stderr, "%s# end of the scenario\n", text.c_str());
    std::abort();
  }

  /// The reachability goals of the target.
  std::vector<CorpusGoal> goals() const {
    std::vector<CorpusGoal> goals;
    for (std::size_t index = 0; index < Reach::num_goals(); ++index) {
      const auto goal = reach_.goal(index);
      goals.push_back({goal.name, goal.count});
    }
    return goals;
  }

  CorpusGoal size() const { return {"commands", num_commands_}; }

 private:
  using Reach = typename Checks<Target>::Reach;

  MakeActual make_actual_;
  Reach reach_;
  std::uint64_t num_commands_ = 0;
};

}  // namespace kvfence::fuzz
