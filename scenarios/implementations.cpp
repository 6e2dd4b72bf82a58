#include "scenarios/implementations.h"

#include <string>
#include <utility>

#include "optimized/block_pool.h"
#include "optimized/planted_bugs.h"
#include "properties/block_pool_driver.h"
#include "reference/block_pool.h"

namespace kvfence {
namespace {

template <class Pool, class MakePool>
std::unique_ptr<Implementation<BlockPoolTarget>> make_driver(std::string name, MakePool make_pool) {
  return std::make_unique<BlockPoolDriver<Pool, MakePool>>(std::move(name), std::move(make_pool));
}

}  // namespace

std::unique_ptr<Implementation<BlockPoolTarget>>
Implementations<BlockPoolTarget>::make_reference() {
  return make_driver<reference::BlockPool>(
      "reference", [](const BlockPoolConfig& config) { return reference::BlockPool(config); });
}

std::unique_ptr<Implementation<BlockPoolTarget>>
Implementations<BlockPoolTarget>::make_optimized() {
  return make_driver<optimized::BlockPool>(
      "optimized", [](const BlockPoolConfig& config) { return optimized::BlockPool(config); });
}

std::unique_ptr<Implementation<BlockPoolTarget>> Implementations<BlockPoolTarget>::make_planted(
    std::string_view bug_name) {
  for (const optimized::PlantedBugInfo& info : optimized::kPlantedBugs) {
    if (info.name != bug_name) continue;
    return make_driver<optimized::PlantedBlockPool>(
        "optimized with " + std::string(bug_name), [bug = info.bug](const BlockPoolConfig& config) {
          return optimized::PlantedBlockPool(config, bug);
        });
  }
  return nullptr;
}

std::vector<PlantedBugInfo> Implementations<BlockPoolTarget>::planted_bugs() {
  std::vector<PlantedBugInfo> infos;
  for (const optimized::PlantedBugInfo& info : optimized::kPlantedBugs) {
    infos.push_back({info.name, info.doc, info.thread});
  }
  return infos;
}

}  // namespace kvfence
