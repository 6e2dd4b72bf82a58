#pragma once

/// What must hold of one engine with an OffloadingConnector over scripted copies, whatever any
/// other implementation says. The rules are those of
/// contract/connectors/offloading/offloading_connector.h and
/// contract/connectors/offloading/offloading_facet.h, turned into statements about observations.
/// What a scheduler alone owes is in properties/engine/scheduler.

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
#include "properties/engine/offloading/copies.h"
#include "properties/engine/offloading/tier_ledger.h"
#include "properties/kv_cache/block_table_rules.h"

namespace kvfence::engine::offloading {

struct Invariant {
  std::string_view id;
  std::string_view name;  ///< Divergence::oracle
  std::string_view rule;  ///< Divergence::message
};

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 24> kInvariants = {{
    {"C1", "answers_fit_the_command",
     "a command is refused with the first code whose condition holds, and answers with exactly "
     "what it returns"},
    {"C2", "nothing_changes_unasked",
     "a refused command changes nothing; blocks change hands only in a step, its return and an "
     "end, the CPU cache only in a step, its return and a reset, transfers only in a return and "
     "by their engine"},
    {"C3", "blocks_are_sound", "tables, references, free queue and keys of the GPU's blocks agree"},
    {"C4", "plans_name_the_requests_own_blocks",
     "a planned transfer names blocks of its request's table, at the places that it says, and a "
     "slot of its own for each offloaded block"},
    {"C5", "transfers_are_those_planned",
     "each rank's engine has exactly the transfers of the steps that came back, in order, less "
     "the reported ones; what a step flushes has ended"},
    {"C6", "no_reuse_under_a_copy",
     "behind the flush of a step no block that a copy under way reads or writes is written by "
     "anyone else, zeroed, or freed while a load writes it"},
    {"C7", "a_slot_has_one_writer",
     "no store begins to write a slot that another copy of its rank reads or writes"},
    {"C8", "a_load_reads_what_is_complete",
     "no load begins while a rank still writes one of its slots"},
    {"C9", "copies_are_the_requests_own",
     "on each rank a store finds in its blocks, and a load in its slots, the KV of its request's "
     "own tokens at that place"},
    {"C10", "a_step_reads_its_own",
     "on each rank every token that a step attends to is that of its request, computed, loaded or "
     "shared by a common prefix"},
    {"C11", "a_ready_slot_holds_its_key",
     "a block of the CPU cache that can be found holds, in all of its slot and on all ranks, the "
     "KV of the tokens that its key names"},
    {"C12", "failure_is_never_success",
     "blocks of a load that failed on any rank are reported as invalid, no others are, and a key "
     "of a store that failed on any rank is not found"},
    {"C13", "one_of_many_is_not_all",
     "a transfer is reported once by each rank, for its own request, and is over when all of them "
     "have reported it"},
    {"C14", "the_cursor_passes_no_block",
     "each full block of a request that may be stored is held or stored behind the step that "
     "fills it, unless the store was refused, and then it is tried again"},
    {"C15", "a_store_is_refused_only_if_it_must",
     "no store is refused while there are free slots for all that it lacks"},
    {"C16", "a_load_covers_what_was_promised",
     "a request waits for a load exactly if one was planned for it, and that one ends in each "
     "group with its computed tokens"},
    {"C17", "what_is_stored_is_found",
     "a request that is admitted loads what is ready behind its local hit (one group of full "
     "attention); with hold what a preempted request stored is ready at once"},
    {"C18", "all_comes_to_an_end",
     "with no transfer left, nothing waits for ever: held blocks are freed, an engine without held "
     "blocks admits who waits, and with no request left no block, reader or writer is left"},
    {"C19", "statistics_are_what_was_measured",
     "a step's statistics are the transfers that each rank reported in it, ended well and took a "
     "known time: once each, with their direction, bytes and time"},
    {"C20", "tiers_are_told",
     "every tier learns of each request once, of its end at once, and of the end of each step, "
     "behind which no promotion is queued; it is polled once a step"},
    {"C21", "stores_go_down",
     "a store that has succeeded on all ranks goes down to every tier, with all its slots, in the "
     "same step; nothing else goes down but held blocks to a tier that wants whole requests"},
    {"C22", "a_promotion_comes_whole",
     "a block that a tier brings up is ready when its job was reported as a success, and not "
     "before; when it was reported as a failure it is gone; what goes down stays until it has"},
    {"C23", "who_is_put_off_has_a_reason",
     "a request is put off only if a tier said so, or while one of its blocks is being written, "
     "brought up or loaded"},
    {"C24", "stored_is_kept",
     "a tier holds what was stored in it and not taken away, and its jobs end as they went; what "
     "goes wrong in its files is no success, and a block that can be found has, in all of its "
     "slot, the bytes that were stored"},
}};

/// Watches one implementation. A value: copyable.
///
/// Bookkeeping goes by commands and answers. What needs the state is held against each observation
/// that has it; C2, C6 for freed blocks, C14 to C17 and the waiting of C18 compare with the command
/// before, so they need both.
class Invariants {
 public:
  Invariants(const EngineSetup& setup, bool transfers_may_fail);

  /// For a fresh implementation of the same configuration.
  void reset();

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command since reset. After a divergence only reset() may follow.
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step);

 private:
  /// A request from its adding on; one that is gone is kept, since steps may still run it.
  struct Known {
    Request request;
    std::uint32_t num_prompt_tokens = 0;
    std::optional<std::uint32_t> max_offload_tokens;
    BlocksByGroup told;                 ///< its blocks as the workers know them
    std::vector<std::uint32_t> cursor;  ///< by group: offloaded blocks that need no store any more
    RequestIndex number = 0;
    bool knows_cursor = true;
  };

  /// What a key stands for.
  struct Key {
    GroupId group = 0;
    std::uint32_t end = 0;  ///< tokens
    std::vector<Content> parts;
  };

  ErrorCode refusal(const Command& command, const World& world) const;
  ErrorCode refusal_of_tier(std::uint32_t tier) const {
    return tier < setup_.num_tiers() ? ErrorCode::kNone : ErrorCode::kNotInConfig;
  }
  /// Of the blocks that a command on a tier is about, if it is about some; refused: why not.
  std::vector<OffloadKey> keys_below(const Command& command, const World& world,
                                     ErrorCode& refused) const;
  /// has_run: an update that nothing refuses before the ranks have run.
  std::optional<Divergence> check_presence(const Command& command, const Observation& observation,
                                           bool has_run) const;
  std::optional<Divergence> check_unchanged(const Command& command, const Observation& observation,
                                            bool has_run) const;

  std::optional<Divergence> take_in(const Command& command, const Observation& observation,
                                    const World& world);
  std::optional<Divergence> take_in_step(const Observation& observation);
  std::optional<Divergence> take_in_update(const Observation& observation, const World& world);
  std::optional<Divergence> plan(const std::string& member, const Transfer& transfer, bool is_store,
                                 const Observation& observation, Copy& copy);
  void add(const AddRequest& command, const World& world);
  void append(const std::string& name, const std::vector<TokenId>& tokens);

  std::optional<Divergence> check_cursors(const Observation& observation);
  std::optional<Divergence> check_loads(const Observation& observation) const;
  std::optional<Divergence> check_found(const Observation& observation) const;
  std::optional<Divergence> check_put_off(const Observation& observation) const;
  std::optional<Divergence> take_in_promotions();
  std::optional<Divergence> check_state(const Observation& observation);
  std::optional<Divergence> check_blocks(const Observation& observation);
  std::optional<Divergence> check_slots(const Observation& observation) const;
  std::optional<Divergence> check_copied_blocks(const Observation& observation) const;
  std::optional<Divergence> check_end(const Command& command, const Observation& observation);

  std::uint32_t offloaded_size(GroupId group) const;
  std::string key(const Known& known, GroupId group, std::uint32_t block) const;
  bool is_full_attention(GroupId group) const;
  bool is_flushed(const std::string& request, std::size_t first_step) const;

  EngineSetup engine_setup_;
  ConnectorSetup setup_;
  bool may_fail_ = false;
  bool fences_ = false;
  bool has_files_ = false;  ///< any tier
  Copies copies_;
  TierLedger tiers_;
  BlockTableInvariants block_tables_;
  std::map<std::string, Known> known_;
  Sequences sequences_;
  std::map<std::string, Key> keys_;
  std::deque<PlannedStep> in_flight_;
  std::set<SlotId> failed_slots_;  ///< of stores that a rank failed, until they are stored anew
  bool knows_cursors_ = true;
  std::uint64_t next_serial_ = 0;
  std::uint32_t num_idle_steps_ = 0;     ///< in a row: somebody waits, and nothing happens
  std::uint32_t num_quiet_updates_ = 0;  ///< in a row: nothing is under way behind them
  PauseState pause_state_ = PauseState::kUnpaused;
  std::optional<Observation> before_;  ///< of the command before, if it had the state
};

}  // namespace kvfence::engine::offloading
