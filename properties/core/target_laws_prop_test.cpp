// Laws of every target: what its declarations and its contract promise to the harness.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/line.h"
#include "contract/core/scenario.h"
#include "properties/core/campaign.h"
#include "properties/core/left_behind_test_support.h"
#include "properties/core/prop_test_support.h"

namespace kvfence {
namespace {

/// An episode as a campaign draws it: a hundred of them reach every command.
Wanderer wander_far(const Side& side) {
  Choices choices = episode_choices(draw_seed(), 0);
  return wander(side, choices, [](const Wanderer& now) { return now.history.size() < 200; });
}

class TargetLaws : public ::testing::TestWithParam<Side> {};
INSTANTIATE_TEST_SUITE_P(Every, TargetLaws, ::testing::ValuesIn(both_sides_of_every_part()),
                         name_of_side);

/// The laws of text do not depend on the side. The parts of a target together draw all commands.
class TextLaws : public ::testing::TestWithParam<const TargetSides*> {};
INSTANTIATE_TEST_SUITE_P(Every, TextLaws, ::testing::ValuesIn(all_targets()), name_of_target);

TEST_P(TargetLaws, RefusedCommandsChangeNothing) {
  int num_refused = 0;
  const auto has_refused = [&] { return num_refused > 0; };
  EXPECT_TRUE(holds("a history without its refused commands ends the same", has_refused, [&] {
    const Wanderer wanderer = wander(GetParam());
    Session without(GetParam().make(), wanderer.setup);
    for (std::size_t index = 0; index < wanderer.history.size(); ++index) {
      const Command& command = wanderer.history[index];
      const bool is_refused = shown_error(wanderer.shown[index]) != ErrorCode::kNone;
      num_refused += is_refused;
      RC_LOG() << print(to_line(command)) << (is_refused ? "  # refused\n" : "\n");
      if (!is_refused) {
        RC_ASSERT((without.run(command) == wanderer.shown[index]));
      } else if (const auto left = left_behind(command)) {
        without.run(*left);
      } else {
        without.only_declare(command);  // later commands may name the tokens of a refused request
      }
    }
    const Command harmless = harmless_command(GetParam().target());
    RC_ASSERT((without.run(harmless) == wanderer.session->run(harmless)));
  }));
  EXPECT_GT(num_refused, 0);
}

TEST_P(TextLaws, TextRoundTripsEveryCommandConfigAndObservation) {
  const Target& target = GetParam()->target();
  std::map<std::string_view, int> num_drawn;
  const auto round_trips = [&](const Side& side) {
    const Wanderer wanderer = wander_far(side);
    const Parsed<Line> line = parse_line(print(config_line(wanderer.setup.config())));
    RC_ASSERT(static_cast<bool>(line));
    const Parsed<Config> config = config_from_line(target, *line);
    RC_ASSERT(static_cast<bool>(config));
    RC_ASSERT((*config == wanderer.setup.config()));
    for (std::size_t index = 0; index < wanderer.history.size(); ++index) {
      const Command& command = wanderer.history[index];
      Line written = to_line(command);
      ++num_drawn[command.declared().type().verb];
      // Observations with their states are long: one in twenty.
      const bool has_answer = index % 20 == 0;
      if (has_answer) written.expectation = fields_of(wanderer.shown[index].declared());
      const Parsed<Line> read = parse_line(print(written));
      RC_ASSERT(static_cast<bool>(read));
      RC_ASSERT((*read == written));
      const Parsed<Command> parsed = command_from_line(target, *read);
      RC_ASSERT(static_cast<bool>(parsed));
      RC_ASSERT((*parsed == command));
      if (!has_answer) continue;
      Observation observation = default_observation(target);
      for (const Field& field : *read->expectation) {
        std::string expected;
        RC_ASSERT(find_member(observation.declared(), field.key)->assign(field.value, expected));
      }
      RC_ASSERT(fields_of(observation.declared()) == fields_of(wanderer.shown[index].declared()));
    }
  };
  const auto has_drawn_all = [&] {
    return std::ranges::all_of(target.commands, [&](const CommandType& type) {
      return num_drawn[type.declared->verb] > 0;
    });
  };
  EXPECT_TRUE(holds("parse(print(x)) == x", has_drawn_all, [&] {
    for (const CheckedPart* part : every_part()) {
      if (part->sides == GetParam()) round_trips(optimized_side(*part));
    }
  }));
  for (const CommandType& type : target.commands) {
    EXPECT_GT(num_drawn[type.declared->verb], 0) << type.declared->verb << " was never drawn";
  }
}

TEST_P(TargetLaws, EpisodesAreDecidedByTheirSeed) {
  EXPECT_TRUE(holds("the same seed draws and shows the same", [&] {
    const std::uint64_t seed = draw_seed();
    const auto run = [&] {
      Choices choices = episode_choices(seed, 0);
      const kvfence::Setup setup = *draw_setup(GetParam().checks(), choices);
      Session session(GetParam().make(), setup);
      const std::unique_ptr<Generator> generator =
          GetParam().checks().make_generator(setup, choices);
      std::pair<std::vector<Command>, std::vector<Observation>> episode;
      for (int count = 0; count < 50; ++count) {
        episode.first.push_back(generator->next_command(choices, session.now(), session.world()));
        episode.second.push_back(session.run(episode.first.back()));
      }
      return episode;
    };
    RC_ASSERT((run() == run()));
  }));
}

}  // namespace
}  // namespace kvfence
