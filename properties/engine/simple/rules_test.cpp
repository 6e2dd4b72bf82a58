// Goal: each invariant of engines with a SimpleCPUOffloadConnector sees what it is for. Method:
// true episodes of the reference, and in each a lie: one observation is changed as a mistake of
// that kind would change it. Some episode has to be caught by the invariant that the lie is meant
// for.

#include "properties/engine/simple/rules.h"

#include <algorithm>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/rules_test_support.h"
#include "properties/core/typed_test_support.h"
#include "properties/engine/simple/checks.h"
#include "properties/planted/told_lies.h"
#include "scenarios/targets/targets.h"

namespace kvfence::engine::simple {
namespace {

void expect_caught(std::string_view id, const Lie<EngineTarget>& lie) {
  const auto side = engine_sides().make_reference();
  expect_lie_caught<EngineTarget>(simple_checks(), *side, kInvariants, id,
                                  /*commands_behind=*/40, lie);
}

bool is_lazy(const Config& config) { return config.connector<Record>()->lazy_offload; }

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
  expect_numbered_and_named_once(kInvariants, 'S');
}

TEST(SimpleOffloadInvariants, GpuHoldsAreExplained) {
  expect_caught("S1", [](const Command& command, const Config&, Observation& shown) {
    if (!plans(command, shown)) return false;
    ++in(shown.ref_cnts).back();
    return true;
  });
  expect_caught("S1", [](const Command& command, const Config&, Observation& shown) {
    if (!plans_store(command, shown)) return false;
    --in(shown.ref_cnts)[in(shown.store_gpu_blocks).front()];
    return true;
  });
}

TEST(SimpleOffloadInvariants, CpuHoldsAreExplained) {
  expect_caught("S2", [](const Command& command, const Config&, Observation& shown) {
    if (!plans_load(command, shown)) return false;
    --in(shown.cpu_ref_cnts)[in(shown.load_cpu_blocks).front()];
    return true;
  });
}

TEST(SimpleOffloadInvariants, ABlockBeingWrittenHasNoKey) {
  expect_caught("S3", [](const Command& command, const Config&, Observation& shown) {
    if (!plans_store(command, shown)) return false;
    in(shown.cpu_keys)[in(shown.store_cpu_blocks).front()] =
        in(shown.keys)[in(shown.store_gpu_blocks).front()];
    return true;
  });
}

TEST(SimpleOffloadInvariants, KeysComeWithCompletion) {
  expect_caught("S4", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown)) return false;
    KeyList& keys = in(shown.cpu_keys);
    for (BlockId block = 1; block < keys.size(); ++block) {
      if (keys[block].empty() || in(shown.cpu_ref_cnts)[block] > 0) continue;
      keys[block].clear();
      --in(shown.num_cached_cpu_blocks);
      ++in(shown.num_empty_cpu_blocks);
      return true;
    }
    return false;
  });
}

TEST(SimpleOffloadInvariants, WhatIsHeldKeepsItsKey) {
  expect_caught("S5", [](const Command&, const Config&, Observation& shown) {
    if (in(shown.pins).empty()) return false;
    in(shown.cpu_keys)[in(shown.pins).front().cpu_blocks.front()].clear();
    return true;
  });
}

TEST(SimpleOffloadInvariants, ACpuBlockHoldsItsKey) {
  expect_caught("S6", [](const Command& command, const Config&, Observation& shown) {
    if (!plans_store(command, shown) || in(shown.store_cpu_blocks).size() < 2) return false;
    std::swap(in(shown.store_cpu_blocks).front(), in(shown.store_cpu_blocks).back());
    return true;
  });
}

TEST(SimpleOffloadInvariants, ALoadLiesBehindTheLocalHit) {
  expect_caught("S7", [](const Command& command, const Config&, Observation& shown) {
    if (!plans_load(command, shown) || in(shown.load_gpu_blocks).size() < 2) return false;
    std::swap(in(shown.load_gpu_blocks).front(), in(shown.load_gpu_blocks).back());
    return true;
  });
  expect_caught("S7", [](const Command& command, const Config&, Observation& shown) {
    if (!plans_load(command, shown)) return false;
    std::vector<BlockId>& blocks = in(shown.load_cpu_blocks);
    if (blocks.front() == blocks.back()) return false;
    blocks.front() = blocks.back();
    return true;
  });
}

/// Another block with a key in the place of the first one.
bool store_another_block(Observation& shown) {
  std::vector<BlockId>& stored = in(shown.store_gpu_blocks);
  const KeyList& keys = in(shown.keys);
  for (BlockId block = 1; block < keys.size(); ++block) {
    if (keys[block].empty() || std::count(stored.begin(), stored.end(), block) > 0) continue;
    stored.front() = block;
    return true;
  }
  return false;
}

TEST(SimpleOffloadInvariants, EagerStoresWhatIsConfirmed) {
  expect_caught("S8", [](const Command& command, const Config& config, Observation& shown) {
    if (!plans_store(command, shown) || is_lazy(config)) return false;
    in(shown.store_gpu_blocks).front() = kNullBlockId;
    return true;
  });
  expect_caught("S8", [](const Command& command, const Config& config, Observation& shown) {
    return plans_store(command, shown) && !is_lazy(config) && store_another_block(shown);
  });
}

TEST(SimpleOffloadInvariants, LazyStoresWhatIsFree) {
  expect_caught("S9", [](const Command& command, const Config& config, Observation& shown) {
    return plans_store(command, shown) && is_lazy(config) && store_another_block(shown);
  });
  expect_caught("S9", [](const Command& command, const Config& config, Observation& shown) {
    if (!plans_store(command, shown) || !is_lazy(config)) return false;
    ++in(shown.ref_cnts)[in(shown.store_gpu_blocks).front()];
    return true;
  });
}

TEST(SimpleOffloadInvariants, EventsAreDense) {
  expect_caught("S10", [](const Command& command, const Config&, Observation& shown) {
    if (!plans_store(command, shown)) return false;
    ++in(shown.store_event);
    return true;
  });
  expect_caught("S10", [](const Command& command, const Config&, Observation& shown) {
    if (!plans_load(command, shown)) return false;
    in(shown.load_requests).clear();
    return true;
  });
}

TEST(SimpleOffloadInvariants, ReportsAreThoseOwed) {
  expect_caught("S11", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.finished_recving).empty()) return false;
    in(shown.finished_recving).clear();
    return true;
  });
  expect_caught("S11", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.completed_jobs).empty()) return false;
    ++in(shown.completed_jobs).front().num_workers;
    return true;
  });
  expect_caught("S11", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown)) return false;
    in(shown.finished_sending).push_back("nobody");
    return true;
  });
  expect_caught("S11", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown)) return false;
    in(shown.invalid_blocks).push_back(1);
    return true;
  });
}

TEST(SimpleOffloadInvariants, AFlushComesWithVictims) {
  expect_caught("S12", [](const Command& command, const Config&, Observation& shown) {
    if (!plans(command, shown)) return false;
    in(shown.need_flush) = !in(shown.need_flush);
    return true;
  });
  std::deque<bool> flushes;
  expect_caught("S12", [&](const Command& command, const Config&, Observation& shown) {
    if (plans(command, shown)) flushes.push_back(in(shown.need_flush));
    if (!comes_back(command, shown) || flushes.empty()) return false;
    const bool flushes_now = flushes.front();
    flushes.pop_front();
    if (!flushes_now) return false;
    Copy& copy = in(shown.copies).emplace_back();
    copy.store = true;
    copy.event = 99;
    return true;
  });
}

TEST(SimpleOffloadInvariants, PinsAreForWhoWaits) {
  expect_caught("S13", [](const Command& command, const Config&, Observation& shown) {
    if (!plans(command, shown) || in(shown.running).empty()) return false;
    Pin& pin = in(shown.pins).emplace_back();
    pin.request = in(shown.running).front();
    pin.cpu_blocks = {1};
    return true;
  });
}

TEST(SimpleOffloadInvariants, CpuNumbersAddUp) {
  expect_caught("S14", [](const Command& command, const Config&, Observation& shown) {
    if (!plans(command, shown) || in(shown.num_empty_cpu_blocks) == 0) return false;
    --in(shown.num_empty_cpu_blocks);
    ++in(shown.num_cached_cpu_blocks);
    return true;
  });
  expect_caught("S14", [](const Command& command, const Config&, Observation& shown) {
    if (!plans(command, shown) || in(shown.cpu_free_queue).size() < 2) return false;
    in(shown.cpu_free_queue).front() = in(shown.cpu_free_queue).back();
    return true;
  });
  expect_caught("S14", [](const Command&, const Config&, Observation& shown) {
    in(shown.has_pending_stores) = !in(shown.has_pending_stores);
    return true;
  });
}

TEST(SimpleOffloadInvariants, CopiesCarryWhatTheyName) {
  expect_lie_about_swapped_blocks("S15", /*with_hit=*/false);
}

TEST(SimpleOffloadInvariants, AStepReadsItsOwn) {
  expect_lie_about_swapped_blocks("S16", /*with_hit=*/true);
}

TEST(SimpleOffloadInvariants, AnswersFitTheCommand) {
  expect_caught("S17", [](const Command& command, const Config&, Observation& shown) {
    if (!std::holds_alternative<AddRequest>(command)) return false;
    shown.error = ErrorCode::kNotFinished;
    return true;
  });
  expect_caught("S17", [](const Command& command, const Config&, Observation& shown) {
    if (!plans(command, shown)) return false;
    shown.need_flush.reset();
    return true;
  });
  expect_caught("S17", [](const Command&, const Config&, Observation& shown) {
    shown.has_pending_stores.reset();
    return true;
  });
}

TEST(SimpleOffloadInvariants, NothingChangesUnasked) {
  expect_caught("S18", [](const Command& command, const Config&, Observation& shown) {
    if (!std::holds_alternative<AdvanceCopy>(command)) return false;
    ++in(shown.cpu_ref_cnts).back();
    return true;
  });
}

TEST(SimpleOffloadInvariants, CopiesAreThosePlanned) {
  expect_caught("S19", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.copies).empty()) return false;
    in(shown.copies).pop_back();
    return true;
  });
}

TEST(SimpleOffloadInvariants, NoReuseUnderACopy) {
  std::vector<BlockId> earlier;
  expect_caught("S20", [&](const Command& command, const Config&, Observation& shown) {
    if (!plans(command, shown)) return false;
    const bool lies = !earlier.empty() && earlier.front() < in(shown.ref_cnts).size();
    if (lies) in(shown.new_block_ids).push_back(earlier.front());
    earlier.clear();
    if (!lies && shown.store_event.has_value()) earlier = in(shown.store_gpu_blocks);
    return lies;
  });
}

TEST(SimpleOffloadInvariants, GpuBlocksAreSound) {
  expect_caught("S21", [](const Command& command, const Config&, Observation& shown) {
    if (!plans(command, shown) || in(shown.free_queue).empty()) return false;
    in(shown.free_queue).pop_back();
    return true;
  });
}

TEST(SimpleOffloadInvariants, WhatIsConfirmedIsStored) {
  expect_caught("S22", [](const Command& command, const Config& config, Observation& shown) {
    if (!plans_store(command, shown) || is_lazy(config) || config.groups.size() > 1) {
      return false;
    }
    if (in(shown.store_gpu_blocks).size() < 2) return false;
    in(shown.store_gpu_blocks).pop_back();
    in(shown.store_cpu_blocks).pop_back();
    return true;
  });
}

TEST(SimpleOffloadInvariants, WhatIsStoredIsFound) {
  expect_caught("S23", [](const Command& command, const Config& config, Observation& shown) {
    if (!plans_load(command, shown) || config.groups.size() > 1) return false;
    if (in(shown.load_requests).size() > 1 || in(shown.load_gpu_blocks).size() < 2) return false;
    in(shown.load_gpu_blocks).pop_back();
    in(shown.load_cpu_blocks).pop_back();
    for (RequestState& state : in(shown.requests)) {
      if (state.id != in(shown.load_requests).front()) continue;
      state.num_computed_tokens -= config.groups.front().block_size;
    }
    return true;
  });
}

TEST(SimpleOffloadInvariants, WhoLoadsHasALoad) {
  expect_caught("S24", [](const Command& command, const Config&, Observation& shown) {
    if (!plans_load(command, shown)) return false;
    shown.load_event.reset();
    in(shown.load_requests).clear();
    in(shown.load_gpu_blocks).clear();
    in(shown.load_cpu_blocks).clear();
    return true;
  });
}

/// One rank and one group, so that little is to be shown.
Config small_config() {
  Config config;
  config.profile = "v0.23";
  config.num_gpu_blocks = 8;
  make_assembly(Assembly::kSimple, config);
  config.edit_connector<Record>().num_cpu_blocks = 4;
  return config;
}

/// Changes a command and its answer, by its place.
using LieAt = std::function<void(std::size_t index, Command& command, Observation& shown)>;

/// Runs commands, and shows each to the invariants as the lie has it; the first broken rule.
std::string oracle_of(const std::vector<Command>& commands, const LieAt& lie) {
  const Config config = small_config();
  TypedRun<EngineTarget> side(engine_sides().make_reference(), config);
  Invariants invariants(setup_of<EngineTarget>(config));
  for (std::size_t index = 0; index < commands.size(); ++index) {
    Observation shown = side.run(commands[index]);
    Command told = commands[index];
    lie(index, told, shown);
    const auto found = invariants.check(told, shown, side.world(), index);
    if (found) return found->oracle;
  }
  return "";
}

/// An engine that does nothing although a request waits: it is paused, and nobody was told.
TEST(SimpleOffloadInvariants, WhoWaitsGoesOn) {
  AddRequest add;
  add.id = "A";
  add.tokens = {1};
  std::vector<Command> commands = {SetPauseState{PauseState::kPausedAll}, add};
  for (int count = 0; count < 6; ++count) {
    commands.emplace_back(Schedule{});
    commands.emplace_back(Update{});
  }
  EXPECT_EQ(oracle_of(commands, [](std::size_t, Command&, Observation&) {}), "");
  const auto unpaused = [](std::size_t index, Command& command, Observation&) {
    if (index == 0) command = SetPauseState{};
  };
  EXPECT_EQ(oracle_of(commands, unpaused), "all_comes_to_an_end");
}

/// A GPU block that is held though no request is left.
TEST(SimpleOffloadInvariants, BothPoolsEndAsTheyBegan) {
  AddRequest add;
  add.id = "A";
  add.tokens = {1, 2, 3, 4, 5};
  add.max_tokens = 1;
  std::vector<Command> commands = {add};
  for (int count = 0; count < 6; ++count) {
    commands.emplace_back(Schedule{});
    commands.emplace_back(Update{});
  }
  EXPECT_EQ(oracle_of(commands, [](std::size_t, Command&, Observation&) {}), "");
  const auto one_left = [](std::size_t index, Command&, Observation& shown) {
    if (index > 8) shown.num_referenced_blocks = 2;
  };
  EXPECT_EQ(oracle_of(commands, one_left), "all_comes_to_an_end");
}

}  // namespace
}  // namespace kvfence::engine::simple
