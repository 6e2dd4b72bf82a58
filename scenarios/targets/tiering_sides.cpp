#include <string>
#include <utility>
#include <vector>

#include "optimized/tiering/tier_files.h"
#include "optimized/tiering/tiering_manager.h"
#include "planted/optimized/tiering/tier_files.h"
#include "planted/optimized/tiering/tiering_manager.h"
#include "properties/targets/checks.h"
#include "properties/tiering/driver.h"
#include "scenarios/check/references.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

struct TieringParts {
  static constexpr auto reference = make_tiering_reference;
  static auto optimized(std::string name) {
    return make_tiering_driver<optimized::TieringOffloadingManager>(std::move(name),
                                                                    optimized::make_tier_files);
  }
  static auto planted(std::string name) {
    return make_tiering_driver<planted::optimized::TieringOffloadingManager>(
        std::move(name), planted::optimized::make_tier_files);
  }

  /// Of the file tiers those that show in one that is opened once, and then used as
  /// contract/tiering/tier_files.h can: not what is about files from before it was opened.
  static std::vector<planted::Bug> planted_bugs() {
    std::vector<planted::Bug> bugs;
    for (const planted::Bug& bug : planted::bugs_of("tiering")) bugs.push_back(bug);
    for (const planted::Bug& bug : planted::bugs_of("files")) {
      if (!bug.name.starts_with("leftovers_")) bugs.push_back(bug);
    }
    return bugs;
  }
};

}  // namespace

const TargetSides& tiering_sides() {
  static const TargetSides kSides = sides_of<TieringParts>(tiering_checks());
  return kSides;
}

}  // namespace kvfence
