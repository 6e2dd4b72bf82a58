#pragma once

/// What must hold of any engine over devices, whatever its connector is. The first rule is the
/// oracle: what a request says is what it would have said without any cache.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "contract/pool/request.h"
#include "properties/core/divergence.h"

namespace kvfence::engine::on_device {

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 8> kInvariants = {{
    {"on_device.1", "tokens_as_without_cache",
     "each output token is the one that the toy model gives for the tokens before it, on all "
     "ranks, whichever engine of a pair says it"},
    {"on_device.2", "nothing_races",
     "accesses to the same bytes, of which one is a write, are ordered"},
    {"on_device.3", "nothing_is_misused",
     "no call is made that the runtime's documentation forbids"},
    {"on_device.4", "each_transfer_is_reported_once",
     "a rank has each submitted transfer in flight until it reports it, once: as failed if it met "
     "a fault, else as a success"},
    {"on_device.5", "what_was_copied_is_there",
     "when a copy is reported as a success, each of its pages on that rank holds a whole block of "
     "its request in the group; after a load, the one that belongs there; a copy of the simple "
     "connector, which is for nobody, a whole block of anybody's"},
    {"on_device.6", "a_report_names_what_ended",
     "the ranks' report names the GPU blocks of loads that failed and no others, counts the ranks "
     "on which a job ended or failed (rule offload_fences_reuse), and calls a load received when "
     "all ranks have it; what a consumer reads over NIXL comes in addition"},
    {"on_device.7", "a_drained_engine_is_at_rest",
     "after a drain no step, transfer or request is left, and no block is held, on the GPU, but "
     "for "
     "another engine or by what it reads, or by the simple connector on the CPU"},
    {"on_device.8", "what_is_cached_is_there",
     "after a drain each GPU block and each CPU block of the simple connector with a key holds, on "
     "each rank, the KV of the tokens that the key names"},
}};

/// What requests say, beside what a run without a cache says: the first rule alone.
class TokenOracle {
 public:
  /// What a request was given and what it said.
  struct Sequence {
    std::optional<std::string> cache_salt;
    std::vector<TokenId> tokens;
    std::size_t num_prompt_tokens = 0;
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

/// What the blocks hold that requests have filled, by key.
class BlockContents {
 public:
  explicit BlockContents(const EngineSetup& setup) : setup_(setup.scheduler().kv_cache) {}

  void take_in(const Command& command, const Observation& observation, const World& world);
  /// Null: no request has shown such a block.
  const std::vector<std::uint32_t>* find(const std::string& key) const;
  /// Whether a page begins with some block's symbols.
  bool has_block_of(const KVPage& page) const;

 private:
  void add(const std::string& name, const RequestSpec& spec);
  void append(Request& request, std::span<const TokenId> tokens);

  KVCacheManagerConfig setup_;
  std::map<std::string, Request> requests_;
  std::map<std::string, std::vector<std::uint32_t>> symbols_;  ///< shortened; by packed key
};

/// Watches one implementation. A value: copyable.
class Invariants {
 public:
  static constexpr auto& kRules = kInvariants;

  explicit Invariants(const EngineSetup& setup)
      : setup_(setup),
        tokens_(setup.windows),
        contents_(setup),
        engines_(setup.schedulers.size()) {}

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command on a fresh engine. Nothing may follow a divergence.
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step);

 private:
  struct Engine;

  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world);
  std::optional<Divergence> check(Engine& engine, const EngineObservation& shown,
                                  const Report& report);
  std::optional<Divergence> check_reports(Engine& engine, const EngineObservation& shown,
                                          const Report& report);
  std::optional<Divergence> check_arrival(const DeviceTransfer& transfer,
                                          const EngineObservation& shown) const;
  std::optional<Divergence> check_answer(Engine& engine, const Report& report);
  JobId reported_number(JobId transfer) const;
  std::optional<Divergence> check_rest(const EngineObservation& shown) const;
  std::optional<Divergence> check_cached(const KeyList& keys, const KVPages& pages,
                                         std::uint32_t first_page, std::string_view member) const;
  /// Whether a page begins with the symbols of a whole block of the request in a group: the one at
  /// that place of its table, or any.
  bool is_block_of(const std::string& request, std::size_t group,
                   std::optional<std::uint32_t> place, const KVPage& page) const;
  /// A transfer, and whether it met a fault.
  struct Submitted {
    DeviceTransfer transfer;
    bool fails = false;
  };

  struct Engine {
    std::vector<Submitted> in_flight;                   ///< not reported, in order
    std::set<std::pair<std::uint32_t, bool>> faults;    ///< that wait: rank, of a store
    std::vector<Submitted> ended;                       ///< by the last report
    std::map<std::string, std::uint32_t> num_on_ranks;  ///< by request: ranks that have its load
    std::map<JobId, std::vector<std::string>> loads;  ///< of the simple connector, by event: whose
  };

  EngineSetup setup_;
  TokenOracle tokens_;
  BlockContents contents_;
  std::vector<Engine> engines_;  ///< by EngineRole
};

}  // namespace kvfence::engine::on_device
