#include "properties/eviction/rules.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "properties/core/broken_rule.h"

namespace kvfence::eviction {
namespace {

using kvfence::detail::Mismatch;
using kvfence::detail::phrase;

// The places of kInvariants, so that code names a rule. The first three are those of CacheRule.
enum Rule : std::size_t { kOnePlace, kSizes, kHeld, kInUse, kReady, kClear, kRefused };

static_assert(kInvariants.size() == kRefused + 1);

Divergence broken(std::size_t rule, Mismatch mismatch) {
  return broken_values(kInvariants[rule], mismatch.field, std::move(mismatch.expected),
                       std::move(mismatch.actual));
}

}  // namespace

std::optional<Divergence> Invariants::check(const Command& command, const Observation& observation,
                                            const World&, std::size_t step) {
  Found found;
  const bool has_failed = observation.success.has_value() && !*observation.success;
  if (observation.error != ErrorCode::kNone || has_failed) {
    if (auto changed = before_.difference(observation)) {
      found = broken(kRefused, std::move(*changed));
    }
  } else {
    found = std::visit([&](const auto& accepted) { return take(accepted, observation); }, command);
  }
  if (!found) {
    if (auto wrong = held_.check(observation)) {
      found = broken(static_cast<std::size_t>(wrong->rule), std::move(wrong->mismatch));
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
  return broken_rule(kInvariants[kHeld], "found", expected, *shown.found);
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
    return broken(kReady, {"error", phrase("a refusal: it is not written"), to_value(shown.error)});
  }
  ++block->readers;
  return std::nullopt;
}

Invariants::Found Invariants::take(const Release& command, const Observation& shown) {
  Entry* block = held_.find(command.key);
  if (!block || block->readers == 0) {
    return broken(kReady, {"error", phrase("a refusal: nobody reads it"), to_value(shown.error)});
  }
  --block->readers;
  return std::nullopt;
}

Invariants::Found Invariants::take(const Evict& command, const Observation& shown) {
  if (!shown.evicted.has_value()) return std::nullopt;
  if (shown.evicted->size() != command.num_blocks) {
    return broken(kInUse, {"evicted", phrase(std::to_string(command.num_blocks) + " blocks"),
                           to_value(*shown.evicted)});
  }
  auto wrong = held_.evict(*shown.evicted, command.protected_keys);
  if (!wrong) return std::nullopt;
  return broken(kInUse, std::move(*wrong));
}

Invariants::Found Invariants::take(const Clear&, const Observation& shown) {
  held_.clear();
  if (shown.target_t1_size != 0) {
    return broken_rule(kInvariants[kClear], "target_t1_size", 0.0, shown.target_t1_size);
  }
  if (!shows_lists(shown) || all_keys(shown).empty()) return std::nullopt;
  return broken(kClear, {"t1", phrase("no key in any list"), to_value(all_keys(shown))});
}

}  // namespace kvfence::eviction
