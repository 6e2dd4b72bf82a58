// The half of kv_cache::Invariants that holds the state after a command against the state before.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "properties/kv_cache/arithmetic.h"
#include "properties/kv_cache/rule_parts.h"
#include "properties/kv_cache/rules.h"

namespace kvfence::kv_cache {

using namespace detail;  // NOLINT: the other half of kv_cache_invariants.cpp

/// An allocation that succeeded.
struct Invariants::Allocation {
  const AllocateSlots& command;
  const Request& request;
  bool is_fresh = false;  ///< the request had no blocks
  /// Tokens of the hit; nothing where it is not known, and then num_computed leaves it out.
  std::optional<std::uint32_t> num_hit;
  const BlocksByGroup* hit = nullptr;  ///< null for none, or where it is not known
  std::uint64_t num_computed = 0;      ///< local and external tokens
  BlocksByGroup before;
  BlocksByGroup after;

  bool takes_computed_blocks() const {
    return is_fresh && (hit != nullptr || command.num_external_tokens > 0);
  }

  /// Places that hit and skipped blocks fill.
  std::size_t num_hit_places(const KVCacheSpec& spec, GroupId group) const {
    if (!takes_computed_blocks() || spec.kind == KVCacheSpecKind::kCrossAttention) return 0;
    const std::size_t num_hit_blocks = hit ? (*hit)[group].size() : 0;
    return std::max<std::size_t>(num_skipped_blocks(spec, num_computed), num_hit_blocks);
  }

  /// Places in front of the new blocks.
  std::size_t num_places_before_new(const KVCacheSpec& spec, GroupId group) const {
    if (!is_fresh) return before[group].size();
    const std::size_t num_places = num_hit_places(spec, group);
    const bool has_external = command.num_external_tokens > 0 &&
                              spec.kind != KVCacheSpecKind::kCrossAttention &&
                              num_computed > num_skipped_tokens_of_whole_blocks(spec);
    if (!has_external) return num_places;
    return std::max<std::size_t>(num_places, blocks_for(num_computed, spec.block_size));
  }

  /// Skipped tokens where they fill a block at least; before, nothing is cut off.
  std::uint64_t num_skipped_tokens_of_whole_blocks(const KVCacheSpec& spec) const {
    if (num_skipped_blocks(spec, num_computed) == 0) return 0;
    return num_skipped_tokens(spec, num_computed);
  }
};

std::optional<Divergence> Invariants::check_change(const Command& command, const Observation& after,
                                                   const World& world) {
  if (const auto* evicted = std::get_if<EvictBlocks>(&command)) {
    if (auto found = check_unchanged(after, world, false)) return found;
    KeyList keys = keys_;
    for (BlockId block : evicted->blocks) keys[block].clear();
    if (*after.keys != keys) return broken(kK14, "keys", keys, *after.keys, world);
    return std::nullopt;
  }
  if (std::holds_alternative<ResetPrefixCache>(command)) {
    if (auto found = check_unchanged(after, world, false)) return found;
    KeyList keys = keys_;
    if (*after.success) keys.assign(keys.size(), {});
    if (*after.keys != keys) return broken(kK17, "keys", keys, *after.keys, world);
    return std::nullopt;
  }
  if (const auto* cached = std::get_if<CacheBlocks>(&command)) {
    return check_cached(*cached, after, world);
  }
  pending_ = queue_;
  pending_refs_ = ref_cnts_;
  if (const auto* freed = std::get_if<Free>(&command)) {
    if (auto found = check_other_tables(freed->request, after, world)) return found;
    return check_freed(freed->request, after, world);
  }
  if (const auto* removed = std::get_if<RemoveSkippedBlocks>(&command)) {
    if (auto found = check_other_tables(removed->request, after, world)) return found;
    if (auto found =
            check_dropped(removed->request, removed->total_computed_tokens, false, after, world)) {
      return found;
    }
    if (*after.keys != keys_) return broken(kK14, "keys", keys_, *after.keys, world);
    return check_queue(after, world);
  }
  if (const auto* slots = std::get_if<AllocateSlots>(&command)) {
    if (auto found = check_other_tables(slots->request, after, world)) return found;
    return check_allocation(*slots, after, world);
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_unchanged(const Observation& after, const World& world,
                                                      bool with_keys) const {
  if (*after.tables != tables_) return broken(kK2, "tables", tables_, *after.tables, world);
  if (*after.ref_cnts != ref_cnts_) {
    return broken(kK2, "ref_cnts", ref_cnts_, *after.ref_cnts, world);
  }
  if (*after.free_queue != queue_) {
    return broken(kK2, "free_queue", queue_, *after.free_queue, world);
  }
  if (with_keys && *after.keys != keys_) return broken(kK2, "keys", keys_, *after.keys, world);
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_other_tables(const std::string& request,
                                                         const Observation& after,
                                                         const World& world) const {
  const auto others = [&](Tables tables) {
    std::erase_if(tables, [&](const RequestBlocks& table) { return table.request == request; });
    return tables;
  };
  const Tables expected = others(tables_);
  const Tables actual = others(*after.tables);
  if (expected == actual) return std::nullopt;
  return broken(kK2, "tables", expected, actual, world);
}

void Invariants::join_queue(const std::vector<BlockId>& blocks, bool at_head) {
  std::vector<BlockId> joining;
  for (BlockId block : blocks) {
    if (block != kNullBlockId && --pending_refs_[block] == 0) joining.push_back(block);
  }
  pending_.insert(at_head ? pending_.begin() : pending_.end(), joining.begin(), joining.end());
}

std::optional<Divergence> Invariants::check_queue(const Observation& after,
                                                  const World& world) const {
  if (*after.free_queue == pending_) return std::nullopt;
  return broken(kK13, "free_queue", pending_, *after.free_queue, world);
}

std::optional<Divergence> Invariants::check_freed(const std::string& request,
                                                  const Observation& after, const World& world) {
  if (find_table(*after.tables, request)) {
    return broken_phrase(kK9, "tables", request + " without a table", *after.tables, world);
  }
  if (*after.keys != keys_) return broken(kK14, "keys", keys_, *after.keys, world);
  const BlocksByGroup* table = find_table(tables_, request);
  for (GroupId group = 0; table && group < config_.groups.size(); ++group) {
    const bool has_window = config_.groups[group].kind == KVCacheSpecKind::kSlidingWindow;
    const bool splits = has_window && config_.pool.rules.unhashed_blocks_first;
    std::vector<BlockId> hashed;
    std::vector<BlockId> unhashed;
    const std::vector<BlockId>& blocks = (*table)[group];
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
      (splits && keys_[*block].empty() ? unhashed : hashed).push_back(*block);
    }
    join_queue(hashed, false);
    join_queue(unhashed, true);
  }
  return check_queue(after, world);
}

std::optional<Divergence> Invariants::check_dropped(const std::string& request,
                                                    std::uint64_t num_computed, bool is_allocation,
                                                    const Observation& after, const World& world) {
  const BlocksByGroup* table_before = find_table(tables_, request);
  const BlocksByGroup* table_after = find_table(*after.tables, request);
  if (!table_before) {
    if (is_allocation || !table_after) return std::nullopt;
    return broken_phrase(kK9, "tables", request + " without a table", *after.tables, world);
  }
  for (GroupId group = 0; group < config_.groups.size(); ++group) {
    const KVCacheSpec& spec = config_.groups[group];
    const std::vector<BlockId>& before = (*table_before)[group];
    const std::vector<BlockId> now = table_after ? (*table_after)[group] : std::vector<BlockId>();
    if (now.size() < before.size() || (!is_allocation && now.size() > before.size())) {
      return broken(kK9, "tables[" + request + "][" + std::to_string(group) + "]", before, now,
                    world);
    }
    const std::size_t bound =
        std::min<std::size_t>(num_droppable_blocks(spec, num_computed), before.size());
    const auto place = [&](std::size_t index) { return place_name(request, group, index); };
    std::vector<BlockId> hashed;
    std::vector<BlockId> unhashed;
    std::size_t first_dropped = bound;
    while (first_dropped > 0 && before[first_dropped - 1] != kNullBlockId) {
      const BlockId block = before[--first_dropped];
      if (now[first_dropped] != kNullBlockId) {
        return broken(kK10, place(first_dropped), kNullBlockId, now[first_dropped], world);
      }
      const bool splits = config_.pool.rules.unhashed_blocks_first;
      (splits && keys_[block].empty() ? unhashed : hashed).push_back(block);
    }
    join_queue(hashed, false);
    join_queue(unhashed, true);
    for (std::size_t index = 0; index < before.size(); ++index) {
      const bool is_dropped = index >= first_dropped && index < bound;
      if (is_dropped || now[index] == before[index]) continue;
      if (now[index] != kNullBlockId) {
        return broken(kK9, place(index), before[index], now[index], world);
      }
      const std::vector<BlockId> gained(now.begin() + static_cast<std::ptrdiff_t>(before.size()),
                                        now.end());
      // Mamba drops the state of two steps ago, and moves the speculative blocks to the end.
      const bool is_speculative = index + spec.num_speculative_blocks >= before.size();
      if (is_allocation && is_speculative && contains(gained, before[index])) continue;
      if (!spec.mamba_align || index >= bound) {
        return broken(kK10, place(index), before[index], now[index], world);
      }
      join_queue({before[index]}, false);
    }
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_cached(const CacheBlocks& command,
                                                   const Observation& after,
                                                   const World& world) const {
  if (auto found = check_unchanged(after, world, false)) return found;
  const BlocksByGroup* table = find_table(tables_, command.request);
  const Request& request = *world.requests().find(command.request);
  for (BlockId block = 0; block < keys_.size(); ++block) {
    const BlockHash& key = (*after.keys)[block];
    if (key == keys_[block]) continue;
    bool is_asked = false;
    for (GroupId group = 0; table && group < config_.groups.size(); ++group) {
      const std::uint32_t block_size = config_.groups[group].block_size;
      const std::size_t num_full =
          std::min<std::size_t>(command.num_computed_tokens / block_size, (*table)[group].size());
      for (std::size_t index = 0; index < num_full; ++index) {
        is_asked = is_asked || ((*table)[group][index] == block &&
                                is_key_of(key, request, block_size, index, group));
      }
    }
    if (!is_asked || !keys_[block].empty() || !config_.pool.enable_caching) {
      return broken_values(kK14, "keys[" + std::to_string(block) + "]", key_value(keys_[block]),
                           key_value(key), world);
    }
  }
  return std::nullopt;
}

Invariants::Allocation Invariants::allocation_of(const AllocateSlots& command,
                                                 const Observation& after,
                                                 const World& world) const {
  const BlocksByGroup* table_before = find_table(tables_, command.request);
  const BlocksByGroup* table_after = find_table(*after.tables, command.request);
  const BlocksByGroup none(config_.groups.size());
  Allocation allocation{command,
                        *world.requests().find(command.request),
                        table_before == nullptr,
                        std::nullopt,
                        nullptr,
                        0,
                        table_before ? *table_before : none,
                        table_after ? *table_after : none};
  allocation.num_hit = command.from_cache ? known_hit_tokens(world, command.request)
                                          : std::optional<std::uint32_t>(0);
  if (command.from_cache && allocation.num_hit.value_or(0) > 0) {
    allocation.hit = &known_hit_->blocks;
  }
  allocation.num_computed = std::uint64_t{command.num_computed_tokens} +
                            allocation.num_hit.value_or(0) + command.num_external_tokens;
  return allocation;
}

std::optional<Divergence> Invariants::check_allocation(const AllocateSlots& command,
                                                       const Observation& after,
                                                       const World& world) {
  // The gate for whole sequences stands before anything is dropped.
  const bool is_gated = command.full_sequence_must_fit && !*after.allocated &&
                        *after.tables == tables_ && *after.free_queue == queue_;
  if (!is_gated) {
    const bool adds_places = *after.allocated;
    if (auto found = check_dropped(command.request, command.num_computed_tokens, adds_places, after,
                                   world)) {
      return found;
    }
  }
  if (!*after.allocated) {
    if (*after.keys != keys_) return broken(kK14, "keys", keys_, *after.keys, world);
    return check_queue(after, world);
  }
  const Allocation allocation = allocation_of(command, after, world);
  if (auto found = check_wait(allocation, after, world)) return found;
  if (auto found = check_gain(allocation, after, world)) return found;
  if (auto found = check_taken(allocation, after, world)) return found;
  return check_allocated_keys(allocation, after, world);
}

std::optional<Divergence> Invariants::check_wait(const Allocation& allocation,
                                                 const Observation& after,
                                                 const World& world) const {
  const AllocateSlots& command = allocation.command;
  bool counts_all = !allocation.is_fresh || command.num_computed_tokens == 0;
  for (GroupId group = 0; group < config_.groups.size(); ++group) {
    const KVCacheSpec& spec = config_.groups[group];
    // Upstream counts too few blocks for it (contract/kv_cache/kv_cache_manager.h).
    counts_all = counts_all && !spec.mamba_align;
    if (spec.kind != KVCacheSpecKind::kMamba || !allocation.hit) continue;
    const std::vector<BlockId>& hit = (*allocation.hit)[group];
    if (!hit.empty() && mamba_keys_.count(keys_[hit.back()]) > 0) {
      return broken(kK22, "allocated", false, true, world);
    }
  }
  if (counts_all && after.num_free_blocks < command.reserved_blocks) {
    return broken(kK22, "allocated", false, true, world);
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_gain(const Allocation& allocation,
                                                 const Observation& after, const World& world) {
  const AllocateSlots& command = allocation.command;
  const std::uint64_t num_main = allocation.num_computed + command.num_new_tokens;
  const std::uint64_t num_slots =
      std::min<std::uint64_t>(num_main + command.num_lookahead_tokens, config_.max_model_len);
  for (GroupId group = 0; group < config_.groups.size(); ++group) {
    const KVCacheSpec& spec = config_.groups[group];
    const std::vector<BlockId>& blocks = allocation.after[group];
    const std::string name = "tables[" + command.request + "][" + std::to_string(group) + "]";
    std::uint32_t required = blocks_for(num_slots, spec.block_size);
    if (spec.kind == KVCacheSpecKind::kCrossAttention) {
      required = blocks_for(command.num_encoder_tokens, spec.block_size);
    } else if (spec.kind == KVCacheSpecKind::kMamba) {
      if (spec.mamba_align) required = blocks_for(num_main, spec.block_size);
      required += spec.num_speculative_blocks;
    }
    const std::size_t length = std::max<std::size_t>(
        {allocation.before[group].size(), required, allocation.num_hit_places(spec, group)});
    if (blocks.size() < length || (allocation.num_hit && blocks.size() > length)) {
      return broken_phrase(kK11, name, std::to_string(length) + " places", blocks, world);
    }

    const std::vector<BlockId>& answered = (*after.blocks)[group];
    std::size_t begin = blocks.size() - std::min(answered.size(), blocks.size());
    if (allocation.num_hit) begin = allocation.num_places_before_new(spec, group);
    const std::vector<BlockId> gained(
        blocks.begin() + static_cast<std::ptrdiff_t>(std::min(begin, blocks.size())), blocks.end());
    if (answered != gained) {
      return broken(kK12, "blocks[" + std::to_string(group) + "]", gained, answered, world);
    }
    if (!allocation.takes_computed_blocks() || !allocation.num_hit) continue;
    const std::uint32_t num_skipped = num_skipped_blocks(spec, allocation.num_computed);
    for (std::size_t index = 0; index < allocation.num_hit_places(spec, group); ++index) {
      const BlockId expected = index < num_skipped ? kNullBlockId : (*allocation.hit)[group][index];
      if (blocks[index] != expected) {
        return broken(kK12, place_name(command.request, group, index), expected, blocks[index],
                      world);
      }
    }
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_taken(const Allocation& allocation,
                                                  const Observation& after,
                                                  const World& world) const {
  const std::vector<BlockId>& queue = *after.free_queue;
  // What is left is what was there, in the same order.
  std::vector<BlockId> left;
  std::size_t num_taken_at_head = pending_.size();
  for (std::size_t index = 0; index < pending_.size(); ++index) {
    if (!contains(queue, pending_[index])) continue;
    left.push_back(pending_[index]);
    num_taken_at_head = std::min(num_taken_at_head, index);
  }
  if (left != queue) return broken(kK13, "free_queue", left, queue, world);
  // New blocks are those in front of it; only hits may be taken from further behind.
  for (GroupId group = 0; group < config_.groups.size(); ++group) {
    const KVCacheSpec& spec = config_.groups[group];
    const std::vector<BlockId>& blocks = allocation.after[group];
    std::size_t begin = allocation.before[group].size();
    if (allocation.is_fresh) begin = allocation.num_hit_places(spec, group);
    if (!allocation.num_hit) begin = blocks.size() - (*after.blocks)[group].size();
    for (std::size_t index = begin; index < blocks.size(); ++index) {
      const BlockId block = blocks[index];
      if (block == kNullBlockId) continue;
      const auto at = std::find(pending_.begin(), pending_.end(), block);
      const bool is_moved = spec.mamba_align && contains(allocation.before[group], block);
      if (at == pending_.end() && is_moved) continue;
      if (at == pending_.end() ||
          static_cast<std::size_t>(at - pending_.begin()) >= num_taken_at_head) {
        return broken_phrase(kK13, place_name(allocation.command.request, group, index),
                             "a block from the head of the queue", block, world);
      }
    }
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_allocated_keys(const Allocation& allocation,
                                                           const Observation& after,
                                                           const World& world) const {
  const KeyList& keys = *after.keys;
  const bool caches = config_.pool.enable_caching && !allocation.command.delay_cache_blocks;
  const std::uint64_t num_main = allocation.num_computed + allocation.command.num_new_tokens;
  const std::uint64_t num_tokens = allocation.request.all_token_ids().size();
  // Where the hit is not known it may be anything.
  const std::uint64_t most_cached =
      allocation.num_hit ? std::min(num_main, num_tokens) : num_tokens;
  std::vector<bool> is_new(keys.size());
  std::vector<bool> has_own_key(keys.size());
  for (GroupId group = 0; group < config_.groups.size(); ++group) {
    const KVCacheSpec& spec = config_.groups[group];
    const std::vector<BlockId>& blocks = allocation.after[group];
    std::size_t begin = allocation.before[group].size();
    if (allocation.is_fresh) begin = allocation.num_hit_places(spec, group);
    if (!allocation.num_hit) begin = blocks.size() - (*after.blocks)[group].size();
    for (std::size_t index = 0; index < blocks.size(); ++index) {
      const BlockId block = blocks[index];
      if (block == kNullBlockId) continue;
      if (index >= begin && contains(pending_, block)) is_new[block] = true;
      if (caches && (index + 1) * spec.block_size <= most_cached &&
          is_key_of(keys[block], allocation.request, spec.block_size, index, group)) {
        has_own_key[block] = true;
      }
    }
  }
  for (BlockId block = 0; block < keys.size(); ++block) {
    if (has_own_key[block] && (is_new[block] || keys_[block].empty())) continue;
    if (is_new[block] && keys[block].empty()) continue;
    if (!is_new[block] && keys[block] == keys_[block]) continue;
    // Without the hit, external blocks cannot be told from it.
    if (!allocation.num_hit && allocation.command.num_external_tokens > 0) continue;
    return broken_values(kK14, "keys[" + std::to_string(block) + "]",
                         is_new[block] ? Value() : key_value(keys_[block]), key_value(keys[block]),
                         world);
  }
  if (!caches) return std::nullopt;

  const Rules& rules = config_.pool.rules;
  const std::uint32_t unit =
      rules.eagle_by_group && config_.groups.size() > 1 ? config_.scheduler_block_size() : 1;
  const std::uint64_t least_cached = std::min(num_main, num_tokens) / unit * unit;
  for (GroupId group = 0; group < config_.groups.size(); ++group) {
    const KVCacheSpec& spec = config_.groups[group];
    if (rules.sliding_window_mask && spec.kind == KVCacheSpecKind::kSlidingWindow) continue;
    const std::vector<BlockId>& blocks = allocation.after[group];
    for (std::size_t index = blocks.size() - (*after.blocks)[group].size();
         index < blocks.size() && (index + 1) * spec.block_size <= least_cached; ++index) {
      const BlockId block = blocks[index];
      if (block == kNullBlockId || !keys[block].empty()) continue;
      const std::string place = place_name(allocation.command.request, group, index);
      return broken_values(kK15, "keys[" + std::to_string(block) + "]",
                           phrase("the key of " + place), Value(), world);
    }
  }
  return std::nullopt;
}

}  // namespace kvfence::kv_cache
