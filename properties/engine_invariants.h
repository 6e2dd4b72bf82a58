#pragma once

/// What must hold of one engine, whatever any other implementation says. The first of them is the
/// oracle: what a request says is what it would have said without any cache.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/engine_target.h"
#include "properties/divergence.h"

namespace kvfence::engine {

struct Invariant {
  std::string_view id;
  std::string_view name;  ///< Divergence::oracle
  std::string_view rule;  ///< Divergence::message
};

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 9> kInvariants = {{
    {"E1", "tokens_as_without_cache",
     "each output token is the one that the toy model gives for the tokens before it"},
    {"E2", "nothing_races", "accesses to the same bytes, one a write, are ordered"},
    {"E3", "nothing_is_misused", "no call is made that the runtime's documentation forbids"},
    {"E4", "answers_fit_the_command", "a command answers with exactly what it returns"},
    {"E5", "each_transfer_is_reported_once",
     "a report is of a transfer that was submitted and not reported, stores before loads, each in "
     "the order of submission"},
    {"E6", "transfers_are_counted", "each transfer is in flight until it is reported"},
    {"E7", "what_was_stored_is_there",
     "when a store is reported, each page of its slots holds a whole block of its request"},
    {"E8", "what_was_loaded_is_there",
     "when a load is reported, each of its GPU blocks holds a whole block of its request"},
    {"E9", "a_drained_engine_is_at_rest",
     "behind a drain no step, transfer or request is left, and no block is held"},
}};

/// Watches one implementation. A value: copyable.
class Invariants {
 public:
  explicit Invariants(const EngineSetup& setup)
      : block_size_(setup.device.block_size), block_size_factor_(setup.device.block_size_factor) {}

  /// For a fresh engine of the same configuration.
  void reset();

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command since reset. After a divergence only reset() may follow.
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step);

 private:
  /// What a request was given and what it said.
  struct Sequence {
    std::optional<std::string> cache_salt;
    std::vector<TokenId> tokens;
  };

  std::optional<Divergence> check_all(const Command& command, const Observation& observation);
  std::optional<Divergence> check_presence(const Command& command,
                                           const Observation& observation) const;
  std::optional<Divergence> check_tokens(const Observation& observation);
  std::optional<Divergence> check_reports(const Observation& observation);
  std::optional<Divergence> check_arrival(const Transfer& transfer,
                                          const Observation& observation) const;
  /// Whether these are the symbols of a whole block of the request.
  bool is_block_of(const std::string& request, const std::vector<std::uint32_t>& symbols) const;

  std::uint32_t block_size_;
  std::uint32_t block_size_factor_;
  std::map<std::string, Sequence> sequences_;
  std::vector<Transfer> in_flight_;  ///< submitted, not reported, in order
};

}  // namespace kvfence::engine
