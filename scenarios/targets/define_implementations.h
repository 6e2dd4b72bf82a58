#pragma once

/// Defines Implementations for one target, whose file specialises Parts and instantiates
/// Implementations (scenarios/targets/implementations.h).

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/implementation.h"
#include "scenarios/targets/implementations.h"

namespace kvfence {

/// A specialisation has
///   reference(name), optimized(name), planted(name, bug)
///       -> std::unique_ptr of an implementation of that name
///   kPlantedBugs, planted_bug_from_name
///       as optimized/ has them
template <class Target>
struct Parts;

template <class Target>
std::unique_ptr<Implementation<Target>> Implementations<Target>::make_reference() {
  return Parts<Target>::reference("reference");
}

template <class Target>
std::unique_ptr<Implementation<Target>> Implementations<Target>::make_optimized() {
  return Parts<Target>::optimized("optimized");
}

template <class Target>
std::unique_ptr<Implementation<Target>> Implementations<Target>::make_planted(
    std::string_view bug_name) {
  const auto bug = Parts<Target>::planted_bug_from_name(bug_name);
  if (!bug) return nullptr;
  return Parts<Target>::planted("optimized with " + std::string(bug_name), *bug);
}

template <class Target>
std::vector<PlantedBugInfo> Implementations<Target>::planted_bugs() {
  std::vector<PlantedBugInfo> infos;
  for (const auto& info : Parts<Target>::kPlantedBugs) {
    infos.push_back({info.name, info.doc, info.thread});
  }
  return infos;
}

}  // namespace kvfence
