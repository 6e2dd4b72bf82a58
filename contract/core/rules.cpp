#include "contract/core/rules.h"

namespace kvfence {

Rules rules_of(Profile profile) {
  Rules rules;
  for (const RuleField& field : kRuleFields) {
    if (profile == Profile::kV023) rules.*field.member = field.in_v023;
  }
  return rules;
}

}  // namespace kvfence
