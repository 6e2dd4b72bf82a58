// Goal: each rule sees what breaks it, and nothing else. Method: a life of a MultiConnector over
// two real connectors, recorded from the reference; then the same with one lie told about what was
// observed.

#include "properties/engine/multi/rules.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "contract/engine/engine_target.h"
#include "properties/core/typed_test_support.h"
#include "scenarios/targets/targets.h"

namespace kvfence::engine::multi {
namespace {

Config config_of_two() {
  Config config;
  make_assembly(Assembly::kMulti, config);
  config.profile = "v0.23";
  config.num_gpu_blocks = 9;
  config.hash_block_size = 2;
  config.groups = {KVCacheSpec{.block_size = 2}};
  return config;
}

struct Moment {
  Command command;
  Observation shown;
};

/// One request that is stored by both children, and ends.
std::vector<Moment> life() {
  AddRequest added;
  added.id = "A";
  added.tokens = {1, 2, 3, 4, 5};
  added.max_tokens = 2;
  std::vector<Command> commands = {added, Schedule{}, Update{}, Schedule{}, Update{}};
  for (int step = 0; step < 3; ++step) {
    commands.insert(commands.end(), {simple::AdvanceCopy{.store = true},
                                     offloading::AdvanceTransfer{.job = 0}, Schedule{}, Update{}});
  }
  commands.emplace_back(Drain{});  // of a device, which is not there
  TypedRun<EngineTarget> run(engine_sides().make_reference(), config_of_two());
  std::vector<Moment> moments;
  for (const Command& command : commands) moments.push_back({command, run.run(command)});
  return moments;
}

using Lie = std::function<void(Observation&)>;

/// What sees it when a lie is told about the moment of that place; empty: nothing.
std::string seen_by(std::size_t place, const Lie& lie) {
  const Invariants rules(setup_of<EngineTarget>(config_of_two()));
  std::vector<Moment> moments = life();
  if (lie) lie(moments[place].shown);
  World world = fresh_world<EngineTarget>(config_of_two());
  for (std::size_t step = 0; step < moments.size(); ++step) {
    world.apply(moments[step].command);
    const auto found = rules.check(moments[step].command, moments[step].shown, world, step);
    if (!found) continue;
    EXPECT_EQ(found->step, place);
    return found->oracle;
  }
  return "";
}

constexpr std::size_t kScheduled = 1;
constexpr std::size_t kLast = 16;
constexpr std::size_t kDrain = 17;

TEST(MultiRules, SeeNothingInARightLife) {
  EXPECT_EQ(seen_by(0, {}), "");
  const std::vector<Moment> moments = life();
  ASSERT_EQ(moments.size(), kDrain + 1);
  EXPECT_TRUE(moments[kLast].shown.requests->empty());
  EXPECT_TRUE(moments[kLast].shown.transfers->empty());
}

TEST(MultiRules, SeeEachLie) {
  struct Told {
    std::string_view rule;
    std::size_t place;
    Lie lie;
  };
  const std::vector<Told> lies = {
      {"what_is_not_there_is_refused", kDrain,
       [](Observation& shown) { shown.error = ErrorCode::kNone; }},
      {"blocks_add_up", kScheduled, [](Observation& shown) { ++shown.num_empty_blocks; }},
      {"queue_holds_the_unreferenced", kScheduled,
       [](Observation& shown) {
         std::vector<BlockId> queue = *shown.free_queue;
         queue.pop_back();
         shown.free_queue.emplace() = queue;
       }},
      {"tables_are_referenced", kScheduled,
       [](Observation& shown) {
         std::vector<RequestBlocks> tables = *shown.tables;
         std::vector<BlockId>& blocks = tables.front().blocks.front();
         blocks.push_back(blocks.front());
         shown.tables.emplace() = tables;
       }},
      {"a_request_has_one_place", kScheduled,
       [](Observation& shown) { shown.waiting.emplace() = {"A"}; }},
      {"slots_add_up", kScheduled,
       [](Observation& shown) { shown.num_free_slots.emplace() = 100; }},
      {"cpu_blocks_add_up", kScheduled,
       [](Observation& shown) { shown.num_cached_cpu_blocks.emplace() = 100; }},
      {"nothing_is_held_at_rest", kLast,
       [](Observation& shown) {
         --shown.num_empty_blocks;
         ++shown.num_referenced_blocks;
       }},
  };
  ASSERT_EQ(lies.size(), kInvariants.size());
  for (const Told& told : lies) EXPECT_EQ(seen_by(told.place, told.lie), told.rule);
}

}  // namespace
}  // namespace kvfence::engine::multi
