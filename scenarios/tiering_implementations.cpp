#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "contract/tiering_target.h"
#include "optimized/planted_tiering_bugs.h"
#include "optimized/tiering_manager.h"
#include "properties/tiering_driver.h"
#include "reference/tiering_manager.h"
#include "scenarios/define_implementations.h"

namespace kvfence {
namespace {

template <class Manager, class... Bug>
auto make_driver(std::string name, Bug... bug) {
  auto make_manager = [bug...](const OffloadingManagerConfig& primary,
                               std::vector<SecondaryTierHandle> tiers) {
    return Manager(primary, std::move(tiers), bug...);
  };
  return std::make_unique<TieringDriver<Manager, decltype(make_manager)>>(std::move(name),
                                                                          make_manager);
}

}  // namespace

template <>
struct Parts<TieringTarget> {
  static auto reference(std::string name) {
    return make_driver<reference::TieringOffloadingManager>(std::move(name));
  }
  static auto optimized(std::string name) {
    return make_driver<optimized::TieringOffloadingManager>(std::move(name));
  }
  static auto planted(std::string name, optimized::PlantedTieringBug bug) {
    return make_driver<optimized::PlantedTieringOffloadingManager>(std::move(name), bug);
  }

  static constexpr auto& kPlantedBugs = optimized::kPlantedTieringBugs;
  static constexpr auto& planted_bug_from_name = optimized::planted_tiering_bug_from_name;
};

template struct Implementations<TieringTarget>;

}  // namespace kvfence
