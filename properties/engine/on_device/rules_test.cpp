/// Goal: each invariant of engines over devices accepts a correct run and fails at one wrong
/// member; without checks of races and pages, wrong KV shows in the tokens. Method: a short run of
/// the reference in which one observation is changed; random runs of planted implementations that
/// are checked by their tokens only.

#include "properties/engine/rooms.h"

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/core/check.h"
#include "properties/core/campaign.h"
#include "properties/core/typed_test_support.h"
#include "properties/engine/checks.h"
#include "properties/engine/on_device/token_oracle.h"
#include "scenarios/targets/targets.h"

namespace kvfence::engine::on_device {
namespace {

struct Shown {
  Command command;
  Observation observation;
};

Config small_config() {
  Config config;
  make_assembly(Assembly::kOffloadingOnDevice, config);
  config.profile = Profile::kV023;
  config.num_gpu_blocks = 4;
  config.hash_block_size = 2;
  config.groups = {{.kind = KVCacheSpecKind::kFullAttention, .block_size = 2}};
  config.max_model_len = 8;
  config.max_num_batched_tokens = 8;
  config.edit_connector<offloading::Record>().num_cpu_blocks = 2;
  config.max_concurrent_batches = 2;
  return config;
}

auto make_small_rules() { return rules().make(setup_of<EngineTarget>(small_config())); }

/// A request is computed and stored, comes again when it is not in the GPU's cache, and is loaded.
std::vector<Shown> right_run() {
  AddRequest first;
  first.id = "A";
  first.tokens = {5, 6, 7};
  first.max_tokens = 3;
  AddRequest second = first;
  second.id = "B";
  const Advance compute{{}, "compute"};
  const Advance store{{}, "store"};
  const Advance load{{}, "load"};
  const std::vector<Command> commands = {
      first,      Schedule{}, Execute{}, compute,  Poll{},     Update{},           Schedule{},
      Execute{},  store,      Poll{},    Update{}, Schedule{}, Execute{},          Poll{},
      Update{},   Schedule{}, Execute{}, Poll{},   Update{},   ResetPrefixCache{}, second,
      Schedule{}, Execute{},  load,      Poll{},   Update{},   Schedule{},         Execute{},
      Poll{},     Update{},   Drain{}};
  TypedRun<EngineTarget> reference(engine_sides().make_reference(), small_config());
  std::vector<Shown> run;
  for (const Command& command : commands) {
    run.push_back({command, reference.run(command)});
    EXPECT_EQ(run.back().observation.error, ErrorCode::kNone) << run.size() - 1;
  }
  return run;
}

/// Replaces an answer by a changed copy.
template <class T>
void edit(Reusable<T>& answer, const std::function<void(T&)>& change) {
  T changed = *answer;
  change(changed);
  answer.emplace() = changed;
}

void edit_pages(Reusable<KVPages>& answer,
                const std::function<void(std::vector<KVPage>&)>& change) {
  std::vector<KVPage> pages = answer->list();
  change(pages);
  answer.emplace() = KVPages(pages);
}

std::optional<Divergence> judge(const std::vector<Shown>& run) {
  const auto rules = make_small_rules();
  for (std::size_t step = 0; step < run.size(); ++step) {
    const auto& [command, observation] = run[step];
    if (auto found = rules->check(command, nullptr, observation, World{})) {
      found->step = step;
      return found;
    }
  }
  return std::nullopt;
}

/// The whole blocks of A's prompt count as cached when the second step gives A its last tokens.
/// Then B needs a block, and A is preempted and leaves the step. A later finds blocks that were not
/// computed. Source: vLLM v0.19.0 and v0.23.0 v1/core/sched/scheduler.py schedule: it removes a
/// preempted request from the step, but not its blocks from the prefix cache.
TEST(EngineInvariants, SeeUpstreamsVictimThatAStepHasServed) {
  Config config = small_config();
  config.profile = Profile::kV019;
  config.num_gpu_blocks = 5;
  config.hash_block_size = 3;
  config.groups = {{.kind = KVCacheSpecKind::kFullAttention, .block_size = 3}};
  config.max_num_batched_tokens = 7;
  config.policy = SchedulingPolicy::kPriority;
  config.max_num_seqs = 2;
  config.long_prefill_token_threshold = 4;
  config.edit_connector<offloading::Record>().num_cpu_blocks = 1;
  config.max_concurrent_batches = 1;
  Scenario scenario(EngineTarget::description());
  scenario.config = kvfence::Config(config);
  AddRequest victim;
  victim.id = "A";
  victim.tokens = {0, 0, 0, 0, 0, 0, 0};
  victim.max_tokens = 1;
  AddRequest other = victim;
  other.id = "B";
  other.tokens = {0, 0, 0};
  other.max_tokens = 2;
  std::vector<Command> commands = {victim, other};
  for (int step = 0; step < 3; ++step) {
    for (const Command& command :
         std::initializer_list<Command>{Schedule{}, Execute{}, Poll{}, Update{}}) {
      commands.push_back(command);
    }
  }
  for (const Command& command : commands) scenario.steps.push_back({kvfence::Command(command)});
  const auto expected = engine_sides().make_reference();
  const auto actual = engine_sides().make_optimized();
  Lockstep lockstep(room_checks(Assembly::kOffloadingOnDevice), *expected, *actual);

  const std::optional<Divergence> divergence = run_scenario(lockstep, scenario);

  ASSERT_TRUE(divergence);
  EXPECT_EQ(divergence->oracle, "tokens_as_without_cache");
  EXPECT_EQ(divergence->step, commands.size() - 1);
}

TEST(EngineInvariants, AcceptACorrectRun) {
  const auto found = judge(right_run());
  EXPECT_FALSE(found) << found->oracle << " at " << found->step;
}

TEST(EngineInvariants, EachFailsAtOneWrongMember) {
  struct Wrong {
    std::string_view rule;
    /// Changes an observation. False: it could not.
    std::function<bool(Observation&)> change;
  };
  const auto has_ended = [](const Observation& now, bool store) {
    return now.ended.has_value() && !now.ended->empty() && now.ended->front().store == store;
  };
  const std::vector<Wrong> wrongs = {
      {"tokens_as_without_cache",
       [](Observation& now) {
         if (!now.outputs.has_value() || now.outputs->empty()) return false;
         edit<std::vector<RequestOutput>>(now.outputs,
                                          [](auto& outputs) { ++outputs.front().tokens.front(); });
         return true;
       }},
      {"nothing_races", [](Observation& now) { return ++now.num_races.emplace() > 0; }},
      {"nothing_is_misused", [](Observation& now) { return ++now.num_misuses.emplace() > 0; }},
      {"each_transfer_is_reported_once",
       [&](Observation& now) {
         if (!has_ended(now, true)) return false;
         edit<std::vector<EndedTransfer>>(now.ended,
                                          [](auto& ended) { ended.push_back(ended.front()); });
         return true;
       }},
      {"each_transfer_is_reported_once",
       [](Observation& now) {
         // After a drain another rule finds it.
         if (*now.num_steps_in_flight == 0) return false;
         ++now.num_transfers.emplace();
         return true;
       }},
      {"what_was_copied_is_there",
       [&](Observation& now) {
         if (!has_ended(now, true)) return false;
         edit_pages(now.cpu_kv, [](auto& pages) { ++pages.front().symbols.front(); });
         return true;
       }},
      {"what_was_copied_is_there",
       [&](Observation& now) {
         if (!has_ended(now, false)) return false;
         edit_pages(now.gpu_kv, [](auto& pages) {
           for (KVPage& page : pages) ++page.symbols.back();
         });
         return true;
       }},
      {"a_report_names_what_ended",
       [&](Observation& now) {
         if (!now.invalid_blocks.has_value()) return false;
         edit<std::vector<BlockId>>(now.invalid_blocks, [](auto& blocks) { blocks.push_back(1); });
         return true;
       }},
      {"a_report_names_what_ended",
       [&](Observation& now) {
         if (!has_ended(now, true)) return false;
         edit<std::vector<CompletedJob>>(now.completed_jobs,
                                         [](auto& jobs) { ++jobs.front().num_workers; });
         return true;
       }},
      {"a_drained_engine_is_at_rest",
       [](Observation& now) {
         ++now.num_referenced_blocks;
         return true;
       }},
      {"what_is_cached_is_there",
       [](Observation& now) {
         edit_pages(now.gpu_kv, [](auto& pages) {
           for (KVPage& page : pages) ++page.symbols.front();
         });
         return true;
       }},
  };
  const std::vector<Shown> right = right_run();
  std::set<std::string_view> seen;
  for (const Wrong& wrong : wrongs) {
    bool is_seen = false;
    for (std::size_t step = right.size(); step-- > 0 && !is_seen;) {
      std::vector<Shown> run = right;
      if (!wrong.change(run[step].observation)) continue;
      const auto found = judge(run);
      ASSERT_TRUE(found) << wrong.rule;
      EXPECT_EQ(found->oracle, wrong.rule);
      EXPECT_EQ(found->step, step);
      is_seen = true;
    }
    EXPECT_TRUE(is_seen) << wrong.rule;
    seen.insert(wrong.rule);
  }
  EXPECT_EQ(seen.size(), rules().rows.size());
}

/// The consumer reads a prompt from the producer's device, and both are drained. Returns: the
/// verdict when the last observation that `change` can change was changed.
std::optional<Divergence> judge_pair(const std::function<bool(Observation&)>& change) {
  Config config = small_config();
  config.engines = 2;
  config.max_concurrent_batches = 1;
  config.connectors = ConnectorList{nixl::Record()};
  AddRequest prompt;
  prompt.id = "A";
  prompt.tokens = {5, 6, 7};
  prompt.max_tokens = 1;
  prompt.do_remote_decode = true;
  std::vector<Command> commands = {prompt};
  const auto add_step = [&](EngineRole engine, bool reads) {
    commands.insert(commands.end(), {Schedule{engine}, Execute{engine}});
    if (reads) commands.emplace_back(nixl::AdvanceRead{});
    commands.emplace_back(Poll{engine});
    Update update;
    update.engine = engine;
    commands.emplace_back(update);
  };
  add_step(EngineRole::kProducer, false);
  HandOver handed_over;
  handed_over.request = "A";
  handed_over.id = "B";
  handed_over.max_tokens = 2;
  commands.emplace_back(handed_over);
  for (const bool reads : {true, false, false}) add_step(EngineRole::kConsumer, reads);
  commands.insert(commands.end(), {Drain{EngineRole::kProducer}, Drain{EngineRole::kConsumer}});

  for (std::size_t changed = commands.size(); changed-- > 0;) {
    TypedRun<EngineTarget> reference(engine_sides().make_reference(), config);
    const auto rules = on_device::rules().make(setup_of<EngineTarget>(config));
    bool is_changed = false;
    for (std::size_t step = 0; step < commands.size(); ++step) {
      Observation now = reference.run(commands[step]);
      EXPECT_EQ(now.error, ErrorCode::kNone) << step;
      if (step == changed) is_changed = change(now);
      auto found = rules->check(commands[step], nullptr, now, reference.world());
      EXPECT_TRUE(is_changed || !found) << step;
      if (found) return found;
    }
    if (is_changed) return std::nullopt;
  }
  return std::nullopt;
}

TEST(EngineInvariants, OfAPairFailAtWrongMembersOfItsConsumer) {
  const std::pair<std::string_view, std::function<bool(Observation&)>> wrongs[] = {
      {"tokens_as_without_cache",
       [](Observation& now) {
         auto& outputs = now.consumer.outputs;
         if (!outputs.has_value() || outputs->empty()) return false;
         edit<std::vector<RequestOutput>>(outputs, [](auto& all) { ++all.front().tokens.front(); });
         return true;
       }},
      {"nothing_races", [](Observation& now) { return ++now.consumer.num_races.emplace() > 0; }},
      {"a_drained_engine_is_at_rest",
       [](Observation& now) { return ++now.consumer.num_referenced_blocks > 0; }},
      {"what_is_cached_is_there",
       [](Observation& now) {
         edit_pages(now.consumer.gpu_kv, [](auto& pages) {
           for (KVPage& page : pages) ++page.symbols.front();
         });
         return true;
       }},
  };
  for (const auto& [rule, change] : wrongs) {
    const std::optional<Divergence> found = judge_pair(change);
    ASSERT_TRUE(found) << rule;
    EXPECT_EQ(found->oracle, rule);
  }
  EXPECT_FALSE(judge_pair([](Observation&) { return true; }));
}

/// Whether random runs sample a wrong token; nothing else is checked.
bool tokens_show(std::string_view bug) {
  for (std::uint64_t episode = 0; episode < 4000; ++episode) {
    Choices choices = episode_choices(1, episode);
    Config config = draw_config(choices);
    config.tokens_only = true;
    auto implementation = engine_sides().make_planted(bug);
    KVFENCE_CHECK(implementation, "the name of a planted bug");
    TypedRun<EngineTarget> planted(std::move(implementation), config);
    const auto generator = make_generator(config, choices, draws_of(config, choices));
    TokenOracle oracle(setup_of<EngineTarget>(config).windows);
    Observation now;
    for (std::size_t step = 0; step < 200; ++step) {
      const Command command = generator->next(choices, now, planted.world());
      now = planted.run(command);
      if (oracle.check(command, now)) return true;
    }
  }
  return false;
}

TEST(EngineInvariants, TheTokensShowFlushesWaitsFailuresAndRanksThatWereLeftOut) {
  for (std::string_view bug :
       {"reused_block_not_flushed", "preempted_stores_not_flushed", "windowed_blocks_not_watched",
        "store_ignores_compute", "errors_ignored", "failed_store_completed",
        "failed_load_not_reported", "failure_not_reported", "rank_0_speaks_for_all",
        "job_done_at_first_worker", "invalid_blocks_of_rank_0"}) {
    EXPECT_TRUE(tokens_show(bug)) << bug;
  }
}

}  // namespace
}  // namespace kvfence::engine::on_device
