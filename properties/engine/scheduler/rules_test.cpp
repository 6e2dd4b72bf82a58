// Goal: each invariant of a scheduler sees the scheduler that breaks it, and none cries
// out over one that keeps them. Method: observations written by hand, one thing wrong in each.

#include "properties/engine/scheduler/rules.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/rules_test_support.h"
#include "properties/core/typed_test_support.h"

namespace kvfence::engine::scheduler {
namespace {

using Change = std::function<void(Observation&)>;

AddRequest added(std::string id, std::vector<TokenId> tokens, std::uint32_t max_tokens = 4) {
  AddRequest command;
  command.id = std::move(id);
  command.tokens = std::move(tokens);
  command.max_tokens = max_tokens;
  return command;
}

Update reported(std::vector<std::string> finished_recving,
                std::vector<BlockId> invalid_blocks = {}) {
  Update command;
  command.finished_recving = std::move(finished_recving);
  command.invalid_blocks = std::move(invalid_blocks);
  return command;
}

ScheduledCached cached(std::string request, std::uint32_t num_computed_tokens,
                       std::uint32_t num_output_tokens) {
  ScheduledCached entry;
  entry.request = std::move(request);
  entry.num_computed_tokens = num_computed_tokens;
  entry.num_output_tokens = num_output_tokens;
  return entry;
}

// Calls of the connector.

ConnectorCallRecord call(std::string method, std::string request = {}, std::uint32_t num_tokens = 0,
                         BlockLists blocks = {}) {
  ConnectorCallRecord record;
  record.method = std::move(method);
  record.request = std::move(request);
  record.num_tokens = num_tokens;
  record.blocks = std::move(blocks);
  return record;
}
ConnectorCallRecord lookup_of_a(std::string answer) {
  ConnectorCallRecord record = call("get_num_new_matched_tokens", "A");
  record.answer = std::move(answer);
  return record;
}
ConnectorCallRecord end_of_a(BlockLists blocks) {
  ConnectorCallRecord record = call("request_finished", "A", 0, std::move(blocks));
  record.answer = "free";
  return record;
}

/// What a scheduler of block size 2 shows, as a hand writes it down: budget 8, two seats, seven
/// blocks, rules of v0.19.
class Scene {
 public:
  explicit Scene(const Config& config = plain())
      : config_(setup_of<EngineTarget>(config).scheduler()),
        world_(fresh_world<EngineTarget>(config)),
        invariants_(setup_of<EngineTarget>(config)),
        has_connector_(config.has_connector()) {
    for (BlockId block = 1; block < config.num_gpu_blocks; ++block) queue.push_back(block);
    keys.resize(config.num_gpu_blocks);
  }

  static Config plain() {
    Config config;
    config.num_gpu_blocks = 8;
    config.hash_block_size = 2;
    config.groups = {KVCacheSpec{.block_size = 2}};
    config.max_model_len = 16;
    config.max_num_batched_tokens = 8;
    config.max_num_seqs = 2;
    return config;
  }
  static Config with_connector() {
    Config config = plain();
    config.connectors = {ScriptedRecord()};
    config.kv_load_failure_policy = "recompute";
    return config;
  }

  // What the next observation shows: keys as symbols, empty for none.
  std::vector<BlockId> queue;
  std::vector<std::string> keys;
  std::vector<RequestBlocks> tables;
  std::vector<std::string> running;
  std::vector<std::string> waiting;
  std::vector<std::string> skipped_waiting;
  std::vector<RequestState> requests;
  PauseState pause_state = PauseState::kUnpaused;
  bool has_finished = false;
  std::vector<ConnectorCallRecord> calls;  ///< of the next command
  std::vector<std::uint32_t> stats = std::vector<std::uint32_t>(7);
  std::vector<std::uint32_t> connector_stats = std::vector<std::uint32_t>(7);
  std::vector<std::string> stored;  ///< hashes of blocks that became findable since the last update

  std::string bytes(std::string_view symbol) const {
    return symbol.empty() ? std::string() : world_.requests().resolve(symbol).value();
  }

  RequestState& request(std::string_view id) {
    return *std::find_if(requests.begin(), requests.end(),
                         [&](const RequestState& state) { return state.id == id; });
  }
  BlocksByGroup& table(std::string_view id) {
    return std::find_if(tables.begin(), tables.end(),
                        [&](const RequestBlocks& one) { return one.request == id; })
        ->blocks;
  }
  /// The head of the queue goes.
  void take(std::ptrdiff_t num_blocks) { queue.erase(queue.begin(), queue.begin() + num_blocks); }
  /// Blocks from `block` on carry A's first hashes.
  void cache(BlockId block, int num_blocks) {
    for (int index = 0; index < num_blocks; ++index) {
      keys[block + static_cast<BlockId>(index)] = "A:" + std::to_string(index) + "/0";
      stored.push_back("A:" + std::to_string(index));
    }
  }
  static void drop(std::vector<std::string>& place, const std::string& id) {
    place.erase(std::find(place.begin(), place.end(), id));
  }
  void drop_table(const std::string& id) {
    const BlocksByGroup blocks = table(id);
    queue.insert(queue.end(), blocks[0].rbegin(), blocks[0].rend());
    std::erase_if(tables, [&](const RequestBlocks& one) { return one.request == id; });
  }
  void drop_request(const std::string& id) {
    std::erase_if(requests, [&](const RequestState& state) { return state.id == id; });
  }

  /// The observation of the lists above, with the numbers that follow from them.
  Observation show(ErrorCode error = ErrorCode::kNone) const {
    Observation shown;
    shown.error = error;
    shown.free_queue.emplace() = queue;
    std::vector<std::uint32_t>& refs = shown.ref_cnts.emplace();
    refs.assign(keys.size(), 0);
    for (const RequestBlocks& one : tables) {
      for (const std::vector<BlockId>& blocks : one.blocks) {
        for (BlockId block : blocks) refs[block] += block == kNullBlockId ? 0 : 1;
      }
    }
    shown.keys.emplace();
    for (const std::string& key : keys) shown.keys.emplace().push_back(bytes(key));
    shown.tables.emplace() = tables;
    shown.running.emplace() = running;
    shown.waiting.emplace() = waiting;
    shown.skipped_waiting.emplace() = skipped_waiting;
    shown.requests.emplace() = requests;
    const auto size = [](const auto& list) { return static_cast<std::uint32_t>(list.size()); };
    shown.num_running = size(running);
    shown.num_waiting = size(waiting);
    shown.num_skipped_waiting = size(skipped_waiting);
    if (pause_state != PauseState::kPausedAll) shown.num_unfinished = shown.num_running;
    if (pause_state == PauseState::kUnpaused) {
      shown.num_unfinished += shown.num_waiting + shown.num_skipped_waiting;
    }
    shown.has_finished = has_finished;
    for (BlockId block : queue) {
      ++(keys[block].empty() ? shown.num_empty_blocks : shown.num_cached_blocks);
    }
    shown.num_referenced_blocks = size(keys) - size(queue);
    if (!calls.empty()) shown.connector_calls.emplace() = calls;
    return shown;
  }

  /// The answer of a step that looks like the lists above.
  Observation show_step(std::vector<ScheduledRequest> scheduled = {},
                        std::vector<ScheduledNew> new_reqs = {},
                        std::vector<ScheduledCached> cached_reqs = {},
                        std::vector<BlockId> new_block_ids = {}) {
    if (has_connector_) {
      std::uint32_t total = 0;
      for (const ScheduledRequest& entry : scheduled) total += entry.num_tokens;
      calls.push_back(call("build_connector_meta", "", total));
    }
    Observation shown = show();
    std::uint32_t num_common = 0;
    if (!running.empty()) {
      const std::vector<BlockId>& blocks = table(running.front())[0];
      while (num_common < blocks.size() && (*shown.ref_cnts)[blocks[num_common]] == tables.size()) {
        ++num_common;
      }
    }
    shown.common_prefix.emplace() = {num_common};
    shown.scheduled.emplace() = std::move(scheduled);
    shown.new_reqs.emplace() = std::move(new_reqs);
    shown.cached_reqs.emplace() = std::move(cached_reqs);
    shown.new_block_ids.emplace() = std::move(new_block_ids);
    shown.preempted.emplace().clear();
    shown.finished.emplace().clear();
    return shown;
  }

  Observation show_update(std::vector<RequestOutput> outputs) const {
    Observation shown = show();
    shown.outputs.emplace() = std::move(outputs);
    shown.events.emplace().clear();
    for (const std::string& hash : stored) {
      BlockStored event;
      event.block_hashes = {bytes(hash)};
      shown.events.emplace().push_back(event);
    }
    shown.stats.emplace() = stats;
    shown.connector_stats.emplace() = connector_stats;
    shown.spec_stats.emplace() = {0, 0, 0};
    shown.spec_stats.emplace().resize(3 + config_.num_speculative_tokens);
    return shown;
  }

  /// The invariant that a scheduler breaks which answers so; empty for none. The scene stays.
  std::string broken(const Command& command, const Observation& shown) const {
    World world = world_;
    world.apply(command);
    Invariants invariants = invariants_;
    const auto found = invariants.check(command, shown, world, 7);
    if (!found) return "";
    EXPECT_EQ(found->step, 7u);
    EXPECT_FALSE(found->field.empty());
    EXPECT_NE(found->expected, found->actual) << found->oracle << " " << found->field;
    return found->oracle;
  }

  /// The same for an answer that is right but for one change.
  std::string broken(const Command& command, Observation shown, const Change& change) const {
    EXPECT_EQ(broken(command, shown), "");
    change(shown);
    return broken(command, shown);
  }

  /// Goes on with an answer that is right.
  void pass(const Command& command, const Observation& shown) {
    world_.apply(command);
    const auto found = invariants_.check(command, shown, world_, 0);
    if (found) {
      ADD_FAILURE() << found->oracle << ": " << found->message << "\n  " << found->field
                    << ": expected " << found->expected << ", actual " << found->actual;
    }
    calls.clear();
    if (std::holds_alternative<Schedule>(command)) has_finished = false;
    if (!std::holds_alternative<Update>(command)) return;
    stored.clear();
    stats.assign(7, 0);
    connector_stats.assign(7, 0);
  }

  Observation show_added(const AddRequest& command) {
    world_.apply(command);
    (command.grammar ? skipped_waiting : waiting).push_back(command.id);
    RequestState& state = requests.emplace_back();
    state.id = command.id;
    state.num_tokens = static_cast<std::uint32_t>(command.tokens.size());
    if (command.grammar) state.status = RequestStatus::kWaitingForGrammar;
    return show();
  }
  void add(const AddRequest& command) {
    // The names of a world are its own: the right answer is shown after it took the command in.
    const World before = world_;
    const Observation shown = show_added(command);
    world_ = before;
    pass(command, shown);
  }
  void add_a() { add(added("A", {1, 2, 3, 4, 5})); }
  void add_b() { add(added("B", {6, 7})); }
  /// A's prompt, but for the last token.
  void add_c() { add(added("C", {1, 2, 3, 4, 9})); }

  /// A comes in: 5 tokens in blocks 1, 2, 3; the first two are cached.
  Observation show_a_in() {
    take(3);
    cache(1, 2);
    tables.push_back({"A", {{1, 2, 3}}});
    drop(waiting, "A");
    running.push_back("A");
    request("A").status = RequestStatus::kRunning;
    request("A").num_computed_tokens = 5;
    stats = {0, 1, 5, 0, 0, 0, 0};
    return show_step({{"A", 5, true, {}}}, {{"A", 0, {{1, 2, 3}}}}, {}, {1, 2, 3});
  }
  void a_in() {
    add_a();
    const Observation shown = show_a_in();
    pass(Schedule{}, shown);
  }
  /// A's first output comes back.
  Observation show_a_out() {
    request("A").num_tokens = 6;
    return show_update({{"A", {1}, RequestStatus::kRunning, std::nullopt}});
  }
  void a_out() {
    a_in();
    const Observation shown = show_a_out();
    pass(Update{}, shown);
  }
  /// A's sixth token is planned, and fits into block 3.
  Observation show_a_decodes() {
    request("A").num_computed_tokens = 6;
    return show_step({{"A", 1, true, {}}}, {}, {cached("A", 5, 1)}, {});
  }
  /// A is aborted: its blocks queue up, the last one first.
  Observation show_a_aborted() {
    drop_table("A");
    drop(running, "A");
    drop_request("A");
    has_finished = true;
    return show();
  }

  /// With a connector: A begins to load four tokens into blocks 1 and 2.
  Observation show_a_loading() {
    take(2);
    tables.push_back({"A", {{1, 2}}});
    drop(waiting, "A");
    skipped_waiting.push_back("A");
    request("A").status = RequestStatus::kWaitingForRemoteKVs;
    request("A").num_computed_tokens = 4;
    calls = {lookup_of_a("4 async"), call("update_state_after_alloc", "A", 4, {{1, 2}})};
    stats = {0, 1, 5, 0, 0, 0, 0};
    connector_stats = {0, 1, 5, 4, 0, 0, 0};
    return show_step({}, {}, {}, {1, 2});
  }
  void a_loading() {
    add_a();
    const Observation shown = show_a_loading();
    pass(Schedule{}, shown);
  }
  /// The load is over; what failed of it, if anything.
  void a_loaded(std::vector<BlockId> invalid_blocks = {}) {
    a_loading();
    if (!invalid_blocks.empty()) request("A").num_computed_tokens = 2 * (invalid_blocks[0] - 1);
    calls = {call("update_connector_output")};
    pass(reported({"A"}, std::move(invalid_blocks)), show_update({}));
  }
  /// A comes in behind its load, of which so many blocks are good.
  Observation show_a_promoted(BlockId num_good) {
    take(1);
    cache(1, static_cast<int>(num_good));
    table("A") = {{1, 2, 3}};
    drop(skipped_waiting, "A");
    running.push_back("A");
    request("A").status = RequestStatus::kRunning;
    request("A").num_computed_tokens = 5;
    calls = {call("update_state_after_alloc", "A", 0, {{1, 2, 3}})};
    return show_step({{"A", 5 - 2 * num_good, true, {}}}, {{"A", 2 * num_good, {{1, 2, 3}}}}, {},
                     {3});
  }

 private:
  SchedulerConfig config_;
  World world_;
  Invariants invariants_;
  bool has_connector_ = false;
};

// ---- Answers. ----

TEST(SchedulerInvariants, AnswersFitTheCommand) {
  constexpr std::string_view kRule = "answers_fit_the_command";
  Scene scene;
  scene.a_in();
  EXPECT_EQ(scene.broken(Schedule{}, scene.show(ErrorCode::kStepsInFlight)), "");
  EXPECT_EQ(scene.broken(Schedule{}, scene.show_step()), kRule) << "one step may be in flight";
  EXPECT_EQ(scene.broken(added("D", {}), scene.show()), kRule) << "no token";
  EXPECT_EQ(scene.broken(added("A", {1}), scene.show()), kRule);
  Update two_tokens;
  two_tokens.samples = {{"A", {1, 2}}};
  EXPECT_EQ(scene.broken(two_tokens, scene.show_update({})), kRule);
  EXPECT_EQ(scene.broken(reported({"A"}), scene.show_update({})), kRule) << "no connector";
  EXPECT_EQ(scene.broken(FinishRequests{{"nobody"}}, scene.show()), kRule);
  EXPECT_EQ(scene.broken(FinishRequests{{}, RequestStatus::kRunning}, scene.show()), kRule);
  EXPECT_EQ(scene.broken(UpdateDraftTokenIds{"A", {1}}, scene.show()), kRule) << "no drafts here";
  ScriptConnector script;
  script.request = "A";
  EXPECT_EQ(scene.broken(script, scene.show()), kRule);
  EXPECT_EQ(scene.broken(Update{}, scene.show()), kRule) << "no outputs";
  EXPECT_EQ(scene.broken(SetPauseState{}, scene.show_update({})), kRule) << "outputs";
}

TEST(SchedulerInvariants, RefusesWhatOtherAssembliesHave) {
  constexpr std::string_view kRule = "answers_fit_the_command";
  Scene scene;
  scene.a_in();
  AddRequest at_consumer = added("D", {1});
  at_consumer.engine = EngineRole::kConsumer;
  AddRequest remote = added("D", {1});
  remote.do_remote_decode = true;
  HandOver handed_over;
  handed_over.request = "A";
  handed_over.id = "D";
  Schedule schedule;
  schedule.engine = EngineRole::kConsumer;
  SetPauseState pause{PauseState::kPausedAll};
  pause.engine = EngineRole::kConsumer;
  for (const Command& command :
       std::vector<Command>{at_consumer, remote, handed_over, schedule, pause, Execute{}, Drain{},
                            simple::AdvanceCopy{}, nixl::LoseNotice{}, files::RemoveFile{}}) {
    EXPECT_EQ(scene.broken(command, scene.show(ErrorCode::kNotInConfig)), "");
    EXPECT_EQ(scene.broken(command, scene.show()), kRule);
  }
  // What was refused leaves the books as they are, but for names.
  scene.pass(handed_over, scene.show(ErrorCode::kNotInConfig));
  scene.pass(pause, scene.show(ErrorCode::kNotInConfig));
  EXPECT_EQ(scene.broken(added("D", {1}), scene.show(ErrorCode::kAlreadyDeclared)), "");
  EXPECT_EQ(scene.broken(FinishRequests{{"D"}}, scene.show()), "");
}

TEST(SchedulerInvariants, ReportsFitTheLoads) {
  constexpr std::string_view kRule = "answers_fit_the_command";
  Scene scene(Scene::with_connector());
  scene.a_loading();
  EXPECT_EQ(scene.broken(reported({"A", "A"}), scene.show_update({})), kRule);
  EXPECT_EQ(scene.broken(reported({"A", "A"}), scene.show(ErrorCode::kListedTwice)), "");
  EXPECT_EQ(scene.broken(reported({}, {0}), scene.show(ErrorCode::kUnknownBlock)), "");
  Update sent;
  sent.finished_sending = {"A"};
  EXPECT_EQ(scene.broken(sent, scene.show(ErrorCode::kNotFinished)), "");
  EXPECT_EQ(scene.broken(reported({"A"}), scene.show(ErrorCode::kNotLoading)), kRule);
}

TEST(SchedulerInvariants, NothingChangesUnasked) {
  Scene scene;
  scene.a_in();
  const auto swap_queue = [](Observation& shown) {
    std::vector<BlockId>& queue = shown.free_queue.emplace();
    std::swap(queue[0], queue[1]);
  };
  EXPECT_EQ(scene.broken(SetPauseState{}, scene.show(), swap_queue), "nothing_changes_unasked");
  EXPECT_EQ(scene.broken(Schedule{}, scene.show(ErrorCode::kStepsInFlight), swap_queue),
            "nothing_changes_unasked");
  Scene aborting = scene;
  const Observation right = aborting.show_a_aborted();
  EXPECT_EQ(scene.broken(FinishAllRequests{}, right,
                         [](Observation& shown) {
                           shown.keys.emplace()[1].clear();
                           --shown.num_cached_blocks;
                           ++shown.num_empty_blocks;
                         }),
            "nothing_changes_unasked");
}

TEST(SchedulerInvariants, NumbersAddUp) {
  Scene scene;
  scene.add_a();
  Scene after = scene;
  const Observation right = after.show_a_in();
  for (const Change& change :
       std::vector<Change>{[](Observation& shown) { ++shown.num_running; },
                           [](Observation& shown) { ++shown.num_waiting; },
                           [](Observation& shown) { ++shown.num_skipped_waiting; },
                           [](Observation& shown) { ++shown.num_unfinished; },
                           [](Observation& shown) { shown.has_finished = true; },
                           [](Observation& shown) { --shown.num_empty_blocks; },
                           [](Observation& shown) {
                             --shown.num_empty_blocks;
                             ++shown.num_cached_blocks;
                           }}) {
    EXPECT_EQ(scene.broken(Schedule{}, right, change), "numbers_add_up");
  }
  Scene paused = scene;
  paused.pause_state = PauseState::kPausedNew;
  EXPECT_EQ(scene.broken(SetPauseState{PauseState::kPausedNew}, paused.show()), "");
  EXPECT_EQ(scene.broken(SetPauseState{PauseState::kPausedNew}, scene.show()), "numbers_add_up");
}

// ---- Blocks. ----

TEST(SchedulerInvariants, BlocksAndTablesAgree) {
  Scene scene;
  scene.add_a();
  Scene after = scene;
  const Observation right = after.show_a_in();
  EXPECT_EQ(
      scene.broken(Schedule{}, right, [](Observation& shown) { ++shown.ref_cnts.emplace()[0]; }),
      "null_and_sinks_stay_out");
  EXPECT_EQ(
      scene.broken(Schedule{}, right, [](Observation& shown) { shown.ref_cnts.emplace()[2] = 2; }),
      "ref_cnt_counts_places");
  EXPECT_EQ(scene.broken(Schedule{}, right,
                         [](Observation& shown) { shown.free_queue.emplace().back() = 3; }),
            "queue_holds_the_unreferenced");
  EXPECT_EQ(scene.broken(Schedule{}, right,
                         [](Observation& shown) {
                           KeyList& keys = shown.keys.emplace();
                           std::swap(keys[1], keys[2]);
                         }),
            "keys_fit_their_places");
  Scene doubled = scene;
  doubled.show_a_in();
  doubled.table("A") = {{1, 2, 2}};
  doubled.keys[2].clear();
  doubled.queue = {3, 4, 5, 6, 7};
  EXPECT_EQ(scene.broken(Schedule{}, doubled.show_step({{"A", 5, true, {}}},
                                                       {{"A", 0, {{1, 2, 2}}}}, {}, {1, 2, 2})),
            "a_block_has_one_place");
}

TEST(SchedulerInvariants, EventsMirrorTheKeys) {
  Scene scene;
  scene.a_in();
  Scene after = scene;
  const Observation right = after.show_a_out();
  EXPECT_EQ(
      scene.broken(Update{}, right, [](Observation& shown) { shown.events.emplace().pop_back(); }),
      "events_mirror_the_keys");
  EXPECT_EQ(scene.broken(Update{}, right,
                         [](Observation& shown) {
                           shown.events.emplace().emplace_back(AllBlocksCleared{});
                         }),
            "events_mirror_the_keys");
}

TEST(SchedulerInvariants, TheConnectorsEventsStandBehindThePools) {
  Scene scene(Scene::with_connector());
  scene.add_a();
  scene.pass(Schedule{}, [&] {
    scene.calls = {lookup_of_a("again")};
    scene.stats = {0, 1, 5, 0, 0, 0, 0};
    Scene::drop(scene.waiting, "A");
    scene.skipped_waiting = {"A"};
    return scene.show_step();
  }());
  scene.calls = {call("reset_cache")};
  Observation cleared = scene.show();
  cleared.success.emplace() = true;
  scene.pass(ResetPrefixCache{.reset_connector = true}, cleared);
  scene.stats[0] = 1;
  scene.connector_stats[0] = 1;
  Observation right = scene.show_update({});
  right.events.emplace().emplace_back(AllBlocksCleared{});
  EXPECT_EQ(scene.broken(Update{}, right, [](Observation& shown) { shown.events.emplace() = {}; }),
            "events_mirror_the_keys");
}

// ---- Requests and places. ----

TEST(SchedulerInvariants, ARequestHasOnePlace) {
  Scene grammar;
  AddRequest waits_for_grammar = added("G", {1});
  waits_for_grammar.grammar = true;
  Scene behind = grammar;
  const Observation in_skipped = behind.show_added(waits_for_grammar);
  EXPECT_EQ(grammar.broken(waits_for_grammar, in_skipped,
                           [](Observation& shown) {
                             shown.waiting.emplace() = {"G"};
                             shown.skipped_waiting.emplace().clear();
                             std::swap(shown.num_waiting, shown.num_skipped_waiting);
                           }),
            "a_request_has_one_place");
  Scene two;
  two.add_a();
  two.add_b();
  EXPECT_EQ(two.broken(SetPauseState{}, two.show(),
                       [](Observation& shown) {
                         shown.waiting.emplace() = {"A", "A"};
                       }),
            "a_request_has_one_place");
}

TEST(SchedulerInvariants, PlacesKeepTheirOrder) {
  constexpr std::string_view kRule = "places_keep_their_order";
  const auto swap_waiting = [](Observation& shown) {
    std::vector<std::string>& waiting = shown.waiting.emplace();
    std::swap(waiting[0], waiting[1]);
  };
  Scene scene;
  scene.add_a();
  scene.add_b();
  scene.add_c();
  EXPECT_EQ(scene.broken(SetPauseState{}, scene.show(), swap_waiting), kRule);
  Scene after = scene;
  after.show_a_in();
  // A alone came in: eight tokens less five leave room for B, but two seats are enough for both.
  const Observation shown = [&] {
    after.take(1);
    after.tables.push_back({"B", {{4}}});
    after.keys[4] = "B:0/0";
    Scene::drop(after.waiting, "B");
    after.running.push_back("B");
    after.request("B").status = RequestStatus::kRunning;
    after.request("B").num_computed_tokens = 2;
    return after.show_step({{"A", 5, true, {}}, {"B", 2, true, {}}},
                           {{"A", 0, {{1, 2, 3}}}, {"B", 0, {{4}}}}, {}, {1, 2, 3, 4});
  }();
  EXPECT_EQ(scene.broken(Schedule{}, shown), "");
  EXPECT_EQ(scene.broken(Schedule{}, shown,
                         [](Observation& moved) {
                           moved.waiting.emplace().clear();
                           moved.skipped_waiting.emplace() = {"C"};
                           std::swap(moved.num_waiting, moved.num_skipped_waiting);
                         }),
            kRule)
      << "C was not looked at";
  EXPECT_EQ(scene.broken(Schedule{}, shown,
                         [](Observation& swapped) {
                           swapped.running.emplace() = {"B", "A"};
                         }),
            kRule);

  Config config = Scene::plain();
  config.policy = "priority";
  Scene priority(config);
  priority.add(added("A", {1}));
  AddRequest second = added("B", {1});
  second.arrival_time = 1;
  priority.add(second);
  EXPECT_EQ(priority.broken(SetPauseState{}, priority.show(), swap_waiting), kRule);
}

TEST(SchedulerInvariants, RequestsStandAsTold) {
  Scene scene;
  scene.a_in();
  Scene after = scene;
  const Observation right = after.show_a_out();
  for (const Change& change : std::vector<Change>{
           [](Observation& shown) { shown.requests.emplace()[0].num_tokens = 7; },
           [](Observation& shown) { shown.requests.emplace()[0].num_computed_tokens = 6; },
           [](Observation& shown) { shown.requests.emplace()[0].num_preemptions = 1; },
           [](Observation& shown) { shown.requests.emplace()[0].spec_tokens = {1}; },
           [](Observation& shown) {
             shown.requests.emplace()[0].status = RequestStatus::kPreempted;
           },
           [](Observation& shown) { shown.requests.emplace().clear(); }}) {
    EXPECT_EQ(scene.broken(Update{}, right, change), "requests_stand_as_told");
  }
}

TEST(SchedulerInvariants, PlaceholdersAreWhatIsPlanned) {
  Config config = Scene::plain();
  config.async_scheduling = true;
  Scene scene(config);
  scene.add_a();
  Scene after = scene;
  after.show_a_in();
  after.request("A").num_output_placeholders = 1;
  const Observation right =
      after.show_step({{"A", 5, true, {}}}, {{"A", 0, {{1, 2, 3}}}}, {}, {1, 2, 3});
  EXPECT_EQ(scene.broken(Schedule{}, right,
                         [](Observation& shown) {
                           shown.requests.emplace()[0].num_output_placeholders = 2;
                         }),
            "placeholders_are_what_is_planned");
  scene.pass(Schedule{}, right);
  // What was planned came back.
  after.stats = {0, 1, 5, 0, 0, 0, 0};
  EXPECT_EQ(scene.broken(Update{}, after.show_a_out()), "placeholders_are_what_is_planned");
  after.request("A").num_output_placeholders = 0;
  EXPECT_EQ(scene.broken(Update{}, after.show_a_out()), "");
}

// ---- A step. ----

TEST(SchedulerInvariants, StepGivesWhatIsLacking) {
  constexpr std::string_view kRule = "step_gives_what_is_lacking";
  Scene scene;
  scene.add_a();
  Scene admitted = scene;
  const Observation admission = admitted.show_a_in();
  EXPECT_EQ(scene.broken(Schedule{}, admission,
                         [](Observation& shown) { shown.scheduled.emplace()[0].num_tokens = 4; }),
            kRule);
  EXPECT_EQ(scene.broken(Schedule{}, admission,
                         [](Observation& shown) { shown.scheduled.emplace()[0].samples = false; }),
            kRule);

  Scene decoding;
  decoding.a_out();
  Scene after = decoding;
  const Observation right = after.show_a_decodes();
  EXPECT_EQ(decoding.broken(Schedule{}, right,
                            [](Observation& shown) {
                              shown.scheduled.emplace().clear();
                              shown.cached_reqs.emplace().clear();
                            }),
            kRule)
      << "passed over";
  EXPECT_EQ(
      decoding.broken(Schedule{}, right,
                      [](Observation& shown) { shown.scheduled.emplace()[0].num_tokens = 2; }),
      kRule);
  EXPECT_EQ(
      decoding.broken(Schedule{}, right,
                      [](Observation& shown) { shown.scheduled.emplace()[0].spec_tokens = {1}; }),
      kRule)
      << "no drafts";
}

TEST(SchedulerInvariants, NobodyIsAdmittedOutOfTurn) {
  constexpr std::string_view kRule = "nobody_is_admitted_out_of_turn";
  Scene scene;
  scene.add_a();
  scene.pass(SetPauseState{PauseState::kPausedNew}, [&] {
    scene.pause_state = PauseState::kPausedNew;
    return scene.show();
  }());
  Scene after = scene;
  EXPECT_EQ(scene.broken(Schedule{}, after.show_a_in()), kRule) << "paused";

  Scene second;
  second.add(added("D", {8, 9}));
  second.add_a();
  after = second;
  EXPECT_EQ(second.broken(Schedule{}, after.show_a_in()), kRule) << "D stands before";

  Scene grammar;
  AddRequest with_grammar = added("A", {1, 2, 3, 4, 5});
  with_grammar.grammar = true;
  grammar.add(with_grammar);
  after = grammar;
  after.waiting = {"A"};
  after.skipped_waiting.clear();
  const Observation shown = after.show_a_in();
  EXPECT_EQ(grammar.broken(Schedule{}, shown), kRule) << "no grammar yet";
  grammar.pass(GrammarCompiled{"A"}, grammar.show());
  EXPECT_EQ(grammar.broken(Schedule{}, shown), "");

  Config config = Scene::plain();
  config.enable_chunked_prefill = false;
  config.max_num_batched_tokens = 4;
  Scene whole(config);
  whole.add_a();
  after = whole;
  Observation chunk = after.show_a_in();
  chunk.scheduled.emplace()[0] = {"A", 4, false, {}};
  EXPECT_EQ(whole.broken(Schedule{}, chunk), kRule) << "a part of a prompt";
}

TEST(SchedulerInvariants, TablesCoverTheTokens) {
  Scene scene;
  scene.add_a();
  Scene after = scene;
  after.show_a_in();
  after.table("A") = {{1, 2}};
  after.queue = {3, 4, 5, 6, 7};
  const Observation too_short =
      after.show_step({{"A", 5, true, {}}}, {{"A", 0, {{1, 2}}}}, {}, {1, 2});
  EXPECT_EQ(scene.broken(Schedule{}, too_short), "tables_cover_the_tokens");
  after.table("A") = {{1, 2, 3, 4}};
  after.queue = {5, 6, 7};
  const Observation too_long =
      after.show_step({{"A", 5, true, {}}}, {{"A", 0, {{1, 2, 3, 4}}}}, {}, {1, 2, 3, 4});
  EXPECT_EQ(scene.broken(Schedule{}, too_long), "tables_cover_the_tokens");
}

TEST(SchedulerInvariants, StepTellsWhatIsNew) {
  constexpr std::string_view kRule = "step_tells_what_is_new";
  Scene scene;
  scene.add_a();
  Scene admitted = scene;
  const Observation admission = admitted.show_a_in();
  for (const Change& change :
       std::vector<Change>{[](Observation& shown) {
                             shown.new_reqs.emplace()[0].blocks = {{1, 2}};
                           },
                           [](Observation& shown) { shown.new_reqs.emplace().clear(); },
                           [](Observation& shown) { shown.new_block_ids.emplace().pop_back(); },
                           [](Observation& shown) { shown.common_prefix.emplace()[0] = 2; }}) {
    EXPECT_EQ(scene.broken(Schedule{}, admission, change), kRule);
  }
  Scene decoding;
  decoding.a_out();
  Scene after = decoding;
  const Observation right = after.show_a_decodes();
  for (const Change& change : std::vector<Change>{
           [](Observation& shown) { shown.cached_reqs.emplace()[0].num_computed_tokens = 6; },
           [](Observation& shown) { shown.cached_reqs.emplace()[0].num_output_tokens = 0; },
           [](Observation& shown) { shown.cached_reqs.emplace()[0].all_token_ids = true; },
           [](Observation& shown) { shown.cached_reqs.emplace()[0].resumed = true; },
           [](Observation& shown) { shown.cached_reqs.emplace()[0].blocks.emplace() = {{4}}; }}) {
    EXPECT_EQ(decoding.broken(Schedule{}, right, change), kRule);
  }
}

/// A and B run; A's next token needs a block that B has.
Scene two_of_which_one_has_to_go(const Config& config) {
  Scene scene(config);
  scene.add(added("A", {1, 2}));
  scene.add(added("B", {6, 7}));
  scene.take(2);
  scene.tables = {{"A", {{1}}}, {"B", {{2}}}};
  scene.keys[1] = "A:0/0";
  scene.keys[2] = "B:0/0";
  scene.stored = {"A:0", "B:0"};
  scene.waiting.clear();
  scene.running = {"A", "B"};
  for (RequestState& state : scene.requests) {
    state.status = RequestStatus::kRunning;
    state.num_computed_tokens = 2;
  }
  scene.stats = {0, 2, 4, 0, 0, 0, 0};
  scene.pass(Schedule{}, scene.show_step({{"A", 2, true, {}}, {"B", 2, true, {}}},
                                         {{"A", 0, {{1}}}, {"B", 0, {{2}}}}, {}, {1, 2}));
  for (RequestState& state : scene.requests) state.num_tokens = 3;
  scene.pass(Update{}, scene.show_update({{"A", {1}, RequestStatus::kRunning, std::nullopt},
                                          {"B", {1}, RequestStatus::kRunning, std::nullopt}}));
  return scene;
}

/// The survivor goes on with block `gained`, the victim waits.
Observation show_victim(Scene& scene, const std::string& victim, const std::string& survivor,
                        BlockId gained) {
  scene.drop_table(victim);
  std::erase(scene.queue, gained);
  scene.keys[gained].clear();
  scene.table(survivor)[0].push_back(gained);
  scene.running = {survivor};
  scene.waiting = {victim};
  RequestState& lost = scene.request(victim);
  lost.status = RequestStatus::kPreempted;
  lost.num_computed_tokens = 0;
  lost.num_preemptions = 1;
  scene.request(survivor).num_computed_tokens = 3;
  ScheduledCached entry = cached(survivor, 2, 1);
  entry.blocks.emplace() = {{gained}};
  Observation shown = scene.show_step({{survivor, 1, true, {}}}, {}, {entry}, {gained});
  shown.preempted.emplace() = {victim};
  return shown;
}

TEST(SchedulerInvariants, VictimsAreTheLast) {
  Config config = Scene::plain();
  config.num_gpu_blocks = 3;
  const Scene scene = two_of_which_one_has_to_go(config);
  Scene after = scene;
  EXPECT_EQ(scene.broken(Schedule{}, show_victim(after, "B", "A", 2)), "");
  after = scene;
  EXPECT_EQ(scene.broken(Schedule{}, show_victim(after, "A", "B", 1)), "victims_are_the_last");

  // What a victim keeps.
  after = scene;
  Observation shown = show_victim(after, "B", "A", 2);
  shown.requests.emplace()[1].num_computed_tokens = 2;
  EXPECT_EQ(scene.broken(Schedule{}, shown), "requests_stand_as_told");
  // Nobody comes in beside victims.
  after = scene;
  shown = show_victim(after, "B", "A", 2);
  shown.scheduled.emplace().push_back({"B", 3, true, {}});
  EXPECT_EQ(scene.broken(Schedule{}, shown), "nobody_is_admitted_out_of_turn");
}

TEST(SchedulerInvariants, FinishedAreToldOnce) {
  Scene scene;
  scene.a_out();
  Scene after = scene;
  const Observation aborted = after.show_a_aborted();
  scene.pass(FinishRequests{{"A"}}, aborted);
  after.has_finished = false;
  Observation right = after.show_step();
  right.finished.emplace() = {"A"};
  EXPECT_EQ(
      scene.broken(Schedule{}, right, [](Observation& shown) { shown.finished.emplace().clear(); }),
      "finished_are_told_once");
  scene.pass(Schedule{}, right);
  scene.pass(Update{}, after.show_update({}));
  EXPECT_EQ(scene.broken(Schedule{}, right), "finished_are_told_once");
}

/// A is gone and left its first two blocks cached; C has the same prefix.
Scene cached_prefix() {
  Scene scene;
  scene.a_out();
  scene.pass(FinishRequests{{"A"}}, scene.show_a_aborted());
  scene.has_finished = false;
  Observation shown = scene.show_step();
  shown.finished.emplace() = {"A"};
  scene.pass(Schedule{}, shown);
  scene.pass(Update{}, scene.show_update({}));
  scene.add_c();
  return scene;
}

/// C comes in with these blocks, of which the first num_hit were found.
Observation show_c_in(Scene& scene, const std::vector<BlockId>& blocks, std::uint32_t num_hit) {
  for (BlockId block : blocks) std::erase(scene.queue, block);
  scene.tables = {{"C", {blocks}}};
  scene.waiting.clear();
  scene.running = {"C"};
  RequestState& state = scene.request("C");
  state.status = RequestStatus::kRunning;
  state.num_computed_tokens = 5;
  const std::vector<BlockId> taken(blocks.begin() + num_hit, blocks.end());
  return scene.show_step({{"C", 5 - 2 * num_hit, true, {}}}, {{"C", 2 * num_hit, {blocks}}}, {},
                         taken);
}

TEST(SchedulerInvariants, HitIsShortAndCached) {
  constexpr std::string_view kRule = "hit_is_short_and_cached";
  const Scene scene = cached_prefix();
  Scene after = scene;
  const Observation right = show_c_in(after, {1, 2, 4}, 2);
  EXPECT_EQ(scene.broken(Schedule{}, right,
                         [](Observation& shown) {
                           shown.new_reqs.emplace()[0].num_computed_tokens = 5;
                           shown.scheduled.emplace()[0].num_tokens = 0;
                         }),
            kRule);
  EXPECT_EQ(
      scene.broken(Schedule{}, right,
                   [](Observation& shown) { shown.new_reqs.emplace()[0].num_computed_tokens = 3; }),
      kRule);
  // A hit of blocks that nobody cached.
  after = scene;
  EXPECT_EQ(scene.broken(Schedule{}, show_c_in(after, {4, 5, 6}, 2)), kRule);
}

TEST(SchedulerInvariants, CachedPrefixIsFound) {
  const Scene scene = cached_prefix();
  Scene after = scene;
  Observation cold = show_c_in(after, {4, 5, 6}, 0);
  EXPECT_EQ(scene.broken(Schedule{}, cold), "cached_prefix_is_found");
}

TEST(SchedulerInvariants, AResumedRequestFindsItsPrefix) {
  Config config = Scene::plain();
  config.num_gpu_blocks = 5;
  Scene scene = two_of_which_one_has_to_go(config);
  scene.pass(ResetPrefixCache{.reset_running_requests = false}, [&] {
    Observation shown = scene.show();
    shown.success.emplace() = false;
    return shown;
  }());
  // B's block stays cached behind its preemption: A takes block 3.
  Scene after = scene;
  scene.pass(Schedule{}, show_victim(after, "B", "A", 3));
  after.request("A").num_tokens = 4;
  scene.pass(Update{}, after.show_update({{"A", {1}, RequestStatus::kRunning, std::nullopt}}));

  const auto resume = [&](std::uint32_t num_hit) {
    Scene resumed = after;
    const std::vector<BlockId> blocks =
        num_hit > 0 ? std::vector<BlockId>{2, 4} : std::vector<BlockId>{4, 2};
    for (BlockId block : blocks) std::erase(resumed.queue, block);
    if (num_hit == 0) resumed.keys[2].clear();
    resumed.tables.push_back({"B", {blocks}});
    resumed.running = {"A", "B"};
    resumed.waiting.clear();
    resumed.request("A").num_computed_tokens = 4;
    RequestState& state = resumed.request("B");
    state.status = RequestStatus::kRunning;
    state.num_computed_tokens = 3;
    ScheduledCached b = cached("B", 2 * num_hit, 1);
    b.resumed = true;
    b.all_token_ids = true;
    b.blocks.emplace() = {blocks};
    const std::vector<BlockId> taken(blocks.begin() + num_hit, blocks.end());
    return resumed.show_step({{"A", 1, true, {}}, {"B", 3 - 2 * num_hit, true, {}}}, {},
                             {cached("A", 3, 2), b}, taken);
  };
  EXPECT_EQ(scene.broken(Schedule{}, resume(1)), "");
  Observation missed = resume(1);
  missed.cached_reqs.emplace()[1].num_computed_tokens = 0;
  missed.scheduled.emplace()[1].num_tokens = 3;
  missed.new_block_ids.emplace() = {2, 4};
  EXPECT_EQ(scene.broken(Schedule{}, missed), "cached_prefix_is_found");
  // Where the block was given away there is nothing to be found.
  EXPECT_EQ(scene.broken(Schedule{}, resume(0)), "");
}

// ---- Tables and keys. ----

TEST(SchedulerInvariants, TablesChangeAsAsked) {
  constexpr std::string_view kRule = "tables_change_as_asked";
  Scene scene;
  scene.a_out();
  Scene after = scene;
  after.show_a_decodes();
  after.table("A") = {{1, 4, 3}};
  after.queue = {2, 5, 6, 7};
  after.keys[4] = after.keys[2];
  after.keys[2].clear();
  EXPECT_EQ(
      scene.broken(Schedule{}, after.show_step({{"A", 1, true, {}}}, {}, {cached("A", 5, 1)}, {})),
      kRule);

  Scene dropped = scene;
  dropped.drop_table("A");
  EXPECT_EQ(scene.broken(UpdateDraftTokenIds{"A", {}}, dropped.show()), "nothing_changes_unasked");
  Scene kept = scene;
  kept.show_a_aborted();
  kept.tables = {{"A", {{1, 2, 3}}}};
  kept.queue = {4, 5, 6, 7};
  EXPECT_EQ(scene.broken(FinishAllRequests{}, kept.show()), "nothing_is_held_when_all_are_gone");
}

TEST(SchedulerInvariants, LoadingBlocksStay) {
  Scene scene(Scene::with_connector());
  scene.a_loading();
  Scene after = scene;
  after.drop_table("A");
  EXPECT_EQ(scene.broken(Update{}, after.show_update({})), "tables_change_as_asked");

  // An abort leaves them until the load is over.
  Scene aborted = scene;
  aborted.skipped_waiting.clear();
  aborted.request("A").status = RequestStatus::kFinishedAborted;
  aborted.has_finished = true;
  aborted.calls = {end_of_a({{1, 2}})};
  EXPECT_EQ(scene.broken(FinishAllRequests{}, aborted.show()), "");
  Scene freed = aborted;
  freed.drop_table("A");
  EXPECT_EQ(scene.broken(FinishAllRequests{}, freed.show()), "tables_change_as_asked");
  scene.pass(FinishAllRequests{}, aborted.show());
  freed.drop_request("A");
  freed.calls = {call("update_connector_output")};
  EXPECT_EQ(scene.broken(reported({"A"}), freed.show_update({})), "");
}

TEST(SchedulerInvariants, OnlyComputedBlocksAreCached) {
  constexpr std::string_view kRule = "only_computed_blocks_are_cached";
  Scene scene(Scene::with_connector());
  scene.add_a();
  Scene early = scene;
  early.show_a_loading();
  early.calls.pop_back();
  early.cache(1, 1);
  EXPECT_EQ(scene.broken(Schedule{}, early.show_step({}, {}, {}, {1, 2})), kRule)
      << "while it loads";

  Scene loaded(Scene::with_connector());
  loaded.a_loaded();
  Scene after = loaded;
  EXPECT_EQ(loaded.broken(Schedule{}, after.show_a_promoted(2)), "");

  // Block 2 failed: it may be computed again, but what is computed must say so.
  Scene failed(Scene::with_connector());
  failed.a_loaded({2});
  after = failed;
  EXPECT_EQ(failed.broken(Schedule{}, after.show_a_promoted(2)), "step_tells_what_is_new");
  // It is promoted while there is no budget for it, and caches the block that failed.
  Config config = Scene::with_connector();
  config.enable_chunked_prefill = false;
  config.max_num_batched_tokens = 2;
  failed = Scene(config);
  failed.a_loaded({2});
  after = failed;
  after.request("A").status = RequestStatus::kWaiting;
  after.cache(1, 1);
  EXPECT_EQ(failed.broken(Schedule{}, after.show_step()), "");
  after.calls.clear();
  after.cache(1, 2);
  EXPECT_EQ(failed.broken(Schedule{}, after.show_step()), kRule);
}

TEST(SchedulerInvariants, HeldBlocksKeepTheirKeys) {
  Scene scene;
  scene.a_in();
  Scene after = scene;
  after.keys[2].clear();
  after.stored = {"A:0"};
  EXPECT_EQ(scene.broken(Update{}, after.show_a_out()), "held_blocks_keep_their_keys");
}

// ---- What comes back. ----

TEST(SchedulerInvariants, OutputsAreWhatWasSampled) {
  Scene scene;
  scene.a_in();
  Scene after = scene;
  const Observation right = after.show_a_out();
  for (const Change& change : std::vector<Change>{
           [](Observation& shown) { shown.outputs.emplace()[0].tokens = {2}; },
           [](Observation& shown) { shown.outputs.emplace().clear(); },
           [](Observation& shown) {
             shown.outputs.emplace().push_back({"A", {1}, RequestStatus::kRunning, std::nullopt});
           }}) {
    EXPECT_EQ(scene.broken(Update{}, right, change), "outputs_are_what_was_sampled");
  }
}

TEST(SchedulerInvariants, RequestsStopWhereTheyMust) {
  constexpr std::string_view kRule = "requests_stop_where_they_must";
  Scene scene;
  AddRequest command = added("A", {1, 2, 3, 4, 5}, 1);
  command.stop_tokens = {6};
  scene.add(command);
  scene.pass(Schedule{}, scene.show_a_in());
  Scene after = scene;
  after.show_a_aborted();
  const auto ended = [&](TokenId token, RequestStatus status, std::optional<TokenId> reason) {
    Update update;
    update.token = token;
    return scene.broken(update, after.show_update({{"A", {token}, status, reason}}));
  };
  EXPECT_EQ(ended(1, RequestStatus::kFinishedLengthCapped, std::nullopt), "");
  EXPECT_EQ(ended(6, RequestStatus::kFinishedStopped, 6), "");
  EXPECT_EQ(ended(1, RequestStatus::kRunning, std::nullopt), kRule);
  EXPECT_EQ(ended(6, RequestStatus::kFinishedLengthCapped, std::nullopt), kRule);
  EXPECT_EQ(ended(6, RequestStatus::kFinishedStopped, std::nullopt), kRule);
}

TEST(SchedulerInvariants, StatsAddUp) {
  Scene scene;
  scene.a_in();
  Scene after = scene;
  const Observation right = after.show_a_out();
  for (const Change& change :
       std::vector<Change>{[](Observation& shown) { shown.stats.emplace()[1] = 0; },
                           [](Observation& shown) { shown.stats.emplace()[3] = 6; },
                           [](Observation& shown) { shown.stats.emplace()[0] = 1; },
                           [](Observation& shown) { shown.connector_stats.emplace()[1] = 1; },
                           [](Observation& shown) { shown.spec_stats.emplace()[0] = 1; }}) {
    EXPECT_EQ(scene.broken(Update{}, right, change), "stats_add_up");
  }
  Scene loading(Scene::with_connector());
  loading.a_loading();
  EXPECT_EQ(loading.broken(Update{}, loading.show_update({}),
                           [](Observation& shown) { shown.connector_stats.emplace()[3] = 5; }),
            "stats_add_up");
}

TEST(SchedulerInvariants, ResetNeedsAnIdlePool) {
  constexpr std::string_view kRule = "reset_needs_an_idle_pool";
  Scene scene;
  scene.a_out();
  Observation shown = scene.show();
  shown.success.emplace() = true;
  EXPECT_EQ(scene.broken(ResetPrefixCache{}, shown), kRule);
  shown.success.emplace() = false;
  EXPECT_EQ(scene.broken(ResetPrefixCache{}, shown), "");

  scene.pass(FinishAllRequests{}, scene.show_a_aborted());
  shown = scene.show();
  shown.success.emplace() = true;
  EXPECT_EQ(scene.broken(ResetPrefixCache{}, shown), kRule) << "keys are left";
}

// ---- The connector, progress, the end. ----

TEST(SchedulerInvariants, ConnectorIsCalledInOrder) {
  constexpr std::string_view kRule = "connector_is_called_in_order";
  Scene scene(Scene::with_connector());
  scene.add_a();
  Scene after = scene;
  const Observation right = after.show_a_loading();
  using Calls = std::vector<ConnectorCallRecord>;
  for (const std::function<void(Calls&)>& change : std::vector<std::function<void(Calls&)>>{
           [](Calls& calls) { calls.pop_back(); },
           [](Calls& calls) { calls.push_back(calls.back()); },
           [](Calls& calls) { std::swap(calls[0], calls[1]); },
           [](Calls& calls) { calls.insert(calls.begin(), calls[0]); },
           [](Calls& calls) { calls.erase(calls.begin()); },
           [](Calls& calls) { calls[1].num_tokens = 3; },
           [](Calls& calls) { calls[2].num_tokens = 1; }}) {
    EXPECT_EQ(scene.broken(Schedule{}, right,
                           [&](Observation& shown) { change(shown.connector_calls.emplace()); }),
              kRule);
  }

  // A loaded request is not asked about again.
  Scene loaded(Scene::with_connector());
  loaded.a_loaded();
  after = loaded;
  EXPECT_EQ(loaded.broken(Schedule{}, after.show_a_promoted(2),
                          [](Observation& shown) {
                            Calls& calls = shown.connector_calls.emplace();
                            calls.insert(calls.begin(), lookup_of_a("0"));
                          }),
            kRule);

  // A finish is told once, with the blocks.
  Scene aborted = loaded;
  aborted.skipped_waiting.clear();
  aborted.drop_table("A");
  aborted.drop_request("A");
  aborted.has_finished = true;
  aborted.calls = {end_of_a({{1, 2}})};
  const Observation ended = aborted.show();
  EXPECT_EQ(
      loaded.broken(FinishAllRequests{}, ended,
                    [](Observation& shown) { shown.connector_calls.emplace()[0].blocks = {{}}; }),
      kRule);
  EXPECT_EQ(loaded.broken(FinishAllRequests{}, ended,
                          [](Observation& shown) { shown.connector_calls.reset(); }),
            kRule);
}

TEST(SchedulerInvariants, TheConnectorLearnsOfNewRequests) {
  Config config = Scene::with_connector();
  config.profile = "v0.23";
  const Scene scene(config);
  const AddRequest command = added("A", {1, 2, 3, 4, 5});
  Scene after = scene;
  after.calls = {call("on_new_request", "A")};
  EXPECT_EQ(scene.broken(command, after.show_added(command),
                         [](Observation& shown) { shown.connector_calls.reset(); }),
            "connector_is_called_in_order");
}

TEST(SchedulerInvariants, ScheduleMakesProgress) {
  constexpr std::string_view kRule = "schedule_makes_progress";
  Config config = Scene::plain();
  config.num_gpu_blocks = 3;
  Scene scene(config);
  scene.add_a();
  EXPECT_EQ(scene.broken(Schedule{}, scene.show_step()), kRule) << "A would be tried for ever";
  Scene ended = scene;
  ended.waiting.clear();
  ended.drop_request("A");
  ended.has_finished = true;
  Observation never = ended.show_step();
  never.never_fits.emplace() = "A";
  EXPECT_EQ(scene.broken(Schedule{}, never), "");

  // Somebody holds blocks, so it may fit later.
  Scene busy;
  busy.a_out();
  busy.add_b();
  Scene after = busy;
  after.waiting.clear();
  after.drop_request("B");
  after.has_finished = true;
  never = after.show_a_decodes();
  never.never_fits.emplace() = "B";
  EXPECT_EQ(busy.broken(Schedule{}, never), kRule);
}

TEST(SchedulerInvariants, WhoeverIsNextAndFitsStarts) {
  for (const Config& config : {Scene::plain(), Scene::with_connector()}) {
    Scene scene(config);
    scene.add_a();
    scene.add_b();
    Scene after = scene;
    after.show_a_in();
    if (config.has_connector()) {
      after.calls = {lookup_of_a("0"), call("update_state_after_alloc", "A", 0, {{1, 2, 3}})};
      // B might not fit, but nobody asked.
      after.take(4);
      after.table("A") = {{1, 2, 3}};
      after.queue = {4, 5, 6, 7};
    }
    const Observation shown =
        after.show_step({{"A", 5, true, {}}}, {{"A", 0, {{1, 2, 3}}}}, {}, {1, 2, 3});
    EXPECT_EQ(scene.broken(Schedule{}, shown), "schedule_makes_progress");
  }
}

TEST(SchedulerInvariants, AdmissionLeavesRoom) {
  Config config = Scene::plain();
  config.max_num_batched_tokens = 2;
  const auto admit_a_part = [](const Config& settings) {
    Scene scene(settings);
    scene.add_a();
    Scene after = scene;
    after.take(1);
    after.cache(1, 1);
    after.tables = {{"A", {{1}}}};
    after.waiting.clear();
    after.running = {"A"};
    after.request("A").status = RequestStatus::kRunning;
    after.request("A").num_computed_tokens = 2;
    return scene.broken(Schedule{},
                        after.show_step({{"A", 2, false, {}}}, {{"A", 0, {{1}}}}, {}, {1}));
  };
  EXPECT_EQ(admit_a_part(config), "");
  config.num_gpu_blocks = 3;
  EXPECT_EQ(admit_a_part(config), "admission_leaves_room") << "two more are lacking, one is free";
  config.scheduler_reserve_full_isl = false;
  EXPECT_EQ(admit_a_part(config), "");
}

TEST(SchedulerInvariants, LoadsLeaveRoomForPrefills) {
  Config config = Scene::with_connector();
  config.profile = "v0.23";
  config.long_prefill_token_threshold = 1;
  // D begins to load beside A, of which two blocks are lacking.
  const auto load_d = [](const Config& settings) {
    Scene scene(settings);
    for (const AddRequest& command : {added("A", {1, 2, 3, 4, 5}), added("D", {8, 9, 8})}) {
      scene.calls = {call("on_new_request", command.id)};
      scene.add(command);
    }
    Scene after = scene;
    after.take(2);
    after.tables = {{"A", {{1}}}, {"D", {{2}}}};
    after.waiting.clear();
    after.running = {"A"};
    after.skipped_waiting = {"D"};
    after.request("A").status = RequestStatus::kRunning;
    after.request("A").num_computed_tokens = 1;
    after.request("D").status = RequestStatus::kWaitingForRemoteKVs;
    after.request("D").num_computed_tokens = 2;
    ConnectorCallRecord lookup = call("get_num_new_matched_tokens", "D");
    lookup.answer = "2 async";
    after.calls = {lookup_of_a("0"), call("update_state_after_alloc", "A", 0, {{1}}), lookup,
                   call("update_state_after_alloc", "D", 2, {{2}})};
    return scene.broken(Schedule{},
                        after.show_step({{"A", 1, false, {}}}, {{"A", 0, {{1}}}}, {}, {1, 2}));
  };
  config.num_gpu_blocks = 5;
  EXPECT_EQ(load_d(config), "");
  config.num_gpu_blocks = 4;
  EXPECT_EQ(load_d(config), "admission_leaves_room");
}

TEST(SchedulerInvariants, NothingIsHeldWhenAllAreGone) {
  Scene scene;
  scene.a_out();
  Observation numbers;
  numbers.has_finished = true;
  numbers.num_empty_blocks = 4;
  numbers.num_cached_blocks = 2;
  numbers.num_referenced_blocks = 2;
  EXPECT_EQ(scene.broken(FinishAllRequests{}, numbers), "nothing_is_held_when_all_are_gone");
  numbers.num_empty_blocks = 5;
  numbers.num_referenced_blocks = 1;
  EXPECT_EQ(scene.broken(FinishAllRequests{}, numbers), "");
}

TEST(SchedulerInvariants, AreNumberedInOrderAndNamedOnce) {
  expect_numbered_and_named_once(kInvariants, 'S');
}

}  // namespace
}  // namespace kvfence::engine::scheduler
