#include "scenarios/targets/targets.h"

#include <algorithm>
#include <deque>
#include <iterator>

#include "contract/engine/engine_config.h"
#include "properties/engine/checks.h"

namespace kvfence {

const std::vector<const TargetSides*>& all_targets() {
  static const std::vector<const TargetSides*> kTargets = {
      &block_pool_sides(), &kv_cache_sides(), &eviction_sides(), &offload_sides(),
      &tiering_sides(),    &worker_sides(),   &engine_sides(),
  };
  return kTargets;
}

const std::vector<CheckedPart>& all_parts() {
  static std::deque<std::string> names;  // what parts point to
  static const std::vector<CheckedPart> kParts = [] {
    std::vector<CheckedPart> parts;
    for (const TargetSides* sides : all_targets()) {
      if (sides != &engine_sides()) {
        parts.push_back({sides->target().name, sides, sides->checks, sides->planted_bugs});
        continue;
      }
      for (const engine::AssemblyInfo& info : engine::kAssemblies) {
        const std::string& name = names.emplace_back("engine." + std::string(info.name));
        CheckedPart& part = parts.emplace_back();
        part = {name, sides, &checks_of(info.assembly), {}};
        std::copy_if(sides->planted_bugs.begin(), sides->planted_bugs.end(),
                     std::back_inserter(part.planted_bugs),
                     [&](const PlantedBugInfo& bug) { return bug.assembly == info.name; });
      }
    }
    return parts;
  }();
  return kParts;
}

const CheckedPart* find_part(std::string_view name) {
  for (const CheckedPart& part : all_parts()) {
    if (part.name == name) return &part;
  }
  return nullptr;
}

}  // namespace kvfence
