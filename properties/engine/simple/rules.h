#pragma once

/// What must hold of one scheduler with its simple CPU offload connector, workers and copies,
/// whatever any other implementation says. The rules are those of
/// contract/connectors/simple/simple_cpu_offload.h and contract/engine/engine_target.h, turned into
/// statements about observations. What a scheduler alone owes is in properties/engine/scheduler.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "contract/engine/engine_target.h"
#include "contract/pool/request.h"
#include "properties/core/divergence.h"
#include "properties/engine/simple/copies.h"
#include "properties/kv_cache/block_table_rules.h"
#include "properties/kv_cache/kv_content.h"

namespace kvfence::engine::simple {

struct Invariant {
  std::string_view id;
  std::string_view name;  ///< Divergence::oracle
  std::string_view rule;  ///< Divergence::message
};

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 24> kInvariants = {{
    {"S1", "gpu_holds_are_explained",
     "a GPU block's ref_cnt is the number of its places in tables, in stores that are not "
     "completed and in loads that are not over"},
    {"S2", "cpu_holds_are_explained",
     "a CPU block's ref_cnt is the number of its places in stores that are not completed, in loads "
     "that are not over and in pins"},
    {"S3", "a_block_being_written_has_no_key",
     "a CPU block of a store that is not completed carries no key"},
    {"S4", "keys_come_with_completion",
     "a CPU block gets a key where its store is completed by all ranks, the one that the GPU block "
     "had when it was planned, and loses it where a store takes the block"},
    {"S5", "what_is_held_keeps_its_key",
     "a CPU block that is pinned or loaded carries a key, the same as before"},
    {"S6", "a_cpu_block_holds_its_key",
     "a CPU block with a key holds on each rank the KV of the tokens that the key names"},
    {"S7", "a_load_lies_behind_the_local_hit",
     "a load brings blocks with the keys of its request's places to the blocks of its table there, "
     "from behind the local hit to the computed tokens, a window what it needs of these"},
    {"S8", "eager_stores_what_is_confirmed",
     "an eager store takes blocks of the step's requests that carry the key of their place, lie "
     "within the tokens computed before the step, and are neither stored nor being stored"},
    {"S9", "lazy_stores_what_is_free",
     "a lazy store takes blocks that nothing else holds, which carry keys that the CPU pool lacks, "
     "once each"},
    {"S10", "events_are_dense",
     "a step has at most one event a direction, with the next number and lists of one length"},
    {"S11", "reports_are_those_owed",
     "a step reports each load once all ranks have reported it, each store by the number of ranks "
     "that report it now, ascending, and nothing else"},
    {"S12", "a_flush_comes_with_victims",
     "a step flushes exactly if it preempts, and behind it no copy of a step before is under way"},
    {"S13", "pins_are_for_who_waits",
     "what is pinned is pinned once for a request that waits for its admission"},
    {"S14", "cpu_numbers_add_up",
     "empty, cached and referenced CPU blocks are those of the pool, and its free queue holds the "
     "unreferenced ones, once each"},
    {"S15", "copies_carry_what_they_name",
     "on each rank a store finds in its GPU blocks, and a load in its CPU blocks, the KV of the "
     "tokens that their keys and places name"},
    {"S16", "a_step_reads_its_own",
     "on each rank every token that a step attends to is that of its request, computed, loaded or "
     "shared by a common prefix"},
    {"S17", "answers_fit_the_command",
     "a command is refused with the first code whose condition holds, and answers with exactly "
     "what it returns"},
    {"S18", "nothing_changes_unasked",
     "a refused command changes nothing; blocks change hands only in a step, its return and an "
     "end, keys of CPU blocks only in a step and its return, copies only in a return and by their "
     "engine"},
    {"S19", "copies_are_those_planned",
     "each rank's engine has exactly the copies of the steps that came back, in order, less the "
     "reported ones"},
    {"S20", "no_reuse_under_a_copy",
     "no block that a copy under way reads or writes is written by anyone else"},
    {"S21", "gpu_blocks_are_sound", "tables, free queue and keys of the GPU's blocks agree"},
    {"S22", "what_is_confirmed_is_stored",
     "each confirmed block of a request in a step is stored, unless it was passed over, or no CPU "
     "block is free (eager, one group)"},
    {"S23", "what_is_stored_is_found",
     "a request that is admitted loads, or was loaded, what the CPU pool has behind its local hit "
     "(one group)"},
    {"S24", "all_comes_to_an_end",
     "who loads has a load under way or reported; with no copy left nothing waits for ever, and "
     "with no request left both pools are as they began"},
}};

/// Watches one implementation. A value: copyable.
///
/// Bookkeeping goes by commands and answers. What needs the state is held against each observation
/// that has it; what a command changed, S22, S23 and the waiting of S24 compare with the command
/// before, so they need both.
class Invariants {
 public:
  explicit Invariants(const EngineSetup& setup);

  /// For a fresh implementation of the same configuration.
  void reset();

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command since reset. After a divergence only reset() may follow.
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step);

 private:
  using Found = std::optional<Divergence>;

  /// A request from its adding on; one that is gone is kept, since steps may still run it.
  struct Known {
    Request request;
    RequestIndex number = 0;
    BlocksByGroup told;  ///< its blocks as the workers know them
    /// Blocks that were stored or passed over (S22); nothing: not known.
    std::optional<std::size_t> place;
  };

  /// A request of the step at hand.
  struct Told {
    std::uint32_t num_computed_tokens = 0;
    bool resumed = false;
  };

  struct Store {
    std::vector<CopyPart> parts;
    std::vector<std::string> keys;  ///< by part; empty: not known
    std::uint32_t num_reports = 0;
  };

  struct Load {
    std::vector<CopyPart> parts;
    std::set<std::string> requests;  ///< not reported
  };

  // Answers (rules.cpp).
  ErrorCode refusal(const Command& command, const World& world) const;
  Found check_presence(const Command& command, const Observation& observation) const;
  Found check_unchanged(const Command& command, const Observation& observation) const;

  // Books.
  void add(const AddRequest& command, const World& world);
  void append(const std::string& name, const std::vector<TokenId>& tokens);
  Found take_in(const Command& command, const Observation& observation, const World& world);
  Found take_in_step(const Observation& observation);
  Found take_in_told(const Observation& observation, PlannedStep& step);
  std::vector<BlockId> blocks_of_nobody(const Observation& observation) const;
  Found take_in_update(const Observation& observation, const World& world);
  Found take_in_report(const Observation& observation, const OwedReport& owed, const World& world);

  // What a step plans (plan_rules.cpp).
  Found check_events(const Observation& observation) const;
  Found plan_load(const Observation& observation, Event& load) const;
  Found plan_load_of(const std::string& name, const Observation& observation, std::size_t& at,
                     Event& load) const;
  Found plan_store(const Observation& observation, Event& store, Store& books) const;
  Found check_stored_block(std::size_t at, const Observation& observation) const;
  Found check_eager_block(std::size_t at, const Observation& observation) const;
  Found check_lazy_block(std::size_t at, const Observation& observation) const;
  bool is_confirmed(const std::string& name, BlockId block, const std::string& key) const;
  std::uint32_t num_confirmed_tokens(const std::string& name) const;
  Found check_waiting(const Observation& observation) const;
  Found check_places(const Observation& observation);
  Found check_found(const Observation& observation) const;

  // The state (state_rules.cpp).
  Found check_state(const Command& command, const Observation& observation);
  Found check_gpu_blocks(const Observation& observation);
  Found check_cpu_holds(const Observation& observation) const;
  Found check_cpu_numbers(const Observation& observation) const;
  Found check_copied_keys(const Observation& observation) const;
  Found check_key_changes(const Command& command, const Observation& observation) const;
  Found check_pins(const Observation& observation) const;
  Found check_contents(const Observation& observation) const;
  Found check_end(const Command& command, const Observation& observation);
  Found check_drained(const Observation& observation) const;

  const SimpleCPUOffloadSpec& spec() const { return *setup_.simple; }
  const Rules& rules() const { return spec().kv_cache.pool.rules; }
  const std::vector<KVCacheSpec>& groups() const { return spec().kv_cache.groups; }
  /// Empty for a block that is not full.
  std::string key(const Known& known, GroupId group, std::size_t place) const;

  EngineSetup setup_;
  Copies copies_;
  BlockTableInvariants block_tables_;
  std::map<std::string, Known> known_;
  Sequences sequences_;
  std::map<std::string, Content> contents_;  ///< by key
  std::deque<PlannedStep> in_flight_;
  std::map<JobId, Store> stores_;  ///< not completed
  std::map<JobId, Load> loads_;    ///< not over
  std::set<std::string> loaded_;   ///< whose load was reported
  JobId num_load_events_ = 0;
  JobId num_store_events_ = 0;
  PauseState pause_state_ = PauseState::kUnpaused;
  std::uint32_t num_idle_steps_ = 0;     ///< in a row: somebody waits, and nothing happens
  std::uint32_t num_quiet_updates_ = 0;  ///< in a row: nothing is under way behind them
  std::optional<Observation> before_;    ///< of the command before, if it had the state

  // Of the command at hand.
  std::map<std::string, Told> told_;               ///< requests of the step, as they were told
  std::map<BlockId, std::string> completed_keys_;  ///< of the stores that the report completed
};

}  // namespace kvfence::engine::simple
