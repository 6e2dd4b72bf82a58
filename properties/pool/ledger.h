#pragma once

/// What a list of commands adds up to on one side: holders, queue, keys, and what the event log
/// owes. The invariants hold an implementation's observations against it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "contract/pool/block_pool.h"
#include "contract/pool/block_pool_target.h"

namespace kvfence::block_pool {

/// By how much the keys in the pool are ahead of an index fed by the events taken so far, hash by
/// hash. Entries at 0 are dropped, so an index that is up to date owes nothing and costs nothing.
class EventDebt {
 public:
  struct Entry {
    std::uint64_t fingerprint = 0;
    BlockHash hash;
    GroupId group = 0;  ///< 0 where events carry no group
    std::int64_t amount = 0;
  };

  void clear() { size_ = 0; }
  void change(BlockHashView hash, GroupId group, std::int64_t by);
  std::int64_t amount(BlockHashView hash, GroupId group) const;

  /// Any entry; null if the index is up to date.
  const Entry* first() const { return size_ == 0 ? nullptr : &entries_[0]; }

 private:
  std::size_t find(std::uint64_t fingerprint, BlockHashView hash, GroupId group) const;

  std::vector<Entry> entries_;  ///< the first size_ count; the others keep their storage
  std::size_t size_ = 0;
};

/// A value: copyable. Cost of each call: linear in the blocks at worst, without allocation once
/// warm.
class Ledger {
 public:
  explicit Ledger(const BlockPoolConfig& config);

  /// Back to a fresh pool.
  void reset();

  /// The code that the contract demands for the command; kNone if it is to be accepted.
  ErrorCode refusal(const Command& command, const World& world);

  /// Takes in an accepted command. Requires: refusal() is kNone. TakeEvents changes nothing here:
  /// see take().
  void apply(const Command& command, const World& world);

  /// Takes in one event. False if it removes a hash that the index does not hold, or if it carries
  /// a group where the rules say no, or none where they say yes.
  bool take(const KVCacheEvent& event);

  /// The first inserted surviving block that carries the key.
  std::optional<BlockId> first_block_with(BlockHashView hash, GroupId group) const;

  /// How many blocks carry the hash; of that group where events carry it.
  std::int64_t num_carrying(BlockHashView hash, GroupId group) const;

  bool only_null_is_referenced() const { return queue_.size() + 1 == holders_.size(); }

  const BlockPoolConfig& config() const { return config_; }
  const std::vector<BlockId>& queue() const { return queue_; }
  const std::vector<std::uint32_t>& holders() const { return holders_; }
  const KeyList& keys() const { return keys_; }
  const EventDebt& debt() const { return debt_; }
  std::uint32_t num_cached_keys() const { return num_cached_keys_; }
  BlockCounts counts() const;
  double usage() const;

 private:
  // One pair an operation that can be refused or changes something.
  ErrorCode refusal_of(const DeclareRequest&, const World&) { return ErrorCode::kNone; }
  ErrorCode refusal_of(const AppendTokens& command, const World& world);
  ErrorCode refusal_of(const GetNewBlocks& command, const World&);
  ErrorCode refusal_of(const GetCachedBlock& command, const World& world);
  ErrorCode refusal_of(const Touch& command, const World&);
  ErrorCode refusal_of(const CacheFullBlocks& command, const World& world);
  ErrorCode refusal_of(const FreeBlocks& command, const World&);
  ErrorCode refusal_of(const EvictBlocks& command, const World&);
  ErrorCode refusal_of(const ResetPrefixCache&, const World&) { return ErrorCode::kNone; }
  ErrorCode refusal_of(const TakeEvents&, const World&) { return ErrorCode::kNone; }

  void apply_one(const DeclareRequest&, const World&) {}
  void apply_one(const AppendTokens&, const World&) {}
  void apply_one(const GetNewBlocks& command, const World&);
  void apply_one(const GetCachedBlock&, const World&) {}
  void apply_one(const Touch& command, const World&);
  void apply_one(const CacheFullBlocks& command, const World& world);
  void apply_one(const FreeBlocks& command, const World&);
  void apply_one(const EvictBlocks& command, const World&);
  void apply_one(const ResetPrefixCache&, const World&);
  void apply_one(const TakeEvents&, const World&) {}

  bool take_one(const BlockStored& event);
  bool take_one(const BlockRemoved& event);
  bool take_one(const AllBlocksCleared&);

  bool is_known(BlockId block) const { return block < holders_.size(); }
  bool has_key(BlockId block) const { return !keys_[block].empty(); }
  bool is_block_size(std::uint32_t block_size) const;
  bool repeats_or_carries_key(const CacheFullBlocks& command);
  void add_key(BlockId block, BlockHashView hash, GroupId group);
  void remove_key(BlockId block);
  GroupId event_group(GroupId group) const { return config_.rules.events_carry_group ? group : 0; }

  BlockPoolConfig config_;
  std::vector<BlockId> queue_;          ///< head to tail
  std::vector<std::uint32_t> holders_;  ///< by block
  KeyList keys_;                        ///< by block; packed, empty for none
  std::vector<std::uint64_t>
      fingerprints_;  ///< by block; of the hash, so that scans seldom read keys
  std::vector<std::uint64_t> inserted_at_;  ///< by block; orders the carriers of a key
  std::uint64_t next_insertion_ = 0;
  std::uint32_t num_cached_ = 0;  ///< queued blocks with a key
  std::uint32_t num_cached_keys_ = 0;
  EventDebt debt_;
  std::vector<std::uint32_t> num_listed_;  ///< by block; scratch, all 0 between calls
  std::vector<BlockId> freed_;             ///< scratch
};

}  // namespace kvfence::block_pool
