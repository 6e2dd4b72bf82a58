#pragma once

/// What must hold of one scheduler, whatever any other implementation says. The rules are those of
/// contract/scheduler/scheduler.h, turned into statements about observations.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/engine/engine_target.h"
#include "contract/scheduler/scheduler.h"
#include "properties/core/divergence.h"
#include "properties/engine/scheduler/books.h"
#include "properties/kv_cache/block_table_rules.h"
#include "properties/pool/event_mirror.h"

namespace kvfence::engine::scheduler {

struct Invariant {
  std::string_view id;
  std::string_view name;  ///< Divergence::oracle
  std::string_view rule;  ///< Divergence::message
};

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 32> kInvariants = {{
    {"S1", "answers_fit_the_command",
     "a command is refused with the first code whose condition holds, and answers with exactly "
     "what it returns"},
    {"S2", "nothing_changes_unasked",
     "a refused command and one that is not about blocks change neither queue nor keys; keys "
     "change only where a step is planned or comes back, and at a reset"},
    {"S3", "numbers_add_up",
     "the numbers are those of places and blocks; unfinished requests count as far as the pause "
     "lets them run, and has_finished tells whether a finish is still to be told"},
    {"S4", "null_and_sinks_stay_out",
     "the null block and the blocks that sinks took have no key, no reference and no place in the "
     "free queue"},
    {"S5", "ref_cnt_counts_places",
     "a block's ref_cnt is the number of places that hold it in the block tables"},
    {"S6", "queue_holds_the_unreferenced",
     "the free queue holds exactly the blocks that no table holds, once each, but for sinks"},
    {"S7", "a_block_has_one_place",
     "a block stands at one place of one table, unless requests of the same prefix share it at the "
     "same place"},
    {"S8", "keys_fit_their_places",
     "a block in a table that carries a key carries that of its place in the request and group"},
    {"S9", "events_mirror_the_keys",
     "an index fed by the events holds exactly the hashes in the pool, removes none that it does "
     "not hold, and gets no event where events are off"},
    {"S10", "a_request_has_one_place",
     "an unfinished request stands once, where its status belongs; a finished one nowhere; blocked "
     "ones stand in skipped_waiting"},
    {"S11", "places_keep_their_order",
     "running is ordered by admission, the waiting places by priority or as queues: victims in "
     "front in their old order, and only who was skipped in this step moves to skipped_waiting"},
    {"S12", "requests_stand_as_told",
     "status, tokens, computed tokens, preemptions and drafts of a request are what commands and "
     "answers add up to"},
    {"S13", "step_gives_what_is_lacking",
     "each running request gets the tokens that it lacks and its drafts, as far as budget, "
     "threshold, model length and block boundaries allow, and none is passed over"},
    {"S14", "nobody_is_admitted_out_of_turn",
     "a request is admitted only unpaused, in a step without victims, while there is room, when "
     "nothing blocks it, and behind all before it that could be"},
    {"S15", "tables_cover_the_tokens",
     "the table of a scheduled or loading request has the places for its tokens and lookahead, and "
     "no more"},
    {"S16", "step_tells_what_is_new",
     "a step tells the whole table of a request that comes in and what another one's gained, with "
     "computed and output tokens as they stood; common prefix and new blocks are those of the "
     "tables"},
    {"S17", "victims_are_the_last",
     "a victim is the last of running, or the first of those with the greatest priority and "
     "arrival time"},
    {"S18", "finished_are_told_once",
     "a step names exactly those that finished since the step before, in order"},
    {"S19", "hit_is_short_and_cached",
     "what an admission finds in the cache is shorter than the request, whole blocks, and stands "
     "in its table with keys"},
    {"S20", "cached_prefix_is_found",
     "an admission, a resumed request's too, finds all leading blocks of which a copy kept its key "
     "throughout the step (one group of full attention)"},
    {"S21", "tables_change_as_asked",
     "a table begins with an admission, grows with a scheduled step, and ends with preemption, "
     "finish, a failed load, or the report for which it was held; loading and held blocks stay"},
    {"S22", "only_computed_blocks_are_cached",
     "blocks behind a request's computed tokens carry no key: not before a load is over, nor "
     "behind "
     "the first block that failed"},
    {"S23", "outputs_are_what_was_sampled",
     "outputs come for the requests of the step that are still there, with the sampled tokens up "
     "to the one that stopped"},
    {"S24", "requests_stop_where_they_must",
     "a request ends at the first token that its limits and stop tokens name, with that status, "
     "and where its load failed"},
    {"S25", "connector_is_called_in_order",
     "the connector is asked and told once for each event, in the order and with the arguments "
     "that it is owed"},
    {"S26", "schedule_makes_progress",
     "while no request holds a block, one that nothing blocks starts, or never fits; never fits "
     "only what the empty pool did not admit; whoever is next and fits with its full length starts "
     "while there are budget and a seat"},
    {"S27", "nothing_is_held_when_all_are_gone",
     "while no request is there every block but null and sinks is free"},
    {"S28", "held_blocks_keep_their_keys",
     "a block that stays in its place keeps its key, unless its load failed"},
    {"S29", "stats_add_up",
     "statistics count the lookups, found tokens and drafts since they were last told"},
    {"S30", "placeholders_are_what_is_planned",
     "a request's placeholders are the outputs that its steps in flight plan, stale ones left out"},
    {"S31", "reset_needs_an_idle_pool",
     "a reset succeeds exactly if every block but the null block is free and the connector's "
     "succeeds, and then leaves no key"},
    {"S32", "admission_leaves_room",
     "an admission leaves free what the request lacks for its full length, and one that loads what "
     "prefills under way lack (one group of full attention)"},
}};

/// Watches one implementation. A value: copyable.
///
/// The books are kept from commands and answers, so most holds without the state; the state is
/// held against the books wherever it is observed, and what a command changed where it was observed
/// before the command too. Invalid blocks that arrive without a state before them end what needs
/// the books, until reset.
class Invariants {
 public:
  explicit Invariants(const EngineSetup& setup);

  /// For a fresh scheduler of the same configuration.
  void reset();

  /// Holds one observation against every invariant; the first that is broken, or nothing. Called
  /// after every command since reset, with a world that has taken it in. After a divergence only
  /// reset() may follow.
  ///
  /// Cost: linear in the blocks, the places of all tables, and the requests that are there.
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step);

 private:
  using Found = std::optional<Divergence>;

  /// Answer::next_call where calls are not looked at.
  static constexpr std::size_t kAllCalls = 0xFFFF'FFFF;

  /// One attempt to admit a request, as connector calls and answers show it.
  struct Attempt {
    RequestNumber number = 0;
    bool was_asked = false;  ///< the connector was
    bool again = false;
    bool load_async = false;
    bool is_allocated = false;
    std::uint32_t num_local_tokens = 0;
    std::uint32_t num_external_tokens = 0;
    const BlockLists* blocks = nullptr;  ///< what the connector was shown
  };

  /// A request whose table this step had to make long enough.
  struct Slots {
    RequestNumber number = 0;
    std::uint32_t num_tokens = 0;
    bool is_admission = false;
  };

  /// A request that this step looked up before it came in or began to load.
  struct Hit {
    RequestNumber number = 0;
    std::uint32_t num_tokens = 0;
  };

  /// The answer to one command as it is being looked at.
  struct Answer {
    const Command& command;
    const Observation& shown;
    const World& world;
    std::size_t next_call = 0;  ///< of connector_calls
  };

  // What a command answers, and what it does to the books (rules.cpp).
  ErrorCode expected_error(const Answer& answer) const;
  ErrorCode expected_update_error(const Update& command, const Answer& answer) const;
  Found check_present(const Answer& answer) const;
  Found check_answer(Answer& answer);
  Found check_call(std::string_view method, std::string_view request, Answer& answer) const;
  Found check_no_more_calls(const Answer& answer) const;
  Found check_finish(RequestNumber number, RequestStatus status, bool is_held, Answer& answer);
  Found check_finish_requests(const std::vector<RequestNumber>& numbers, RequestStatus status,
                              Answer& answer);
  Found check_reset(const ResetPrefixCache& command, Answer& answer);
  Found check_update(const Update& command, Answer& answer);
  void fail_loads(const Update& command);
  Found check_outputs(const Update& command, Answer& answer);
  Found check_output(RequestNumber number, const std::vector<TokenId>& tokens, RequestStatus status,
                     std::optional<TokenId> stop_reason, const Answer& answer);
  Found check_events(const Answer& answer);
  Found check_stats(const Answer& answer);

  // A step (step_rules.cpp).
  Found check_schedule(Answer& answer);
  Found check_told(const Answer& answer);
  void queue_before_step();
  Found check_victims(const Answer& answer);
  Found check_running_part(const Answer& answer);
  Found check_running_entry(RequestNumber number, bool is_exact, const Answer& answer);
  Found check_cached_entry(RequestNumber number, bool resumed, const Answer& answer);
  Found find_attempts(Answer& answer);
  Found check_may_be_admitted(RequestNumber number, const Answer& answer) const;
  Found check_admissions(const Answer& answer);
  Found check_local_hit(RequestNumber number, std::uint32_t num_hit_tokens,
                        const Answer& answer) const;
  void count_lookup(const Attempt& attempt);
  void set_aliasing(const Attempt& attempt, const Observation& shown);
  void take_in_load(const Attempt& attempt, const Answer& answer);
  Found check_admission(const Attempt& attempt, const Answer& answer);
  bool surely_fits(const Track& track, const Observation& shown) const;
  Found check_turn(const RequestNumber* last_looked_at, const Answer& answer) const;
  Found check_end_of_step(Answer& answer);
  Found check_never_fits(Answer& answer);

  // The state, and what changed of it (state_rules.cpp).
  Found check_numbers(const Answer& answer) const;
  Found check_unchanged(const Answer& answer) const;
  Found check_blocks(const Answer& answer);
  Found check_state(const Answer& answer);
  Found check_requests(const Answer& answer);
  Found check_request(const RequestState& shown, RequestNumber number, std::size_t at,
                      const Answer& answer);
  Found check_places(const Answer& answer);
  Found check_place_order(const Answer& answer);
  Found check_order_after_step(const Answer& answer) const;
  Found check_tables(const Answer& answer);
  Found check_table(const RequestBlocks& shown, const Track& track, const Answer& answer) const;
  Found check_slots(const Answer& answer) const;
  Found check_room(const Answer& answer) const;
  Found check_hits(const Answer& answer) const;
  Found check_keys(const Answer& answer) const;
  Found check_step_lists(const Answer& answer);
  void remember(const Answer& answer);

  /// A request's table as it is shown; null where it has none. After check_tables.
  const BlocksByGroup* shown_table(RequestNumber number, const Answer& answer) const;

  std::uint32_t num_base_blocks() const { return 1 + num_sinks_; }

  EngineSetup setup_;
  SchedulerConfig config_;
  bool has_connector_ = false;
  std::uint32_t num_sinks_ = 0;

  Books books_;
  bool is_lost_ = false;  ///< invalid blocks came without a state before them
  BlockTableInvariants block_tables_;
  EventMirror mirror_;

  // The state after the command before, where it was observed; tables stand in the books.
  bool numbers_were_seen_ = false;
  BlockCounts counts_;
  bool state_was_seen_ = false;
  std::vector<BlockId> queue_;
  KeyList keys_;

  // Of the command at hand.
  std::vector<RequestNumber> failed_;  ///< loads, in the order in which they were found
  std::vector<BlockId> evicted_;
  std::vector<Attempt> attempts_;
  std::vector<Slots> slots_;  ///< in the order in which they were allocated
  std::vector<Hit> hits_;
  std::uint32_t budget_ = 0;
  std::size_t num_scheduled_ = 0;  ///< entries of `scheduled` that were looked at
  std::size_t num_new_ = 0;
  std::size_t num_cached_ = 0;
  std::size_t num_outputs_ = 0;
  bool may_admit_ = false;

  // Scratch.
  std::vector<RequestNumber> numbers_;
  std::vector<RequestNumber> waiting_;
  std::vector<RequestNumber> skipped_waiting_;
  std::vector<RequestNumber> queue_order_;
  std::vector<TableOwner> owners_;       ///< by table
  std::vector<std::uint32_t> table_of_;  ///< by request
  std::vector<std::uint8_t> place_of_;   ///< by request
  std::vector<std::uint8_t> is_listed_;  ///< by block
  std::vector<BlockId> gained_;
  std::vector<TokenId> sampled_;
};

}  // namespace kvfence::engine::scheduler
