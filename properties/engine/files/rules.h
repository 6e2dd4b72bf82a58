#pragma once

/// What must hold of one scheduler with its synchronous connector, workers and storage, whatever
/// any other implementation says and whichever release it follows. What holds in every assembly is
/// in properties/engine/rules.h.

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

#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "properties/core/divergence.h"

namespace kvfence::engine::files {

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 8> kInvariants = {{
    {"files.1", "a_file_holds_its_tokens",
     "a whole file holds in its layer the KV of the tokens that its folder is named by"},
    {"files.2", "files_and_slots_agree",
     "what a rank loads is what the file holds; what it saves is what the slots hold after the "
     "layer, and what the file holds then"},
    {"files.3", "a_step_reads_its_own",
     "each token that a step attends to holds the KV of its request's tokens up to there, in every "
     "layer (ExampleConnector)"},
    {"files.4", "a_fill_covers_what_counts_as_computed",
     "a step fills for requests that it admits; where a fill has all tokens that count as "
     "computed, "
     "and always where the request does not read the cache, each of them holds a dummy in every "
     "layer (DecodeBenchConnector)"},
    {"files.5", "slots_change_where_a_step_writes",
     "slots change only as a step comes back, and only in blocks that it computes, loads or fills"},
    {"files.6", "workers_do_what_they_are_told",
     "each rank loads and saves in each of its layers what the step names, once, and nothing else; "
     "only a file that fails ends this"},
    {"files.7", "a_failure_ends_the_engine",
     "after a file that failed, and only then, a new engine starts with nothing in it"},
    {"files.8", "all_comes_to_an_end",
     "nobody waits for a load, and who is filled is there and has not finished"},
}};

/// Watches one implementation. A value: copyable.
///
/// The model goes by commands and answers: which tokens, tables and folders there are. Contents are
/// read where the state is observed; files.2 and files.5 compare it with that before the command.
class Invariants {
 public:
  static constexpr auto& kRules = kInvariants;

  explicit Invariants(const EngineSetup& setup) : setup_(setup) {}

  /// For a fresh implementation of the same configuration.
  void reset() { *this = Invariants(setup_); }

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command since reset. After a divergence only reset() may follow.
  std::optional<Divergence> check(const Command& command, const Observation* before,
                                  const Observation& observation, const World& world,
                                  std::size_t step);

 private:
  using Found = std::optional<Divergence>;

  /// What a step computes of a request.
  struct Run {
    std::string request;
    std::uint32_t begin = 0;
    bool is_admitted = false;     ///< in this step
    std::vector<TokenId> tokens;  ///< up to the last one that is computed
    BlocksByGroup table;
  };

  struct PlannedStep {
    std::vector<Transfer> transfers;
    std::vector<Fill> fills;
    std::vector<Run> runs;
  };

  // The model.
  Found take_in(const Command& command, const Observation& observation);
  Found take_in_step(const Observation& observation);
  Found take_in_update(const Observation& observation);
  Found take_in_failure(const Observation& observation);

  // What a step did; each requires that the state was observed.
  Found check_copies(const PlannedStep& step, const Observation& observation) const;
  Found check_contents_of_copies(const Observation& observation) const;
  Found check_reads(const PlannedStep& step, const Observation& observation) const;
  Found check_fills(const PlannedStep& step, const Observation& observation) const;
  Found check_changes(const PlannedStep* step, const Observation& observation) const;

  // The state.
  Found check_files(const Observation& observation) const;
  Found check_requests(const Observation& observation) const;

  const SynchronousConnectorSpec& spec() const { return *setup_.files; }
  bool keeps_files() const { return spec().kind == SynchronousConnectorKind::kExample; }
  /// The slot of a token in a layer; null: it has none, or the null block's.
  const KVSymbol* slot(const Observation& observation, std::uint32_t layer,
                       const std::vector<BlockId>& blocks, std::size_t token) const;

  EngineSetup setup_;
  // Of requests from their adding on; those of one that is gone are kept, since steps may still run
  // it.
  std::map<std::string, std::vector<TokenId>> tokens_;
  std::set<std::string> reads_no_cache_;
  std::map<std::string, BlocksByGroup> tables_;                ///< as the workers know them
  std::map<std::string, std::vector<TokenId>> folder_tokens_;  ///< by folder
  std::deque<PlannedStep> in_flight_;
  std::uint32_t num_engine_starts_ = 1;
  // Of the command before, if it had the state.
  const Observation* before_ = nullptr;  ///< of the check at hand: the command before; may be null
};

}  // namespace kvfence::engine::files
