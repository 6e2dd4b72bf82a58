#include <string>
#include <utility>
#include <vector>

#include "cuda/worker/worker_on_virtual_device.h"
#include "planted/cuda/worker/worker_on_virtual_device.h"
#include "properties/targets/checks.h"
#include "properties/worker/driver.h"
#include "scenarios/check/references.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

struct WorkerParts {
  static constexpr auto reference = make_worker_reference;
  static auto optimized(std::string name) {
    return make_worker_driver<cuda::WorkersOnVirtualDevices>(std::move(name));
  }
  static auto planted(std::string name) {
    return make_worker_driver<planted::cuda::WorkersOnVirtualDevices>(std::move(name));
  }

  /// All but that of memory that cannot be pinned: then there is no worker.
  static std::vector<planted::Bug> planted_bugs() {
    std::vector<planted::Bug> bugs;
    for (const planted::Bug& bug : planted::bugs_of("worker")) {
      if (bug.name != "pin_failure_ignored") bugs.push_back(bug);
    }
    return bugs;
  }
};

}  // namespace

const TargetSides& worker_sides() {
  static const TargetSides kSides = sides_of<WorkerParts>(worker_checks());
  return kSides;
}

}  // namespace kvfence
