// Goal: a replay gives a scheduler the traffic of the trace at its times, and its figures are
// exact.
// Method: traces small enough to follow by hand, with a step of 1 ms and 1 ms per token, through
// reference and optimized in lockstep; a scheduler with changed answers; a planted bug; then the
// committed excerpt, whose figures are pinned, and the whole trace if available.

#include "scenarios/replay/scheduler_replay.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/replay/replay_reports.h"
#include "scenarios/replay/replay_test_rig.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

using engine::Observation;

/// Blocks of four tokens, eight tokens per step; 1 ms per step and 1 ms per token.
SchedulerReplayOptions tiny(std::uint32_t gpu_blocks = 33) {
  SchedulerReplayOptions options;
  options.gpu_blocks = gpu_blocks;
  options.block_size = 4;
  options.block_tokens = 4;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 8;
  options.step_us = 1000;
  options.token_ns = 1'000'000;
  options.state_every = 1;
  return options;
}

/// hash_ids from `first_id` on, so that only requests with the same one share anything.
MooncakeRequest request(std::uint64_t timestamp_ms, std::uint32_t input_length,
                        std::uint32_t output_length, std::uint32_t first_id) {
  MooncakeRequest made{timestamp_ms, input_length, output_length, {}};
  made.hash_ids.resize((input_length + 3) / 4);
  std::iota(made.hash_ids.begin(), made.hash_ids.end(), first_id);
  return made;
}

/// Through reference and optimized; the test fails if they differ.
SchedulerReplayResult in_lockstep(const std::vector<MooncakeRequest>& requests,
                                  const SchedulerReplayOptions& options) {
  const auto reference = engine_sides().make_reference();
  const auto optimized = engine_sides().make_optimized();
  SchedulerReplayResult result = replay_traffic(requests, options, *reference, optimized.get());
  if (result.divergence) ADD_FAILURE() << result.divergence->message;
  return result;
}

std::uint64_t total(const Distribution& times) {
  return static_cast<std::uint64_t>(times.mean * static_cast<double>(times.num) + 0.5);
}

TEST(SchedulerReplay, TakesTheTimeThatTheStepsTake) {
  // 6 tokens: 7 ms, then a token: 2 ms each. Blocks: two while it runs.
  const SchedulerReplayResult result = in_lockstep({request(0, 6, 3, 1)}, tiny(9));

  EXPECT_EQ(result.requests, 1U);
  EXPECT_EQ(result.completed, 1U);
  EXPECT_EQ(result.steps, 3U);
  EXPECT_EQ(result.idle_steps, 1U);  // reports that it ended
  EXPECT_EQ(result.tokens, 8U);
  EXPECT_EQ(result.prompt_tokens, 6U);
  EXPECT_EQ(result.output_tokens, 3U);
  EXPECT_EQ(result.end_us, 11'000U);
  EXPECT_EQ(result.busy_us, 11'000U);
  EXPECT_EQ(result.queueing.max, 0U);
  EXPECT_EQ(result.first_token.max, 7'000U);
  EXPECT_EQ(result.time_per_output.max, 2'000U);
  EXPECT_EQ(result.completion.max, 11'000U);
  EXPECT_EQ(result.running.min, 1U);
  EXPECT_EQ(result.running.max, 1U);
  EXPECT_EQ(result.referenced.min, 3U);
  EXPECT_EQ(result.referenced.max, 3U);
  EXPECT_DOUBLE_EQ(result.empty.mean, 6.0);
}

TEST(SchedulerReplay, WeighsMeansWithTime) {
  // 4 tokens in one block for 5 ms, then a fifth in a second block for 2 ms.
  const SchedulerReplayResult result = in_lockstep({request(0, 4, 2, 1)}, tiny(9));

  EXPECT_EQ(result.referenced.min, 2U);
  EXPECT_EQ(result.referenced.max, 3U);
  EXPECT_DOUBLE_EQ(result.referenced.mean, (2 * 5.0 + 3 * 2.0) / 7);
}

TEST(SchedulerReplay, AddsArrivalsBetweenStepsAndSkipsIdleTime) {
  // The second arrives in a step of 0 to 7 ms and waits for its end; nothing runs from 10 to 20 ms.
  const SchedulerReplayResult result =
      in_lockstep({request(0, 6, 1, 1), request(3, 2, 1, 11), request(20, 2, 1, 21)}, tiny());

  EXPECT_EQ(total(result.queueing), 4'000U);
  EXPECT_EQ(total(result.first_token), 7'000U + (10'000 - 3'000) + 3'000);
  EXPECT_EQ(result.end_us, 23'000U);
  EXPECT_EQ(result.busy_us, 13'000U);
}

TEST(SchedulerReplay, CountsTimeFromTheFirstArrivalAndKeepsTheOrder) {
  // 90 is before 100 and counts as 100; both fit into one step of 4 tokens.
  const SchedulerReplayResult result =
      in_lockstep({request(100, 2, 1, 1), request(90, 2, 1, 11)}, tiny());

  EXPECT_EQ(result.steps, 1U);
  EXPECT_EQ(result.end_us, 5'000U);
}

TEST(SchedulerReplay, FindsThePrefixesOfTheTrace) {
  // [1 2], [1 3]: one block of four. [1 2] again: the last block still has to be computed.
  const auto traffic = [](std::uint64_t ms, std::vector<std::uint32_t> ids) {
    return MooncakeRequest{ms, 8, 1, std::move(ids)};
  };
  const SchedulerReplayResult result =
      in_lockstep({traffic(0, {1, 2}), traffic(50, {1, 3}), traffic(100, {1, 2})}, tiny());

  EXPECT_EQ(result.admitted_tokens, 24U);
  EXPECT_EQ(result.found_tokens, 8U);
  EXPECT_DOUBLE_EQ(result.hit_rate(), 8.0 / 24);
  EXPECT_EQ(result.tokens, 16U);
  EXPECT_DOUBLE_EQ(result.lookup_hit_rate(), 8.0 / 24);
}

TEST(SchedulerReplay, CountsARequestOnceHoweverOftenItIsLookedUp) {
  // Four usable blocks: the second waits for three of them while the first one decodes.
  const SchedulerReplayResult result =
      in_lockstep({request(0, 8, 3, 1), request(0, 9, 1, 11)}, tiny(5));

  EXPECT_EQ(result.admitted_tokens, 17U);
  EXPECT_EQ(result.prefix_cache.queries, 8U + 3 * 9U);
}

TEST(SchedulerReplay, QueuesWhatDoesNotRun) {
  SchedulerReplayOptions options = tiny();
  options.max_num_seqs = 1;

  // Steps of 5, 3 and 4 ms.
  const SchedulerReplayResult result =
      in_lockstep({request(0, 4, 1, 1), request(0, 2, 1, 11), request(0, 3, 1, 21)}, options);

  EXPECT_EQ(total(result.queueing), 0U + 5'000 + 8'000);
  EXPECT_EQ(result.queueing.p50, 5'000U);
  EXPECT_EQ(result.queueing.p99, 8'000U);
  EXPECT_EQ(result.waiting.max, 2U);
}

TEST(SchedulerReplay, GivesPriorities) {
  SchedulerReplayOptions options = tiny();
  options.max_num_seqs = 1;
  options.policy = SchedulingPolicy::kPriority;
  options.num_priorities = 2;

  // The third goes before the second.
  const SchedulerReplayResult result =
      in_lockstep({request(0, 4, 1, 1), request(0, 2, 1, 11), request(0, 3, 1, 21)}, options);

  EXPECT_EQ(total(result.queueing), 0U + 5'000 + 9'000);
}

TEST(SchedulerReplay, CountsPreemptionsAndWhatResumedRequestsFind) {
  // Four usable blocks, two requests of up to 11 computed tokens. The first takes a third block for
  // its ninth: the second is preempted, and the content of its last block is evicted. It is looked
  // up with 9 tokens while the first generates its last two, and once more after that.
  const SchedulerReplayResult result =
      in_lockstep({request(0, 4, 8, 1), request(0, 4, 8, 11)}, tiny(5));

  EXPECT_EQ(result.completed, 2U);
  EXPECT_EQ(result.preemptions, 1U);
  EXPECT_EQ(result.prefix_cache.preempted_requests, 3U);
  EXPECT_EQ(result.prefix_cache.preempted_queries, 27U);
  EXPECT_EQ(result.prefix_cache.preempted_hits, 12U);
  EXPECT_EQ(result.admitted_tokens, 8U);
  EXPECT_EQ(result.referenced.max, 5U);
}

TEST(SchedulerReplay, GoesOnAfterWhatNeverFits) {
  const SchedulerReplayResult result =
      in_lockstep({request(0, 12, 1, 1), request(0, 4, 1, 11)}, tiny(3));

  EXPECT_EQ(result.never_fit, 1U);
  EXPECT_EQ(result.completed, 1U);
}

TEST(SchedulerReplay, CountsWhatIsRefusedOrCutShort) {
  SchedulerReplayOptions options = tiny();
  options.max_model_len = 8;

  const SchedulerReplayResult result = in_lockstep(
      {request(0, 8, 1, 1), request(0, 4, 0, 11), request(0, 6, 9, 21), request(0, 2, 2, 31)},
      options);

  EXPECT_EQ(result.requests, 4U);
  EXPECT_EQ(result.refused, 2U);
  EXPECT_EQ(result.cut_short, 1U);
  EXPECT_EQ(result.completed, 1U);
  EXPECT_EQ(result.output_tokens, 2U + 2U);
}

TEST(SchedulerReplay, PlansAStepAheadWithAsynchronousScheduling) {
  SchedulerReplayOptions options = tiny();
  options.async_scheduling = true;

  const SchedulerReplayResult alone = in_lockstep({request(0, 6, 3, 1)}, options);
  // Steps of 0 to 7 and 7 to 9 ms are planned when the second arrives; it runs from 9 to 13.
  const SchedulerReplayResult two =
      in_lockstep({request(0, 6, 5, 1), request(3, 2, 1, 11)}, options);

  EXPECT_EQ(alone.steps, 3U);
  EXPECT_EQ(alone.end_us, 11'000U);
  EXPECT_EQ(alone.first_token.max, 7'000U);
  EXPECT_EQ(two.queueing.max, 4'000U);
  EXPECT_EQ(two.first_token.max, 10'000U);
}

TEST(SchedulerReplay, AcceptsDraftsByThePattern) {
  // 5 ms for the prompt, then 1 token and 2 drafts a step: 4 ms.
  SchedulerReplayOptions options = tiny();
  options.max_model_len = 64;  // else it leaves no room for the last drafts
  options.num_speculative_tokens = 2;
  options.accepted = {1};
  const SchedulerReplayResult one_of_two = in_lockstep({request(0, 4, 5, 1)}, options);
  options.accepted = {0, 2};
  const SchedulerReplayResult none_then_both = in_lockstep({request(0, 4, 5, 1)}, options);
  options.accepted = {};
  const SchedulerReplayResult all = in_lockstep({request(0, 4, 7, 1)}, options);

  EXPECT_EQ(one_of_two.steps, 3U);
  EXPECT_EQ(one_of_two.end_us, 13'000U);
  EXPECT_EQ(one_of_two.draft_tokens, 4U);
  EXPECT_EQ(one_of_two.accepted_draft_tokens, 2U);
  EXPECT_EQ(none_then_both.steps, 3U);
  EXPECT_EQ(none_then_both.accepted_draft_tokens, 2U);
  EXPECT_EQ(all.steps, 3U);
  EXPECT_EQ(all.accepted_draft_tokens, 4U);
}

TEST(SchedulerReplay, SpeculatesAsynchronously) {
  SchedulerReplayOptions options = tiny();
  options.num_speculative_tokens = 2;
  options.accepted = {1, 0, 2};
  options.async_scheduling = true;

  const SchedulerReplayResult result =
      in_lockstep({request(0, 6, 9, 1), request(4, 5, 7, 11)}, options);

  EXPECT_EQ(result.completed, 2U);
  EXPECT_EQ(result.output_tokens, 16U);
  EXPECT_GT(result.accepted_draft_tokens, 0U);
}

TEST(SchedulerReplay, CutsTimeIntoIntervals) {
  SchedulerReplayOptions options = tiny(9);
  options.interval_ms = 6;

  // Steps end at 7, 9 and 11 ms; the second request, of 7 tokens, at 30.
  const SchedulerReplayResult result =
      in_lockstep({request(0, 6, 3, 1), request(22, 7, 1, 11)}, options);

  const std::vector<SchedulerSample> expected = {{6, 1, 0, {6, 0, 3}, 0, 0, 0, 6, 0, 0, 0},
                                                 {12, 0, 0, {6, 2, 1}, 3, 8, 0, 0, 0, 6, 0},
                                                 {18, 0, 0, {6, 2, 1}, 0, 0, 0, 0, 0, 0, 0},
                                                 {24, 1, 0, {4, 2, 3}, 0, 0, 0, 7, 0, 0, 0},
                                                 {30, 0, 0, {5, 3, 1}, 1, 7, 0, 0, 0, 7, 0}};
  EXPECT_EQ(result.samples, expected);
}

TEST(SchedulerReplay, ReplaysTheFirstRequestsOnlyAndReportsItsProgress) {
  const std::vector<MooncakeRequest> requests = {request(0, 4, 2, 1), request(0, 4, 1, 11),
                                                 request(0, 4, 1, 21)};
  SchedulerReplayOptions options = tiny();
  options.requests_max = 2;
  const auto optimized = engine_sides().make_optimized();
  std::vector<std::size_t> done;

  const SchedulerReplayResult result = replay_traffic(requests, options, *optimized, nullptr,
                                                      [&](std::size_t number, std::size_t total) {
                                                        EXPECT_EQ(total, 2U);
                                                        done.push_back(number);
                                                      });

  EXPECT_EQ(result.requests, 2U);
  EXPECT_EQ(done, (std::vector<std::size_t>{1, 2, 2}));
}

TEST(SchedulerReplay, MakesPromptsOfHashIds) {
  const MooncakeRequest traced{0, 7, 1, {900, 5}};

  EXPECT_EQ(prompt_of(traced, 4), (std::vector<TokenId>{900, 1, 2, 3, 5, 1, 2}));
}

TEST(SchedulerReplay, ComputesPercentiles) {
  std::vector<std::uint64_t> values(100);
  std::iota(values.rbegin(), values.rend(), 1);
  const Distribution distribution = distribution_of(values);

  EXPECT_EQ(distribution.num, 100U);
  EXPECT_DOUBLE_EQ(distribution.mean, 50.5);
  EXPECT_EQ(distribution.p50, 50U);
  EXPECT_EQ(distribution.p99, 99U);
  EXPECT_EQ(distribution.max, 100U);
  EXPECT_EQ(distribution_of({7}).p50, 7U);
  EXPECT_EQ(distribution_of({7}).p99, 7U);
  EXPECT_EQ(distribution_of({}).num, 0U);
}

TEST(SchedulerReplay, ValidatesItsOptions) {
  const std::vector<MooncakeRequest> requests = {request(0, 4, 3, 1)};
  EXPECT_FALSE(validate(SchedulerReplayOptions(), requests));
  EXPECT_EQ(config_of(SchedulerReplayOptions(), requests).max_model_len, 7U);
  EXPECT_EQ(validate({.num_priorities = 0}, requests)->to_text(),
            "found num_priorities=0, expected at least 1");
  EXPECT_EQ(validate({.step_us = 0, .token_ns = 0}, requests)->to_text(),
            "found step_us=0 token_ns=0, expected a step that takes time");
  const std::vector<SchedulerReplayOptions> wrong = {
      {.gpu_blocks = 0},  {.block_size = 0},  {.max_num_seqs = 0}, {.max_num_batched_tokens = 0},
      {.state_every = 0}, {.block_tokens = 0}};
  for (const SchedulerReplayOptions& options : wrong) EXPECT_TRUE(validate(options, requests));
}

/// The finding of a replay of a scheduler with changed answers to one kind of command, or "none".
template <class Asked>
std::string found_in(std::function<void(Observation&)> spoil) {
  const std::vector<MooncakeRequest> requests = {request(0, 6, 3, 1), request(0, 4, 2, 11)};
  const auto change = [&](const Command& command, kvfence::Observation& observation) {
    if (!std::holds_alternative<Asked>(command.as<engine::Command>())) return;
    spoil(observation.as<Observation>());
  };
  Spy spy(engine_sides().make_reference(), change);
  const SchedulerReplayResult result = replay_traffic(requests, tiny(), spy, nullptr);
  if (!result.divergence) return "none";
  EXPECT_EQ(result.divergence->oracle, "traffic");
  return result.divergence->field;
}

TEST(SchedulerReplay, ReportsWhatNoSchedulerMayDo) {
  using engine::AddRequest;
  using engine::Schedule;
  using engine::Update;
  const auto ending = [](RequestStatus status) {
    return found_in<Update>([status](Observation& seen) {
      for (auto& output : seen.outputs.emplace()) output.status = status;
    });
  };
  EXPECT_EQ(found_in<Schedule>([](auto&) {}), "none");
  EXPECT_EQ(
      found_in<AddRequest>([](Observation& seen) { seen.error = ErrorCode::kAlreadyDeclared; }),
      "error");
  EXPECT_EQ(found_in<Update>([](Observation& seen) { seen.error = ErrorCode::kNoStepInFlight; }),
            "error");
  EXPECT_EQ(found_in<Schedule>(
                [](Observation& seen) { seen.scheduled.emplace().front().num_tokens += 9; }),
            "scheduled");
  EXPECT_EQ(found_in<Schedule>([](Observation& seen) { seen.num_running += 8; }), "num_running");
  EXPECT_EQ(found_in<Schedule>([](Observation& seen) { ++seen.num_cached_blocks; }),
            "empty + cached + referenced");
  EXPECT_EQ(found_in<Update>([](Observation& seen) {
              --seen.num_empty_blocks;
              ++seen.num_referenced_blocks;
            }),
            "referenced");
  EXPECT_EQ(ending(RequestStatus::kFinishedError), "outputs");
  EXPECT_EQ(ending(RequestStatus::kRunning), "requests");
  // No step schedules the request that counts as unfinished.
  EXPECT_EQ(found_in<Update>([](Observation& seen) { ++seen.num_unfinished; }), "scheduled");
}

/// Four requests of four to seven tokens and five outputs, the last two with one block in common,
/// in a pool without room for all: some are preempted.
const std::vector<MooncakeRequest>& crowd() {
  static const std::vector<MooncakeRequest> requests = {
      {0, 4, 5, {1}}, {0, 5, 5, {11, 12}}, {0, 6, 5, {21, 22}}, {9, 7, 5, {21, 23}}};
  return requests;
}

SchedulerReplayOptions crowded(std::uint32_t gpu_blocks = 7) {
  SchedulerReplayOptions options = tiny(gpu_blocks);
  options.max_num_batched_tokens = 16;
  options.num_speculative_tokens = 2;
  options.accepted = {0, 1};
  options.enable_kv_cache_events = true;
  return options;
}

/// All figures but the one that differs from run to run.
std::string figures_of(SchedulerReplayResult result) {
  result.scheduler_seconds = 0;
  return to_json(result) + to_csv(result.samples);
}

TEST(SchedulerReplay, HasTheSameFiguresInLockstepAndAlone) {
  for (const bool is_asynchronous : {false, true}) {
    for (const std::uint32_t gpu_blocks : {3U, 4U, 7U, 20U}) {
      SchedulerReplayOptions options = crowded(gpu_blocks);
      options.async_scheduling = is_asynchronous;
      options.max_model_len = gpu_blocks == 20 ? 11 : 0;
      const auto reference = engine_sides().make_reference();
      const SchedulerReplayResult alone = replay_traffic(crowd(), options, *reference, nullptr);
      ASSERT_FALSE(alone.divergence) << alone.divergence->message;

      EXPECT_EQ(figures_of(in_lockstep(crowd(), options)), figures_of(alone))
          << gpu_blocks << " " << is_asynchronous;
    }
  }
}

TEST(SchedulerReplay, ComparesTheStateAfterEveryNthCommand) {
  const auto reference = engine_sides().make_reference();
  for (const std::uint32_t state_every : {1U, 3U}) {
    SchedulerReplayOptions options = crowded();
    options.state_every = state_every;
    std::size_t num_states = 0;
    const auto count = [&](const Command&, kvfence::Observation& observation) {
      num_states += observation.as<Observation>().ref_cnts.has_value() ? 1 : 0;
    };
    Spy spy(engine_sides().make_reference(), count);
    const SchedulerReplayResult result = replay_traffic(crowd(), options, *reference, &spy);

    EXPECT_FALSE(result.divergence) << result.divergence->message;
    EXPECT_GT(result.preemptions, 0U);
    EXPECT_GT(spy.lines.size(), 30U);
    EXPECT_EQ(num_states, spy.lines.size() / state_every);
  }
}

TEST(SchedulerReplay, FindsAPlantedBugAndTheStepInWhichItShows) {
  const auto reference = engine_sides().make_reference();
  const auto planted = engine_sides().make_planted("free_reverses_list");
  ASSERT_TRUE(planted);
  SchedulerReplayOptions options = crowded();
  options.state_every = 1'000;
  const SchedulerReplayResult result = replay_traffic(crowd(), options, *reference, planted.get());

  ASSERT_TRUE(result.divergence);
  EXPECT_EQ(result.divergence->oracle, "lockstep");
  // A preempted request's blocks are freed and taken again within a step.
  EXPECT_EQ(result.divergence->field.substr(0, 14), "cached_reqs[0]");
  EXPECT_LT(result.divergence->step, result.steps + result.idle_steps + 2);
}

SchedulerReplayResult optimized_alone(const std::vector<MooncakeRequest>& requests,
                                      const SchedulerReplayOptions& options) {
  const auto optimized = engine_sides().make_optimized();
  SchedulerReplayResult result = replay_traffic(requests, options, *optimized, nullptr);
  if (result.divergence) ADD_FAILURE() << result.divergence->message;
  return result;
}

TEST(SchedulerReplay, HasTheFiguresOfTheExcerpt) {
  const auto requests = excerpt(kMooncakeBlockTokens);

  const SchedulerReplayResult result = optimized_alone(requests, {});

  EXPECT_EQ(result.completed, 600U);
  EXPECT_EQ(result.output_tokens, 214'274U);
  EXPECT_EQ(result.steps, 8'347U);
  EXPECT_EQ(result.found_tokens, 393'152U);
  EXPECT_EQ(result.preemptions, 8U);
}

TEST(SchedulerReplay, AgreesOnTheExcerptInBlocksOfTheTrace) {
  const auto requests = excerpt(kMooncakeBlockTokens);
  SchedulerReplayOptions options;
  options.block_size = kMooncakeBlockTokens;
  options.requests_max = 100;
  options.gpu_blocks = 300;
  options.enable_kv_cache_events = true;
  options.accepted = {2, 0, 1};
  for (const bool is_asynchronous : {false, true}) {
    for (const std::uint32_t num_drafts : {0U, 2U}) {
      options.async_scheduling = is_asynchronous;
      options.num_speculative_tokens = num_drafts;
      options.profile = is_asynchronous == (num_drafts > 0) ? Profile::kV019 : Profile::kV023;
      const SchedulerReplayResult result = in_lockstep(requests, options);
      EXPECT_EQ(result.completed, 100U);
      EXPECT_GT(result.preemptions, 0U);
    }
  }
}

TEST(SchedulerReplay, HasTheFiguresOfTheWholeTrace) {
  const auto requests = whole_trace(kMooncakeBlockTokens);
  if (!requests) GTEST_SKIP() << kNoWholeTrace;

  const SchedulerReplayResult result = optimized_alone(*requests, {});

  EXPECT_EQ(result.completed, 12'031U);
  EXPECT_EQ(result.steps, 144'808U);
  EXPECT_EQ(result.found_tokens, 7'828'176U);
  EXPECT_EQ(result.preemptions, 46U);
}

}  // namespace
}  // namespace kvfence
