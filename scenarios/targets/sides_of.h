#pragma once

/// The sides of one target from its parts.

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/implementation.h"
#include "scenarios/targets/planted_side.h"
#include "scenarios/targets/targets.h"

namespace kvfence {

/// Parts has
///   reference() -> std::unique_ptr<Implementation>
///   optimized(name)
///       the same of an implementation of that name
///   planted(name), kPlantedRoom
///       the same of the instrumented copy, and the room of properties/planted/ with its bugs
///       (in its place planted_bugs(), if it has not just those of one room)
template <class Parts>
std::vector<planted::Bug> planted_bugs_of() {
  if constexpr (requires { Parts::planted_bugs(); }) {
    return Parts::planted_bugs();
  } else {
    const std::span<const planted::Bug> bugs = planted::bugs_of(Parts::kPlantedRoom);
    return {bugs.begin(), bugs.end()};
  }
}

template <class Parts>
TargetSides sides_of(const Checks& checks) {
  TargetSides sides{};
  sides.checks = &checks;
  sides.make_reference = Parts::reference;
  sides.make_optimized = []() -> std::unique_ptr<Implementation> {
    return Parts::optimized("optimized");
  };
  sides.make_planted = [](std::string_view bug_name) -> std::unique_ptr<Implementation> {
    const std::string name = "optimized with " + std::string(bug_name);
    const auto bugs = planted_bugs_of<Parts>();
    const auto bug = std::find_if(bugs.begin(), bugs.end(), [bug_name](const planted::Bug& one) {
      return one.name == bug_name;
    });
    if (bug == bugs.end() && !bug_name.empty()) return nullptr;
    return std::make_unique<PlantedSide>(bug != bugs.end() ? bug->number : planted::kSound,
                                         [&name] { return Parts::planted(name); });
  };
  for (const planted::Bug& bug : planted_bugs_of<Parts>()) {
    sides.planted_bugs.push_back({bug.name, bug.doc, bug.thread});
  }
  return sides;
}

}  // namespace kvfence
