#pragma once

/// The sides of one target from its parts.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/implementation.h"
#include "scenarios/targets/targets.h"

namespace kvfence {

/// Parts has
///   reference(name), optimized(name), planted(name, bug)
///       -> std::unique_ptr of an implementation of that name
///   kPlantedBugs, planted_bug_from_name
///       as optimized/ has them
template <class Parts>
TargetSides sides_of(const Checks& checks) {
  TargetSides sides{};
  sides.checks = &checks;
  sides.make_reference = []() -> std::unique_ptr<Implementation> {
    return Parts::reference("reference");
  };
  sides.make_optimized = []() -> std::unique_ptr<Implementation> {
    return Parts::optimized("optimized");
  };
  sides.make_planted = [](std::string_view bug_name) -> std::unique_ptr<Implementation> {
    const auto bug = Parts::planted_bug_from_name(bug_name);
    if (!bug) return nullptr;
    return Parts::planted("optimized with " + std::string(bug_name), *bug);
  };
  for (const auto& info : Parts::kPlantedBugs) {
    sides.planted_bugs.push_back({info.name, info.doc, info.thread});
  }
  return sides;
}

}  // namespace kvfence
