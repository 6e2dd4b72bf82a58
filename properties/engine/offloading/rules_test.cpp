// Goal: each invariant of engines with an OffloadingConnector catches its kind of mistake. Method:
// true episodes of the reference, and in each a lie: one observation is changed as a mistake of
// that kind would change it. The invariant under test has to catch the lie in some episode.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "contract/engine/engine_setup.h"
#include "properties/core/typed_test_support.h"
#include "properties/engine/checks.h"
#include "properties/planted/false_observations_test_support.h"
#include "scenarios/targets/targets.h"

namespace kvfence::engine::offloading {
namespace {

using Lie = std::function<bool(const Command& command, Observation& shown)>;

void expect_caught(std::string_view id, const Lie& lie) {
  const auto side = engine_sides().make_reference();
  const auto change = [&](const Command& command, const Config&, Observation& shown) {
    return lie(command, shown);
  };
  expect_lie_caught<EngineTarget>(room_checks(Assembly::kOffloading), *side, rules().rows, id,
                                  /*commands_after=*/6, change);
}

bool plans(const Command& command, const Observation& shown) {
  return std::holds_alternative<Schedule>(command) && shown.error == ErrorCode::kNone;
}

bool comes_back(const Command& command, const Observation& shown) {
  return std::holds_alternative<Update>(command) && shown.error == ErrorCode::kNone;
}

TEST(OffloadingInvariants, PlansNameTheRequestsOwnBlocks) {
  expect_caught("offloading.1", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.stores).empty()) return false;
    in(shown.stores).front().gpu_blocks.front() = kNullBlockId;
    return true;
  });
  expect_caught("offloading.1", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.loads).empty()) return false;
    in(shown.loads).front().slots.push_back(in(shown.loads).front().slots.front());
    return true;
  });
  std::optional<JobId> earlier;
  expect_caught("offloading.1", [&](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.stores).empty()) return false;
    const bool lies = earlier && *earlier > 0;
    if (lies) in(shown.stores).back().job = *earlier;
    earlier = in(shown.stores).back().job;
    return lies;
  });
}

TEST(OffloadingInvariants, NoReuseUnderACopy) {
  expect_caught("offloading.2", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.jobs_to_flush).empty()) return false;
    in(shown.jobs_to_flush).clear();
    return true;
  });
  expect_caught("offloading.2", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.requests_to_flush).empty()) return false;
    in(shown.requests_to_flush).clear();
    return true;
  });
}

TEST(OffloadingInvariants, ASlotHasOneWriter) {
  std::optional<SlotId> earlier;
  expect_caught("offloading.3", [&](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.stores).empty()) return false;
    std::vector<SlotId>& slots = in(shown.stores).back().slots;
    const bool lies = earlier && std::count(slots.begin(), slots.end(), *earlier) == 0;
    const SlotId slot = slots.front();
    if (lies) slots.front() = *earlier;
    earlier = slot;
    return lies;
  });
}

TEST(OffloadingInvariants, ALoadReadsWhatIsComplete) {
  std::optional<SlotId> earlier;
  expect_caught("offloading.4", [&](const Command& command, Observation& shown) {
    if (!plans(command, shown)) return false;
    if (!in(shown.stores).empty()) earlier = in(shown.stores).back().slots.front();
    if (in(shown.loads).empty() || !earlier) return false;
    std::vector<SlotId>& slots = in(shown.loads).front().slots;
    if (std::count(slots.begin(), slots.end(), *earlier) > 0) return false;
    slots.front() = *earlier;
    return true;
  });
}

TEST(OffloadingInvariants, CopiesAreTheRequestsOwn) {
  expect_caught("offloading.5", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.loads).empty()) return false;
    std::vector<SlotId>& slots = in(shown.loads).front().slots;
    if (slots.size() < 2) return false;
    std::swap(slots.front(), slots.back());
    return true;
  });
}

TEST(OffloadingInvariants, AStepReadsItsOwn) {
  expect_caught("offloading.6", [](const Command& command, Observation& shown) {
    if (!plans(command, shown)) return false;
    for (ScheduledNew& each : in(shown.new_reqs)) {
      if (each.num_computed_tokens == 0 || each.blocks.front().size() < 2) continue;
      std::swap(each.blocks.front()[0], each.blocks.front()[1]);
      return true;
    }
    return false;
  });
}

TEST(OffloadingInvariants, SlotsAddUp) {
  expect_caught("offloading.7", [](const Command&, Observation& shown) {
    ++in(shown.num_free_slots);
    return true;
  });
  expect_caught("offloading.7", [](const Command&, Observation& shown) {
    if (in(shown.t1).size() < 2) return false;
    in(shown.t1).back().key = in(shown.t1).front().key;
    return true;
  });
}

TEST(OffloadingInvariants, AReadySlotHoldsItsKey) {
  expect_caught("offloading.8", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.stores).empty()) return false;
    const SlotId slot = in(shown.stores).front().slots.front();
    for (OffloadedBlock& block : in(shown.t1)) {
      if (block.slot == slot) block.ready = true;
    }
    return true;
  });
  // The slot of a ready block has other bytes.
  expect_caught("offloading.8", [](const Command&, Observation& shown) {
    if (!shown.damaged.has_value() || in(shown.t1).empty()) return false;
    in(shown.damaged).push_back(in(shown.t1).front().key);
    return true;
  });
  // Another slot goes down.
  expect_caught("offloading.8", [](const Command& command, Observation& shown) {
    if (!comes_back(command, shown) || !shown.tier_calls.has_value()) return false;
    for (TierCallRecord& call : in(shown.tier_calls)) {
      if (call.method != "submit_store" || call.slots.front() == 0) continue;
      --call.slots.front();
      return true;
    }
    return false;
  });
}

TEST(OffloadingInvariants, EachEndIsReportedOnce) {
  const auto expect_seen = [](const std::function<bool(Observation&)>& lie) {
    expect_caught("offloading.9", [&](const Command& command, Observation& shown) {
      return comes_back(command, shown) && lie(shown);
    });
  };
  const auto forget = [&](auto member) {
    expect_seen([member](Observation& shown) {
      if (in(shown.*member).empty()) return false;
      in(shown.*member).pop_back();
      return true;
    });
  };
  forget(&Observation::invalid_blocks);
  forget(&Observation::finished_recving);
  forget(&Observation::completed_jobs);
  forget(&Observation::transfers);
  expect_seen([](Observation& shown) {
    for (CompletedJob& completed : in(shown.completed_jobs)) {
      if (completed.num_failed == 0) continue;
      completed.num_failed = 0;
      return true;
    }
    return false;
  });
  expect_seen([](Observation& shown) {
    for (const EngineTransfer& transfer : in(shown.transfers)) {
      if (!transfer.store) continue;
      in(shown.finished_sending).push_back(transfer.request);
      return true;
    }
    return false;
  });
}

TEST(OffloadingInvariants, APromotionComesWhole) {
  expect_caught("offloading.10", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || !shown.tier_jobs.has_value()) return false;
    for (const TierTransfer& job : *shown.tier_jobs) {
      for (OffloadedBlock& block : in(shown.t1)) {
        if (!job.promotion || block.slot != job.slots.front()) continue;
        block.ready = true;
        return true;
      }
    }
    return false;
  });
  // A job that was given up is reported as done.
  expect_caught("offloading.10", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || !shown.tier_calls.has_value()) return false;
    for (TierCallRecord& call : in(shown.tier_calls)) {
      const std::size_t at = call.answer.find("failed");
      if (call.method != "get_finished_jobs" || at == std::string::npos) continue;
      call.answer.replace(at, std::string_view("failed").size(), "done");
      return true;
    }
    return false;
  });
}

/// The rules' verdict on a changed observation of an engine in which a request waits for its
/// grammar and nothing else happens.
std::string oracle_of(const std::function<void(Observation& shown)>& lie) {
  Config config;
  for (std::uint64_t seed = 1; config.profile != Profile::kV023; ++seed) {
    Choices choices = Choices::from_seed(seed);
    config = draw_config(choices);
  }
  TypedRun<EngineTarget> side(engine_sides().make_reference(), config);
  const auto rules = offloading::rules().make(setup_of<EngineTarget>(config));
  AddRequest waits;
  waits.id = "A";
  waits.tokens = {1};
  waits.skip_reading_prefix_cache = true;
  waits.needs_grammar = true;
  std::vector<Command> commands = {waits};
  for (int step = 0; step < 4; ++step) commands.insert(commands.end(), {Schedule{}, Update{}});
  for (const Command& command : commands) {
    Observation shown = side.run(command);
    lie(shown);
    if (const auto found = rules->check(command, nullptr, shown, side.world()))
      return found->oracle;
  }
  return "";
}

TEST(OffloadingInvariants, AllComesToAnEnd) {
  EXPECT_EQ(oracle_of([](Observation&) {}), "");
  for (RequestStatus status : {RequestStatus::kWaiting, RequestStatus::kFinishedAborted}) {
    EXPECT_EQ(oracle_of([&](Observation& shown) { in(shown.requests).front().status = status; }),
              "all_comes_to_an_end");
  }
  const auto begin_a_store = [](Observation& shown) {
    in(shown.t1).emplace_back();
    --in(shown.num_free_slots);
  };
  EXPECT_EQ(oracle_of(begin_a_store), "all_comes_to_an_end");
}

}  // namespace
}  // namespace kvfence::engine::offloading
