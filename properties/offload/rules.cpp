#include "properties/offload/rules.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <variant>

#include "properties/core/broken_rule.h"
#include "properties/core/invariant_values.h"
#include "properties/eviction/policy_lists.h"

namespace kvfence::offload {
namespace {

using Keys = std::vector<std::uint32_t>;
using detail::contains;
using eviction::Differs;
using eviction::Entry;
using eviction::Victim;

// The places of kInvariants, so that code names a rule by its id.
enum Rule : std::size_t {
  kO1,
  kO2,
  kO3,
  kO4,
  kO5,
  kO6,
  kO7,
  kO8,
  kO9,
  kO10,
  kO11,
  kO12,
  kO13,
  kO14
};

static_assert(kInvariants.size() == kO14 + 1);

template <class T>
Divergence broken(Rule rule, std::string_view member, const T& expected, const T& actual) {
  return broken_rule(kInvariants[rule], member, expected, actual);
}

/// Whether a command leaves blocks, slots and lists as they are.
bool is_passive(const Command& command, const Observation& observation) {
  const bool failed = observation.stored.has_value() && !*observation.stored;
  return observation.error != ErrorCode::kNone || failed ||
         std::holds_alternative<Lookup>(command) || std::holds_alternative<LookupKey>(command) ||
         std::holds_alternative<TakeEvents>(command);
}

/// Whether the blocks that the lists show have slots of their own, below the capacity.
bool has_a_slot_each(const Observation& observation, std::size_t capacity) {
  std::vector<bool> is_taken(capacity);
  for (const auto* blocks : {&*observation.t1, &*observation.t2}) {
    for (const Entry& block : *blocks) {
      if (block.slot >= capacity || is_taken[block.slot]) return false;
      is_taken[block.slot] = true;
    }
  }
  return true;
}

}  // namespace

void Invariants::reset() {
  ledger_.reset();
  numbers_were_seen_ = false;
  lists_were_seen_ = false;
}

std::optional<Divergence> Invariants::check(const Command& command, const Observation& observation,
                                            const World&, std::size_t step) {
  std::optional<Divergence> found = check_answer(command, observation);
  if (!found) {
    if (observation.error == ErrorCode::kNone) ledger_.apply(command);
    found = check_lists(command, observation);
  }
  if (!found) found = check_numbers(command, observation);
  if (found) found->step = step;
  numbers_were_seen_ = true;
  lists_were_seen_ = eviction::shows_lists(observation);
  return found;
}

std::optional<Divergence> Invariants::check_answer(const Command& command,
                                                   const Observation& observation) {
  const ErrorCode refusal = ledger_.refusal(command);
  if (observation.error != refusal) return broken(kO1, "error", refusal, observation.error);
  if (auto found = check_presence(command, observation)) return found;
  if (refusal != ErrorCode::kNone) return std::nullopt;
  if (const auto* load = std::get_if<PrepareLoad>(&command)) return check_load(*load, observation);
  if (const auto* store = std::get_if<PrepareStore>(&command)) {
    return check_store(*store, observation);
  }
  if (std::holds_alternative<TakeEvents>(command)) return check_events(*observation.events);
  return check_lookup(command, observation);
}

std::optional<Divergence> Invariants::check_presence(const Command& command,
                                                     const Observation& observation) const {
  const bool accepted = observation.error == ErrorCode::kNone;
  const bool num_hits = accepted && std::holds_alternative<Lookup>(command);
  const bool result = accepted && std::holds_alternative<LookupKey>(command);
  const bool stored = accepted && std::holds_alternative<PrepareStore>(command);
  const bool plan = stored && observation.stored.has_value() && *observation.stored;
  const bool slots = plan || (accepted && std::holds_alternative<PrepareLoad>(command));
  const bool events = accepted && std::holds_alternative<TakeEvents>(command);
  const auto wrong = [](std::string_view name, bool wanted) {
    return broken_presence(kInvariants[kO1], name, wanted);
  };
  if (observation.num_hits.has_value() != num_hits) return wrong("num_hits", num_hits);
  if (observation.result.has_value() != result) return wrong("result", result);
  if (observation.stored.has_value() != stored) return wrong("stored", stored);
  if (observation.keys_to_store.has_value() != plan) return wrong("keys_to_store", plan);
  if (observation.slots.has_value() != slots) return wrong("slots", slots);
  if (observation.evicted.has_value() != plan) return wrong("evicted", plan);
  if (observation.events.has_value() != events) return wrong("events", events);
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_lookup(const Command& command,
                                                   const Observation& observation) const {
  if (const auto* lookup = std::get_if<Lookup>(&command)) {
    const auto first_miss =
        std::find_if(lookup->keys.begin(), lookup->keys.end(), [&](std::uint32_t key) {
          const Entry* block = ledger_.cache().find(key);
          return !block || !block->ready;
        });
    const auto num_hits = static_cast<std::uint32_t>(first_miss - lookup->keys.begin());
    if (*observation.num_hits != num_hits) {
      return broken(kO10, "num_hits", num_hits, *observation.num_hits);
    }
  } else if (const auto* lookup_key = std::get_if<LookupKey>(&command)) {
    const Entry* block = ledger_.cache().find(lookup_key->key);
    const LookupResult result = !block         ? LookupResult::kMiss
                                : block->ready ? LookupResult::kHit
                                               : LookupResult::kPending;
    if (*observation.result != result) return broken(kO10, "result", result, *observation.result);
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_load(const PrepareLoad& command,
                                                 const Observation& observation) const {
  std::vector<SlotId> slots;
  for (std::uint32_t key : command.keys) slots.push_back(ledger_.cache().find(key)->slot);
  if (*observation.slots == slots) return std::nullopt;
  return broken(kO4, "slots", slots, *observation.slots);
}

std::optional<Divergence> Invariants::check_store(const PrepareStore& command,
                                                  const Observation& observation) const {
  const std::optional<StorePlan> plan = ledger_.plan(command);
  const Keys passed = ledger_.passing(command.keys);
  // A key that ought not to have passed also tells why a store failed or did not.
  if (plan && *observation.stored && *observation.keys_to_store != plan->keys_to_store) {
    const Keys& shown = *observation.keys_to_store;
    const bool is_let_through = std::any_of(shown.begin(), shown.end(), [&](std::uint32_t key) {
      return contains(command.keys, key) && !contains(passed, key);
    });
    const bool is_kept_back =
        std::any_of(plan->keys_to_store.begin(), plan->keys_to_store.end(), [&](std::uint32_t key) {
          return passed.size() < command.keys.size() && !contains(shown, key);
        });
    return broken(is_let_through || is_kept_back ? kO6 : kO5, "keys_to_store", plan->keys_to_store,
                  shown);
  }
  if (*observation.stored != plan.has_value()) {
    return broken(kO9, "stored", plan.has_value(), *observation.stored);
  }
  if (!plan) return std::nullopt;

  std::vector<Victim> victims;
  for (const Entry& block : plan->victims) victims.push_back({block.key, block.slot});
  const std::vector<Victim>& evicted = *observation.evicted;
  if (evicted != victims) {
    bool each_may_go = evicted.size() == victims.size();
    Keys not_again = passed;
    for (const Victim& victim : evicted) {
      const Entry* block = ledger_.cache().find(victim.key);
      each_may_go &= block && block->ready && block->readers == 0 && block->slot == victim.slot &&
                     !contains(not_again, victim.key);
      not_again.push_back(victim.key);
    }
    return broken(each_may_go ? kO8 : kO7, "evicted", victims, evicted);
  }
  if (*observation.slots == plan->slots) return std::nullopt;
  return broken(kO4, "slots", plan->slots, *observation.slots);
}

std::optional<Divergence> Invariants::check_events(const std::vector<Event>& events) {
  if (!ledger_.config().enable_events) {
    if (events.empty()) return std::nullopt;
    return broken(kO14, "events", std::vector<Event>(), events);
  }
  for (std::size_t index = 0; index < events.size(); ++index) {
    if (ledger_.take(events[index])) continue;
    const Value actual = to_value(std::vector<Event>{events[index]});
    return broken_values(
        kInvariants[kO14], "events[" + std::to_string(index) + "]",
        Value(Value::Variant(std::string(events[index].removed ? "keys that the index holds"
                                                               : "keys that became ready"))),
        actual.get_if<Value::List>()->front());
  }
  if (ledger_.index() == ledger_.told()) return std::nullopt;
  return broken(kO14, "events", Keys(ledger_.told().begin(), ledger_.told().end()),
                Keys(ledger_.index().begin(), ledger_.index().end()));
}

std::optional<Divergence> Invariants::check_lists(const Command& command,
                                                  const Observation& observation) const {
  if (!eviction::shows_lists(observation)) return std::nullopt;
  const std::size_t capacity = ledger_.config().cache.capacity;
  const bool has_evicted = observation.evicted.has_value() && !observation.evicted->empty();
  return eviction::compare_lists(
      ledger_.cache(), observation,
      [&](Differs differs, std::string_view name, const auto& expected, const auto& actual) {
        const bool is_unsound = eviction::has_a_key_twice(observation) ||
                                (has_evicted && (observation.b1->size() > capacity ||
                                                 observation.b2->size() > capacity));
        // A passive command is only to blame for what was right before it.
        const Rule rule = is_unsound                                             ? kO13
                          : !has_a_slot_each(observation, capacity)              ? kO3
                          : lists_were_seen_ && is_passive(command, observation) ? kO2
                          : differs == Differs::kStatus                          ? kO11
                                                                                 : kO12;
        return broken(rule, name, expected, actual);
      });
}

std::optional<Divergence> Invariants::check_numbers(const Command& command,
                                                    const Observation& observation) const {
  const bool unasked = numbers_were_seen_ && is_passive(command, observation);
  const auto wrong = [&](Rule rule, std::string_view name, auto expected, auto actual) {
    return broken(unasked ? kO2 : rule, name, expected, actual);
  };
  const double target = ledger_.cache().target_t1_size();
  if (observation.size != ledger_.cache().size()) {
    return wrong(kO11, "size", ledger_.cache().size(), observation.size);
  }
  if (observation.num_free_slots != ledger_.num_free_slots()) {
    return wrong(kO3, "num_free_slots", ledger_.num_free_slots(), observation.num_free_slots);
  }
  if (observation.target_t1_size != target) {
    const bool is_bounded = observation.target_t1_size >= 0 &&
                            observation.target_t1_size <= ledger_.config().cache.capacity;
    return wrong(is_bounded ? kO12 : kO13, "target_t1_size", target, observation.target_t1_size);
  }
  return std::nullopt;
}

}  // namespace kvfence::offload
