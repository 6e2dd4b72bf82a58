#pragma once

/// Who replays traffic, and the report on it: the same for every target whose implementations are
/// in the registry.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "contract/core/implementation.h"
#include "contract/core/line.h"
#include "properties/core/divergence.h"
#include "properties/core/report.h"
#include "scenarios/command/commands.h"
#include "scenarios/targets/implementations.h"

namespace kvfence {

/// One side alone, or the reference and the side under test.
template <class Target>
struct ReplayImplementations {
  std::unique_ptr<Implementation<Target>> expected;
  std::unique_ptr<Implementation<Target>> actual;  ///< null: the expected side alone
};

/// The reference, and the optimized side or what the options ask to plant. Errors: no such bug.
template <class Target>
Parsed<ReplayImplementations<Target>> make_both_sides(const ReplayCommandOptions& options) {
  using Available = Implementations<Target>;
  const std::string& bug = options.subject.planted_bug;
  ReplayImplementations<Target> sides;
  sides.expected = Available::make_reference();
  sides.actual = bug.empty() ? Available::make_optimized() : Available::make_planted(bug);
  if (sides.actual) return sides;
  return InputError{"--planted-bug", {}, "'" + bug + "'", "a name of kvfence list planted-bugs"};
}

template <class Target>
Report make_report(const ReplayCommandOptions& options, const ReplayImplementations<Target>& sides,
                   std::uint64_t commands, const std::optional<Divergence>& divergence,
                   double seconds) {
  Report report;
  report.target = Target::kName;
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
