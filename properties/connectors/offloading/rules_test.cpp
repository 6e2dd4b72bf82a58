// Goal: each invariant of the connector target sees what it is for. Method: true episodes of the
// reference, and in each a lie: one observation is changed as a mistake of that kind would change
// it. Some episode has to be caught by the invariant that the lie is meant for.

#include "properties/connectors/offloading/rules.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "properties/connectors/offloading/checks.h"
#include "properties/connectors/offloading/generator.h"
#include "properties/core/typed_test_support.h"
#include "properties/planted/told_lies.h"
#include "scenarios/targets/targets.h"

namespace kvfence::connector {
namespace {

using Lie = std::function<bool(const Command& command, Observation& shown)>;

void expect_caught(std::string_view id, const Lie& lie) {
  const auto side = connector_sides().make_reference();
  const auto tell = [&](const Command& command, const Config&, Observation& shown) {
    return lie(command, shown);
  };
  expect_lie_caught<ConnectorTarget>(connector_checks(), *side, kInvariants, id,
                                     /*commands_behind=*/6, tell);
}

bool plans(const Command& command, const Observation& shown) {
  return std::holds_alternative<Schedule>(command) && shown.error == ErrorCode::kNone;
}

bool comes_back(const Command& command, const Observation& shown) {
  return std::holds_alternative<Update>(command) && shown.error == ErrorCode::kNone;
}

/// A key that is being written in that slot is not there.
void forget_slot(Observation& shown, SlotId slot) {
  for (auto* list : {&in(shown.t1), &in(shown.t2)}) {
    list->erase(std::remove_if(list->begin(), list->end(),
                               [&](const OffloadedBlock& block) { return block.slot == slot; }),
                list->end());
  }
}

TEST(ConnectorInvariants, AnswersFitTheCommand) {
  expect_caught("C1", [](const Command& command, Observation& shown) {
    if (!std::holds_alternative<AddRequest>(command)) return false;
    shown.error = ErrorCode::kNotFinished;
    return true;
  });
  expect_caught("C1", [](const Command& command, Observation& shown) {
    if (!plans(command, shown)) return false;
    shown.jobs_to_flush.reset();
    return true;
  });
}

TEST(ConnectorInvariants, NothingChangesUnasked) {
  expect_caught("C2", [](const Command& command, Observation& shown) {
    if (!std::holds_alternative<AdvanceTransfer>(command)) return false;
    ++shown.num_free_slots;
    return true;
  });
}

TEST(ConnectorInvariants, BlocksAreSound) {
  expect_caught("C3", [](const Command& command, Observation& shown) {
    if (!plans(command, shown)) return false;
    ++in(shown.ref_cnts).back();
    return true;
  });
}

TEST(ConnectorInvariants, PlansNameTheRequestsOwnBlocks) {
  expect_caught("C4", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.stores).empty()) return false;
    in(shown.stores).front().gpu_blocks.front() = kNullBlockId;
    return true;
  });
  expect_caught("C4", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.loads).empty()) return false;
    in(shown.loads).front().slots.push_back(in(shown.loads).front().slots.front());
    return true;
  });
}

TEST(ConnectorInvariants, TransfersAreThosePlanned) {
  expect_caught("C5", [](const Command& command, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.transfers).empty()) return false;
    in(shown.transfers).pop_back();
    return true;
  });
}

TEST(ConnectorInvariants, NoReuseUnderACopy) {
  expect_caught("C6", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.jobs_to_flush).empty()) return false;
    in(shown.jobs_to_flush).clear();
    return true;
  });
  expect_caught("C6", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.requests_to_flush).empty()) return false;
    in(shown.requests_to_flush).clear();
    return true;
  });
}

TEST(ConnectorInvariants, ASlotHasOneWriter) {
  std::optional<SlotId> earlier;
  expect_caught("C7", [&](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.stores).empty()) return false;
    std::vector<SlotId>& slots = in(shown.stores).back().slots;
    const bool lies = earlier && std::count(slots.begin(), slots.end(), *earlier) == 0;
    const SlotId slot = slots.front();
    if (lies) slots.front() = *earlier;
    earlier = slot;
    return lies;
  });
}

TEST(ConnectorInvariants, ALoadReadsWhatIsComplete) {
  std::optional<SlotId> earlier;
  expect_caught("C8", [&](const Command& command, Observation& shown) {
    if (!plans(command, shown)) return false;
    if (!in(shown.stores).empty()) earlier = in(shown.stores).back().slots.front();
    if (in(shown.loads).empty() || !earlier) return false;
    std::vector<SlotId>& slots = in(shown.loads).front().slots;
    if (std::count(slots.begin(), slots.end(), *earlier) > 0) return false;
    slots.front() = *earlier;
    return true;
  });
}

TEST(ConnectorInvariants, CopiesAreTheRequestsOwn) {
  expect_caught("C9", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.loads).empty()) return false;
    std::vector<SlotId>& slots = in(shown.loads).front().slots;
    if (slots.size() < 2) return false;
    std::swap(slots.front(), slots.back());
    return true;
  });
}

TEST(ConnectorInvariants, AStepReadsItsOwn) {
  expect_caught("C10", [](const Command& command, Observation& shown) {
    if (!plans(command, shown)) return false;
    for (scheduler::ScheduledNew& each : in(shown.new_reqs)) {
      if (each.num_computed_tokens == 0 || each.blocks.front().size() < 2) continue;
      std::swap(each.blocks.front()[0], each.blocks.front()[1]);
      return true;
    }
    return false;
  });
}

TEST(ConnectorInvariants, AReadySlotHoldsItsKey) {
  expect_caught("C11", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.stores).empty()) return false;
    const SlotId slot = in(shown.stores).front().slots.front();
    for (OffloadedBlock& block : in(shown.t1)) {
      if (block.slot == slot) block.ready = true;
    }
    return true;
  });
}

TEST(ConnectorInvariants, FailureIsNeverSuccess) {
  expect_caught("C12", [](const Command& command, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.invalid_blocks).empty()) return false;
    in(shown.invalid_blocks).clear();
    return true;
  });
  expect_caught("C12", [](const Command& command, Observation& shown) {
    if (!comes_back(command, shown)) return false;
    for (Completed& completed : in(shown.completed_jobs)) {
      if (completed.num_failed == 0) continue;
      completed.num_failed = 0;
      return true;
    }
    return false;
  });
}

TEST(ConnectorInvariants, OneOfManyIsNotAll) {
  expect_caught("C13", [](const Command& command, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.finished_recving).empty()) return false;
    in(shown.finished_recving).clear();
    return true;
  });
  expect_caught("C13", [](const Command& command, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.completed_jobs).empty()) return false;
    ++in(shown.completed_jobs).front().num_workers;
    return true;
  });
  expect_caught("C13", [](const Command& command, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.finished_sending).empty()) return false;
    in(shown.finished_sending).clear();
    return true;
  });
}

TEST(ConnectorInvariants, TheCursorPassesNoBlock) {
  expect_caught("C14", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.stores).empty()) return false;
    Transfer& store = in(shown.stores).back();
    if (store.slots.size() < 2 || store.group_sizes.size() != 1) return false;
    const std::size_t factor = store.gpu_blocks.size() / store.slots.size();
    forget_slot(shown, store.slots.back());
    store.slots.pop_back();
    store.gpu_blocks.resize(store.gpu_blocks.size() - factor);
    store.group_sizes.front() -= static_cast<std::uint32_t>(factor);
    return true;
  });
}

TEST(ConnectorInvariants, AStoreIsRefusedOnlyIfItMust) {
  expect_caught("C15", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.stores).empty()) return false;
    for (SlotId slot : in(shown.stores).back().slots) forget_slot(shown, slot);
    in(shown.stores).pop_back();
    return true;
  });
}

TEST(ConnectorInvariants, ALoadCoversWhatWasPromised) {
  expect_caught("C16", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.loads).empty()) return false;
    in(shown.loads).pop_back();
    return true;
  });
}

TEST(ConnectorInvariants, WhatIsStoredIsFound) {
  expect_caught("C17", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.loads).empty()) return false;
    const std::string name = in(shown.loads).back().request;
    in(shown.loads).pop_back();
    for (scheduler::RequestState& state : in(shown.requests)) {
      if (state.id == name) state.status = RequestStatus::kRunning;
    }
    for (const kv_cache::RequestBlocks& table : in(shown.tables)) {
      if (table.request != name) continue;
      scheduler::ScheduledNew& each = in(shown.new_reqs).emplace_back();
      each.request = name;
      static_cast<BlocksByGroup&>(each.blocks) = table.blocks;
    }
    in(shown.scheduled).emplace_back().request = name;
    in(shown.scheduled).back().num_tokens = 1;
    return true;
  });
}

/// What shows an engine that does nothing although a request waits.
TEST(ConnectorInvariants, StatisticsAreWhatWasMeasured) {
  expect_caught("C19", [](const Command& command, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.transfer_stats).empty()) return false;
    ++in(shown.transfer_stats).front().microseconds;
    return true;
  });
  expect_caught("C19", [](const Command& command, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.transfer_stats).empty()) return false;
    in(shown.transfer_stats).pop_back();
    return true;
  });
}

/// Takes the last call of that method away, if there is one.
bool forget_call(Observation& shown, std::string_view method) {
  if (!shown.tier_calls.has_value()) return false;
  std::vector<TierCallRecord>& calls = in(shown.tier_calls);
  const auto at = std::find_if(calls.rbegin(), calls.rend(),
                               [&](const TierCallRecord& call) { return call.method == method; });
  if (at == calls.rend()) return false;
  calls.erase(std::next(at).base());
  return true;
}

TEST(ConnectorInvariants, TiersAreTold) {
  for (std::string_view method :
       {"on_new_request", "on_request_finished", "on_schedule_end", "get_finished_jobs"}) {
    expect_caught("C20",
                  [&](const Command&, Observation& shown) { return forget_call(shown, method); });
  }
  expect_caught("C20", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || !shown.num_pending_promotions.has_value()) return false;
    ++in(shown.num_pending_promotions);
    return true;
  });
}

TEST(ConnectorInvariants, StoresGoDown) {
  expect_caught("C21", [](const Command& command, Observation& shown) {
    return comes_back(command, shown) && forget_call(shown, "submit_store");
  });
  expect_caught("C21", [](const Command& command, Observation& shown) {
    if (!comes_back(command, shown) || !shown.tier_calls.has_value()) return false;
    for (TierCallRecord& call : in(shown.tier_calls)) {
      if (call.method != "submit_store") continue;
      ++call.slots.front();
      return true;
    }
    return false;
  });
}

TEST(ConnectorInvariants, APromotionComesWhole) {
  expect_caught("C22", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || !shown.tier_jobs.has_value()) return false;
    for (const TierTransfer& job : *shown.tier_jobs) {
      for (auto* list : {&in(shown.t1), &in(shown.t2)}) {
        for (OffloadedBlock& block : *list) {
          if (!job.promotion || block.slot != job.slots.front()) continue;
          block.ready = true;
          return true;
        }
      }
    }
    return false;
  });
  expect_caught("C22", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || !shown.tier_jobs.has_value() || in(shown.tier_jobs).empty()) {
      return false;
    }
    in(shown.tier_jobs).pop_back();
    --in(shown.num_tier_jobs);
    return true;
  });
}

/// A tier's doubt is the reason of whoever is put off; here it says that it has none.
TEST(ConnectorInvariants, WhoIsPutOffHasAReason) {
  expect_caught("C23", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || !shown.tier_calls.has_value()) return false;
    bool lies = false;
    for (TierCallRecord& call : in(shown.tier_calls)) {
      if (call.method != "lookup" || call.answer != "pending") continue;
      call.answer = "miss";
      lies = true;
    }
    return lies;
  });
}

TEST(ConnectorInvariants, StoredIsKept) {
  // A ready block, whose slot has other bytes.
  expect_caught("C24", [](const Command&, Observation& shown) {
    if (!shown.damaged.has_value()) return false;
    for (const auto* list : {&*shown.t1, &*shown.t2}) {
      for (const OffloadedBlock& block : *list) {
        if (!block.ready) continue;
        in(shown.damaged).push_back(block.key.bytes);
        return true;
      }
    }
    return false;
  });
  expect_caught("C24", [](const Command& command, Observation& shown) {
    if (!std::holds_alternative<TierFinish>(command) || !shown.tiers.has_value()) return false;
    for (TierState& tier : in(shown.tiers)) {
      if (tier.held.empty()) continue;
      tier.held.pop_back();
      return true;
    }
    return false;
  });
  // What was given up is told as done.
  expect_caught("C24", [](const Command& command, Observation& shown) {
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

TEST(ConnectorInvariants, AllComesToAnEnd) {
  Choices choices = Choices::from_seed(1);
  const Config config = Generator::draw_config(choices);
  TypedRun<ConnectorTarget> side(connector_sides().make_reference(), config);
  Invariants invariants(setup_of<ConnectorTarget>(config), config.transfers_may_fail);
  AddRequest add;
  add.id = "A";
  add.tokens = {1};
  add.skip_reading_prefix_cache = true;
  const Observation shown = side.run(add);
  ASSERT_FALSE(invariants.check(add, shown, side.world(), 0));
  std::string oracle;
  for (int count = 0; count < 8 && oracle.empty(); ++count) {
    const Command command = count % 2 == 0 ? Command(Schedule{}) : Command(Update{});
    Observation idle = shown;
    if (count % 2 == 0) {
      idle.scheduled.emplace().clear();
      idle.new_reqs.emplace().clear();
      idle.cached_reqs.emplace().clear();
      idle.preempted.emplace().clear();
      idle.finished.emplace().clear();
      idle.new_block_ids.emplace().clear();
      idle.loads.emplace().clear();
      idle.stores.emplace().clear();
      idle.requests_to_flush.emplace().clear();
      idle.jobs_to_flush.emplace().clear();
    } else {
      idle.outputs.emplace().clear();
      idle.events.emplace().clear();
      idle.finished_recving.emplace().clear();
      idle.finished_sending.emplace().clear();
      idle.invalid_blocks.emplace().clear();
      idle.completed_jobs.emplace().clear();
      idle.transfer_stats.emplace().clear();
    }
    const auto found = invariants.check(command, idle, side.world(), 0);
    if (found) oracle = found->oracle;
  }
  EXPECT_EQ(oracle, "all_comes_to_an_end");
}

}  // namespace
}  // namespace kvfence::connector
