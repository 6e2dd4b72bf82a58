// Goal: for any bytes the generator's draws are valid, and they have every shape. Method: many
// configurations and commands from seeds and bytes, without a scheduler. That an episode's text
// restores it and its seed decides it are laws of every target
// (properties/core/target_laws_prop_test.cpp).

#include "properties/engine/rooms.h"

#include <array>
#include <cstdint>
#include <set>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "contract/core/declare.h"
#include "contract/core/scenario.h"
#include "contract/engine/engine_setup.h"
#include "properties/core/typed_test_support.h"

namespace kvfence::engine::scheduler {
namespace {

TEST(SchedulerGenerator, DrawsValidConfigurationsOfEveryShape) {
  std::set<KVCacheSpecKind> kinds;
  std::set<std::size_t> num_groups;
  std::set<Profile> profiles;
  std::set<SchedulingPolicy> policies;
  std::set<std::uint32_t> num_speculative;
  int num_connectors = 0;
  int num_async = 0;
  int num_ahead = 0;
  int num_eagle = 0;
  int num_draft_models = 0;
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
    Choices choices = Choices::from_seed(seed);
    const Config config = draw_config(choices);
    const auto setup = EngineTarget::prepare(config, {}, {});
    ASSERT_TRUE(setup) << "seed " << seed << ": " << setup.error().to_text();
    for (const KVCacheSpec& spec : config.groups) kinds.insert(spec.kind);
    num_groups.insert(config.groups.size());
    profiles.insert(config.profile);
    policies.insert(config.policy);
    num_speculative.insert(config.num_speculative_tokens);
    num_connectors += config.has_connector();
    num_async += config.async_scheduling;
    num_ahead += config.max_concurrent_batches == 2;
    num_eagle += config.use_eagle;
    num_draft_models += config.draft_model;
  }
  EXPECT_EQ(kinds.size(), 5u);
  EXPECT_EQ(kinds.count(KVCacheSpecKind::kCrossAttention), 0u);
  EXPECT_EQ(num_groups, (std::set<std::size_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(profiles, (std::set{Profile::kV019, Profile::kV023}));
  EXPECT_EQ(policies, (std::set{SchedulingPolicy::kFCFS, SchedulingPolicy::kPriority}));
  EXPECT_EQ(num_speculative, (std::set<std::uint32_t>{0, 1, 2, 3}));
  EXPECT_GT(num_connectors, 3000);
  EXPECT_GT(num_async, 2000);
  EXPECT_GT(num_ahead, 3000);
  EXPECT_GT(num_eagle, 1000);
  EXPECT_GT(num_draft_models, 500);
}

/// Commands of an episode without a scheduler: every observation is empty, without an error.
Scenario episode(Choices choices, std::size_t num_commands) {
  const Config config = draw_config(choices);
  Scenario scenario(EngineTarget::description());
  scenario.config = kvfence::Config(config);
  const auto generator = make_generator(config, choices, draws_of(config, choices));
  World world = fresh_world<EngineTarget>(config);
  Observation now;
  for (std::size_t index = 0; index < num_commands && !choices.exhausted(); ++index) {
    const Command command = generator->next(choices, now, world);
    scenario.steps.push_back({kvfence::Command(command)});
    world.apply(command);
  }
  return scenario;
}

TEST(SchedulerGenerator, ReadsAnyBytes) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::vector<std::uint8_t> bytes(300, static_cast<std::uint8_t>(byte));
    const Scenario drawn = episode(Choices::from_bytes(bytes), 200);
    EXPECT_TRUE(prepare(drawn));
  }
}

TEST(SchedulerGenerator, BendsNothingOfOtherAssemblies) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    for (const auto& step : episode(Choices::from_seed(seed), 400).steps) {
      const auto& command = step.command.as<Command>();
      std::visit(
          [](const auto& each) {
            if constexpr (requires { each.engine; }) {
              EXPECT_EQ(each.engine, EngineRole::kProducer);
            }
          },
          command);
      const auto* added = std::get_if<AddRequest>(&command);
      if (!added) continue;
      EXPECT_FALSE(added->max_offload_tokens);
      EXPECT_FALSE(added->do_remote_decode);
    }
  }
}

TEST(SchedulerGenerator, UpdatesFollowSchedules) {
  std::array<int, 2> counts{};
  for (std::uint64_t seed = 1; seed <= 32; ++seed) {
    int in_flight = 0;
    const Scenario drawn = episode(Choices::from_seed(seed), 400);
    for (const auto& step : drawn.steps) {
      const auto& command = step.command.as<Command>();
      const bool is_schedule = std::holds_alternative<Schedule>(command);
      const bool is_update = std::holds_alternative<Update>(command);
      in_flight += is_schedule - is_update;
      counts[0] += is_schedule;
      counts[1] += is_update;
    }
    EXPECT_LE(std::abs(in_flight), 20) << "seed " << seed << ", except the bent ones";
  }
  EXPECT_GT(counts[0], 32 * 50);
  EXPECT_GT(counts[1], 32 * 50);
}

}  // namespace
}  // namespace kvfence::engine::scheduler
