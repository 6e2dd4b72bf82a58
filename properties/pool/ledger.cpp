#include "properties/pool/ledger.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <variant>

namespace kvfence::block_pool {
namespace {

// The end of a merged hash depends on everything before it; its beginning does not.
std::uint64_t fingerprint_of(BlockHashView hash) {
  std::uint64_t fingerprint = 0;
  const std::size_t size = std::min(hash.size(), sizeof fingerprint);
  std::memcpy(&fingerprint, hash.data() + (hash.size() - size), size);
  return fingerprint + hash.size();
}

bool is_key_of(const BlockHash& key, BlockHashView hash) {
  return key.size() == hash.size() + kGroupIdBytes && get_block_hash(key) == hash;
}

bool is_passed_over(const CacheFullBlocks& command, std::size_t index) {
  if (command.blocks[index] == kNullBlockId) return true;
  return command.block_mask && !(*command.block_mask)[index - command.num_cached_blocks];
}

}  // namespace

std::size_t EventDebt::find(std::uint64_t fingerprint, BlockHashView hash, GroupId group) const {
  for (std::size_t index = 0; index < size_; ++index) {
    const Entry& entry = entries_[index];
    if (entry.fingerprint == fingerprint && entry.group == group && entry.hash == hash)
      return index;
  }
  return size_;
}

void EventDebt::change(BlockHashView hash, GroupId group, std::int64_t by) {
  const std::uint64_t fingerprint = fingerprint_of(hash);
  const std::size_t at = find(fingerprint, hash, group);
  if (at == size_) {
    if (size_ == entries_.size()) entries_.emplace_back();
    Entry& entry = entries_[size_++];
    entry.fingerprint = fingerprint;
    entry.hash.assign(hash);
    entry.group = group;
    entry.amount = by;
    return;
  }
  entries_[at].amount += by;
  if (entries_[at].amount == 0) std::swap(entries_[at], entries_[--size_]);
}

std::int64_t EventDebt::amount(BlockHashView hash, GroupId group) const {
  const std::size_t at = find(fingerprint_of(hash), hash, group);
  return at == size_ ? 0 : entries_[at].amount;
}

Ledger::Ledger(const BlockPoolConfig& config)
    : config_(config),
      holders_(config.num_gpu_blocks),
      keys_(config.num_gpu_blocks),
      fingerprints_(config.num_gpu_blocks),
      inserted_at_(config.num_gpu_blocks),
      num_listed_(config.num_gpu_blocks) {
  reset();
}

void Ledger::reset() {
  queue_.resize(holders_.size() - 1);
  std::iota(queue_.begin(), queue_.end(), kNullBlockId + 1);
  std::fill(holders_.begin(), holders_.end(), 0);
  for (BlockHash& key : keys_) key.clear();
  std::fill(fingerprints_.begin(), fingerprints_.end(), 0);
  next_insertion_ = 0;
  num_cached_ = 0;
  num_cached_keys_ = 0;
  debt_.clear();
}

ErrorCode Ledger::refusal(const Command& command, const World& world) {
  return std::visit([&](const auto& alternative) { return refusal_of(alternative, world); },
                    command);
}

ErrorCode Ledger::refusal_of(const AppendTokens& command, const World& world) {
  return world.requests().find(command.request) ? ErrorCode::kNone : ErrorCode::kUnknownRequest;
}

ErrorCode Ledger::refusal_of(const GetNewBlocks& command, const World&) {
  return command.num_blocks > queue_.size() ? ErrorCode::kNoFreeBlocks : ErrorCode::kNone;
}

ErrorCode Ledger::refusal_of(const GetCachedBlock& command, const World& world) {
  const Request* request = world.requests().find(command.request);
  if (!request) return ErrorCode::kUnknownRequest;
  if (!is_block_size(command.block_size)) return ErrorCode::kBadBlockSize;
  const bool has_hash = command.index < request->block_hashes(command.block_size).size();
  return has_hash ? ErrorCode::kNone : ErrorCode::kMissingHash;
}

ErrorCode Ledger::refusal_of(const Touch& command, const World&) {
  for (BlockId block : command.blocks) {
    if (!is_known(block)) return ErrorCode::kUnknownBlock;
  }
  return ErrorCode::kNone;
}

ErrorCode Ledger::refusal_of(const CacheFullBlocks& command, const World& world) {
  const Request* request = world.requests().find(command.request);
  if (!request) return ErrorCode::kUnknownRequest;
  if (command.block_mask && !config_.rules.cache_full_blocks_mask) return ErrorCode::kNotInProfile;
  if (command.num_cached_blocks >= command.num_full_blocks) return ErrorCode::kNone;
  if (!config_.enable_caching) return ErrorCode::kCachingDisabled;
  if (!is_block_size(command.block_size)) return ErrorCode::kBadBlockSize;
  if (command.num_full_blocks > command.blocks.size()) return ErrorCode::kBadRange;
  const std::size_t range = command.num_full_blocks - command.num_cached_blocks;
  if (command.block_mask && command.block_mask->size() != range) return ErrorCode::kBadMask;
  if (command.num_full_blocks > request->block_hashes(command.block_size).size()) {
    return ErrorCode::kMissingHash;
  }
  for (std::size_t index = command.num_cached_blocks; index < command.num_full_blocks; ++index) {
    if (!is_known(command.blocks[index])) return ErrorCode::kUnknownBlock;
  }
  return repeats_or_carries_key(command) ? ErrorCode::kAlreadyHashed : ErrorCode::kNone;
}

ErrorCode Ledger::refusal_of(const FreeBlocks& command, const World&) {
  if (command.prepend && !config_.rules.free_blocks_prepend) return ErrorCode::kNotInProfile;
  for (BlockId block : command.blocks) {
    if (!is_known(block)) return ErrorCode::kUnknownBlock;
  }
  for (BlockId block : command.blocks) ++num_listed_[block];
  bool is_double = false;
  for (BlockId block : command.blocks) {
    if (block == kNullBlockId) continue;
    const std::uint32_t listed = num_listed_[block];
    is_double = is_double || listed > holders_[block] || (listed > 1 && listed == holders_[block]);
  }
  for (BlockId block : command.blocks) num_listed_[block] = 0;
  return is_double ? ErrorCode::kDoubleFree : ErrorCode::kNone;
}

ErrorCode Ledger::refusal_of(const EvictBlocks& command, const World&) {
  for (BlockId block : command.blocks) {
    if (!is_known(block)) return ErrorCode::kUnknownBlock;
  }
  return ErrorCode::kNone;
}

void Ledger::apply(const Command& command, const World& world) {
  std::visit([&](const auto& alternative) { apply_one(alternative, world); }, command);
}

void Ledger::apply_one(const GetNewBlocks& command, const World&) {
  const auto end = queue_.begin() + command.num_blocks;
  for (auto block = queue_.begin(); block != end; ++block) {
    if (has_key(*block)) remove_key(*block);
    holders_[*block] = 1;
  }
  queue_.erase(queue_.begin(), end);
}

void Ledger::apply_one(const Touch& command, const World&) {
  for (BlockId block : command.blocks) {
    if (block == kNullBlockId) continue;
    if (holders_[block]++ != 0) continue;
    queue_.erase(std::find(queue_.begin(), queue_.end(), block));
    if (has_key(block)) --num_cached_;
  }
}

void Ledger::apply_one(const CacheFullBlocks& command, const World& world) {
  if (command.num_cached_blocks >= command.num_full_blocks) return;
  const BlockHashListView hashes =
      world.requests().find(command.request)->block_hashes(command.block_size);
  for (std::size_t index = command.num_cached_blocks; index < command.num_full_blocks; ++index) {
    if (is_passed_over(command, index)) continue;
    add_key(command.blocks[index], hashes[index], command.group);
  }
}

void Ledger::apply_one(const FreeBlocks& command, const World&) {
  freed_.clear();
  for (BlockId block : command.blocks) {
    if (block == kNullBlockId) continue;
    // A block listed twice never reaches 0 here (kDoubleFree), so one pass does for the contract's
    // two.
    if (--holders_[block] != 0) continue;
    freed_.push_back(block);
    if (has_key(block)) ++num_cached_;
  }
  queue_.insert(command.prepend ? queue_.begin() : queue_.end(), freed_.begin(), freed_.end());
}

void Ledger::apply_one(const EvictBlocks& command, const World&) {
  for (BlockId block : command.blocks) {
    if (has_key(block)) remove_key(block);
  }
}

void Ledger::apply_one(const ResetPrefixCache&, const World&) {
  if (!only_null_is_referenced()) return;
  for (BlockId block = 0; block < keys_.size(); ++block) {
    if (has_key(block)) remove_key(block);
  }
}

bool Ledger::take(const KVCacheEvent& event) {
  return std::visit([&](const auto& alternative) { return take_one(alternative); }, event);
}

bool Ledger::take_one(const BlockStored& event) {
  if (event.group_idx.has_value() != config_.rules.events_carry_group) return false;
  for (const BlockHash& hash : event.block_hashes)
    debt_.change(hash, event.group_idx.value_or(0), -1);
  return true;
}

bool Ledger::take_one(const BlockRemoved& event) {
  if (event.group_idx.has_value() != config_.rules.events_carry_group) return false;
  const GroupId group = event.group_idx.value_or(0);
  const std::int64_t indexed =
      num_carrying(event.block_hash, group) - debt_.amount(event.block_hash, group);
  if (indexed <= 0) return false;
  debt_.change(event.block_hash, group, 1);
  return true;
}

// An empty index is behind by every key in the pool.
bool Ledger::take_one(const AllBlocksCleared&) {
  debt_.clear();
  for (const BlockHash& key : keys_) {
    if (!key.empty()) debt_.change(get_block_hash(key), event_group(get_group_id(key)), 1);
  }
  return true;
}

std::optional<BlockId> Ledger::first_block_with(BlockHashView hash, GroupId group) const {
  const std::uint64_t fingerprint = fingerprint_of(hash);
  std::optional<BlockId> first;
  for (BlockId block = 0; block < keys_.size(); ++block) {
    if (fingerprints_[block] != fingerprint || !is_key_of(keys_[block], hash)) continue;
    if (get_group_id(keys_[block]) != group) continue;
    if (!first || inserted_at_[block] < inserted_at_[*first]) first = block;
  }
  return first;
}

std::int64_t Ledger::num_carrying(BlockHashView hash, GroupId group) const {
  const std::uint64_t fingerprint = fingerprint_of(hash);
  std::int64_t number = 0;
  for (BlockId block = 0; block < keys_.size(); ++block) {
    if (fingerprints_[block] != fingerprint || !is_key_of(keys_[block], hash)) continue;
    if (event_group(get_group_id(keys_[block])) == group) ++number;
  }
  return number;
}

BlockCounts Ledger::counts() const {
  const auto num_free = static_cast<std::uint32_t>(queue_.size());
  return {num_free - num_cached_, num_cached_, config_.num_gpu_blocks - num_free};
}

double Ledger::usage() const {
  if (config_.num_gpu_blocks == 1) return 0.0;
  return 1.0 - static_cast<double>(queue_.size()) / static_cast<double>(config_.num_gpu_blocks - 1);
}

bool Ledger::is_block_size(std::uint32_t block_size) const {
  return block_size != 0 && block_size % config_.hash.hash_block_size == 0 &&
         block_size <= config_.max_block_size;
}

bool Ledger::repeats_or_carries_key(const CacheFullBlocks& command) {
  bool found = false;
  for (std::size_t index = command.num_cached_blocks; index < command.num_full_blocks; ++index) {
    if (is_passed_over(command, index)) continue;
    const BlockId block = command.blocks[index];
    found = found || has_key(block) || num_listed_[block]++ != 0;
  }
  for (std::size_t index = command.num_cached_blocks; index < command.num_full_blocks; ++index) {
    num_listed_[command.blocks[index]] = 0;
  }
  return found;
}

void Ledger::add_key(BlockId block, BlockHashView hash, GroupId group) {
  if (!first_block_with(hash, group)) ++num_cached_keys_;
  BlockHash& key = keys_[block];
  key.assign(hash);
  for (int shift = 24; shift >= 0; shift -= 8) key.push_back(static_cast<char>(group >> shift));
  fingerprints_[block] = fingerprint_of(hash);
  inserted_at_[block] = next_insertion_++;
  if (holders_[block] == 0) ++num_cached_;
  if (config_.enable_kv_cache_events) debt_.change(hash, event_group(group), 1);
}

void Ledger::remove_key(BlockId block) {
  BlockHash& key = keys_[block];
  const BlockHashView hash = get_block_hash(key);
  const GroupId group = get_group_id(key);
  fingerprints_[block] = 0;
  if (config_.enable_kv_cache_events) debt_.change(hash, event_group(group), -1);
  if (holders_[block] == 0) --num_cached_;
  const std::uint64_t fingerprint = fingerprint_of(hash);
  bool has_duplicate = false;
  for (BlockId other = 0; other < keys_.size() && !has_duplicate; ++other) {
    has_duplicate = other != block && fingerprints_[other] == fingerprint && keys_[other] == key;
  }
  if (!has_duplicate) --num_cached_keys_;
  key.clear();
}

}  // namespace kvfence::block_pool
