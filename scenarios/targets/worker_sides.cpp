#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "contract/worker/worker_target.h"
#include "cuda/worker/planted_worker_bugs.h"
#include "cuda/worker/worker_on_virtual_device.h"
#include "properties/worker/checks.h"
#include "properties/worker/driver.h"
#include "reference/worker/copy_workers.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

template <class Worker, class... Bug>
auto make_driver(std::string name, Bug... bug) {
  auto make_worker = [bug...](const worker::Options& options) {
    return std::make_unique<Worker>(options, bug...);
  };
  return std::make_unique<WorkerDriver<Worker, decltype(make_worker)>>(std::move(name),
                                                                       make_worker);
}

/// All but those of memory that cannot be pinned: then there is no worker.
constexpr auto exposed_bugs() {
  std::array<cuda::PlantedWorkerBugInfo, cuda::kPlantedWorkerBugs.size() - 1> exposed{};
  std::size_t count = 0;
  for (const cuda::PlantedWorkerBugInfo& info : cuda::kPlantedWorkerBugs) {
    if (info.bug != cuda::PlantedWorkerBug::kPinFailureIgnored) exposed[count++] = info;
  }
  return exposed;
}

constexpr auto kExposedWorkerBugs = exposed_bugs();

std::optional<cuda::PlantedWorkerBug> exposed_bug_from_name(std::string_view name) {
  for (const cuda::PlantedWorkerBugInfo& info : kExposedWorkerBugs) {
    if (info.name == name) return info.bug;
  }
  return std::nullopt;
}

struct Parts {
  static auto reference(std::string name) {
    return make_driver<reference::CopyWorkers>(std::move(name));
  }
  static auto optimized(std::string name) {
    return make_driver<cuda::WorkersOnVirtualDevices>(std::move(name));
  }
  static auto planted(std::string name, cuda::PlantedWorkerBug bug) {
    return make_driver<cuda::PlantedWorkersOnVirtualDevices>(
        std::move(name), cuda::PlantedWorkerInstrumentation{bug});
  }

  static constexpr auto& kPlantedBugs = kExposedWorkerBugs;
  static constexpr auto& planted_bug_from_name = exposed_bug_from_name;
};

}  // namespace

const TargetSides& worker_sides() {
  static const TargetSides kSides = sides_of<Parts>(worker_checks());
  return kSides;
}

}  // namespace kvfence
