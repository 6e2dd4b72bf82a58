#include "properties/kv_cache/goals.h"

#include <algorithm>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "contract/core/check.h"
#include "properties/core/invariant_values.h"
#include "properties/kv_cache/arithmetic.h"
#include "properties/kv_cache/rules.h"

namespace kvfence::kv_cache {
namespace {

using detail::contains;
using detail::find_table;
using detail::is_key_of;

Reached allocated_goal(const KVCacheSpec& spec) {
  switch (spec.kind) {
    case KVCacheSpecKind::kFullAttention:
      return Reached::kFullAllocated;
    case KVCacheSpecKind::kSlidingWindow:
      return Reached::kSlidingAllocated;
    case KVCacheSpecKind::kChunkedLocal:
      return Reached::kChunkedAllocated;
    case KVCacheSpecKind::kMamba:
      return spec.mamba_align ? Reached::kMambaAlignAllocated : Reached::kMambaAllAllocated;
    case KVCacheSpecKind::kCrossAttention:
      return Reached::kCrossAllocated;
    case KVCacheSpecKind::kSinkFullAttention:
      return Reached::kSinkAllocated;
  }
  return Reached::kFullAllocated;
}

bool is_real(BlockId block) { return block != kNullBlockId; }

}  // namespace

void Reach::start(const Config& config) {
  const Parsed<KVCacheManagerConfig> parsed = make_kv_cache_manager_config(config);
  KVFENCE_CHECK(parsed, "a run under a configuration that was not validated");
  config_ = *parsed;
  reached_tokens_.clear();
  mamba_keys_.clear();
}

void Reach::count(const Command& command, const Observation& before, const Observation& after,
                  const World& world) {
  reached_tokens_.resize(world.entries().size());
  if (after.error != ErrorCode::kNone) {
    add_error(after.error);
    return;
  }
  if (const auto* lookup = std::get_if<GetComputedBlocks>(&command)) {
    count_lookup(*lookup, after, world);
  } else if (const auto* slots = std::get_if<AllocateSlots>(&command)) {
    count_allocation(*slots, before, after, world);
  } else if (const auto* freed = std::get_if<Free>(&command)) {
    reached_tokens_[world.find(freed->request)->index] = 0;
  } else if (std::holds_alternative<CanFitFullSequence>(command)) {
    add(Reached::kFitsNot, after.fits.has_value() && !*after.fits);
  } else if (std::holds_alternative<ResetPrefixCache>(command) && after.success.has_value()) {
    add(Reached::kResetDone, *after.success && before.num_cached_keys > 0);
    add(Reached::kResetRefused, !*after.success);
  } else if (std::holds_alternative<GetNumCommonPrefixBlocks>(command)) {
    const bool is_common =
        after.counts.has_value() && std::any_of(after.counts->begin(), after.counts->end(),
                                                [](std::uint32_t count) { return count > 0; });
    add(Reached::kCommonPrefixOfSeveral,
        is_common && after.tables.has_value() && after.tables->size() > 1);
  } else if (std::holds_alternative<NewStepStarts>(command)) {
    mamba_keys_.clear();
  }
  if (has_state(before) && has_state(after)) count_state(command, before, after);
}

bool Reach::has_hit(GroupId group, const Request& request, std::uint32_t num_tokens,
                    const KeyList& keys) const {
  const KVCacheSpec& spec = config_.groups[group];
  const std::uint32_t length = num_tokens / spec.block_size;
  std::uint32_t first_needed = 0;
  if (spec.kind == KVCacheSpecKind::kSlidingWindow) {
    first_needed = length - std::min(length, num_window_blocks(spec));
  } else if (spec.kind == KVCacheSpecKind::kMamba) {
    first_needed = length - std::min(length, 1U);
  } else if (spec.kind == KVCacheSpecKind::kChunkedLocal) {
    first_needed = num_skipped_blocks(spec, num_tokens);
  }
  for (std::uint32_t index = first_needed; index < length; ++index) {
    if (std::none_of(keys.begin(), keys.end(), [&](const BlockHash& key) {
          return is_key_of(key, request, spec.block_size, index, group);
        })) {
      return false;
    }
  }
  return true;
}

void Reach::count_lookup(const GetComputedBlocks& command, const Observation& after,
                         const World& world) {
  if (!after.num_hit_tokens.has_value() || !after.blocks.has_value()) return;
  const std::uint32_t num_hit = *after.num_hit_tokens;
  const BlockLists& blocks = *after.blocks;
  const bool reads = !world.find(command.request)->skip_reading_prefix_cache;
  add(Reached::kReadingSkipped, !reads);
  add(Reached::kHitAgainAfterPreemption, command.was_preempted && num_hit > 0);
  std::size_t num_groups = 0;
  for (GroupId group = 0; group < std::min(blocks.size(), config_.groups.size()); ++group) {
    const bool has_block = std::any_of(blocks[group].begin(), blocks[group].end(), is_real);
    const bool has_null = contains(blocks[group], kNullBlockId);
    const KVCacheSpecKind kind = config_.groups[group].kind;
    num_groups += has_block ? 1 : 0;
    add(Reached::kWindowHit, kind == KVCacheSpecKind::kSlidingWindow && has_block && has_null);
    add(Reached::kMambaHit, kind == KVCacheSpecKind::kMamba && has_block);
    add(Reached::kChunkedHit, kind == KVCacheSpecKind::kChunkedLocal && has_block);
  }
  add(Reached::kHit, num_groups > 0);
  add(Reached::kHybridHit, num_groups > 1);
  if (!after.keys.has_value() || !reads || !config_.pool.enable_caching) return;

  // What each group could serve, one behind the other, as far as the one before it goes.
  const Request& request = *world.requests().find(command.request);
  const std::uint32_t unit = config_.scheduler_block_size();
  const auto num_tokens = static_cast<std::uint32_t>(request.all_token_ids().size());
  if (num_tokens == 0) return;
  std::uint32_t length = (num_tokens - 1) / unit * unit;
  bool all_have_more = num_hit + unit <= length;
  int num_shortened = 0;
  for (const bool full_first : {true, false}) {
    for (GroupId group = 0; group < config_.groups.size(); ++group) {
      if (config_.groups[group].is_full_attention() != full_first) continue;
      all_have_more = all_have_more && has_hit(group, request, num_hit + unit, *after.keys);
      const std::uint32_t longest = length;
      while (length > 0 && !has_hit(group, request, length, *after.keys)) length -= unit;
      if (!full_first && length < longest) ++num_shortened;
    }
  }
  add(Reached::kHitShortenedByAGroup, num_shortened > 0);
  add(Reached::kHitShortenedTwice, num_shortened > 1);
  add(Reached::kEagleDrop, config_.use_eagle && all_have_more);
}

void Reach::count_allocation(const AllocateSlots& command, const Observation& before,
                             const Observation& after, const World& world) {
  const RequestIndex index = world.find(command.request)->index;
  const std::uint64_t num_computed =
      std::uint64_t{command.num_computed_tokens} + command.num_external_tokens;
  const bool follows_lookup = command.from_cache && before.num_hit_tokens.has_value();
  if (!*after.allocated) {
    add(Reached::kAllocationFailed);
    add(Reached::kFullSequenceGateClosed, command.full_sequence_must_fit);
    if (has_state(before) && has_state(after)) {
      add(Reached::kAllocationFailedAfterDropping, *before.tables != *after.tables);
    }
    for (GroupId group = 0; follows_lookup && group < config_.groups.size(); ++group) {
      const std::vector<BlockId>& found = (*before.blocks)[group];
      if (config_.groups[group].kind != KVCacheSpecKind::kMamba || found.empty()) continue;
      if (!before.keys.has_value()) continue;
      add(Reached::kMambaRefusedInSameStep, mamba_keys_.count((*before.keys)[found.back()]) > 0);
    }
    return;
  }
  add(Reached::kExternalTokens, command.num_external_tokens > 0);
  add(Reached::kExternalTokensBehindAHit,
      command.num_external_tokens > 0 && follows_lookup && *before.num_hit_tokens > 0);
  add(Reached::kCachingDelayed, command.delay_cache_blocks);
  add(Reached::kLookahead, command.num_lookahead_tokens > 0);
  add(Reached::kModelLengthCapsSlots,
      num_computed + command.num_new_tokens + command.num_lookahead_tokens > config_.max_model_len);
  if (has_state(before) && has_state(after)) {
    add(Reached::kSpeculationRewound, command.num_computed_tokens < reached_tokens_[index]);
    count_new_blocks(command, before, after, world);
  }
  reached_tokens_[index] = num_computed + command.num_new_tokens;
}

void Reach::count_new_blocks(const AllocateSlots& command, const Observation& before,
                             const Observation& after, const World& world) {
  const BlocksByGroup* table = find_table(*after.tables, command.request);
  const BlocksByGroup* table_before = find_table(*before.tables, command.request);
  const std::size_t num_tokens = world.requests().find(command.request)->all_token_ids().size();
  const std::uint64_t num_slots = std::uint64_t{command.num_computed_tokens} +
                                  command.num_external_tokens + command.num_new_tokens;
  const std::uint32_t unit = config_.scheduler_block_size();
  const std::uint64_t num_full = std::min<std::uint64_t>(num_slots, num_tokens) / unit * unit;
  for (GroupId group = 0; group < config_.groups.size(); ++group) {
    const KVCacheSpec& spec = config_.groups[group];
    const std::vector<BlockId>& gained = (*after.blocks)[group];
    add(allocated_goal(spec), std::any_of(gained.begin(), gained.end(), is_real));
    const std::size_t begin = table ? (*table)[group].size() - gained.size() : 0;
    for (std::size_t offset = 0; offset < gained.size(); ++offset) {
      const BlockId block = gained[offset];
      if (!is_real(block)) continue;
      const BlockHash& key = (*after.keys)[block];
      const BlockHash& key_before = (*before.keys)[block];
      add(Reached::kCachedBlockEvictedByAllocation, !key_before.empty() && key != key_before);
      add(Reached::kSpeculativeBlockMoved,
          table_before && (*before.ref_cnts)[block] > 0 && contains((*table_before)[group], block));
      add(Reached::kMaskLeftABlockOut,
          config_.pool.rules.sliding_window_mask && config_.pool.enable_caching &&
              spec.kind == KVCacheSpecKind::kSlidingWindow && !command.delay_cache_blocks &&
              key.empty() && (begin + offset + 1) * spec.block_size <= num_full);
    }
  }
}

void Reach::count_state(const Command& command, const Observation& before,
                        const Observation& after) {
  const std::vector<std::uint32_t>& refs = *after.ref_cnts;
  const KeyList& keys = *after.keys;
  add(Reached::kSharedPrefix,
      std::any_of(refs.begin(), refs.end(), [](std::uint32_t ref_cnt) { return ref_cnt > 1; }));
  bool adds_keys = false;
  std::set<std::string_view> distinct;
  bool has_duplicate = false;
  for (BlockId block = 0; block < keys.size(); ++block) {
    if (keys[block].empty()) continue;
    has_duplicate = has_duplicate || !distinct.insert(keys[block]).second;
    if (keys[block] == (*before.keys)[block]) continue;
    adds_keys = true;
    const GroupId group = get_group_id(keys[block]);
    if (group < config_.groups.size() && config_.groups[group].kind == KVCacheSpecKind::kMamba) {
      mamba_keys_.insert(keys[block]);
    }
  }
  add(Reached::kDuplicateKey, has_duplicate);
  add(Reached::kDelayedBlocksCached, std::holds_alternative<CacheBlocks>(command) && adds_keys);

  bool drops = false;
  for (const RequestBlocks& table : *after.tables) {
    const BlocksByGroup* old = find_table(*before.tables, table.request);
    for (std::size_t group = 0; old && group < table.blocks.size(); ++group) {
      const std::size_t length = std::min(table.blocks[group].size(), (*old)[group].size());
      for (std::size_t index = 0; index < length; ++index) {
        drops =
            drops || (table.blocks[group][index] == kNullBlockId && is_real((*old)[group][index]));
      }
    }
  }
  add(Reached::kSkippedBlockDropped, drops);
  const std::vector<BlockId>& queue = *after.free_queue;
  const std::vector<BlockId>& queue_before = *before.free_queue;
  add(Reached::kUnhashedBlockToTheHead,
      config_.pool.rules.unhashed_blocks_first && !queue.empty() && !queue_before.empty() &&
          keys[queue.front()].empty() && !contains(queue_before, queue.front()));
}

}  // namespace kvfence::kv_cache
