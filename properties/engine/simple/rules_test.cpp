// Goal: each invariant of engines with a SimpleCPUOffloadConnector catches its kind of mistake.
// Method: true episodes of the reference, and in each a lie: one observation is changed as a
// mistake of that kind would change it. The invariant under test has to catch the lie in some
// episode.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/rules_test_support.h"
#include "properties/core/typed_test_support.h"
#include "properties/engine/checks.h"
#include "properties/planted/false_observations_test_support.h"
#include "scenarios/targets/targets.h"

namespace kvfence::engine::simple {
namespace {

void expect_caught(std::string_view id, const Lie<EngineTarget>& lie) {
  const auto side = engine_sides().make_reference();
  expect_lie_caught<EngineTarget>(room_checks(Assembly::kSimple), *side, rules().rows, id,
                                  /*commands_after=*/40, lie);
}

bool plans(const Command& command, const Observation& shown) {
  return std::holds_alternative<Schedule>(command) && shown.error == ErrorCode::kNone;
}

bool comes_back(const Command& command, const Observation& shown) {
  return std::holds_alternative<Update>(command) && shown.error == ErrorCode::kNone;
}

bool plans_store(const Command& command, const Observation& shown) {
  return plans(command, shown) && shown.store_event.has_value();
}

bool plans_load(const Command& command, const Observation& shown) {
  return plans(command, shown) && shown.load_event.has_value();
}

/// The workers get the first two blocks of a new request in the wrong order.
void expect_lie_about_swapped_blocks(std::string_view id, bool with_hit) {
  expect_caught(id, [=](const Command& command, const Config&, Observation& shown) {
    if (!plans(command, shown)) return false;
    for (ScheduledNew& each : in(shown.new_reqs)) {
      if ((each.num_computed_tokens > 0) != with_hit || each.blocks.front().size() < 2) continue;
      std::swap(each.blocks.front()[0], each.blocks.front()[1]);
      return true;
    }
    return false;
  });
}

TEST(SimpleOffloadInvariants, AreNumberedAndNamedOnce) {
  expect_numbered_and_named_once(rules().rows, "simple.");
}

TEST(SimpleOffloadInvariants, GpuHoldsAreExplained) {
  expect_caught("simple.1", [](const Command& command, const Config&, Observation& shown) {
    if (!plans_store(command, shown)) return false;
    --in(shown.ref_cnts)[in(shown.store_gpu_blocks).front()];
    return true;
  });
}

TEST(SimpleOffloadInvariants, CpuHoldsAreExplained) {
  expect_caught("simple.2", [](const Command& command, const Config&, Observation& shown) {
    if (!plans_load(command, shown)) return false;
    --in(shown.cpu.ref_cnts)[in(shown.load_cpu_blocks).front()];
    return true;
  });
  expect_caught("simple.2", [](const Command&, const Config&, Observation& shown) {
    in(shown.pins).emplace_back().request = "nobody";
    return true;
  });
}

TEST(SimpleOffloadInvariants, CpuNumbersAddUp) {
  expect_caught("simple.3", [](const Command& command, const Config&, Observation& shown) {
    if (!plans(command, shown) || in(shown.num_empty_cpu_blocks) == 0) return false;
    --in(shown.num_empty_cpu_blocks);
    ++in(shown.num_cached_cpu_blocks);
    return true;
  });
  expect_caught("simple.3", [](const Command& command, const Config&, Observation& shown) {
    if (!plans(command, shown) || in(shown.cpu.free_queue).size() < 2) return false;
    in(shown.cpu.free_queue).front() = in(shown.cpu.free_queue).back();
    return true;
  });
}

TEST(SimpleOffloadInvariants, ABlockBeingWrittenHasNoKey) {
  expect_caught("simple.4", [](const Command& command, const Config&, Observation& shown) {
    if (!plans_store(command, shown)) return false;
    in(shown.cpu.keys)[in(shown.store_cpu_blocks).front()] =
        in(shown.keys)[in(shown.store_gpu_blocks).front()];
    return true;
  });
}

TEST(SimpleOffloadInvariants, WhatIsHeldKeepsItsKey) {
  expect_caught("simple.5", [](const Command&, const Config&, Observation& shown) {
    if (in(shown.pins).empty()) return false;
    in(shown.cpu.keys)[in(shown.pins).front().cpu_blocks.front()].clear();
    return true;
  });
}

TEST(SimpleOffloadInvariants, ACpuBlockHoldsItsKey) {
  expect_caught("simple.6", [](const Command& command, const Config&, Observation& shown) {
    if (!plans_store(command, shown) || in(shown.store_cpu_blocks).size() < 2) return false;
    std::swap(in(shown.store_cpu_blocks).front(), in(shown.store_cpu_blocks).back());
    return true;
  });
}

TEST(SimpleOffloadInvariants, CopiesCarryWhatTheyName) {
  expect_lie_about_swapped_blocks("simple.7", /*with_hit=*/false);
  expect_caught("simple.7", [](const Command& command, const Config&, Observation& shown) {
    if (!plans_load(command, shown) || in(shown.load_gpu_blocks).size() < 2) return false;
    std::swap(in(shown.load_gpu_blocks).front(), in(shown.load_gpu_blocks).back());
    return true;
  });
  expect_caught("simple.7", [](const Command& command, const Config&, Observation& shown) {
    if (!plans_store(command, shown)) return false;
    in(shown.store_gpu_blocks).front() = kNullBlockId;
    return true;
  });
}

TEST(SimpleOffloadInvariants, AStepReadsItsOwn) {
  expect_lie_about_swapped_blocks("simple.8", /*with_hit=*/true);
}

TEST(SimpleOffloadInvariants, NoReuseUnderACopy) {
  std::vector<BlockId> earlier;
  expect_caught("simple.9", [&](const Command& command, const Config&, Observation& shown) {
    if (!plans(command, shown)) return false;
    const bool lies = !earlier.empty() && earlier.front() < in(shown.ref_cnts).size();
    if (lies) in(shown.new_block_ids).push_back(earlier.front());
    earlier.clear();
    if (!lies && shown.store_event.has_value()) earlier = in(shown.store_gpu_blocks);
    return lies;
  });
}

TEST(SimpleOffloadInvariants, WorkersDoWhatWasPlanned) {
  // Reported twice.
  expect_caught("simple.10", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.finished_recving).empty()) return false;
    in(shown.finished_recving).push_back(std::string(in(shown.finished_recving).front()));
    return true;
  });
  expect_caught("simple.10", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.completed_jobs).empty()) return false;
    ++in(shown.completed_jobs).front().num_workers;
    return true;
  });
  // A copy under way after a flush.
  std::deque<bool> flushes;
  expect_caught("simple.10", [&](const Command& command, const Config&, Observation& shown) {
    if (plans(command, shown)) flushes.push_back(in(shown.need_flush));
    if (!comes_back(command, shown) || flushes.empty()) return false;
    const bool flushes_now = flushes.front();
    flushes.pop_front();
    if (flushes_now) in(shown.copies).emplace_back().event = 99;
    return flushes_now;
  });
  // A copy that the step does not name.
  expect_caught("simple.10", [](const Command& command, const Config&, Observation& shown) {
    if (!std::holds_alternative<AdvanceCopy>(command) || shown.error != ErrorCode::kUnknownJob) {
      return false;
    }
    shown.error = ErrorCode::kNone;
    return true;
  });
}

TEST(SimpleOffloadInvariants, AResetLeavesNothing) {
  expect_caught("simple.11", [](const Command& command, const Config&, Observation& shown) {
    const auto* reset = std::get_if<ResetPrefixCache>(&command);
    if (!reset || !reset->reset_connector || shown.error != ErrorCode::kNone) return false;
    shown.success.emplace() = true;
    return true;
  });
}

TEST(SimpleOffloadInvariants, ALoadingRequestHasALoad) {
  expect_caught("simple.12", [](const Command& command, const Config&, Observation& shown) {
    for (RequestState& state : in(shown.requests)) {
      if (!plans(command, shown) || state.status != RequestStatus::kWaiting) continue;
      state.status = RequestStatus::kWaitingForRemoteKVs;
      return true;
    }
    return false;
  });
}

/// A store whose end is not reported: its copy goes on, but the rules get a command that ends it.
TEST(SimpleOffloadInvariants, WhatHasEndedIsReported) {
  Config config;
  config.profile = Profile::kV023;
  config.num_gpu_blocks = 8;
  make_assembly(Assembly::kSimple, config);
  config.edit_connector<Record>().num_cpu_blocks = 4;
  AddRequest add;
  add.id = "A";
  add.tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  add.max_tokens = 2;
  AdvanceCopy advance;
  advance.store = true;
  TypedRun<EngineTarget> side(engine_sides().make_reference(), config);
  const auto rules = simple::rules().make(setup_of<EngineTarget>(config));
  std::string oracle;
  std::optional<Observation> before;
  const auto check = [&](const Command& command, const Observation& shown) {
    const auto found = rules->check(command, before ? &*before : nullptr, shown, side.world());
    before = shown;
    if (found) oracle = found->oracle;
  };
  check(add, side.run(add));
  bool has_stored = false;
  for (int count = 0; count < 6; ++count) {
    const Observation& planned = side.run(Schedule{});
    const bool stores = planned.store_event.has_value();
    check(Schedule{}, planned);
    check(Update{}, side.run(Update{}));
    if (stores) check(advance, side.seen());
    has_stored = has_stored || stores;
    if (count < 4) {
      EXPECT_EQ(oracle, "");
    }
  }
  EXPECT_TRUE(has_stored);
  EXPECT_EQ(oracle, "all_comes_to_an_end");
}

}  // namespace
}  // namespace kvfence::engine::simple
