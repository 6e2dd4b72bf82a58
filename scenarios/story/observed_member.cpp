#include "scenarios/story/observed_member.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace kvfence {

std::optional<MemberRef> find_member(const DeclaredObject& object, std::string_view name) {
  for (std::size_t index = 0; index < object.size(); ++index) {
    const MemberRef member = object[index];
    if (member.declaration().name == name) return member;
  }
  return std::nullopt;
}

std::optional<MemberRef> find_member(const Observation& observation, std::string_view name) {
  for (const DeclaredObject& part : parts_of(observation)) {
    const auto member = find_member(part, name);
    if (member && member->is_present()) return member;
  }
  return std::nullopt;
}

Value::List observed_values(const Observation& observation, std::string_view name) {
  const auto member = find_member(observation, name);
  const Value value = member ? member->value() : Value();
  const auto* const list = value.get_if<Value::List>();
  return list ? *list : Value::List();
}

bool shows(const Target& target, std::string_view name) {
  const std::vector<std::string_view> names = observation_names(target);
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<Field> answers_of(const Observation& observation) {
  std::vector<Field> answers;
  for (const DeclaredObject& part : parts_of(observation)) {
    for (std::size_t index = 0; index < part.size(); ++index) {
      const MemberRef member = part[index];
      if (member.domain() != Domain::kResult || !member.is_present()) continue;
      Value value = member.value();
      if (value.get_if<None>()) continue;
      answers.push_back({member.declaration().name, std::move(value), {}});
    }
  }
  return answers;
}

}  // namespace kvfence
