#include "properties/eviction/rules.h"

#include <string>
#include <variant>
#include <vector>

#include "properties/core/broken_rule.h"
#include "properties/core/named_place.h"

namespace kvfence::eviction {
namespace {

using kvfence::detail::Mismatch;
using kvfence::detail::phrase;

using Rule = NamedPlace<kInvariants>;

/// Those of each CacheRule.
constexpr Rule kCacheRules[] = {"a_key_has_one_place", "sizes_are_bounded",
                                "blocks_are_held_as_asked"};

template <class Expected, class Actual>
Divergence broken(Rule rule, std::string_view member, const Expected& expected,
                  const Actual& actual) {
  return broken_rule(kInvariants[rule.place()], member, expected, actual);
}

Divergence broken(Rule rule, const Mismatch& mismatch) {
  return broken(rule, mismatch.field, mismatch.expected, mismatch.actual);
}

}  // namespace

std::optional<Divergence> Invariants::check(const Command& command, const Observation& observation,
                                            const World&, std::size_t step) {
  Found found;
  const bool has_failed = observation.success.has_value() && !*observation.success;
  if (observation.error != ErrorCode::kNone || has_failed) {
    if (auto changed = before_.difference(observation)) {
      found = broken("refused_changes_nothing", *changed);
    }
  } else {
    found = std::visit([&](const auto& accepted) { return take(accepted, observation); }, command);
  }
  if (!found) {
    if (auto wrong = held_.check(observation)) {
      found = broken(kCacheRules[static_cast<std::size_t>(wrong->rule)], wrong->mismatch);
    }
  }
  before_.remember(observation);
  if (found) found->step = step;
  return found;
}

Invariants::Found Invariants::take(const Get& command, const Observation& shown) {
  if (!shown.found.has_value()) return std::nullopt;
  std::vector<Entry> expected;
  if (const Entry* block = held_.find(command.key)) expected.push_back(*block);
  if (*shown.found == expected) return std::nullopt;
  return broken("blocks_are_held_as_asked", "found", expected, *shown.found);
}

Invariants::Found Invariants::take(const Insert& command, const Observation&) {
  if (!held_.find(command.key)) held_.insert(command.key, command.slot);
  return std::nullopt;
}

Invariants::Found Invariants::take(const Remove& command, const Observation&) {
  held_.remove(command.key);
  return std::nullopt;
}

Invariants::Found Invariants::take(const MakeReady& command, const Observation&) {
  if (Entry* block = held_.find(command.key)) block->ready = true;
  return std::nullopt;
}

Invariants::Found Invariants::take(const Acquire& command, const Observation& shown) {
  Entry* block = held_.find(command.key);
  if (!block || !block->ready) {
    return broken("only_what_is_ready_is_read",
                  {"error", phrase("a refusal: it is not written"), to_value(shown.error)});
  }
  ++block->readers;
  return std::nullopt;
}

Invariants::Found Invariants::take(const Release& command, const Observation& shown) {
  Entry* block = held_.find(command.key);
  if (!block || block->readers == 0) {
    return broken("only_what_is_ready_is_read",
                  {"error", phrase("a refusal: nobody reads it"), to_value(shown.error)});
  }
  --block->readers;
  return std::nullopt;
}

Invariants::Found Invariants::take(const Evict& command, const Observation& shown) {
  if (!shown.evicted.has_value()) return std::nullopt;
  if (shown.evicted->size() != command.num_blocks) {
    return broken("nothing_in_use_is_evicted",
                  {"evicted", phrase(std::to_string(command.num_blocks) + " blocks"),
                   to_value(*shown.evicted)});
  }
  auto wrong = held_.evict(*shown.evicted, command.protected_keys);
  if (!wrong) return std::nullopt;
  return broken("nothing_in_use_is_evicted", *wrong);
}

Invariants::Found Invariants::take(const Clear&, const Observation& shown) {
  held_.clear();
  if (shown.target_t1_size != 0) {
    return broken("clear_forgets_everything", "target_t1_size", 0.0, shown.target_t1_size);
  }
  if (!shows_lists(shown) || all_keys(shown).empty()) return std::nullopt;
  return broken("clear_forgets_everything",
                {"t1", phrase("no key in any list"), to_value(all_keys(shown))});
}

}  // namespace kvfence::eviction
