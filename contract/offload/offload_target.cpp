#include "contract/offload/offload_target.h"

#include <utility>

#include "contract/core/describe.h"

namespace kvfence {

Value to_value(LookupResult member) { return Value::Variant(std::string(to_text(member))); }

bool from_value(const Value& value, LookupResult& member, std::string& expected) {
  expected = "miss, pending or hit";
  const auto* text = value.get_if<std::string>();
  const auto parsed = text ? lookup_result_from_text(*text) : std::nullopt;
  if (parsed) member = *parsed;
  return parsed.has_value();
}

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
  result.rules = rules_of(*profile_from_text(config.profile));
  if (auto expected = check_config(result)) {
    return InputError{std::string(file), position, "this configuration", std::move(*expected)};
  }
  return result;
}

Parsed<OffloadTarget::Setup> OffloadTarget::prepare(const Config& config, std::string_view file,
                                                    Position position) {
  return make_offloading_manager_config(config, file, position);
}

OffloadTarget::World OffloadTarget::make_world(const Config&, const Setup&) { return {}; }

const Target& OffloadTarget::description() {
  static const Target kDescription = describe<OffloadTarget>();
  return kDescription;
}

}  // namespace kvfence
