#include "properties/offload/rules.h"

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "properties/core/broken_rule.h"
#include "properties/core/named_place.h"

namespace kvfence::offload {
namespace {

using Keys = std::vector<std::uint32_t>;
using eviction::Entry;
using eviction::Victim;
using kvfence::detail::contains;
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
  const bool has_failed = observation.stored.has_value() && !*observation.stored;
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
  const std::uint32_t num_free = held_.capacity() - std::min(held_.capacity(), held_.size());
  if (!found && observation.num_free_slots != num_free) {
    found = broken("a_slot_has_one_block", "num_free_slots", num_free, observation.num_free_slots);
  }
  before_.remember(observation);
  if (found) found->step = step;
  return found;
}

Invariants::Found Invariants::take(const Lookup& command, const Observation& shown) {
  if (!shown.num_hits.has_value()) return std::nullopt;
  std::uint32_t num_ready = 0;
  for (std::uint32_t key : command.keys) {
    const Entry* block = held_.find(key);
    if (!block || !block->ready) break;
    ++num_ready;
  }
  if (*shown.num_hits == num_ready) return std::nullopt;
  return broken("lookup_agrees_with_blocks", "num_hits", num_ready, *shown.num_hits);
}

Invariants::Found Invariants::take(const LookupKey& command, const Observation& shown) {
  if (!shown.result.has_value()) return std::nullopt;
  const Entry* block = held_.find(command.key);
  const LookupResult result = !block         ? LookupResult::kMiss
                              : block->ready ? LookupResult::kHit
                                             : LookupResult::kPending;
  if (*shown.result == result) return std::nullopt;
  return broken("lookup_agrees_with_blocks", "result", result, *shown.result);
}

Invariants::Found Invariants::take(const PrepareLoad& command, const Observation& shown) {
  std::vector<SlotId> slots;
  for (std::uint32_t key : command.keys) {
    Entry* block = held_.find(key);
    if (!block || !block->ready) {
      return broken("only_what_is_ready_is_read",
                    {"error", phrase("a refusal: not all is written"), to_value(shown.error)});
    }
    ++block->readers;
    slots.push_back(block->slot);
  }
  if (!shown.slots.has_value() || *shown.slots == slots) return std::nullopt;
  return broken("only_what_is_ready_is_read", "slots", slots, *shown.slots);
}

Invariants::Found Invariants::take(const CompleteLoad& command, const Observation& shown) {
  for (std::uint32_t key : command.keys) {
    Entry* block = held_.find(key);
    if (!block || block->readers == 0) {
      return broken("only_what_is_ready_is_read",
                    {"error", phrase("a refusal: no load reads it"), to_value(shown.error)});
    }
    --block->readers;
  }
  return std::nullopt;
}

Invariants::Found Invariants::take(const PrepareStore& command, const Observation& shown) {
  if (!shown.keys_to_store.has_value() || !shown.slots.has_value() || !shown.evicted.has_value()) {
    return std::nullopt;
  }
  // With a filter, a key that it drops is not protected.
  const bool has_filter = config_.store_threshold > 1;
  if (auto wrong = held_.evict(*shown.evicted, has_filter ? Keys() : command.keys)) {
    return broken("nothing_in_use_is_evicted", *wrong);
  }
  for (const Victim& victim : *shown.evicted) reported_.erase(victim.key);

  const Keys& keys = *shown.keys_to_store;
  const std::vector<SlotId>& slots = *shown.slots;
  if (keys.size() != slots.size()) {
    return broken("only_what_is_missing_is_stored",
                  {"slots", phrase("a slot per key"), to_value(slots)});
  }
  for (std::size_t index = 0; index < keys.size(); ++index) {
    if (!contains(command.keys, keys[index]) || held_.find(keys[index])) {
      return broken(
          "only_what_is_missing_is_stored",
          {"keys_to_store", phrase("keys of the store that are not held"), to_value(keys)});
    }
    const std::vector<Entry>& blocks = held_.blocks();
    const bool is_taken = std::any_of(blocks.begin(), blocks.end(), [&](const Entry& block) {
      return block.slot == slots[index];
    });
    if (is_taken || slots[index] >= held_.capacity()) {
      return broken("a_slot_has_one_block", {"slots", phrase("free slots"), to_value(slots)});
    }
    held_.insert(keys[index], slots[index]);
  }
  return std::nullopt;
}

Invariants::Found Invariants::take(const CompleteStore& command, const Observation&) {
  for (std::uint32_t key : command.keys) {
    Entry* block = held_.find(key);
    if (!block || block->ready) continue;
    if (!command.success) {
      held_.remove(key);
      continue;
    }
    block->ready = true;
    reported_.insert(key);
    became_ready_.insert(key);
  }
  return std::nullopt;
}

Invariants::Found Invariants::take(const ResetCache&, const Observation&) {
  held_.clear();
  return std::nullopt;
}

Invariants::Found Invariants::take(const TakeEvents&, const Observation& shown) {
  if (!shown.events.has_value()) return std::nullopt;
  const std::vector<Event>& events = *shown.events;
  if (!config_.enable_events) {
    if (events.empty()) return std::nullopt;
    return broken("events_mirror_the_blocks", "events", std::vector<Event>(), events);
  }
  for (std::size_t index = 0; index < events.size(); ++index) {
    for (std::uint32_t key : events[index].keys) {
      const auto ready = became_ready_.find(key);
      const bool is_known =
          events[index].removed ? index_.erase(key) > 0 : ready != became_ready_.end();
      if (!is_known) {
        return broken(
            "events_mirror_the_blocks",
            {"events[" + std::to_string(index) + "]",
             phrase(events[index].removed ? "keys that the index holds" : "keys that became ready"),
             to_value(events[index].keys)});
      }
      if (events[index].removed) continue;
      became_ready_.erase(ready);
      index_.insert(key);
    }
  }
  if (index_ == reported_) return std::nullopt;
  return broken("events_mirror_the_blocks", "events", Keys(reported_.begin(), reported_.end()),
                Keys(index_.begin(), index_.end()));
}

}  // namespace kvfence::offload
