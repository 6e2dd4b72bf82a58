// Goal: the generator draws valid configurations and commands of every shape, from any bytes.
// Method: many configurations and commands from seeds and bytes, without a manager. Laws of every
// target (properties/core/target_laws_prop_test.cpp) test that its text reproduces an episode and
// that its seed determines it.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "contract/core/declare.h"
#include "contract/core/scenario.h"
#include "properties/core/typed_test_support.h"
#include "properties/targets/rooms.h"

namespace kvfence::kv_cache {
namespace {

TEST(KVCacheGenerator, DrawsValidConfigurationsOfEveryShape) {
  std::set<KVCacheSpecKind> kinds;
  std::set<std::size_t> num_groups;
  int num_eagle = 0;
  int num_retaining = 0;
  int num_uncached = 0;
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
    Choices choices = Choices::from_seed(seed);
    const Config config = draw_config(choices);
    const auto setup = KVCacheTarget::prepare(config, {}, {});
    ASSERT_TRUE(setup) << "seed " << seed << ": " << setup.error().to_text();
    for (const KVCacheSpec& spec : config.groups) kinds.insert(spec.kind);
    num_groups.insert(config.groups.size());
    num_eagle += config.use_eagle;
    num_retaining += config.retention_interval.has_value();
    num_uncached += !config.enable_caching;
  }
  EXPECT_EQ(kinds.size(), 6u);
  EXPECT_EQ(num_groups, (std::set<std::size_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_GT(num_eagle, 1000);
  EXPECT_GT(num_retaining, 500);
  EXPECT_GT(num_uncached, 500);
  EXPECT_LT(num_uncached, 4000);
}

/// Commands of an episode without a manager: every observation is empty.
Scenario episode(Choices choices, std::size_t num_commands) {
  const Config config = draw_config(choices);
  Scenario scenario(KVCacheTarget::description());
  scenario.config = kvfence::Config(config);
  const auto generator = generators().make(config, choices);
  World world = fresh_world<KVCacheTarget>(config);
  Observation now;
  for (std::size_t index = 0; index < num_commands && !choices.exhausted(); ++index) {
    const Command command = generator->next(choices, now, world);
    scenario.steps.push_back({kvfence::Command(command)});
    world.apply(command);
  }
  return scenario;
}

TEST(KVCacheGenerator, ReadsAnyBytes) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::vector<std::uint8_t> bytes(300, static_cast<std::uint8_t>(byte));
    const Scenario drawn = episode(Choices::from_bytes(bytes), 200);
    EXPECT_TRUE(prepare(drawn));
  }
}

TEST(KVCacheGenerator, DeclaresEachNameOnce) {
  std::set<std::string> names;
  for (const auto& step : episode(Choices::from_seed(11), 400).steps) {
    const auto* declared = std::get_if<DeclareRequest>(&step.command.as<Command>());
    if (!declared) continue;
    EXPECT_FALSE(declared->tokens.empty());
    names.insert(declared->id);
  }
  EXPECT_GE(names.size(), 2u);
}

}  // namespace
}  // namespace kvfence::kv_cache
