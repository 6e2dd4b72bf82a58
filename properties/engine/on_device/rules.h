#pragma once

/// What must hold of one engine with the OffloadingConnector over devices, whatever any other
/// implementation says. The first of them is the
/// oracle: what a request says is what it would have said without any cache.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/engine/engine_target.h"
#include "properties/core/divergence.h"

namespace kvfence::engine::on_device {

struct Invariant {
  std::string_view id;
  std::string_view name;  ///< Divergence::oracle
  std::string_view rule;  ///< Divergence::message
};

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 11> kInvariants = {{
    {"E1", "tokens_as_without_cache",
     "each output token is the one that the toy model gives for the tokens before it, on all "
     "ranks"},
    {"E2", "nothing_races", "accesses to the same bytes, one a write, are ordered"},
    {"E3", "nothing_is_misused", "no call is made that the runtime's documentation forbids"},
    {"E4", "answers_fit_the_command",
     "a command answers with exactly what it returns, and what is not there is refused"},
    {"E5", "each_transfer_is_reported_once",
     "a rank's report is of a transfer that was submitted to it and not reported, stores before "
     "loads, each in the order of submission; those that met a fault failed, and no others"},
    {"E6", "transfers_are_counted", "each transfer is in flight until it is reported"},
    {"E7", "what_was_stored_is_there",
     "when a store is reported that succeeded, each page of its slots on that rank holds a whole "
     "block of its request in the group"},
    {"E8", "what_was_loaded_is_there",
     "when a load is reported that succeeded, each of its GPU blocks on that rank holds the whole "
     "block of its request that belongs there"},
    {"E9", "a_drained_engine_is_at_rest",
     "behind a drain no step, transfer or request is left, and no block is held"},
    {"E10", "failures_are_told",
     "a report names the blocks of the loads that failed, of any rank, and no others; a failed "
     "store, or load, is told as one (rule offload_fences_reuse)"},
    {"E11", "one_of_all_is_not_all",
     "a load is over when it is on all ranks, and a job counts the ranks on which it has ended"},
}};

/// What requests say, beside what a run without a cache says: E1 alone.
class TokenOracle {
 public:
  /// What a request was given and what it said.
  struct Sequence {
    std::optional<std::string> cache_salt;
    std::vector<TokenId> tokens;
  };

  /// windows: of the groups (EngineSetup).
  explicit TokenOracle(std::vector<std::uint32_t> windows) : windows_(std::move(windows)) {}

  std::optional<Divergence> check(const Command& command, const Observation& observation);
  /// Null: nobody was added by that name.
  const Sequence* find(const std::string& request) const;

 private:
  std::vector<std::uint32_t> windows_;
  std::map<std::string, Sequence> sequences_;
};

/// Watches one implementation. A value: copyable.
class Invariants {
 public:
  explicit Invariants(const EngineSetup& setup) : setup_(setup), tokens_(setup.windows) {}

  /// For a fresh engine of the same configuration.
  void reset();

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command since reset. After a divergence only reset() may follow.
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step);

 private:
  std::optional<Divergence> check_refusal(const Command& command, const Observation& observation,
                                          const World& world) const;
  std::optional<Divergence> check_all(const Command& command, const Observation& observation);
  std::optional<Divergence> check_presence(const Command& command,
                                           const Observation& observation) const;
  std::optional<Divergence> check_reports(const Observation& observation);
  std::optional<Divergence> check_arrival(const DeviceTransfer& transfer,
                                          const Observation& observation) const;
  std::optional<Divergence> check_answer(const Observation& observation);
  /// Whether a page begins with the symbols of a whole block of the request in a group: the one at
  /// that place of its table, or any.
  bool is_block_of(const std::string& request, std::size_t group,
                   std::optional<std::uint32_t> place, const KVPage& page) const;
  void take_in_submitted(const std::vector<DeviceTransfer>& submitted);

  /// A transfer, and whether it met a fault.
  struct Submitted {
    DeviceTransfer transfer;
    bool fails = false;
  };

  EngineSetup setup_;
  TokenOracle tokens_;
  std::vector<Submitted> in_flight_;                   ///< not reported, in order
  std::set<std::pair<std::uint32_t, bool>> faults_;    ///< that wait: rank, of a store
  std::vector<Submitted> ended_;                       ///< by the last report
  std::map<std::string, std::uint32_t> num_on_ranks_;  ///< by request: ranks that have its load
};

}  // namespace kvfence::engine::on_device
