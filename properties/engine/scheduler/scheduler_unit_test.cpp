// Tests what a C++ caller gets from a step and returns, on both sides, with examples computed by
// hand. The rules of scheduling order are in scenarios/cases/engine/scheduler/, one per scenario.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/scripted/scripted_connector.h"
#include "optimized/scheduler/scheduler.h"
#include "properties/core/both_sides_test_support.h"
#include "reference/scheduler/scheduler.h"

namespace kvfence {
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
template <class Scheduler>
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

  /// "A:8 B:1*": tokens of each; * if they produce output.
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

template <class Scheduler>
KVConnectorOutput received(const Bench<Scheduler>& bench, const Names& ids,
                           std::vector<BlockId> invalid_blocks = {}) {
  KVConnectorOutput output;
  for (const std::string& id : ids) output.finished_recving.push_back(bench.index(id));
  output.invalid_block_ids = std::move(invalid_blocks);
  return output;
}

template <class Scheduler>
class SchedulerSteps : public ::testing::Test {};
using Schedulers = ::testing::Types<reference::Scheduler, optimized::Scheduler>;
TYPED_TEST_SUITE(SchedulerSteps, Schedulers, SideNames);

TYPED_TEST(SchedulerSteps, APromptIsComputedThenTokensFollow) {
  Bench<TypeParam> bench(config_of());
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

TYPED_TEST(SchedulerSteps, TheLastOfRunningLosesItsBlocks) {
  SchedulerConfig config = config_of(5);  // 4 usable blocks
  config.scheduler_reserve_full_isl = false;
  Bench<TypeParam> bench(config);
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

TYPED_TEST(SchedulerSteps, APriorityVictimGivesItsTokensBack) {
  SchedulerConfig config = config_of(9);
  config.policy = SchedulingPolicy::kPriority;
  config.scheduler_reserve_full_isl = false;
  Bench<TypeParam> bench(config);  // 8 usable blocks: two for each request
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

TYPED_TEST(SchedulerSteps, AnIndexComesBackOnceItsEndIsReported) {
  Bench<TypeParam> bench(config_of());
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

TYPED_TEST(SchedulerSteps, DraftsAreSentAndRejectedOnesTakenOff) {
  SchedulerConfig config = config_of();
  config.num_speculative_tokens = 3;
  Bench<TypeParam> bench(config);
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

TYPED_TEST(SchedulerSteps, AsynchronousSchedulingPlansAhead) {
  SchedulerConfig config = config_of();
  config.async_scheduling = true;
  config.max_concurrent_batches = 2;
  Bench<TypeParam> bench(config);
  NewRequest request = request_of("A", 4);
  request.max_tokens = 2;
  bench.add(request);
  EXPECT_EQ(bench.scheduled(bench.schedule()), "A:4*");
  EXPECT_EQ(bench.view("A").num_output_placeholders, 1U);
  EXPECT_EQ(bench.scheduled(bench.schedule()), "A:1*");
  EXPECT_EQ(bench.view("A").num_output_placeholders, 2U);
  SchedulerOutput refused;
  refused.step = 77;
  EXPECT_EQ(bench.scheduler.schedule(refused), ErrorCode::kStepsInFlight);
  EXPECT_EQ(refused.step, 77U) << "unchanged";
  bench.update();
  EXPECT_EQ(bench.view("A").num_output_placeholders, 1U);
  EXPECT_EQ(bench.scheduled(bench.schedule()), "");  // both outputs are planned
  bench.update();
  EXPECT_TRUE(bench.all().empty());
}

TYPED_TEST(SchedulerSteps, OutputComesForTheOldestStep) {
  SchedulerConfig config = config_of();
  config.max_concurrent_batches = 2;
  Bench<TypeParam> bench(config);
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

TYPED_TEST(SchedulerSteps, AForcedPreemptionMakesStepsStale) {
  for (const bool async : {false, true}) {
    SCOPED_TRACE(async);
    SchedulerConfig config = config_of();
    config.async_scheduling = async;
    config.max_concurrent_batches = 2;
    Bench<TypeParam> bench(config);
    bench.add(request_of("A", 4));
    bench.add(request_of("B", 4, 100));
    bench.schedule();
    EXPECT_TRUE(bench.scheduler.reset_prefix_cache(true, false));
    EXPECT_EQ(bench.waiting(), (Names{"A", "B"}));
    EXPECT_EQ(bench.view("A").num_output_placeholders, 0U);
    Bench<TypeParam> moved_on = bench;
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

TYPED_TEST(SchedulerSteps, AnAsynchronousLoadWaitsThenRuns) {
  Bench<TypeParam> bench(config_of(), true);
  bench.connector().set_script("A", {.external_tokens = 8, .load_async = true});
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
  const auto num_allocations = std::count_if(
      calls.begin(), calls.end(),
      [](const ConnectorCall& call) { return call.method == "update_state_after_alloc"; });
  EXPECT_EQ(num_allocations, 2);
}

TYPED_TEST(SchedulerSteps, ASharersFailedLoadIsLeftWholeButForTheLastToken) {
  SchedulerConfig config = config_of();
  config.kv_load_failure_policy = KVLoadFailurePolicy::kRecompute;
  Bench<TypeParam> bench(config, true);
  bench.add(request_of("C", 5));  // caches the first block of all three
  bench.step();
  for (const char* id : {"A", "B"}) {
    bench.connector().set_script(id, {.external_tokens = 8, .load_async = true});
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

TYPED_TEST(SchedulerSteps, DraftsOutliveAnInvalidBlockUnlessAsynchronous) {
  for (const bool async : {false, true}) {
    SCOPED_TRACE(async);
    SchedulerConfig config = config_of();
    config.kv_load_failure_policy = KVLoadFailurePolicy::kRecompute;
    config.num_speculative_tokens = 2;
    config.async_scheduling = async;
    Bench<TypeParam> bench(config, true);
    bench.connector().set_script("A", {.external_tokens = 8});
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

TYPED_TEST(SchedulerSteps, ALoadThatLostAllIsNotReservedFor) {
  SchedulerConfig config = config_of(9, Profile::kV023);  // 8 usable blocks
  config.kv_load_failure_policy = KVLoadFailurePolicy::kRecompute;
  Bench<TypeParam> bench(config, true);
  bench.connector().set_script("A", {.external_tokens = 20, .load_async = true});
  bench.add(request_of("A", 24));  // 6 blocks, 5 of them loaded
  bench.schedule();
  const KVConnectorOutput failed = received(bench, {"A"}, {bench.table("A")[0]});
  bench.update(&failed);
  bench.connector().set_script("A", {.ask_again = 1});
  bench.connector().set_script("B", {.external_tokens = 20, .load_async = true});
  bench.add(request_of("B", 20, 100));  // 5 blocks
  bench.schedule();                     // A is promoted, loses its blocks, and is asked again
  EXPECT_EQ(bench.view("A").status, Status::kWaiting);
  EXPECT_EQ(bench.view("B").status, Status::kWaitingForRemoteKVs);
}

}  // namespace
}  // namespace kvfence
