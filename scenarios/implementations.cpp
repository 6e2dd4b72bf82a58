#include "scenarios/implementations.h"

#include <string>
#include <utility>

#include "optimized/block_pool.h"
#include "optimized/kv_cache_manager.h"
#include "optimized/planted_bugs.h"
#include "properties/block_pool_driver.h"
#include "properties/kv_cache_driver.h"
#include "reference/block_pool.h"
#include "reference/kv_cache_manager.h"

namespace kvfence {
namespace {

template <class Pool, class MakePool>
std::unique_ptr<Implementation<BlockPoolTarget>> make_driver(std::string name, MakePool make_pool) {
  return std::make_unique<BlockPoolDriver<Pool, MakePool>>(std::move(name), std::move(make_pool));
}

template <class Manager, class MakeManager>
std::unique_ptr<Implementation<KVCacheTarget>> make_kv_cache_driver(std::string name,
                                                                    MakeManager make_manager) {
  return std::make_unique<KVCacheDriver<Manager, MakeManager>>(std::move(name),
                                                               std::move(make_manager));
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

std::unique_ptr<Implementation<KVCacheTarget>> Implementations<KVCacheTarget>::make_reference() {
  return make_kv_cache_driver<reference::KVCacheManager>(
      "reference",
      [](const KVCacheManagerConfig& config) { return reference::KVCacheManager(config); });
}

std::unique_ptr<Implementation<KVCacheTarget>> Implementations<KVCacheTarget>::make_optimized() {
  return make_kv_cache_driver<optimized::KVCacheManager>(
      "optimized",
      [](const KVCacheManagerConfig& config) { return optimized::KVCacheManager(config); });
}

std::unique_ptr<Implementation<KVCacheTarget>> Implementations<KVCacheTarget>::make_planted(
    std::string_view bug_name) {
  const auto bug = optimized::planted_kv_cache_bug_from_name(bug_name);
  if (!bug) return nullptr;
  return make_kv_cache_driver<optimized::PlantedKVCacheManager>(
      "optimized with " + std::string(bug_name), [bug](const KVCacheManagerConfig& config) {
        return optimized::PlantedKVCacheManager(config, *bug);
      });
}

std::vector<PlantedBugInfo> Implementations<KVCacheTarget>::planted_bugs() {
  std::vector<PlantedBugInfo> infos;
  for (const optimized::PlantedKVCacheBugInfo& info : optimized::kPlantedKVCacheBugs) {
    infos.push_back({info.name, info.doc, info.thread});
  }
  return infos;
}

}  // namespace kvfence
