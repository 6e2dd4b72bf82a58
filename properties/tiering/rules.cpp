#include "properties/tiering/rules.h"

#include <algorithm>
#include <string>
#include <variant>

#include "properties/core/broken_rule.h"
#include "properties/core/invariant_values.h"
#include "properties/eviction/policy_lists.h"

namespace kvfence::tiering {
namespace {

using Keys = std::vector<std::uint32_t>;
using detail::contains;
using eviction::Differs;
using eviction::Entry;
using eviction::Victim;

// The places of kInvariants, so that code names a rule by its id.
enum Rule : std::size_t {
  kT1,
  kT2,
  kT3,
  kT4,
  kT5,
  kT6,
  kT7,
  kT8,
  kT9,
  kT10,
  kT11,
  kT12,
  kT13,
  kT14,
  kT15,
  kT16,
  kT17
};

static_assert(kInvariants.size() == kT17 + 1);

template <class T>
Divergence broken(Rule rule, std::string_view member, const T& expected, const T& actual) {
  return broken_rule(kInvariants[rule], member, expected, actual);
}

/// Whether a command leaves the primary tier and all transfers as they are, but for its poll.
bool is_passive(const Expected& expected, const Command& command) {
  const bool cannot_be = expected.stored.has_value() && !*expected.stored;
  return expected.error != ErrorCode::kNone || cannot_be ||
         std::holds_alternative<TakeEvents>(command) ||
         std::holds_alternative<ResetCache>(command) ||
         std::holds_alternative<TierFinish>(command) ||
         std::holds_alternative<TierAskAgain>(command) ||
         std::holds_alternative<TierAdd>(command) || std::holds_alternative<TierDrop>(command) ||
         std::holds_alternative<TierFaults>(command) || std::holds_alternative<TierDamage>(command);
}

/// The rule that demands a call.
Rule rule_of(const TierCallRecord& call) {
  if (call.method == "get_finished_jobs") return kT3;
  if (call.method == "lookup") return kT4;
  if (call.method == "submit_store") return kT10;
  if (call.method == "submit_load") return kT11;
  return kT13;
}

/// The keys that stand in other places or with another status.
Keys differing(const std::vector<Entry>& expected, const std::vector<Entry>& actual) {
  Keys keys;
  for (const auto& [one, other] : {std::pair(&expected, &actual), std::pair(&actual, &expected)}) {
    for (const Entry& block : *one) {
      if (std::find(other->begin(), other->end(), block) == other->end()) keys.push_back(block.key);
    }
  }
  return keys;
}

}  // namespace

void Invariants::reset() {
  ledger_ = Ledger(primary_, num_tiers_, file_tiers_);
  was_shown_ = false;
}

std::optional<Divergence> Invariants::check(const Command& command, const Observation& observation,
                                            const World&, std::size_t step) {
  const Expected expected = ledger_.apply(command, &observation);
  std::optional<Divergence> found;
  if (observation.error != expected.error) {
    found = broken(kT1, "error", expected.error, observation.error);
  }
  if (!found) found = check_presence(expected, command, observation);
  if (!found) found = check_calls(expected, command, observation);
  if (!found && expected.result) found = check_lookup(expected, command, observation);
  if (!found && expected.stored) found = check_store(expected, observation);
  if (!found && expected.slots && *observation.slots != *expected.slots) {
    found = broken(kT15, "slots", *expected.slots, *observation.slots);
  }
  if (!found && expected.request_level && *observation.request_level != *expected.request_level) {
    found = broken(kT13, "request_level", *expected.request_level, *observation.request_level);
  }
  if (!found && std::holds_alternative<TakeEvents>(command)) {
    found = check_events(*observation.events);
  }
  if (!found) found = check_lists(expected, command, observation);
  if (!found) found = check_numbers(expected, command, observation);
  if (found) found->step = step;
  was_shown_ = eviction::shows_lists(observation);
  return found;
}

std::optional<Divergence> Invariants::check_presence(const Expected& expected,
                                                     const Command& command,
                                                     const Observation& observation) const {
  const bool plan = observation.stored.has_value() && *observation.stored;
  const bool slots = plan || (expected.slots.has_value() && !expected.stored.has_value());
  const bool events =
      expected.error == ErrorCode::kNone && std::holds_alternative<TakeEvents>(command);
  const auto wrong = [](std::string_view name, bool wanted) {
    return broken_presence(kInvariants[kT1], name, wanted);
  };
  const auto is_wrong = [](const auto& shown, bool wanted) { return shown.has_value() != wanted; };
  const bool result = expected.result.has_value();
  if (is_wrong(observation.result, result)) return wrong("result", result);
  const bool stored = expected.stored.has_value();
  if (is_wrong(observation.stored, stored)) return wrong("stored", stored);
  if (is_wrong(observation.keys_to_store, plan)) return wrong("keys_to_store", plan);
  if (is_wrong(observation.slots, slots)) return wrong("slots", slots);
  if (is_wrong(observation.evicted, plan)) return wrong("evicted", plan);
  const bool request_level = expected.request_level.has_value();
  if (is_wrong(observation.request_level, request_level)) {
    return wrong("request_level", request_level);
  }
  if (is_wrong(observation.events, events)) return wrong("events", events);
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_calls(const Expected& expected, const Command& command,
                                                  const Observation& observation) const {
  const std::vector<TierCallRecord> none;
  const std::vector<TierCallRecord>& shown =
      observation.tier_calls.has_value() ? *observation.tier_calls : none;
  const std::vector<TierCallRecord>& wanted = expected.calls;
  const auto [at, shown_at] =
      std::mismatch(wanted.begin(), wanted.end(), shown.begin(), shown.end());
  if (at == wanted.end() && shown_at == shown.end()) return std::nullopt;

  Rule rule = at != wanted.end() ? rule_of(*at) : rule_of(*shown_at);
  if (at != wanted.end() && shown_at != shown.end()) {
    TierCallRecord other_number = *shown_at;
    other_number.job = at->job;
    if (other_number == *at) rule = kT12;
    TierCallRecord other_answer = *shown_at;
    other_answer.answer = at->answer;
    if (other_answer == *at && ledger_.has_files(at->tier)) rule = kT17;
  }
  const auto* store = std::get_if<CompleteStore>(&command);
  if (store && !store->success) rule = kT8;
  return broken(rule, "tier_calls", wanted, shown);
}

std::optional<Divergence> Invariants::check_lookup(const Expected& expected, const Command& command,
                                                   const Observation& observation) const {
  const LookupResult shown = *observation.result;
  if (shown == *expected.result) return std::nullopt;
  const std::uint32_t key = std::get<Lookup>(command).key;
  const Rule rule = contains(expected.failed_promotions, key)                 ? kT8
                    : shown == LookupResult::kPending                         ? kT6
                    : shown == LookupResult::kHit && ledger_.is_promoted(key) ? kT7
                                                                              : kT5;
  return broken(rule, "result", *expected.result, shown);
}

std::optional<Divergence> Invariants::check_store(const Expected& expected,
                                                  const Observation& observation) const {
  std::vector<Victim> victims;
  if (expected.plan) {
    for (const Entry& block : expected.plan->victims) victims.push_back({block.key, block.slot});
  }
  if (observation.evicted.has_value() && *observation.evicted != victims) {
    const auto any = [&](const auto& holds) {
      return std::any_of(observation.evicted->begin(), observation.evicted->end(),
                         [&](const Victim& victim) { return holds(victim.key); });
    };
    const Rule rule = any([&](std::uint32_t key) { return ledger_.is_promoted(key); })   ? kT7
                      : any([&](std::uint32_t key) { return ledger_.is_cascaded(key); }) ? kT9
                                                                                         : kT15;
    return broken(rule, "evicted", victims, *observation.evicted);
  }
  if (*observation.stored != *expected.stored) {
    return broken(kT15, "stored", *expected.stored, *observation.stored);
  }
  if (expected.plan && *observation.keys_to_store != expected.plan->keys_to_store) {
    return broken(kT15, "keys_to_store", expected.plan->keys_to_store, *observation.keys_to_store);
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_events(const std::vector<offload::Event>& events) {
  offload::Ledger& primary = ledger_.primary();
  if (!primary_.enable_events) {
    if (events.empty()) return std::nullopt;
    return broken(kT15, "events", std::vector<offload::Event>(), events);
  }
  for (std::size_t index = 0; index < events.size(); ++index) {
    if (primary.take(events[index])) continue;
    const Value actual = to_value(std::vector<offload::Event>{events[index]});
    return broken_values(kInvariants[kT15], "events[" + std::to_string(index) + "]",
                         Value(Value::Variant(std::string("keys that the index holds"))),
                         actual.get_if<Value::List>()->front());
  }
  if (primary.index() == primary.told()) return std::nullopt;
  return broken(kT15, "events", Keys(primary.told().begin(), primary.told().end()),
                Keys(primary.index().begin(), primary.index().end()));
}

std::optional<Divergence> Invariants::check_lists(const Expected& expected, const Command& command,
                                                  const Observation& observation) const {
  if (!eviction::shows_lists(observation)) return std::nullopt;
  for (const auto& [name, blocks] :
       {std::pair{"t1", &*observation.t1}, std::pair{"t2", &*observation.t2}}) {
    if (!ledger_.is_at_rest()) break;
    std::vector<Entry> at_rest = *blocks;
    for (Entry& block : at_rest) block.ready = true, block.readers = 0;
    if (at_rest != *blocks) return broken(kT14, name, at_rest, *blocks);
  }

  const bool unasked = was_shown_ && is_passive(expected, command);
  const eviction::Ledger& cache = ledger_.primary().cache();
  Keys keys = differing(cache.t1(), *observation.t1);
  for (std::uint32_t key : differing(cache.t2(), *observation.t2)) keys.push_back(key);
  const auto any = [&](const auto& holds) { return std::any_of(keys.begin(), keys.end(), holds); };
  const bool any_failed =
      any([&](std::uint32_t key) { return contains(expected.failed_promotions, key); });
  const bool any_promoted = any([&](std::uint32_t key) { return ledger_.is_promoted(key); });
  auto found = eviction::compare_lists(
      cache, observation,
      [&](Differs differs, std::string_view name, const auto& wanted, const auto& shown) {
        // A poll is only to blame for what was right before it.
        const Rule rule = any_failed                    ? kT8
                          : any_promoted                ? kT7
                          : unasked                     ? kT2
                          : differs == Differs::kStatus ? kT9
                                                        : kT15;
        return broken(rule, name, wanted, shown);
      });
  if (found) return found;

  const auto compare = [&](Rule rule, std::string_view name, const auto& wanted,
                           const auto& shown) -> std::optional<Divergence> {
    if (!shown.has_value() || wanted == *shown) return std::nullopt;
    return broken(unasked ? kT2 : rule, name, wanted, *shown);
  };
  found = compare(kT12, "jobs", ledger_.jobs(), observation.jobs);
  if (!found) found = compare(kT11, "pending", ledger_.pending(), observation.pending);
  if (!found && observation.tiers.has_value()) found = check_tiers(unasked, observation);
  return found;
}

/// Where the lists are shown.
std::optional<Divergence> Invariants::check_tiers(bool unasked,
                                                  const Observation& observation) const {
  std::vector<TierState> wanted = ledger_.tiers();
  const std::vector<TierState>& shown = *observation.tiers;
  for (std::uint32_t tier = 0; tier < wanted.size() && tier < shown.size(); ++tier) {
    const bool may_be = !ledger_.is_exact(tier) && ledger_.may_hold(tier, shown[tier]);
    if (may_be) wanted[tier] = shown[tier];
    if (!ledger_.has_files(tier) || wanted[tier] == shown[tier]) continue;
    return broken(kT17, "tiers", wanted, shown);
  }
  if (wanted != shown) return broken(unasked ? kT2 : kT10, "tiers", wanted, shown);

  if (observation.damaged.has_value() != ledger_.has_files()) {
    return broken_presence(kInvariants[kT1], "damaged", ledger_.has_files());
  }
  if (!ledger_.has_files() || observation.damaged->empty()) return std::nullopt;
  return broken(kT16, "damaged", Keys(), *observation.damaged);
}

std::optional<Divergence> Invariants::check_numbers(const Expected& expected,
                                                    const Command& command,
                                                    const Observation& observation) const {
  const bool unasked = is_passive(expected, command) && expected.calls.empty();
  std::optional<Divergence> found;
  const auto compare = [&](Rule rule, std::string_view name, auto wanted, auto shown) {
    if (!found && wanted != shown) found = broken(unasked ? kT2 : rule, name, wanted, shown);
  };
  const offload::Ledger& primary = ledger_.primary();
  const Rule rule = expected.failed_promotions.empty() ? kT15 : kT8;
  compare(rule, "size", primary.cache().size(), observation.size);
  compare(rule, "num_free_slots", primary.num_free_slots(), observation.num_free_slots);
  compare(kT12, "num_jobs", static_cast<std::uint32_t>(ledger_.jobs().size()),
          observation.num_jobs);
  compare(kT11, "num_pending", ledger_.num_pending(), observation.num_pending);
  compare(kT15, "target_t1_size", primary.cache().target_t1_size(), observation.target_t1_size);
  return found;
}

}  // namespace kvfence::tiering
