#pragma once

/// Who replays traffic, and the report on it: the same for every target.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "contract/core/implementation.h"
#include "contract/core/line.h"
#include "properties/core/divergence.h"
#include "properties/core/report.h"
#include "scenarios/command/commands.h"
#include "scenarios/targets/targets.h"

namespace kvfence {

/// One side alone, or the reference and the side under test.
struct ReplayImplementations {
  std::unique_ptr<Implementation> expected;
  std::unique_ptr<Implementation> actual;  ///< null: the expected side alone
};

/// The reference, and the optimized side or what the options ask to plant. Errors: no such bug.
inline Parsed<ReplayImplementations> make_both_sides(const TargetSides& target,
                                                     const ReplayCommandOptions& options) {
  const std::string& bug = options.subject.planted_bug;
  ReplayImplementations sides;
  sides.expected = target.make_reference();
  sides.actual = bug.empty() ? target.make_optimized() : target.make_planted(bug);
  if (sides.actual) return sides;
  return InputError{"--planted-bug", {}, "'" + bug + "'", "a name of kvfence list planted-bugs"};
}

/// The side that the options ask for alone, or both.
inline Parsed<ReplayImplementations> make_sides(const TargetSides& target,
                                                const ReplayCommandOptions& options,
                                                bool in_lockstep) {
  if (options.only == "reference") return ReplayImplementations{target.make_reference(), nullptr};
  if (!in_lockstep) return ReplayImplementations{target.make_optimized(), nullptr};
  return make_both_sides(target, options);
}

inline Report make_report(const TargetSides& target, const ReplayCommandOptions& options,
                          const ReplayImplementations& sides, std::uint64_t commands,
                          const std::optional<Divergence>& divergence, double seconds) {
  Report report;
  report.target = target.target().name;
  report.source = options.file;
  report.expected_name = sides.expected->name();
  report.actual_name = sides.actual ? sides.actual->name() : "";
  report.commands = commands;
  report.seconds = seconds;
  report.disagreements = divergence ? 1 : 0;
  report.divergence = divergence;
  return report;
}

}  // namespace kvfence
