// Laws that hold of every target: what its declarations and its contract promise to the harness.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "contract/core/line.h"
#include "contract/core/scenario.h"
#include "properties/core/campaign.h"
#include "properties/core/prop_test_support.h"

namespace kvfence {
namespace {

/// What a refused command leaves behind. A lookup that it begins with is an operation of its own,
/// which the statistics count.
std::optional<kv_cache::Command> left_behind(const kv_cache::Command& refused) {
  if (const auto* asked = std::get_if<kv_cache::CanFitFullSequence>(&refused)) {
    if (asked->from_cache) return kv_cache::GetComputedBlocks{asked->request};
  } else if (const auto* slots = std::get_if<kv_cache::AllocateSlots>(&refused)) {
    if (slots->from_cache) return kv_cache::GetComputedBlocks{slots->request, slots->was_preempted};
  }
  return std::nullopt;
}
/// The poll that it begins with, which an empty load begins with, too.
std::optional<tiering::Command> left_behind(const tiering::Command& refused) {
  if (std::holds_alternative<tiering::PrepareLoad>(refused) ||
      std::holds_alternative<tiering::PrepareStore>(refused)) {
    return tiering::PrepareLoad{};
  }
  return std::nullopt;
}
template <class Command>
std::optional<Command> left_behind(const Command&) {
  return std::nullopt;
}

template <class Side>
class TargetLaws : public ::testing::Test {};
TYPED_TEST_SUITE(TargetLaws, BothSidesOfEveryTarget, );

/// Which side says it does not matter to text.
template <class Side>
class TextLaws : public ::testing::Test {};
TYPED_TEST_SUITE(TextLaws, OptimizedSideOfEveryTarget, );

TYPED_TEST(TargetLaws, RefusedCommandsChangeNothing) {
  using Target = typename TypeParam::Target;
  int num_refused = 0;
  EXPECT_TRUE(holds("a history ends alike without its refused commands", [&] {
    const auto wanderer = wander<TypeParam>();
    Session<Target> without(TypeParam::make(), wanderer.config);
    for (std::size_t index = 0; index < wanderer.history.size(); ++index) {
      const auto& command = wanderer.history[index];
      const bool is_refused = wanderer.shown[index].error != ErrorCode::kNone;
      num_refused += is_refused;
      RC_LOG() << print(to_line(command)) << (is_refused ? "  # refused\n" : "\n");
      if (!is_refused) {
        RC_ASSERT((without.run(command) == wanderer.shown[index]));
      } else if (const auto left = left_behind(command)) {
        without.run(*left);
      }
    }
    RC_ASSERT(without.run(harmless_command<Target>()) ==
              wanderer.session->run(harmless_command<Target>()));
  }));
  EXPECT_GT(num_refused, 0);
}

TYPED_TEST(TextLaws, TextRoundTripsEveryCommandConfigAndObservation) {
  using Target = typename TypeParam::Target;
  using Command = typename Target::Command;
  using Observation = typename Target::Observation;
  std::array<int, std::variant_size_v<Command>> num_drawn{};
  EXPECT_TRUE(holds("parse(print(x)) == x", [&] {
    const auto wanderer = wander<TypeParam>();
    const Parsed<Line> line = parse_line(print(config_line<Target>(wanderer.config)));
    RC_ASSERT(static_cast<bool>(line));
    const auto config = config_from_line<Target>(*line);
    RC_ASSERT(static_cast<bool>(config));
    RC_ASSERT((*config == wanderer.config));
    for (std::size_t index = 0; index < wanderer.history.size(); ++index) {
      const Command& command = wanderer.history[index];
      ++num_drawn[command.index()];
      Line written = to_line(command);
      written.expectation = to_fields(wanderer.shown[index]);
      const Parsed<Line> read = parse_line(print(written));
      RC_ASSERT(static_cast<bool>(read));
      RC_ASSERT((*read == written));
      const Parsed<Command> parsed = command_from_line<Command>(*read);
      RC_ASSERT(static_cast<bool>(parsed));
      RC_ASSERT((*parsed == command));
      const Parsed<Observation> observation = from_fields<Observation>(
          *read->expectation, "observation", {}, {}, /*require_all=*/false);
      RC_ASSERT(static_cast<bool>(observation));
      RC_ASSERT((*observation == wanderer.shown[index]));
    }
  }));
  for (std::size_t index = 0; index < num_drawn.size(); ++index) {
    EXPECT_GT(num_drawn[index], 0) << "command " << index << " was never drawn";
  }
}

TYPED_TEST(TargetLaws, EpisodesAreDecidedByTheirSeed) {
  using Target = typename TypeParam::Target;
  EXPECT_TRUE(holds("the same seed draws and shows the same", [] {
    const std::uint64_t seed = draw_seed();
    const auto run = [seed] {
      using Generator = typename Checks<Target>::Generator;
      Choices choices = episode_choices(seed, 0);
      const auto config = Generator::draw_config(choices);
      Session<Target> session(TypeParam::make(), config);
      Generator generator(config, choices);
      std::pair<std::vector<typename Target::Command>, std::vector<typename Target::Observation>>
          episode;
      for (int count = 0; count < 50; ++count) {
        episode.first.push_back(generator.next(choices, session.now(), session.world()));
        episode.second.push_back(session.run(episode.first.back()));
      }
      return episode;
    };
    RC_ASSERT((run() == run()));
  }));
}

}  // namespace
}  // namespace kvfence
