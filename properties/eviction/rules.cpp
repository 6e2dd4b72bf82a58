/// The rules of target eviction. They hold for any correct cache policy, of any release, and are
/// about the observations of one implementation. They do not predict which block is evicted; the
/// reference does.

#include <string>
#include <variant>
#include <vector>

#include "contract/eviction/cache_policy.h"
#include "contract/eviction/eviction_target.h"
#include "properties/core/broken_rule.h"
#include "properties/core/divergence.h"
#include "properties/eviction/held_blocks.h"
#include "properties/targets/rooms.h"

namespace kvfence::eviction {
namespace {

/// Every invariant: what the command line and the documentation list.
constexpr Invariant kInvariants[] = {
    {"eviction.1", "a_key_has_one_place", "a key is in at most one list, and there once",
     "t1 t2 b1 b2"},
    {"eviction.2", "sizes_are_bounded",
     "size is the number of blocks held; it, B1, B2 and the target are at most the capacity, the "
     "target at least 0",
     "success evicted size target_t1_size b1 b2"},
    {"eviction.3", "blocks_are_held_as_asked",
     "T1 and T2 are the blocks that were inserted and neither removed nor evicted, each with its "
     "slot, ready once it was written, with as many readers as acquired it less those that "
     "released it; get finds them so",
     "success evicted found t1 t2"},
    {"eviction.4", "nothing_in_use_is_evicted",
     "a successful evict removes as many blocks as asked: held, idle, unprotected, each once, with "
     "its slot",
     "success evicted"},
    {"eviction.5", "only_what_is_ready_is_read",
     "a block is acquired only after it was written, and released only by a reader that acquired "
     "it",
     "success evicted"},
    {"eviction.6", "clear_forgets_everything",
     "after clear every list is empty, and the target is 0", "success t1 t2 b1 b2 target_t1_size"},
    {"eviction.7", "refused_changes_nothing",
     "a refused command and an evict that fails leave all lists as they were",
     "success t1 t2 b1 b2 target_t1_size"},
};

using kvfence::detail::phrase;

constexpr BrokenRuleOf<kInvariants> broken;

/// The model of held blocks follows commands and answers. So an observation without the lists is
/// checked by its answer and numbers, and the next one with lists in full.
class Invariants final : public RulesFor<EvictionTarget> {
 public:
  /// For a fresh policy.
  explicit Invariants(const CachePolicyConfig& config) : held_(config.capacity) {}

  void check_all(const Command& command) override {
    judge([&] {
      const bool has_failed = shown().success.has_value() && !*shown().success;
      if (shown().error != ErrorCode::kNone || has_failed) {
        broken.if_changed("refused_changes_nothing", before(), shown());
      } else {
        std::visit([&](const auto& accepted) { take(accepted); }, command);
      }
    });
    held_.check(shown(), broken);
  }

 private:
  // Each changes the model by an accepted command, and checks its answer.
  void take(const Get& command) {
    if (!shown().found.has_value()) return;
    std::vector<Entry> expected;
    if (const Entry* block = held_.find(command.key)) expected.push_back(*block);
    broken.unless_equal("blocks_are_held_as_asked", "found", expected, *shown().found);
  }

  void take(const Insert& command) {
    if (!held_.find(command.key)) held_.insert(command.key, command.slot);
  }

  void take(const Remove& command) { held_.remove(command.key); }

  void take(const MakeReady& command) {
    if (Entry* block = held_.find(command.key)) block->ready = true;
  }

  void take(const Acquire& command) {
    Entry* block = held_.find(command.key);
    if (!block || !block->ready) {
      broken("only_what_is_ready_is_read", "error", phrase("a refusal: it is not written"),
             shown().error);
    }
    ++block->readers;
  }

  void take(const Release& command) {
    Entry* block = held_.find(command.key);
    if (!block || block->readers == 0) {
      broken("only_what_is_ready_is_read", "error", phrase("a refusal: nobody reads it"),
             shown().error);
    }
    --block->readers;
  }

  void take(const Touch&) {}

  void take(const Evict& command) {
    if (!shown().evicted.has_value()) return;
    if (shown().evicted->size() != command.num_blocks) {
      broken("nothing_in_use_is_evicted", "evicted",
             phrase(std::to_string(command.num_blocks) + " blocks"), *shown().evicted);
    }
    held_.evict(*shown().evicted, command.protected_keys, broken);
  }

  void take(const Clear&) {
    held_.clear();
    if (shown().target_t1_size != 0) {
      broken("clear_forgets_everything", "target_t1_size", 0.0, shown().target_t1_size);
    }
    if (!shows_lists(shown()) || all_keys(shown()).empty()) return;
    broken("clear_forgets_everything", "t1", phrase("no key in any list"), all_keys(shown()));
  }

  HeldBlocks held_;
};

}  // namespace

RuleSuite<EvictionTarget> rules() { return rule_suite<Invariants>(kInvariants); }

}  // namespace kvfence::eviction
