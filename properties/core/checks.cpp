#include "properties/core/checks.h"

#include <algorithm>

#include "contract/core/lists.h"

namespace kvfence {

bool RuleChecker::is_left_out(const Invariant& rule) const {
  return contains(left_out_, rule.name);
}

void Checks::add_rules(std::span<const Invariant> rows) {
  for (const Invariant& row : rows) {
    rules.push_back({std::string(row.name), std::string(row.rule), row.needs});
  }
}

std::vector<std::string> Checks::unjudged_without(
    const std::vector<std::string>& unreported) const {
  std::vector<std::string> names;
  for (const CheckedRule& each : rules) {
    const bool lacks = std::ranges::any_of(
        unreported, [&](const std::string& member) { return is_needed(each.needs, member); });
    if (lacks) names.push_back(each.name);
  }
  return names;
}

}  // namespace kvfence
