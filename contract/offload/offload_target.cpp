#include "contract/offload/offload_target.h"

#include <utility>

#include "contract/core/describe.h"

namespace kvfence {

Parsed<OffloadingManagerConfig> make_offloading_manager_config(const offload::Config& config,
                                                               std::string_view file,
                                                               Position position) {
  const Parsed<CachePolicyConfig> cache = make_cache_policy_config(config, file, position);
  if (!cache) return cache.error();
  OffloadingManagerConfig result;
  result.cache = *cache;
  result.enable_events = config.enable_events;
  result.store_threshold = config.store_threshold;
  result.max_tracker_size = config.max_tracker_size;
  result.rules = rules_of(config.profile);
  if (auto expected = check_config(result)) {
    return InputError{std::string(file), position, "this configuration", std::move(*expected)};
  }
  return result;
}

const Target& OffloadTarget::description() { return described<OffloadTarget>(); }

}  // namespace kvfence
