// Goal: each rule of contract/scheduler/scheduler.h, by an example whose numbers are worked out by
// hand.

#include "optimized/scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "contract/scripted/scripted_connector.h"

namespace kvfence::optimized {
namespace {

using Names = std::vector<std::string>;
using Tokens = std::vector<TokenId>;
using Numbers = std::vector<std::uint32_t>;
using Status = RequestStatus;

constexpr std::uint32_t kBlockSize = 4;

SchedulerConfig config_of(std::uint32_t num_gpu_blocks = 33, Profile profile = Profile::kV019) {
  SchedulerConfig config;
  config.kv_cache.pool.num_gpu_blocks = num_gpu_blocks;
  config.kv_cache.pool.enable_kv_cache_events = true;
  config.kv_cache.pool.hash.hash_block_size = kBlockSize;
  config.kv_cache.pool.max_block_size = kBlockSize;
  config.kv_cache.pool.profile = profile;
  config.kv_cache.pool.rules = rules_of(profile);
  config.kv_cache.groups = {{.block_size = kBlockSize}};
  config.kv_cache.max_model_len = 64;
  config.kv_cache.max_num_batched_tokens = 32;
  config.max_num_seqs = 4;
  return config;
}

NewRequest request_of(const std::string& id, std::uint32_t num_tokens, TokenId first_token = 0) {
  NewRequest request;
  request.id = id;
  for (std::uint32_t i = 0; i < num_tokens; ++i) request.spec.tokens.push_back(first_token + i);
  return request;
}

/// A scheduler, a worker that samples token 1, and their names for requests.
struct Bench {
  explicit Bench(const SchedulerConfig& config, bool with_connector = false)
      : scheduler(config, with_connector ? KVConnectorHandle(std::make_unique<ScriptedConnector>())
                                         : KVConnectorHandle()) {}

  ScriptedConnector& connector() { return *static_cast<ScriptedConnector*>(scheduler.connector()); }

  ErrorCode try_add(const NewRequest& request) {
    RequestIndex index = 0;
    const ErrorCode code = scheduler.add_request(request, index);
    if (code != ErrorCode::kNone) return code;
    names.resize(std::max<std::size_t>(names.size(), index + 1));
    names[index] = request.id;
    return code;
  }
  void add(const NewRequest& request) { ASSERT_EQ(try_add(request), ErrorCode::kNone); }

  const SchedulerOutput& schedule() {
    steps.emplace_back();
    EXPECT_EQ(scheduler.schedule(steps.back()), ErrorCode::kNone);
    return steps.back();
  }

  ErrorCode try_update(const KVConnectorOutput* connector_output = nullptr,
                       std::vector<Tokens> sampled = {}) {
    ModelRunnerOutput runner;
    runner.kv_connector_output = connector_output;
    const SchedulerOutput& step = steps.front();
    for (std::size_t i = 0; i < step.scheduled.size(); ++i) {
      if (i < sampled.size()) {
        runner.sampled_token_ids.append(sampled[i]);
      } else if (step.scheduled[i].samples) {
        runner.sampled_token_ids.push_back(1);
      }
      runner.sampled_token_ids.end_list();
    }
    const ErrorCode code = scheduler.update_from_output(step, runner, outputs);
    if (code == ErrorCode::kNone) steps.erase(steps.begin());
    return code;
  }
  const EngineCoreOutputs& update(const KVConnectorOutput* connector_output = nullptr,
                                  std::vector<Tokens> sampled = {}) {
    EXPECT_EQ(try_update(connector_output, std::move(sampled)), ErrorCode::kNone);
    return outputs;
  }
  void step() {
    schedule();
    update();
  }

  RequestIndex index(const std::string& id) const { return scheduler.find_request(id).value(); }
  RequestView view(const std::string& id) const { return scheduler.view(index(id)); }
  bool is_there(const std::string& id) const { return scheduler.find_request(id).has_value(); }
  void finish(const Names& ids, Status status = Status::kFinishedAborted) {
    std::vector<RequestIndex> indices;
    for (const std::string& id : ids) indices.push_back(index(id));
    scheduler.finish_requests(indices, status);
  }

  Names named(const std::vector<RequestIndex>& indices) const {
    Names result;
    for (RequestIndex request : indices) result.push_back(names[request]);
    return result;
  }
  Names running() const { return place(&Scheduler::running); }
  Names waiting() const { return place(&Scheduler::waiting); }
  Names skipped() const { return place(&Scheduler::skipped_waiting); }
  Names all() const { return place(&Scheduler::requests); }
  Names place(void (Scheduler::*list)(std::vector<RequestIndex>&) const) const {
    std::vector<RequestIndex> indices;
    (scheduler.*list)(indices);
    return named(indices);
  }

  /// "A:8 B:1*": tokens of each; * where output comes of them.
  std::string scheduled(const SchedulerOutput& output) const {
    std::string text;
    for (const SchedulerOutput::Scheduled& entry : output.scheduled) {
      if (!text.empty()) text += ' ';
      text += names[entry.request] + ':' + std::to_string(entry.num_tokens);
      if (entry.samples) text += '*';
    }
    return text;
  }

  std::uint32_t num_free_blocks() const {
    return scheduler.kv_cache_manager().block_pool().get_num_free_blocks();
  }
  std::vector<BlockId> table(const std::string& id) const {
    BlocksByGroup blocks;
    scheduler.kv_cache_manager().get_block_ids(index(id), blocks);
    return blocks.front();
  }

  Scheduler scheduler;
  Names names;
  std::vector<SchedulerOutput> steps;
  EngineCoreOutputs outputs;
};

KVConnectorOutput received(const Bench& bench, const Names& ids,
                           std::vector<BlockId> invalid_blocks = {}) {
  KVConnectorOutput output;
  for (const std::string& id : ids) output.finished_recving.push_back(bench.index(id));
  output.invalid_block_ids = std::move(invalid_blocks);
  return output;
}

TEST(SchedulerTest, APromptIsComputedThenTokensFollow) {
  Bench bench(config_of());
  bench.add(request_of("A", 6));
  const SchedulerOutput first = bench.schedule();
  EXPECT_EQ(bench.scheduled(first), "A:6*");
  ASSERT_EQ(first.scheduled_new_reqs.size(), 1U);
  EXPECT_EQ(first.block_lists[first.scheduled_new_reqs[0].first_list].size(), 2U);
  EXPECT_EQ(first.step, 1U);
  EXPECT_EQ(first.num_common_prefix_blocks, Numbers{2});
  EXPECT_EQ(first.new_block_ids, (std::vector<BlockId>{1, 2}));
  bench.update();
  EXPECT_EQ(bench.view("A").request.all_token_ids().size(), 7U);
  EXPECT_EQ(bench.view("A").num_computed_tokens, 6U);
  ASSERT_EQ(bench.outputs.outputs.size(), 1U);
  EXPECT_EQ(bench.outputs.new_token_ids[0].size(), 1U);

  const SchedulerOutput second = bench.schedule();
  EXPECT_EQ(bench.scheduled(second), "A:1*");
  ASSERT_EQ(second.scheduled_cached_reqs.size(), 1U);
  const SchedulerOutput::Cached expected{.request = bench.index("A"),
                                         .resumed = false,
                                         .sends_all_token_ids = false,
                                         .num_computed_tokens = 6,
                                         .num_output_tokens = 1,
                                         .first_list = SchedulerOutput::kNoLists};
  EXPECT_EQ(second.scheduled_cached_reqs[0], expected);
  bench.update();
  bench.step();
  const SchedulerOutput fourth = bench.schedule();  // the ninth token needs a block
  ASSERT_EQ(fourth.scheduled_cached_reqs.size(), 1U);
  ASSERT_EQ(fourth.scheduled_cached_reqs[0].first_list, 0U);
  EXPECT_EQ(fourth.block_lists[0].size(), 1U);
}

TEST(SchedulerTest, AddRequestRefuses) {
  Bench bench(config_of());
  bench.add(request_of("A", 1));
  NewRequest request = request_of("A", 1);
  EXPECT_EQ(bench.try_add(request), ErrorCode::kAlreadyDeclared);
  EXPECT_EQ(bench.try_add(request_of("B", 0)), ErrorCode::kNoTokens);
  request = request_of("B", 1);
  request.max_tokens = 0;
  EXPECT_EQ(bench.try_add(request), ErrorCode::kNoTokens);
  request.max_tokens = 2;
  request.min_tokens = 3;
  EXPECT_EQ(bench.try_add(request), ErrorCode::kBadRange);
  EXPECT_EQ(bench.try_add(request_of("B", 64)), ErrorCode::kBeyondModelLength);
  request = request_of("B", 60);
  request.min_tokens = 5;
  EXPECT_EQ(bench.try_add(request), ErrorCode::kBeyondModelLength);
  EXPECT_EQ(bench.all(), Names{"A"});
}

TEST(SchedulerTest, TheBudgetAndTheThresholdCutPrefills) {
  SchedulerConfig config = config_of();
  config.max_num_scheduled_tokens = 10;
  config.long_prefill_token_threshold = 7;
  Bench bench(config);
  bench.add(request_of("A", 9));
  bench.add(request_of("B", 9, 100));
  const SchedulerOutput first = bench.schedule();
  EXPECT_EQ(bench.scheduled(first), "A:7 B:3");
  EXPECT_EQ(first.total_num_scheduled_tokens, 10U);
  bench.update();
  EXPECT_TRUE(bench.outputs.outputs.empty());
  EXPECT_EQ(bench.scheduled(bench.schedule()), "A:2* B:6*");
}

TEST(SchedulerTest, WithoutChunksAPromptWaitsForItsBudget) {
  SchedulerConfig config = config_of();
  config.max_num_scheduled_tokens = 10;
  config.enable_chunked_prefill = false;
  Bench bench(config);
  bench.add(request_of("A", 6));
  bench.add(request_of("B", 6, 100));
  EXPECT_EQ(bench.scheduled(bench.schedule()), "A:6*");
  bench.update();
  EXPECT_EQ(bench.scheduled(bench.schedule()), "A:1* B:6*");
}

TEST(SchedulerTest, NoMoreThanMaxNumSeqsRun) {
  SchedulerConfig config = config_of();
  config.max_num_seqs = 2;
  Bench bench(config);
  for (const char* id : {"A", "B", "C"}) bench.add(request_of(id, 2));
  bench.step();
  EXPECT_EQ(bench.running(), (Names{"A", "B"}));
  bench.finish({"A"});
  EXPECT_EQ(bench.running(), Names{"B"});
  EXPECT_TRUE(bench.scheduler.has_finished_requests());
  const SchedulerOutput output = bench.schedule();
  EXPECT_EQ(bench.named(output.finished), Names{"A"});
  EXPECT_EQ(bench.running(), (Names{"B", "C"}));
  EXPECT_FALSE(bench.scheduler.has_finished_requests());
}

TEST(SchedulerTest, TheLastOfRunningLosesItsBlocks) {
  SchedulerConfig config = config_of(5);  // 4 usable blocks
  config.scheduler_reserve_full_isl = false;
  Bench bench(config);
  for (const char* id : {"A", "B"}) bench.add(request_of(id, 7, id[0] == 'A' ? 0 : 100));
  bench.step();  // 2 blocks each
  bench.step();
  const SchedulerOutput third = bench.schedule();  // A's ninth token
  EXPECT_EQ(bench.scheduled(third), "A:1*");
  EXPECT_EQ(bench.named(third.preempted), Names{"B"});
  EXPECT_EQ(bench.waiting(), Names{"B"});
  EXPECT_EQ(bench.view("B").status, Status::kPreempted);
  EXPECT_EQ(bench.view("B").num_computed_tokens, 0U);
  EXPECT_EQ(bench.view("B").num_preemptions, 1U);
  bench.update();
  bench.finish({"A"});
  const SchedulerOutput fourth = bench.schedule();
  EXPECT_EQ(bench.scheduled(fourth), "B:5*");  // its first block was cached
  ASSERT_EQ(fourth.scheduled_cached_reqs.size(), 1U);
  EXPECT_TRUE(fourth.scheduled_cached_reqs[0].resumed);
  EXPECT_TRUE(fourth.scheduled_cached_reqs[0].sends_all_token_ids);
  EXPECT_EQ(fourth.scheduled_cached_reqs[0].num_output_tokens, 2U);
  EXPECT_EQ(fourth.block_lists[fourth.scheduled_cached_reqs[0].first_list].size(), 3U);
}

SchedulerConfig priority_config(std::uint32_t num_gpu_blocks, bool shifts) {
  SchedulerConfig config = config_of(num_gpu_blocks);
  config.policy = SchedulingPolicy::kPriority;
  config.scheduler_reserve_full_isl = false;
  config.kv_cache.pool.rules.priority_victim_shifts_loop = shifts;
  return config;
}

TEST(SchedulerTest, APriorityVictimGivesItsTokensBack) {
  Bench bench(priority_config(9, true));  // 8 usable blocks: two for each request
  const auto add = [&bench](const std::string& id, std::uint32_t num_tokens, std::uint32_t priority,
                            TokenId first_token) {
    NewRequest request = request_of(id, num_tokens, first_token);
    request.priority = priority;
    bench.add(request);
  };
  add("A", 5, 1, 0);
  add("B", 5, 3, 100);
  bench.step();
  add("C", 8, 1, 200);
  add("D", 5, 2, 300);
  bench.step();
  const SchedulerOutput output = bench.schedule();  // C's ninth token
  EXPECT_EQ(bench.named(output.preempted), Names{"B"});
  EXPECT_EQ(bench.scheduled(output), "A:1* C:1* D:1*");
  ASSERT_EQ(output.scheduled_cached_reqs.size(), 3U);
  EXPECT_EQ(output.spec_token_ids.size(), 3U);
  EXPECT_EQ(output.total_num_scheduled_tokens, 3U);
  EXPECT_EQ(output.block_lists.size(), 1U);
  EXPECT_EQ(output.scheduled_cached_reqs[1].first_list, 0U);
}

TEST(SchedulerTest, AnUnscheduledVictimBeforeHidesTheNext) {
  for (const bool shifts : {false, true}) {
    SCOPED_TRACE(shifts);
    SchedulerConfig config = priority_config(7, shifts);
    config.async_scheduling = true;
    config.max_concurrent_batches = 2;
    Bench bench(config);
    NewRequest victim = request_of("A", 5);
    victim.priority = 9;
    victim.max_tokens = 2;
    bench.add(victim);
    bench.schedule();
    bench.add(request_of("B", 8, 100));
    bench.add(request_of("C", 5, 200));
    EXPECT_EQ(bench.scheduled(bench.schedule()), "A:1* B:8* C:5*");
    bench.update();
    // A is passed over: its second output, the last, is planned. B needs its blocks.
    const SchedulerOutput output = bench.schedule();
    EXPECT_EQ(bench.named(output.preempted), Names{"A"});
    EXPECT_EQ(bench.scheduled(output), shifts ? "B:1*" : "B:1* C:1*");
  }
}

TEST(SchedulerTest, FinishReleasesAndForgets) {
  Bench bench(config_of());
  for (const char* id : {"A", "B", "C"}) bench.add(request_of(id, 6));
  bench.step();
  bench.finish({"C", "A", "C"}, Status::kFinishedStopped);
  EXPECT_EQ(bench.all(), Names{"B"});
  EXPECT_EQ(bench.named(bench.schedule().finished), (Names{"C", "A"}));
  bench.update();
  bench.scheduler.finish_all_requests(Status::kFinishedAborted);
  EXPECT_EQ(bench.num_free_blocks(), 32U);
  EXPECT_EQ(bench.scheduler.get_num_unfinished_requests(), 0U);
}

TEST(SchedulerTest, AnIndexComesBackOnceItsEndIsReported) {
  Bench bench(config_of());
  bench.add(request_of("A", 4));
  bench.schedule();
  bench.finish({"A"});
  bench.add(request_of("B", 4));
  EXPECT_EQ(bench.index("B"), 1U);
  bench.update();
  EXPECT_TRUE(bench.outputs.outputs.empty());
  EXPECT_EQ(bench.schedule().finished, std::vector<RequestIndex>{0});
  bench.add(request_of("C", 4));
  EXPECT_EQ(bench.index("C"), 2U);
  bench.update();
  bench.add(request_of("D", 4));
  EXPECT_EQ(bench.index("D"), 0U);
}

TEST(SchedulerTest, StopsInTheirOrder) {
  Bench bench(config_of());
  NewRequest request = request_of("A", 4);
  request.min_tokens = 2;
  request.eos_token_id = 7;
  request.stop_token_ids = {8, 9};
  request.max_tokens = 4;
  bench.add(request);
  request.id = "B";
  bench.add(request);
  request.id = "C";
  bench.add(request);
  bench.schedule();
  bench.update(nullptr, {{7}, {8}, {1}});  // not before min_tokens
  EXPECT_EQ(bench.running().size(), 3U);
  bench.schedule();
  bench.update(nullptr, {{7}, {9}, {1}});
  ASSERT_EQ(bench.outputs.outputs.size(), 3U);
  EXPECT_EQ(bench.outputs.outputs[0].status, Status::kFinishedStopped);
  EXPECT_EQ(bench.outputs.outputs[0].stop_reason, std::nullopt);
  EXPECT_EQ(bench.outputs.outputs[1].status, Status::kFinishedStopped);
  EXPECT_EQ(bench.outputs.outputs[1].stop_reason, 9U);
  EXPECT_EQ(bench.outputs.outputs[2].status, Status::kRunning);
  bench.step();
  bench.step();
  EXPECT_EQ(bench.outputs.outputs[0].status, Status::kFinishedLengthCapped);
  EXPECT_TRUE(bench.all().empty());
}

TEST(SchedulerTest, TheModelLengthEndsARequest) {
  Bench bench(config_of());
  NewRequest request = request_of("A", 62);
  bench.add(request);
  bench.step();
  bench.step();
  bench.step();
  EXPECT_TRUE(bench.all().empty());
  EXPECT_EQ(bench.outputs.outputs[0].status, Status::kFinishedLengthCapped);
}

TEST(SchedulerTest, DraftsAreSentAndRejectedOnesTakenOff) {
  SchedulerConfig config = config_of();
  config.num_speculative_tokens = 3;
  Bench bench(config);
  NewRequest request = request_of("A", 4);
  bench.add(request);
  bench.step();
  const Tokens drafts = {5, 6, 7};
  ASSERT_EQ(bench.scheduler.update_draft_token_ids(bench.index("A"), drafts), ErrorCode::kNone);
  EXPECT_EQ(bench.view("A").spec_token_ids.size(), 3U);
  const SchedulerOutput output = bench.schedule();
  EXPECT_EQ(bench.scheduled(output), "A:4*");
  EXPECT_EQ(output.scheduled[0].num_spec_tokens, 3U);
  EXPECT_EQ(Tokens(output.spec_token_ids[0].begin(), output.spec_token_ids[0].end()), drafts);
  EXPECT_TRUE(bench.view("A").spec_token_ids.empty());
  EXPECT_EQ(bench.try_update(nullptr, {{1, 1, 1, 1, 1}}), ErrorCode::kWrongTokenCount);
  EXPECT_EQ(bench.try_update(nullptr, {Tokens{}}), ErrorCode::kWrongTokenCount);
  bench.update(nullptr, {{5, 1}});
  EXPECT_EQ(bench.view("A").num_computed_tokens, 6U);
  EXPECT_EQ(bench.view("A").request.all_token_ids().size(), 7U);
  const SpecDecodingStats expected{1, 3, 1, {1, 0, 0}};
  EXPECT_EQ(bench.outputs.spec_decoding_stats, expected);
  const Tokens too_many(4, 1);
  EXPECT_EQ(bench.scheduler.update_draft_token_ids(bench.index("A"), too_many),
            ErrorCode::kNotInConfig);
}

TEST(SchedulerTest, AsynchronousSchedulingPlansAhead) {
  SchedulerConfig config = config_of();
  config.async_scheduling = true;
  config.max_concurrent_batches = 2;
  Bench bench(config);
  NewRequest request = request_of("A", 4);
  request.max_tokens = 2;
  bench.add(request);
  EXPECT_EQ(bench.scheduled(bench.schedule()), "A:4*");
  EXPECT_EQ(bench.view("A").num_output_placeholders, 1U);
  EXPECT_EQ(bench.scheduled(bench.schedule()), "A:1*");
  EXPECT_EQ(bench.view("A").num_output_placeholders, 2U);
  SchedulerOutput refused;
  EXPECT_EQ(bench.scheduler.schedule(refused), ErrorCode::kStepsInFlight);
  bench.update();
  EXPECT_EQ(bench.view("A").num_output_placeholders, 1U);
  EXPECT_EQ(bench.scheduled(bench.schedule()), "");  // both outputs are planned
  bench.update();
  EXPECT_TRUE(bench.all().empty());
}

TEST(SchedulerTest, OutputComesForTheOldestStep) {
  SchedulerConfig config = config_of();
  config.max_concurrent_batches = 2;
  Bench bench(config);
  EXPECT_EQ(bench.scheduler.update_from_output({}, {}, bench.outputs), ErrorCode::kNoStepInFlight);
  bench.add(request_of("A", 40));
  bench.schedule();
  bench.schedule();
  std::swap(bench.steps[0], bench.steps[1]);
  EXPECT_EQ(bench.try_update(), ErrorCode::kNoStepInFlight);
  std::swap(bench.steps[0], bench.steps[1]);
  EXPECT_EQ(bench.try_update(), ErrorCode::kNone);
  EXPECT_EQ(bench.try_update(), ErrorCode::kNone);
}

TEST(SchedulerTest, AForcedPreemptionMakesStepsStale) {
  for (const bool async : {false, true}) {
    SCOPED_TRACE(async);
    SchedulerConfig config = config_of();
    config.async_scheduling = async;
    config.max_concurrent_batches = 2;
    Bench bench(config);
    bench.add(request_of("A", 4));
    bench.add(request_of("B", 4, 100));
    bench.schedule();
    EXPECT_TRUE(bench.scheduler.reset_prefix_cache(true, false));
    EXPECT_EQ(bench.waiting(), (Names{"A", "B"}));
    EXPECT_EQ(bench.view("A").num_output_placeholders, 0U);
    Bench moved_on = bench;
    bench.update();  // still preempted: taken unless asynchronous
    EXPECT_EQ(bench.outputs.outputs.size(), async ? 0U : 2U);
    const SchedulerOutput again = moved_on.schedule();
    EXPECT_EQ(moved_on.scheduled(again), "A:4* B:4*");
    moved_on.update();
    EXPECT_TRUE(moved_on.outputs.outputs.empty());
    moved_on.update();
    EXPECT_EQ(moved_on.outputs.outputs.size(), 2U);
  }
}

TEST(SchedulerTest, ResetFailsWhileBlocksAreHeld) {
  Bench bench(config_of());
  bench.add(request_of("A", 4));
  bench.step();
  EXPECT_FALSE(bench.scheduler.reset_prefix_cache(false, false));
  EXPECT_TRUE(bench.scheduler.reset_prefix_cache(true, false));
  EXPECT_FALSE(bench.scheduler.reset_prefix_cache(true, true));  // no connector
  Bench newer(config_of(33, Profile::kV023));
  EXPECT_TRUE(newer.scheduler.reset_prefix_cache(true, true));
}

TEST(SchedulerTest, WhatNeverFitsEnds) {
  Bench bench(config_of(3));  // 2 usable blocks
  bench.add(request_of("A", 9));
  bench.add(request_of("B", 4));
  const SchedulerOutput first = bench.schedule();
  EXPECT_EQ(bench.scheduled(first), "");
  ASSERT_TRUE(first.never_fits);
  EXPECT_EQ(*first.never_fits, 0U);
  EXPECT_EQ(bench.all(), Names{"B"});
  bench.update();
  EXPECT_EQ(bench.schedule().finished, std::vector<RequestIndex>{0});
  EXPECT_EQ(bench.running(), Names{"B"});
}

TEST(SchedulerTest, WhatOutgrowsTheEmptyPoolEnds) {
  SchedulerConfig config = config_of(3);  // 2 usable blocks
  config.scheduler_reserve_full_isl = false;
  Bench bench(config);
  bench.add(request_of("A", 7));
  bench.step();
  bench.step();
  const SchedulerOutput third = bench.schedule();  // the ninth token
  EXPECT_EQ(bench.scheduled(third), "");
  EXPECT_EQ(third.preempted, std::vector<RequestIndex>{0});
  EXPECT_EQ(third.never_fits, RequestIndex{0});
  EXPECT_TRUE(bench.all().empty());
}

TEST(SchedulerTest, PausesHoldWhatTheyShould) {
  Bench bench(config_of());
  bench.add(request_of("A", 4));
  bench.step();
  bench.add(request_of("B", 4, 100));
  bench.scheduler.set_pause_state(PauseState::kPausedNew);
  EXPECT_EQ(bench.scheduler.get_num_unfinished_requests(), 1U);
  EXPECT_EQ(bench.scheduled(bench.schedule()), "A:1*");
  bench.update();
  bench.scheduler.set_pause_state(PauseState::kPausedAll);
  EXPECT_EQ(bench.scheduler.get_num_unfinished_requests(), 0U);
  EXPECT_EQ(bench.scheduled(bench.schedule()), "");
  bench.update();
  bench.scheduler.set_pause_state(PauseState::kUnpaused);
  const SchedulerOutput output = bench.schedule();
  EXPECT_EQ(bench.scheduled(output), "A:1* B:4*");
  EXPECT_TRUE(output.scheduled_cached_reqs[0].sends_all_token_ids);
}

TEST(SchedulerTest, PriorityOrdersTheWaiting) {
  SchedulerConfig config = config_of();
  config.policy = SchedulingPolicy::kPriority;
  config.max_num_seqs = 1;
  Bench bench(config);
  const auto add = [&bench](const std::string& id, std::uint32_t priority, std::uint32_t arrival,
                            bool needs_grammar = false) {
    NewRequest request = request_of(id, 4);
    request.priority = priority;
    request.arrival_time = arrival;
    request.needs_grammar = needs_grammar;
    bench.add(request);
  };
  add("D", 1, 5);
  add("A", 1, 5);
  add("C", 1, 2);
  add("B", 0, 9);
  add("G", 0, 1, true);
  EXPECT_EQ(bench.waiting(), (Names{"B", "C", "A", "D"}));
  EXPECT_EQ(bench.skipped(), Names{"G"});
  bench.step();
  EXPECT_EQ(bench.running(), Names{"B"});
  bench.scheduler.grammar_compiled(bench.index("G"));
  bench.finish({"B"});
  bench.step();
  EXPECT_EQ(bench.running(), Names{"G"});
  EXPECT_TRUE(bench.skipped().empty());
}

TEST(SchedulerTest, SkippedRequestsKeepTheirOrder) {
  Bench bench(config_of(), true);
  for (const char* id : {"A", "B", "C", "D"}) {
    NewRequest request = request_of(id, 4, static_cast<TokenId>(100 * (id[0] - 'A')));
    request.needs_grammar = id[0] == 'A' || id[0] == 'C';
    bench.connector().set_script(id, {.ask_again = id[0] == 'B' ? 2U : 0U});
    bench.add(request);
  }
  bench.step();
  EXPECT_EQ(bench.skipped(), (Names{"A", "C", "B"}));
  EXPECT_EQ(bench.running(), Names{"D"});
  bench.scheduler.grammar_compiled(bench.index("C"));
  bench.step();
  EXPECT_EQ(bench.skipped(), (Names{"A", "B"}));
  EXPECT_EQ(bench.running(), (Names{"D", "C"}));
  bench.step();
  EXPECT_EQ(bench.skipped(), Names{"A"});
  EXPECT_EQ(bench.running(), (Names{"D", "C", "B"}));
}

TEST(SchedulerTest, AnAsynchronousLoadWaitsThenRuns) {
  Bench bench(config_of(), true);
  bench.connector().set_script("A", {.num_external_tokens = 8, .load_async = true});
  bench.add(request_of("A", 8));
  EXPECT_EQ(bench.scheduled(bench.schedule()), "");
  EXPECT_EQ(bench.view("A").status, Status::kWaitingForRemoteKVs);
  EXPECT_EQ(bench.view("A").num_computed_tokens, 8U);
  EXPECT_EQ(bench.skipped(), Names{"A"});
  const KVConnectorOutput done = received(bench, {"A"});
  bench.update(&done);
  EXPECT_EQ(bench.outputs.connector_prefix_cache_stats.queries, 8U);
  EXPECT_EQ(bench.outputs.connector_prefix_cache_stats.hits, 8U);
  const SchedulerOutput output = bench.schedule();
  EXPECT_EQ(bench.scheduled(output), "A:1*");  // the last token again
  EXPECT_EQ(output.scheduled_new_reqs[0].num_computed_tokens, 7U);
  EXPECT_EQ(bench.try_update(&done), ErrorCode::kNotLoading);
  std::vector<ConnectorCall> calls;
  bench.connector().take_calls(calls);
  const auto num_told = std::count_if(calls.begin(), calls.end(), [](const ConnectorCall& call) {
    return call.method == "update_state_after_alloc";
  });
  EXPECT_EQ(num_told, 2);
}

TEST(SchedulerTest, AFailedLoadIsPromotedWithWhatIsLeft) {
  for (const std::uint32_t num_left : {0U, 4U}) {
    SCOPED_TRACE(num_left);
    SchedulerConfig config = config_of();
    config.kv_load_failure_policy = KVLoadFailurePolicy::kRecompute;
    Bench bench(config, true);
    bench.connector().set_script("A", {.num_external_tokens = 8, .load_async = true});
    bench.add(request_of("A", 10));
    bench.schedule();
    const BlockId invalid = bench.table("A")[num_left / kBlockSize];
    const KVConnectorOutput failed = received(bench, {"A"}, {invalid});
    bench.update(&failed);
    EXPECT_EQ(bench.view("A").num_computed_tokens, num_left);
    bench.connector().set_script("A", {});
    EXPECT_EQ(bench.scheduled(bench.schedule()), num_left == 0 ? "A:10*" : "A:6*");
  }
}

TEST(SchedulerTest, ASharersFailedLoadIsLeftWholeButForTheLastToken) {
  SchedulerConfig config = config_of();
  config.kv_load_failure_policy = KVLoadFailurePolicy::kRecompute;
  Bench bench(config, true);
  bench.add(request_of("C", 5));  // caches the first block of all three
  bench.step();
  for (const char* id : {"A", "B"}) {
    bench.connector().set_script(id, {.num_external_tokens = 8, .load_async = true});
    bench.add(request_of(id, 8));
  }
  bench.schedule();
  ASSERT_EQ(bench.table("A")[0], bench.table("B")[0]);
  bench.finish({"C"});
  const KVConnectorOutput failed = received(bench, {"A", "B"}, {bench.table("A")[0]});
  bench.update(&failed);
  EXPECT_EQ(bench.view("A").num_computed_tokens, 0U);
  EXPECT_EQ(bench.view("B").num_computed_tokens, 8U);
  bench.finish({"A"});
  EXPECT_EQ(bench.scheduled(bench.schedule()), "B:1*");
}

TEST(SchedulerTest, DraftsOutliveAnInvalidBlockUnlessAsynchronous) {
  for (const bool async : {false, true}) {
    SCOPED_TRACE(async);
    SchedulerConfig config = config_of();
    config.kv_load_failure_policy = KVLoadFailurePolicy::kRecompute;
    config.num_speculative_tokens = 2;
    config.async_scheduling = async;
    Bench bench(config, true);
    bench.connector().set_script("A", {.num_external_tokens = 8});
    bench.add(request_of("A", 10));
    bench.step();
    bench.schedule();
    const Tokens drafts = {5, 6};
    if (!async) bench.scheduler.update_draft_token_ids(bench.index("A"), drafts);
    ASSERT_EQ(bench.view("A").spec_token_ids.size(), 2U);
    const KVConnectorOutput failed = received(bench, {}, {bench.table("A")[1]});
    bench.update(&failed);
    EXPECT_EQ(bench.view("A").num_computed_tokens, 4U);
    EXPECT_EQ(bench.view("A").spec_token_ids.size(), async ? 0U : 2U);
    EXPECT_EQ(bench.view("A").num_output_placeholders, 0U);
  }
}

TEST(SchedulerTest, AFailedLoadEndsTheRequestUnderFail) {
  Bench bench(config_of(), true);
  bench.connector().set_script("A", {.num_external_tokens = 8, .load_async = true});
  bench.add(request_of("A", 10));
  bench.schedule();
  KVConnectorOutput failed = received(bench, {}, {bench.table("A")[1]});
  bench.update(&failed);
  ASSERT_EQ(bench.outputs.outputs.size(), 1U);
  EXPECT_EQ(bench.outputs.outputs[0].status, Status::kFinishedError);
  EXPECT_TRUE(bench.outputs.new_token_ids[0].empty());
  EXPECT_EQ(bench.all(), Names{"A"});  // its blocks stay until the load is over
  bench.schedule();
  const KVConnectorOutput done = received(bench, {"A"});
  bench.update(&done);
  EXPECT_TRUE(bench.all().empty());
  EXPECT_EQ(bench.num_free_blocks(), 32U);
}

TEST(SchedulerTest, SharersOfAnInvalidBlockAreCutBackOnce) {
  SchedulerConfig config = config_of();
  config.kv_load_failure_policy = KVLoadFailurePolicy::kRecompute;
  Bench bench(config, true);
  bench.connector().set_script("A", {.num_external_tokens = 8});
  bench.add(request_of("A", 10));
  bench.add(request_of("B", 10));
  bench.schedule();
  ASSERT_EQ(bench.table("A")[1], bench.table("B")[1]);
  const KVConnectorOutput failed = received(bench, {}, {bench.table("A")[1]});
  bench.update(&failed);
  EXPECT_TRUE(bench.outputs.outputs.empty());
  EXPECT_EQ(bench.view("A").num_computed_tokens, 4U);
  EXPECT_EQ(bench.view("B").num_computed_tokens, 8U);
  EXPECT_EQ(bench.scheduled(bench.schedule()), "A:6* B:2*");
}

TEST(SchedulerTest, EverythingBehindAnInvalidBlockIsEvictedUnderFail) {
  Bench bench(config_of(), true);
  bench.connector().set_script("A", {.num_external_tokens = 8});
  bench.add(request_of("A", 13));
  bench.schedule();
  const std::vector<BlockId> table = bench.table("A");
  const KVConnectorOutput failed = received(bench, {}, {table[1]});
  bench.update(&failed);
  const auto& pool = bench.scheduler.kv_cache_manager().block_pool();
  EXPECT_FALSE(pool.block_key(table[0]).empty());
  EXPECT_TRUE(pool.block_key(table[1]).empty());
  EXPECT_TRUE(pool.block_key(table[2]).empty());
  EXPECT_TRUE(bench.all().empty());
}

TEST(SchedulerTest, HeldBlocksStayUntilTheyAreSent) {
  for (const Profile profile : kProfiles) {
    Bench bench(config_of(33, profile), true);
    bench.connector().set_script("A", {.hold_blocks = true});
    bench.add(request_of("A", 8));
    bench.step();
    bench.finish({"A"});
    EXPECT_EQ(bench.all(), Names{"A"});
    EXPECT_EQ(bench.try_add(request_of("A", 8)), ErrorCode::kAlreadyDeclared);
    bench.schedule();
    EXPECT_EQ(bench.scheduler.has_finished_requests(), profile == Profile::kV023);
    KVConnectorOutput sent;
    sent.finished_sending = {0};
    bench.update(&sent);
    EXPECT_TRUE(bench.all().empty());
    EXPECT_FALSE(bench.scheduler.has_finished_requests());
    bench.schedule();
    EXPECT_EQ(bench.try_update(&sent), ErrorCode::kNotFinished);
  }
}

TEST(SchedulerTest, ConnectorOutputsAreChecked) {
  Bench plain(config_of());
  plain.schedule();
  KVConnectorOutput output;
  EXPECT_EQ(plain.try_update(&output), ErrorCode::kNotInConfig);

  Bench bench(config_of(), true);
  bench.add(request_of("A", 4));
  bench.schedule();
  for (const BlockId block : {kNullBlockId, BlockId{33}}) {
    output.invalid_block_ids = {block};
    EXPECT_EQ(bench.try_update(&output), ErrorCode::kUnknownBlock);
  }
  output.invalid_block_ids = {1, 2, 1};
  EXPECT_EQ(bench.try_update(&output), ErrorCode::kListedTwice);
  output.invalid_block_ids = {};
  output.finished_recving = {0};
  output.finished_sending = {0};
  EXPECT_EQ(bench.try_update(&output), ErrorCode::kListedTwice);
  output.finished_sending = {};
  EXPECT_EQ(bench.try_update(&output), ErrorCode::kNotLoading);
  output.finished_recving = {};
  output.finished_sending = {7};
  EXPECT_EQ(bench.try_update(&output), ErrorCode::kNotFinished);
  bench.update();
}

TEST(SchedulerTest, MambaAlignCutsAtBlocks) {
  SchedulerConfig config = config_of();
  config.kv_cache.groups = {
      {.block_size = kBlockSize},
      {.kind = KVCacheSpecKind::kMamba, .block_size = kBlockSize, .mamba_align = true}};
  config.max_num_scheduled_tokens = 7;
  Bench bench(config);
  bench.add(request_of("A", 10));
  EXPECT_EQ(bench.scheduled(bench.schedule()), "A:4");
  bench.update();
  EXPECT_EQ(bench.scheduled(bench.schedule()), "A:4");
  bench.update();
  EXPECT_EQ(bench.scheduled(bench.schedule()), "A:2*");
}

TEST(SchedulerTest, LoadsLeaveRoomForPrefillsUnderWay) {
  for (const bool reserves : {false, true}) {
    SCOPED_TRACE(reserves);
    SchedulerConfig config = config_of(9, Profile::kV023);  // 8 usable blocks
    config.kv_cache.pool.rules.reserve_for_prefills = reserves;
    config.long_prefill_token_threshold = 4;
    Bench bench(config, true);
    bench.connector().set_script("B", {.num_external_tokens = 12, .load_async = true});
    bench.add(request_of("A", 24));       // 6 blocks, one a step
    bench.add(request_of("B", 12, 100));  // 3 blocks
    EXPECT_EQ(bench.scheduled(bench.schedule()), "A:4");
    EXPECT_EQ(bench.waiting(), reserves ? Names{"B"} : Names{});
    EXPECT_EQ(bench.skipped(), reserves ? Names{} : Names{"B"});
  }
}

TEST(SchedulerTest, ALoadThatLostAllIsNotReservedFor) {
  SchedulerConfig config = config_of(9, Profile::kV023);  // 8 usable blocks
  config.kv_load_failure_policy = KVLoadFailurePolicy::kRecompute;
  Bench bench(config, true);
  bench.connector().set_script("A", {.num_external_tokens = 20, .load_async = true});
  bench.add(request_of("A", 24));  // 6 blocks, 5 of them loaded
  bench.schedule();
  const KVConnectorOutput failed = received(bench, {"A"}, {bench.table("A")[0]});
  bench.update(&failed);
  bench.connector().set_script("A", {.ask_again = 1});
  bench.connector().set_script("B", {.num_external_tokens = 20, .load_async = true});
  bench.add(request_of("B", 20, 100));  // 5 blocks
  bench.schedule();                     // A is promoted, loses its blocks, and is asked again
  EXPECT_EQ(bench.view("A").status, Status::kWaiting);
  EXPECT_EQ(bench.view("B").status, Status::kWaitingForRemoteKVs);
}

TEST(SchedulerTest, ACopyIsASchedulerOfItsOwn) {
  Bench bench(config_of(), true);
  bench.add(request_of("A", 4));
  bench.step();
  Bench copy = bench;
  copy.step();
  copy.finish({"A"});
  EXPECT_EQ(bench.all(), Names{"A"});
  EXPECT_EQ(bench.scheduled(bench.schedule()), "A:1*");
}

}  // namespace
}  // namespace kvfence::optimized
