/// The core rules: what holds for every scheduler of target engine with any connector. They do not
/// predict answers: they hold for a correct scheduler of any release. The rules for a connector's
/// own blocks, copies and files are in the room of its assembly.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/joined.h"
#include "contract/core/lists.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "contract/pool/request.h"
#include "properties/core/broken_rule.h"
#include "properties/core/divergence.h"
#include "properties/core/invariant_values.h"
#include "properties/core/left_out.h"
#include "properties/core/named_place.h"
#include "properties/engine/fair_run.h"
#include "properties/engine/shown_requests.h"
#include "properties/engine/step_rounds.h"
#include "properties/kv_cache/arithmetic.h"
#include "properties/kv_cache/block_table_rules.h"
#include "properties/pool/event_mirror.h"

namespace kvfence::engine {
namespace {

/// Every core rule, for the command line and the documentation.
constexpr Invariant kCoreInvariants[] = {
    {"engine.1", "blocks_add_up",
     "empty, cached and referenced blocks are those of the free queue and of the pool"},
    {"engine.2", "null_and_sinks_stay_out",
     "the null block and the sinks' blocks have no key, no reference and no place in the free "
     "queue"},
    {"engine.3", "ref_cnt_counts_places",
     "a block's ref_cnt is the number of its places in the block tables; a connector that takes "
     "blocks itself may add to it"},
    {"engine.4", "queue_holds_the_unreferenced",
     "the free queue holds exactly the unreferenced blocks, once each, except null and sinks"},
    {"engine.5", "a_block_has_one_place",
     "a block is at one place of one table, unless requests with the same prefix share it at the "
     "same place"},
    {"engine.6", "keys_fit_their_places",
     "a block in a table has no key, or the key of its place in the request and group"},
    {"engine.7", "only_computed_blocks_are_cached",
     "blocks after a request's computed tokens have no key, nor do blocks that are being loaded"},
    {"engine.8", "events_mirror_the_keys",
     "an index fed by the events holds exactly the hashes in the pool, removes none that it does "
     "not hold, and gets no event where events are off"},
    {"engine.9", "a_request_has_one_place",
     "an unfinished request is listed once, as running or waiting as its status says; a finished "
     "one is not listed"},
    {"engine.10", "tokens_add_up",
     "a request has its prompt and the reported outputs; at least one of these tokens is left to "
     "compute, unless all of them are being loaded"},
    {"engine.11", "computed_tokens_have_blocks",
     "a request's table has a place for each of its computed tokens, and for the drafts of a step"},
    {"engine.12", "a_load_keeps_its_blocks",
     "until its load is reported, a request is not scheduled and keeps its blocks, even if it is "
     "finished"},
    {"engine.13", "failed_blocks_are_computed_again",
     "of the requests that count a failed block as computed, one goes back to it or ends, and none "
     "reports tokens of that step"},
    {"engine.14", "a_finished_request_is_let_go",
     "a finished request stays only while its connector holds it or loads into its blocks, and is "
     "gone once it is reported as sent or received"},
    {"engine.15", "workers_know_the_tables",
     "the blocks that steps report add up to the tables; a step begins at tokens that were "
     "computed before, and counts its own"},
    {"engine.16", "a_step_keeps_its_limits",
     "a step keeps to token budget, seats, threshold, model length and pause, and names existing "
     "requests, each once"},
    {"engine.17", "outputs_come_from_steps",
     "an update reports once per request what its step sampled, up to the token that ends the "
     "request, and nothing after its end"},
    {"engine.18", "finished_are_reported_once",
     "a step reports exactly the requests that ended since the step before"},
    {"engine.19", "schedule_makes_progress",
     "while no request holds a block and admission is not paused, a request that is not blocked "
     "starts, or is reported as never fitting"},
    {"engine.20", "nothing_is_held_when_all_are_gone",
     "without requests and copies of a connector's own, all blocks except null and sinks are free"},
    {"engine.21", "a_refused_command_changes_nothing",
     "a refused command leaves numbers and state unchanged"},
    {"engine.22", "steps_do_not_go_round",
     "while there are only steps, and only running requests hold blocks, no step returns the "
     "requests to an earlier state"},
    {"engine.23", "every_request_ends",
     "while nothing comes from outside and nothing fails, requests end within as many steps as "
     "they have tokens, and a step plans something where nothing is under way"},
};

using Rule = NamedPlace<kCoreInvariants>;
constexpr BrokenRuleOf<kCoreInvariants> broken;

using kvfence::to_value;
using kvfence::detail::element;
using kvfence::detail::find_table;
using kvfence::detail::key_value;
using kvfence::detail::phrase;
using kvfence::detail::place_name;

const LeftOut kRoundsOfEquals(
    LeftOut::By::kRule, "engine.22 steps_do_not_go_round: equals",
    "upstream lets requests of one priority and arrival time preempt each other in turns",
    "engine/scheduler/preemption/rounds_of_equals.kvs");
const LeftOut kEndlessRounds(LeftOut::By::kRule, "engine.23 every_request_ends: rounds",
                             "the rounds of steps that engine.22 leaves out have no end",
                             "engine/scheduler/preemption/rounds_beside_a_loaded_request.kvs");
const LeftOut kStandstill(
    LeftOut::By::kRule, "engine.23 every_request_ends: beside a loaded request",
    "upstream lets a request that has loaded keep its blocks while one before it, or it itself, "
    "needs more than are left",
    "engine/scheduler/preemption/none_gets_on_beside_a_loaded_request.kvs");
const LeftOut kOvershootingTable(
    LeftOut::By::kRule, "engine.7 only_computed_blocks_are_cached: hits that overshoot",
    "upstream's lookup may leave a table more cached blocks than the hit has tokens for: with two "
    "kinds of full attention, or eagle by group and Mamba",
    "engine/scheduler/left_out/a_cached_block_beyond_the_hit.kvs");
const LeftOut kPutOffUnseen(LeftOut::By::kRule,
                            "engine.19 schedule_makes_progress: OffloadingConnector",
                            "it may put a request off, and no observation shows that",
                            "engine/offloading/lives/tier_asks_again.kvs");

/// The core rule for each BlockRule.
constexpr Rule kBlockRules[] = {"computed_tokens_have_blocks", "null_and_sinks_stay_out",
                                "ref_cnt_counts_places",       "queue_holds_the_unreferenced",
                                "a_block_has_one_place",       "keys_fit_their_places"};

std::uint32_t size_of(const auto& list) { return static_cast<std::uint32_t>(list.size()); }

/// Checks one scheduler.
class SchedulerRules {
 public:
  SchedulerRules(const EngineSetup& setup, EngineRole role)
      : setup_(setup),
        role_(role),
        config_(setup.schedulers[static_cast<std::size_t>(role)]),
        may_overshoot_(hit_may_overshoot(config_.kv_cache)),
        block_tables_(config_.kv_cache, kBlockRules,
                      /*others_hold=*/setup.of(role).simple.has_value()),
        mirror_(broken.row("events_mirror_the_keys")) {}

  /// The engine failed: a new scheduler follows.
  void restart() {
    forget_requests();
    for (RequestNumber number : there_) tracks_[number].request.reset();
    there_.clear();
    pause_state_ = PauseState::kUnpaused;
    num_connector_events_ = 0;
    rounds_.forget();
    end_fair_run();
    block_tables_.reset();
    mirror_.emplace(broken.row("events_mirror_the_keys"));
  }

  /// Sets what was shown after the command that is checked next. Call it once per command.
  void see(const Observation& observation, const World& world) {
    observation_ = &observation;
    shown_ = &observation.of(role_);
    world_ = &world;
    state_was_seen_ = std::exchange(state_is_seen_, has_state(*shown_));
    planned_now_ = false;
  }

  /// Takes in a command to this scheduler that was not refused. before: the scheduler's observation
  /// before it; null for the first command.
  void take(const Command& command, const SchedulerObservation* before) {
    planned_now_ = std::holds_alternative<Schedule>(command);
    if (planned_now_) ++num_steps_;
    take_calls();
    check_rounds(command);
    if (const auto* added = std::get_if<AddRequest>(&command)) {
      add(*added);
    } else if (const auto* handed_over = std::get_if<HandOver>(&command)) {
      AddRequest limits;
      limits.id = handed_over->id;
      limits.max_tokens = handed_over->max_tokens;
      add(std::move(limits));
    } else if (planned_now_) {
      check_step();
    } else if (const auto* update = std::get_if<Update>(&command)) {
      check_update(*update, before);
    } else if (std::holds_alternative<Poll>(command)) {
      if (observation().invalid_blocks.has_value()) take_poll();
    } else if (const auto* compiled = std::get_if<GrammarCompiled>(&command)) {
      if (Track* track = find(compiled->request)) track->is_blocked = false;
    } else if (const auto* ended = std::get_if<FinishRequests>(&command)) {
      for (const std::string& name : ended->requests) {
        if (Track* track = find(name)) end(*track);
      }
    } else if (std::holds_alternative<FinishAllRequests>(command)) {
      for (RequestNumber number : there_) end(tracks_[number]);
    } else if (const auto* paused = std::get_if<SetPauseState>(&command)) {
      pause_state_ = paused->state;
    } else if (std::holds_alternative<Drain>(command)) {
      forget_requests();
      mirror_.reset();  // its events are not observed
    } else if (std::holds_alternative<ResetPrefixCache>(command)) {
      for (const ConnectorCall& call : shown().connector_calls.or_empty()) {
        if (call.method == "reset_cache" && call.answer == "done") ++num_connector_events_;
      }
    }
  }

  // ---- Observations. ----

  /// Checks the observation after any command. Call it after take, if take was called.
  void check_shown() {
    check_numbers();
    if (!state_is_seen_) return;
    check_state();
    check_rest();
  }

  /// Call it when something came from outside or failed.
  void end_fair_run() { num_fair_steps_ = num_quiet_steps_ = 0; }

  /// After a command to this scheduler that was not refused, if the other rules hold.
  void check_progress(const Command& command) {
    num_put_off_ += num_times_put_off(command);
    if (!goes_on(command, observation()) || !state_is_seen_) {
      end_fair_run();
      return;
    }
    if (!std::holds_alternative<Schedule>(command)) return;
    const Work work = work_left();
    // Upstream can repeat steps, or stand still, for ever in two ways (notes_on_rules.md).
    const bool may_go_round =
        !shown().preempted->empty() &&
        (!only_running_hold_blocks(shown(), num_base_blocks()) || have_equals(*shown().preempted));
    const bool plans = !shown().scheduled->empty() || !shown().preempted->empty();
    num_fair_steps_ = kEndlessRounds(may_go_round) ? 0 : num_fair_steps_ + (plans ? 1 : 0);
    if (num_fair_steps_ <= 1) num_fair_steps_max_ = work.num_steps_max;
    const bool is_quiet = !plans && !kStandstill(work.may_stand) && waits_for_nothing();
    num_quiet_steps_ = is_quiet ? num_quiet_steps_ + 1 : 0;
    // One step sends what ended, its update returns the answer, and the next one is free to plan.
    // Each step asks again about a request that was put off.
    const std::uint64_t num_quiet_max = 2ULL * config_.max_concurrent_batches + num_put_off_;
    if (!work.first ||
        (num_quiet_steps_ <= num_quiet_max && num_fair_steps_ <= num_fair_steps_max_)) {
      return;
    }
    const std::string waits = std::string(to_text(work.first->shown_status)) + " after ";
    broken("every_request_ends", "requests[" + work.first->limits.id + "]",
           phrase("its end within " + std::to_string(num_fair_steps_max_) + " steps"),
           phrase(waits + std::to_string(num_fair_steps_) + " steps, and " +
                  std::to_string(num_quiet_steps_) + " without a scheduled request"));
  }

 private:
  /// World::Entry::number.
  using RequestNumber = std::uint32_t;

  enum class Place : std::uint8_t { kNowhere, kRunning, kWaiting };

  /// A request, until it is known to be gone.
  struct Track {
    std::optional<Request> request;  ///< prompt and reported outputs; nothing: it is gone
    AddRequest limits;               ///< as it was added, without its tokens
    std::uint32_t num_prompt_tokens = 0;
    bool is_unfinished = false;
    bool is_blocked = false;   ///< its grammar is not compiled
    bool is_loading = false;   ///< the end of its load was not reported
    bool is_held = false;      ///< finished while it loaded, or held by a scripted connector
    bool is_released = false;  ///< reported as sent or received after its end

    // From the last lookup of a scripted connector.
    std::uint32_t num_local_tokens = 0;
    bool load_async = false;
    std::uint64_t put_off_step = 0;       ///< the last step whose lookup put it off
    Aliasing aliasing = Aliasing::kNone;  ///< of the table that followed

    // From the last step with the request, and since.
    std::uint64_t reported_step = 0;
    std::uint32_t num_reported_computed = 0;
    bool is_reported_whole = false;
    std::uint64_t scheduled_step = 0;
    std::uint32_t num_scheduled_tokens = 0;
    std::uint32_t num_planned_tokens = 0;  ///< by all steps in flight
    std::uint64_t output_update = 0;       ///< the last update that reported its output
    BlocksByGroup worker_table;            ///< its blocks, as steps reported them

    // From the last observed state.
    RequestStatus shown_status = RequestStatus::kWaiting;
    std::uint32_t num_shown_computed = 0;
    std::uint32_t num_loaded_tokens = 0;  ///< of the load under way, with what was there before it
    std::uint32_t num_computed_most = 0;  ///< while it had its table
    const RequestState* shown = nullptr;  ///< null: not in the state
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

  /// The work that the requests have left.
  struct Work {
    const Track* first = nullptr;  ///< waits for nothing from outside; null: none
    /// A request that has loaded holds blocks, and another is first or its own do not suffice.
    bool may_stand = false;
    std::uint64_t num_steps_max = 0;
  };

  /// A step's report to workers about a request.
  struct Report {
    std::uint32_t num_computed = 0;
    bool is_whole = false;               ///< all of its blocks; else only new ones
    const BlockLists* blocks = nullptr;  ///< null: none
  };

  const Observation& observation() const { return *observation_; }
  /// This scheduler's part of it.
  const EngineObservation& shown() const { return *shown_; }
  const World& world() const { return *world_; }

  std::uint32_t num_base_blocks() const {
    return config_.kv_cache.pool.num_gpu_blocks - config_.kv_cache.num_usable_blocks();
  }

  /// The request of that name, unless it is known to be gone; else null.
  Track* find(const std::string& name) {
    const auto entry = world().find(name);
    if (!entry || entry->number >= tracks_.size()) return nullptr;
    Track& track = tracks_[entry->number];
    return track.request ? &track : nullptr;
  }

  RequestNumber number_of(const Track& track) const {
    return static_cast<RequestNumber>(&track - tracks_.data());
  }

  // ---- Requests. ----

  void add(AddRequest limits) {
    const RequestNumber number = world().find(limits.id)->number;
    if (tracks_.size() <= number) tracks_.resize(number + 1);
    Track& track = tracks_[number];
    track.request = *world().requests().find(limits.id);
    track.num_prompt_tokens = size_of(track.request->all_token_ids());
    track.is_unfinished = true;
    track.is_blocked = limits.needs_grammar;
    track.limits = std::move(limits);
    track.limits.tokens = {};
    there_.push_back(number);
    ++num_unfinished_;
  }

  void end(Track& track) {
    if (!track.is_unfinished) return;
    track.is_unfinished = false;
    track.is_held = track.is_held || track.is_loading;
    --num_unfinished_;
    ended_.push_back(track.limits.id);
  }

  void forget_requests() {
    for (RequestNumber number : there_) {
      tracks_[number].is_unfinished = false;
      tracks_[number].is_loading = false;
    }
    num_unfinished_ = 0;
    ended_.clear();
    in_flight_.clear();
  }

  /// Takes in the calls to a scripted connector.
  void take_calls() {
    for (const ConnectorCall& call : shown().connector_calls.or_empty()) {
      Track* const track = call.request.empty() ? nullptr : find(call.request);
      if (!track) continue;
      if (call.child) {
        // The MultiConnector combines its children's other answers.
        if (call.answer == "again") track->put_off_step = num_steps_;
      } else if (call.method == "get_num_new_matched_tokens") {
        track->num_local_tokens = call.num_tokens;
        track->load_async = call.answer.find("async") != std::string::npos;
        track->aliasing = Aliasing::kNone;
        if (call.answer == "again") track->put_off_step = num_steps_;
      } else if (call.method == "update_state_after_alloc" && call.num_tokens > 0) {
        track->is_loading = track->load_async;
        if (track->num_local_tokens > 0 &&
            !config_.kv_cache.pool.rules.external_blocks_after_hits) {
          track->aliasing = shown().tables.has_value() ? Aliasing::kShown : Aliasing::kUnknown;
        }
      } else if (call.method == "request_finished") {
        track->is_held = call.answer.starts_with("hold");
      }
    }
  }

  // ---- A step is planned. ----

  void check_rounds(const Command& command) {
    const StepRounds::Round* const round = rounds_.take(command, shown(), num_base_blocks());
    if (!round || kRoundsOfEquals(have_equals(round->preempted))) return;
    broken("steps_do_not_go_round", "preempted", "steps that make progress",
           phrase("the state of " + std::to_string(round->num_steps) +
                  " steps ago; preempted meanwhile: " + joined(round->preempted)));
  }

  void check_step() {
    if (!std::is_permutation(ended_.begin(), ended_.end(), shown().finished->begin(),
                             shown().finished->end())) {
      broken("finished_are_reported_once", "finished", ended_, *shown().finished);
    }
    ended_.clear();
    for (std::size_t at = 0; at < shown().new_reqs->size(); ++at) {
      const ScheduledNew& entry = (*shown().new_reqs)[at];
      const Report report = {entry.num_computed_tokens, /*is_whole=*/true, &entry.blocks};
      take_report(entry.request, report, element("new_reqs", at));
    }
    bool is_resumed = false;
    for (std::size_t at = 0; at < shown().cached_reqs->size(); ++at) {
      const ScheduledCached& entry = (*shown().cached_reqs)[at];
      const Report report = {entry.num_computed_tokens, entry.resumed,
                             entry.blocks.has_value() ? &*entry.blocks : nullptr};
      take_report(entry.request, report, element("cached_reqs", at));
      is_resumed = is_resumed || entry.resumed;
    }
    check_scheduled();
    const bool is_over_pause =
        (pause_state_ == PauseState::kPausedAll && !shown().scheduled->empty()) ||
        (pause_state_ != PauseState::kUnpaused && (is_resumed || !shown().new_reqs->empty()));
    if (is_over_pause) {
      broken("a_step_keeps_its_limits", "scheduled", "what the pause allows", *shown().scheduled);
    }
    if (!shown().never_fits.has_value()) return;
    Track* const track = find(*shown().never_fits);
    if (!track || !track->is_unfinished) {
      broken("finished_are_reported_once", "never_fits", "an unfinished request",
             *shown().never_fits);
    }
    end(*track);
  }

  void take_report(const std::string& name, const Report& report, const std::string& place) {
    Track* const track = find(name);
    if (!track || !track->is_unfinished || track->reported_step == num_steps_) {
      broken("workers_know_the_tables", place, "an unfinished request, once", name);
    }
    const std::uint32_t most = track->num_shown_computed;
    if (state_was_seen_ && most > 0 && report.num_computed > most &&
        !contains(*shown().preempted, name)) {
      broken("workers_know_the_tables", place + ".num_computed_tokens", most, report.num_computed);
    }
    track->reported_step = num_steps_;
    track->is_reported_whole = report.is_whole;
    track->num_reported_computed = report.num_computed;
    track->worker_table.resize(config_.kv_cache.groups.size());
    for (std::size_t group = 0; group < track->worker_table.size(); ++group) {
      std::vector<BlockId>& known = track->worker_table[group];
      if (report.is_whole) known.clear();
      if (!report.blocks || group >= report.blocks->size()) continue;
      known.insert(known.end(), (*report.blocks)[group].begin(), (*report.blocks)[group].end());
    }
  }

  void check_scheduled() {
    const std::vector<ScheduledRequest>& scheduled = *shown().scheduled;
    std::vector<Planned>& planned = in_flight_.emplace_back().requests;
    const std::uint32_t threshold = config_.long_prefill_token_threshold;
    std::uint32_t total = 0;
    for (std::size_t at = 0; at < scheduled.size(); ++at) {
      const ScheduledRequest& entry = scheduled[at];
      Track* const track = find(entry.request);
      if (!track || !track->is_unfinished || track->scheduled_step == num_steps_) {
        broken("a_step_keeps_its_limits", element("scheduled", at), "an unfinished request, once",
               entry.request);
      }
      if (track->is_loading) {
        broken("a_load_keeps_its_blocks", element("scheduled", at), "a request that does not load",
               entry.request);
      }
      if (track->reported_step != num_steps_) {
        broken("workers_know_the_tables", element("scheduled", at), "a new or cached request",
               entry.request);
      }
      const std::uint32_t num_tokens = entry.num_tokens;
      total += num_tokens;
      if (num_tokens == 0 || (threshold > 0 && num_tokens > threshold) ||
          track->num_reported_computed + num_tokens > config_.kv_cache.max_model_len) {
        broken("a_step_keeps_its_limits", element("scheduled", at) + ".num_tokens",
               "tokens within threshold and model length", num_tokens);
      }
      track->scheduled_step = num_steps_;
      track->num_scheduled_tokens = num_tokens;
      track->num_planned_tokens += num_tokens;
      planned.push_back({number_of(*track), num_tokens, size_of(entry.spec_tokens), entry.samples});
    }
    broken.unless_equal("workers_know_the_tables", "cached_reqs", size_of(scheduled),
                        size_of(*shown().new_reqs) + size_of(*shown().cached_reqs));
    if (total > config_.token_budget()) {
      broken("a_step_keeps_its_limits", "scheduled", config_.token_budget(), total);
    }
  }

  // ---- A step comes back. ----

  /// On a device, all ranks were polled for the oldest step that was not.
  void take_poll() {
    const auto step =
        std::ranges::find_if(in_flight_, [](const Step& each) { return !each.invalid_blocks; });
    if (step != in_flight_.end()) step->invalid_blocks = *observation().invalid_blocks;
    for (const std::string& name : *observation().finished_recving) {
      if (Track* track = find(name)) track->is_loading = false;
    }
  }

  void check_update(const Update& command, const SchedulerObservation* before) {
    ++num_updates_;
    Step step;
    if (!in_flight_.empty()) {
      step = std::move(in_flight_.front());
      in_flight_.erase(in_flight_.begin());
    }
    const bool is_reported = setup_.has_workers() && observation().invalid_blocks.has_value();
    const std::vector<BlockId>& invalid_blocks = step.invalid_blocks ? *step.invalid_blocks
                                                 : is_reported       ? *observation().invalid_blocks
                                                                     : command.invalid_blocks;
    if (!invalid_blocks.empty() && before && before->requests.has_value() &&
        shown().requests.has_value() && config_.kv_cache.groups.size() == 1) {
      check_failed_blocks(invalid_blocks, *before);
    }
    for (std::size_t at = 0; at < shown().outputs->size(); ++at) check_output(command, at, step);
    for (const Planned& planned : step.requests) {
      tracks_[planned.number].num_planned_tokens -= planned.num_tokens;
    }
    const auto report = [&](const std::vector<std::string>& names) {
      for (const std::string& name : names) {
        Track* const track = find(name);
        if (!track) continue;
        track->is_loading = false;
        track->is_held = false;
        track->is_released = !track->is_unfinished;
      }
    };
    report(is_reported ? *observation().finished_recving : command.finished_recving);
    report(is_reported ? *observation().finished_sending : command.finished_sending);
    check_events();
  }

  /// Blocks whose load failed. Loading and running requests are checked separately.
  void check_failed_blocks(const std::vector<BlockId>& blocks, const SchedulerObservation& before) {
    for (RequestStatus status : {RequestStatus::kWaitingForRemoteKVs, RequestStatus::kRunning}) {
      for (BlockId block : blocks) check_failed_block(block, status, before);
    }
  }

  void check_failed_block(BlockId block, RequestStatus status, const SchedulerObservation& before) {
    const std::uint32_t block_size = config_.kv_cache.groups.front().block_size;
    bool is_counted = false;
    bool goes_back = false;
    for (const RequestState& state : *before.requests) {
      Track* const track = find(state.id);
      const BlocksByGroup* const table = find_table(*before.tables, state.id);
      if (state.status != status || !track || !table) continue;
      const auto at = std::ranges::find(table->front(), block);
      const auto first = static_cast<std::uint32_t>(at - table->front().begin()) * block_size;
      if (at == table->front().end() || first >= state.num_computed_tokens) continue;
      const RequestState* const now = find_state(shown(), state.id);
      goes_back |= !now || is_finished(now->status) || now->num_computed_tokens <= first;
      if (first >= num_surely_computed(state, *track)) continue;
      is_counted = true;
      if (status != RequestStatus::kRunning) continue;
      for (const RequestOutput& output : *shown().outputs) {
        if (output.request != state.id || output.tokens.empty()) continue;
        broken("failed_blocks_are_computed_again", "outputs", phrase("none of " + state.id),
               to_value(output.tokens));
      }
    }
    if (!is_counted || goes_back) return;
    broken("failed_blocks_are_computed_again", "requests",
           "block " + std::to_string(block) + " to be computed again", *shown().requests);
  }

  /// Without the tokens that steps in flight plan: a stale step may have computed them already.
  static std::uint32_t num_surely_computed(const RequestState& state, const Track& track) {
    return state.num_computed_tokens -
           std::min(state.num_computed_tokens, track.num_planned_tokens);
  }

  void check_output(const Update& command, std::size_t at, const Step& step) {
    const RequestOutput& output = (*shown().outputs)[at];
    const std::string place = element("outputs", at);
    Track* const track = find(output.request);
    if (!track || !track->is_unfinished || track->output_update == num_updates_) {
      broken("outputs_come_from_steps", place + ".request", "an unfinished request, once",
             output.request);
    }
    track->output_update = num_updates_;
    const std::vector<TokenId> sampled = sampled_of(*track, command, step);
    const std::vector<TokenId>& tokens = output.tokens;
    const bool is_sampled =
        tokens.size() <= sampled.size() &&
        (setup_.device || std::equal(tokens.begin(), tokens.end(), sampled.begin()));
    if (!is_sampled) broken("outputs_come_from_steps", place + ".tokens", sampled, tokens);
    if (tokens.empty() && !is_finished(output.status)) {
      broken("outputs_come_from_steps", place + ".tokens", "some, or an end", tokens);
    }
    track->request->append_output_token_ids(tokens);
    check_end(*track, output, place);
    if (is_finished(output.status)) end(*track);
  }

  /// On a device the model decides the tokens and their number: unknown here.
  std::vector<TokenId> sampled_of(const Track& track, const Update& command,
                                  const Step& step) const {
    for (const Sample& sample : command.samples) {
      if (sample.request == track.limits.id) return sample.tokens;
    }
    const auto planned = std::ranges::find_if(step.requests, [&](const Planned& each) {
      return each.samples && &tracks_[each.number] == &track;
    });
    if (planned == step.requests.end()) return {};
    const std::uint32_t accepted = setup_.device ? planned->num_spec_tokens : command.accepted;
    return std::vector<TokenId>(1 + std::min(accepted, planned->num_spec_tokens), command.token);
  }

  /// A request ends at the first token that its limits name, and only there. The track has the
  /// output.
  void check_end(const Track& track, const RequestOutput& output, const std::string& place) const {
    const AddRequest& limits = track.limits;
    const std::uint32_t num_before =
        size_of(track.request->all_token_ids()) - size_of(output.tokens);
    for (std::uint32_t index = 0; index < output.tokens.size(); ++index) {
      const std::uint32_t num_tokens = num_before + index + 1;
      const std::uint32_t num_outputs = num_tokens - track.num_prompt_tokens;
      const TokenId token = output.tokens[index];
      const bool stops = num_outputs >= limits.min_tokens &&
                         (token == limits.eos_token_id || contains(limits.stop_token_ids, token));
      const bool must_end =
          stops || num_outputs >= limits.max_tokens || num_tokens >= config_.kv_cache.max_model_len;
      const bool ends = index + 1 == output.tokens.size() && is_finished(output.status);
      if (must_end == ends) continue;
      broken("outputs_come_from_steps", place + ".status",
             must_end ? "an end at token " + std::to_string(token) : "no end yet",
             std::string(to_text(output.status)));
    }
  }

  void check_events() {
    if (!mirror_) return;
    // The pool's events come first. A connector's events have a medium, except the last
    // AllBlocksCleared ones, which are the scripted connectors'.
    const auto has_medium = [](const KVCacheEvent& event) {
      const auto* stored = std::get_if<BlockStored>(&event);
      const auto* removed = std::get_if<BlockRemoved>(&event);
      return (stored && stored->medium) || (removed && removed->medium);
    };
    std::span<const KVCacheEvent> events(*shown().events);
    std::vector<KVCacheEvent> without_own;
    if (num_connector_events_ > 0) {
      without_own = *shown().events;
      for (; num_connector_events_ > 0; --num_connector_events_) {
        const auto last =
            std::find_if(without_own.rbegin(), without_own.rend(), [](const KVCacheEvent& event) {
              return std::holds_alternative<AllBlocksCleared>(event);
            });
        if (last == without_own.rend()) {
          broken("events_mirror_the_keys", "events", "the connector's too", *shown().events);
        }
        without_own.erase(std::prev(last.base()));
      }
      events = without_own;
    }
    const auto end = std::ranges::find_if(events, has_medium);
    mirror_->take(events.first(static_cast<std::size_t>(end - events.begin())),
                  config_.kv_cache.pool);
    if (shown().keys.has_value()) mirror_->compare(*shown().keys, config_.kv_cache.pool);
  }

  void check_numbers() const {
    if (shown().num_running > config_.max_num_seqs) {
      broken("a_step_keeps_its_limits", "num_running", config_.max_num_seqs, shown().num_running);
    }
    const std::uint32_t num_blocks = config_.kv_cache.pool.num_gpu_blocks;
    broken.unless_equal("blocks_add_up", "num_referenced_blocks",
                        num_blocks - shown().num_empty_blocks - shown().num_cached_blocks,
                        shown().num_referenced_blocks);
    broken.unless_equal("a_request_has_one_place", "num_waiting",
                        num_unfinished_ - shown().num_running,
                        shown().num_waiting + shown().num_skipped_waiting);
    if (!state_is_seen_) return;
    std::uint32_t num_cached = 0;
    for (BlockId block : *shown().free_queue) num_cached += (*shown().keys)[block].empty() ? 0 : 1;
    broken.unless_equal("blocks_add_up", "num_cached_blocks", num_cached,
                        shown().num_cached_blocks);
    broken.unless_equal("blocks_add_up", "num_referenced_blocks",
                        num_blocks - size_of(*shown().free_queue), shown().num_referenced_blocks);
    const auto have_one_place = [](std::string_view member, const auto& list, std::uint32_t num) {
      broken.unless_equal("a_request_has_one_place", member, size_of(list), num);
    };
    have_one_place("num_running", *shown().running, shown().num_running);
    have_one_place("num_waiting", *shown().waiting, shown().num_waiting);
    have_one_place("num_skipped_waiting", *shown().skipped_waiting, shown().num_skipped_waiting);
  }

  void check_state() {
    const BlockState blocks{*shown().free_queue, *shown().ref_cnts, *shown().keys, *shown().tables};
    block_tables_.check_blocks(blocks);
    read_requests();
    block_tables_.check_places(blocks, owners_);
    check_places();
    for (RequestNumber number : there_) check_request(tracks_[number]);
  }

  /// Finds each request and its table, and forgets requests that are gone.
  void read_requests() {
    for (RequestNumber number : there_) {
      tracks_[number].shown = nullptr;
      tracks_[number].table = nullptr;
      tracks_[number].place = Place::kNowhere;
    }
    std::uint32_t num_unfinished = 0;
    for (std::size_t at = 0; at < shown().requests->size(); ++at) {
      const RequestState& state = (*shown().requests)[at];
      Track* const track = find(state.id);
      if (!track || track->shown || track->is_unfinished == is_finished(state.status)) {
        broken("a_request_has_one_place", element("requests", at),
               "a known request, once, with a status that fits", state.id);
      }
      track->shown = &state;
      num_unfinished += track->is_unfinished ? 1 : 0;
    }
    if (num_unfinished != num_unfinished_) {
      broken("a_request_has_one_place", "requests", "every unfinished request", *shown().requests);
    }
    owners_.clear();
    for (const RequestBlocks& table : *shown().tables) {
      Track* const track = find(table.request);
      if (!track || !track->shown || track->table) {
        broken("a_request_has_one_place", "tables", "none of a request that is gone",
               table.request);
      }
      track->table = &table.blocks;
      owners_.push_back({&*track->request, number_of(*track), track->aliasing});
    }
    for (RequestNumber number : there_) {
      Track& track = tracks_[number];
      if (track.shown) continue;
      if (track.is_loading) {
        broken("a_load_keeps_its_blocks", "requests", track.limits.id + " among them",
               *shown().requests);
      }
      track.request.reset();
    }
    std::erase_if(there_, [this](RequestNumber number) { return !tracks_[number].request; });
  }

  void check_places() {
    const auto read = [&](std::string_view member, const std::vector<std::string>& names,
                          Place place) {
      for (std::size_t at = 0; at < names.size(); ++at) {
        Track* const track = find(names[at]);
        const bool fits =
            track && track->is_unfinished && track->place == Place::kNowhere &&
            (track->shown->status == RequestStatus::kRunning) == (place == Place::kRunning);
        if (!fits) {
          broken("a_request_has_one_place", element(member, at),
                 "an unfinished request that belongs here and is nowhere else", names[at]);
        }
        track->place = place;
      }
    };
    // The queues have as many places as there are unfinished requests.
    read("running", *shown().running, Place::kRunning);
    read("waiting", *shown().waiting, Place::kWaiting);
    read("skipped_waiting", *shown().skipped_waiting, Place::kWaiting);
  }

  static std::string place_of(const Track& track, std::string_view member = "") {
    return "requests[" + track.shown->id + "]" + std::string(member);
  }

  void check_request(Track& track) {
    const RequestState& state = *track.shown;
    const std::uint32_t num_tokens = size_of(track.request->all_token_ids());
    if (state.num_tokens != num_tokens) {
      broken("tokens_add_up", place_of(track, ".num_tokens"), num_tokens, state.num_tokens);
    }
    const bool loads = state.status == RequestStatus::kWaitingForRemoteKVs;
    if (track.is_loading && (!track.table || loads != track.is_unfinished)) {
      broken("a_load_keeps_its_blocks", place_of(track), "one that waits for its load, with blocks",
             std::string(to_text(state.status)));
    }
    if (!track.is_unfinished) {
      if (!track.is_released && (track.is_held || setup_.has_workers())) return;
      broken("a_finished_request_is_let_go", "requests", "none of " + state.id, *shown().requests);
    }
    // With workers a load shows only as a status.
    if (state_was_seen_ && loads && track.shown_status != RequestStatus::kWaitingForRemoteKVs) {
      track.is_loading = true;
    }
    track.shown_status = state.status;
    track.num_shown_computed = state.num_computed_tokens;

    const std::uint32_t most = num_tokens - (loads ? 0 : 1);
    if (num_surely_computed(state, track) > most) {
      broken("tokens_add_up", place_of(track, ".num_computed_tokens"),
             most + track.num_planned_tokens, state.num_computed_tokens);
    }
    const bool is_planned = planned_now_ && track.scheduled_step == num_steps_;
    // A request that is new in this step may get the places of drafts one step later.
    const bool has_lookahead = is_planned && !track.is_reported_whole;
    check_places_of(track, has_lookahead ? config_.num_lookahead_tokens() : 0);
    if (is_planned) check_report(track);
    check_keys(track);
  }

  void check_places_of(const Track& track, std::uint32_t num_lookahead) const {
    const std::uint32_t num_slots =
        std::min(track.num_shown_computed + num_lookahead, config_.kv_cache.max_model_len);
    for (GroupId group = 0; group < config_.kv_cache.groups.size(); ++group) {
      const KVCacheSpec& spec = config_.kv_cache.groups[group];
      if (kv_cache::is_mamba_align(spec)) continue;  // it holds states, not tokens
      const std::uint32_t least = kv_cache::blocks_for(num_slots, spec.block_size);
      const std::uint32_t length = track.table ? size_of((*track.table)[group]) : 0;
      if (length >= least) continue;
      broken("computed_tokens_have_blocks", element("tables[" + track.shown->id + "]", group),
             std::to_string(least) + " places", std::to_string(length) + " places");
    }
  }

  void check_report(const Track& track) const {
    const std::uint32_t num_computed = track.num_reported_computed + track.num_scheduled_tokens;
    if (track.shown->num_computed_tokens != num_computed) {
      broken("workers_know_the_tables", place_of(track, ".num_computed_tokens"), num_computed,
             track.shown->num_computed_tokens);
    }
    for (GroupId group = 0; group < config_.kv_cache.groups.size(); ++group) {
      // Mamba moves its states along.
      if (kv_cache::is_mamba_align(config_.kv_cache.groups[group])) continue;
      const std::vector<BlockId>& known = track.worker_table[group];
      const std::vector<BlockId>& now = (*track.table)[group];
      // The null block replaces a block that is no longer needed.
      const bool is_known = std::equal(known.begin(), known.end(), now.begin(), now.end(),
                                       [](BlockId reported, BlockId block) {
                                         return block == reported || block == kNullBlockId;
                                       });
      if (!is_known) broken("workers_know_the_tables", "blocks of " + track.shown->id, now, known);
    }
  }

  void check_keys(Track& track) {
    const RequestState& state = *track.shown;
    // Computed tokens stay cached when they are computed again. If unobserved, assume all.
    std::uint32_t& most = track.num_computed_most;
    if (!track.table) most = 0;
    if (!state_was_seen_ && track.table) most = config_.kv_cache.max_model_len;
    if (state.status == RequestStatus::kWaitingForRemoteKVs) {
      // The cached part is known only if the lookup is observed.
      most =
          std::max(most, setup_.is_scripted ? track.num_local_tokens : state.num_computed_tokens);
      track.num_loaded_tokens = state.num_computed_tokens;
    } else {
      const std::uint32_t num_loaded = std::exchange(track.num_loaded_tokens, 0);
      most = std::max({most, num_loaded, state.num_computed_tokens});
    }
    if (!track.table) return;
    for (GroupId group = 0; group < config_.kv_cache.groups.size(); ++group) {
      const std::vector<BlockId>& blocks = (*track.table)[group];
      const std::uint32_t block_size = config_.kv_cache.groups[group].block_size;
      for (std::size_t index = most / block_size; index < blocks.size(); ++index) {
        const BlockHash& key = (*shown().keys)[blocks[index]];
        if (key.empty() || block_tables_.is_aliased(blocks[index])) continue;
        if (kOvershootingTable(may_overshoot_)) continue;
        broken("only_computed_blocks_are_cached", place_name(state.id, group, index), Value(),
               key_value(key));
      }
    }
  }

  /// Whether one of these has the priority and arrival time of another request.
  bool have_equals(const std::vector<std::string>& names) {
    if (config_.policy != SchedulingPolicy::kPriority) return false;
    return std::ranges::any_of(names, [&](const std::string& name) {
      const Track* const one = find(name);
      return one && std::ranges::any_of(there_, [&](RequestNumber number) {
               const Track& other = tracks_[number];
               return &other != one && other.limits.priority == one->limits.priority &&
                      other.limits.arrival_time == one->limits.arrival_time;
             });
    });
  }

  /// Under fcfs no request preempts the first running one: each step that plans it advances it by a
  /// token, and it is planned at the latest when all steps in flight are back. So all requests end
  /// within as many steps as they have tokens. Under priority a better request may come in before
  /// one ends, and requests before it in the list may take the budget of each step: once for each
  /// pair of requests.
  Work work_left() const {
    Work work;
    bool has_holder = false;
    for (RequestNumber number : there_) {
      const Track& track = tracks_[number];
      if (!track.is_unfinished) continue;
      const std::uint64_t num_tokens =
          std::uint64_t{track.num_prompt_tokens} + track.limits.max_tokens;
      work.num_steps_max += 1 + std::min<std::uint64_t>(num_tokens, config_.kv_cache.max_model_len);
      if (track.is_blocked) continue;
      const bool holds = track.table && track.shown_status != RequestStatus::kRunning;
      has_holder |= holds;
      work.may_stand |= has_holder && (work.first || !fits(track));
      if (!work.first) work.first = &track;
    }
    work.num_steps_max = config_.max_concurrent_batches * (work.num_steps_max + 1);
    if (config_.policy == SchedulingPolicy::kPriority) {
      work.num_steps_max *= std::uint64_t{num_unfinished_} * num_unfinished_;
    }
    return work;
  }

  /// Whether the free blocks and a step's tokens suffice for all that a loaded request needs.
  bool fits(const Track& track) const {
    const std::uint32_t num_left = track.shown->num_tokens - track.num_shown_computed;
    if (!config_.enable_chunked_prefill && num_left > config_.token_budget()) return false;
    std::uint32_t num_free = config_.kv_cache.pool.num_gpu_blocks - shown().num_referenced_blocks;
    const std::uint32_t num_tokens = track.shown->num_tokens + config_.num_lookahead_tokens();
    for (GroupId group = 0; group < config_.kv_cache.groups.size(); ++group) {
      const KVCacheSpec& spec = config_.kv_cache.groups[group];
      // It takes the next block before it gives back one that it no longer needs.
      const std::uint32_t num_needed =
          1 + spec.num_speculative_blocks + kv_cache::blocks_for(num_tokens, spec.block_size);
      const std::uint32_t num_held = track.table ? size_of((*track.table)[group]) : 0;
      if (num_needed > num_held + num_free) return false;
      num_free -= num_needed - std::min(num_needed, num_held);
    }
    return true;
  }

  /// Whether a step that plans nothing has nothing to wait for. A finished request has blocks until
  /// it is let go.
  bool waits_for_nothing() const {
    const bool has_scripted =
        contains(setup_.children, ConnectorKind::kScripted, &ChildSetup::kind);
    return pause_state_ == PauseState::kUnpaused &&
           !observation().of(role_).never_fits.has_value() &&
           !is_anything_under_way(observation(), role_) &&
           std::ranges::all_of(in_flight_,
                               [](const Step& step) { return step.requests.empty(); }) &&
           std::ranges::all_of(there_, [&](RequestNumber number) {
             const Track& track = tracks_[number];
             const bool loads = has_scripted
                                    ? track.shown_status == RequestStatus::kWaitingForRemoteKVs
                                    : setup_.is_scripted && track.is_loading;
             return track.is_unfinished && !loads;
           });
  }

  void check_rest() const {
    const bool is_idle = shown().num_referenced_blocks == num_base_blocks();
    const bool copies_rest =
        !setup_.simple || (shown().copies->empty() && !*shown().has_pending_stores);
    if (shown().requests->empty() && copies_rest && !is_idle) {
      broken("nothing_is_held_when_all_are_gone", "num_referenced_blocks", num_base_blocks(),
             shown().num_referenced_blocks);
    }
    // A request with a very small window may run on null blocks only.
    if (!planned_now_ || !is_idle || shown().never_fits.has_value() ||
        pause_state_ != PauseState::kUnpaused || !shown().preempted->empty() ||
        !shown().running->empty()) {
      return;
    }
    for (RequestNumber number : there_) {
      const Track& track = tracks_[number];
      const bool is_ready = track.is_unfinished && !track.is_blocked && !track.is_loading &&
                            track.put_off_step != num_steps_;
      if (!is_ready || kPutOffUnseen(setup_.offloading.has_value())) continue;
      broken("schedule_makes_progress", "never_fits",
             phrase(track.limits.id + ", or its admission"), Value());
    }
  }

  EngineSetup setup_;
  EngineRole role_;
  SchedulerConfig config_;
  bool may_overshoot_ = false;        ///< a hit may put more blocks in a table than it has tokens
  std::vector<Track> tracks_;         ///< by number
  std::vector<RequestNumber> there_;  ///< requests that are not known to be gone
  std::uint32_t num_unfinished_ = 0;
  std::vector<std::string> ended_;  ///< the next step has to report them
  std::vector<Step> in_flight_;     ///< oldest first
  std::uint64_t num_steps_ = 0;
  std::uint64_t num_updates_ = 0;
  bool planned_now_ = false;  ///< the current command planned a step
  PauseState pause_state_ = PauseState::kUnpaused;
  std::uint32_t num_connector_events_ = 0;  ///< expected from a scripted connector
  bool state_is_seen_ = true;
  bool state_was_seen_ = true;  ///< after the previous command
  BlockTableInvariants block_tables_;
  std::optional<EventMirror> mirror_;  ///< nothing: some events were not observed
  StepRounds rounds_;
  std::uint64_t num_fair_steps_ = 0;  ///< steps of a fair run that planned something
  std::uint64_t num_fair_steps_max_ = 0;
  std::uint64_t num_quiet_steps_ = 0;  ///< in a row: nothing planned, nothing under way
  std::uint64_t num_put_off_ = 0;      ///< how often connectors put requests off
  std::vector<TableOwner> owners_;     ///< scratch, by table

  // Of the command that is checked.
  const Observation* observation_ = nullptr;
  const EngineObservation* shown_ = nullptr;
  const World* world_ = nullptr;
};

/// Checks each scheduler of an engine or a pair.
class CoreRules final : public Rules {
 public:
  explicit CoreRules(const EngineSetup& setup) {
    for (std::size_t number = 0; number < setup.schedulers.size(); ++number) {
      schedulers_.emplace_back(setup, static_cast<EngineRole>(number));
    }
  }

  void check_all(const Command& command) override {
    for (SchedulerRules& scheduler : schedulers_) scheduler.see(shown(), world());
    const auto role = static_cast<std::size_t>(role_of(command));
    const bool is_accepted = shown().error == ErrorCode::kNone && !has_ended(shown());
    if (shown().error != ErrorCode::kNone) {
      broken.if_changed("a_refused_command_changes_nothing", before(), shown());
    } else if (has_ended(shown())) {
      for (SchedulerRules& scheduler : schedulers_) scheduler.restart();
    } else if (role < schedulers_.size()) {
      schedulers_[role].take(command,
                             before() ? &before()->of(static_cast<EngineRole>(role)) : nullptr);
    }
    for (SchedulerRules& scheduler : schedulers_) scheduler.check_shown();
    // For example, a read that fails belongs to no engine.
    if (is_accepted && !named_engine(command) && !goes_on(command, shown())) {
      for (SchedulerRules& scheduler : schedulers_) scheduler.end_fair_run();
    }
    if (is_accepted && role < schedulers_.size()) schedulers_[role].check_progress(command);
  }

 private:
  std::vector<SchedulerRules> schedulers_;  ///< by EngineRole
};

}  // namespace

RuleSuite<EngineTarget> core_rules() { return rule_suite<CoreRules>(kCoreInvariants); }

}  // namespace kvfence::engine
