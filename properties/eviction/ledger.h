#pragma once

/// What a list of commands adds up to in a cache policy: its lists, with keys as numbers. The
/// invariants of both targets that have a policy hold observations against it.

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "contract/eviction/cache_policy.h"
#include "contract/eviction/eviction_target.h"
#include "properties/core/divergence.h"
#include "properties/eviction/policy_lists.h"

namespace kvfence::eviction {

/// A value: copyable. Cost of each call: the keys of the command times the blocks and ghosts.
class Ledger {
 public:
  explicit Ledger(const CachePolicyConfig& config) : config_(config) {}

  /// Back to a fresh policy.
  void clear();

  /// The code that the contract demands for the command; kNone if it is to be accepted.
  ErrorCode refusal(const Command& command) const;

  /// Which blocks an evict lets go, in the order of choice; nothing if so many cannot go.
  ///
  /// Counted, not tried: as many as may go leave T1 until it is smaller than the target, then T2
  /// has to suffice.
  std::optional<std::vector<Entry>> victims(std::uint32_t num_blocks,
                                            const std::vector<std::uint32_t>& protected_keys) const;

  /// Takes in an accepted command. Requires: refusal() is kNone. An evict that cannot be satisfied
  /// changes nothing.
  void apply(const Command& command);

  // The same, one by one. Requires: no refusal
  void insert(std::uint32_t key, SlotId slot);
  void remove(std::uint32_t key);
  void make_ready(std::uint32_t key);
  void acquire(std::uint32_t key);
  void release(std::uint32_t key);
  void touch(const std::vector<std::uint32_t>& keys);
  void evict(const std::vector<Entry>& victims);

  /// Null if the block is not held. The pointer holds until the next change.
  const Entry* find(std::uint32_t key) const;

  const CachePolicyConfig& config() const { return config_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(t1_.size() + t2_.size()); }
  double target_t1_size() const { return target_t1_size_; }
  const std::vector<Entry>& t1() const { return t1_; }
  const std::vector<Entry>& t2() const { return t2_; }
  const std::vector<std::uint32_t>& b1() const { return b1_; }
  const std::vector<std::uint32_t>& b2() const { return b2_; }

 private:
  ErrorCode refusal_of_key(const Command& command, const Entry* block) const;
  /// Requires: the block is held
  Entry& held(std::uint32_t key);
  bool is_arc() const { return config_.policy == EvictionPolicy::kARC; }
  void touch_one(std::uint32_t key);

  CachePolicyConfig config_;
  std::vector<Entry> t1_;  ///< oldest first, like all of them; LRU's list
  std::vector<Entry> t2_;
  std::vector<std::uint32_t> b1_;
  std::vector<std::uint32_t> b2_;
  double target_t1_size_ = 0;
};

inline std::vector<std::uint32_t> keys_of(const std::vector<Entry>& blocks) {
  std::vector<std::uint32_t> keys;
  for (const Entry& block : blocks) keys.push_back(block.key);
  return keys;
}

/// A list that differs from the ledger's. Ghosts have no status.
enum class Differs {
  kBlocks,  ///< T1 or T2: other keys, or in another order
  kStatus,  ///< T1 or T2: the same keys, but a slot, readiness or readers
  kGhosts,  ///< B1 or B2
};

/// The first list that an observation shows otherwise, as report(differs, name, expected, actual)
/// makes a divergence of it; blocks come before their status, and both before ghosts. Requires: the
/// lists are shown.
template <class Observation, class Report>
std::optional<Divergence> compare_lists(const Ledger& ledger, const Observation& observation,
                                        Report&& report) {
  const auto blocks = {std::tuple{"t1", &ledger.t1(), &*observation.t1},
                       std::tuple{"t2", &ledger.t2(), &*observation.t2}};
  for (const auto& [name, expected, actual] : blocks) {
    if (keys_of(*expected) != keys_of(*actual)) {
      return report(Differs::kBlocks, name, *expected, *actual);
    }
  }
  for (const auto& [name, expected, actual] : blocks) {
    if (*expected != *actual) return report(Differs::kStatus, name, *expected, *actual);
  }
  if (ledger.b1() != *observation.b1) {
    return report(Differs::kGhosts, "b1", ledger.b1(), *observation.b1);
  }
  if (ledger.b2() != *observation.b2) {
    return report(Differs::kGhosts, "b2", ledger.b2(), *observation.b2);
  }
  return std::nullopt;
}

}  // namespace kvfence::eviction
