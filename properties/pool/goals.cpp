#include "properties/pool/goals.h"

#include <algorithm>
#include <optional>
#include <variant>
#include <vector>

#include "properties/core/invariant_values.h"
#include "properties/pool/rules.h"

namespace kvfence::block_pool {
namespace {

using detail::contains;

/// The hash that a lookup asks for; nothing where it has none and should have been refused.
std::optional<BlockHashView> hash_of(const GetCachedBlock& command, const World& world) {
  const Request* request = world.requests().find(command.request);
  if (!request || command.block_size < world.requests().config().hash_block_size) {
    return std::nullopt;
  }
  const BlockHashListView hashes = request->block_hashes(command.block_size);
  if (command.index >= hashes.size()) return std::nullopt;
  return hashes[command.index];
}

/// Whether any block carries the hash in that group.
bool is_carried(const std::vector<BlockHash>& keys, BlockHashView hash, GroupId group) {
  return std::any_of(keys.begin(), keys.end(),
                     [&](const BlockHash& key) { return carries(key, hash, group); });
}

}  // namespace

void Reach::count(const Command& command, const Observation& before, const Observation& after,
                  const World& world) {
  if (after.error != ErrorCode::kNone) {
    add_error(after.error);
    return;
  }
  std::visit([&](const auto& alternative) { count_accepted(alternative, before, after, world); },
             command);
}

void Reach::count_accepted(const AppendTokens& command, const Observation&, const Observation&,
                           const World& world) {
  const Request* request = world.requests().find(command.request);
  if (!request) return;
  const std::size_t in_last_block =
      request->all_token_ids().size() % world.requests().config().hash_block_size;
  add(Reached::kAppendCompletesHash, command.tokens.size() > in_last_block);
}

void Reach::count_accepted(const GetNewBlocks& command, const Observation& before,
                           const Observation& after, const World&) {
  add(Reached::kEvictionOnAllocation, after.num_cached < before.num_cached);
  add(Reached::kPoolExhausted, command.num_blocks > 0 && after.num_free_blocks == 0);
}

void Reach::count_accepted(const GetCachedBlock& command, const Observation&,
                           const Observation& after, const World& world) {
  const bool is_hit = after.hit.has_value() && *after.hit;
  const bool is_multi_group = command.groups.size() > 1;
  add(Reached::kMultiGroupHit, is_hit && is_multi_group);
  if (!after.keys.has_value()) return;
  const std::vector<BlockHash>& keys = *after.keys;
  if (is_hit) {
    const std::vector<BlockId>& blocks = *after.blocks;
    add(Reached::kLookupHitOnDuplicate,
        std::any_of(blocks.begin(), blocks.end(), [&](BlockId block) {
          return block < keys.size() && std::count(keys.begin(), keys.end(), keys[block]) > 1;
        }));
  } else if (is_multi_group) {
    const std::optional<BlockHashView> hash = hash_of(command, world);
    add(Reached::kMultiGroupMissByOneGroup,
        hash && std::any_of(command.groups.begin(), command.groups.end(),
                            [&](GroupId group) { return is_carried(keys, *hash, group); }));
  }
}

void Reach::count_accepted(const Touch& command, const Observation& before, const Observation&,
                           const World&) {
  const bool was_hit = before.hit.has_value() && *before.hit && before.ref_cnts.has_value();
  bool hit_is_touched = false;
  bool is_touched_twice = false;
  for (auto at = command.blocks.begin(); at != command.blocks.end(); ++at) {
    if (*at == kNullBlockId) continue;
    is_touched_twice = is_touched_twice || std::find(command.blocks.begin(), at, *at) != at;
    hit_is_touched =
        hit_is_touched || (was_hit && *at < before.ref_cnts->size() &&
                           (*before.ref_cnts)[*at] == 0 && contains(*before.blocks, *at));
  }
  add(Reached::kHitOnFreeBlockThenTouch, hit_is_touched);
  add(Reached::kBlockTouchedTwice, is_touched_twice);
  add(Reached::kNullBlockInList, contains(command.blocks, kNullBlockId));
}

void Reach::count_accepted(const CacheFullBlocks& command, const Observation& before,
                           const Observation& after, const World& world) {
  std::uint32_t num_keys = 0;
  bool is_masked_out = false;
  bool has_null = false;
  const std::size_t end = std::min<std::size_t>(command.num_full_blocks, command.blocks.size());
  for (std::size_t index = command.num_cached_blocks; index < end; ++index) {
    const bool is_null = command.blocks[index] == kNullBlockId;
    const std::size_t offset = index - command.num_cached_blocks;
    const bool is_masked =
        command.block_mask && offset < command.block_mask->size() && !(*command.block_mask)[offset];
    has_null = has_null || is_null;
    is_masked_out = is_masked_out || (is_masked && !is_null);
    if (!is_null && !is_masked) ++num_keys;
  }
  add(Reached::kNullBlockInList, has_null);
  add(Reached::kBlockMaskedOut, is_masked_out);
  add(Reached::kMergedHashCached,
      num_keys > 0 && command.block_size > world.requests().config().hash_block_size);
  add(Reached::kDuplicateKeyCached, after.num_cached_keys < before.num_cached_keys + num_keys);
}

void Reach::count_accepted(const FreeBlocks& command, const Observation& before,
                           const Observation& after, const World&) {
  const auto num_null = static_cast<std::size_t>(
      std::count(command.blocks.begin(), command.blocks.end(), kNullBlockId));
  const std::size_t num_freed = command.blocks.size() - num_null;
  const std::size_t num_queued = after.num_free_blocks - before.num_free_blocks;
  add(Reached::kNullBlockInList, num_null > 0);
  add(Reached::kFreedBlockStaysReferenced, num_queued < num_freed);
  add(Reached::kFreePrepended, command.prepend && num_queued > 0);
}

void Reach::count_accepted(const EvictBlocks& command, const Observation& before,
                           const Observation& after, const World&) {
  add(Reached::kNullBlockInList, contains(command.blocks, kNullBlockId));
  add(Reached::kFreeBlockEvicted, after.num_cached < before.num_cached);
  if (!before.ref_cnts.has_value() || !before.keys.has_value()) return;
  add(Reached::kReferencedBlockEvicted,
      std::any_of(command.blocks.begin(), command.blocks.end(), [&](BlockId block) {
        return block < before.keys->size() && !(*before.keys)[block].empty() &&
               block < before.ref_cnts->size() && (*before.ref_cnts)[block] > 0;
      }));
}

void Reach::count_accepted(const ResetPrefixCache&, const Observation& before,
                           const Observation& after, const World&) {
  if (!after.success.has_value()) return;
  add(Reached::kResetDone, *after.success && before.num_cached_keys > 0);
  add(Reached::kResetRefused, !*after.success);
}

void Reach::count_accepted(const TakeEvents&, const Observation&, const Observation& after,
                           const World&) {
  if (!after.events.has_value()) return;
  for (const KVCacheEvent& event : *after.events) {
    const auto* stored = std::get_if<BlockStored>(&event);
    if (!stored) continue;
    add(Reached::kStoredEventWithoutHashes, stored->block_hashes.empty());
    add(Reached::kStoredEventWithParent, stored->parent_block_hash.has_value());
    add(Reached::kStoredEventWithExtraKeys,
        std::any_of(stored->extra_keys.begin(), stored->extra_keys.end(),
                    [](const auto& keys) { return keys.has_value(); }));
  }
}

}  // namespace kvfence::block_pool
