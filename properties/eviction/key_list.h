#pragma once

/// Translates between the key numbers of commands and observations and the keys of implementations
/// (contract/offload/offload_key_number.h).

#include <cstdint>
#include <span>
#include <vector>

#include "contract/eviction/cache_policy.h"
#include "contract/eviction/eviction_target.h"
#include "contract/offload/offload_key_number.h"

namespace kvfence {

/// Stands for a key without a number: an implementation that reports one differs from every other.
inline constexpr std::uint32_t kNoSuchNumber = UINT32_MAX;

/// The keys of a command. The views hold until the next call.
class OffloadKeyList {
 public:
  std::span<const OffloadKeyView> of(const std::vector<std::uint32_t>& numbers) {
    keys_.clear();
    for (std::uint32_t number : numbers) keys_.push_back(key_of_number(number));
    views_.assign(keys_.begin(), keys_.end());
    return views_;
  }

 private:
  std::vector<OffloadKey> keys_;
  std::vector<OffloadKeyView> views_;
};

inline std::uint32_t number_of(OffloadKeyView key) {
  return number_of_key(key).value_or(kNoSuchNumber);
}

/// Replaces `out` by the numbers of the keys.
template <class Keys>
void numbers_of(const Keys& keys, std::vector<std::uint32_t>& out) {
  out.clear();
  for (const auto& key : keys) out.push_back(number_of(key));
}

inline eviction::Entry entry_of(std::uint32_t number, const BlockStatus& status) {
  const bool is_ready = status.ref_cnt != kNotReady;
  return {number, status.slot, is_ready,
          is_ready ? static_cast<std::uint32_t>(status.ref_cnt) : std::uint32_t{0}};
}

/// Replaces `out` by the blocks as observations show them.
inline void entries_of(const std::vector<PolicyEntry>& blocks, std::vector<eviction::Entry>& out) {
  out.clear();
  for (const PolicyEntry& block : blocks) {
    out.push_back(entry_of(number_of(block.key), block.status));
  }
}

inline void victims_of(const std::vector<EvictedBlock>& blocks,
                       std::vector<eviction::Victim>& out) {
  out.clear();
  for (const EvictedBlock& block : blocks) out.push_back({number_of(block.key), block.slot});
}

/// Writes a policy into an observation that has the members of eviction::Observation: the target
/// always, the lists if they are asked for. Requires: they are absent.
template <class Observation>
void show_lists(const PolicyLists& lists, bool with_state, Observation& observation) {
  observation.target_t1_size = lists.target_t1_size;
  if (!with_state) return;
  entries_of(lists.t1, observation.t1.emplace());
  entries_of(lists.t2, observation.t2.emplace());
  numbers_of(lists.b1, observation.b1.emplace());
  numbers_of(lists.b2, observation.b2.emplace());
}

}  // namespace kvfence
