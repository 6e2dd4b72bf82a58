// Goal: each rule of a tiering manager catches the mistakes that it is for. Method: in each episode
// of the reference, one observation is changed as such a mistake would change it. In some episode
// the rule in question has to catch the change.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "properties/planted/false_observations_test_support.h"
#include "properties/targets/checks.h"
#include "properties/targets/rooms.h"
#include "scenarios/targets/targets.h"

namespace kvfence::tiering {
namespace {

using eviction::Entry;

using Lie = std::function<bool(const Command& command, Observation& shown)>;

void expect_caught(std::string_view id, const Lie& lie) {
  const auto side = tiering_sides().make_reference();
  const auto change = [&](const Command& command, const Config&, Observation& shown) {
    return lie(command, shown);
  };
  expect_lie_caught<TieringTarget>(tiering_checks(), *side, rules().rows, id,
                                   /*commands_after=*/12, change);
}

/// The first block that satisfies `holds`; null: there is none.
Entry* find_block(Observation& shown, const std::function<bool(const Entry&)>& holds) {
  for (auto* list : {&in(shown.t1), &in(shown.t2)}) {
    const auto at = std::find_if(list->begin(), list->end(), holds);
    if (at != list->end()) return &*at;
  }
  return nullptr;
}

/// The first call of that method with keys or an answer; null: there is none.
TierCallRecord* find_call(Observation& shown, std::string_view method) {
  if (!shown.tier_calls.has_value()) return nullptr;
  for (TierCallRecord& call : in(shown.tier_calls)) {
    const bool is_empty = call.keys.empty() && call.answer.empty();
    if (call.method == method && !is_empty) return &call;
  }
  return nullptr;
}

bool is_under_way(const Observation& shown) {
  return !shown.jobs->empty() || !shown.pending->empty();
}

TEST(TieringInvariants, BlocksAndNumbersAddUp) {
  expect_caught("tiering.1", [](const Command&, Observation& shown) {
    if (shown.t1->size() < 2) return false;
    in(shown.t1)[0].slot = in(shown.t1)[1].slot;
    return true;
  });
  expect_caught("tiering.1", [](const Command&, Observation& shown) {
    if (shown.t1->empty()) return false;
    in(shown.b1).push_back(shown.t1->front().key);
    return true;
  });
  for (std::uint32_t Observation::*number : {&Observation::size, &Observation::num_free_slots,
                                             &Observation::num_jobs, &Observation::num_pending}) {
    expect_caught("tiering.1", [number](const Command&, Observation& shown) {
      ++(shown.*number);
      return true;
    });
  }
}

TEST(TieringInvariants, WhatIsReadyIsComplete) {
  // A failed promotion or store is reported as done.
  expect_caught("tiering.2", [](const Command&, Observation& shown) {
    Entry* const block = find_block(shown, [](const Entry& each) { return !each.ready; });
    if (!block) return false;
    block->ready = true;
    return true;
  });
  expect_caught("tiering.2", [](const Command& command, Observation& shown) {
    if (!std::holds_alternative<PrepareLoad>(command) || !shown.slots.has_value()) return false;
    if (shown.slots->empty()) return false;
    ++in(shown.slots).front();
    return true;
  });
  expect_caught("tiering.2", [](const Command&, Observation& shown) {
    TierCallRecord* const call = find_call(shown, "submit_store");
    if (!call) return false;
    ++call->keys.front();
    return true;
  });
}

TEST(TieringInvariants, ASlotHasOneWriter) {
  expect_caught("tiering.3", [](const Command&, Observation& shown) {
    Entry* const block = find_block(shown, [](const Entry& each) { return each.readers > 0; });
    if (!block || !shown.stored.has_value() || !*shown.stored || shown.slots->empty()) return false;
    in(shown.slots).front() = block->slot;
    return true;
  });
  // The block of a promotion or a store is gone.
  expect_caught("tiering.3", [](const Command&, Observation& shown) {
    const auto is_written = [](const Entry& block) { return !block.ready; };
    const auto num_gone = static_cast<std::uint32_t>(std::erase_if(in(shown.t1), is_written));
    shown.size -= num_gone;
    shown.num_free_slots += num_gone;
    return num_gone > 0;
  });
  expect_caught("tiering.3", [](const Command&, Observation& shown) {
    Entry* const block = find_block(shown, [](const Entry& each) { return each.ready; });
    if (!block || block->readers > 0) return false;
    block->ready = false;
    return true;
  });
}

TEST(TieringInvariants, ReadersAreTransfers) {
  expect_caught("tiering.4", [](const Command&, Observation& shown) {
    Entry* const block = find_block(shown, [](const Entry& each) { return each.readers > 0; });
    if (!block) return false;
    --block->readers;
    return true;
  });
  expect_caught("tiering.4", [](const Command&, Observation& shown) {
    Entry* const block = find_block(shown, [](const Entry& each) { return each.ready; });
    if (!block || is_under_way(shown)) return false;
    ++block->readers;
    return true;
  });
}

TEST(TieringInvariants, EachJobEndsOnce) {
  expect_caught("tiering.5", [](const Command&, Observation& shown) {
    if (shown.jobs->empty()) return false;
    in(shown.jobs).pop_back();
    --shown.num_jobs;
    return true;
  });
  expect_caught("tiering.5", [](const Command&, Observation& shown) {
    TierCallRecord* const call = find_call(shown, "submit_store");
    if (!call || *call->job == 0) return false;
    --*call->job;
    return true;
  });
}

TEST(TieringInvariants, WhatIsReadyIsFound) {
  for (const LookupResult lie : {LookupResult::kMiss, LookupResult::kHit}) {
    expect_caught("tiering.6", [lie](const Command& command, Observation& shown) {
      if (!std::holds_alternative<Lookup>(command) || *shown.result == lie) return false;
      shown.result.emplace() = lie;
      return true;
    });
  }
}

TEST(TieringInvariants, AnAskAgainHasACause) {
  expect_caught("tiering.7", [](const Command& command, Observation& shown) {
    if (!std::holds_alternative<Lookup>(command)) return false;
    if (*shown.result != LookupResult::kMiss) return false;
    shown.result.emplace() = LookupResult::kPending;
    return true;
  });
}

TEST(TieringInvariants, StepsGoOn) {
  expect_caught("tiering.8", [](const Command&, Observation& shown) {
    return shown.tier_calls.has_value() &&
           std::erase_if(in(shown.tier_calls), [](const TierCallRecord& call) {
             return call.method == "get_finished_jobs" && call.answer.empty();
           }) > 0;
  });
  expect_caught("tiering.8", [](const Command& command, Observation& shown) {
    if (!std::holds_alternative<OnScheduleEnd>(command)) return false;
    ++shown.num_pending;
    return true;
  });
}

TEST(TieringInvariants, EventsMirrorTheBlocks) {
  expect_caught("tiering.9", [](const Command&, Observation& shown) {
    if (!shown.events.has_value() || shown.events->empty()) return false;
    in(shown.events).pop_back();
    return true;
  });
  expect_caught("tiering.9", [](const Command&, Observation& shown) {
    if (!shown.events.has_value()) return false;
    in(shown.events).push_back({{99}, /*removed=*/true});
    return true;
  });
}

TEST(TieringInvariants, ARefusalChangesNothing) {
  expect_caught("tiering.10", [](const Command&, Observation& shown) {
    if (shown.error == ErrorCode::kNone || shown.tier_calls.has_value()) return false;
    if (shown.t1->size() < 2) return false;
    std::swap(in(shown.t1).front(), in(shown.t1).back());
    return true;
  });
}

TEST(TieringInvariants, SlotsHoldTheirBlocks) {
  expect_caught("tiering.11", [](const Command&, Observation& shown) {
    if (!shown.damaged.has_value() || shown.t1->empty()) return false;
    in(shown.damaged).push_back(shown.t1->front().key);
    return true;
  });
}

/// With file tiers, blocks are shown as damaged or not.
TEST(TieringInvariants, FilesKeepWhatWasStored) {
  const auto expect_caught_of_files = [](const Lie& lie) {
    expect_caught("tiering.12", [&](const Command& command, Observation& shown) {
      return shown.damaged.has_value() && lie(command, shown);
    });
  };
  expect_caught_of_files([](const Command&, Observation& shown) {
    for (TierState& tier : in(shown.tiers)) tier.held.push_back(99);
    return true;
  });
  expect_caught_of_files([](const Command&, Observation& shown) {
    for (TierState& tier : in(shown.tiers)) tier.writers.push_back("0.tmp");
    return true;
  });
  // A whole file is gone.
  expect_caught_of_files([](const Command& command, Observation& shown) {
    if (!std::holds_alternative<ResetCache>(command)) return false;
    bool has_lied = false;
    for (TierState& tier : in(shown.tiers)) {
      has_lied |= !tier.held.empty();
      tier.held.clear();
    }
    return has_lied;
  });
  // An existing file is missed, a missing one is found; a job has another result.
  struct Answer {
    std::string_view method, was, is;
  };
  for (const Answer& answer : {Answer{"lookup", "hit", "miss"},
                               {"lookup", "miss", "hit"},
                               {"get_finished_jobs", "failed", "done"},
                               {"get_finished_jobs", "done", "failed"}}) {
    expect_caught_of_files([&](const Command&, Observation& shown) {
      TierCallRecord* const call = find_call(shown, answer.method);
      const std::size_t at = call ? call->answer.find(answer.was) : std::string::npos;
      if (at == std::string::npos) return false;
      call->answer.replace(at, answer.was.size(), answer.is);
      return true;
    });
  }
}

}  // namespace
}  // namespace kvfence::tiering
