// Goal: each invariant of a pair over NIXL sees what it is for. Method: true episodes of the
// reference, and in each a lie: one observation is changed as a mistake of that kind would change
// it. Some episode has to be caught by the invariant that the lie is meant for.

#include "properties/engine/nixl/rules.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/typed_test_support.h"
#include "properties/engine/nixl/checks.h"
#include "properties/engine/nixl/generator.h"
#include "properties/planted/told_lies.h"
#include "scenarios/targets/targets.h"

namespace kvfence::engine::nixl {
namespace {

using Lie = std::function<bool(const Command& command, Observation& shown)>;

void hide_state(Observation& shown) {
  shown.reads.reset();
  for (const EngineRole role : kEngineRoles) {
    shown.of(role).requests.reset();
    shown.of(role).tables.reset();
  }
}

void expect_caught(std::string_view id, const Lie& lie, Observe observe = Observe::kState) {
  const auto side = engine_sides().make_reference();
  const auto tell = [&](const Command& command, const Config&, Observation& shown) {
    return lie(command, shown);
  };
  const Hide<EngineTarget> hide = observe == Observe::kState ? nullptr : hide_state;
  expect_lie_caught<EngineTarget>(nixl_checks(), *side, kInvariants, id,
                                  /*commands_behind=*/12, tell, hide);
}

bool plans(EngineRole role, const Command& command, const Observation& shown) {
  const auto* const planned = std::get_if<Schedule>(&command);
  return planned && planned->engine == role && shown.error == ErrorCode::kNone;
}

bool comes_back(EngineRole role, const Command& command, const Observation& shown) {
  const auto* const updated = std::get_if<Update>(&command);
  return updated && updated->engine == role && shown.error == ErrorCode::kNone;
}

bool producer_plans(const Command& command, const Observation& shown) {
  return plans(EngineRole::kProducer, command, shown);
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

/// The first read that is under way; null: none is.
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
  expect_caught("P1", [](const Command& command, Observation& shown) {
    if (!producer_comes_back(command, shown) || in(shown.finished_prefills).empty()) return false;
    ++in(shown.finished_prefills).front().blocks.front();
    return true;
  });
  // A step that computes somebody else's tokens there.
  expect_caught("P1", [](const Command& command, Observation& shown) {
    if (!producer_plans(command, shown)) return false;
    const ReadState* const read = read_under_way(shown);
    auto& new_reqs = in(shown.of(EngineRole::kProducer).new_reqs);
    if (!read || new_reqs.empty() || new_reqs.front().num_computed_tokens > 0) return false;
    new_reqs.front().blocks.front().front() = read->remote_blocks.front();
    return true;
  });
}

TEST(NixlInvariants, WhatIsWrittenStays) {
  expect_caught("P2", [](const Command& command, Observation& shown) {
    if (!consumer_plans(command, shown)) return false;
    const ReadState* const read = read_under_way(shown);
    auto& new_reqs = in(shown.of(EngineRole::kConsumer).new_reqs);
    if (!read || new_reqs.empty() || new_reqs.front().num_computed_tokens > 0) return false;
    new_reqs.front().blocks.front().front() = read->local_blocks.front();
    return true;
  });
}

TEST(NixlInvariants, ALoadBringsItsOwnPrompt) {
  const Lie swaps = [](const Command& command, Observation& shown) {
    if (!consumer_plans(command, shown) || in(shown.reqs_to_recv).empty()) return false;
    std::vector<BlockId>& blocks = in(shown.reqs_to_recv).front().remote_blocks;
    if (blocks.size() < 2) return false;
    std::swap(blocks.front(), blocks.back());
    return true;
  };
  expect_caught("P3", swaps, Observe::kNumbers);
}

TEST(NixlInvariants, OnlyHeldRequestsAreSent) {
  expect_caught("P4", [](const Command& command, Observation& shown) {
    if (!producer_comes_back(command, shown) || in(shown.finished_sending).empty()) return false;
    in(shown.finished_sending).push_back(in(shown.finished_sending).front());
    return true;
  });
}

TEST(NixlInvariants, SentWhenReadOrExpired) {
  expect_caught("P5", [](const Command& command, Observation& shown) {
    if (!producer_comes_back(command, shown)) return false;
    const auto held = held_request(shown);
    if (!held || !in(shown.finished_prefills).empty()) return false;
    in(shown.finished_sending).push_back(*held);
    return true;
  });
  expect_caught("P5", [](const Command& command, Observation& shown) {
    if (!producer_comes_back(command, shown) || in(shown.finished_sending).empty()) return false;
    in(shown.finished_sending).clear();
    return true;
  });
}

TEST(NixlInvariants, NothingIsHeldBeyondItsLease) {
  expect_caught("P6", [](const Command& command, Observation& shown) {
    if (!producer_comes_back(command, shown) || in(shown.finished_sending).empty()) return false;
    in(shown.finished_sending).clear();
    return true;
  });
}

TEST(NixlInvariants, ReceivedOnceBehindItsLastRead) {
  expect_caught("P7", [](const Command& command, Observation& shown) {
    if (!consumer_comes_back(command, shown) || in(shown.finished_recving).empty()) return false;
    in(shown.finished_recving).clear();
    return true;
  });
  expect_caught("P7", [](const Command& command, Observation& shown) {
    const ReadState* const read = read_under_way(shown);
    if (!consumer_comes_back(command, shown) || !read) return false;
    in(shown.finished_recving).push_back(read->request);
    return true;
  });
}

TEST(NixlInvariants, FailedReadsAreReported) {
  expect_caught("P8", [](const Command& command, Observation& shown) {
    if (!consumer_comes_back(command, shown) || in(shown.invalid_blocks).empty()) return false;
    in(shown.invalid_blocks).pop_back();
    return true;
  });
}

TEST(NixlInvariants, AStepReadsItsOwn) {
  for (const EngineRole role : kEngineRoles) {
    expect_caught("P9", [role](const Command& command, Observation& shown) {
      if (!plans(role, command, shown)) return false;
      for (ScheduledNew& each : in(shown.of(role).new_reqs)) {
        if (each.num_computed_tokens == 0 || each.blocks.front().size() < 2) continue;
        std::swap(each.blocks.front()[0], each.blocks.front()[1]);
        return true;
      }
      return false;
    });
  }
  // A request whose load failed, and that goes on as if it had not.
  std::vector<BlockId> invalid;
  expect_caught("P9", [&](const Command& command, Observation& shown) {
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

TEST(NixlInvariants, OneTransferARequest) {
  std::optional<Receive> earlier;
  expect_caught("P10", [&](const Command& command, Observation& shown) {
    if (!consumer_plans(command, shown)) return false;
    if (earlier) in(shown.reqs_to_recv).push_back(*earlier);
    const bool lies = earlier.has_value();
    earlier.reset();
    if (!lies && !in(shown.reqs_to_recv).empty()) earlier = in(shown.reqs_to_recv).front();
    return lies;
  });
}

TEST(NixlInvariants, EachRankReadsItsShare) {
  expect_caught("P11", [](const Command& command, Observation& shown) {
    if (!consumer_plans(command, shown) || in(shown.reqs_to_recv).empty()) return false;
    in(shown.reqs_to_recv).pop_back();
    return true;
  });
  expect_caught("P11", [](const Command& command, Observation& shown) {
    if (!consumer_comes_back(command, shown) || in(shown.reads).empty()) return false;
    in(shown.reads).pop_back();
    return true;
  });
}

TEST(NixlInvariants, ToldAsSentOrNotProcessed) {
  expect_caught("P12", [](const Command& command, Observation& shown) {
    if (!producer_plans(command, shown) || in(shown.reqs_to_send).empty()) return false;
    in(shown.reqs_not_processed).push_back(in(shown.reqs_to_send).front().request);
    return true;
  });
  expect_caught("P12", [](const Command& command, Observation& shown) {
    if (!producer_plans(command, shown) || in(shown.reqs_to_send).empty()) return false;
    std::optional<Seconds>& expires = in(shown.reqs_to_send).front().expires;
    if (expires) ++*expires;
    return expires.has_value();
  });
  expect_caught("P12", [](const Command& command, Observation& shown) {
    if (!producer_comes_back(command, shown) || in(shown.finished_prefills).empty()) return false;
    in(shown.finished_prefills).pop_back();
    return true;
  });
}

TEST(NixlInvariants, ANoticeFollowsItsRead) {
  expect_caught("P13", [](const Command&, Observation& shown) {
    for (const NoticeState& notice : in(shown.notices)) {
      if (notice.heartbeat) continue;
      in(shown.notices).push_back(notice);
      return true;
    }
    return false;
  });
}

TEST(NixlInvariants, HeartbeatsRenewWhatIsUnread) {
  expect_caught("P14", [](const Command& command, Observation& shown) {
    if (!consumer_plans(command, shown) || in(shown.heartbeats).empty()) return false;
    in(shown.heartbeats).clear();
    return true;
  });
  expect_caught("P14", [](const Command& command, Observation& shown) {
    const ReadState* const read = read_under_way(shown);
    if (!consumer_plans(command, shown) || !read || !in(shown.heartbeats).empty()) return false;
    in(shown.heartbeats).push_back(read->remote_request);
    return true;
  });
  expect_caught("P14", [](const Command&, Observation& shown) {
    const auto is_heartbeat = [](const NoticeState& notice) { return notice.heartbeat; };
    return std::erase_if(in(shown.notices), is_heartbeat) > 0;
  });
}

TEST(NixlInvariants, NothingIsLeft) {
  for (const EngineRole role : kEngineRoles) {
    expect_caught("P15", [role](const Command& command, Observation& shown) {
      if (!comes_back(role, command, shown) || !in(shown.of(role).requests).empty()) return false;
      ++shown.of(role).num_referenced_blocks;
      return true;
    });
  }
}

TEST(NixlInvariants, BlocksAreSound) {
  for (const EngineRole role : kEngineRoles) {
    expect_caught("P16", [role](const Command& command, Observation& shown) {
      if (!plans(role, command, shown)) return false;
      ++in(shown.of(role).ref_cnts).back();
      return true;
    });
  }
}

TEST(NixlInvariants, WhoWaitsForALoadHasOne) {
  expect_caught("P17", [](const Command& command, Observation& shown) {
    if (!consumer_plans(command, shown)) return false;
    for (RequestState& state : in(shown.of(EngineRole::kConsumer).requests)) {
      if (state.status != RequestStatus::kWaiting) continue;
      state.status = RequestStatus::kWaitingForRemoteKVs;
      return true;
    }
    return false;
  });
}

/// What shows an engine that does nothing although a request waits.
TEST(NixlInvariants, AnEngineServesWhoWaits) {
  Choices choices = Choices::from_seed(1);
  const Config config = Generator::draw_config(choices);
  TypedRun<EngineTarget> side(engine_sides().make_reference(), config);
  Invariants invariants(setup_of<EngineTarget>(config),
                        config.connector<Record>()->transport_may_fail);
  AddRequest add;
  add.engine = EngineRole::kConsumer;
  add.id = "A";
  add.tokens = {1};
  const Observation shown = side.run(add);
  ASSERT_FALSE(invariants.check(add, shown, side.world(), 0));
  std::string oracle;
  for (int count = 0; count < 8 && oracle.empty(); ++count) {
    Observation idle = shown;
    SchedulerObservation& own = idle.of(EngineRole::kConsumer);
    Command command = Schedule{.engine = EngineRole::kConsumer};
    if (count % 2 == 0) {
      own.scheduled.emplace().clear();
      own.new_reqs.emplace().clear();
      own.cached_reqs.emplace().clear();
      own.common_prefix.emplace().clear();
      own.preempted.emplace().clear();
      own.finished.emplace().clear();
      own.new_block_ids.emplace().clear();
      idle.reqs_to_recv.emplace().clear();
      idle.heartbeats.emplace().clear();
    } else {
      command.emplace<Update>().engine = EngineRole::kConsumer;
      own.outputs.emplace().clear();
      own.events.emplace().clear();
      own.stats.emplace().clear();
      own.connector_stats.emplace().clear();
      own.spec_stats.emplace().clear();
      idle.finished_recving.emplace().clear();
      idle.finished_sending.emplace().clear();
      idle.invalid_blocks.emplace().clear();
      idle.completed_jobs.emplace().clear();
    }
    const auto found = invariants.check(command, idle, side.world(), 0);
    if (found) oracle = found->oracle;
  }
  EXPECT_EQ(oracle, "all_comes_to_an_end");
}

/// The rules expect of each command what the driver answers, and of those of other assemblies a
/// refusal.
TEST(NixlInvariants, KnowEveryCommandOfTheTarget) {
  Choices choices = Choices::from_seed(1);
  const Config config = Generator::draw_config(choices);
  TypedRun<EngineTarget> side(engine_sides().make_reference(), config);
  Invariants invariants(setup_of<EngineTarget>(config),
                        config.connector<Record>()->transport_may_fail);
  const auto answer = [&](const Command& command, std::string_view verb) {
    const Observation& shown = side.run(command);
    const auto found = invariants.check(command, shown, side.world(), 0);
    EXPECT_FALSE(found) << verb << " " << found->field << ": expected " << found->expected
                        << ", actual " << found->actual;
    return shown.error;
  };
  for_each_command<Command>([&](auto type) {
    using Alternative = typename decltype(type)::type;
    answer(Alternative(), Alternative::kVerb);
  });
  AddRequest add;
  add.id = "A";
  add.tokens = {1};
  EXPECT_EQ(answer(add, AddRequest::kVerb), ErrorCode::kNone);
  EXPECT_EQ(answer(GrammarCompiled{"A"}, GrammarCompiled::kVerb), ErrorCode::kNone);
  const Command drafts = UpdateDraftTokenIds{"A", {1}};
  EXPECT_EQ(answer(drafts, UpdateDraftTokenIds::kVerb), ErrorCode::kNotInConfig);
  ScriptConnector script;
  script.request = "A";
  EXPECT_EQ(answer(script, ScriptConnector::kVerb), ErrorCode::kNotInConfig);
  EXPECT_EQ(answer(Execute(), Execute::kVerb), ErrorCode::kNotInConfig);
  Update update;
  update.finished_sending = {"A"};
  EXPECT_EQ(answer(update, Update::kVerb), ErrorCode::kNotInConfig);
  ResetPrefixCache reset;
  reset.reset_running_requests = true;
  EXPECT_EQ(answer(reset, ResetPrefixCache::kVerb), ErrorCode::kNotInConfig);
}

TEST(NixlInvariants, AnswersFitTheCommand) {
  expect_caught("P18", [](const Command& command, Observation& shown) {
    if (!std::holds_alternative<HandOver>(command)) return false;
    shown.error = ErrorCode::kNotReady;
    return true;
  });
  expect_caught("P18", [](const Command& command, Observation& shown) {
    if (!producer_plans(command, shown)) return false;
    shown.reqs_in_batch.reset();
    return true;
  });
  expect_caught("P18", [](const Command&, Observation& shown) {
    if (shown.error == ErrorCode::kNone) return false;
    for (const EngineRole role : kEngineRoles) {
      if (in(shown.of(role).requests).empty()) continue;
      ++in(shown.of(role).requests).front().num_computed_tokens;
      return true;
    }
    return false;
  });
  expect_caught("P18", [](const Command&, Observation& shown) {
    shown.now.reset();
    return true;
  });
  expect_caught("P18", [](const Command& command, Observation& shown) {
    if (!consumer_comes_back(command, shown)) return false;
    in(shown.completed_jobs).emplace_back();
    return true;
  });
  expect_caught("P18", [](const Command&, Observation& shown) {
    ++in(shown.now);
    return true;
  });
}

}  // namespace
}  // namespace kvfence::engine::nixl
