// Goal: a replay gives an engine the traffic of the trace, its figures are exact, and it finds what
// no engine may do.
// Method: traces small enough to follow by hand, through the reference and the engine on the
// virtual device in lockstep; an engine whose answers are spoilt; then the committed excerpt, whose
// figures are pinned.

#include "scenarios/replay/engine_replay.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/replay/replay_test_rig.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

using engine::Observation;

/// Blocks of four tokens, each for 128 recorded ones; one request at a time.
EngineReplayOptions tiny(std::uint32_t gpu_blocks) {
  EngineReplayOptions options;
  options.gpu_blocks = gpu_blocks;
  options.cpu_blocks = 8;
  options.block_size = 4;
  options.concurrency = 1;
  options.transfers_a_step = 1;
  options.state_every = 1;
  return options;
}

/// Whole blocks as prompts, and one output token of the toy model.
std::vector<MooncakeRequest> prompts_of(const std::vector<std::vector<std::uint32_t>>& hash_ids) {
  return trace_of(hash_ids, 128);
}

/// Through the reference and the engine on the virtual device; the test fails if they differ.
EngineReplayResult in_lockstep(const std::vector<MooncakeRequest>& requests,
                               const EngineReplayOptions& options) {
  const auto reference = engine_sides().make_reference();
  const auto optimized = engine_sides().make_optimized();
  EngineReplayResult result = replay_traffic(requests, options, *reference, optimized.get());
  if (result.divergence) {
    ADD_FAILURE() << result.divergence->oracle << ": " << result.divergence->message;
  }
  EXPECT_EQ(result.scenario.has_value(), result.divergence.has_value());
  return result;
}

EngineReplayResult alone(Implementation& engine, const std::vector<MooncakeRequest>& requests,
                         const EngineReplayOptions& options) {
  return replay_traffic(requests, options, engine, nullptr);
}

TEST(EngineReplay, FindsAPrefixInGPUMemory) {
  const EngineReplayResult result = in_lockstep(prompts_of({{1, 2}, {1, 2, 3}}), tiny(9));

  EXPECT_EQ(result.completed, 2U);
  const std::vector<ReplayedRequest> expected = {{8, 1, 0, 0, 0}, {12, 1, 8, 0, 0}};
  EXPECT_EQ(result.replayed, expected);
  EXPECT_EQ(result.prompt_tokens, 20U);
  EXPECT_EQ(result.gpu_hit_tokens, 8U);
  EXPECT_EQ(result.stored, (CopiesMade{2, 3}));
  EXPECT_EQ(result.loaded, CopiesMade{});
  EXPECT_EQ(result.steps, 2U);
  EXPECT_EQ(result.peak_referenced, 4U);
}

TEST(EngineReplay, LoadsAPrefixThatTheGPUHasForgotten) {
  // The second request takes all four blocks.
  const EngineReplayResult result =
      in_lockstep(prompts_of({{1, 2, 3}, {11, 12, 13, 14}, {1, 2, 3, 4}}), tiny(5));

  EXPECT_EQ(result.completed, 3U);
  const std::vector<ReplayedRequest> expected = {
      {12, 1, 0, 0, 0}, {16, 1, 0, 0, 0}, {16, 1, 0, 12, 0}};
  EXPECT_EQ(result.replayed, expected);
  EXPECT_EQ(result.cpu_hit_tokens, 12U);
  EXPECT_EQ(result.stored, (CopiesMade{3, 8}));
  EXPECT_EQ(result.loaded, (CopiesMade{1, 3}));
}

TEST(EngineReplay, ScalesWhatIsBegunUp) {
  const MooncakeRequest request{7, 513, 129, {1, 2}};

  EXPECT_EQ(in_toy_tokens(request, 4), (MooncakeRequest{7, 5, 2, {1, 2}}));
  EXPECT_EQ(in_toy_tokens(request, 16), (MooncakeRequest{7, 17, 5, {1, 2}}));
}

TEST(EngineReplay, CountsWhatIsRefusedAndWhatNeverFits) {
  std::vector<MooncakeRequest> requests = prompts_of({{1}, {1, 2, 3, 4, 5}, {1}});
  requests[0].input_length = 0;
  requests[0].hash_ids.clear();

  const EngineReplayResult result = in_lockstep(requests, tiny(5));

  EXPECT_EQ(result.refused, 1U);
  EXPECT_EQ(result.never_fit, 1U);
  EXPECT_EQ(result.completed, 1U);
}

TEST(EngineReplay, ManyRequestsInARowThatNeverFitAreNoStandstill) {
  const std::vector<std::vector<std::uint32_t>> ids(20, {1, 2, 3, 4, 5});

  const EngineReplayResult result = in_lockstep(prompts_of(ids), tiny(5));

  EXPECT_EQ(result.never_fit, 20U);
}

TEST(EngineReplay, ReplaysTheFirstRequestsOnlyAndReportsItsProgress) {
  EngineReplayOptions options = tiny(9);
  options.requests_max = 2;
  const auto optimized = engine_sides().make_optimized();
  std::size_t done = 0;

  const EngineReplayResult result = replay_traffic(prompts_of({{1}, {2}, {3}}), options, *optimized,
                                                   nullptr, [&](std::size_t number, std::size_t) {
                                                     EXPECT_GE(number, done);
                                                     done = number;
                                                   });

  EXPECT_FALSE(result.divergence);
  EXPECT_EQ(result.requests, 2U);
  EXPECT_EQ(done, 2U);
}

TEST(EngineReplay, ValidatesItsOptions) {
  const auto requests = prompts_of({{1}});
  EXPECT_FALSE(validate(EngineReplayOptions{}, requests));
  const std::vector<EngineReplayOptions> wrong = {
      {.gpu_blocks = 0},       {.gpu_blocks = 4097}, {.cpu_blocks = 0},
      {.block_size = 33},      {.concurrency = 0},   {.max_num_batched_tokens = 0},
      {.transfers_a_step = 0}, {.state_every = 0}};
  for (const EngineReplayOptions& options : wrong) EXPECT_TRUE(validate(options, requests));
}

using Spoil = std::function<void(const engine::Command&, Observation&)>;

/// The field that a replay reports for an engine that runs alone with changed answers, or "none".
std::string found_in(const Spoil& spoil) {
  Spy engine(engine_sides().make_reference(),
             [&](const Command& command, kvfence::Observation& observation) {
               spoil(command.as<engine::Command>(), observation.as<Observation>());
             });
  const EngineReplayResult result = alone(engine, prompts_of({{1, 2}, {1, 2, 3}}), tiny(9));
  EXPECT_FALSE(result.scenario);
  if (!result.divergence) return "none";
  EXPECT_EQ(result.divergence->oracle, "traffic");
  return result.divergence->field;
}

/// Changes the outputs of an update.
Spoil in_outputs(std::function<void(engine::RequestOutput&)> change) {
  return [change = std::move(change)](const engine::Command&, Observation& seen) {
    if (!seen.outputs.has_value()) return;
    std::vector<engine::RequestOutput> outputs = *seen.outputs;
    for (engine::RequestOutput& output : outputs) change(output);
    seen.outputs.emplace() = outputs;
  };
}

TEST(EngineReplay, ReportsWhatNoEngineMayDo) {
  const auto after_drain = [](const engine::Command& command) {
    return std::holds_alternative<engine::Drain>(command);
  };
  EXPECT_EQ(found_in([](auto&, auto&) {}), "none");
  EXPECT_EQ(found_in([](auto&, Observation& seen) { seen.error = ErrorCode::kBadRange; }), "error");
  EXPECT_EQ(found_in([](auto&, Observation& seen) { seen.num_races.emplace() = 1; }), "num_races");
  EXPECT_EQ(found_in([](auto&, Observation& seen) { seen.num_misuses.emplace() = 1; }),
            "num_misuses");
  EXPECT_EQ(found_in(in_outputs([](auto& output) { ++output.tokens.front(); })), "outputs");
  EXPECT_EQ(found_in(in_outputs([](auto& output) { output.tokens.clear(); })), "outputs");
  EXPECT_EQ(found_in(in_outputs([](auto& output) { output.status = RequestStatus::kRunning; })),
            "requests");
  EXPECT_EQ(found_in([](auto&, Observation& seen) { ++seen.num_unfinished; }), "num_unfinished");
  EXPECT_EQ(found_in([&](const engine::Command& command, Observation& seen) {
              if (after_drain(command)) ++seen.num_referenced_blocks;
            }),
            "num_referenced_blocks");
}

TEST(EngineReplay, KeepsTheCommandsThatLeadToADivergence) {
  const auto reference = engine_sides().make_reference();
  const auto planted = engine_sides().make_planted("store_ignores_compute");

  const EngineReplayResult result =
      replay_traffic(prompts_of({{1, 2}}), tiny(9), *reference, planted.get());

  ASSERT_TRUE(result.divergence);
  ASSERT_TRUE(result.scenario);
  EXPECT_EQ(result.scenario->steps.size(), result.divergence->step + 1);
}

TEST(EngineReplayOfTheExcerpt, HasTheOutputOfARunWithoutACache) {
  const EngineReplayResult result = in_lockstep(excerpt(kMooncakeBlockTokens), {});

  EXPECT_EQ(result.completed, 600U);
  EXPECT_EQ(result.prompt_tokens, 259'465U);
  EXPECT_EQ(result.output_tokens, 6'996U);
  EXPECT_EQ(result.gpu_hit_tokens, 9'584U);
  EXPECT_EQ(result.cpu_hit_tokens, 11'504U);
  EXPECT_EQ(result.stored, (CopiesMade{1'349, 15'021}));
  EXPECT_EQ(result.loaded, (CopiesMade{39, 722}));
  EXPECT_EQ(result.preemptions, 2U);
}

TEST(EngineReplayOfTheExcerpt, RunsAheadAndFlushesUnderTheLaterRules) {
  EngineReplayOptions options;
  options.profile = Profile::kV023;
  options.async_scheduling = true;
  options.block_size = 4;
  options.gpu_blocks = 300;
  options.requests_max = 200;

  const EngineReplayResult result = in_lockstep(excerpt(kMooncakeBlockTokens), options);

  EXPECT_EQ(result.completed, 200U);
  EXPECT_GT(result.gpu_hit_tokens, 0U);
  EXPECT_GT(result.cpu_hit_tokens, 0U);
  EXPECT_GT(result.loaded.blocks, 0U);
  EXPECT_GT(result.preemptions, 0U);
}

}  // namespace
}  // namespace kvfence
