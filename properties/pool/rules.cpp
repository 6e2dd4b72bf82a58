/// The rules of target block_pool. They hold for any correct block pool, of any release, and are
/// about the observations of one implementation. They predict no answers; the reference does.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/core/line.h"
#include "contract/pool/block_pool.h"
#include "contract/pool/block_pool_target.h"
#include "properties/core/broken_rule.h"
#include "properties/core/divergence.h"
#include "properties/core/invariant_values.h"
#include "properties/core/named_place.h"
#include "properties/pool/distinct_keys.h"
#include "properties/pool/event_mirror.h"
#include "properties/targets/rooms.h"

namespace kvfence::block_pool {
namespace {

/// Every invariant: what the command line and the documentation list.
constexpr Invariant kInvariants[] = {
    {"pool.1", "ref_cnt_counts_holders",
     "a block's ref_cnt is how often it was handed out or touched, less how often it was freed; "
     "a block that nobody holds cannot be freed",
     "blocks ref_cnts"},
    {"pool.2", "queue_holds_the_unreferenced",
     "the free queue holds exactly the blocks that nobody references, once each",
     "blocks free_queue"},
    {"pool.3", "null_block_stays_out",
     "the null block has no key, no reference and no place in the free queue",
     "ref_cnts free_queue keys"},
    {"pool.4", "numbers_add_up",
     "num_free_blocks, num_empty, num_cached, num_referenced, num_cached_keys and usage are those "
     "of the blocks: empty + cached + referenced is every block, empty + cached the queue",
     "blocks keys num_free_blocks num_empty num_cached num_referenced num_cached_keys usage"},
    {"pool.5", "new_blocks_are_unused",
     "get_new_blocks hands out as many blocks as asked, each once, that nobody references",
     "blocks"},
    {"pool.6", "lookup_agrees_with_keys",
     "a hit is one block per group, in order, that carries the key asked for; a lookup misses only "
     "if no block of some group carries it",
     "hit blocks keys"},
    {"pool.7", "keys_are_what_was_cached",
     "a block carries the key under which it was cached, or none; and none after it was handed "
     "out or evicted, or the cache was reset",
     "blocks success keys"},
    {"pool.8", "events_mirror_the_keys",
     "an index fed by the events holds exactly the hashes in the pool, removes none that it does "
     "not hold, and gets no event if events are off",
     "events keys"},
    {"pool.9", "refused_changes_nothing",
     "a refused command changes neither blocks nor queue nor keys", "ref_cnts free_queue keys"},
};

using detail::carries;
using detail::key_value;

using Rule = NamedPlace<kInvariants>;
constexpr BrokenRuleOf<kInvariants> broken;

bool has_state(const Observation& shown) {
  return shown.free_queue.has_value() && shown.ref_cnts.has_value() && shown.keys.has_value();
}

/// Holders and keys are counted from commands and answers, so an observation without the state is
/// checked by its numbers, and the next one with the state in full.
class Invariants final : public RulesFor<BlockPoolTarget> {
 public:
  /// For a fresh pool.
  explicit Invariants(const BlockPoolConfig& config)
      : config_(config),
        holders_(config.num_gpu_blocks),
        cached_(config.num_gpu_blocks),
        has_key_(config.num_gpu_blocks) {
    // The KV-cache manager, not the pool, adds the kind of a group to events
    // (contract/kv_cache/kv_cache_manager.h).
    config_.rules.events_carry_spec = false;
  }

  /// Cost: linear in the blocks; no allocation once warm, unless an invariant is broken.
  void check_all(const Command& command) override {
    judge([&] {
      if (shown().error != ErrorCode::kNone) {
        broken.if_changed("refused_changes_nothing", before(), shown());
      } else {
        std::visit([&](const auto& accepted) { take(accepted); }, command);
      }
    });
    judge([&] { check_numbers(); });
    if (!has_state(shown())) return;
    judge([&] { check_references(); });
    judge([&] { check_queue(); });
    check_keys();
  }

 private:
  // ---- Commands and answers. ----

  // Each changes the model by an accepted command, and checks its answer.
  void take(const GetNewBlocks& command) {
    const std::vector<BlockId>& blocks = shown().blocks.or_empty();
    bool is_right = blocks.size() == command.num_blocks;
    for (BlockId block : blocks) {
      is_right = is_right && can_be_held(block) && holders_[block] == 0;
      if (!is_right) break;
      holders_[block] = 1;
      ++num_held_;
      cached_[block].clear();
    }
    if (is_right) return;
    broken("new_blocks_are_unused", "blocks",
           std::to_string(command.num_blocks) + " blocks that nobody references", blocks);
  }

  void take(const GetCachedBlock& command) {
    const auto hashes = hashes_of(command.request, command.block_size);
    if (!hashes || command.index >= hashes->size()) return;
    if (!shown().hit.has_value() || !shown().keys.has_value()) return;
    const BlockHashView hash = (*hashes)[command.index];
    const KeyList& keys = *shown().keys;
    if (!*shown().hit) {
      const bool all_there = std::ranges::all_of(command.groups, [&](GroupId group) {
        return std::ranges::any_of(keys,
                                   [&](const BlockHash& key) { return carries(key, hash, group); });
      });
      if (all_there) broken("lookup_agrees_with_keys", "hit", true, false);
      return;
    }
    bool is_right = shown().blocks.has_value() && shown().blocks->size() == command.groups.size();
    for (std::size_t at = 0; is_right && at < command.groups.size(); ++at) {
      const BlockId block = (*shown().blocks)[at];
      is_right = block < keys.size() && carries(keys[block], hash, command.groups[at]);
    }
    if (is_right) return;
    broken("lookup_agrees_with_keys", "blocks", "blocks that carry the key, one per group",
           *shown().blocks);
  }

  void take(const Touch& command) {
    for (BlockId block : command.blocks) {
      if (can_be_held(block) && holders_[block]++ == 0) ++num_held_;
    }
  }

  void take(const CacheFullBlocks& command) {
    const auto hashes = hashes_of(command.request, command.block_size);
    if (!hashes || !config_.enable_caching) return;
    const std::size_t end =
        std::min<std::size_t>({command.num_full_blocks, command.blocks.size(), hashes->size()});
    for (std::size_t index = command.num_cached_blocks; index < end; ++index) {
      const BlockId block = command.blocks[index];
      const std::size_t at = index - command.num_cached_blocks;
      const bool is_masked =
          command.block_mask && (at >= command.block_mask->size() || !(*command.block_mask)[at]);
      if (is_masked || !can_be_held(block)) continue;
      is_counted_ = false;
      BlockHash& key = cached_[block];
      key.assign((*hashes)[index]);
      for (int shift = 24; shift >= 0; shift -= 8) {
        key.push_back(static_cast<char>(command.group >> shift));
      }
    }
  }

  void take(const FreeBlocks& command) {
    for (BlockId block : command.blocks) {
      if (!can_be_held(block)) continue;
      if (holders_[block] == 0) {
        broken("ref_cnt_counts_holders", "error",
               "a refusal: nobody holds block " + std::to_string(block), shown().error);
      }
      if (--holders_[block] == 0) --num_held_;
    }
  }

  void take(const EvictBlocks& command) {
    for (BlockId block : command.blocks) {
      if (can_be_held(block)) cached_[block].clear();
    }
  }

  void take(const ResetPrefixCache&) {
    if (!shown().success.has_value() || !*shown().success) return;
    for (BlockHash& key : cached_) key.clear();
  }

  void take(const TakeEvents&) {
    if (!shown().events.has_value()) return;
    index_.take(*shown().events, config_);
    if (shown().keys.has_value()) index_.compare(*shown().keys, config_);
  }

  template <class Declaration>
  void take(const Declaration&) {}

  // ---- What is shown. ----

  void check_numbers() const {
    const auto num_blocks = static_cast<std::uint32_t>(holders_.size());
    const std::uint32_t num_free = num_blocks - 1 - num_held_;
    const auto must_be = [](std::string_view name, const auto& expected, const auto& actual) {
      broken.unless_equal("numbers_add_up", name, expected, actual);
    };
    must_be("num_free_blocks", num_free, shown().num_free_blocks);
    must_be("num_referenced", num_blocks - num_free, shown().num_referenced);
    if (shown().num_cached > num_free) {
      broken("numbers_add_up", "num_cached", num_free, shown().num_cached);
    }
    must_be("num_empty", num_free - shown().num_cached, shown().num_empty);
    double usage = 0;
    if (num_blocks > 1) {
      usage = 1.0 - static_cast<double>(num_free) / static_cast<double>(num_blocks - 1);
    }
    must_be("usage", usage, shown().usage);
  }

  void check_references() const {
    const std::vector<std::uint32_t>& ref_cnts = *shown().ref_cnts;
    const bool null_is_out = !ref_cnts.empty() && ref_cnts[kNullBlockId] == 0;
    if (!null_is_out) broken("null_block_stays_out", "ref_cnts", holders_, ref_cnts);
    broken.unless_equal("ref_cnt_counts_holders", "ref_cnts", holders_, ref_cnts);
  }

  void check_queue() {
    const std::vector<BlockId>& queue = *shown().free_queue;
    is_queued_.assign(holders_.size(), 0);
    for (BlockId block : queue) {
      if (block == kNullBlockId) {
        broken("null_block_stays_out", "free_queue", "no null block", queue);
      }
      const bool is_right = can_be_held(block) && holders_[block] == 0 && !is_queued_[block];
      if (!is_right) {
        broken("queue_holds_the_unreferenced", "free_queue", "each unreferenced block once", queue);
      }
      is_queued_[block] = 1;
    }
    if (queue.size() != holders_.size() - 1 - num_held_) {
      broken("queue_holds_the_unreferenced", "free_queue", "every unreferenced block", queue);
    }
  }

  /// Requires: the references are right.
  void check_keys() {
    const KeyList& keys = *shown().keys;
    if (keys.size() != cached_.size()) broken("keys_are_what_was_cached", "keys", cached_, keys);
    std::uint32_t num_cached = 0;
    for (BlockId block = 0; block < keys.size(); ++block) {
      const bool has_key = !keys[block].empty();
      is_counted_ = is_counted_ && has_key == static_cast<bool>(has_key_[block]);
      has_key_[block] = has_key;
      if (!has_key) continue;
      if (block == kNullBlockId || keys[block] != cached_[block]) {
        broken(
            block == kNullBlockId ? Rule("null_block_stays_out") : Rule("keys_are_what_was_cached"),
            "keys[" + std::to_string(block) + "]", key_value(cached_[block]),
            key_value(keys[block]));
      }
      if (holders_[block] == 0) ++num_cached;
    }
    if (!is_counted_) {
      is_counted_ = true;
      num_keys_ = num_distinct(keys, distinct_);
    }
    broken.unless_equal("numbers_add_up", "num_cached", num_cached, shown().num_cached);
    broken.unless_equal("numbers_add_up", "num_cached_keys", num_keys_, shown().num_cached_keys);
  }

  bool can_be_held(BlockId block) const { return block != kNullBlockId && block < holders_.size(); }

  /// The request's hashes at that size; nothing if there is nothing to look up.
  std::optional<BlockHashListView> hashes_of(const std::string& request,
                                             std::uint32_t block_size) const {
    const Request* declared = world().requests().find(request);
    const bool fits = block_size != 0 && block_size % config_.hash.hash_block_size == 0;
    if (!declared || !fits) return std::nullopt;
    return declared->block_hashes(block_size);
  }

  BlockPoolConfig config_;
  std::vector<std::uint32_t> holders_;  ///< by block
  std::uint32_t num_held_ = 0;          ///< blocks with holders
  KeyList cached_;                      ///< by block: the key under which it was cached last
  EventMirror index_{broken.row("events_mirror_the_keys")};

  std::vector<std::uint8_t> has_key_;  ///< by block, where the state was shown last
  std::uint32_t num_keys_ = 0;         ///< different ones among the keys
  bool is_counted_ = false;            ///< they are those of has_key_ and cached_

  std::vector<std::uint8_t> is_queued_;     ///< scratch
  std::vector<std::string_view> distinct_;  ///< scratch
};

}  // namespace

RuleSuite<BlockPoolTarget> rules() { return rule_suite<Invariants>(kInvariants); }

}  // namespace kvfence::block_pool
