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
#include "reference/eviction/cache_policy.h"
#include "reference/kv_cache/kv_cache_manager.h"
#include "reference/offload/offloading_manager.h"
#include "reference/pool/block_pool.h"
#include "reference/tiering/file_tier.h"
#include "reference/tiering/tiering_manager.h"
#include "reference/worker/copy_workers.h"
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
TargetSides sides_of(const Checks& checks, Make make_reference, Make make_optimized,
                     Make make_planted, std::vector<planted::Bug> bugs) {
  TargetSides sides{};
  sides.checks = &checks;
  sides.make_reference = [make_reference] { return make_reference("reference"); };
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

template <class Manager, auto make_tier_files>
std::unique_ptr<Implementation> make_tiering(std::string name) {
  return make_tiering_driver<Manager>(std::move(name), make_tier_files);
}

/// Of a component whose driver takes nothing but the component.
template <template <class> class Driver, class Reference, class Optimized, class Planted>
TargetSides sides_of(const Checks& checks, std::string_view room) {
  return sides_of(checks, make_driver<Driver, Reference>, make_driver<Driver, Optimized>,
                  make_driver<Driver, Planted>, bugs_of({room}));
}

}  // namespace

const TargetSides& block_pool_sides() {
  static const TargetSides kSides =
      sides_of<BlockPoolDriver, reference::BlockPool, optimized::BlockPool,
               planted::optimized::BlockPool>(block_pool_checks(), "pool");
  return kSides;
}

const TargetSides& kv_cache_sides() {
  static const TargetSides kSides =
      sides_of<KVCacheDriver, reference::KVCacheManager, optimized::KVCacheManager,
               planted::optimized::KVCacheManager>(kv_cache_checks(), "kv_cache");
  return kSides;
}

const TargetSides& eviction_sides() {
  static const TargetSides kSides =
      sides_of<EvictionDriver, reference::CachePolicy, optimized::CachePolicy,
               planted::optimized::CachePolicy>(eviction_checks(), "eviction");
  return kSides;
}

const TargetSides& offload_sides() {
  static const TargetSides kSides =
      sides_of<OffloadDriver, reference::OffloadingManager, optimized::OffloadingManager,
               planted::optimized::OffloadingManager>(offload_checks(), "offload");
  return kSides;
}

const TargetSides& tiering_sides() {
  static const TargetSides kSides =
      sides_of(tiering_checks(),
               make_tiering<reference::TieringOffloadingManager, reference::make_tier_files>,
               make_tiering<optimized::TieringOffloadingManager, optimized::make_tier_files>,
               make_tiering<planted::optimized::TieringOffloadingManager,
                            planted::optimized::make_tier_files>,
               bugs_of({"tiering", "files"}));
  return kSides;
}

const TargetSides& worker_sides() {
  static const TargetSides kSides =
      sides_of(worker_checks(), make_worker_driver<reference::CopyWorkers>,
               make_worker_driver<cuda::WorkersOnVirtualDevices>,
               make_worker_driver<planted::cuda::WorkersOnVirtualDevices>, bugs_of({"worker"}));
  return kSides;
}

}  // namespace kvfence
