#pragma once

/// The sides of one target from its parts.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/implementation.h"
#include "scenarios/targets/planted_side.h"
#include "scenarios/targets/targets.h"

namespace kvfence {

/// Parts has
///   reference(name), optimized(name)
///       -> std::unique_ptr of an implementation of that name
///   planted(name), kPlantedRoom
///       the same of the instrumented copy, and the room of properties/planted/ with its bugs;
///       or, of a component whose source has its planted bugs within,
///   planted(name, bug), kPlantedBugs, planted_bug_from_name
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
    const std::string name = "optimized with " + std::string(bug_name);
    if constexpr (requires { Parts::kPlantedRoom; }) {
      const planted::Bug* const bug = find_planted_bug(Parts::kPlantedRoom, bug_name);
      if (!bug && !bug_name.empty()) return nullptr;
      return std::make_unique<PlantedSide>(bug ? bug->number : planted::kSound,
                                           [&name] { return Parts::planted(name); });
    } else {
      const auto bug = Parts::planted_bug_from_name(bug_name);
      if (!bug) return nullptr;
      return Parts::planted(name, *bug);
    }
  };
  if constexpr (requires { Parts::kPlantedRoom; }) {
    sides.planted_bugs = planted_bug_infos_of(Parts::kPlantedRoom);
  } else {
    for (const auto& info : Parts::kPlantedBugs) {
      sides.planted_bugs.push_back({info.name, info.doc, info.thread});
    }
  }
  return sides;
}

}  // namespace kvfence
