#pragma once

/// What must hold of one scheduler with its simple CPU offload connector, workers and copies,
/// whatever any other implementation says and whichever release it follows. What holds in every
/// assembly is in properties/engine/rules.h.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "contract/pool/request.h"
#include "properties/core/broken_rule.h"
#include "properties/core/divergence.h"
#include "properties/core/invariant_values.h"
#include "properties/engine/simple/copies.h"
#include "properties/kv_cache/kv_content.h"

namespace kvfence::engine::simple {

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 12> kInvariants = {{
    {"simple.1", "gpu_holds_are_explained",
     "a GPU block's ref_cnt is the number of its places in tables, in stores that are not "
     "completed and in loads that are not over"},
    {"simple.2", "cpu_holds_are_explained",
     "a CPU block's ref_cnt is the number of its places in stores that are not completed, in loads "
     "that are not over and in pins, and a pin is of a request that is there"},
    {"simple.3", "cpu_numbers_add_up",
     "empty, cached and referenced CPU blocks are those of the pool, and its free queue holds the "
     "unreferenced ones, once each"},
    {"simple.4", "a_block_being_written_has_no_key",
     "a CPU block of a store that is not completed carries no key"},
    {"simple.5", "what_is_held_keeps_its_key",
     "a CPU block that is pinned or loaded carries a key, the same as before"},
    {"simple.6", "a_cpu_block_holds_its_key",
     "a CPU block with a key holds on each rank the KV of the tokens that the key names"},
    {"simple.7", "copies_carry_what_they_name",
     "a store copies blocks with keys, a load brings blocks with the keys of its requests' places "
     "to the blocks there, and on each rank the source holds the KV of the tokens that its key "
     "names"},
    {"simple.8", "a_step_reads_its_own",
     "on each rank every token that a step attends to is that of its request, computed, loaded or "
     "shared by a common prefix"},
    {"simple.9", "no_reuse_under_a_copy",
     "no block that a copy under way reads or writes is written by anyone else"},
    {"simple.10", "workers_do_what_they_are_told",
     "ranks copy what steps plan; a step that flushes leaves no copy of an earlier one under way; "
     "a rank reports a copy once, and not before it has ended"},
    {"simple.11", "a_reset_leaves_nothing",
     "after a reset of the connector's cache that succeeded no CPU block carries a key"},
    {"simple.12", "all_comes_to_an_end",
     "who waits for a load has one, and what has ended on all ranks is reported"},
}};

/// The places of kInvariants.
enum Rule : std::size_t {
  kGpuHoldsAreExplained,
  kCpuHoldsAreExplained,
  kCpuNumbersAddUp,
  kABlockBeingWrittenHasNoKey,
  kWhatIsHeldKeepsItsKey,
  kACpuBlockHoldsItsKey,
  kCopiesCarryWhatTheyName,
  kAStepReadsItsOwn,
  kNoReuseUnderACopy,
  kWorkersDoWhatTheyAreTold,
  kAResetLeavesNothing,
  kAllComesToAnEnd,
};
static_assert(kInvariants.size() == kAllComesToAnEnd + 1);

inline Divergence broken_phrase(Rule rule, std::string_view member, std::string_view expected,
                                std::string_view actual) {
  return broken_values(kInvariants[rule], member, kvfence::detail::phrase(expected),
                       kvfence::detail::phrase(actual));
}

/// Watches one implementation. A value: copyable.
///
/// The model goes by commands and answers. What needs the state is held against each observation
/// that has it; simple.5 compares with the command before.
class Invariants {
 public:
  static constexpr auto& kRules = kInvariants;

  explicit Invariants(const EngineSetup& setup);

  /// For a fresh implementation of the same configuration.
  void reset() { *this = Invariants(setup_); }

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command since reset. After a divergence only reset() may follow.
  std::optional<Divergence> check(const Command& command, const Observation* before,
                                  const Observation& observation, const World& world,
                                  std::size_t step);

 private:
  using Found = std::optional<Divergence>;

  // The model.
  void append(const std::string& name, const std::vector<TokenId>& tokens);
  Found take_in(const Command& command, const Observation& observation);
  Found take_in_step(const Observation& observation);
  void take_in_runs(const Observation& observation, PlannedStep& step);
  std::vector<BlockId> blocks_of_nobody(const Observation& observation) const;
  Found take_in_update(const Observation& observation);
  Found take_in_report(const Observation& observation);

  // What a step plans.
  Found plan_load(const Observation& observation, PlannedStep& step);
  Found plan_store(const Observation& observation, PlannedStep& step);
  Found plan_parts(const std::vector<BlockId>& gpu_blocks, const std::vector<BlockId>& cpu_blocks,
                   Event& event) const;
  bool is_loaded_to_its_place(const CopyPart& part, const Event& load,
                              const Observation& observation) const;
  std::optional<Content> content_of(const std::string& key) const;

  // The state.
  Found check_state(const Observation& observation) const;
  Found check_holds(const Observation& observation) const;
  Found check_cpu_numbers(const Observation& observation) const;
  Found check_keys(const Observation& observation) const;
  Found check_contents(const Observation& observation) const;
  Found check_requests(const Observation& observation) const;

  const SimpleCPUOffloadSpec& spec() const { return *setup_.simple; }
  const std::vector<KVCacheSpec>& groups() const { return spec().kv_cache.groups; }
  /// Empty for a block that is not full.
  std::string key(const Request& request, GroupId group, std::size_t place) const;

  EngineSetup setup_;
  Copies copies_;
  // Of requests from their adding on; those of one that is gone are kept, since steps may still run
  // it.
  std::map<std::string, Request> requests_;
  Sequences sequences_;
  std::map<std::string, BlocksByGroup> tables_;  ///< as the workers know them
  std::map<std::string, Content> contents_;      ///< by key
  std::deque<PlannedStep> in_flight_;
  std::map<std::pair<bool, JobId>, Event> events_;  ///< by id: stores not completed, loads not over
  std::set<std::string> have_loads_;                ///< requests that did not run since their load
  std::uint32_t num_quiet_updates_ = 0;             ///< in a row: no copy and no step is under way
  const Observation* before_ = nullptr;  ///< of the check at hand: the command before; may be null
};

}  // namespace kvfence::engine::simple
