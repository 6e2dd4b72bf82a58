#include "properties/offload/goals.h"

#include <algorithm>
#include <cstddef>
#include <variant>
#include <vector>

#include "properties/core/invariant_values.h"
#include "properties/eviction/policy_lists.h"

namespace kvfence::offload {
namespace {

using Keys = std::vector<std::uint32_t>;
using detail::contains;
using eviction::Entry;
using eviction::shows_lists;

/// Null if the block is not held. Requires: the lists are shown.
const Entry* find(const Observation& shown, std::uint32_t key) {
  for (const auto* blocks : {&*shown.t1, &*shown.t2}) {
    for (const Entry& block : *blocks) {
      if (block.key == key) return &block;
    }
  }
  return nullptr;
}

}  // namespace

void Reach::count(const Command& command, const Observation& before, const Observation& after,
                  const World&) {
  if (after.error != ErrorCode::kNone) {
    add_error(after.error);
    return;
  }
  std::visit([&](const auto& alternative) { count_accepted(alternative, before, after); }, command);
}

void Reach::count_accepted(const Lookup& command, const Observation& before,
                           const Observation& after) {
  if (!after.num_hits.has_value()) return;
  add(Reached::kHit, *after.num_hits > 0);
  if (!shows_lists(before) || *after.num_hits >= command.keys.size()) return;
  const Entry* block = find(before, command.keys[*after.num_hits]);
  add(Reached::kLookupEndedByAWrite, block && !block->ready);
}

void Reach::count_accepted(const LookupKey&, const Observation&, const Observation& after) {
  if (!after.result.has_value()) return;
  add(Reached::kHit, *after.result == LookupResult::kHit);
  add(Reached::kPending, *after.result == LookupResult::kPending);
}

void Reach::count_accepted(const Touch&, const Observation& before, const Observation& after) {
  add(Reached::kGhostTouched, after.target_t1_size != before.target_t1_size);
  if (!shows_lists(before) || !shows_lists(after)) return;
  add(Reached::kPromoted, after.t2->size() > before.t2->size());
}

void Reach::count_accepted(const PrepareLoad& command, const Observation&,
                           const Observation& after) {
  Keys keys = command.keys;
  std::sort(keys.begin(), keys.end());
  const bool is_repeated = std::adjacent_find(keys.begin(), keys.end()) != keys.end();
  add(Reached::kLoadOfOneKeyTwice, is_repeated);
  if (is_repeated || !shows_lists(after)) return;
  add(Reached::kTwoLoads, std::any_of(keys.begin(), keys.end(), [&](std::uint32_t key) {
        const Entry* block = find(after, key);
        return block && block->readers > 1;
      }));
}

void Reach::count_accepted(const PrepareStore& command, const Observation& before,
                           const Observation& after) {
  if (!after.stored.has_value()) return;
  add(Reached::kStoreFailed, !*after.stored);
  if (!*after.stored) {
    if (shows_lists(before)) count_failed_store(command, before);
    return;
  }
  const Keys& to_store = *after.keys_to_store;
  add(Reached::kStoreEvicted, !after.evicted->empty());
  add(Reached::kFilterLetPass, has_filter_ && !to_store.empty());
  if (!shows_lists(before)) return;
  std::size_t num_held = 0;
  for (std::uint32_t key : command.keys) num_held += find(before, key) != nullptr;
  add(Reached::kNothingToStore, num_held > 0 && num_held == command.keys.size());
  add(Reached::kPartlyHeld, num_held > 0 && !to_store.empty());
  add(Reached::kFilterKeptBack, num_held + to_store.size() < command.keys.size());
  add(Reached::kGhostStored, std::any_of(to_store.begin(), to_store.end(), [&](std::uint32_t key) {
        return contains(*before.b1, key) || contains(*before.b2, key);
      }));
  // Without an eviction a slot below one that is held was freed before.
  std::size_t num_below = 0;
  SlotId first = 0;
  for (SlotId slot : *after.slots) first = std::max(first, slot);
  for (const auto* blocks : {&*before.t1, &*before.t2}) {
    for (const Entry& block : *blocks) num_below += block.slot > first;
  }
  add(Reached::kFreedSlotReused, after.evicted->empty() && !to_store.empty() && num_below > 0);
}

void Reach::count_failed_store(const PrepareStore& command, const Observation& before) {
  std::size_t num_idle = 0;
  std::size_t num_own = 0;
  std::size_t num_held = 0;
  for (std::uint32_t key : command.keys) num_held += find(before, key) != nullptr;
  for (const auto* blocks : {&*before.t1, &*before.t2}) {
    for (const Entry& block : *blocks) {
      if (!block.ready || block.readers > 0) continue;
      ++num_idle;
      num_own += contains(command.keys, block.key);
    }
  }
  // With a filter it is not seen which keys had to be stored.
  if (has_filter_) return;
  const std::size_t num_missing = command.keys.size() - num_held - before.num_free_slots;
  const bool enough_of_others = num_idle - num_own >= num_missing;
  add(Reached::kStoreFailedForItsOwnKeys, !enough_of_others && num_idle >= num_missing);
  add(Reached::kStoreFailedWithIdleT1, enough_of_others);
}

void Reach::count_accepted(const CompleteStore& command, const Observation& before,
                           const Observation& after) {
  add(Reached::kFailedStoreForgotten, !command.success && after.size < before.size);
  if (!shows_lists(before)) return;
  add(Reached::kStoreEndedTwice,
      std::any_of(command.keys.begin(), command.keys.end(), [&](std::uint32_t key) {
        const Entry* block = find(before, key);
        return block && block->ready;
      }));
}

void Reach::count_accepted(const ResetCache&, const Observation& before, const Observation&) {
  add(Reached::kReset, before.size > 0);
}

void Reach::count_accepted(const TakeEvents&, const Observation&, const Observation& after) {
  if (!after.events.has_value()) return;
  for (const Event& event : *after.events) {
    add(event.removed ? Reached::kRemovedEvent : Reached::kStoredEvent);
  }
}

}  // namespace kvfence::offload
