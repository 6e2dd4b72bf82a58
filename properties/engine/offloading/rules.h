#pragma once

/// What must hold of any engine with an OffloadingConnector over scripted copies: the content of
/// blocks and slots, the order of copies, their reports, and that all of it ends. Which blocks are
/// stored, looked up or put off is the reference's to say; what a scheduler alone owes is in
/// properties/engine/rules.h.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/engine/engine_target.h"
#include "contract/pool/request.h"
#include "properties/core/divergence.h"
#include "properties/engine/offloading/copies.h"

namespace kvfence::engine::offloading {

/// Every invariant, by Rule: what the command line and the documentation list.
inline constexpr std::array<Invariant, 11> kInvariants = {{
    {"offloading.1", "plans_name_the_requests_own_blocks",
     "a planned transfer has a number of its own and names full blocks of its request's table, at "
     "the places that it says, and a slot of its own for each offloaded block"},
    {"offloading.2", "no_reuse_under_a_copy",
     "after the flush of a step no block that a copy under way reads or writes is written by "
     "anyone else, zeroed, or freed while a load writes it"},
    {"offloading.3", "a_slot_has_one_writer",
     "no store or promotion begins to write a slot that another copy reads or writes"},
    {"offloading.4", "a_load_reads_what_is_complete",
     "no load begins while a rank still writes one of its slots"},
    {"offloading.5", "copies_are_the_requests_own",
     "on each rank a store finds in its blocks, and a load in its slots, the KV of its request's "
     "own tokens at that place"},
    {"offloading.6", "a_step_reads_its_own",
     "on each rank every token that a step attends to is that of its request, computed, loaded or "
     "shared by a common prefix"},
    {"offloading.7", "slots_add_up",
     "each slot of the CPU cache is free or of one block, and each key is there once"},
    {"offloading.8", "a_ready_slot_holds_its_key",
     "a block of the CPU cache that can be found, or goes down to a tier, holds in all of its "
     "slot, on all ranks, the KV of the tokens that its key names, and the bytes that were stored"},
    {"offloading.9", "each_end_is_reported_once",
     "a rank's copy engine has a transfer until it ends and is reported, which happens once: as "
     "failed if it failed, a load then with its blocks as invalid; a load is received when all "
     "ranks have it, and a request is sent when no rank has a store of it left"},
    {"offloading.10", "a_promotion_comes_whole",
     "a block that a tier brings up has a slot and cannot be found until its job is reported, what "
     "goes down stays and is read until then, and what was given up is not reported as done"},
    {"offloading.11", "all_comes_to_an_end",
     "with no transfer left nothing waits for ever: held blocks are freed, an engine without held "
     "blocks admits who waits, and no reader or writer of a slot is left"},
}};

static_assert(kInvariants.size() == kAllComesToAnEnd + 1);

/// Watches one implementation. A value: copyable.
///
/// The model goes by commands and answers; what needs the state is held against each observation
/// that has it.
class Invariants {
 public:
  static constexpr auto& kRules = kInvariants;

  explicit Invariants(const EngineSetup& setup);

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command on a fresh implementation. Nothing may follow a divergence.
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step);

 private:
  /// A request; one that is gone is kept, since steps may still run it.
  struct Known {
    Request request;
    BlocksByGroup blocks;  ///< as the workers know them
  };

  /// What a key stands for.
  struct Key {
    GroupId group = 0;
    std::vector<Content> parts;
  };

  /// Between the CPU cache and a tier, under way.
  struct TierJob {
    std::uint32_t tier = 0;
    bool is_promotion = false;
    KeyList keys;
    std::vector<SlotId> slots;
  };

  using Found = std::optional<Broken>;

  Found take_in(const Command& command, const Observation& observation);
  Found take_in_step(const Observation& observation);
  Found take_in_update(const Observation& observation);
  Found take_in_tier_calls(const Observation& observation);
  Found end_tier_jobs(const TierCallRecord& call);
  Found begin_tier_job(const TierCallRecord& call);
  Found plan(const std::string& member, const Transfer& transfer, bool is_store,
             const Observation& observation, Copy& copy);
  void add(const AddRequest& command);
  void append(const std::string& name, const std::vector<TokenId>& tokens);

  Found check_state(const Observation& observation) const;
  Found check_transfers(const Observation& observation) const;
  Found check_copied_blocks(const Observation& observation) const;
  Found check_tier_jobs(const Observation& observation) const;
  Found check_numbers(const Observation& observation) const;
  Found check_slots(const Observation& observation) const;
  Found check_slot(const std::string& key, SlotId slot) const;
  Found check_end(const Command& command, const Observation& observation);
  Found check_progress(const Observation& observation);

  std::string key(const Known& known, GroupId group, std::uint32_t block) const;
  bool is_flushed(const std::string& request, std::size_t first_step) const;

  ConnectorSetup setup_;
  bool fences_ = false;
  bool has_files_ = false;  ///< any tier
  Copies copies_;
  std::map<std::string, Known> known_;
  Sequences sequences_;
  std::map<std::string, Key> keys_;
  std::deque<PlannedStep> in_flight_;
  std::uint64_t next_serial_ = 0;

  std::map<std::uint32_t, TierJob> tier_jobs_;
  /// By tier: of jobs that ended since its last report, whether well. The first word counts.
  std::map<std::uint32_t, std::map<std::uint32_t, bool>> ended_tier_jobs_;
  bool is_anyone_put_off_ = false;  ///< by a tier, in the last command

  std::uint32_t num_idle_steps_ = 0;     ///< in a row: somebody waits, and nothing happens
  std::uint32_t num_quiet_updates_ = 0;  ///< in a row: nothing is under way after them
  PauseState pause_state_ = PauseState::kUnpaused;
};

}  // namespace kvfence::engine::offloading
