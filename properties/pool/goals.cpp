/// Coverage goals of target block_pool: a green suite that never evicted a block has shown nothing
/// about eviction.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "contract/core/lists.h"
#include "contract/pool/block_pool_target.h"
#include "properties/core/goals.h"
#include "properties/core/invariant_values.h"
#include "properties/targets/rooms.h"

namespace kvfence::block_pool {
namespace {

constexpr Goal kGoals[] = {
    {"eviction_on_allocation", "an allocated block lost its key"},
    {"pool_exhausted", "an allocation took the last free block"},
    {"lookup_hit_on_duplicate", "a lookup found a block whose key another block carries too"},
    {"multi_group_hit", "a lookup hit for two groups or more"},
    {"multi_group_miss_by_one_group", "a lookup missed although some of its groups have the block"},
    {"hit_on_free_block_then_touch",
     "a lookup found a queued block and the next command touched it"},
    {"block_touched_twice", "one call touched a block twice"},
    {"duplicate_key_cached", "a block got a key that another block carries already"},
    {"merged_hash_cached", "a block larger than hash_block_size got its merged hash"},
    {"block_masked_out", "cache_full_blocks passed over a masked block"},
    {"null_block_in_list", "an accepted list held the null block"},
    {"long_list", "an accepted list held more than eight blocks"},
    {"freed_block_stays_referenced", "a freed block had another holder"},
    {"free_prepended", "freed blocks joined the head of the queue"},
    {"referenced_block_evicted", "evict_blocks took the key of a referenced block"},
    {"free_block_evicted", "evict_blocks took the key of a queued block"},
    {"reset_done", "reset_prefix_cache took a key"},
    {"reset_refused", "reset_prefix_cache answered false"},
    {"stored_event_without_hashes", "a BlockStored for a range that was passed over whole"},
    {"stored_event_with_extra_keys", "a BlockStored with extra keys"},
    {"stored_event_with_parent", "a BlockStored with a parent"},
    {"append_completes_hash", "appended tokens completed a block's hash"},
};

/// The hash that a lookup asks for; nothing if it has none, so that it should have been refused.
std::optional<BlockHashView> hash_of(const GetCachedBlock& command, const World& world) {
  const Request* request = world.requests().find(command.request);
  if (!request || command.block_size < world.requests().config().hash_block_size) {
    return std::nullopt;
  }
  const BlockHashListView hashes = request->block_hashes(command.block_size);
  if (command.index >= hashes.size()) return std::nullopt;
  return hashes[command.index];
}

/// Whether any block has the hash in that group.
bool is_carried(const std::vector<BlockHash>& keys, BlockHashView hash, GroupId group) {
  return std::ranges::any_of(
      keys, [&](const BlockHash& key) { return detail::carries(key, hash, group); });
}

class Counter : public GoalCounter<BlockPoolTarget, kGoals> {
 public:
  using GoalCounter::GoalCounter;

  void count(const AppendTokens& command) {
    const Request* request = world().requests().find(command.request);
    if (!request) return;
    const std::size_t in_last_block =
        request->all_token_ids().size() % world().requests().config().hash_block_size;
    add("append_completes_hash", command.tokens.size() > in_last_block);
  }

  void count(const GetNewBlocks& command) {
    add("eviction_on_allocation", after().num_cached < before().num_cached);
    add("pool_exhausted", command.num_blocks > 0 && after().num_free_blocks == 0);
  }

  void count(const GetCachedBlock& command) {
    const bool is_hit = after().hit.has_value() && *after().hit;
    const bool is_multi_group = command.groups.size() > 1;
    add("multi_group_hit", is_hit && is_multi_group);
    if (!after().keys.has_value()) return;
    const std::vector<BlockHash>& keys = *after().keys;
    if (is_hit) {
      const std::vector<BlockId>& blocks = *after().blocks;
      add("lookup_hit_on_duplicate", std::ranges::any_of(blocks, [&](BlockId block) {
            return block < keys.size() && std::ranges::count(keys, keys[block]) > 1;
          }));
    } else if (is_multi_group) {
      const std::optional<BlockHashView> hash = hash_of(command, world());
      add("multi_group_miss_by_one_group",
          hash && std::ranges::any_of(command.groups, [&](GroupId group) {
            return is_carried(keys, *hash, group);
          }));
    }
  }

  void count(const Touch& command) {
    const bool was_hit = before().hit.has_value() && *before().hit && before().ref_cnts.has_value();
    bool hit_is_touched = false;
    bool is_touched_twice = false;
    for (auto at = command.blocks.begin(); at != command.blocks.end(); ++at) {
      if (*at == kNullBlockId) continue;
      is_touched_twice = is_touched_twice || std::find(command.blocks.begin(), at, *at) != at;
      hit_is_touched =
          hit_is_touched || (was_hit && *at < before().ref_cnts->size() &&
                             (*before().ref_cnts)[*at] == 0 && contains(*before().blocks, *at));
    }
    add("hit_on_free_block_then_touch", hit_is_touched);
    add("block_touched_twice", is_touched_twice);
    add("null_block_in_list", contains(command.blocks, kNullBlockId));
    count_length(command.blocks);
  }

  void count(const CacheFullBlocks& command) {
    std::uint32_t num_keys = 0;
    bool is_masked_out = false;
    bool has_null = false;
    const std::size_t end = std::min<std::size_t>(command.num_full_blocks, command.blocks.size());
    for (std::size_t index = command.num_cached_blocks; index < end; ++index) {
      const bool is_null = command.blocks[index] == kNullBlockId;
      const std::size_t offset = index - command.num_cached_blocks;
      const bool is_masked = command.block_mask && offset < command.block_mask->size() &&
                             !(*command.block_mask)[offset];
      has_null = has_null || is_null;
      is_masked_out = is_masked_out || (is_masked && !is_null);
      if (!is_null && !is_masked) ++num_keys;
    }
    add("null_block_in_list", has_null);
    add("block_masked_out", is_masked_out);
    add("merged_hash_cached",
        num_keys > 0 && command.block_size > world().requests().config().hash_block_size);
    add("duplicate_key_cached", after().num_cached_keys < before().num_cached_keys + num_keys);
  }

  void count(const FreeBlocks& command) {
    const auto num_null =
        static_cast<std::size_t>(std::ranges::count(command.blocks, kNullBlockId));
    const std::size_t num_freed = command.blocks.size() - num_null;
    const std::size_t num_queued = after().num_free_blocks - before().num_free_blocks;
    add("null_block_in_list", num_null > 0);
    count_length(command.blocks);
    add("freed_block_stays_referenced", num_queued < num_freed);
    add("free_prepended", command.prepend && num_queued > 0);
  }

  void count(const EvictBlocks& command) {
    add("null_block_in_list", contains(command.blocks, kNullBlockId));
    count_length(command.blocks);
    add("free_block_evicted", after().num_cached < before().num_cached);
    if (!before().ref_cnts.has_value() || !before().keys.has_value()) return;
    add("referenced_block_evicted", std::ranges::any_of(command.blocks, [&](BlockId block) {
          return block < before().keys->size() && !(*before().keys)[block].empty() &&
                 block < before().ref_cnts->size() && (*before().ref_cnts)[block] > 0;
        }));
  }

  void count(const ResetPrefixCache&) {
    if (!after().success.has_value()) return;
    add("reset_done", *after().success && before().num_cached_keys > 0);
    add("reset_refused", !*after().success);
  }

  void count(const TakeEvents&) {
    if (!after().events.has_value()) return;
    for (const KVCacheEvent& event : *after().events) {
      const auto* stored = std::get_if<BlockStored>(&event);
      if (!stored) continue;
      add("stored_event_without_hashes", stored->block_hashes.empty());
      add("stored_event_with_parent", stored->parent_block_hash.has_value());
      add("stored_event_with_extra_keys",
          std::ranges::any_of(stored->extra_keys,
                              [](const auto& keys) { return keys.has_value(); }));
    }
  }

 private:
  void count_length(const std::vector<BlockId>& blocks) { add("long_list", blocks.size() > 8); }
};

}  // namespace

GoalSuite goals() { return goal_suite<BlockPoolTarget, kGoals, Counter>(); }

}  // namespace kvfence::block_pool
