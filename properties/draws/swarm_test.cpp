// Goal: the weights of an episode are usual weights times a factor, or 0, and decide what is drawn.
// Method: check the weights of many seeds; set weights, and count many draws.

#include "properties/draws/swarm.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string_view>
#include <variant>

namespace kvfence {
namespace {

enum class Thing : std::uint8_t { kOften, kSeldom, kNever };
using ThingSwarm = Swarm<Thing, 3>;
constexpr ThingSwarm::UsualWeights kUsual = {
    {{Thing::kOften, 10}, {Thing::kSeldom, 1}, {Thing::kNever, 0}}};
constexpr SwarmHabits kHabits = {{2, 3, 5, 7}, 8};

TEST(Swarm, AWeightIsTheUsualOneTimesAFactorOrNothing) {
  std::set<std::uint32_t> often;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Choices choices = Choices::from_seed(seed);
    const ThingSwarm swarm(kUsual, kHabits, choices);
    often.insert(swarm.weight(Thing::kOften));
    EXPECT_LE(swarm.weight(Thing::kSeldom), 7u);
    EXPECT_EQ(swarm.weight(Thing::kNever), 0u);
  }
  EXPECT_EQ(often, (std::set<std::uint32_t>{0, 20, 30, 50, 70}));
}

TEST(Swarm, BytesDrawAFactorAndWhetherItHappensForEachInOrder) {
  constexpr std::array<std::uint8_t, 4> kBytes = {1, 0, 2, 7};
  Choices choices = Choices::from_bytes(kBytes);
  const ThingSwarm swarm(kUsual, kHabits, choices);
  EXPECT_EQ(swarm.weight(Thing::kOften), 30u);
  EXPECT_EQ(swarm.weight(Thing::kSeldom), 0u);
  EXPECT_TRUE(choices.exhausted());
}

TEST(Swarm, RaisingNeverLowers) {
  Choices choices = Choices::from_bytes({});
  ThingSwarm swarm(kUsual, kHabits, choices);
  EXPECT_EQ(swarm.weight(Thing::kOften), 20u);
  swarm.raise({Thing::kOften});
  EXPECT_EQ(swarm.weight(Thing::kOften), 20u);
  swarm.raise({Thing::kOften}, 3);
  EXPECT_EQ(swarm.weight(Thing::kOften), 30u);
  swarm.set(Thing::kOften, 0);
  swarm.raise({Thing::kOften});
  EXPECT_EQ(swarm.weight(Thing::kOften), 10u);
}

TEST(Swarm, DrawsByWeight) {
  Choices choices = Choices::from_seed(1);
  ThingSwarm swarm(kUsual, kHabits, choices);
  swarm.set(Thing::kOften, 3);
  swarm.set(Thing::kSeldom, 1);
  std::array<int, 3> counts{};
  for (int i = 0; i < 4'000; ++i) ++counts[static_cast<std::size_t>(swarm.draw(choices))];
  EXPECT_NEAR(counts[0], 3'000, 150);
  EXPECT_NEAR(counts[1], 1'000, 150);
  EXPECT_EQ(counts[2], 0);
}

TEST(Swarm, IdleActionsAreMostlyDrawnAgain) {
  Choices choices = Choices::from_seed(1);
  ThingSwarm swarm(kUsual, kHabits, choices);
  swarm.set(Thing::kOften, 1);
  swarm.set(Thing::kSeldom, 1);
  int num_idle = 0;
  for (int i = 0; i < 4'000; ++i) {
    const auto is_idle = [](Thing thing) { return thing == Thing::kOften; };
    if (swarm.draw_unless(is_idle, choices) == Thing::kOften) ++num_idle;
  }
  EXPECT_GT(num_idle, 200);  // 1 in 16 after four draws, and draws that are kept
  EXPECT_LT(num_idle, 600);
}

struct First {
  static constexpr std::string_view kVerb = "first";
};
struct Second {
  static constexpr std::string_view kVerb = "second";
};
using Command = std::variant<First, Second>;
constexpr VerbSwarm<Command>::UsualWeights kVerbs = {{{First::kVerb, 4}, {Second::kVerb, 2}}};

TEST(Swarm, CommandsAreDrawnByTheirVerbs) {
  Choices choices = Choices::from_bytes({});
  const VerbSwarm<Command> swarm(kVerbs, kWildHabits, choices);
  EXPECT_EQ(swarm.weight(First::kVerb), 16u);
  EXPECT_EQ(swarm.weight(Second::kVerb), 8u);
}

}  // namespace
}  // namespace kvfence
