#include "properties/core/checks.h"

#include <algorithm>

namespace kvfence {

std::optional<Divergence> RuleChecker::judged(std::optional<Divergence> found) const {
  if (found && std::ranges::find(left_out_, found->oracle) != left_out_.end()) found.reset();
  return found;
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
