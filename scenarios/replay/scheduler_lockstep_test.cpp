// Goal: a replay through two schedulers in lockstep sees what a scheduler alone would answer, and
// ends where the two part, whatever the replay asked for.
// Method: traffic that preempts and speculates, through the lockstep and through the reference
// directly; an implementation that lies in one place at a time; then a planted bug.

#include "scenarios/replay/scheduler_lockstep.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "reference/scheduler/scheduler.h"
#include "scenarios/replay/replay_test_rig.h"
#include "scenarios/replay/scheduler_replay.h"
#include "scenarios/replay/scheduler_replay_report.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

using Side = std::unique_ptr<Implementation>;

/// Four requests of four to seven tokens and five outputs, the last two with one block in common.
const std::vector<MooncakeRequest>& traffic() {
  static const std::vector<MooncakeRequest> requests = {
      {0, 4, 5, {1}}, {0, 5, 5, {11, 12}}, {0, 6, 5, {21, 22}}, {9, 7, 5, {21, 23}}};
  return requests;
}

/// Blocks of four tokens, six of them for requests: some are preempted.
SchedulerReplayOptions options() {
  SchedulerReplayOptions options;
  options.gpu_blocks = 7;
  options.block_size = 4;
  options.block_tokens = 4;
  options.max_num_batched_tokens = 16;
  options.num_speculative_tokens = 2;
  options.accepted = {0, 1};
  options.enable_kv_cache_events = true;
  return options;
}

SchedulerReplayResult replay(Side actual, const SchedulerReplayOptions& options,
                             std::uint32_t state_every = 1) {
  SchedulersInLockstep sides(engine_sides().make_reference(), std::move(actual),
                             target_config_of(options, traffic()), state_every);
  return replay_traffic(traffic(), options, *config_of(options, traffic()), sides);
}

/// Where a liar was caught.
struct Caught {
  std::string oracle;
  std::string field;
  std::size_t step = 0;
  friend bool operator==(const Caught&, const Caught&) = default;
};

std::ostream& operator<<(std::ostream& out, const Caught& caught) {
  return out << caught.oracle << " " << caught.field << " " << caught.step;
}

/// Whoever lies in the answers to one kind of command.
template <class Asked>
Caught caught_in(std::function<void(Observation&, engine::Observation&)> lie) {
  const auto lies = [&](const Command& command, Observation& observation) {
    if (!std::holds_alternative<Asked>(command.as<engine::Command>())) return;
    lie(observation, observation.numbers.as<engine::Observation>());
  };
  const SchedulerReplayResult result =
      replay(std::make_unique<Spy>(engine_sides().make_reference(), lies), options());
  if (!result.divergence) return {};
  EXPECT_NE(result.divergence->expected, result.divergence->actual);
  return {std::string(result.divergence->oracle), result.divergence->field,
          result.divergence->step};
}

/// All figures but the one that differs from run to run.
std::string figures_of(SchedulerReplayResult result) {
  result.scheduler_seconds = 0;
  return to_json(result) + to_csv(result.samples);
}

TEST(SchedulersInLockstep, AgreeWhereNothingDiffers) {
  const SchedulerReplayResult result = replay(engine_sides().make_reference(), options());

  EXPECT_FALSE(result.divergence) << result.divergence->message;
  EXPECT_EQ(result.completed, 4U);
  EXPECT_GT(result.preemptions, 0U);
  EXPECT_GT(result.found_tokens, 0U);
  EXPECT_GT(result.accepted_draft_tokens, 0U);
}

TEST(SchedulersInLockstep, AnswerAsASchedulerAlone) {
  for (const bool is_asynchronous : {false, true}) {
    for (const std::uint32_t gpu_blocks : {3U, 4U, 7U, 20U}) {
      SchedulerReplayOptions options = kvfence::options();
      options.async_scheduling = is_asynchronous;
      options.gpu_blocks = gpu_blocks;
      options.max_model_len = gpu_blocks == 20 ? 11 : 0;
      const Parsed<SchedulerConfig> config = config_of(options, traffic());
      OneScheduler<reference::Scheduler> one(reference::Scheduler(*config, KVConnectorHandle()));
      const SchedulerReplayResult alone = replay_traffic(traffic(), options, *config, one);
      ASSERT_FALSE(alone.divergence) << alone.divergence->message;

      const SchedulerReplayResult result = replay(engine_sides().make_optimized(), options);

      EXPECT_FALSE(result.divergence) << result.divergence->message;
      EXPECT_EQ(figures_of(result), figures_of(alone)) << gpu_blocks << " " << is_asynchronous;
    }
  }
}

TEST(SchedulersInLockstep, PartWhereverOneLies) {
  using engine::AddRequest;
  using engine::Schedule;
  using engine::Update;
  using engine::UpdateDraftTokenIds;
  using Seen = engine::Observation;
  EXPECT_EQ(caught_in<Schedule>([](auto&, auto&) {}), Caught{});
  EXPECT_EQ(caught_in<AddRequest>([](Observation& o, Seen&) { o.error = ErrorCode::kNoTokens; }),
            (Caught{"lockstep", "error", 0}));
  EXPECT_EQ(caught_in<AddRequest>([](auto&, Seen& seen) { ++seen.num_empty_blocks; }),
            (Caught{"lockstep", "num_empty_blocks", 0}));
  EXPECT_EQ(caught_in<Schedule>(
                [](auto&, Seen& seen) { seen.scheduled.emplace().back().samples ^= true; }),
            (Caught{"lockstep", "scheduled[2].samples", 1}));
  EXPECT_EQ(caught_in<Update>([](auto&, Seen& seen) {
              for (auto& output : seen.outputs.emplace()) output.stop_reason = 1;
            }),
            (Caught{"lockstep", "outputs[0].stop_reason", 1}));
  EXPECT_EQ(caught_in<Update>([](auto&, Seen& seen) { ++seen.ref_cnts.emplace()[6]; }),
            (Caught{"lockstep", "ref_cnts[6]", 1}));
  EXPECT_EQ(caught_in<UpdateDraftTokenIds>(
                [](Observation& o, Seen&) { o.error = ErrorCode::kNotInConfig; }),
            (Caught{"lockstep", "error", 1}));
}

TEST(SchedulersInLockstep, CompareTheStateAfterEveryNthCommand) {
  for (const std::uint32_t state_every : {1U, 3U}) {
    std::size_t num_commands = 0;
    std::size_t num_states = 0;
    const auto count = [&](const Command&, Observation& observation) {
      ++num_commands;
      num_states += observation.numbers.as<engine::Observation>().ref_cnts.has_value() ? 1 : 0;
    };
    const SchedulerReplayResult result = replay(
        std::make_unique<Spy>(engine_sides().make_reference(), count), options(), state_every);

    EXPECT_FALSE(result.divergence) << result.divergence->message;
    EXPECT_GT(num_commands, 30U);
    EXPECT_EQ(num_states, num_commands / state_every);
  }
}

TEST(SchedulersInLockstep, FindAPlantedBug) {
  Side planted = engine_sides().make_planted("free_reverses_list");
  ASSERT_TRUE(planted);
  const SchedulerReplayResult result = replay(std::move(planted), options(), 1'000);

  ASSERT_TRUE(result.divergence);
  // A preempted request's blocks are freed and taken again within a step.
  EXPECT_EQ(result.divergence->field.substr(0, 14), "cached_reqs[0]");
}

}  // namespace
}  // namespace kvfence
