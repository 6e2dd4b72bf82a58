#include "contract/core/rules.h"

#include <optional>

#include "contract/core/declare.h"

namespace kvfence {

Rules rules_of(Profile profile) {
  Rules rules;
  for (const RuleField& field : kRuleFields) {
    if (profile == Profile::kV023) rules.*field.member = field.in_v023;
  }
  return rules;
}

void override_rules(const DeclaredObject& settings, Rules& rules) {
  for (const RuleField& field : kRuleFields) {
    const std::optional<MemberRef> member = find_member(settings, field.name);
    const auto* const given = member ? get_if<std::optional<bool>>(*member) : nullptr;
    if (given && *given) rules.*field.member = **given;
  }
}

}  // namespace kvfence
