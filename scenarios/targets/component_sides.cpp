/// The sides of the targets that are one component each.

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/worker/worker_on_virtual_device.h"
#include "optimized/eviction/cache_policy.h"
#include "optimized/kv_cache/kv_cache_manager.h"
#include "optimized/offload/offloading_manager.h"
#include "optimized/pool/block_pool.h"
#include "optimized/tiering/tier_files.h"
#include "optimized/tiering/tiering_manager.h"
#include "planted/cuda/worker/worker_on_virtual_device.h"
#include "planted/optimized/eviction/cache_policy.h"
#include "planted/optimized/kv_cache/kv_cache_manager.h"
#include "planted/optimized/offload/offloading_manager.h"
#include "planted/optimized/pool/block_pool.h"
#include "planted/optimized/tiering/tier_files.h"
#include "planted/optimized/tiering/tiering_manager.h"
#include "properties/eviction/driver.h"
#include "properties/kv_cache/driver.h"
#include "properties/offload/driver.h"
#include "properties/pool/driver.h"
#include "properties/targets/checks.h"
#include "properties/tiering/driver.h"
#include "properties/worker/driver.h"
#include "scenarios/check/references.h"
#include "scenarios/targets/planted_side.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

/// An implementation of that name.
using Make = std::unique_ptr<Implementation> (*)(std::string name);

/// The bugs of these files of properties/planted/ that a target can show: none about memory that
/// cannot be pinned, since then there is no worker.
std::vector<planted::Bug> bugs_of(std::initializer_list<std::string_view> rooms) {
  std::vector<planted::Bug> bugs;
  for (const std::string_view room : rooms) {
    for (const planted::Bug& bug : planted::bugs_of(room)) {
      if (bug.name != "pin_failure_ignored") bugs.push_back(bug);
    }
  }
  return bugs;
}

/// make_planted: of the instrumented copy, which has these bugs.
TargetSides sides_of(const Checks& checks, std::unique_ptr<Implementation> (*make_reference)(),
                     Make make_optimized, Make make_planted, std::vector<planted::Bug> bugs) {
  TargetSides sides{};
  sides.checks = &checks;
  sides.make_reference = make_reference;
  sides.make_optimized = [make_optimized] { return make_optimized("optimized"); };
  for (const planted::Bug& bug : bugs) {
    sides.planted_bugs.push_back({bug.name, bug.doc, bug.thread});
  }
  sides.make_planted = [make_planted, bugs = std::move(bugs)](
                           std::string_view bug_name) -> std::unique_ptr<Implementation> {
    const auto bug = std::find_if(bugs.begin(), bugs.end(), [bug_name](const planted::Bug& one) {
      return one.name == bug_name;
    });
    if (bug == bugs.end() && !bug_name.empty()) return nullptr;
    return std::make_unique<PlantedSide>(bug != bugs.end() ? bug->number : planted::kSound, [&] {
      return make_planted("optimized with " + std::string(bug_name));
    });
  };
  return sides;
}

}  // namespace

const TargetSides& block_pool_sides() {
  static const TargetSides kSides =
      sides_of(block_pool_checks(), make_block_pool_reference,
               make_driver<BlockPoolDriver, optimized::BlockPool>,
               make_driver<BlockPoolDriver, planted::optimized::BlockPool>, bugs_of({"pool"}));
  return kSides;
}

const TargetSides& kv_cache_sides() {
  static const TargetSides kSides = sides_of(
      kv_cache_checks(), make_kv_cache_reference,
      make_driver<KVCacheDriver, optimized::KVCacheManager>,
      make_driver<KVCacheDriver, planted::optimized::KVCacheManager>, bugs_of({"kv_cache"}));
  return kSides;
}

const TargetSides& eviction_sides() {
  static const TargetSides kSides =
      sides_of(eviction_checks(), make_eviction_reference,
               make_driver<EvictionDriver, optimized::CachePolicy>,
               make_driver<EvictionDriver, planted::optimized::CachePolicy>, bugs_of({"eviction"}));
  return kSides;
}

const TargetSides& offload_sides() {
  static const TargetSides kSides = sides_of(
      offload_checks(), make_offload_reference,
      make_driver<OffloadDriver, optimized::OffloadingManager>,
      make_driver<OffloadDriver, planted::optimized::OffloadingManager>, bugs_of({"offload"}));
  return kSides;
}

const TargetSides& tiering_sides() {
  using Manager = optimized::TieringOffloadingManager;
  using PlantedManager = planted::optimized::TieringOffloadingManager;
  const auto make_optimized = [](std::string name) {
    return make_tiering_driver<Manager>(std::move(name), optimized::make_tier_files);
  };
  const auto make_planted = [](std::string name) {
    return make_tiering_driver<PlantedManager>(std::move(name),
                                               planted::optimized::make_tier_files);
  };
  static const TargetSides kSides =
      sides_of(tiering_checks(), make_tiering_reference, make_optimized, make_planted,
               bugs_of({"tiering", "files"}));
  return kSides;
}

const TargetSides& worker_sides() {
  static const TargetSides kSides = sides_of(
      worker_checks(), make_worker_reference, make_worker_driver<cuda::WorkersOnVirtualDevices>,
      make_worker_driver<planted::cuda::WorkersOnVirtualDevices>, bugs_of({"worker"}));
  return kSides;
}

}  // namespace kvfence
