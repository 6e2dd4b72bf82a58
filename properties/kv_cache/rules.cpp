/// The rules of target kv_cache. They hold for any correct KV-cache manager, of any release, and
/// are about the observations of one implementation. They predict no answers; the reference does.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/core/line.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/kv_cache/kv_cache_target.h"
#include "properties/core/broken_rule.h"
#include "properties/core/divergence.h"
#include "properties/core/invariant_values.h"
#include "properties/core/left_out.h"
#include "properties/core/named_place.h"
#include "properties/kv_cache/arithmetic.h"
#include "properties/kv_cache/block_table_rules.h"
#include "properties/pool/distinct_keys.h"
#include "properties/pool/event_mirror.h"
#include "properties/targets/rooms.h"

namespace kvfence::kv_cache {
namespace {

/// Every invariant: what the command line and the documentation list.
constexpr Invariant kInvariants[] = {
    {"kv_cache.1", "null_and_sinks_stay_out",
     "the null block and the blocks that sinks took have no key, no reference and no place in the "
     "free queue",
     "free_queue ref_cnts keys tables"},
    {"kv_cache.2", "ref_cnt_counts_places",
     "a block's ref_cnt is the number of places that hold it in the block tables",
     "ref_cnts tables"},
    {"kv_cache.3", "queue_holds_the_unreferenced",
     "the free queue holds exactly the blocks that no table holds, once each, but for sinks",
     "free_queue ref_cnts tables"},
    {"kv_cache.4", "a_block_has_one_place",
     "a block is at one place of one table, unless requests of the same prefix share it at the "
     "same place",
     "allocated ref_cnts tables"},
    {"kv_cache.5", "keys_fit_their_places",
     "a block in a table that carries a key carries that of its place in the request and group",
     "allocated ref_cnts keys tables"},
    {"kv_cache.6", "numbers_add_up",
     "num_free_blocks, num_cached_keys and usage are those of the queue and the keys",
     "num_free_blocks num_cached_keys usage free_queue keys"},
    {"kv_cache.7", "nothing_is_held_when_all_is_freed",
     "a request that is not allocated has no table; while none is allocated every block but null "
     "and sinks is free",
     "allocated tables num_free_blocks"},
    {"kv_cache.8", "needed_places_keep_their_blocks",
     "a place of a table keeps its block until its request is freed, or its group no longer needs "
     "the tokens",
     "tables"},
    {"kv_cache.9", "allocation_covers_the_tokens",
     "an allocation that succeeds leaves the request with places for its tokens in every group",
     "allocated tables"},
    {"kv_cache.10", "keys_follow_computed_tokens",
     "a key appears only on a block of the request that is allocated or cached, at a place whose "
     "tokens are computed, or are now",
     "keys tables"},
    {"kv_cache.11", "evicted_is_gone",
     "an evicted block carries no key; after a reset that succeeds no block does", "success keys"},
    {"kv_cache.12", "hit_is_cached_in_every_group",
     "a hit is shorter than the request, as long in every group, and each block that it needs "
     "carries the key of its place",
     "num_hit_tokens blocks keys"},
    {"kv_cache.13", "state_of_this_step_is_not_hit",
     "a Mamba state that was cached in a step is hit in no allocation of that step: it is not "
     "written yet",
     "allocated blocks keys tables"},
    {"kv_cache.14", "common_prefix_is_held_by_all",
     "the leading blocks that get_num_common_prefix_blocks counts are held by every allocated "
     "request",
     "allocated counts ref_cnts tables"},
    {"kv_cache.15", "events_mirror_the_keys",
     "an index fed by the events holds exactly the hashes in the pool, removes none that it does "
     "not hold, and gets no event if events are off",
     "events keys"},
    {"kv_cache.16", "refused_changes_nothing",
     "a refused command changes neither blocks nor queue nor keys nor tables",
     "free_queue ref_cnts keys tables"},
};

using Rule = NamedPlace<kInvariants>;
constexpr BrokenRuleOf<kInvariants> broken;

const LeftOut kOvershootingHit(
    LeftOut::By::kRule, "kv_cache.12 hit_is_cached_in_every_group: hits that overshoot",
    "upstream's lookup may leave a group more blocks than the hit has tokens for: with two kinds "
    "of full attention, or eagle by group and Mamba",
    "kv_cache/mamba/hit_of_no_token_has_a_block.kvs");

using kvfence::detail::find_table;
using kvfence::detail::is_key_of;
using kvfence::detail::key_value;
using kvfence::detail::place_name;

/// A key that should not be there.
[[noreturn]] void broken_key(Rule rule, BlockId block, const BlockHash& before,
                             const BlockHash& after) {
  broken(rule, "keys[" + std::to_string(block) + "]", key_value(before), key_value(after));
}

/// The names, by BlockRule.
constexpr Rule kBlockRules[] = {"ref_cnt_counts_places", "null_and_sinks_stay_out",
                                "ref_cnt_counts_places", "queue_holds_the_unreferenced",
                                "a_block_has_one_place", "keys_fit_their_places"};

/// Changes by a command are checked if the state was observed before and after it; the state
/// itself, answers and numbers whenever they are observed.
class Invariants final : public RulesFor<KVCacheTarget> {
 public:
  /// For a fresh manager.
  explicit Invariants(const KVCacheManagerConfig& config)
      : config_(config), block_tables_(config, kBlockRules) {}

  /// Cost: linear in the blocks and the places of all tables.
  void check_all(const Command& command) override {
    const bool is_refused = shown().error != ErrorCode::kNone;
    const bool is_seen = has_state(shown());
    state_before_ = before() && has_state(*before()) ? before() : nullptr;
    const bool has_change = is_seen && state_before_;
    if (is_refused) {
      judge([&] { broken.if_changed("refused_changes_nothing", state_before_, shown()); });
    } else {
      count_allocated(command);
    }
    if (is_seen) judge([&] { check_state(); });
    take_in_keys(has_change);
    judge([&] { check_numbers(); });
    if (!is_refused) {
      judge([&] { std::visit([&](const auto& accepted) { check_answer(accepted); }, command); });
    }
    if (has_change && !is_refused) {
      judge([&] { check_kept_places(command); });
      judge([&] { check_new_keys(command); });
    }

    if (std::holds_alternative<NewStepStarts>(command)) mamba_keys_.clear();
    for (const BlockId block : new_keys_) {
      const BlockHash& key = (*shown().keys)[block];
      const bool is_mamba = config_.groups[get_group_id(key)].kind == KVCacheSpecKind::kMamba;
      if (is_mamba) mamba_keys_.insert(key);
    }
  }

 private:
  // ---- Answers: what is wrong with one that was accepted ----

  void check_answer(const GetComputedBlocks& command) const {
    const Request* request = world().requests().find(command.request);
    if (!request || !shown().num_hit_tokens.has_value() || !shown().blocks.has_value()) return;
    const std::uint32_t num_hit = *shown().num_hit_tokens;
    const std::size_t num_tokens = request->all_token_ids().size();
    if (num_hit > 0 && num_hit >= num_tokens) {
      broken("hit_is_cached_in_every_group", "num_hit_tokens", "fewer than the request has",
             num_hit);
    }
    if (num_hit % config_.scheduler_block_size() != 0) {
      broken("hit_is_cached_in_every_group", "num_hit_tokens",
             "a multiple of every group's block size", num_hit);
    }
    if (shown().blocks->size() != config_.groups.size()) {
      broken("hit_is_cached_in_every_group", "blocks", "a list per group", *shown().blocks);
    }
    for (GroupId group = 0; group < config_.groups.size(); ++group) {
      const std::uint32_t length = num_hit / config_.groups[group].block_size;
      const std::vector<BlockId>& blocks = (*shown().blocks)[group];
      if (blocks.size() != length && !kOvershootingHit(hit_may_overshoot(config_))) {
        broken("hit_is_cached_in_every_group", "blocks[" + std::to_string(group) + "]",
               std::to_string(length) + " blocks", blocks);
      }
      if (!shown().keys.has_value()) continue;
      check_hit_group(group, *request);
    }
  }

  void check_answer(const GetNumCommonPrefixBlocks& command) const {
    if (!shown().counts.has_value() || !has_state(shown())) return;
    const BlocksByGroup* table = find_table(*shown().tables, command.request);
    for (GroupId group = 0; group < shown().counts->size(); ++group) {
      const std::uint32_t count = (*shown().counts)[group];
      std::uint32_t held_by_all = 0;
      while (table && group < table->size() && held_by_all < (*table)[group].size()) {
        const BlockId block = (*table)[group][held_by_all];
        if (block == kNullBlockId || (*shown().ref_cnts)[block] < num_allocated_) break;
        ++held_by_all;
      }
      if (count <= held_by_all) continue;
      broken("common_prefix_is_held_by_all", "counts[" + std::to_string(group) + "]", held_by_all,
             count);
    }
  }

  void check_answer(const AllocateSlots& command) const {
    const bool is_allocated = shown().allocated.has_value() && *shown().allocated;
    if (!is_allocated || !shown().tables.has_value()) return;
    static const BlocksByGroup kNone;
    const BlocksByGroup* table = find_table(*shown().tables, command.request);
    // The hit is not shown and not counted.
    const std::uint64_t num_tokens = std::uint64_t{command.num_computed_tokens} +
                                     command.num_external_tokens + command.num_new_tokens +
                                     command.num_lookahead_tokens;
    for (GroupId group = 0; group < config_.groups.size(); ++group) {
      const KVCacheSpec& spec = config_.groups[group];
      if (spec.kind == KVCacheSpecKind::kMamba) continue;  // holds a state, not its tokens
      const std::uint64_t needed = spec.kind == KVCacheSpecKind::kCrossAttention
                                       ? command.num_encoder_tokens
                                       : std::min<std::uint64_t>(num_tokens, config_.max_model_len);
      const std::size_t num_places = table ? (*table)[group].size() : 0;
      if (num_places * spec.block_size >= needed) continue;
      broken("allocation_covers_the_tokens",
             "tables[" + command.request + "][" + std::to_string(group) + "]",
             "places for " + std::to_string(needed) + " tokens",
             table ? (*table)[group] : std::vector<BlockId>());
    }

    const bool is_fresh = state_before_ && !find_table(*state_before_->tables, command.request);
    if (!table || !is_fresh || command.num_external_tokens > 0 || !shown().blocks.has_value()) {
      return;
    }
    for (GroupId group = 0; group < config_.groups.size(); ++group) {
      if (config_.groups[group].kind != KVCacheSpecKind::kMamba) continue;
      // The hit is before the new blocks, which are the answer.
      const std::vector<BlockId>& blocks = (*table)[group];
      const std::size_t num_new = (*shown().blocks)[group].size();
      for (std::size_t index = 0; index + num_new < blocks.size(); ++index) {
        if (mamba_keys_.count((*state_before_->keys)[blocks[index]]) == 0) continue;
        broken("state_of_this_step_is_not_hit", place_name(command.request, group, index),
               "a state of a step before", blocks[index]);
      }
    }
  }

  void check_answer(const EvictBlocks& command) const {
    for (BlockId block : command.blocks) {
      if (!shown().keys.has_value() || block >= shown().keys->size()) continue;
      const BlockHash& key = (*shown().keys)[block];
      if (!key.empty()) broken_key("evicted_is_gone", block, {}, key);
    }
  }

  void check_answer(const ResetPrefixCache&) const {
    const bool is_reset = shown().success.has_value() && *shown().success;
    for (BlockId block = 0; is_reset && shown().keys.has_value() && block < shown().keys->size();
         ++block) {
      const BlockHash& key = (*shown().keys)[block];
      if (!key.empty()) broken_key("evicted_is_gone", block, {}, key);
    }
  }

  void check_answer(const TakeEvents&) {
    if (!shown().events.has_value()) return;
    index_.take(*shown().events, config_.pool);
    if (shown().keys.has_value()) index_.compare(*shown().keys, config_.pool);
  }

  template <class Other>
  void check_answer(const Other&) const {}

  void check_hit_group(GroupId group, const Request& request) const {
    const KVCacheSpec& spec = config_.groups[group];
    const std::vector<BlockId>& blocks = (*shown().blocks)[group];
    const KeyList& keys = *shown().keys;
    // If chunks end inside a block, the end of the nulls is not determined.
    const bool is_open = spec.kind == KVCacheSpecKind::kChunkedLocal &&
                         spec.attention_chunk_size % spec.block_size != 0;
    const auto length = static_cast<std::uint32_t>(blocks.size());
    const std::uint32_t first_needed = is_open ? length : first_needed_block(spec, length);
    for (std::size_t index = 0; index < blocks.size(); ++index) {
      const BlockId block = blocks[index];
      const std::string place =
          "blocks[" + std::to_string(group) + "][" + std::to_string(index) + "]";
      if (block == kNullBlockId) {
        if (index < first_needed) continue;
        broken("hit_is_cached_in_every_group", place, "a cached block", block);
      }
      if (block >= keys.size() || !is_key_of(keys[block], request, spec.block_size, index, group)) {
        broken("hit_is_cached_in_every_group", place, "a block with the key of its place", block);
      }
    }
  }

  // ---- The state ----

  /// Most commands cache nothing; then the keys have already been counted.
  void take_in_keys(bool has_change) {
    new_keys_.clear();
    bool has_changed = !has_change;
    for (BlockId block = 0; has_change && block < state_before_->keys->size(); ++block) {
      const BlockHash& key = (*shown().keys)[block];
      if (key == (*state_before_->keys)[block]) continue;
      has_changed = true;
      if (!key.empty()) new_keys_.push_back(block);
    }
    if (has_changed && shown().keys.has_value()) num_keys_ = num_distinct(*shown().keys, distinct_);
  }

  void check_numbers() {
    const std::uint32_t num_usable = config_.num_usable_blocks();
    if (num_allocated_ == 0 && shown().num_free_blocks != num_usable) {
      broken("nothing_is_held_when_all_is_freed", "num_free_blocks", num_usable,
             shown().num_free_blocks);
    }
    if (shown().free_queue.has_value()) {
      const auto num_free = static_cast<std::uint32_t>(shown().free_queue->size());
      broken.unless_equal("numbers_add_up", "num_free_blocks", num_free, shown().num_free_blocks);
    }
    if (shown().keys.has_value()) {
      broken.unless_equal("numbers_add_up", "num_cached_keys", num_keys_, shown().num_cached_keys);
    }
    const std::uint32_t num_all = config_.pool.num_gpu_blocks - 1;
    double usage = 0;
    if (num_all > 0) {
      usage = 1.0 - static_cast<double>(shown().num_free_blocks) / static_cast<double>(num_all);
    }
    broken.unless_equal("numbers_add_up", "usage", usage, shown().usage);
  }

  void check_state() {
    const BlockState state{*shown().free_queue, *shown().ref_cnts, *shown().keys, *shown().tables};
    block_tables_.check_blocks(state);
    owners_.clear();
    for (const RequestBlocks& table : state.tables) {
      const World::Entry* entry = world().find(table.request);
      if (!entry || !is_allocated(entry->index)) {
        broken("nothing_is_held_when_all_is_freed", "tables", table.request + " without a table",
               state.tables);
      }
      owners_.push_back(
          {world().requests().find(table.request), entry->index, aliasing_[entry->index]});
    }
    block_tables_.check_places(state, owners_);
  }

  // ---- The change from the state before ----

  void check_kept_places(const Command& command) const {
    const auto* freed = std::get_if<Free>(&command);
    const auto* removed = std::get_if<RemoveSkippedBlocks>(&command);
    const auto* slots = std::get_if<AllocateSlots>(&command);
    const std::uint32_t num_computed = removed ? removed->total_computed_tokens
                                       : slots ? slots->num_computed_tokens
                                               : 0;
    for (const RequestBlocks& table : *state_before_->tables) {
      if (freed && table.request == freed->request) continue;
      const bool may_drop = (removed && table.request == removed->request) ||
                            (slots && table.request == slots->request);
      const BlocksByGroup* after = find_table(*shown().tables, table.request);
      for (GroupId group = 0; group < config_.groups.size(); ++group) {
        const KVCacheSpec& spec = config_.groups[group];
        // It drops the state of two steps ago, and moves the speculative blocks.
        if (may_drop && spec.mamba_align) continue;
        const std::size_t num_dropped = may_drop ? num_droppable_blocks(spec, num_computed) : 0;
        const std::vector<BlockId>& before = table.blocks[group];
        for (std::size_t index = 0; index < before.size(); ++index) {
          const bool is_there = after && index < (*after)[group].size();
          const BlockId now = is_there ? (*after)[group][index] : kNullBlockId;
          if (now == before[index] || (now == kNullBlockId && index < num_dropped)) continue;
          broken("needed_places_keep_their_blocks", place_name(table.request, group, index),
                 before[index], now);
        }
      }
    }
  }

  void check_new_keys(const Command& command) const {
    const std::string* name = nullptr;
    std::uint64_t num_computed = 0;
    if (const auto* slots = std::get_if<AllocateSlots>(&command);
        slots && !slots->delay_cache_blocks) {
      name = &slots->request;
      num_computed = std::uint64_t{slots->num_computed_tokens} + slots->num_external_tokens +
                     slots->num_new_tokens;
      // How long the hit was is not shown.
      if (slots->from_cache) num_computed = UINT64_MAX;
    } else if (const auto* cached = std::get_if<CacheBlocks>(&command)) {
      name = &cached->request;
      num_computed = cached->num_computed_tokens;
    }
    const Request* request = name ? world().requests().find(*name) : nullptr;
    const BlocksByGroup* table = request ? find_table(*shown().tables, *name) : nullptr;
    for (const BlockId block : new_keys_) {
      const BlockHash& key = (*shown().keys)[block];
      bool is_computed = false;
      for (GroupId group = 0; table && group < config_.groups.size(); ++group) {
        const std::uint32_t block_size = config_.groups[group].block_size;
        const std::vector<BlockId>& blocks = (*table)[group];
        for (std::size_t index = 0;
             index < blocks.size() && (index + 1) * block_size <= num_computed; ++index) {
          is_computed = is_computed || (blocks[index] == block &&
                                        is_key_of(key, *request, block_size, index, group));
        }
      }
      if (!is_computed)
        broken_key("keys_follow_computed_tokens", block, (*state_before_->keys)[block], key);
    }
  }

  void count_allocated(const Command& command) {
    allocated_.resize(world().entries().size());
    aliasing_.resize(world().entries().size());
    const auto set = [&](const World::Entry* entry, bool is_allocated, Aliasing aliasing) {
      if (!entry) return;
      num_allocated_ += is_allocated ? 1 : 0;
      num_allocated_ -= allocated_[entry->index] ? 1 : 0;
      allocated_[entry->index] = is_allocated;
      aliasing_[entry->index] = aliasing;
    };
    if (const auto* freed = std::get_if<Free>(&command)) {
      set(world().find(freed->request), false, Aliasing::kNone);
    }
    const auto* slots = std::get_if<AllocateSlots>(&command);
    if (!slots || !shown().allocated.has_value() || !*shown().allocated) return;
    const World::Entry* entry = world().find(slots->request);
    Aliasing aliasing = entry ? aliasing_[entry->index] : Aliasing::kNone;
    if (slots->from_cache && slots->num_external_tokens > 0) {
      aliasing = shown().tables.has_value() ? Aliasing::kShown : Aliasing::kUnknown;
    }
    set(entry, true, aliasing);
  }

  bool is_allocated(RequestIndex index) const {
    return index < allocated_.size() && allocated_[index];
  }

  KVCacheManagerConfig config_;
  BlockTableInvariants block_tables_;
  std::vector<BlockId> new_keys_;           ///< blocks that the command gave a key, as far as shown
  std::uint32_t num_keys_ = 0;              ///< different ones, where keys were shown last
  std::vector<std::string_view> distinct_;  ///< scratch
  EventMirror index_{broken.row("events_mirror_the_keys")};
  std::vector<bool> allocated_;     ///< by request
  std::vector<Aliasing> aliasing_;  ///< by request
  std::uint32_t num_allocated_ = 0;
  std::set<BlockHash> mamba_keys_;  ///< that appeared in this step, as far as it was observed

  const Observation* state_before_ = nullptr;  ///< of the current check, if it had the state

  std::vector<TableOwner> owners_;  ///< scratch, by table
};

}  // namespace

RuleSuite<KVCacheTarget> rules() { return rule_suite<Invariants>(kInvariants); }

}  // namespace kvfence::kv_cache
