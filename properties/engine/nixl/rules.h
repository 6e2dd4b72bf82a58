#pragma once

/// What must hold of a pair of engines with its transport and clock, whatever any other
/// implementation says. The rules are those of
/// contract/connectors/disaggregated/disaggregated_connector.h and contract/engine/engine_target.h,
/// turned into statements about observations. What a scheduler alone owes is held against it in
/// properties/engine/scheduler.

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

#include "contract/engine/engine_target.h"
#include "contract/pool/request.h"
#include "properties/core/divergence.h"
#include "properties/engine/nixl/copies.h"
#include "properties/kv_cache/block_table_rules.h"

namespace kvfence::engine::nixl {

struct Invariant {
  std::string_view id;
  std::string_view name;  ///< Divergence::oracle
  std::string_view rule;  ///< Divergence::message
};

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 18> kInvariants = {{
    {"P1", "what_is_read_stays",
     "what the router was told stays the producer's request's own until that is given back; a "
     "block that a read reads is written by nobody else"},
    {"P2", "what_is_written_stays",
     "a block into which a read writes stays its request's own until the read has ended, and is "
     "written by nobody else"},
    {"P3", "a_load_brings_its_own_prompt",
     "behind a read that succeeded each of its local blocks holds, on that rank, the KV of its "
     "place in the prompt"},
    {"P4", "only_held_requests_are_sent",
     "finished_sending names requests whose blocks are held, each once and never again"},
    {"P5", "sent_when_read_or_expired",
     "a request is given back as soon as on each rank all of its readers said so or its time is "
     "over, and not before"},
    {"P6", "nothing_is_held_beyond_its_lease",
     "the first step that comes back at or behind a deadline, as it was renewed, gives back what "
     "waited for it"},
    {"P7", "received_once_behind_its_last_read",
     "finished_recving names a request once, as soon as each rank was told the end of its last "
     "read, and not before"},
    {"P8", "failed_reads_are_reported",
     "the report that tells of a failed read names all of its local blocks as invalid, and no "
     "others"},
    {"P9", "a_step_reads_its_own",
     "every token that a step attends to is that of its request, computed, read or shared by a "
     "common prefix: none comes of a failed read, or of somebody else"},
    {"P10", "one_transfer_a_request", "reqs_to_recv names a request once and never again"},
    {"P11", "each_rank_reads_its_share",
     "a request that was handed over is in reqs_to_recv when it gets blocks, or behind its end; "
     "then each rank has one read of it, or sends one notice, to each of its producer's ranks"},
    {"P12", "told_as_sent_or_not_processed",
     "a request for a consumer that finished is told once, as to be sent with its deadline if a "
     "consumer may read it, else as not processed, and nothing else is"},
    {"P13", "a_notice_follows_its_read",
     "a notice that blocks are not needed any more comes of a read that succeeded, or of a request "
     "with nothing to read"},
    {"P14", "heartbeats_renew_what_is_unread",
     "heartbeats name exactly the requests that are to be read, no sooner than a sixth of the "
     "deadline behind the last ones, and no later than the step behind it"},
    {"P15", "nothing_is_left",
     "an engine without requests, and with none whose blocks are held, holds the null block only"},
    {"P16", "blocks_are_sound",
     "of each engine tables, references, free queue and keys of its blocks agree"},
    {"P17", "all_comes_to_an_end",
     "who waits for a load has one under way, and an engine that holds no block serves who waits"},
    {"P18", "answers_fit_the_command",
     "a command is refused with the first code whose condition holds, and then changes nothing; it "
     "answers with exactly what it returns"},
}};

/// Watches one implementation. A value: copyable.
///
/// Bookkeeping goes by commands and answers. What needs the state is held against each observation
/// that has it; that a refused command changes nothing, and the service of P17, compare with the
/// command before, so they need both.
class Invariants {
 public:
  /// Requires: a setup with NIXL.
  Invariants(const EngineSetup& setup, bool transport_may_fail);

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
    EngineRole engine = EngineRole::kProducer;
    Request request;
    RequestIndex number = 0;
    bool for_consumer = false;
    std::string remote_request = {};  ///< of one that was handed over
    bool is_unfinished = true;
    bool is_received = false;         ///< was in reqs_to_recv
    std::vector<BlockId> table = {};  ///< as the workers know it
  };

  /// One of the engines.
  struct Engine {
    BlockTableInvariants block_tables;
    std::deque<PlannedStep> in_flight;  ///< oldest first
    PauseState pause_state = PauseState::kUnpaused;
    std::uint32_t num_idle_steps = 0;  ///< in a row: somebody waits, and nothing happens
  };

  const SchedulerConfig& config_of(EngineRole role) const;
  Engine& engine_of(EngineRole role) { return engines_[static_cast<std::size_t>(role)]; }
  const Engine& engine_of(EngineRole role) const {
    return engines_[static_cast<std::size_t>(role)];
  }
  std::uint32_t num_prompt_blocks(const std::string& request) const;

  ErrorCode refusal(const Command& command, const World& world) const;
  Found check_presence(const Command& command, const Observation& observation) const;
  Found check_unchanged(const Observation& observation) const;

  Found take_in(const Command& command, const Observation& observation, const World& world);
  void add(const std::string& name, EngineRole role, const World& world);
  void finish(const std::string& name, RequestStatus status);
  Found take_in_step(EngineRole role, const Observation& observation);
  Found take_in_told(const Observation& observation, PlannedStep& step);
  Found take_in_receives(const Observation& observation, PlannedStep& step);
  Found check_heartbeats(const Observation& observation);
  Found take_in_update(EngineRole role, const Observation& observation, const World& world);
  Found check_sent(const OwedReport& owed, const Observation& observation);
  Found check_received(const OwedReport& owed, const Observation& observation);
  Found take_in_prefills(const Observation& observation);

  Found check_state(const Observation& observation);
  Found check_blocks(EngineRole role, const Observation& observation);
  Found check_transport(const Observation& observation) const;
  Found check_reads(const Observation& observation) const;
  Found check_held(const Observation& observation) const;
  Found check_waiting(const Observation& observation) const;
  Found check_left(EngineRole role, const Observation& observation) const;
  Found check_service(const Schedule& command, const Observation& observation);

  const DisaggregatedSpec& spec() const { return *setup_.nixl; }

  EngineSetup setup_;
  bool may_fail_ = false;
  Copies copies_;
  std::vector<Engine> engines_;  ///< by EngineRole
  std::map<std::string, Known> known_;
  Copies::Sequences sequences_;

  // The producer's requests that finished.
  std::vector<std::string> not_processed_;  ///< to be told
  std::vector<Send> to_send_;               ///< to be told
  std::vector<std::string> untold_prefills_;
  std::map<std::string, std::vector<BlockId>> prefills_;  ///< what the router knows
  std::set<std::string> held_;

  // The consumer's requests.
  std::vector<std::pair<std::string, std::string>> leases_;  ///< request, remote request
  std::optional<Seconds> last_heartbeat_;
  std::set<std::string> awaited_;   ///< reqs_to_recv had blocks for them, and no report came
  std::set<std::string> reported_;  ///< it did

  std::optional<Observation> before_;  ///< of the command before, if it had the state
};

}  // namespace kvfence::engine::nixl
