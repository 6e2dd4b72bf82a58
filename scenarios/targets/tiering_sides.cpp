#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "contract/tiering/tiering_target.h"
#include "optimized/files/planted_file_tier_bugs.h"
#include "optimized/tiering/planted_tiering_bugs.h"
#include "optimized/tiering/tier_files.h"
#include "optimized/tiering/tiering_manager.h"
#include "properties/tiering/checks.h"
#include "properties/tiering/driver.h"
#include "reference/tiering/tier_files.h"
#include "reference/tiering/tiering_manager.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

/// A mistake of the manager, or of the file tiers below it.
using TieringBug = std::variant<optimized::PlantedTieringBug, optimized::PlantedFileTierBug>;

std::optional<TieringBug> planted_bug_from_name(std::string_view name) {
  if (const auto bug = optimized::planted_tiering_bug_from_name(name)) return *bug;
  for (const optimized::PlantedFileTierBugInfo& info : optimized::kPlantedFileTierBugs) {
    if (info.name == name && optimized::shows_in_tier_files(info.bug)) return info.bug;
  }
  return std::nullopt;
}

std::vector<PlantedBugInfo> planted_bug_infos() {
  std::vector<PlantedBugInfo> infos;
  for (const optimized::PlantedTieringBugInfo& info : optimized::kPlantedTieringBugs) {
    infos.push_back({info.name, info.doc, info.thread});
  }
  for (const optimized::PlantedFileTierBugInfo& info : optimized::kPlantedFileTierBugs) {
    if (optimized::shows_in_tier_files(info.bug)) {
      infos.push_back({info.name, info.doc, info.thread});
    }
  }
  return infos;
}

template <class Manager, class... Bug>
auto make_driver(std::string name, MakeTierFiles make_files, Bug... bug) {
  auto make_manager = [bug...](const OffloadingManagerConfig& primary,
                               std::vector<SecondaryTierHandle> tiers) {
    return Manager(primary, std::move(tiers), bug...);
  };
  return std::make_unique<TieringDriver<Manager, decltype(make_manager)>>(
      std::move(name), make_manager, std::move(make_files));
}

struct Parts {
  static auto reference(std::string name) {
    return make_driver<reference::TieringOffloadingManager>(std::move(name),
                                                            reference::make_tier_files);
  }
  static auto optimized(std::string name) {
    return make_driver<optimized::TieringOffloadingManager>(std::move(name),
                                                            optimized::make_tier_files);
  }
  static std::unique_ptr<Implementation> planted(std::string name, const TieringBug& bug) {
    if (const auto* of_files = std::get_if<optimized::PlantedFileTierBug>(&bug)) {
      return make_driver<optimized::TieringOffloadingManager>(
          std::move(name), [planted = *of_files](PrimaryKvView primary) {
            return optimized::make_planted_tier_files(primary, planted);
          });
    }
    return make_driver<optimized::PlantedTieringOffloadingManager>(
        std::move(name), optimized::make_tier_files, std::get<optimized::PlantedTieringBug>(bug));
  }

  static inline const std::vector<PlantedBugInfo> kPlantedBugs = planted_bug_infos();
  static constexpr auto& planted_bug_from_name = kvfence::planted_bug_from_name;
};

}  // namespace

const TargetSides& tiering_sides() {
  static const TargetSides kSides = sides_of<Parts>(tiering_checks());
  return kSides;
}

}  // namespace kvfence
