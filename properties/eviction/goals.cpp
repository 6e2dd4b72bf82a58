/// Coverage goals of target eviction: a green suite in which the target of ARC never moved has
/// shown nothing about ARC.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <variant>
#include <vector>

#include "contract/core/lists.h"
#include "contract/eviction/eviction_target.h"
#include "properties/core/goals.h"
#include "properties/core/invariant_values.h"
#include "properties/eviction/policy_lists.h"
#include "properties/targets/rooms.h"

namespace kvfence::eviction {
namespace {

constexpr Goal kGoals[] = {
    {"found", "a get found a block"},
    {"ghost_inserted", "an inserted key was a ghost"},
    {"busy_block_removed", "a block was removed while it was written or read"},
    {"two_readers", "a block was acquired by a second reader"},
    {"promoted", "a touched block went from T1 to T2"},
    {"not_ready_touched", "ARC touched a block that is being written"},
    {"key_touched_twice", "one call touched a block twice"},
    {"hit_in_b1", "a ghost of T1 was touched"},
    {"hit_in_b2", "a ghost of T2 was touched"},
    {"target_at_capacity", "the target rose to the capacity"},
    {"target_back_at_zero", "the target fell to 0"},
    {"target_fraction", "the target was not a whole number"},
    {"busy_block_passed_over",
     "a victim was newer than a block of its list that is written or read"},
    {"protected_block_passed_over",
     "a victim was newer than an idle block of its list that is protected"},
    {"evicted_from_both_lists", "one call evicted blocks of T1 and of T2"},
    {"evicted_from_t2_below_target",
     "a block of T2 was evicted although T1, below its target, had an idle one"},
    {"ghost_forgotten", "an evict dropped the oldest ghost"},
    {"evict_failed", "too few blocks could be evicted"},
    {"evict_failed_with_idle_t1", "ARC refused although enough blocks are idle and unprotected"},
    {"cleared", "blocks or ghosts were cleared"},
};

using Keys = std::vector<std::uint32_t>;

bool is_idle(const Entry& block) { return block.ready && block.readers == 0; }

bool was_evicted(const Observation& after, std::uint32_t key) {
  return std::ranges::any_of(*after.evicted,
                             [key](const Victim& victim) { return victim.key == key; });
}

class Counter : public GoalCounter<EvictionTarget, kGoals> {
 public:
  using GoalCounter::GoalCounter;

  void count_accepted(const Command& command) {
    add("found", after().found.has_value() && !after().found->empty());
    add("evict_failed", after().success.has_value() && !*after().success);
    if (std::holds_alternative<Touch>(command)) count_target();
    if (!shows_lists(before()) || !shows_lists(after())) return;
    if (const auto* inserted = std::get_if<Insert>(&command)) {
      add("ghost_inserted",
          contains(*before().b1, inserted->key) || contains(*before().b2, inserted->key));
    } else if (const auto* removed = std::get_if<Remove>(&command)) {
      const Entry* block = find_block(before(), removed->key);
      add("busy_block_removed", block && !is_idle(*block));
    } else if (const auto* acquired = std::get_if<Acquire>(&command)) {
      const Entry* block = find_block(after(), acquired->key);
      add("two_readers", block && block->readers == 2);
    } else if (const auto* touched = std::get_if<Touch>(&command)) {
      count_touch(*touched);
    } else if (const auto* evicted = std::get_if<Evict>(&command)) {
      if (after().evicted.has_value()) {
        count_evict(*evicted);
      } else {
        count_failed_evict(*evicted);
      }
    } else if (std::holds_alternative<Clear>(command)) {
      add("cleared", !all_keys(before()).empty());
    }
  }

 private:
  void count_target() {
    const double from = before().target_t1_size;
    const double to = after().target_t1_size;
    add("target_fraction", to != from && to != std::floor(to));
    add("target_at_capacity", to > from && to == capacity_);
    add("target_back_at_zero", from > 0 && to == 0);
  }

  void count_touch(const Touch& command) {
    add("promoted", after().t2->size() > before().t2->size());
    for (auto at = command.keys.begin(); at != command.keys.end(); ++at) {
      const bool is_repeated =
          std::find(std::next(at), command.keys.end(), *at) != command.keys.end();
      add("key_touched_twice", is_repeated && find_block(before(), *at));
      const Entry* recent = find_block(*before().t1, *at);
      add("not_ready_touched", is_arc_ && recent && !recent->ready);
      add("hit_in_b1", contains(*before().b1, *at));
      add("hit_in_b2", contains(*before().b2, *at));
    }
  }

  void count_evict(const Evict& command) {
    std::size_t num_from[2] = {0, 0};
    bool busy = false;
    bool is_protected = false;
    for (int list = 0; list < 2; ++list) {
      const std::vector<Entry>& blocks = list == 0 ? *before().t1 : *before().t2;
      std::size_t num_left = 0;
      for (const Entry& block : blocks) num_left += was_evicted(after(), block.key);
      num_from[list] = num_left;
      for (const Entry& block : blocks) {
        if (num_left == 0) break;
        if (was_evicted(after(), block.key)) {
          --num_left;
        } else if (!is_idle(block)) {
          busy = true;
        } else {
          is_protected |= contains(command.protected_keys, block.key);
        }
      }
    }
    add("busy_block_passed_over", busy);
    add("protected_block_passed_over", is_protected);
    add("evicted_from_both_lists", num_from[0] > 0 && num_from[1] > 0);
    add("evicted_from_t2_below_target",
        num_from[1] > 0 && std::ranges::any_of(*after().t1, [&](const Entry& block) {
          return is_idle(block) && !contains(command.protected_keys, block.key);
        }));
    add("ghost_forgotten", is_arc_ && (after().b1->size() < before().b1->size() + num_from[0] ||
                                       after().b2->size() < before().b2->size() + num_from[1]));
  }

  void count_failed_evict(const Evict& command) {
    std::size_t num_eligible = 0;
    for (const Entry* block : before().blocks()) {
      num_eligible += is_idle(*block) && !contains(command.protected_keys, block->key);
    }
    add("evict_failed_with_idle_t1", num_eligible >= command.num_blocks);
  }

  const bool is_arc_ = config().policy == EvictionPolicy::kARC;
  const double capacity_ = config().capacity;
};

}  // namespace

GoalSuite goals() { return goal_suite<EvictionTarget, kGoals, Counter>(); }

}  // namespace kvfence::eviction
