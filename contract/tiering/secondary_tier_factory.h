#pragma once

/// Secondary tiers by type: an entry of a spec's `secondary_tiers`, `(type key=value ...)`, becomes
/// a tier below the primary one.
/// Source: vLLM v0.23.0 v1/kv_offload/tiering/factory.py SecondaryTierFactory; upstream's entry is
/// a dictionary with the type among the others.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "contract/core/line.h"
#include "contract/tiering/secondary_tier.h"

namespace kvfence {

struct OffloadingSpec;

/// The configuration of one tier.
struct SecondaryTierConfig {
  std::string type;
  std::vector<Field> settings;
  friend bool operator==(const SecondaryTierConfig&, const SecondaryTierConfig&) = default;
};

/// The tiers of a list of entries, in order.
/// Errors: no list; an entry that is no record; a setting given twice.
Parsed<std::vector<SecondaryTierConfig>> secondary_tiers_from(const Field& field,
                                                              const std::string& file = {});

/// An entry as a value.
Value to_value(const SecondaryTierConfig& config);

/// Builds a tier whose jobs reach the primary tier's slots.
/// Errors: each names the setting, at its position in `file`.
using SecondaryTierBuilder = std::function<Parsed<SecondaryTierHandle>(
    const SecondaryTierConfig& config, const PrimaryKvView& primary, const OffloadingSpec& spec,
    const std::string& file)>;

/// A value, without types at first.
class SecondaryTierFactory {
 public:
  /// Errors: the type is taken.
  std::optional<InputError> register_tier(const std::string& type, SecondaryTierBuilder builder);

  /// Errors: no such type (`expected` lists the ones there are); the tier's own.
  Parsed<SecondaryTierHandle> create_secondary_tier(const SecondaryTierConfig& config,
                                                    const PrimaryKvView& primary,
                                                    const OffloadingSpec& spec,
                                                    const std::string& file = {}) const;

  /// One after the other, as the spec lists them.
  /// Errors: those of the first that cannot be created.
  Parsed<std::vector<SecondaryTierHandle>> create_secondary_tiers(
      const PrimaryKvView& primary, const OffloadingSpec& spec, const std::string& file = {}) const;

 private:
  std::map<std::string, SecondaryTierBuilder> builders_;
};

}  // namespace kvfence
