#include "contract/offload/offloading_manager.h"

namespace kvfence {

std::optional<std::string> check_config(const OffloadingManagerConfig& config) {
  if (config.cache.capacity == 0) return "a capacity of at least 1 slot";
  if (config.store_threshold >= 2 && config.max_tracker_size == 0) {
    return "a max_tracker_size of at least 1 with a store_threshold";
  }
  return std::nullopt;
}

std::string_view to_text(LookupResult result) {
  switch (result) {
    case LookupResult::kMiss:
      return "miss";
    case LookupResult::kPending:
      return "pending";
    case LookupResult::kHit:
      return "hit";
  }
  return "";
}

std::optional<LookupResult> lookup_result_from_text(std::string_view text) {
  for (LookupResult result : {LookupResult::kMiss, LookupResult::kPending, LookupResult::kHit}) {
    if (to_text(result) == text) return result;
  }
  return std::nullopt;
}

}  // namespace kvfence
