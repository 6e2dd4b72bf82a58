#pragma once

/// Access to declared members of observations and configurations by name: a report on a target
/// needs only the types of the members that it shows, not the target's structs.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/declare.h"
#include "contract/core/line.h"
#include "contract/core/observation.h"
#include "contract/core/target.h"

namespace kvfence {

/// Its value where it is present; else null. Requires: a member of that name is a T, or a T that
/// may be absent.
template <class T>
const T* find_observed(const Observation& observation, std::string_view name) {
  const auto member = find_member(observation.declared(), name);
  if (!member || !member->is_present()) return nullptr;
  if (const T* value = get_if<T>(*member)) return value;
  const auto* const value = get_if<Reusable<T>>(*member);
  KVFENCE_CHECK(value, "member '" + std::string(name) + "' of another type");
  return &**value;
}

/// Requires: besides, it is present.
template <class T>
const T& observed(const Observation& observation, std::string_view name) {
  const T* const value = find_observed<T>(observation, name);
  KVFENCE_CHECK(value, "no member '" + std::string(name) + "'");
  return *value;
}

/// The list of that name, as it is printed; empty where it is absent.
Value::List observed_values(const Observation& observation, std::string_view name);

/// Whether observations of the target can have a member of that name.
bool shows(const Target& target, std::string_view name);

/// The answer: the error and the results that are present and not none.
std::vector<Field> answers_of(const Observation& observation);

/// "advanced=true": the answer as text, of the fields that is_shown keeps.
std::string answer_of(
    const Observation& observation,
    const std::function<bool(std::string_view name, std::string_view text)>& is_shown);

/// Requires: a setting of that name and type.
template <class T>
const T& setting_of(const Config& config, std::string_view name) {
  const auto member = find_member(config.declared(), name);
  const T* const value = member ? get_if<T>(*member) : nullptr;
  KVFENCE_CHECK(value, "no setting '" + std::string(name) + "' of this type");
  return *value;
}

}  // namespace kvfence
