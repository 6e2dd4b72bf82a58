#include "properties/draws/mixed_draws.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "contract/core/declare.h"
#include "properties/draws/factors.h"

namespace kvfence {
namespace {

constexpr std::uint32_t kMixedOnceIn = 6;
constexpr std::uint32_t kOverrideOnceIn = 4;

/// Changes a member to something of `other`, or overrides a rule.
void change(const MemberRef& member, const MemberRef& other, Choices& choices) {
  std::string ignored;
  if (!member.equals(other) && choices.once_in(2)) {
    const std::vector<Value> mixed = mixtures(member.value(), other.value());
    member.assign(choices.once_in(2) ? pick(choices, mixed) : mixed.front(), ignored);
  }
  auto* const rule = get_if<std::optional<bool>>(member);
  if (rule && choices.once_in(kOverrideOnceIn)) *rule = choices.once_in(2);
}

Config draw_mixed(const Target& target, Config (*draw)(Choices& choices),
                  const std::vector<NeverTogether>& never_together, Choices& choices) {
  Config drawn = draw(choices);
  if (!choices.once_in(kMixedOnceIn)) return drawn;
  const Config other = draw(choices);
  Config mixed = drawn;
  Config changed = drawn;
  for (std::size_t index = 0; index < other.declared().size(); ++index) {
    const MemberRef member = changed.declared()[index];
    change(member, other.declared()[index], choices);
    if (member.equals(mixed.declared()[index])) continue;
    if (target.prepare(changed, {}, {})) {
      mixed = changed;
    } else {
      changed = mixed;
    }
  }
  const bool is_left_out = std::ranges::any_of(never_together, [&](const NeverTogether& row) {
    return has_both(mixed.declared(), row) && !has_both(drawn.declared(), row);
  });
  return is_left_out ? drawn : mixed;
}

}  // namespace

std::function<Config(Choices& choices)> mixed_draws(const Target& target,
                                                    Config (*draw)(Choices& choices),
                                                    std::vector<NeverTogether> never_together) {
  return [&target, draw, never_together = std::move(never_together)](Choices& choices) {
    return draw_mixed(target, draw, never_together, choices);
  };
}

}  // namespace kvfence
