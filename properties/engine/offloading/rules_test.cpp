// Goal: each invariant of engines with an OffloadingConnector sees what it is for, and none objects
// to what such an engine refuses. Method: true episodes of the reference, and in each a lie: one
// observation is changed as a mistake of that kind would change it. Some episode has to be caught
// by the invariant that the lie is meant for. Commands of other assemblies, one by one.

#include "properties/engine/offloading/rules.h"

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

#include "properties/core/typed_test_support.h"
#include "properties/engine/offloading/checks.h"
#include "properties/engine/offloading/generator.h"
#include "properties/planted/told_lies.h"
#include "scenarios/targets/targets.h"

namespace kvfence::engine::offloading {
namespace {

using Lie = std::function<bool(const Command& command, Observation& shown)>;

void expect_caught(std::string_view id, const Lie& lie) {
  const auto side = engine_sides().make_reference();
  const auto tell = [&](const Command& command, const Config&, Observation& shown) {
    return lie(command, shown);
  };
  expect_lie_caught<EngineTarget>(offloading_checks(), *side, kInvariants, id,
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

TEST(OffloadingInvariants, AnswersFitTheCommand) {
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

TEST(OffloadingInvariants, NothingChangesUnasked) {
  expect_caught("C2", [](const Command& command, Observation& shown) {
    if (!std::holds_alternative<AdvanceTransfer>(command)) return false;
    ++in(shown.num_free_slots);
    return true;
  });
}

TEST(OffloadingInvariants, BlocksAreSound) {
  expect_caught("C3", [](const Command& command, Observation& shown) {
    if (!plans(command, shown)) return false;
    ++in(shown.ref_cnts).back();
    return true;
  });
}

TEST(OffloadingInvariants, PlansNameTheRequestsOwnBlocks) {
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

TEST(OffloadingInvariants, TransfersAreThosePlanned) {
  expect_caught("C5", [](const Command& command, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.transfers).empty()) return false;
    in(shown.transfers).pop_back();
    return true;
  });
}

TEST(OffloadingInvariants, NoReuseUnderACopy) {
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

TEST(OffloadingInvariants, ASlotHasOneWriter) {
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

TEST(OffloadingInvariants, ALoadReadsWhatIsComplete) {
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

TEST(OffloadingInvariants, CopiesAreTheRequestsOwn) {
  expect_caught("C9", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.loads).empty()) return false;
    std::vector<SlotId>& slots = in(shown.loads).front().slots;
    if (slots.size() < 2) return false;
    std::swap(slots.front(), slots.back());
    return true;
  });
}

TEST(OffloadingInvariants, AStepReadsItsOwn) {
  expect_caught("C10", [](const Command& command, Observation& shown) {
    if (!plans(command, shown)) return false;
    for (ScheduledNew& each : in(shown.new_reqs)) {
      if (each.num_computed_tokens == 0 || each.blocks.front().size() < 2) continue;
      std::swap(each.blocks.front()[0], each.blocks.front()[1]);
      return true;
    }
    return false;
  });
}

TEST(OffloadingInvariants, AReadySlotHoldsItsKey) {
  expect_caught("C11", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.stores).empty()) return false;
    const SlotId slot = in(shown.stores).front().slots.front();
    for (OffloadedBlock& block : in(shown.t1)) {
      if (block.slot == slot) block.ready = true;
    }
    return true;
  });
}

TEST(OffloadingInvariants, FailureIsNeverSuccess) {
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

TEST(OffloadingInvariants, OneOfManyIsNotAll) {
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

TEST(OffloadingInvariants, TheCursorPassesNoBlock) {
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

TEST(OffloadingInvariants, AStoreIsRefusedOnlyIfItMust) {
  expect_caught("C15", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.stores).empty()) return false;
    for (SlotId slot : in(shown.stores).back().slots) forget_slot(shown, slot);
    in(shown.stores).pop_back();
    return true;
  });
}

TEST(OffloadingInvariants, ALoadCoversWhatWasPromised) {
  expect_caught("C16", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.loads).empty()) return false;
    in(shown.loads).pop_back();
    return true;
  });
}

TEST(OffloadingInvariants, WhatIsStoredIsFound) {
  expect_caught("C17", [](const Command& command, Observation& shown) {
    if (!plans(command, shown) || in(shown.loads).empty()) return false;
    const std::string name = in(shown.loads).back().request;
    in(shown.loads).pop_back();
    for (RequestState& state : in(shown.requests)) {
      if (state.id == name) state.status = RequestStatus::kRunning;
    }
    for (const kv_cache::RequestBlocks& table : in(shown.tables)) {
      if (table.request != name) continue;
      ScheduledNew& each = in(shown.new_reqs).emplace_back();
      each.request = name;
      static_cast<BlocksByGroup&>(each.blocks) = table.blocks;
    }
    in(shown.scheduled).emplace_back().request = name;
    in(shown.scheduled).back().num_tokens = 1;
    return true;
  });
}

/// What shows an engine that does nothing although a request waits.
TEST(OffloadingInvariants, StatisticsAreWhatWasMeasured) {
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

TEST(OffloadingInvariants, TiersAreTold) {
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

TEST(OffloadingInvariants, StoresGoDown) {
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

TEST(OffloadingInvariants, APromotionComesWhole) {
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
TEST(OffloadingInvariants, WhoIsPutOffHasAReason) {
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

TEST(OffloadingInvariants, StoredIsKept) {
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

/// The reference under the rules, command by command.
class Answering {
 public:
  Answering()
      : side_(engine_sides().make_reference(), config_),
        invariants_(setup_of<EngineTarget>(config_),
                    config_.connector<Record>()->transfers_may_fail) {}

  const Config& config() const { return config_; }

  /// Also that the rules expect that answer.
  void expect(ErrorCode error, const Command& command) {
    const Observation& shown = side_.run(command);
    EXPECT_EQ(shown.error, error) << command.index();
    const auto found = invariants_.check(command, shown, side_.world(), 0);
    ASSERT_FALSE(found) << command.index() << ": " << found->field << ": expected "
                        << found->expected << ", actual " << found->actual;
  }

 private:
  static Config drawn() {
    Choices choices = Choices::from_seed(1);
    return Generator::draw_config(choices);
  }

  Config config_ = drawn();
  TypedRun<EngineTarget> side_;
  Invariants invariants_;
};

AddRequest request(std::string id) {
  AddRequest add;
  add.id = std::move(id);
  add.tokens = {1};
  add.skip_reading_prefix_cache = true;
  return add;
}

TEST(OffloadingInvariants, WhoWaitsForAGrammarMayWait) {
  Answering engine;
  AddRequest waits = request("A");
  waits.grammar = true;
  waits.lora_name = "adapter";
  engine.expect(ErrorCode::kNone, waits);
  for (int step = 0; step < 8; ++step) {
    engine.expect(ErrorCode::kNone, Schedule{});
    engine.expect(ErrorCode::kNone, Update{});
  }
  engine.expect(ErrorCode::kUnknownRequest, GrammarCompiled{"nobody"});
  engine.expect(ErrorCode::kNone, GrammarCompiled{"A"});
  engine.expect(ErrorCode::kNone, Schedule{});
  engine.expect(ErrorCode::kNone, Update{});
}

TEST(OffloadingInvariants, RequestsOfOtherAssembliesAreRefused) {
  Answering engine;
  engine.expect(ErrorCode::kNone, request("A"));
  AddRequest too_many = request("B");
  too_many.min_tokens = too_many.max_tokens + 1;
  engine.expect(ErrorCode::kBadRange, too_many);
  AddRequest too_long = request("C");
  too_long.max_tokens = too_long.min_tokens = engine.config().max_model_len;
  engine.expect(ErrorCode::kBeyondModelLength, too_long);
  AddRequest remote = request("D");
  remote.do_remote_decode = true;
  engine.expect(ErrorCode::kNotInConfig, remote);
  AddRequest elsewhere = request("E");
  elsewhere.engine = EngineRole::kConsumer;
  engine.expect(ErrorCode::kNotInConfig, elsewhere);
  elsewhere.id = "A";
  engine.expect(ErrorCode::kAlreadyDeclared, elsewhere);
}

TEST(OffloadingInvariants, CommandsOfOtherAssembliesAreRefused) {
  Answering engine;
  engine.expect(ErrorCode::kNone, request("A"));
  engine.expect(ErrorCode::kUnknownRequest, UpdateDraftTokenIds{"nobody", {}});
  engine.expect(ErrorCode::kNotInConfig, UpdateDraftTokenIds{"A", {1}});
  engine.expect(ErrorCode::kUnknownRequest, ScriptConnector{.request = "nobody"});
  engine.expect(ErrorCode::kNotInConfig, ScriptConnector{.request = "A"});
  Update received;
  received.finished_recving = {"A"};
  engine.expect(ErrorCode::kNotInConfig, received);
  Update sent;
  sent.finished_sending = {"nobody"};
  engine.expect(ErrorCode::kUnknownRequest, sent);
  Update lost;
  lost.invalid_blocks = {1};
  engine.expect(ErrorCode::kNotInConfig, lost);
  for (const Command& command :
       {Command(Schedule{EngineRole::kConsumer}),
        Command(ResetPrefixCache{.reset_running_requests = true}),
        Command(ResetPrefixCache{.connector_fails = true}), Command(Execute{}), Command(Poll{}),
        Command(Advance{}), Command(FailNext{}), Command(Drain{}),
        Command(HandOver{.request = "A", .id = "F"}), Command(simple::AdvanceCopy{}),
        Command(files::FailNextFile{}), Command(nixl::AdvanceClock{})}) {
    engine.expect(ErrorCode::kNotInConfig, command);
  }
}

TEST(OffloadingInvariants, AllComesToAnEnd) {
  Choices choices = Choices::from_seed(1);
  const Config config = Generator::draw_config(choices);
  TypedRun<EngineTarget> side(engine_sides().make_reference(), config);
  Invariants invariants(setup_of<EngineTarget>(config),
                        config.connector<Record>()->transfers_may_fail);
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
}  // namespace kvfence::engine::offloading
