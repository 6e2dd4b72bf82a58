#pragma once

/// What a list of commands adds up to in an offloading manager: blocks, slots, lookups counted, and
/// what its events have told. The invariants hold an implementation's observations against it.

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "contract/offload/offload_target.h"
#include "contract/offload/offloading_manager.h"
#include "properties/eviction/ledger.h"

namespace kvfence::offload {

/// What a store that can be has to answer.
struct StorePlan {
  std::vector<std::uint32_t> keys_to_store;
  std::vector<SlotId> slots;
  std::vector<eviction::Entry> victims;
};

/// A value: copyable. Cost of each call: the keys of the command times the blocks, ghosts and
/// counted keys.
class Ledger {
 public:
  explicit Ledger(const OffloadingManagerConfig& config) : config_(config), cache_(config.cache) {}

  /// Back to a fresh manager.
  void reset();

  /// The code that the contract demands for the command; kNone if it is to be accepted.
  ErrorCode refusal(const Command& command) const;

  /// What the store has to answer; nothing if too few blocks can go. Requires: refusal() is kNone
  std::optional<StorePlan> plan(const PrepareStore& command) const;

  /// Takes in an accepted command. Requires: refusal() is kNone. TakeEvents changes nothing here:
  /// see take().
  void apply(const Command& command);

  /// Feeds one event to the index. False if it removes a key that the index does not hold, or tells
  /// of a stored one more often than it became ready.
  bool take(const Event& event);

  /// Those of the keys that were counted often enough, or all of them without a filter.
  std::vector<std::uint32_t> passing(const std::vector<std::uint32_t>& keys) const;

  const OffloadingManagerConfig& config() const { return config_; }
  const eviction::Ledger& cache() const { return cache_; }
  std::uint32_t num_free_slots() const { return config_.cache.capacity - cache_.size(); }

  /// What became ready and was not evicted since: a reset tells nothing.
  const std::set<std::uint32_t>& told() const { return told_; }
  /// What an index fed by the events taken so far holds.
  const std::set<std::uint32_t>& index() const { return index_; }

 private:
  struct Count {
    std::uint32_t key = 0;
    std::uint32_t num_lookups = 0;
  };

  // One for each operation that can be refused or changes something.
  ErrorCode refusal_of(const Lookup&) const;
  ErrorCode refusal_of(const LookupKey&) const;
  ErrorCode refusal_of(const Touch&) const { return ErrorCode::kNone; }
  ErrorCode refusal_of(const PrepareLoad& command) const;
  ErrorCode refusal_of(const CompleteLoad& command) const;
  ErrorCode refusal_of(const PrepareStore& command) const;
  ErrorCode refusal_of(const CompleteStore&) const { return ErrorCode::kNone; }
  ErrorCode refusal_of(const ResetCache&) const;
  ErrorCode refusal_of(const TakeEvents&) const { return ErrorCode::kNone; }

  void apply_one(const Lookup& command);
  void apply_one(const LookupKey& command);
  void apply_one(const Touch& command);
  void apply_one(const PrepareLoad& command);
  void apply_one(const CompleteLoad& command);
  void apply_one(const PrepareStore& command);
  void apply_one(const CompleteStore& command);
  void apply_one(const ResetCache&);
  void apply_one(const TakeEvents&) {}

  bool all_held(const std::vector<std::uint32_t>& keys) const;
  std::vector<std::uint32_t> missing(const std::vector<std::uint32_t>& keys) const;
  void count(std::uint32_t key);

  OffloadingManagerConfig config_;
  eviction::Ledger cache_;
  std::uint32_t num_used_slots_ = 0;
  std::vector<SlotId> freed_slots_;  ///< the last freed is at the end
  std::vector<Count> counts_;        ///< oldest first
  std::set<std::uint32_t> told_;
  std::set<std::uint32_t> index_;
  std::multiset<std::uint32_t> untold_;  ///< became ready, and no event said so yet
};

}  // namespace kvfence::offload
