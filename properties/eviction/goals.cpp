#include "properties/eviction/goals.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <variant>
#include <vector>

#include "properties/core/invariant_values.h"
#include "properties/eviction/policy_lists.h"

namespace kvfence::eviction {
namespace {

using Keys = std::vector<std::uint32_t>;
using detail::contains;

const Entry* find(const std::vector<Entry>& blocks, std::uint32_t key) {
  const auto at = std::find_if(blocks.begin(), blocks.end(),
                               [key](const Entry& block) { return block.key == key; });
  return at == blocks.end() ? nullptr : &*at;
}

bool is_idle(const Entry& block) { return block.ready && block.readers == 0; }

bool was_evicted(const Observation& after, std::uint32_t key) {
  return std::any_of(after.evicted->begin(), after.evicted->end(),
                     [key](const Victim& victim) { return victim.key == key; });
}

}  // namespace

void Reach::start(const Config& config) {
  is_arc_ = config.policy == to_text(EvictionPolicy::kARC);
  capacity_ = config.capacity;
}

void Reach::count(const Command& command, const Observation& before, const Observation& after,
                  const World&) {
  if (after.error != ErrorCode::kNone) {
    add_error(after.error);
    return;
  }
  add(Reached::kFound, after.found.has_value() && !after.found->empty());
  add(Reached::kEvictFailed, after.success.has_value() && !*after.success);
  if (std::holds_alternative<Touch>(command)) count_target(before, after);
  if (!shows_lists(before) || !shows_lists(after)) return;
  if (const auto* inserted = std::get_if<Insert>(&command)) {
    add(Reached::kGhostInserted,
        contains(*before.b1, inserted->key) || contains(*before.b2, inserted->key));
  } else if (const auto* removed = std::get_if<Remove>(&command)) {
    const Entry* block = find(*before.t1, removed->key);
    if (!block) block = find(*before.t2, removed->key);
    add(Reached::kBusyBlockRemoved, block && !is_idle(*block));
  } else if (const auto* acquired = std::get_if<Acquire>(&command)) {
    const Entry* block = find(*after.t1, acquired->key);
    if (!block) block = find(*after.t2, acquired->key);
    add(Reached::kTwoReaders, block && block->readers == 2);
  } else if (const auto* touched = std::get_if<Touch>(&command)) {
    count_touch(*touched, before, after);
  } else if (const auto* evicted = std::get_if<Evict>(&command)) {
    if (after.evicted.has_value()) {
      count_evict(*evicted, before, after);
    } else {
      count_failed_evict(*evicted, before);
    }
  } else if (std::holds_alternative<Clear>(command)) {
    add(Reached::kCleared, !all_keys(before).empty());
  }
}

void Reach::count_target(const Observation& before, const Observation& after) {
  const double from = before.target_t1_size;
  const double to = after.target_t1_size;
  add(Reached::kTargetFraction, to != from && to != std::floor(to));
  add(Reached::kTargetAtCapacity, to > from && to == capacity_);
  add(Reached::kTargetBackAtZero, from > 0 && to == 0);
}

void Reach::count_touch(const Touch& command, const Observation& before, const Observation& after) {
  add(Reached::kPromoted, after.t2->size() > before.t2->size());
  for (auto at = command.keys.begin(); at != command.keys.end(); ++at) {
    const bool is_repeated =
        std::find(std::next(at), command.keys.end(), *at) != command.keys.end();
    add(Reached::kKeyTouchedTwice, is_repeated && (find(*before.t1, *at) || find(*before.t2, *at)));
    const Entry* recent = find(*before.t1, *at);
    add(Reached::kNotReadyTouched, is_arc_ && recent && !recent->ready);
    add(Reached::kHitInB1, contains(*before.b1, *at));
    add(Reached::kHitInB2, contains(*before.b2, *at));
  }
}

void Reach::count_evict(const Evict& command, const Observation& before, const Observation& after) {
  std::size_t num_from[2] = {0, 0};
  bool busy = false;
  bool is_protected = false;
  for (int list = 0; list < 2; ++list) {
    const std::vector<Entry>& blocks = list == 0 ? *before.t1 : *before.t2;
    std::size_t num_left = 0;
    for (const Entry& block : blocks) num_left += was_evicted(after, block.key);
    num_from[list] = num_left;
    for (const Entry& block : blocks) {
      if (num_left == 0) break;
      if (was_evicted(after, block.key)) {
        --num_left;
      } else if (!is_idle(block)) {
        busy = true;
      } else {
        is_protected |= contains(command.protected_keys, block.key);
      }
    }
  }
  add(Reached::kBusyBlockPassedOver, busy);
  add(Reached::kProtectedBlockPassedOver, is_protected);
  add(Reached::kEvictedFromBothLists, num_from[0] > 0 && num_from[1] > 0);
  add(Reached::kEvictedFromT2BelowTarget,
      num_from[1] > 0 && std::any_of(after.t1->begin(), after.t1->end(), [&](const Entry& block) {
        return is_idle(block) && !contains(command.protected_keys, block.key);
      }));
  add(Reached::kGhostForgotten, is_arc_ && (after.b1->size() < before.b1->size() + num_from[0] ||
                                            after.b2->size() < before.b2->size() + num_from[1]));
}

void Reach::count_failed_evict(const Evict& command, const Observation& before) {
  std::size_t num_eligible = 0;
  for (const auto* blocks : {&*before.t1, &*before.t2}) {
    for (const Entry& block : *blocks) {
      num_eligible += is_idle(block) && !contains(command.protected_keys, block.key);
    }
  }
  add(Reached::kEvictFailedWithIdleT1, num_eligible >= command.num_blocks);
}

}  // namespace kvfence::eviction
