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
    const std::string needs = " " + std::string(each.needs) + " ";
    const bool lacks = std::ranges::any_of(unreported, [&](const std::string& member) {
      return each.needs.empty() || needs.find(" " + member + " ") != std::string::npos;
    });
    if (lacks) names.push_back(each.name);
  }
  return names;
}

}  // namespace kvfence
