#pragma once

/// Draws keys for commands about a cache policy: mostly those in the state that a command needs, or
/// absent ones, sometimes any.

#include <cstdint>
#include <vector>

#include "contract/core/lists.h"
#include "contract/eviction/eviction_target.h"
#include "properties/core/invariant_values.h"
#include "properties/draws/choices.h"
#include "properties/eviction/policy_lists.h"

namespace kvfence::eviction {

/// The keys of the blocks and ghosts that a policy showed last, by what can be done with them.
class DrawnKeys {
 public:
  /// So few that some ghosts come back, so many that some do not.
  explicit DrawnKeys(std::uint32_t capacity) : num_keys_(3 * capacity + 3) {}

  /// If the lists are not observed after every command, the last ones are near enough.
  template <class Observation>
  void see(const Observation& now) {
    if (!shows_lists(now)) return;
    held_.clear();
    writing_.clear();
    ready_.clear();
    reading_.clear();
    for (const Entry* block : now.blocks()) {
      held_.push_back(block->key);
      (block->ready ? ready_ : writing_).push_back(block->key);
      if (block->readers > 0) reading_.push_back(block->key);
    }
    ghosts_ = *now.b1;
    ghosts_.insert(ghosts_.end(), now.b2->begin(), now.b2->end());
  }

  std::uint32_t num_keys() const { return num_keys_; }
  const std::vector<std::uint32_t>& held() const { return held_; }
  const std::vector<std::uint32_t>& writing() const { return writing_; }
  const std::vector<std::uint32_t>& ready() const { return ready_; }
  const std::vector<std::uint32_t>& reading() const { return reading_; }
  const std::vector<std::uint32_t>& ghosts() const { return ghosts_; }

  std::uint32_t any(Choices& choices) const { return skewed(choices, num_keys_); }

  /// Mostly one of these, else any.
  std::uint32_t one_of(const std::vector<std::uint32_t>& keys, Choices& choices) const {
    if (keys.empty() || choices.once_in(32)) return any(choices);
    return pick(choices, keys);
  }

  /// A key that is not held, mostly.
  std::uint32_t absent(Choices& choices) const {
    if (!ghosts_.empty() && choices.once_in(3)) return one_of(ghosts_, choices);
    std::uint32_t key = any(choices);
    for (int tries = 0; tries < 4 && is_held(key); ++tries) key = any(choices);
    return key;
  }

  /// Up to `most` of these, in some order, mostly each once. Now and then the list is as long as
  /// that of a whole request, with repeats.
  std::vector<std::uint32_t> some_of(const std::vector<std::uint32_t>& keys, std::uint32_t most,
                                     Choices& choices) const {
    std::uint32_t length = 1 + skewed(choices, most);
    const bool may_repeat = choices.once_in(6);
    if (may_repeat && length == most) length = 4 * most;
    std::vector<std::uint32_t> drawn;
    for (std::uint32_t count = 0; count < length; ++count) {
      const std::uint32_t key = one_of(keys, choices);
      const bool is_again = contains(drawn, key);
      if (may_repeat || !is_again) drawn.push_back(key);
    }
    return drawn;
  }

 private:
  bool is_held(std::uint32_t key) const { return contains(held_, key); }

  std::uint32_t num_keys_;
  std::vector<std::uint32_t> held_;
  std::vector<std::uint32_t> writing_;
  std::vector<std::uint32_t> ready_;
  std::vector<std::uint32_t> reading_;
  std::vector<std::uint32_t> ghosts_;
};

}  // namespace kvfence::eviction
