#pragma once

/// What must hold of a pair of engines with its transport and clock, whatever any other
/// implementation says and whatever the release: blocks under a read stay, loads bring the
/// request's own prompt, reports agree with the reads, and no block is held for ever. What every
/// engine owes: properties/engine/rules.h.

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
#include "properties/core/divergence.h"
#include "properties/kv_cache/kv_content.h"

namespace kvfence::engine::nixl {

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 12> kInvariants = {{
    {"nixl.1", "what_is_read_stays",
     "a held request keeps the blocks that were reported to the router; a block under a read stays "
     "with the producer's request that it belongs to"},
    {"nixl.2", "what_is_written_stays",
     "a block into which a read writes stays with the consumer's request until the read has ended"},
    {"nixl.3", "a_load_brings_its_own_prompt",
     "after a read that succeeded each of its local blocks holds, on that rank, the KV of its "
     "place in the prompt"},
    {"nixl.4", "only_held_requests_are_sent",
     "finished_sending names requests whose blocks are held, each once and never again; no "
     "scheduler refuses what its ranks report"},
    {"nixl.5", "what_is_unread_is_held",
     "a request is given back only after a notice of each of its readers, or at its deadline"},
    {"nixl.6", "nothing_is_held_beyond_its_lease",
     "the first step planned after a request finished that comes back after the notices of all its "
     "readers, or a deadline after its end and its last heartbeat, gives it back"},
    {"nixl.7", "received_once_after_its_last_read",
     "finished_recving names a request once, in the step in which the last of its reads ends, and "
     "not before"},
    {"nixl.8", "failed_reads_are_reported",
     "the step in which a failed read ends reports all of its local blocks as invalid, and no "
     "others"},
    {"nixl.9", "a_step_reads_its_own",
     "every token that a step attends to is that of its request, computed, read or shared by a "
     "common prefix: none comes of a failed read, or of somebody else"},
    {"nixl.10", "a_notice_follows_its_read",
     "a consumer's step sends notices for requests with nothing to read, from each reader, and for "
     "no others; reqs_to_recv names a request once, so that nothing is read after its notice"},
    {"nixl.11", "holds_are_explained",
     "a request that finished has blocks only while the producer holds them for readers, or until "
     "its own reads have ended"},
    {"nixl.12", "loads_come_to_an_end",
     "a request that waits for a load has one; one that runs, or ended without a load, is in "
     "reqs_to_recv by the next plan, so that its producer gets a notice"},
}};

/// Watches one implementation. A value: copyable.
///
/// Beside other children of a MultiConnector a request may be held, loaded and reported by these:
/// what it is about is then what NIXL itself reads and holds. What blocks contain is claimed where
/// NIXL alone loads (nixl.3, nixl.9), and so are nixl.11 and of nixl.12 who waits.
///
/// The model holds what each block of each rank contains, and which requests are held or read. It
/// takes reads, notices and tables from the state that is shown, so after a command without the
/// state it checks nothing more.
class Invariants {
 public:
  static constexpr auto& kRules = kInvariants;

  /// Requires: a setup with NIXL.
  explicit Invariants(const EngineSetup& setup);

  /// Holds one observation against every invariant; the first that is broken, or nothing.
  /// Called after every command of a run, until one is broken.
  std::optional<Divergence> check(const Command& command, const Observation* before,
                                  const Observation& observation, const World& world,
                                  std::size_t step);

 private:
  using Found = std::optional<Divergence>;

  /// How far the one load of a request is.
  enum class Load : std::uint8_t { kNone, kPlanned, kReading, kOver };

  /// A request from its adding on; one that is gone is kept, since steps may still run it.
  struct Known {
    Prefixes prefixes;
    std::uint32_t num_prompt_tokens = 0;
    std::string remote_request;  ///< of one that was handed over
    Load load = Load::kNone;
    BlocksByGroup table;  ///< as the workers know it
  };

  /// A finished request of the producer, until it is given back.
  struct Held {
    std::vector<BlockId> blocks;
    Seconds expires = 0;      ///< unless renewed; without a deadline unused
    Seconds expires_max = 0;  ///< however long a heartbeat renews it, up to a whole deadline
    std::set<std::pair<std::uint32_t, std::uint32_t>> done;  ///< rank, remote rank
    bool is_shared = false;                                  ///< another child holds it as well
  };

  /// A step that is in flight, as the workers get it.
  struct Step {
    std::vector<Run> runs;
    std::vector<BlockId> zeroed;
    std::vector<BlocksByGroup> victims;  ///< forgive_victims
    std::vector<BlockId> lost;
    std::vector<Receive> receives;
    std::vector<std::string> held;  ///< when it was planned
  };

  struct Engine {
    std::vector<std::vector<Content>> parts;  ///< by rank and, of a consumer, by what it reads from
    std::deque<Step> in_flight;               ///< oldest first
  };

  const std::vector<KVCacheSpec>& groups_of(EngineRole role) const;
  Engine& engine_of(EngineRole role) { return engines_[static_cast<std::size_t>(role)]; }
  std::uint32_t num_readers() const;
  bool has_expired(Seconds expires, Seconds now) const { return spec_.deadline && now >= expires; }

  Found take_in(const Command& command, const Observation& observation, const World& world);
  void add(const std::string& name, const std::string& remote_request, const World& world);
  Found take_in_plan(EngineRole role, const Observation& observation);
  Found take_in_receives(const Observation& observation, Step& step);
  Found take_in_update(EngineRole role, const Observation& observation);
  Found run(EngineRole role, const Step& step);
  Found check_sent(const Step& step, const Observation& observation);
  Found check_received(const Step& step, const Observation& observation);
  Found check_invalid(const Step& step, const Observation& observation) const;
  Found check_new_notices(const Step& step, const Observation& observation) const;
  Found take_in_read(const AdvanceRead& command, const Observation& observation);
  void take_in_delivery(const DeliverNotice& command, const Observation& observation);

  Found check_state(const Observation& observation) const;

  EngineSetup setup_;
  DisaggregatedSpec spec_;
  bool is_alone_;                ///< no other child loads or holds
  std::vector<Engine> engines_;  ///< by EngineRole
  std::map<std::string, Known> known_;
  std::map<std::string, Held> held_;
  bool is_blind_ = false;                ///< a command did not show the state
  const Observation* before_ = nullptr;  ///< of the check at hand: the command before; may be null
};

}  // namespace kvfence::engine::nixl
