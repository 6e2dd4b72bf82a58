#pragma once

/// A model of the blocks that a cache holds, from commands and answers, and the rules of the lists
/// that show them. Both targets with a cache policy use it.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "contract/core/lists.h"
#include "contract/eviction/eviction_target.h"
#include "properties/core/invariant_values.h"
#include "properties/eviction/policy_lists.h"

namespace kvfence::eviction {

/// A value: copyable. Cost of each call: linear in the blocks and ghosts, of check() their square.
class HeldBlocks {
 public:
  explicit HeldBlocks(std::uint32_t capacity) : capacity_(capacity) {}

  void clear() { blocks_.clear(); }
  std::uint32_t capacity() const { return capacity_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(blocks_.size()); }
  const std::vector<Entry>& blocks() const { return blocks_; }

  /// Null if the block is not held. The pointer holds until the next change.
  Entry* find(std::uint32_t key) {
    const auto at =
        std::ranges::find_if(blocks_, [key](const Entry& block) { return block.key == key; });
    return at == blocks_.end() ? nullptr : &*at;
  }

  /// Held and being written. Requires: not held
  void insert(std::uint32_t key, SlotId slot) { blocks_.push_back({key, slot, false, 0}); }
  void remove(std::uint32_t key) {
    std::erase_if(blocks_, [key](const Entry& block) { return block.key == key; });
  }

  // broken: of the target's table (broken_rule.h), which has the rules that are named here.

  /// Removes victims. Wrong ones are in use, protected, not held, listed twice, or of another slot.
  template <class BrokenRules>
  void evict(const std::vector<Victim>& victims, const std::vector<std::uint32_t>& protected_keys,
             const BrokenRules& broken) {
    for (const Victim& victim : victims) {
      const Entry* block = find(victim.key);
      const bool may_go = block && block->ready && block->readers == 0 &&
                          block->slot == victim.slot && !contains(protected_keys, victim.key);
      if (!may_go) {
        broken("nothing_in_use_is_evicted", "evicted",
               kvfence::detail::phrase("idle blocks that may be evicted, each once"), victims);
      }
      remove(victim.key);
    }
  }

  /// Checks numbers, and the lists if they are shown.
  template <class Observation, class BrokenRules>
  void check(const Observation& shown, const BrokenRules& broken) {
    if (shows_lists(shown) && kvfence::detail::has_repeats(all_keys(shown))) {
      broken("a_key_has_one_place", "t1", "each key in one list, once", all_keys(shown));
    }
    if (shown.size != size() || size() > capacity_) {
      broken("sizes_are_bounded", "size", std::min(size(), capacity_), shown.size);
    }
    if (!(shown.target_t1_size >= 0 && shown.target_t1_size <= capacity_)) {
      broken("sizes_are_bounded", "target_t1_size", "at least 0 and at most the capacity",
             shown.target_t1_size);
    }
    if (!shows_lists(shown)) return;
    for (const auto& [name, ghosts] : {std::pair{"b1", &*shown.b1}, std::pair{"b2", &*shown.b2}}) {
      if (ghosts->size() <= capacity_) continue;
      broken("sizes_are_bounded", name, "at most as many as the capacity", *ghosts);
    }
    for (const auto& [name, blocks] : {std::pair{"t1", &*shown.t1}, std::pair{"t2", &*shown.t2}}) {
      const auto is_right = [&](const Entry& block) {
        const Entry* held = find(block.key);
        return held && *held == block;
      };
      if (std::ranges::all_of(*blocks, is_right)) continue;
      std::vector<Entry> right;
      for (const Entry& block : *blocks) {
        if (const Entry* held = find(block.key)) right.push_back(*held);
      }
      broken("blocks_are_held_as_asked", name, right, *blocks);
    }
    if (shown.t1->size() + shown.t2->size() == blocks_.size()) return;
    broken("blocks_are_held_as_asked", "t1", "every block that is held", *shown.t1);
  }

 private:
  std::uint32_t capacity_;
  std::vector<Entry> blocks_;
};

}  // namespace kvfence::eviction
