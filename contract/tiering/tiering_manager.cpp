#include "contract/tiering/tiering_manager.h"

namespace kvfence {

std::optional<std::string> check_tiering_config(const OffloadingManagerConfig& primary) {
  if (!primary.rules.tiering) return "a profile with the rule tiering: v0.23";
  if (primary.store_threshold >= 2) return "no store_threshold above several tiers";
  return check_config(primary);
}

}  // namespace kvfence
