#pragma once

/// What must hold of one scheduler with its synchronous connector, workers and storage, whatever
/// any other implementation says. The rules are those of
/// contract/connectors/synchronous/synchronous_connector.h,
/// contract/connectors/synchronous/shared_storage.h, contract/connectors/synchronous/files_facet.h
/// and contract/engine/engine_target.h, turned into statements about observations. What a scheduler
/// alone owes is in properties/engine/scheduler.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/engine/engine_target.h"
#include "contract/pool/request.h"
#include "properties/core/divergence.h"
#include "properties/engine/files/ledger.h"
#include "properties/kv_cache/block_table_rules.h"

namespace kvfence::engine::files {

struct Invariant {
  std::string_view id;
  std::string_view name;  ///< Divergence::oracle
  std::string_view rule;  ///< Divergence::message
};

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 18> kInvariants = {{
    {"Y1", "answers_fit_the_command",
     "a command is refused with the first code whose condition holds, and answers with exactly "
     "what it returns"},
    {"Y2", "nothing_changes_unasked",
     "a refused command changes nothing; blocks change hands only in a step, its return and an "
     "end, keys also in a reset, and an engine starts only behind a failed file"},
    {"Y3", "gpu_blocks_are_sound",
     "tables, references, free queue and keys of the GPU's blocks agree"},
    {"Y4", "a_load_is_of_a_found_match",
     "a step loads for a request that it admits, once, whose match is found in storage, and which "
     "counts as computed up to the end of that"},
    {"Y5", "what_is_found_is_used",
     "a request is admitted with no fewer computed tokens than its match has, if that is found; "
     "else with whole blocks, and with none if it does not read the GPU's cache"},
    {"Y6", "what_is_computed_is_stored",
     "a step stores for exactly those of its new requests that load nothing, whose match is not "
     "found, and of which it computes all that is to be kept"},
    {"Y7", "a_transfer_names_its_tokens",
     "the transfers of a step are in the order of its requests, each of whole blocks of leading "
     "tokens, in their folder and in the first blocks of the request"},
    {"Y8", "a_request_is_filled_once",
     "a step fills for requests that it admits, in their order and once until they end, and these "
     "are the ones that are filled"},
    {"Y9", "a_fill_leaves_one_token",
     "a request that is not filled is admitted with all tokens computed but the last; a fill has "
     "those behind the local hit, and the first blocks of each group for so many"},
    {"Y10", "loads_bring_what_files_hold",
     "each rank reads the files of its layers, in the order of loads and layers, as they are in "
     "storage"},
    {"Y11", "saves_take_what_slots_hold",
     "each rank writes the files of its layers, in the order of layers and stores, as the slots "
     "are behind the layer"},
    {"Y12", "fills_are_those_told",
     "each rank fills the blocks of the first group in its layers, in the order of fills and "
     "layers"},
    {"Y13", "a_failure_ends_the_engine",
     "the first file that cannot be read or written is named, ends the step, and leaves a new "
     "engine with nothing in it"},
    {"Y14", "a_file_holds_its_tokens",
     "a whole file holds in its layer the KV of the tokens that its folder is named by"},
    {"Y15", "storage_is_what_was_put_there",
     "storage has the folders and files that connector and world made and did not remove, whole "
     "or not"},
    {"Y16", "slots_hold_what_was_put_there",
     "each slot of each layer holds what was loaded, filled or computed there last"},
    {"Y17", "a_step_reads_its_own",
     "each token that a step attends to holds the KV of its request's tokens up to there, in every "
     "layer (ExampleConnector)"},
    {"Y18", "all_comes_to_an_end",
     "nobody waits for a load or is held behind its end, an idle engine serves who waits, and with "
     "no request left no block is held"},
}};

/// Watches one implementation. A value: copyable.
///
/// Bookkeeping goes by commands and answers. What needs the state is held against each observation
/// that has it; what a command changed compares with the command before, so it needs both.
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

  /// A request of this engine from its adding on; one that is gone is kept, since steps may still
  /// run it.
  struct Known {
    Request request;
    RequestIndex number = 0;
    std::uint32_t num_prompt_tokens = 0;
    bool reads_cache = true;
    BlocksByGroup told;  ///< its blocks as the workers know them
  };

  /// A request of the step at hand.
  struct Told {
    std::string request;
    std::uint32_t num_computed_tokens = 0;
    std::uint32_t num_tokens = 0;  ///< of the step
    bool is_new = false;
    bool resumed = false;
    bool is_admitted() const { return is_new || resumed; }
  };

  // Answers (rules.cpp).
  ErrorCode refusal(const Command& command, const World& world) const;
  ErrorCode refusal_of_storage(const Command& command) const;
  Found check_presence(const Command& command, const Observation& observation) const;
  Found check_unchanged(const Command& command, const Observation& observation) const;

  // Books.
  void add(const AddRequest& command, const World& world);
  /// Tokens whose folders a request can name: from now on it is known what they hold.
  void name_folders(std::span<const TokenId> tokens);
  void write_entry(const WriteEntry& command);
  void end_request(const std::string& name);
  Found take_in(const Command& command, const Observation& observation, const World& world);
  Found take_in_step(const Observation& observation);
  Found take_in_told(const Observation& observation);
  Found plan_runs(const Observation& observation, PlannedStep& step);
  Found take_in_update(const Observation& observation);
  Found take_in_outcome(const Outcome& outcome, const Observation& observation) const;
  Found take_in_end_of_engine(const Observation& observation);

  // What a step plans (plan_rules.cpp).
  Found check_transfers(const Observation& observation) const;
  Found check_load(std::size_t at, const Told& told, const Observation& observation) const;
  Found check_no_load(const Told& told) const;
  Found check_store(const Told& told, bool stores, std::size_t at,
                    const Observation& observation) const;
  Found check_names(std::size_t at, const Told& told, std::uint32_t num_tokens,
                    const Observation& observation) const;
  Found check_fills(const Observation& observation);
  Found check_fill(std::size_t at, const Told& told, const Observation& observation) const;
  std::uint32_t num_matched_tokens(const Told& told) const;
  bool is_match_found(const Told& told) const;
  bool reads_cache(const Told& told) const;

  // The state (state_rules.cpp).
  Found check_state(const Observation& observation);
  Found check_gpu_blocks(const Observation& observation);
  Found check_files(const Observation& observation) const;
  Found check_end(const Command& command, const Observation& observation);

  const SynchronousConnectorSpec& spec() const { return *setup_.files; }
  bool keeps_files() const { return spec().kind == SynchronousConnectorKind::kExample; }
  std::uint32_t block_size() const { return spec().block_size(); }
  const std::vector<KVCacheSpec>& groups() const { return spec().kv_cache.groups; }
  std::span<const TokenId> tokens_of(const std::string& name) const {
    return known_.at(name).request.all_token_ids();
  }

  EngineSetup setup_;
  bool has_windows_ = false;
  Ledger ledger_;
  BlockTableInvariants block_tables_;
  std::map<std::string, Known> known_;
  std::map<std::string, std::vector<TokenId>> folder_tokens_;  ///< by folder
  std::vector<std::string> filled_;                            ///< requests, in order
  std::deque<PlannedStep> in_flight_;
  std::uint32_t num_engine_starts_ = 1;
  bool knows_slots_ = true;  ///< not any more where a window's table was not shown
  PauseState pause_state_ = PauseState::kUnpaused;
  std::uint32_t num_idle_steps_ = 0;   ///< in a row: somebody waits, and nothing happens
  std::optional<Observation> before_;  ///< of the command before, if it had the state

  // Of the command at hand.
  std::vector<Told> told_;  ///< requests of the step: new ones, then cached ones
};

}  // namespace kvfence::engine::files
