#include "properties/pool/rules.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "contract/core/line.h"
#include "properties/core/difference.h"

namespace kvfence::block_pool {
namespace {

// The places of kInvariants, so that code names a rule by its id.
enum Rule : std::size_t { kI1, kI2, kI3, kI4, kI5, kI6, kI7, kI8, kI9, kI10, kI11, kI12 };

static_assert(kInvariants.size() == kI12 + 1);

Divergence broken_values(Rule rule, std::string_view member, Value expected, Value actual,
                         const World& world) {
  Divergence divergence = detail::locate_difference(
      std::string(member), std::move(expected), std::move(actual),
      [&](std::string_view bytes) { return world.requests().symbol_of(bytes); });
  divergence.oracle = kInvariants[rule].name;
  divergence.message = kInvariants[rule].rule;
  return divergence;
}

/// Two sides of one member of the observation.
template <class T>
Divergence broken(Rule rule, std::string_view member, const T& expected, const T& actual,
                  const World& world) {
  return broken_values(rule, member, to_value(expected), to_value(actual), world);
}

Value phrase(std::string_view text) { return Value(Value::Variant(std::string(text))); }

/// The first index at which two lists differ. Requires: they do.
template <class T>
std::size_t first_index_of_difference(const std::vector<T>& a, const std::vector<T>& b) {
  const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(at.first - a.begin());
}

template <class T>
bool agrees(const Reusable<T>& shown, const T& expected) {
  return !shown.has_value() || *shown == expected;
}

/// Whether a command leaves blocks, queue and keys alone.
bool is_passive(const Command& command, const Observation& observation) {
  return observation.error != ErrorCode::kNone || std::holds_alternative<DeclareRequest>(command) ||
         std::holds_alternative<AppendTokens>(command) ||
         std::holds_alternative<GetCachedBlock>(command) ||
         std::holds_alternative<TakeEvents>(command);
}

/// What an index fed by the events holds of one hash.
Value index_value(const EventDebt::Entry& entry, std::int64_t count, bool with_group) {
  Record record{"index", {{"block_hash", Value(Value::Variant(Bytes{entry.hash})), {}}}};
  if (with_group) record.fields.push_back({"group_idx", to_value(entry.group), {}});
  record.fields.push_back({"count", Value(Value::Variant(count)), {}});
  return Value(Value::Variant(std::move(record)));
}

}  // namespace

Invariants::Invariants(const BlockPoolConfig& config) : ledger_(config) {}

void Invariants::reset() {
  ledger_.reset();
  numbers_were_seen_ = false;
  state_was_seen_ = false;
}

std::optional<Divergence> Invariants::check(const Command& command, const Observation& observation,
                                            const World& world, std::size_t step) {
  std::optional<Divergence> found = check_answer(command, observation, world);
  if (!found) {
    if (observation.error == ErrorCode::kNone) ledger_.apply(command, world);
    found = check_state(command, observation, world);
  }
  if (!found) found = check_numbers(command, observation, world);
  if (found) found->step = step;
  numbers_were_seen_ = true;
  state_was_seen_ = observation.free_queue.has_value() && observation.ref_cnts.has_value() &&
                    observation.keys.has_value();
  return found;
}

std::optional<Divergence> Invariants::check_answer(const Command& command,
                                                   const Observation& observation,
                                                   const World& world) {
  const ErrorCode refusal = ledger_.refusal(command, world);
  if (observation.error != refusal) {
    return broken(kI12, "error", refusal, observation.error, world);
  }
  if (auto found = check_present(command, observation, world)) return found;
  if (refusal != ErrorCode::kNone) return std::nullopt;

  if (const auto* lookup = std::get_if<GetCachedBlock>(&command)) {
    return check_lookup(*lookup, observation, world);
  }
  if (const auto* allocation = std::get_if<GetNewBlocks>(&command)) {
    return check_new_blocks(*allocation, observation, world);
  }
  if (std::holds_alternative<ResetPrefixCache>(command)) {
    const bool success = ledger_.only_null_is_referenced();
    if (*observation.success != success) {
      return broken(kI11, "success", success, *observation.success, world);
    }
  }
  if (std::holds_alternative<TakeEvents>(command)) return check_events(*observation.events, world);
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_present(const Command& command,
                                                    const Observation& observation,
                                                    const World& world) const {
  const bool accepted = observation.error == ErrorCode::kNone;
  const bool hit = accepted && std::holds_alternative<GetCachedBlock>(command);
  const bool blocks = accepted && (std::holds_alternative<GetNewBlocks>(command) ||
                                   (hit && observation.hit.has_value() && *observation.hit));
  const bool success = accepted && std::holds_alternative<ResetPrefixCache>(command);
  const bool events = accepted && std::holds_alternative<TakeEvents>(command);
  const auto wrong = [&](std::string_view name, bool wanted) {
    return broken_values(kI12, name, wanted ? phrase("an answer") : Value(),
                         wanted ? Value() : phrase("an answer"), world);
  };
  if (observation.hit.has_value() != hit) return wrong("hit", hit);
  if (observation.blocks.has_value() != blocks) return wrong("blocks", blocks);
  if (observation.success.has_value() != success) return wrong("success", success);
  if (observation.events.has_value() != events) return wrong("events", events);
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_lookup(const GetCachedBlock& command,
                                                   const Observation& observation,
                                                   const World& world) {
  const BlockHashView hash =
      world.requests().find(command.request)->block_hashes(command.block_size)[command.index];
  found_.clear();
  for (GroupId group : command.groups) {
    const std::optional<BlockId> block = ledger_.first_block_with(hash, group);
    if (!block) break;
    found_.push_back(*block);
  }
  const bool hit = found_.size() == command.groups.size();
  if (*observation.hit != hit) return broken(kI3, "hit", hit, *observation.hit, world);
  if (!hit || *observation.blocks == found_) return std::nullopt;
  return broken(kI3, "blocks", found_, *observation.blocks, world);
}

std::optional<Divergence> Invariants::check_new_blocks(const GetNewBlocks& command,
                                                       const Observation& observation,
                                                       const World& world) const {
  const std::vector<BlockId>& blocks = *observation.blocks;
  const std::vector<BlockId>& queue = ledger_.queue();
  const auto end = queue.begin() + command.num_blocks;
  if (std::equal(queue.begin(), end, blocks.begin(), blocks.end())) return std::nullopt;
  return broken(kI5, "blocks", std::vector<BlockId>(queue.begin(), end), blocks, world);
}

std::optional<Divergence> Invariants::check_events(const std::vector<KVCacheEvent>& events,
                                                   const World& world) {
  if (!ledger_.config().enable_kv_cache_events) {
    if (events.empty()) return std::nullopt;
    return broken(kI7, "events", std::vector<KVCacheEvent>(), events, world);
  }
  for (std::size_t index = 0; index < events.size(); ++index) {
    if (ledger_.take(events[index])) continue;
    const bool with_group = ledger_.config().rules.events_carry_group;
    const auto* removed = std::get_if<BlockRemoved>(&events[index]);
    const bool is_orphan = removed && removed->group_idx.has_value() == with_group;
    const char* expected = is_orphan    ? "a hash that the index holds"
                           : with_group ? "an event with group_idx"
                                        : "an event without group_idx";
    const std::string field = "events[" + std::to_string(index) + "]";
    const Value actual = to_value(std::vector<KVCacheEvent>{events[index]});
    return broken_values(kI7, field, phrase(expected), actual.get_if<Value::List>()->front(),
                         world);
  }
  const EventDebt::Entry* owed = ledger_.debt().first();
  if (!owed) return std::nullopt;
  const std::int64_t carrying = ledger_.num_carrying(owed->hash, owed->group);
  const bool with_group = ledger_.config().rules.events_carry_group;
  return broken_values(kI7, "events", index_value(*owed, carrying, with_group),
                       index_value(*owed, carrying - owed->amount, with_group), world);
}

std::optional<Divergence> Invariants::check_state(const Command& command,
                                                  const Observation& observation,
                                                  const World& world) const {
  const bool refs_agree = agrees(observation.ref_cnts, ledger_.holders());
  const bool queue_agrees = agrees(observation.free_queue, ledger_.queue());
  const bool keys_agree = agrees(observation.keys, ledger_.keys());
  if (refs_agree && queue_agrees && keys_agree) return std::nullopt;

  // Something differs: which rule names it best. A passive command is only to blame for what was
  // right before it.
  if (auto found = check_null_block(observation, world)) return found;
  const bool unasked = state_was_seen_ && is_passive(command, observation);
  if (!refs_agree) {
    const std::size_t block = first_index_of_difference(ledger_.holders(), *observation.ref_cnts);
    const Rule rule = unasked ? kI6 : is_new_block(command, observation, block) ? kI5 : kI1;
    return broken(rule, "ref_cnts", ledger_.holders(), *observation.ref_cnts, world);
  }
  if (!queue_agrees) {
    const Rule rule = unasked ? kI6 : holds_the_unreferenced(*observation.free_queue) ? kI8 : kI2;
    return broken(rule, "free_queue", ledger_.queue(), *observation.free_queue, world);
  }
  const std::size_t block = first_index_of_difference(ledger_.keys(), *observation.keys);
  const bool was_reset = observation.success.has_value() && *observation.success;
  const Rule rule = unasked                                     ? kI6
                    : was_reset                                 ? kI11
                    : is_new_block(command, observation, block) ? kI5
                                                                : kI9;
  return broken(rule, "keys", ledger_.keys(), *observation.keys, world);
}

std::optional<Divergence> Invariants::check_numbers(const Command& command,
                                                    const Observation& observation,
                                                    const World& world) const {
  const Rule rule = numbers_were_seen_ && is_passive(command, observation) ? kI6 : kI4;
  const BlockCounts counts = ledger_.counts();
  const auto wrong = [&](std::string_view name, const auto& expected, const auto& actual) {
    return broken(rule, name, expected, actual, world);
  };
  const std::uint32_t num_free = counts.empty + counts.cached;
  if (observation.num_free_blocks != num_free) {
    return wrong("num_free_blocks", num_free, observation.num_free_blocks);
  }
  if (observation.num_empty != counts.empty) {
    return wrong("num_empty", counts.empty, observation.num_empty);
  }
  if (observation.num_cached != counts.cached) {
    return wrong("num_cached", counts.cached, observation.num_cached);
  }
  if (observation.num_referenced != counts.referenced) {
    return wrong("num_referenced", counts.referenced, observation.num_referenced);
  }
  if (observation.num_cached_keys != ledger_.num_cached_keys()) {
    return wrong("num_cached_keys", ledger_.num_cached_keys(), observation.num_cached_keys);
  }
  const double usage = ledger_.usage();
  if (observation.usage != usage) return wrong("usage", usage, observation.usage);
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_null_block(const Observation& observation,
                                                       const World& world) const {
  if (observation.ref_cnts.has_value() && !observation.ref_cnts->empty() &&
      observation.ref_cnts->front() != 0) {
    return broken(kI10, "ref_cnts", ledger_.holders(), *observation.ref_cnts, world);
  }
  if (observation.keys.has_value() && !observation.keys->empty() &&
      !observation.keys->front().empty()) {
    return broken(kI10, "keys", ledger_.keys(), *observation.keys, world);
  }
  if (!observation.free_queue.has_value()) return std::nullopt;
  const std::vector<BlockId>& queue = *observation.free_queue;
  if (std::find(queue.begin(), queue.end(), kNullBlockId) == queue.end()) return std::nullopt;
  return broken(kI10, "free_queue", ledger_.queue(), queue, world);
}

bool Invariants::is_new_block(const Command& command, const Observation& observation,
                              std::size_t block) const {
  if (!std::holds_alternative<GetNewBlocks>(command) || !observation.blocks.has_value()) {
    return false;
  }
  const std::vector<BlockId>& blocks = *observation.blocks;
  return std::find(blocks.begin(), blocks.end(), block) != blocks.end();
}

bool Invariants::holds_the_unreferenced(const std::vector<BlockId>& free_queue) const {
  std::vector<BlockId> shown = free_queue;
  std::vector<BlockId> expected = ledger_.queue();
  std::sort(shown.begin(), shown.end());
  std::sort(expected.begin(), expected.end());
  return shown == expected;
}

}  // namespace kvfence::block_pool
