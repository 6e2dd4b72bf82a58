/// Coverage goals of target offload: a green suite in which no store had to evict has shown nothing
/// about eviction.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "contract/core/lists.h"
#include "contract/offload/offload_target.h"
#include "properties/core/goals.h"
#include "properties/core/invariant_values.h"
#include "properties/eviction/policy_lists.h"
#include "properties/targets/rooms.h"

namespace kvfence::offload {
namespace {

constexpr Goal kGoals[] = {
    {"hit", "a lookup found a block that can be read"},
    {"lookup_ended_by_a_write", "a lookup of several keys ended at a block that is being written"},
    {"pending", "a lookup of one key found it being written"},
    {"nothing_to_store", "all keys of a store were held"},
    {"partly_held", "some keys of a store were held, some not"},
    {"ghost_stored", "a stored key was a ghost"},
    {"store_evicted", "a store evicted blocks"},
    {"store_failed", "too few blocks could be evicted for a store"},
    {"store_failed_for_its_own_keys",
     "enough blocks were idle for a store that failed, but some are its own"},
    {"store_failed_with_idle_t1",
     "ARC refused a store although enough blocks are idle and not its own"},
    {"freed_slot_reused", "a store got a slot that an ended store had freed"},
    {"filter_kept_back", "a key was not stored because of too few lookups"},
    {"filter_let_pass", "a key was stored with a filter"},
    {"store_ended_twice", "a store ended for a block that is ready"},
    {"failed_store_forgotten", "a failed store forgot a block"},
    {"two_loads", "two loads read a block"},
    {"load_of_one_key_twice", "a load named a key twice"},
    {"promoted", "a touched block went from T1 to T2"},
    {"ghost_touched", "a touched ghost moved the target"},
    {"reset", "a reset forgot blocks"},
    {"stored_event", "an event reported stored blocks"},
    {"removed_event", "an event reported removed blocks"},
};

using Keys = std::vector<std::uint32_t>;
using eviction::Entry;
using eviction::find_block;
using eviction::shows_lists;

class Counter : public GoalCounter<OffloadTarget, kGoals> {
 public:
  using GoalCounter::GoalCounter;
  void count(const Lookup& command) {
    if (!after().num_hits.has_value()) return;
    add("hit", *after().num_hits > 0);
    if (!shows_lists(before()) || *after().num_hits >= command.keys.size()) return;
    const Entry* block = find_block(before(), command.keys[*after().num_hits]);
    add("lookup_ended_by_a_write", block && !block->ready);
  }

  void count(const LookupKey&) {
    if (!after().result.has_value()) return;
    add("hit", *after().result == LookupResult::kHit);
    add("pending", *after().result == LookupResult::kPending);
  }

  void count(const Touch&) {
    add("ghost_touched", after().target_t1_size != before().target_t1_size);
    if (!shows_lists(before()) || !shows_lists(after())) return;
    add("promoted", after().t2->size() > before().t2->size());
  }

  void count(const PrepareLoad& command) {
    const bool is_repeated = detail::has_repeats(command.keys);
    add("load_of_one_key_twice", is_repeated);
    if (is_repeated || !shows_lists(after())) return;
    add("two_loads", std::ranges::any_of(command.keys, [&](std::uint32_t key) {
          const Entry* block = find_block(after(), key);
          return block && block->readers > 1;
        }));
  }

  void count(const PrepareStore& command) {
    if (!after().stored.has_value()) return;
    add("store_failed", !*after().stored);
    if (!*after().stored) {
      if (shows_lists(before())) count_failed_store(command);
      return;
    }
    const Keys& to_store = *after().keys_to_store;
    add("store_evicted", !after().evicted->empty());
    add("filter_let_pass", has_filter_ && !to_store.empty());
    if (!shows_lists(before())) return;
    std::size_t num_held = 0;
    for (std::uint32_t key : command.keys) num_held += find_block(before(), key) != nullptr;
    add("nothing_to_store", num_held > 0 && num_held == command.keys.size());
    add("partly_held", num_held > 0 && !to_store.empty());
    add("filter_kept_back", num_held + to_store.size() < command.keys.size());
    add("ghost_stored", std::ranges::any_of(to_store, [&](std::uint32_t key) {
          return contains(*before().b1, key) || contains(*before().b2, key);
        }));
    // If nothing was evicted, a slot below a held one was freed before.
    std::size_t num_below = 0;
    SlotId first = 0;
    for (SlotId slot : *after().slots) first = std::max(first, slot);
    for (const Entry* block : before().blocks()) num_below += block->slot > first;
    add("freed_slot_reused", after().evicted->empty() && !to_store.empty() && num_below > 0);
  }

  void count(const CompleteStore& command) {
    add("failed_store_forgotten", !command.success && after().size < before().size);
    if (!shows_lists(before())) return;
    add("store_ended_twice", std::ranges::any_of(command.keys, [&](std::uint32_t key) {
          const Entry* block = find_block(before(), key);
          return block && block->ready;
        }));
  }

  void count(const ResetCache&) { add("reset", before().size > 0); }

  void count(const TakeEvents&) {
    if (!after().events.has_value()) return;
    for (const Event& event : *after().events) {
      add(event.removed ? Name("removed_event") : Name("stored_event"));
    }
  }

 private:
  void count_failed_store(const PrepareStore& command) {
    std::size_t num_idle = 0;
    std::size_t num_own = 0;
    std::size_t num_held = 0;
    for (std::uint32_t key : command.keys) num_held += find_block(before(), key) != nullptr;
    for (const Entry* block : before().blocks()) {
      if (!block->ready || block->readers > 0) continue;
      ++num_idle;
      num_own += contains(command.keys, block->key);
    }
    // With a filter the observation does not show which keys had to be stored.
    if (has_filter_) return;
    const std::size_t num_missing = command.keys.size() - num_held - before().num_free_slots;
    const bool enough_of_others = num_idle - num_own >= num_missing;
    add("store_failed_for_its_own_keys", !enough_of_others && num_idle >= num_missing);
    add("store_failed_with_idle_t1", enough_of_others);
  }

  const bool has_filter_ = config().store_threshold >= 2;
};

}  // namespace

GoalSuite goals() { return goal_suite<OffloadTarget, kGoals, Counter>(); }

}  // namespace kvfence::offload
