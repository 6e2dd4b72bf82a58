#include "contract/tiering_target.h"

#include <string>
#include <utility>

namespace kvfence {

Parsed<OffloadingManagerConfig> make_tiering_config(const tiering::Config& config,
                                                    std::string_view file, Position position) {
  const auto error = [&](std::string found, std::string expected) {
    return InputError{std::string(file), position, std::move(found), std::move(expected)};
  };
  const Parsed<CachePolicyConfig> cache = make_cache_policy_config(config, file, position);
  if (!cache) return cache.error();
  OffloadingManagerConfig result;
  result.cache = *cache;
  result.enable_events = config.enable_events;
  result.rules = rules_of(*profile_from_text(config.profile));
  if (!result.rules.tiering) {
    return error("profile=" + config.profile, "a profile with the rule tiering: v0.23");
  }
  if (config.num_tiers > tiering::kNumTiersMax) {
    return error("num_tiers=" + std::to_string(config.num_tiers),
                 "at most " + std::to_string(tiering::kNumTiersMax));
  }
  if (auto expected = check_tiering_config(result)) {
    return error("this configuration", std::move(*expected));
  }
  return result;
}

std::optional<InputError> TieringTarget::validate(const Config& config, std::string_view file,
                                                  Position position) {
  const Parsed<OffloadingManagerConfig> parsed = make_tiering_config(config, file, position);
  if (parsed) return std::nullopt;
  return parsed.error();
}

}  // namespace kvfence
