#include "contract/tiering/secondary_tier_factory.h"

#include <utility>

#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/core/joined.h"

namespace kvfence {

Parsed<std::vector<SecondaryTierConfig>> secondary_tiers_from(const Field& field,
                                                              const std::string& file) {
  const auto error = [&](const Value& found, Position position, std::string expected) {
    return InputError{file, position, field.key + " with " + print(found), std::move(expected)};
  };
  const auto* list = field.value.get_if<Value::List>();
  if (!list) return error(field.value, field.position, "a list of tiers, (type key=value ...)");
  std::vector<SecondaryTierConfig> configs;
  for (const Value& entry : *list) {
    const auto* record = entry.get_if<Record>();
    if (!record) return error(entry, field.position, "tiers, (type key=value ...)");
    for (const Field& setting : record->fields) {
      if (find_field(record->fields, setting.key) == &setting) continue;
      return error(entry, setting.position, "each key once");
    }
    configs.push_back({record->verb, record->fields});
  }
  return configs;
}

Value to_value(const SecondaryTierConfig& config) {
  return Value::Variant(Record{config.type, config.settings});
}

// Source: vLLM v0.23.0 v1/kv_offload/tiering/factory.py register_tier
std::optional<InputError> SecondaryTierFactory::register_tier(const std::string& type,
                                                              SecondaryTierBuilder builder) {
  if (!builders_.try_emplace(type, std::move(builder)).second) {
    return errors_at({}, {})("tier " + type + " registered twice", "each type once");
  }
  return std::nullopt;
}

// Source: vLLM v0.23.0 v1/kv_offload/tiering/factory.py create_secondary_tier
Parsed<SecondaryTierHandle> SecondaryTierFactory::create_secondary_tier(
    const SecondaryTierConfig& config, const PrimaryKvView& primary, const OffloadingSpec& spec,
    const std::string& file) const {
  const auto found = builders_.find(config.type);
  if (found != builders_.end()) return found->second(config, primary, spec, file);
  const auto type_of = [](const auto& entry) { return entry.first; };
  return errors_at(file, {})("a tier of type " + config.type,
                             "one of " + joined(builders_, ", ", type_of));
}

// Source: vLLM v0.23.0 v1/kv_offload/tiering/spec.py get_manager
Parsed<std::vector<SecondaryTierHandle>> SecondaryTierFactory::create_secondary_tiers(
    const PrimaryKvView& primary, const OffloadingSpec& spec, const std::string& file) const {
  std::vector<SecondaryTierHandle> tiers;
  for (const SecondaryTierConfig& config : spec.secondary_tiers) {
    Parsed<SecondaryTierHandle> tier = create_secondary_tier(config, primary, spec, file);
    if (!tier) return tier.error();
    tiers.push_back(std::move(*tier));
  }
  return tiers;
}

}  // namespace kvfence
