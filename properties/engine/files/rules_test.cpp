// Goal: each invariant of engines with a synchronous connector sees what it is for. Method: true
// episodes of the reference, and in each a lie: one observation is changed as a mistake of that
// kind would change it. Some episode has to be caught by the invariant that the lie is meant for.

#include "properties/engine/files/rules.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/rules_test_support.h"
#include "properties/core/typed_test_support.h"
#include "properties/engine/files/checks.h"
#include "properties/planted/told_lies.h"
#include "scenarios/targets/targets.h"

namespace kvfence::engine::files {
namespace {

void expect_caught(std::string_view id, const Lie<EngineTarget>& lie) {
  const auto side = engine_sides().make_reference();
  expect_lie_caught<EngineTarget>(files_checks(), *side, kInvariants, id, /*commands_behind=*/40,
                                  lie);
}

bool plans(const Command& command, const Observation& shown) {
  return std::holds_alternative<Schedule>(command) && shown.error == ErrorCode::kNone;
}

bool comes_back(const Command& command, const Observation& shown) {
  return std::holds_alternative<Update>(command) && shown.error == ErrorCode::kNone;
}

/// The first transfer of that direction in a step; null: there is none.
Transfer* find_transfer(const Command& command, Observation& shown, bool store) {
  if (!plans(command, shown)) return nullptr;
  for (Transfer& transfer : in(shown.file_transfers)) {
    if (transfer.store == store) return &transfer;
  }
  return nullptr;
}

Fill* find_fill(const Command& command, Observation& shown) {
  if (!plans(command, shown) || in(shown.fills).empty()) return nullptr;
  return &in(shown.fills).front();
}

TEST(SynchronousConnectorInvariants, AreNumberedAndNamedOnce) {
  expect_numbered_and_named_once(kInvariants, 'Y');
}

TEST(SynchronousConnectorInvariants, AnswersFitTheCommand) {
  expect_caught("Y1", [](const Command& command, const Config&, Observation& shown) {
    if (!std::holds_alternative<RemoveEntry>(command)) return false;
    shown.error = ErrorCode::kNotFinished;
    return true;
  });
  expect_caught("Y1", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown)) return false;
    shown.saved.reset();
    return true;
  });
  expect_caught("Y1", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.failed).empty()) return false;
    shown.outputs.emplace();
    return true;
  });
}

TEST(SynchronousConnectorInvariants, NothingChangesUnasked) {
  expect_caught("Y2", [](const Command& command, const Config&, Observation& shown) {
    if (!std::holds_alternative<WriteEntry>(command)) return false;
    ++in(shown.ref_cnts).back();
    return true;
  });
  expect_caught("Y2", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown)) return false;
    ++in(shown.num_engine_starts);
    return true;
  });
}

TEST(SynchronousConnectorInvariants, GpuBlocksAreSound) {
  expect_caught("Y3", [](const Command& command, const Config&, Observation& shown) {
    if (!plans(command, shown) || in(shown.free_queue).empty()) return false;
    in(shown.free_queue).pop_back();
    return true;
  });
  expect_caught("Y3", [](const Command& command, const Config&, Observation& shown) {
    if (!plans(command, shown) || in(shown.tables).empty()) return false;
    in(shown.tables).front().request = "nobody";
    return true;
  });
}

TEST(SynchronousConnectorInvariants, ALoadIsOfAFoundMatch) {
  expect_caught("Y4", [](const Command& command, const Config&, Observation& shown) {
    Transfer* store = find_transfer(command, shown, /*store=*/true);
    if (!store) return false;
    store->store = false;
    return true;
  });
  expect_caught("Y4", [](const Command& command, const Config&, Observation& shown) {
    const Transfer* load = find_transfer(command, shown, /*store=*/false);
    if (!load) return false;
    for (ScheduledNew& each : in(shown.new_reqs)) {
      if (each.request != load->request) continue;
      --each.num_computed_tokens;
      return true;
    }
    return false;
  });
  expect_caught("Y4", [](const Command& command, const Config&, Observation& shown) {
    const Transfer* load = find_transfer(command, shown, /*store=*/false);
    if (!load) return false;
    in(shown.file_transfers).push_back(Transfer(*load));
    return true;
  });
}

TEST(SynchronousConnectorInvariants, WhatIsFoundIsUsed) {
  // Without its load.
  expect_caught("Y5", [](const Command& command, const Config& config, Observation& shown) {
    if (config.enable_caching || !find_transfer(command, shown, /*store=*/false)) return false;
    std::erase_if(in(shown.file_transfers),
                  [](const Transfer& transfer) { return !transfer.store; });
    return true;
  });
  // As if the match had not been found.
  expect_caught("Y5", [](const Command& command, const Config& config, Observation& shown) {
    if (config.enable_caching || !find_transfer(command, shown, /*store=*/false)) return false;
    std::erase_if(in(shown.file_transfers),
                  [](const Transfer& transfer) { return !transfer.store; });
    for (ScheduledNew& each : in(shown.new_reqs)) each.num_computed_tokens = 0;
    return true;
  });
  // As if it had been.
  expect_caught("Y5", [](const Command& command, const Config& config, Observation& shown) {
    const Transfer* store = find_transfer(command, shown, /*store=*/true);
    if (config.enable_caching || !store) return false;
    for (ScheduledNew& each : in(shown.new_reqs)) {
      if (each.request != store->request) continue;
      for (ScheduledRequest& scheduled : in(shown.scheduled)) {
        if (scheduled.request != each.request || scheduled.num_tokens < 2) continue;
        ++each.num_computed_tokens;
        --scheduled.num_tokens;
        return true;
      }
    }
    return false;
  });
}

TEST(SynchronousConnectorInvariants, WhatIsComputedIsStored) {
  expect_caught("Y6", [](const Command& command, const Config&, Observation& shown) {
    if (!find_transfer(command, shown, /*store=*/true)) return false;
    std::erase_if(in(shown.file_transfers),
                  [](const Transfer& transfer) { return transfer.store; });
    return true;
  });
  expect_caught("Y6", [](const Command& command, const Config& config, Observation& shown) {
    if (!plans(command, shown) || !config.connector<ExampleRecord>()) return false;
    for (const ScheduledNew& each : in(shown.new_reqs)) {
      if (!in(shown.file_transfers).empty()) continue;
      in(shown.file_transfers).push_back({each.request, /*store=*/true, folder_name({}), 0, {}});
      return true;
    }
    return false;
  });
  expect_caught("Y6", [](const Command& command, const Config&, Observation& shown) {
    const Transfer* store = find_transfer(command, shown, /*store=*/true);
    if (!store) return false;
    in(shown.file_transfers).push_back(Transfer(*store));
    return true;
  });
}

TEST(SynchronousConnectorInvariants, ATransferNamesItsTokens) {
  const auto expect_caught_in = [](bool store, const std::function<bool(Transfer&)>& change) {
    expect_caught("Y7", [&](const Command& command, const Config&, Observation& shown) {
      Transfer* transfer = find_transfer(command, shown, store);
      return transfer && change(*transfer);
    });
  };
  for (const bool store : {true, false}) {
    expect_caught_in(store, [](Transfer& transfer) {
      transfer.folder = folder_name(std::vector<TokenId>{7, 7, 7});
      return true;
    });
    expect_caught_in(store, [](Transfer& transfer) {
      if (transfer.blocks.size() < 2) return false;
      std::swap(transfer.blocks.front(), transfer.blocks.back());
      return true;
    });
    expect_caught_in(store, [](Transfer& transfer) {
      ++transfer.num_tokens;
      return true;
    });
  }
}

TEST(SynchronousConnectorInvariants, ARequestIsFilledOnce) {
  expect_caught("Y8", [](const Command& command, const Config&, Observation& shown) {
    const Fill* fill = find_fill(command, shown);
    if (!fill) return false;
    in(shown.fills).push_back(Fill(*fill));
    return true;
  });
  // Again, although it is filled, when it is resumed.
  expect_caught("Y8", [](const Command& command, const Config& config, Observation& shown) {
    if (!plans(command, shown) || !config.connector<DecodeBenchRecord>()) return false;
    if (!in(shown.fills).empty()) return false;
    for (const ScheduledCached& each : in(shown.cached_reqs)) {
      const std::vector<std::string>& filled = in(shown.filled_requests);
      if (!each.resumed || std::count(filled.begin(), filled.end(), each.request) == 0) continue;
      Fill& fill = in(shown.fills).emplace_back();
      fill.request = each.request;
      fill.num_tokens = 1;
      return true;
    }
    return false;
  });
  expect_caught("Y8", [](const Command&, const Config&, Observation& shown) {
    if (in(shown.filled_requests).empty()) return false;
    in(shown.filled_requests).pop_back();
    return true;
  });
}

TEST(SynchronousConnectorInvariants, AFillLeavesOneToken) {
  expect_caught("Y9", [](const Command& command, const Config&, Observation& shown) {
    if (!find_fill(command, shown)) return false;
    in(shown.fills).clear();
    return true;
  });
  expect_caught("Y9", [](const Command& command, const Config&, Observation& shown) {
    Fill* fill = find_fill(command, shown);
    if (!fill) return false;
    ++fill->num_tokens;
    return true;
  });
  expect_caught("Y9", [](const Command& command, const Config&, Observation& shown) {
    Fill* fill = find_fill(command, shown);
    if (!fill) return false;
    fill->blocks.back().pop_back();
    return true;
  });
  expect_caught("Y9", [](const Command& command, const Config&, Observation& shown) {
    const Fill* fill = find_fill(command, shown);
    if (!fill) return false;
    for (ScheduledNew& each : in(shown.new_reqs)) {
      if (each.request == fill->request) --each.num_computed_tokens;
    }
    return true;
  });
}

TEST(SynchronousConnectorInvariants, LoadsBringWhatFilesHold) {
  expect_caught("Y10", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.loaded).empty()) return false;
    ++in(shown.loaded).front().symbols.back();
    return true;
  });
  expect_caught("Y10", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.loaded).size() < 2) return false;
    std::swap(in(shown.loaded).front(), in(shown.loaded).back());
    return true;
  });
}

TEST(SynchronousConnectorInvariants, SavesTakeWhatSlotsHold) {
  expect_caught("Y11", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown)) return false;
    for (FileCopy& file : in(shown.saved)) {
      if (file.symbols.empty()) continue;
      file.symbols.front() = kNothingComputed;
      return true;
    }
    return false;
  });
  expect_caught("Y11", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.saved).empty()) return false;
    in(shown.saved).pop_back();
    return true;
  });
}

TEST(SynchronousConnectorInvariants, FillsAreThoseTold) {
  expect_caught("Y12", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.filled).empty()) return false;
    in(shown.filled).pop_back();
    return true;
  });
}

TEST(SynchronousConnectorInvariants, AFailureEndsTheEngine) {
  expect_caught("Y13", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.failed).empty()) return false;
    ++in(shown.failed).front().layer;
    return true;
  });
  // It goes on as if nothing had been.
  expect_caught("Y13", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.failed).empty()) return false;
    in(shown.failed).clear();
    shown.outputs.emplace();
    shown.events.emplace();
    return true;
  });
  // Somebody lives on.
  expect_caught("Y13", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.failed).empty()) return false;
    ++shown.num_waiting;
    return true;
  });
}

TEST(SynchronousConnectorInvariants, AFileHoldsItsTokens) {
  expect_caught("Y14", [](const Command&, const Config&, Observation& shown) {
    for (File& file : in(shown.files)) {
      if (file.symbols.empty()) continue;
      ++file.symbols.back();
      return true;
    }
    return false;
  });
  expect_caught("Y14", [](const Command&, const Config&, Observation& shown) {
    for (File& file : in(shown.files)) {
      if (file.whole) continue;
      file.whole = true;
      return true;
    }
    return false;
  });
}

TEST(SynchronousConnectorInvariants, StorageIsWhatWasPutThere) {
  expect_caught("Y15", [](const Command&, const Config&, Observation& shown) {
    if (in(shown.files).empty()) return false;
    in(shown.files).pop_back();
    return true;
  });
  expect_caught("Y15", [](const Command&, const Config&, Observation& shown) {
    if (in(shown.folders).empty()) return false;
    in(shown.folders).pop_back();
    return true;
  });
}

TEST(SynchronousConnectorInvariants, SlotsHoldWhatWasPutThere) {
  expect_caught("Y16", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown)) return false;
    ++in(shown.symbols).back().back();
    return true;
  });
}

/// Blocks of a hit in the wrong order, as the workers are told.
TEST(SynchronousConnectorInvariants, AStepReadsItsOwn) {
  expect_caught("Y17", [](const Command& command, const Config& config, Observation& shown) {
    if (!plans(command, shown) || !config.connector<ExampleRecord>()) return false;
    if (!in(shown.file_transfers).empty()) return false;
    for (ScheduledNew& each : in(shown.new_reqs)) {
      if (each.num_computed_tokens < 2 * config.hash_block_size) continue;
      std::swap(each.blocks.front()[0], each.blocks.front()[1]);
      return true;
    }
    return false;
  });
}

TEST(SynchronousConnectorInvariants, NobodyIsHeldOrLoads) {
  expect_caught("Y18", [](const Command& command, const Config&, Observation& shown) {
    if (!plans(command, shown) || in(shown.requests).empty()) return false;
    in(shown.requests).back().status = RequestStatus::kWaitingForRemoteKVs;
    return true;
  });
}

/// Changes a command and its answer, by its place.
using LieAt = std::function<void(std::size_t index, Command& command, Observation& shown)>;

/// Runs commands, and shows each to the invariants as the lie has it; the first broken rule.
std::string oracle_of(const std::vector<Command>& commands, const LieAt& lie) {
  Config config;
  make_assembly(Assembly::kSynchronous, config);
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

/// One request, and an engine that takes some steps.
std::vector<Command> commands_of_one(std::optional<Command> first) {
  std::vector<Command> commands;
  if (first) commands.push_back(*first);
  AddRequest add;
  add.id = "A";
  add.tokens = {1, 2, 3, 4, 5};
  add.max_tokens = 1;
  commands.push_back(add);
  for (int count = 0; count < 6; ++count) {
    commands.push_back(Schedule{});
    commands.push_back(Update{});
  }
  return commands;
}

void tell_truth(std::size_t, Command&, Observation&) {}

/// An engine that does nothing although a request waits: it is paused, and nobody was told.
TEST(SynchronousConnectorInvariants, WhoWaitsGoesOn) {
  const auto commands = commands_of_one(SetPauseState{PauseState::kPausedAll});
  EXPECT_EQ(oracle_of(commands, tell_truth), "");
  const auto unpaused = [](std::size_t index, Command& command, Observation&) {
    if (index == 0) command = SetPauseState{};
  };
  // Requests that a pause hides are gone for who does not know of it.
  const auto unpaused_and_counted = [&](std::size_t index, Command& command, Observation& shown) {
    unpaused(index, command, shown);
    if (index > 0) shown.num_unfinished = 1;
  };
  EXPECT_EQ(oracle_of(commands, unpaused_and_counted), "all_comes_to_an_end");
}

/// A block that is held though no request is left.
TEST(SynchronousConnectorInvariants, NoBlockIsHeldForNobody) {
  const auto commands = commands_of_one(std::nullopt);
  EXPECT_EQ(oracle_of(commands, tell_truth), "");
  const auto one_left = [](std::size_t index, Command&, Observation& shown) {
    if (index > 8) shown.num_referenced_blocks = 2;
  };
  EXPECT_EQ(oracle_of(commands, one_left), "all_comes_to_an_end");
}

}  // namespace
}  // namespace kvfence::engine::files
