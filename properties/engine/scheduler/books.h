#pragma once

/// What commands and answers of a scheduler add up to on one side: requests, places, steps in
/// flight, statistics. The invariants hold observations against it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/engine/engine_target.h"
#include "contract/pool/request.h"
#include "contract/scheduler/scheduler.h"
#include "properties/kv_cache/block_table_rules.h"

namespace kvfence::engine::scheduler {

/// World::Entry::number.
using RequestNumber = std::uint32_t;

/// What a command does to a request's table.
enum class TableChange : std::uint8_t {
  kStays,
  kGrows,   ///< at its end
  kBegins,  ///< was none, or ended in the same command
  kEnds,
  kReleases  ///< it finished and is held: what it does not need turns to null
};

/// A request, as commands and answers describe it.
struct Track {
  std::string name;
  bool is_there = false;           ///< added, not refused, and not gone
  std::optional<Request> request;  ///< prompt and outputs, while it is there

  // As it was added.
  std::uint32_t num_prompt_tokens = 0;
  std::uint32_t max_tokens = 0;
  std::uint32_t min_tokens = 0;
  std::optional<TokenId> eos_token;
  std::vector<TokenId> stop_tokens;
  std::uint32_t priority = 0;
  std::uint32_t arrival_time = 0;
  bool skip_reading_prefix_cache = false;

  // As it stands.
  RequestStatus status = RequestStatus::kWaiting;
  std::uint32_t num_computed_tokens = 0;
  std::uint32_t num_output_placeholders = 0;  ///< planned by steps in flight that are not stale
  std::uint32_t num_preemptions = 0;
  std::vector<TokenId> spec_tokens;
  bool grammar_is_compiled = false;
  bool load_is_reported = false;
  bool load_has_failed = false;
  bool may_be_promoted = false;            ///< a step since it was ready may have done so
  std::uint64_t last_step = 0;             ///< that scheduled it; 0: none
  bool last_step_sampled = true;           ///< as long as there is none, drafts are taken
  std::uint64_t skipped_step = 0;          ///< that last looked at it and left it waiting
  std::uint32_t num_cacheable_tokens = 0;  ///< blocks of its table beyond them carry no key
  Aliasing aliasing = Aliasing::kNone;     ///< of its table
  bool is_prefill_under_way = false;       ///< Rules::reserve_for_prefills

  // Its table, where the state was last observed, and what the command at hand does to it.
  BlocksByGroup table;
  TableChange change = TableChange::kStays;
  const BlockLists* told_blocks = nullptr;  ///< what the step tells of its blocks; null: nothing
  bool is_told_whole = false;               ///< of all of them, not only the new ones

  std::uint32_t num_tokens() const {
    return static_cast<std::uint32_t>(request->all_token_ids().size());
  }
  std::uint32_t num_output_tokens() const { return num_tokens() - num_prompt_tokens; }
  bool is_unfinished() const { return is_there && !is_finished(status); }
  bool is_held() const { return is_there && is_finished(status); }
  bool is_blocked() const {
    return status == RequestStatus::kWaitingForGrammar ||
           status == RequestStatus::kWaitingForRemoteKVs;
  }
  /// Whether a step that looks at it admits it or tries to.
  bool is_ready() const {
    if (status == RequestStatus::kWaitingForGrammar) return grammar_is_compiled;
    return status != RequestStatus::kWaitingForRemoteKVs || load_is_reported;
  }
  /// What is computed of it once it is ready: a whole load leaves the last token to be computed.
  std::uint32_t num_ready_computed_tokens() const {
    const bool is_whole =
        status == RequestStatus::kWaitingForRemoteKVs && num_computed_tokens == num_tokens();
    return num_computed_tokens - (is_whole ? 1 : 0);
  }
};

/// A request in a step in flight.
struct Planned {
  RequestNumber number = 0;
  std::uint32_t num_tokens = 0;
  std::uint32_t num_spec_tokens = 0;
  bool samples = false;
  bool is_stale = false;
  bool was_reset = false;  ///< synchronous: stale as soon as the request has moved on
};

/// A value: copyable. The lists are for the invariants to read; only the members change them.
struct Books {
  explicit Books(const SchedulerConfig& scheduler_config);
  void reset();

  /// Takes in a name: a request that is there, unless it was refused.
  void add(const AddRequest& command, bool is_accepted, const World& world);
  /// Takes in the name of a request that was refused, if the world has it of this command.
  void add_refused(const std::string& id, const World& world);

  /// Whether a stands before b in a waiting place ordered by priority.
  bool precedes(RequestNumber a, RequestNumber b) const;
  /// The victim among those that are left of running. Requires: there are some.
  RequestNumber victim_of(const std::vector<RequestNumber>& running_ones) const;

  /// A running request leaves running for the head of waiting.
  void preempt(RequestNumber number);
  /// The same at a reset: its steps in flight are stale.
  void preempt_by_force(RequestNumber number);
  /// A blocked request that is ready becomes one that could be admitted.
  void promote(RequestNumber number);
  /// Leaves waiting places for running. Requires: it was promoted where it was blocked.
  void admit(RequestNumber number);
  void start_load(RequestNumber number, std::uint32_t num_local_tokens,
                  std::uint32_t num_external_tokens);
  /// Leaves its place; with a status that is to be told. Its blocks are held, or it is gone.
  void finish(RequestNumber number, RequestStatus status, bool is_held);
  void remove(RequestNumber number);

  /// A new step in flight, empty. Requires: fewer than two.
  void begin_step();
  /// Puts a request into the newest step, and advances it.
  void plan(const Planned& planned);
  void mark_stale(RequestNumber number);
  void end_oldest_step();
  const std::vector<Planned>& oldest_step() const { return steps_in_flight[0]; }
  std::vector<Planned>& newest_step() { return steps_in_flight[num_in_flight - 1]; }
  /// Tokens of a request that steps in flight compute and that still count.
  std::uint32_t num_tokens_in_flight(RequestNumber number) const;

  /// Tokens that a running request lacks, as far as this budget and all limits allow.
  std::uint32_t num_wanted_tokens(RequestNumber number, std::uint32_t budget) const;
  /// Mamba align: what is left of tokens that would be computed behind `computed`.
  std::uint32_t split_at_blocks(const Track& track, std::uint32_t computed,
                                std::uint32_t num_new_tokens) const;

  SchedulerConfig config;
  std::vector<Track> tracks;         ///< by number
  std::vector<RequestNumber> there;  ///< in the order in which they were added
  std::vector<RequestNumber> running;
  // Both waiting places, where it is known how a step divided them.
  std::vector<RequestNumber> waiting;
  std::vector<RequestNumber> skipped_waiting;
  bool waiting_is_known = true;
  std::uint32_t num_queued = 0;         ///< in both of them
  std::vector<RequestNumber> finished;  ///< to be told
  PauseState pause_state = PauseState::kUnpaused;

  std::uint64_t num_steps = 0;
  std::uint64_t step_before = 0;  ///< whose requests the worker still has; 0: none
  std::array<std::vector<Planned>, 2> steps_in_flight;  ///< oldest first
  std::uint32_t num_in_flight = 0;

  PrefixCacheStats stats;  ///< what is known of the pool's lookups
  PrefixCacheStats connector_stats;
  SpecDecodingStats spec_stats;  ///< of the step that comes back
  std::uint32_t num_connector_events = 0;

 private:
  void enqueue(std::vector<RequestNumber>& place, RequestNumber number, bool in_front);
  void leave(RequestNumber number);
  void move_on(RequestNumber number);
};

}  // namespace kvfence::engine::scheduler
