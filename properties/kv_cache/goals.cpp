/// Coverage goals of target kv_cache: a green suite in which no window ever slid has shown nothing
/// about windows.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/core/lists.h"
#include "contract/kv_cache/kv_cache_target.h"
#include "properties/core/goals.h"
#include "properties/core/invariant_values.h"
#include "properties/kv_cache/arithmetic.h"
#include "properties/kv_cache/block_table_rules.h"
#include "properties/targets/rooms.h"

namespace kvfence::kv_cache {
namespace {

constexpr Goal kGoals[] = {
    {"full_allocated", "full attention took new blocks"},
    {"sliding_allocated", "a sliding window took new blocks"},
    {"chunked_allocated", "chunked local attention took new blocks"},
    {"mamba_all_allocated", "Mamba in mode all took new blocks"},
    {"mamba_align_allocated", "Mamba in mode align took new blocks"},
    {"cross_allocated", "cross attention took new blocks"},
    {"sink_allocated", "full attention with a sink took new blocks"},
    {"hit", "a lookup found a block"},
    {"window_hit", "a window was found and what lies before it was not"},
    {"mamba_hit", "a Mamba state was found"},
    {"chunked_hit", "a block of a chunk was found"},
    {"hybrid_hit", "a lookup found blocks for two groups or more"},
    {"hit_shortened_by_a_group", "full attention had more blocks than the hit of all groups"},
    {"hit_shortened_twice",
     "two groups each had less than the one before, so that the search starts again"},
    {"eagle_drop", "eagle dropped a block that was there"},
    {"shared_prefix", "two requests held the same block"},
    {"hit_again_after_preemption", "a preempted request found its blocks"},
    {"reading_skipped", "a lookup of a request that reads nothing"},
    {"skipped_block_dropped", "a place turned to null because its group no longer needs it"},
    {"speculative_block_moved", "Mamba in mode align moved a speculative block to the end"},
    {"allocation_failed", "too few blocks were free"},
    {"allocation_failed_after_dropping",
     "too few blocks were free even after skipped ones were dropped"},
    {"mamba_refused_in_same_step",
     "an allocation waited because its Mamba state was cached in this step"},
    {"full_sequence_gate_closed", "an allocation failed with full_sequence_must_fit"},
    {"external_tokens", "an allocation brought external tokens"},
    {"external_tokens_after_a_hit", "external tokens followed blocks that were found"},
    {"caching_delayed", "an allocation delayed its caching"},
    {"delayed_blocks_cached", "cache_blocks added keys"},
    {"lookahead", "an allocation had lookahead tokens"},
    {"speculation_rewound",
     "an allocation began before the end of the blocks that the request has"},
    {"model_length_caps_slots", "lookahead tokens reached beyond max_model_len"},
    {"mask_left_a_block_out", "a full block of a window stayed without a key"},
    {"unhashed_block_to_the_head", "a dropped or freed block became the head of the queue"},
    {"cached_block_evicted_by_allocation", "a new block lost the key of another prefix"},
    {"duplicate_key", "two blocks carry the same key"},
    {"common_prefix_of_several", "several requests hold the same leading block"},
    {"unhashed_beside_padding", "blocks without a key were asked for in a table with null blocks"},
    {"fits_not", "can_fit_full_sequence answered false"},
    {"fits_running", "can_fit_full_sequence answered for a request with slots"},
    {"reset_done", "reset_prefix_cache took a key"},
    {"reset_refused", "reset_prefix_cache answered false"},
};

using detail::find_table;
using detail::is_key_of;

using Name = NamedPlace<kGoals>;

Name allocated_goal(const KVCacheSpec& spec) {
  switch (spec.kind) {
    case KVCacheSpecKind::kFullAttention:
      return "full_allocated";
    case KVCacheSpecKind::kSlidingWindow:
      return "sliding_allocated";
    case KVCacheSpecKind::kChunkedLocal:
      return "chunked_allocated";
    case KVCacheSpecKind::kMamba:
      return spec.mamba_align ? Name("mamba_align_allocated") : Name("mamba_all_allocated");
    case KVCacheSpecKind::kCrossAttention:
      return "cross_allocated";
    case KVCacheSpecKind::kSinkFullAttention:
      return "sink_allocated";
  }
  return "full_allocated";
}

bool is_real(BlockId block) { return block != kNullBlockId; }

class Counter : public GoalCounter<KVCacheTarget, kGoals> {
 public:
  using GoalCounter::GoalCounter;

  void count_accepted(const Command& command) {
    reached_tokens_.resize(world().entries().size());
    if (const auto* lookup = std::get_if<GetComputedBlocks>(&command)) {
      count_lookup(*lookup);
    } else if (const auto* slots = std::get_if<AllocateSlots>(&command)) {
      count_allocation(*slots);
    } else if (const auto* freed = std::get_if<Free>(&command)) {
      reached_tokens_[world().find(freed->request)->index] = 0;
    } else if (const auto* can_fit = std::get_if<CanFitFullSequence>(&command)) {
      add("fits_not", after().fits.has_value() && !*after().fits);
      add("fits_running",
          after().fits.has_value() && reached_tokens_[world().find(can_fit->request)->index] > 0);
    } else if (std::holds_alternative<ResetPrefixCache>(command) && after().success.has_value()) {
      add("reset_done", *after().success && before().num_cached_keys > 0);
      add("reset_refused", !*after().success);
    } else if (std::holds_alternative<GetNumCommonPrefixBlocks>(command)) {
      const bool is_common =
          after().counts.has_value() &&
          std::ranges::any_of(*after().counts, [](std::uint32_t count) { return count > 0; });
      add("common_prefix_of_several",
          is_common && after().tables.has_value() && after().tables->size() > 1);
    } else if (const auto* asked = std::get_if<GetUnhashedBlockIds>(&command)) {
      add("unhashed_beside_padding", has_unhashed_beside_padding(asked->request));
    } else if (std::holds_alternative<NewStepStarts>(command)) {
      mamba_keys_.clear();
    }
    if (has_state(before()) && has_state(after())) count_state(command);
  }

 private:
  bool has_unhashed_beside_padding(const std::string& request) const {
    if (!after().blocks.has_value() || !after().tables.has_value()) return false;
    const BlocksByGroup* const table = find_table(*after().tables, request);
    for (std::size_t group = 0; table && group < table->size(); ++group) {
      const std::vector<BlockId>& blocks = (*table)[group];
      const bool has_padding = contains(blocks, kNullBlockId);
      if (has_padding && !(*after().blocks)[group].empty()) return true;
    }
    return false;
  }

  /// Whether a group can serve a hit of so many tokens from these keys.
  bool has_hit(GroupId group, const Request& request, std::uint32_t num_tokens,
               const KeyList& keys) const {
    const KVCacheSpec& spec = config_.groups[group];
    const std::uint32_t length = num_tokens / spec.block_size;
    for (std::uint32_t index = first_needed_block(spec, length); index < length; ++index) {
      if (std::ranges::none_of(keys, [&](const BlockHash& key) {
            return is_key_of(key, request, spec.block_size, index, group);
          })) {
        return false;
      }
    }
    return true;
  }

  void count_lookup(const GetComputedBlocks& command) {
    if (!after().num_hit_tokens.has_value() || !after().blocks.has_value()) return;
    const std::uint32_t num_hit = *after().num_hit_tokens;
    const BlockLists& blocks = *after().blocks;
    const bool reads = !world().find(command.request)->skip_reading_prefix_cache;
    add("reading_skipped", !reads);
    add("hit_again_after_preemption", command.was_preempted && num_hit > 0);
    std::size_t num_groups = 0;
    for (GroupId group = 0; group < std::min(blocks.size(), config_.groups.size()); ++group) {
      const bool has_block = std::ranges::any_of(blocks[group], is_real);
      const bool has_null = contains(blocks[group], kNullBlockId);
      const KVCacheSpecKind kind = config_.groups[group].kind;
      num_groups += has_block ? 1 : 0;
      add("window_hit", kind == KVCacheSpecKind::kSlidingWindow && has_block && has_null);
      add("mamba_hit", kind == KVCacheSpecKind::kMamba && has_block);
      add("chunked_hit", kind == KVCacheSpecKind::kChunkedLocal && has_block);
    }
    add("hit", num_groups > 0);
    add("hybrid_hit", num_groups > 1);
    if (!after().keys.has_value() || !reads || !config_.pool.enable_caching) return;

    // What each group could serve, up to what the group before it could.
    const Request& request = *world().requests().find(command.request);
    const std::uint32_t unit = config_.scheduler_block_size();
    const auto num_tokens = static_cast<std::uint32_t>(request.all_token_ids().size());
    if (num_tokens == 0) return;
    std::uint32_t length = (num_tokens - 1) / unit * unit;
    bool all_have_more = num_hit + unit <= length;
    int num_shortened = 0;
    for (const bool full_first : {true, false}) {
      for (GroupId group = 0; group < config_.groups.size(); ++group) {
        if (config_.groups[group].is_full_attention() != full_first) continue;
        all_have_more = all_have_more && has_hit(group, request, num_hit + unit, *after().keys);
        const std::uint32_t longest = length;
        while (length > 0 && !has_hit(group, request, length, *after().keys)) length -= unit;
        if (!full_first && length < longest) ++num_shortened;
      }
    }
    add("hit_shortened_by_a_group", num_shortened > 0);
    add("hit_shortened_twice", num_shortened > 1);
    add("eagle_drop", config_.use_eagle && all_have_more);
  }

  void count_allocation(const AllocateSlots& command) {
    const RequestIndex index = world().find(command.request)->index;
    const std::uint64_t num_computed =
        std::uint64_t{command.num_computed_tokens} + command.num_external_tokens;
    const bool follows_lookup = command.from_cache && before().num_hit_tokens.has_value();
    if (!*after().allocated) {
      add("allocation_failed");
      add("full_sequence_gate_closed", command.full_sequence_must_fit);
      if (has_state(before()) && has_state(after())) {
        add("allocation_failed_after_dropping", *before().tables != *after().tables);
      }
      for (GroupId group = 0; follows_lookup && group < config_.groups.size(); ++group) {
        const std::vector<BlockId>& found = (*before().blocks)[group];
        if (config_.groups[group].kind != KVCacheSpecKind::kMamba || found.empty()) continue;
        if (!before().keys.has_value()) continue;
        add("mamba_refused_in_same_step", mamba_keys_.count((*before().keys)[found.back()]) > 0);
      }
      return;
    }
    add("external_tokens", command.num_external_tokens > 0);
    add("external_tokens_after_a_hit",
        command.num_external_tokens > 0 && follows_lookup && *before().num_hit_tokens > 0);
    add("caching_delayed", command.delay_cache_blocks);
    add("lookahead", command.num_lookahead_tokens > 0);
    add("model_length_caps_slots",
        num_computed + command.num_new_tokens + command.num_lookahead_tokens >
            config_.max_model_len);
    if (has_state(before()) && has_state(after())) {
      add("speculation_rewound", command.num_computed_tokens < reached_tokens_[index]);
      count_new_blocks(command);
    }
    reached_tokens_[index] = num_computed + command.num_new_tokens;
  }

  void count_new_blocks(const AllocateSlots& command) {
    const BlocksByGroup* table = find_table(*after().tables, command.request);
    const BlocksByGroup* table_before = find_table(*before().tables, command.request);
    const std::size_t num_tokens = world().requests().find(command.request)->all_token_ids().size();
    const std::uint64_t num_slots = std::uint64_t{command.num_computed_tokens} +
                                    command.num_external_tokens + command.num_new_tokens;
    const std::uint32_t unit = config_.scheduler_block_size();
    const std::uint64_t num_full = std::min<std::uint64_t>(num_slots, num_tokens) / unit * unit;
    for (GroupId group = 0; group < config_.groups.size(); ++group) {
      const KVCacheSpec& spec = config_.groups[group];
      const std::vector<BlockId>& gained = (*after().blocks)[group];
      add(allocated_goal(spec), std::ranges::any_of(gained, is_real));
      const std::size_t begin = table ? (*table)[group].size() - gained.size() : 0;
      for (std::size_t offset = 0; offset < gained.size(); ++offset) {
        const BlockId block = gained[offset];
        if (!is_real(block)) continue;
        const BlockHash& key = (*after().keys)[block];
        const BlockHash& key_before = (*before().keys)[block];
        add("cached_block_evicted_by_allocation", !key_before.empty() && key != key_before);
        add("speculative_block_moved", table_before && (*before().ref_cnts)[block] > 0 &&
                                           contains((*table_before)[group], block));
        add("mask_left_a_block_out",
            config_.pool.rules.sliding_window_mask && config_.pool.enable_caching &&
                spec.kind == KVCacheSpecKind::kSlidingWindow && !command.delay_cache_blocks &&
                key.empty() && (begin + offset + 1) * spec.block_size <= num_full);
      }
    }
  }

  void count_state(const Command& command) {
    const std::vector<std::uint32_t>& refs = *after().ref_cnts;
    const KeyList& keys = *after().keys;
    add("shared_prefix",
        std::ranges::any_of(refs, [](std::uint32_t ref_cnt) { return ref_cnt > 1; }));
    bool adds_keys = false;
    std::size_t num_keys = 0;
    for (BlockId block = 0; block < keys.size(); ++block) {
      if (keys[block].empty()) continue;
      ++num_keys;
      if (keys[block] == (*before().keys)[block]) continue;
      adds_keys = true;
      const GroupId group = get_group_id(keys[block]);
      if (group < config_.groups.size() && config_.groups[group].kind == KVCacheSpecKind::kMamba) {
        mamba_keys_.insert(keys[block]);
      }
    }
    add("duplicate_key", num_keys > after().num_cached_keys);
    add("delayed_blocks_cached", std::holds_alternative<CacheBlocks>(command) && adds_keys);

    bool drops = false;
    for (const RequestBlocks& table : *after().tables) {
      const BlocksByGroup* old = find_table(*before().tables, table.request);
      for (std::size_t group = 0; old && group < table.blocks.size(); ++group) {
        const std::size_t length = std::min(table.blocks[group].size(), (*old)[group].size());
        for (std::size_t index = 0; index < length; ++index) {
          drops = drops ||
                  (table.blocks[group][index] == kNullBlockId && is_real((*old)[group][index]));
        }
      }
    }
    add("skipped_block_dropped", drops);
    const std::vector<BlockId>& queue = *after().free_queue;
    const std::vector<BlockId>& queue_before = *before().free_queue;
    add("unhashed_block_to_the_head", config_.pool.rules.unhashed_blocks_first && !queue.empty() &&
                                          !queue_before.empty() && keys[queue.front()].empty() &&
                                          !contains(queue_before, queue.front()));
  }

  const KVCacheManagerConfig& config_ = setup();
  std::vector<std::uint64_t> reached_tokens_;  ///< by request: where its slots ended last
  std::set<BlockHash> mamba_keys_;             ///< cached since the step began
};

}  // namespace

GoalSuite goals() { return goal_suite<KVCacheTarget, kGoals, Counter>(); }

}  // namespace kvfence::kv_cache
