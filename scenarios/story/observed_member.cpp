#include "scenarios/story/observed_member.h"

#include <cstddef>
#include <utility>

#include "contract/core/lists.h"

namespace kvfence {

Value::List observed_values(const Observation& observation, std::string_view name) {
  const auto member = find_member(observation.declared(), name);
  const Value value = member ? member->value() : Value();
  const auto* const list = value.get_if<Value::List>();
  return list ? *list : Value::List();
}

bool shows(const Target& target, std::string_view name) {
  const std::vector<std::string_view> names = observation_names(target);
  return contains(names, name);
}

std::vector<Field> answers_of(const Observation& observation) {
  std::vector<Field> answers;
  const DeclaredObject shown = observation.declared();
  for (std::size_t index = 0; index < shown.size(); ++index) {
    const MemberRef member = shown[index];
    if (member.domain() != Domain::kResult || !member.is_present()) continue;
    Value value = member.value();
    if (value.get_if<None>()) continue;
    answers.push_back({member.declaration().name, std::move(value), {}});
  }
  return answers;
}

std::string answer_of(
    const Observation& observation,
    const std::function<bool(std::string_view name, std::string_view text)>& is_shown) {
  std::string answer;
  for (const Field& field : answers_of(observation)) {
    const std::string text = print(field.value);
    if (!is_shown(field.key, text)) continue;
    answer += (answer.empty() ? "" : " ") + field.key + "=" + text;
  }
  return answer;
}

}  // namespace kvfence
