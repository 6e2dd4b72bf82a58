#pragma once

/// A check in processes of its own: any failure of the implementation under test, a crash included,
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
  std::uint32_t jobs = 1;  ///< processes of a campaign; its findings do not depend on their number
};

/// Runs the check. Reports the failure of the first episode that fails, shrunk if the options say
/// so; counts how often goals were reached if nothing failed.
Outcome check_contained(const ContainedCheck& check, const CheckOptions& options);

}  // namespace kvfence
