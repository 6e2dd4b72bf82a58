#pragma once

/// A check in processes of its own: whatever the implementation under test does, a crash included,
/// is an outcome, with the commands that led to it.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "contract/core/implementation.h"
#include "properties/core/checks.h"
#include "properties/core/run_check.h"
#include "scenarios/command/contained_run.h"
#include "scenarios/command/outcome.h"

namespace kvfence {

struct ContainedCheck {
  const Checks& checks;  ///< of a campaign: what draws its commands
  /// kvfence::check() of both sides, made for it; runs in processes that end with it.
  std::function<Outcome(const CheckOptions&)> run;
  std::function<std::unique_ptr<Implementation>()> make_reference;
  std::string actual_name;
  ContainedLimits limits;
  std::uint32_t jobs = 1;  ///< processes of a campaign; what it finds does not depend on them
};

/// Runs the check. A failure is that of the first episode that fails, shrunk if the options say so;
/// how often goals were reached is counted where nothing failed.
Outcome check_contained(const ContainedCheck& check, const CheckOptions& options);

}  // namespace kvfence
