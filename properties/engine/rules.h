#pragma once

/// What must hold of every scheduler of target engine, whatever connector it has: the core rules.
/// None of them predicts what a command answers: they hold of any correct scheduler of any release.
/// What a connector's own blocks, copies and files owe stands in the room of its assembly.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "contract/pool/request.h"
#include "properties/core/divergence.h"
#include "properties/kv_cache/block_table_rules.h"
#include "properties/pool/event_mirror.h"

namespace kvfence::engine {

/// Every core rule: what the command line and the documentation list.
inline constexpr std::array<Invariant, 21> kCoreInvariants = {{
    {"engine.1", "blocks_add_up",
     "empty, cached and referenced blocks are those of the free queue and of the pool"},
    {"engine.2", "null_and_sinks_stay_out",
     "the null block and the blocks that sinks took have no key, no reference and no place in the "
     "free queue"},
    {"engine.3", "ref_cnt_counts_places",
     "a block's ref_cnt is the number of its places in the block tables; a connector that takes "
     "blocks itself may add to it"},
    {"engine.4", "queue_holds_the_unreferenced",
     "the free queue holds exactly the unreferenced blocks, once each, but for null and sinks"},
    {"engine.5", "a_block_has_one_place",
     "a block stands at one place of one table, unless requests of the same prefix share it at the "
     "same place"},
    {"engine.6", "keys_fit_their_places",
     "a block in a table that carries a key carries that of its place in the request and group"},
    {"engine.7", "only_computed_blocks_are_cached",
     "blocks after a request's computed tokens carry no key, nor do blocks that are being loaded"},
    {"engine.8", "events_mirror_the_keys",
     "an index fed by the events holds exactly the hashes in the pool, removes none that it does "
     "not hold, and gets no event where events are off"},
    {"engine.9", "a_request_has_one_place",
     "an unfinished request stands once, in running or in a waiting place as its status says; a "
     "finished one stands nowhere"},
    {"engine.10", "tokens_add_up",
     "a request has its prompt and the outputs that were reported; one of these tokens at least is "
     "left to compute, unless all of them are being loaded"},
    {"engine.11", "computed_tokens_have_blocks",
     "a request's table has a place for each of its computed tokens, and for the drafts of a step"},
    {"engine.12", "a_load_keeps_its_blocks",
     "until its load is reported, a request is not scheduled and keeps its blocks, also if it is "
     "finished"},
    {"engine.13", "failed_blocks_are_computed_again",
     "of those that count a failed block as computed one goes back to it or ends, and none of them "
     "reports tokens of that step"},
    {"engine.14", "a_finished_request_is_let_go",
     "a finished request stays only while its connector holds it or loads into its blocks, and is "
     "gone once it is reported as sent or received"},
    {"engine.15", "workers_know_the_tables",
     "what steps report of blocks adds up to the tables; a step begins at tokens that were "
     "computed before, and counts its own"},
    {"engine.16", "a_step_keeps_its_limits",
     "a step keeps to token budget, seats, threshold, model length and pause, and names each "
     "request once, which is there"},
    {"engine.17", "outputs_come_from_steps",
     "a request reports once in an update what the step that comes back sampled for it, up to the "
     "token that ends it, and nothing after its end"},
    {"engine.18", "finished_are_reported_once",
     "a step reports exactly the requests that ended since the step before"},
    {"engine.19", "schedule_makes_progress",
     "while no request holds a block and admission is not paused, a request that nothing blocks "
     "starts, or is reported as never fitting"},
    {"engine.20", "nothing_is_held_when_all_are_gone",
     "without requests, and copies of a connector's own, every block but null and sinks is free"},
    {"engine.21", "a_refused_command_changes_nothing",
     "after a refused command numbers and state are those before it"},
}};

/// Watches one scheduler. A value: copyable.
class SchedulerRules {
 public:
  using Found = std::optional<Divergence>;

  SchedulerRules(const EngineSetup& setup, EngineRole role);

  /// Takes in a command to this scheduler that was not refused. before: what the scheduler showed
  /// before it; null for the first command.
  Found take(const Command& command, const SchedulerObservation* before,
             const Observation& observation, const World& world);

  /// Holds what is shown after any command against the rules. After take, if there was one.
  Found check_shown(const Observation& observation, const World& world);

  /// From here on it is a new scheduler: the engine failed.
  void restart();

 private:
  /// World::Entry::number.
  using RequestNumber = std::uint32_t;

  enum class Place : std::uint8_t { kNowhere, kRunning, kWaiting };

  /// A request, until it is known to be gone.
  struct Track {
    std::optional<Request> request;  ///< prompt and reported outputs; nothing: it is not there
    AddRequest limits;               ///< as it was added, without its tokens
    std::uint32_t num_prompt_tokens = 0;
    bool is_unfinished = false;
    bool is_blocked = false;   ///< its grammar is not compiled
    bool is_loading = false;   ///< and the end of that was not reported
    bool is_held = false;      ///< finished while it loaded, or held by a scripted connector
    bool is_released = false;  ///< reported as sent or received after its end

    // By the last lookup of a scripted connector.
    std::uint32_t num_local_tokens = 0;
    bool load_async = false;
    std::uint64_t put_off_step = 0;       ///< the last step in which it is asked about in vain
    Aliasing aliasing = Aliasing::kNone;  ///< of the table that followed

    // By the last step that had it, and since.
    std::uint64_t told_step = 0;
    std::uint32_t num_told_computed = 0;
    bool is_told_whole = false;
    std::uint64_t scheduled_step = 0;
    std::uint32_t num_scheduled_tokens = 0;
    std::uint32_t num_planned_tokens = 0;  ///< by all steps in flight
    std::uint64_t output_update = 0;       ///< the last update that reported output of it
    BlocksByGroup worker_table;            ///< what steps reported of its blocks

    // By the last state that was observed.
    RequestStatus shown_status = RequestStatus::kWaiting;
    std::uint32_t num_shown_computed = 0;
    std::uint32_t num_loaded_tokens = 0;  ///< of the load under way, with what was there before it
    std::uint32_t num_computed_most = 0;  ///< while it had its table
    const RequestState* shown = nullptr;  ///< null: not among them
    const BlocksByGroup* table = nullptr;
    Place place = Place::kNowhere;
  };

  /// A request of a step in flight.
  struct Planned {
    RequestNumber number = 0;
    std::uint32_t num_tokens = 0;
    std::uint32_t num_spec_tokens = 0;
    bool samples = false;
  };
  struct Step {
    std::vector<Planned> requests;
    std::optional<std::vector<BlockId>> invalid_blocks;  ///< on a device, from its poll on
  };

  /// What a step reports of a request to workers.
  struct Told {
    std::uint32_t num_computed = 0;
    bool is_whole = false;               ///< of its blocks; else of those that it gained
    const BlockLists* blocks = nullptr;  ///< null: none
  };

  std::uint32_t num_base_blocks() const;
  /// The request of that name, unless it is known to be gone; else null.
  Track* find(const std::string& name, const World& world);
  RequestNumber number_of(const Track& track) const;

  void add(AddRequest limits, const World& world);
  void end(Track& track);
  void forget_requests();
  void take_calls(const SchedulerObservation& shown, const World& world);

  Found check_step(const SchedulerObservation& shown, const World& world);
  Found take_told(const std::string& name, const Told& told, const std::string& place,
                  const SchedulerObservation& shown, const World& world);
  Found check_scheduled(const SchedulerObservation& shown, const World& world);

  Found check_update(const Update& command, const SchedulerObservation* before,
                     const Observation& observation, const World& world);
  Found check_failed_blocks(const std::vector<BlockId>& blocks, const SchedulerObservation& before,
                            const SchedulerObservation& shown, const World& world);
  Found check_output(const Update& command, std::size_t at, const Step& step,
                     const SchedulerObservation& shown, const World& world);
  Found check_events(const SchedulerObservation& shown, const World& world);

  Found check_numbers(const SchedulerObservation& shown, const World& world) const;
  Found check_state(const SchedulerObservation& shown, const World& world);
  Found check_blocks(const SchedulerObservation& shown, const World& world);
  Found read_requests(const SchedulerObservation& shown, const World& world);
  Found check_places(const SchedulerObservation& shown, const World& world);
  Found check_request(Track& track, const SchedulerObservation& shown, const World& world);
  Found check_told(const Track& track, const World& world) const;
  Found check_keys(Track& track, const SchedulerObservation& shown, const World& world);
  Found check_rest(const Observation& observation, const World& world) const;

  EngineSetup setup_;
  EngineRole role_;
  SchedulerConfig config_;
  bool may_overshoot_ = false;  ///< a table may have more of a hit than its tokens

  std::vector<Track> tracks_;         ///< by number
  std::vector<RequestNumber> there_;  ///< those that are not known to be gone
  std::uint32_t num_unfinished_ = 0;
  std::vector<std::string> ended_;  ///< that the next step has to report
  std::vector<Step> in_flight_;     ///< oldest first
  std::uint64_t num_steps_ = 0;
  std::uint64_t num_updates_ = 0;
  bool planned_now_ = false;  ///< the command at hand planned a step
  PauseState pause_state_ = PauseState::kUnpaused;
  std::uint32_t num_connector_events_ = 0;  ///< of a scripted connector, to come
  bool state_was_seen_ = true;              ///< after the command before
  BlockTableInvariants block_tables_;
  std::optional<EventMirror> mirror_;  ///< nothing: some events were not observed

  // Scratch.
  std::vector<RequestBlocks> holders_;
  std::vector<std::uint32_t> num_places_;  ///< by block
  std::vector<TableOwner> owners_;         ///< by table
};

/// Watches one implementation: each of its schedulers. A value: copyable.
class CoreRules {
 public:
  explicit CoreRules(const EngineSetup& setup);

  /// Holds one observation against every core rule; the first that is broken, or nothing. Called
  /// after every command of a run, with what was shown before it, null for the first one, and a
  /// world that has taken it in; nothing follows a divergence.
  ///
  /// Cost: linear in the observation.
  std::optional<Divergence> check(const Command& command, const Observation* before,
                                  const Observation& observation, const World& world,
                                  std::size_t step);

 private:
  std::vector<SchedulerRules> schedulers_;  ///< by EngineRole
};

}  // namespace kvfence::engine
