/// The rules of target offload. They hold for any correct offloading manager, of any release, and
/// are about the observations of one implementation. They do not predict what is stored or evicted;
/// the reference does.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "contract/core/lists.h"
#include "contract/offload/offload_target.h"
#include "contract/offload/offloading_manager.h"
#include "properties/core/broken_rule.h"
#include "properties/core/divergence.h"
#include "properties/eviction/held_blocks.h"
#include "properties/targets/rooms.h"

namespace kvfence::offload {
namespace {

/// Every invariant: what the command line and the documentation list.
constexpr Invariant kInvariants[] = {
    {"offload.1", "a_key_has_one_place", "a key is in at most one list, and there once",
     "t1 t2 b1 b2"},
    {"offload.2", "sizes_are_bounded",
     "size is the number of blocks held; it, B1, B2 and the target are at most the capacity, the "
     "target at least 0",
     "stored keys_to_store slots evicted size target_t1_size b1 b2"},
    {"offload.3", "blocks_are_held_as_asked",
     "T1 and T2 are the blocks that were stored and neither evicted nor failed, each with its "
     "slot, ready once it was written, with as many readers as loads began less those that ended",
     "stored keys_to_store slots evicted t1 t2"},
    {"offload.4", "a_slot_has_one_block",
     "a store gets slots below the capacity that no block has; slots without a block are free",
     "stored keys_to_store slots evicted num_free_slots"},
    {"offload.5", "nothing_in_use_is_evicted",
     "a store evicts blocks that are held and idle, none of its own keys unless a filter drops "
     "some, each once, with its slot",
     "stored keys_to_store slots evicted"},
    {"offload.6", "only_what_is_ready_is_read",
     "a load gets the slots of its keys, which are written; it ends once",
     "stored keys_to_store slots evicted"},
    {"offload.7", "only_what_is_missing_is_stored",
     "a store writes those of its own keys that are not held, each once, with a slot each",
     "stored keys_to_store slots evicted"},
    {"offload.8", "lookup_agrees_with_blocks",
     "a lookup finds what is held and ready, and nothing else; a block that is written is pending",
     "stored keys_to_store slots evicted num_hits result"},
    {"offload.9", "events_mirror_the_blocks",
     "an index fed by the events holds exactly what became ready and was not evicted since (a "
     "reset sends none), gets none more often than it became ready, removes none that it does "
     "not hold, and gets no event if events are off",
     "stored keys_to_store slots evicted events"},
    {"offload.10", "refused_changes_nothing",
     "a refused command and a store that fails leave all lists as they were",
     "stored t1 t2 b1 b2 target_t1_size"},
};

using Keys = std::vector<std::uint32_t>;
using eviction::Entry;
using eviction::Victim;
using kvfence::detail::phrase;

constexpr BrokenRuleOf<kInvariants> broken;

/// The model of held blocks follows commands and answers. So an observation without the lists is
/// checked by its answer and numbers, and the next one with lists in full.
class Invariants final : public RulesFor<OffloadTarget> {
 public:
  /// For a fresh manager.
  explicit Invariants(const OffloadingManagerConfig& config)
      : config_(config), held_(config.cache.capacity) {}

  void check_all(const Command& command) override {
    judge([&] {
      const bool has_failed = shown().stored.has_value() && !*shown().stored;
      if (shown().error != ErrorCode::kNone || has_failed) {
        broken.if_changed("refused_changes_nothing", before(), shown());
      } else {
        std::visit([&](const auto& accepted) { take(accepted); }, command);
      }
    });
    judge([&] { held_.check(shown(), broken); });
    const std::uint32_t num_free = held_.capacity() - std::min(held_.capacity(), held_.size());
    broken.unless_equal("a_slot_has_one_block", "num_free_slots", num_free, shown().num_free_slots);
  }

 private:
  // Each changes the model by an accepted command, and checks its answer.
  void take(const Lookup& command) {
    if (!shown().num_hits.has_value()) return;
    std::uint32_t num_ready = 0;
    for (std::uint32_t key : command.keys) {
      const Entry* block = held_.find(key);
      if (!block || !block->ready) break;
      ++num_ready;
    }
    broken.unless_equal("lookup_agrees_with_blocks", "num_hits", num_ready, *shown().num_hits);
  }

  void take(const LookupKey& command) {
    if (!shown().result.has_value()) return;
    const Entry* block = held_.find(command.key);
    const LookupResult result = !block         ? LookupResult::kMiss
                                : block->ready ? LookupResult::kHit
                                               : LookupResult::kPending;
    broken.unless_equal("lookup_agrees_with_blocks", "result", result, *shown().result);
  }

  void take(const Touch&) {}

  void take(const PrepareLoad& command) {
    std::vector<SlotId> slots;
    for (std::uint32_t key : command.keys) {
      Entry* block = held_.find(key);
      if (!block || !block->ready) {
        broken("only_what_is_ready_is_read", "error", phrase("a refusal: not all is written"),
               shown().error);
      }
      ++block->readers;
      slots.push_back(block->slot);
    }
    if (!shown().slots.has_value() || *shown().slots == slots) return;
    broken("only_what_is_ready_is_read", "slots", slots, *shown().slots);
  }

  void take(const CompleteLoad& command) {
    for (std::uint32_t key : command.keys) {
      Entry* block = held_.find(key);
      if (!block || block->readers == 0) {
        broken("only_what_is_ready_is_read", "error", phrase("a refusal: no load reads it"),
               shown().error);
      }
      --block->readers;
    }
  }

  void take(const PrepareStore& command) {
    if (!shown().keys_to_store.has_value() || !shown().slots.has_value() ||
        !shown().evicted.has_value()) {
      return;
    }
    // With a filter, a key that it drops is not protected.
    const bool has_filter = config_.store_threshold > 1;
    held_.evict(*shown().evicted, has_filter ? Keys() : command.keys, broken);
    for (const Victim& victim : *shown().evicted) reported_.erase(victim.key);

    const Keys& keys = *shown().keys_to_store;
    const std::vector<SlotId>& slots = *shown().slots;
    if (keys.size() != slots.size()) {
      broken("only_what_is_missing_is_stored", "slots", phrase("a slot per key"), slots);
    }
    for (std::size_t index = 0; index < keys.size(); ++index) {
      if (!contains(command.keys, keys[index]) || held_.find(keys[index])) {
        broken("only_what_is_missing_is_stored", "keys_to_store",
               phrase("keys of the store that are not held"), keys);
      }
      const std::vector<Entry>& blocks = held_.blocks();
      const bool is_taken = std::ranges::any_of(
          blocks, [&](const Entry& block) { return block.slot == slots[index]; });
      if (is_taken || slots[index] >= held_.capacity()) {
        broken("a_slot_has_one_block", "slots", phrase("free slots"), slots);
      }
      held_.insert(keys[index], slots[index]);
    }
  }

  void take(const CompleteStore& command) {
    for (std::uint32_t key : command.keys) {
      Entry* block = held_.find(key);
      if (!block || block->ready) continue;
      if (!command.success) {
        held_.remove(key);
        continue;
      }
      block->ready = true;
      reported_.insert(key);
      became_ready_.insert(key);
    }
  }

  void take(const ResetCache&) { held_.clear(); }

  void take(const TakeEvents&) {
    if (!shown().events.has_value()) return;
    const std::vector<Event>& events = *shown().events;
    if (!config_.enable_events) {
      if (events.empty()) return;
      broken("events_mirror_the_blocks", "events", std::vector<Event>(), events);
    }
    for (std::size_t index = 0; index < events.size(); ++index) {
      for (std::uint32_t key : events[index].keys) {
        const auto ready = became_ready_.find(key);
        const bool is_known =
            events[index].removed ? index_.erase(key) > 0 : ready != became_ready_.end();
        if (!is_known) {
          broken("events_mirror_the_blocks", "events[" + std::to_string(index) + "]",
                 phrase(events[index].removed ? "keys that the index holds"
                                              : "keys that became ready"),
                 events[index].keys);
        }
        if (events[index].removed) continue;
        became_ready_.erase(ready);
        index_.insert(key);
      }
    }
    if (index_ == reported_) return;
    broken("events_mirror_the_blocks", "events", Keys(reported_.begin(), reported_.end()),
           Keys(index_.begin(), index_.end()));
  }

  OffloadingManagerConfig config_;
  eviction::HeldBlocks held_;
  std::set<std::uint32_t> reported_;           ///< expected content of an index fed by all events
  std::set<std::uint32_t> index_;              ///< content of an index fed by the events so far
  std::multiset<std::uint32_t> became_ready_;  ///< not yet reported by an event
};

}  // namespace

RuleSuite<OffloadTarget> rules() { return rule_suite<Invariants>(kInvariants); }

}  // namespace kvfence::offload
