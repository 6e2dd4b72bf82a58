// Goal: each invariant of engines with a synchronous connector catches its kind of mistake. Method:
// true episodes of the reference, and in each a lie: one observation is changed as a mistake of
// that kind would change it. The invariant under test has to catch the lie in some episode.

#include "properties/engine/rooms.h"

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/rules_test_support.h"
#include "properties/engine/checks.h"
#include "properties/planted/false_observations_test_support.h"
#include "scenarios/targets/targets.h"

namespace kvfence::engine::files {
namespace {

void expect_caught(std::string_view id, const Lie<EngineTarget>& lie) {
  const auto side = engine_sides().make_reference();
  expect_lie_caught<EngineTarget>(room_checks(Assembly::kSynchronous), *side, rules().rows, id,
                                  /*commands_after=*/40, lie);
}

bool plans(const Command& command, const Observation& shown) {
  return std::holds_alternative<Schedule>(command) && shown.error == ErrorCode::kNone;
}

bool comes_back(const Command& command, const Observation& shown) {
  return std::holds_alternative<Update>(command) && shown.error == ErrorCode::kNone;
}

bool fails(const Command& command, const Observation& shown) {
  return comes_back(command, shown) && !shown.failed->empty();
}

TEST(SynchronousConnectorInvariants, AreNumberedAndNamedOnce) {
  expect_numbered_and_named_once(rules().rows, "files.");
}

TEST(SynchronousConnectorInvariants, AFileHoldsItsTokens) {
  expect_caught("files.1", [](const Command&, const Config&, Observation& shown) {
    for (StoredFile& file : in(shown.files)) {
      if (file.symbols.empty()) continue;
      ++file.symbols.back();
      return true;
    }
    return false;
  });
  expect_caught("files.1", [](const Command&, const Config&, Observation& shown) {
    for (StoredFile& file : in(shown.files)) {
      if (file.whole) continue;
      file.whole = true;
      return true;
    }
    return false;
  });
}

TEST(SynchronousConnectorInvariants, FilesAndSlotsAgree) {
  expect_caught("files.2", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.loaded).empty()) return false;
    ++in(shown.loaded).front().symbols.back();
    return true;
  });
  expect_caught("files.2", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown)) return false;
    for (FileCopy& file : in(shown.saved)) {
      if (file.symbols.empty()) continue;
      file.symbols.front() = kNothingComputed;
      return true;
    }
    return false;
  });
  // Saved, but not in storage.
  expect_caught("files.2", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.saved).empty()) return false;
    in(shown.files).clear();
    return true;
  });
}

/// The workers get the blocks of a hit in the wrong order.
TEST(SynchronousConnectorInvariants, AStepReadsItsOwn) {
  expect_caught("files.3", [](const Command& command, const Config& config, Observation& shown) {
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

TEST(SynchronousConnectorInvariants, AFillCoversWhatCountsAsComputed) {
  // Filled although it runs already.
  expect_caught("files.4", [](const Command& command, const Config& config, Observation& shown) {
    if (!plans(command, shown) || !config.connector<DecodeBenchRecord>()) return false;
    for (const ScheduledCached& each : in(shown.cached_reqs)) {
      if (each.resumed) continue;
      in(shown.fills).emplace_back().request = each.request;
      return true;
    }
    return false;
  });
  expect_caught("files.4", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.filled).empty()) return false;
    const FilledBlocks& filled = in(shown.filled).front();
    std::vector<KVSymbol>& slots = in(shown.symbols)[filled.layer];
    slots[filled.blocks.back() * slots.size() / in(shown.ref_cnts).size()] = kNothingComputed;
    return true;
  });
}

TEST(SynchronousConnectorInvariants, SlotsChangeWhereAStepWrites) {
  expect_caught("files.5", [](const Command& command, const Config&, Observation& shown) {
    if (!std::holds_alternative<AddRequest>(command)) return false;
    ++in(shown.symbols).back().back();
    return true;
  });
}

TEST(SynchronousConnectorInvariants, WorkersDoWhatWasPlanned) {
  expect_caught("files.6", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.saved).empty()) return false;
    in(shown.saved).pop_back();
    return true;
  });
  expect_caught("files.6", [](const Command& command, const Config&, Observation& shown) {
    if (!comes_back(command, shown) || in(shown.loaded).size() < 2) return false;
    in(shown.loaded).front() = FileCopy(in(shown.loaded).back());
    return true;
  });
}

TEST(SynchronousConnectorInvariants, AFailureEndsTheEngine) {
  // It continues as if nothing had failed.
  expect_caught("files.7", [](const Command& command, const Config&, Observation& shown) {
    if (!fails(command, shown)) return false;
    --in(shown.num_engine_starts);
    return true;
  });
  // A request survives.
  expect_caught("files.7", [](const Command& command, const Config&, Observation& shown) {
    if (!fails(command, shown)) return false;
    ++shown.num_waiting;
    return true;
  });
  expect_caught("files.7", [](const Command& command, const Config&, Observation& shown) {
    if (!fails(command, shown)) return false;
    ++in(shown.symbols).front().front();
    return true;
  });
}

TEST(SynchronousConnectorInvariants, AllComesToAnEnd) {
  expect_caught("files.8", [](const Command& command, const Config&, Observation& shown) {
    if (!plans(command, shown) || in(shown.requests).empty()) return false;
    in(shown.requests).back().status = RequestStatus::kWaitingForRemoteKVs;
    return true;
  });
  expect_caught("files.8", [](const Command&, const Config&, Observation& shown) {
    in(shown.filled_requests).push_back("nobody");
    return true;
  });
}

}  // namespace
}  // namespace kvfence::engine::files
