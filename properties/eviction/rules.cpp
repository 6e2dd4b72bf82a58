#include "properties/eviction/rules.h"

#include <algorithm>
#include <variant>

#include "properties/core/broken_rule.h"
#include "properties/eviction/policy_lists.h"

namespace kvfence::eviction {
namespace {

// The places of kInvariants, so that code names a rule by its id.
enum Rule : std::size_t { kE1, kE2, kE3, kE4, kE5, kE6, kE7, kE8, kE9, kE10, kE11, kE12, kE13 };

static_assert(kInvariants.size() == kE13 + 1);

template <class T>
Divergence broken(Rule rule, std::string_view member, const T& expected, const T& actual) {
  return broken_rule(kInvariants[rule], member, expected, actual);
}

/// Whether a command leaves everything as it is.
bool is_passive(const Command& command, const Observation& observation) {
  const bool failed = observation.success.has_value() && !*observation.success;
  return observation.error != ErrorCode::kNone || failed || std::holds_alternative<Get>(command);
}

std::vector<Victim> victims_of(const std::vector<Entry>& blocks) {
  std::vector<Victim> victims;
  for (const Entry& block : blocks) victims.push_back({block.key, block.slot});
  return victims;
}

/// What is wrong where a list of that kind is not as this command leaves it.
Rule rule_of(const Command& command, Differs differs) {
  if (differs == Differs::kStatus) return kE13;
  if (std::holds_alternative<Touch>(command)) return kE11;
  if (!std::holds_alternative<Evict>(command)) return kE12;
  return differs == Differs::kGhosts ? kE10 : kE7;
}

}  // namespace

void Invariants::reset() {
  ledger_.clear();
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
  lists_were_seen_ = shows_lists(observation);
  return found;
}

std::optional<Divergence> Invariants::check_answer(const Command& command,
                                                   const Observation& observation) const {
  const ErrorCode refusal = ledger_.refusal(command);
  if (observation.error != refusal) return broken(kE1, "error", refusal, observation.error);
  if (auto found = check_presence(command, observation)) return found;
  if (refusal != ErrorCode::kNone) return std::nullopt;
  if (const auto* asked = std::get_if<Get>(&command)) {
    std::vector<Entry> expected;
    if (const Entry* block = ledger_.find(asked->key)) expected.push_back(*block);
    if (*observation.found != expected) return broken(kE1, "found", expected, *observation.found);
  }
  if (const auto* wanted = std::get_if<Evict>(&command)) return check_evict(*wanted, observation);
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_presence(const Command& command,
                                                     const Observation& observation) const {
  const bool accepted = observation.error == ErrorCode::kNone;
  const bool found = accepted && std::holds_alternative<Get>(command);
  const bool success = accepted && std::holds_alternative<Evict>(command);
  const bool evicted = success && observation.success.has_value() && *observation.success;
  const auto wrong = [](std::string_view name, bool wanted) {
    return broken_presence(kInvariants[kE1], name, wanted);
  };
  if (observation.found.has_value() != found) return wrong("found", found);
  if (observation.success.has_value() != success) return wrong("success", success);
  if (observation.evicted.has_value() != evicted) return wrong("evicted", evicted);
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_evict(const Evict& command,
                                                  const Observation& observation) const {
  const auto chosen = ledger_.victims(command.num_blocks, command.protected_keys);
  if (*observation.success != chosen.has_value()) {
    return broken(kE8, "success", chosen.has_value(), *observation.success);
  }
  if (!chosen) return std::nullopt;
  const std::vector<Victim> expected = victims_of(*chosen);
  const std::vector<Victim>& evicted = *observation.evicted;
  if (evicted == expected) return std::nullopt;

  bool each_may_go = evicted.size() == command.num_blocks;
  std::vector<std::uint32_t> not_again = command.protected_keys;
  for (const Victim& victim : evicted) {
    const Entry* block = ledger_.find(victim.key);
    each_may_go &= block && block->ready && block->readers == 0 && block->slot == victim.slot &&
                   std::find(not_again.begin(), not_again.end(), victim.key) == not_again.end();
    not_again.push_back(victim.key);
  }
  return broken(each_may_go ? kE9 : kE7, "evicted", expected, evicted);
}

std::optional<Divergence> Invariants::check_lists(const Command& command,
                                                  const Observation& observation) const {
  if (!shows_lists(observation)) return std::nullopt;
  const std::size_t capacity = ledger_.config().capacity;
  const bool has_evicted = observation.evicted.has_value() && !observation.evicted->empty();
  return compare_lists(
      ledger_, observation,
      [&](Differs differs, std::string_view name, const auto& expected, const auto& actual) {
        const bool is_unbounded =
            has_evicted && differs == Differs::kGhosts &&
            (observation.b1->size() > capacity || observation.b2->size() > capacity);
        // A passive command is only to blame for what was right before it.
        const Rule rule = has_a_key_twice(observation)                           ? kE3
                          : lists_were_seen_ && is_passive(command, observation) ? kE2
                          : is_unbounded                                         ? kE6
                                         : rule_of(command, differs);
        return broken(rule, name, expected, actual);
      });
}

std::optional<Divergence> Invariants::check_numbers(const Command& command,
                                                    const Observation& observation) const {
  const bool unasked = numbers_were_seen_ && is_passive(command, observation);
  if (observation.size != ledger_.size()) {
    return broken(unasked ? kE2 : kE4, "size", ledger_.size(), observation.size);
  }
  if (observation.target_t1_size != ledger_.target_t1_size()) {
    return broken(unasked ? kE2 : kE5, "target_t1_size", ledger_.target_t1_size(),
                  observation.target_t1_size);
  }
  return std::nullopt;
}

}  // namespace kvfence::eviction
