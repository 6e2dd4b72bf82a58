#pragma once

/// Fuzz inputs as episodes of a target, in lockstep against its reference.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/scenario.h"
#include "fuzz/command_mutator.h"
#include "fuzz/corpus_goals.h"
#include "properties/core/divergence.h"
#include "properties/core/lockstep.h"
#include "properties/core/oracles.h"
#include "scenarios/targets/targets.h"

namespace kvfence::fuzz {

/// Runs the episode that the bytes spell; `scenario` receives its configuration and commands,
/// `marks`, if any, their places in the bytes.
std::optional<Divergence> run_input(Lockstep& lockstep, std::span<const std::uint8_t> bytes,
                                    Scenario& scenario, Marks* marks = nullptr);

/// A divergence and the commands that lead to it, as one scenario with the report in comments: the
/// text of a crash is a `.kvs` file.
std::string to_scenario_text(const Divergence& divergence, Scenario scenario);

/// Runs inputs one by one, counts the goals that they reach and records the places of their
/// commands. Nothing else is kept between inputs: an input behaves the same in any order, and
/// releases all its memory, as libFuzzer requires.
class Episodes {
 public:
  /// planted_bug: in the optimized side; empty for none. Requires: the part has it.
  /// options: for each lockstep.
  Episodes(const CheckedPart& part, std::string_view planted_bug, const LockstepOptions& options);

  /// Runs the episode that the bytes spell. At a divergence it prints to_scenario_text to stderr
  /// and aborts.
  void run(std::span<const std::uint8_t> bytes);

  /// The marks of inputs that have run.
  const KnownMarks& known_marks() const { return known_marks_; }

  /// The goals of the part; with counts of 0 if the options switch counting off.
  std::vector<CorpusGoal> goals() const;
  CorpusGoal size() const { return {"commands", num_commands_}; }

 private:
  const CheckedPart& part_;
  std::string planted_bug_;
  LockstepOptions options_;
  std::vector<std::uint64_t> counts_;  ///< by goal
  std::uint64_t num_commands_ = 0;
  KnownMarks known_marks_;
};

}  // namespace kvfence::fuzz
