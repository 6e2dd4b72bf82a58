// Goal: each invariant of a pair over NIXL catches its kind of mistake. Method: true episodes of
// the reference, and in each a lie: one observation is changed as a mistake of that kind would
// change it. The invariant under test has to catch the lie in some episode.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "properties/engine/checks.h"
#include "properties/planted/false_observations_test_support.h"
#include "scenarios/targets/targets.h"

namespace kvfence::engine::nixl {
namespace {

using Lie = std::function<bool(const Command& command, Observation& shown)>;

void expect_caught(std::string_view id, const Lie& lie) {
  const auto side = engine_sides().make_reference();
  const auto change = [&](const Command& command, const Config&, Observation& shown) {
    return lie(command, shown);
  };
  expect_lie_caught<EngineTarget>(room_checks(Assembly::kPrefillDecode), *side, rules().rows, id,
                                  /*commands_after=*/12, change);
}

bool plans(EngineRole role, const Command& command, const Observation& shown) {
  const auto* const planned = std::get_if<Schedule>(&command);
  return planned && planned->engine == role && shown.error == ErrorCode::kNone;
}

bool comes_back(EngineRole role, const Command& command, const Observation& shown) {
  const auto* const updated = std::get_if<Update>(&command);
  return updated && updated->engine == role && shown.error == ErrorCode::kNone;
}

bool consumer_plans(const Command& command, const Observation& shown) {
  return plans(EngineRole::kConsumer, command, shown);
}

bool producer_comes_back(const Command& command, const Observation& shown) {
  return comes_back(EngineRole::kProducer, command, shown);
}

bool consumer_comes_back(const Command& command, const Observation& shown) {
  return comes_back(EngineRole::kConsumer, command, shown);
}

/// The first read under way; null: none.
const ReadState* read_under_way(const Observation& shown) {
  for (const ReadState& read : *shown.reads) {
    const bool has_ended =
        read.progress == TransferProgress::kFinished || read.progress == TransferProgress::kFailed;
    if (!has_ended) return &read;
  }
  return nullptr;
}

/// A held request of the producer; none is.
std::optional<std::string> held_request(const Observation& shown) {
  for (const RequestState& state : *shown.of(EngineRole::kProducer).requests) {
    if (is_finished(state.status)) return state.id;
  }
  return std::nullopt;
}

TEST(NixlInvariants, WhatIsReadStays) {
  expect_caught("nixl.1", [](const Command& command, Observation& shown) {
    if (!producer_comes_back(command, shown) || in(shown.finished_prefills).empty()) return false;
    if (in(shown.finished_prefills).front().blocks.empty()) return false;
    ++in(shown.finished_prefills).front().blocks.front();
    return true;
  });
  expect_caught("nixl.1", [](const Command&, Observation& shown) {
    for (ReadState& read : in(shown.reads)) {
      read.remote_blocks.front() = kNullBlockId;
      return true;
    }
    return false;
  });
}

TEST(NixlInvariants, WhatIsWrittenStays) {
  expect_caught("nixl.2", [](const Command&, Observation& shown) {
    const ReadState* const read = read_under_way(shown);
    if (!read) return false;
    return std::erase_if(in(shown.of(EngineRole::kConsumer).tables),
                         [&](const auto& table) { return table.request == read->request; }) > 0;
  });
}

TEST(NixlInvariants, ALoadBringsItsOwnPrompt) {
  expect_caught("nixl.3", [](const Command& command, Observation& shown) {
    if (!std::holds_alternative<AdvanceRead>(command) || in(shown.reads).empty()) return false;
    std::vector<BlockId>& blocks = in(shown.reads).front().remote_blocks;
    if (blocks.size() < 2) return false;
    std::swap(blocks.front(), blocks.back());
    return true;
  });
}

TEST(NixlInvariants, OnlyHeldRequestsAreSent) {
  expect_caught("nixl.4", [](const Command& command, Observation& shown) {
    if (!producer_comes_back(command, shown) || in(shown.finished_sending).empty()) return false;
    in(shown.finished_sending).push_back(in(shown.finished_sending).front());
    return true;
  });
}

TEST(NixlInvariants, WhatIsUnreadIsHeld) {
  expect_caught("nixl.5", [](const Command& command, Observation& shown) {
    if (!producer_comes_back(command, shown)) return false;
    const auto held = held_request(shown);
    if (!held || !in(shown.finished_prefills).empty()) return false;
    in(shown.finished_sending).push_back(*held);
    return true;
  });
}

TEST(NixlInvariants, NothingIsHeldBeyondItsLease) {
  expect_caught("nixl.6", [](const Command& command, Observation& shown) {
    if (!producer_comes_back(command, shown) || in(shown.finished_sending).empty()) return false;
    in(shown.finished_sending).clear();
    return true;
  });
}

TEST(NixlInvariants, ReceivedOnceAfterItsLastRead) {
  expect_caught("nixl.7", [](const Command& command, Observation& shown) {
    if (!consumer_comes_back(command, shown) || in(shown.finished_recving).empty()) return false;
    in(shown.finished_recving).clear();
    return true;
  });
  expect_caught("nixl.7", [](const Command& command, Observation& shown) {
    const ReadState* const read = read_under_way(shown);
    if (!consumer_comes_back(command, shown) || !read) return false;
    in(shown.finished_recving).push_back(read->request);
    return true;
  });
}

TEST(NixlInvariants, FailedReadsAreReported) {
  expect_caught("nixl.8", [](const Command& command, Observation& shown) {
    if (!consumer_comes_back(command, shown) || in(shown.invalid_blocks).empty()) return false;
    in(shown.invalid_blocks).pop_back();
    return true;
  });
  expect_caught("nixl.8", [](const Command& command, Observation& shown) {
    if (!consumer_comes_back(command, shown)) return false;
    in(shown.invalid_blocks).push_back(kNullBlockId);
    return true;
  });
}

TEST(NixlInvariants, AStepReadsItsOwn) {
  for (const EngineRole role : kEngineRoles) {
    expect_caught("nixl.9", [role](const Command& command, Observation& shown) {
      if (!plans(role, command, shown)) return false;
      for (ScheduledNew& each : in(shown.of(role).new_reqs)) {
        if (each.num_computed_tokens == 0 || each.blocks.front().size() < 2) continue;
        std::swap(each.blocks.front()[0], each.blocks.front()[1]);
        return true;
      }
      return false;
    });
  }
  // A request whose load failed continues as if it had not.
  std::vector<BlockId> invalid;
  expect_caught("nixl.9", [&](const Command& command, Observation& shown) {
    if (consumer_comes_back(command, shown) && !in(shown.invalid_blocks).empty()) {
      invalid = in(shown.invalid_blocks);
    }
    if (!consumer_plans(command, shown)) return false;
    SchedulerObservation& own = shown.of(EngineRole::kConsumer);
    for (ScheduledNew& each : in(own.new_reqs)) {
      const std::vector<BlockId>& blocks = each.blocks.front();
      if (each.num_computed_tokens > 0 || invalid.empty()) continue;
      if (std::count(invalid.begin(), invalid.end(), blocks.front()) == 0) continue;
      for (ScheduledRequest& scheduled : in(own.scheduled)) {
        if (scheduled.request != each.request || scheduled.num_tokens < 2) continue;
        each.num_computed_tokens = scheduled.num_tokens - 1;
        scheduled.num_tokens = 1;
        return true;
      }
    }
    return false;
  });
}

TEST(NixlInvariants, ANoticeFollowsItsRead) {
  const auto is_of_reader = [](const NoticeState& notice) { return !notice.is_heartbeat; };
  expect_caught("nixl.10", [&](const Command& command, Observation& shown) {
    if (!consumer_comes_back(command, shown) || in(shown.notices).empty()) return false;
    NoticeState& last = in(shown.notices).back();
    if (is_of_reader(last)) last.requests.front() += "'";
    return is_of_reader(last);
  });
  expect_caught("nixl.10", [&](const Command& command, Observation& shown) {
    return consumer_comes_back(command, shown) &&
           std::erase_if(in(shown.notices), is_of_reader) > 0;
  });
}

TEST(NixlInvariants, HoldsAreExplained) {
  for (const EngineRole role : kEngineRoles) {
    expect_caught("nixl.11", [role](const Command&, Observation& shown) {
      for (RequestState& state : in(shown.of(role).requests)) {
        if (state.status != RequestStatus::kRunning) continue;
        state.status = RequestStatus::kFinishedStopped;
        return true;
      }
      return false;
    });
  }
}

TEST(NixlInvariants, LoadsComeToAnEnd) {
  expect_caught("nixl.12", [](const Command& command, Observation& shown) {
    if (!consumer_plans(command, shown)) return false;
    for (RequestState& state : in(shown.of(EngineRole::kConsumer).requests)) {
      if (state.status != RequestStatus::kWaiting) continue;
      state.status = RequestStatus::kWaitingForRemoteKVs;
      return true;
    }
    return false;
  });
  expect_caught("nixl.12", [](const Command& command, Observation& shown) {
    return consumer_plans(command, shown) &&
           std::erase_if(in(shown.reqs_to_recv),
                         [](const Receive& receive) { return receive.local_blocks.empty(); }) > 0;
  });
}

}  // namespace
}  // namespace kvfence::engine::nixl
