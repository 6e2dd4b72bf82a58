#include "contract/offload/offloading_manager.h"

namespace kvfence {

std::optional<std::string> check_config(const OffloadingManagerConfig& config) {
  if (config.cache.capacity == 0) return "a capacity of at least 1 slot";
  if (config.store_threshold >= 2 && config.max_tracker_size == 0) {
    return "a max_tracker_size of at least 1 with a store_threshold";
  }
  return std::nullopt;
}

}  // namespace kvfence
