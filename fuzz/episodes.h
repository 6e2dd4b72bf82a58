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
/// `marks`, if any, where they lie in the bytes.
std::optional<Divergence> run_input(Lockstep& lockstep, std::span<const std::uint8_t> bytes,
                                    Scenario& scenario, Marks* marks = nullptr);

/// A divergence and what leads to it, as one scenario: the report stands in its comments, so the
/// text of a crash is a `.kvs` file.
std::string to_scenario_text(const Divergence& divergence, Scenario scenario);

/// Runs inputs one by one, counts what they reached and knows where their commands lie. Else
/// nothing is kept between two of them: an input behaves alike wherever it stands, and libFuzzer
/// sees each give back its memory.
class Episodes {
 public:
  /// planted_bug: in the optimized side; empty for none. Requires: the part has it.
  /// options: of each lockstep.
  Episodes(const CheckedPart& part, std::string_view planted_bug, const LockstepOptions& options);

  /// Runs the episode that the bytes spell. At a divergence it prints to_scenario_text to stderr
  /// and aborts.
  void run(std::span<const std::uint8_t> bytes);

  /// Of inputs that have run.
  const KnownMarks& known_marks() const { return known_marks_; }

  /// The goals of the part; 0 each where the options leave them uncounted.
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
