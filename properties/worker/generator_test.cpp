// Goal: a tail ends all that is under way, with every schedule. Method: random episodes on the
// reference, each with a tail.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include <gtest/gtest.h>

#include "contract/worker/worker_target.h"
#include "properties/core/campaign.h"
#include "properties/core/typed_test_support.h"
#include "properties/targets/rooms.h"
#include "scenarios/targets/targets.h"

namespace kvfence::worker {
namespace {

TEST(WorkerGenerator, ATailEndsEverythingUnderWay) {
  constexpr std::size_t kTailMax = 300;
  std::map<Schedule, int> num_tails;  // with something under way
  for (std::uint64_t number = 0; number < 200; ++number) {
    Choices choices = episode_choices(1, number);
    const Config config = draw_config(choices);
    TypedRun<WorkerTarget> run(worker_sides().make_reference(), config);
    const auto generator = generators().make(config, choices);
    Observation now;
    for (int index = 0; index < 40; ++index) {
      now = run.run(generator->next(choices, now, run.world()));
    }
    const bool is_under_way = now.num_deferred + now.num_in_flight > 0;
    std::size_t length = 0;
    for (; length < kTailMax; ++length) {
      const std::optional<Command> command = generator->next_of_tail(now, run.world());
      if (!command) break;
      now = run.run(*command);
    }
    EXPECT_LT(length, kTailMax) << number;
    EXPECT_EQ(now.num_deferred + now.num_in_flight, 0U) << number;
    num_tails[config.schedule] += is_under_way;
  }
  for (const Schedule schedule : {Schedule::kCommanded, Schedule::kEager, Schedule::kLazy,
                                  Schedule::kRandom, Schedule::kPriority}) {
    EXPECT_GT(num_tails[schedule], 0) << to_text(schedule);
  }
}

}  // namespace
}  // namespace kvfence::worker
