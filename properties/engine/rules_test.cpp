// Goal: each core rule catches its kind of mistake. Method: true episodes of the reference, and in
// each a lie: one observation is changed as a mistake of that kind would change it. The rule under
// test has to catch the lie in some episode, and no rule may catch a true observation.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "properties/engine/checks.h"
#include "properties/planted/false_observations_test_support.h"
#include "scenarios/targets/targets.h"

namespace kvfence::engine {
namespace {

void expect_caught(std::string_view id, const Lie<EngineTarget>& lie,
                   Assembly assembly = Assembly::kScheduler) {
  const auto side = engine_sides().make_reference();
  expect_lie_caught<EngineTarget>(checks_of(assembly), *side, core_rules().rows, id,
                                  /*commands_after=*/20, lie);
}

/// A lie about the observation, for any command and configuration.
template <class MakeLie>
Lie<EngineTarget> about_shown(MakeLie lie) {
  return [lie](const Command&, const Config&, Observation& shown) {
    return shown.error == ErrorCode::kNone && lie(shown);
  };
}

/// The same, after a planned step.
template <class MakeLie>
Lie<EngineTarget> about_step(MakeLie lie) {
  return about_shown(
      [lie](Observation& shown) { return shown.scheduled.has_value() && lie(shown); });
}

/// Keeps a request in observations although it ended.
struct Kept {
  std::vector<RequestState> before;

  /// False: not wanted, or the command ended no request.
  bool keep(Observation& shown, RequestStatus status, bool is_wanted = true) {
    std::vector<RequestState> now = in(shown.requests);
    const auto gone = std::find_if(before.begin(), before.end(), [&](const RequestState& state) {
      return !is_finished(state.status) &&
             std::none_of(now.begin(), now.end(),
                          [&](const RequestState& other) { return other.id == state.id; });
    });
    const bool is_kept = is_wanted && gone != before.end();
    if (is_kept) {
      RequestState& kept = in(shown.requests).emplace_back(*gone);
      kept.status = status;
      kept.num_computed_tokens = 0;
    }
    before = std::move(now);
    return is_kept;
  }
};

TEST(CoreRules, HaveIdsAndNamesOfTheirOwn) {
  std::vector<std::string_view> names;
  for (std::size_t index = 0; index < core_rules().rows.size(); ++index) {
    EXPECT_EQ(core_rules().rows[index].id, "engine." + std::to_string(index + 1));
    EXPECT_EQ(std::count(names.begin(), names.end(), core_rules().rows[index].name), 0);
    names.push_back(core_rules().rows[index].name);
  }
}

TEST(CoreRules, SeeNumbersThatDoNotAddUpInEveryAssembly) {
  for (const AssemblyInfo& info : kAssemblies) {
    expect_caught("engine.1",
                  about_shown([](Observation& shown) { return ++shown.num_cached_blocks > 0; }),
                  info.assembly);
  }
  expect_caught("engine.1", about_shown([](Observation& shown) {
                  return ++shown.consumer.num_cached_blocks > 0;
                }),
                Assembly::kPrefillDecode);
}

TEST(CoreRules, SeeAReferenceToTheNullBlock) {
  expect_caught("engine.2", about_shown([](Observation& shown) {
                  in(shown.ref_cnts)[kNullBlockId] = 1;
                  return true;
                }));
}

TEST(CoreRules, SeeAReferenceTooMany) {
  const auto lie = [](int by) {
    return about_shown([by](Observation& shown) {
      for (std::uint32_t& ref_cnt : in(shown.ref_cnts)) {
        if (ref_cnt < 2) continue;
        ref_cnt += static_cast<std::uint32_t>(by);
        return true;
      }
      return false;
    });
  };
  expect_caught("engine.3", lie(1));
  expect_caught("engine.3", lie(-1));
  expect_caught("engine.3", lie(-1), Assembly::kSimple);
}

TEST(CoreRules, SeeABlockThatIsQueuedTwice) {
  expect_caught("engine.4", about_shown([](Observation& shown) {
                  std::vector<BlockId>& queue = in(shown.free_queue);
                  if (queue.size() < 2) return false;
                  queue[0] = queue[1];
                  return true;
                }));
}

/// One request's last block is also another's.
TEST(CoreRules, SeeABlockAtTwoPlaces) {
  expect_caught("engine.5", about_shown([](Observation& shown) {
                  std::vector<RequestBlocks>& tables = in(shown.tables);
                  if (tables.size() < 2) return false;
                  std::vector<BlockId>& mine = tables[0].blocks.front();
                  const std::vector<BlockId>& other = tables[1].blocks.front();
                  if (mine.empty() || other.empty()) return false;
                  const BlockId freed = mine.back();
                  const BlockId shared = other.back();
                  const KeyList& keys = *shown.keys;
                  const auto is_own = [&](BlockId block) {
                    return (*shown.ref_cnts)[block] == 1 && keys[block].empty();
                  };
                  if (!is_own(freed) || !is_own(shared)) return false;
                  mine.back() = shared;
                  in(shown.ref_cnts)[shared] = 2;
                  in(shown.ref_cnts)[freed] = 0;
                  in(shown.free_queue).push_back(freed);
                  ++shown.num_empty_blocks;
                  --shown.num_referenced_blocks;
                  return true;
                }));
}

TEST(CoreRules, SeeTheKeyOfAnotherPlace) {
  expect_caught("engine.6", about_shown([](Observation& shown) {
                  KeyList& keys = in(shown.keys);
                  for (const RequestBlocks& table : *shown.tables) {
                    const std::vector<BlockId>& blocks = table.blocks.front();
                    if (blocks.size() < 2 || keys[blocks[0]].empty() || keys[blocks[1]].empty()) {
                      continue;
                    }
                    std::swap(keys[blocks[0]], keys[blocks[1]]);
                    return true;
                  }
                  return false;
                }));
}

/// The step caches more than it computes.
TEST(CoreRules, SeeAKeyAfterTheComputedTokens) {
  expect_caught("engine.7", about_step([](Observation& shown) {
                  for (ScheduledRequest& entry : in(shown.scheduled)) {
                    for (RequestState& state : in(shown.requests)) {
                      if (state.id != entry.request || entry.num_tokens < 8) continue;
                      entry.num_tokens -= 7;
                      state.num_computed_tokens -= 7;
                      return true;
                    }
                  }
                  return false;
                }));
}

TEST(CoreRules, SeeAnEventThatIsLost) {
  expect_caught("engine.8", about_shown([](Observation& shown) {
                  if (!shown.events.has_value() || shown.events->empty()) return false;
                  in(shown.events).erase(in(shown.events).begin());
                  return true;
                }));
}

TEST(CoreRules, SeeARequestAtTwoPlaces) {
  expect_caught("engine.9", about_shown([](Observation& shown) {
                  if (shown.running->size() < 2) return false;
                  in(shown.running)[0] = in(shown.running)[1];
                  return true;
                }));
  expect_caught("engine.9", about_shown([](Observation& shown) {
                  return std::exchange(shown.num_waiting, 0) > 0;
                }));
}

TEST(CoreRules, SeeTokensThatNobodyReported) {
  expect_caught("engine.10", about_shown([](Observation& shown) {
                  for (RequestState& state : in(shown.requests)) return ++state.num_tokens > 0;
                  return false;
                }));
  expect_caught("engine.10", about_shown([](Observation& shown) {
                  for (RequestState& state : in(shown.requests)) {
                    if (state.status != RequestStatus::kWaiting) continue;
                    state.num_computed_tokens = state.num_tokens;
                    return true;
                  }
                  return false;
                }));
}

TEST(CoreRules, SeeComputedTokensWithoutBlocks) {
  expect_caught("engine.11", about_shown([](Observation& shown) {
                  for (RequestState& state : in(shown.requests)) {
                    const bool is_fresh = state.status == RequestStatus::kWaiting &&
                                          state.num_computed_tokens == 0 && state.num_tokens > 1;
                    if (is_fresh) return ++state.num_computed_tokens > 0;
                  }
                  return false;
                }));
}

TEST(CoreRules, SeeALoadThatIsNotAwaited) {
  const auto lie = about_shown([](Observation& shown) {
    for (RequestState& state : in(shown.requests)) {
      if (state.status != RequestStatus::kWaitingForRemoteKVs) continue;
      state.status = RequestStatus::kWaiting;
      return true;
    }
    return false;
  });
  expect_caught("engine.12", lie);
}

TEST(CoreRules, SeeAFailedBlockThatCountsAsComputed) {
  expect_caught("engine.13", [](const Command& command, const Config&, Observation& shown) {
    const auto* update = std::get_if<Update>(&command);
    if (!update || shown.error != ErrorCode::kNone || update->invalid_blocks.empty()) return false;
    for (RequestState& state : in(shown.requests)) state.num_computed_tokens += 100;
    return true;
  });
}

TEST(CoreRules, SeeAFinishedRequestThatStays) {
  expect_caught("engine.14",
                [kept = Kept()](const Command&, const Config&, Observation& shown) mutable {
                  return kept.keep(shown, RequestStatus::kFinishedAborted);
                });
}

TEST(CoreRules, SeeBlocksThatWorkersDoNotKnow) {
  expect_caught("engine.15", about_step([](Observation& shown) {
                  for (ScheduledCached& entry : in(shown.cached_reqs)) {
                    if (!entry.blocks.has_value()) continue;
                    entry.blocks.reset();
                    return true;
                  }
                  return false;
                }));
  expect_caught("engine.15", about_step([](Observation& shown) {
                  for (ScheduledNew& entry : in(shown.new_reqs)) {
                    return ++entry.num_computed_tokens > 0;
                  }
                  return false;
                }));
}

TEST(CoreRules, SeeAStepBeyondItsBudget) {
  expect_caught("engine.16", about_step([](Observation& shown) {
                  for (ScheduledRequest& entry : in(shown.scheduled)) {
                    entry.num_tokens += 1000;
                    return true;
                  }
                  return false;
                }));
}

TEST(CoreRules, SeeOutputsThatNobodySampled) {
  const auto about_output = [](auto lie) {
    return about_shown([lie](Observation& shown) {
      if (!shown.outputs.has_value() || shown.outputs->empty()) return false;
      return lie(in(shown.outputs));
    });
  };
  expect_caught("engine.17", about_output([](std::vector<RequestOutput>& outputs) {
                  outputs.push_back(outputs.front());
                  return true;
                }));
  expect_caught("engine.17", about_output([](std::vector<RequestOutput>& outputs) {
                  outputs.front().tokens.push_back(9);
                  return true;
                }));
  expect_caught("engine.17", about_output([](std::vector<RequestOutput>& outputs) {
                  if (!is_finished(outputs.front().status)) return false;
                  outputs.front().status = RequestStatus::kRunning;
                  return true;
                }));
}

TEST(CoreRules, SeeAnEndThatIsReportedTwice) {
  expect_caught("engine.18", about_step([](Observation& shown) {
                  if (shown.finished->empty()) return false;
                  in(shown.finished).push_back(shown.finished->front());
                  return true;
                }));
}

/// A request that never fits keeps waiting.
TEST(CoreRules, SeeARequestThatIsTriedForEver) {
  expect_caught("engine.19",
                [kept = Kept()](const Command&, const Config&, Observation& shown) mutable {
                  if (!kept.keep(shown, RequestStatus::kWaiting, shown.never_fits.has_value())) {
                    return false;
                  }
                  in(shown.waiting).push_back(*shown.never_fits);
                  ++shown.num_waiting;
                  shown.never_fits.reset();
                  return true;
                });
}

TEST(CoreRules, SeeABlockThatIsNeverGivenBack) {
  expect_caught(
      "engine.20", about_shown([](Observation& shown) {
        if (!shown.requests->empty()) return false;
        const BlockId block = in(shown.free_queue).back();
        in(shown.free_queue).pop_back();
        in(shown.ref_cnts)[block] = 1;
        --((*shown.keys)[block].empty() ? shown.num_empty_blocks : shown.num_cached_blocks);
        ++shown.num_referenced_blocks;
        return true;
      }),
      Assembly::kSimple);
}

TEST(CoreRules, SeeARefusedCommandThatChangesSomething) {
  expect_caught("engine.21", [](const Command& command, const Config&, Observation& shown) {
    if (!std::holds_alternative<AddRequest>(command)) return false;
    return std::exchange(shown.error, ErrorCode::kBadRange) == ErrorCode::kNone;
  });
}

/// With max_concurrent_batches 0 the rule allows a request no steps. The planted bug
/// reported_load_waits_on covers requests that wait for nothing.
TEST(CoreRules, SeeARunThatOutlastsItsTokens) {
  Config config;
  make_assembly(Assembly::kScheduler, config);
  const kvfence::Setup setup =
      prepared(EngineTarget::description(), kvfence::Config(std::move(config)));
  const auto oracle_where = [&](std::uint32_t max_concurrent_batches) -> std::string {
    EngineSetup wrong_setup = setup.as<EngineSetup>();
    wrong_setup.schedulers.front().max_concurrent_batches = max_concurrent_batches;
    const auto rules = core_rules().make(wrong_setup);
    const auto side = engine_sides().make_reference();
    EXPECT_FALSE(side->reset(setup));
    const auto world = setup.target().make_world(setup);
    AddRequest add;
    add.id = "A";
    add.tokens = {1};
    add.max_tokens = 1;
    kvfence::Observation now;
    for (const Command& command : {Command(add), Command(Schedule{})}) {
      const kvfence::Command erased(command);
      world->apply(erased);
      EXPECT_FALSE(side->apply(erased, *world, Observe::kState, now));
      const auto found =
          rules->check(command, nullptr, now.as<Observation>(), typed_world<World>(*world));
      if (found) return found->oracle;
    }
    return "none";
  };
  EXPECT_EQ(oracle_where(1), "none");
  EXPECT_EQ(oracle_where(0), "every_request_ends");
}

}  // namespace
}  // namespace kvfence::engine
