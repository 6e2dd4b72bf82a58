/// A check in processes of its own reports implementations that crash, loop or take memory without
/// end, and its findings do not depend on the number of processes.

#include "scenarios/command/contained_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/sanitized.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

enum class Harm { kNullDereference, kEndlessLoop, kMemoryWithoutEnd, kException };

volatile int* volatile nowhere = nullptr;
volatile std::uint64_t spin = 0;
std::vector<std::vector<char>> hoard;

void do_harm(Harm harm) {
  switch (harm) {
    case Harm::kNullDereference:
      *nowhere = 1;
      break;
    case Harm::kEndlessLoop:
      while (spin != UINT64_MAX) spin = spin + 1;
      break;
    case Harm::kMemoryWithoutEnd:
      while (true) hoard.emplace_back(std::size_t{1} << 20, 'x');
    case Harm::kException:
      throw std::runtime_error("no such block");
  }
}

/// Commands of the process, whatever implementation gets them.
std::uint64_t num_commands_of_process = 0;

/// Wraps an implementation, and breaks its own process in the n-th command.
class Harmful final : public Implementation {
 public:
  struct Plan {
    Harm harm = Harm::kNullDereference;
    std::uint64_t command = 7;
    bool counts_across_episodes = false;
    bool spares_first_episode = false;
  };
  Harmful(std::unique_ptr<Implementation> sound, Plan plan)
      : sound_(std::move(sound)), plan_(plan) {}

  std::string name() const override { return sound_->name(); }
  std::optional<ImplementationFailure> reset(const Setup& setup) override {
    num_commands_ = 0;
    return sound_->reset(setup);
  }
  std::optional<ImplementationFailure> apply(const Command& command, const World& world,
                                             Observe observe, Observation& observation) override {
    ++num_commands_;
    ++num_commands_of_process;
    const std::uint64_t count =
        plan_.counts_across_episodes ? num_commands_of_process : num_commands_;
    const bool is_spared = plan_.spares_first_episode && num_commands_ == num_commands_of_process;
    if (count == plan_.command && !is_spared) do_harm(plan_.harm);
    return sound_->apply(command, world, observe, observation);
  }

 private:
  std::unique_ptr<Implementation> sound_;
  Plan plan_;
  std::uint64_t num_commands_ = 0;
};

struct Sides {
  std::function<std::unique_ptr<Implementation>()> make_expected;
  std::function<std::unique_ptr<Implementation>()> make_actual;
};

ContainedCheck check_of(const TargetSides& sides, Sides made) {
  const Checks& checks = *sides.checks;
  return {.checks = checks,
          .run =
              [&checks, made = std::move(made)](const CheckOptions& options) {
                const auto expected = made.make_expected();
                const auto actual = made.make_actual();
                Parsed<Report> report = check(checks, *expected, *actual, options);
                Outcome outcome;
                if (!report) return Outcome{exit_code::kBadInput, {}, report.error().to_text(), {}};
                outcome.report = std::move(*report);
                if (!outcome.report.passed()) outcome.exit_code = exit_code::kDisagreement;
                return outcome;
              },
          .make_reference = [&sides] { return sides.make_reference(); },
          .actual_name = "optimized",
          .limits = {.seconds_per_command = 0.5,
                     .memory_bytes = std::uint64_t{256} << 20,
                     .is_quiet = true}};
}

ContainedCheck check_of(const TargetSides& sides, Harmful::Plan plan) {
  return check_of(sides, {[&sides] { return sides.make_reference(); },
                          [&sides, plan]() -> std::unique_ptr<Implementation> {
                            return std::make_unique<Harmful>(sides.make_optimized(), plan);
                          }});
}

CheckOptions commands(std::uint64_t commands_max) {
  CheckOptions options;
  options.commands_max = commands_max;
  return options;
}

TEST(ContainedCheck, ReportsAndShrinksACrashOfEachTarget) {
  for (const TargetSides* sides : all_targets()) {
    SCOPED_TRACE(sides->target().name);
    const ContainedCheck check = check_of(*sides, Harmful::Plan{});
    const Outcome outcome = check_contained(check, commands(1'000));
    EXPECT_EQ(outcome.exit_code, exit_code::kDisagreement);
    ASSERT_TRUE(outcome.report.divergence);
    EXPECT_EQ(outcome.report.divergence->oracle, "crash");
    EXPECT_EQ(outcome.report.divergence->step, 6);
    EXPECT_EQ(outcome.report.commands, 7);
    if (!kIsSanitized) {
      EXPECT_EQ(outcome.report.divergence->message,
                "optimized was killed by signal 11 (Segmentation fault)");
    }
    const Parsed<Scenario> scenario =
        scenario_from_document(sides->target(), outcome.report.scenario, "the report's scenario");
    ASSERT_TRUE(scenario) << scenario.error().to_text();
    EXPECT_EQ(scenario->steps.size(), 7);
  }
}

TEST(ContainedCheck, FindsTheCommandsOfACrashOfTheReference) {
  const auto make_harmful = []() -> std::unique_ptr<Implementation> {
    return std::make_unique<Harmful>(block_pool_sides().make_reference(), Harmful::Plan{});
  };
  ContainedCheck check = check_of(
      block_pool_sides(), {make_harmful, [] { return block_pool_sides().make_optimized(); }});
  check.make_reference = make_harmful;
  const Outcome outcome = check_contained(check, commands(1'000));
  ASSERT_TRUE(outcome.report.divergence);
  if (!kIsSanitized) {
    EXPECT_EQ(outcome.report.divergence->message,
              "reference was killed by signal 11 (Segmentation fault)");
  }
  const Parsed<Scenario> scenario = scenario_from_document(
      block_pool_sides().target(), outcome.report.scenario, "the report's scenario");
  ASSERT_TRUE(scenario) << scenario.error().to_text();
  EXPECT_EQ(scenario->steps.size(), 7);
}

/// Wraps an implementation, and records its commands.
class Recording final : public Implementation {
 public:
  Recording(std::unique_ptr<Implementation> sound, std::vector<Command>& commands)
      : sound_(std::move(sound)), commands_(commands) {}

  std::string name() const override { return sound_->name(); }
  std::optional<ImplementationFailure> reset(const Setup& setup) override {
    return sound_->reset(setup);
  }
  std::optional<ImplementationFailure> apply(const Command& command, const World& world,
                                             Observe observe, Observation& observation) override {
    commands_.push_back(command);
    return sound_->apply(command, world, observe, observation);
  }

 private:
  std::unique_ptr<Implementation> sound_;
  std::vector<Command>& commands_;
};

// One episode in six has a tail, whose beginning depends on the episode's length.
TEST(ContainedCheck, FindsTheCommandsOfACrashLateInAnEpisode) {
  constexpr std::uint64_t kStep = 149;
  const TargetSides& sides = block_pool_sides();
  const ContainedCheck crashing = check_of(sides, Harmful::Plan{.command = kStep + 1});
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    CheckOptions options = commands(200);
    options.seed = seed;
    options.shrink = false;
    std::vector<Command> given;
    Recording recording(sides.make_optimized(), given);
    ASSERT_TRUE(check(*sides.checks, *sides.make_reference(), recording, options)->passed());

    const Outcome outcome = check_contained(crashing, options);

    const Parsed<Scenario> scenario =
        scenario_from_document(sides.target(), outcome.report.scenario, "the report's scenario");
    ASSERT_TRUE(scenario) << scenario.error().to_text();
    ASSERT_EQ(scenario->steps.size(), kStep + 1);
    for (std::uint64_t step = 0; step <= kStep; ++step) {
      EXPECT_TRUE(scenario->steps[step].command == given[step]) << step;
    }
  }
}

TEST(ContainedCheck, ReportsACrashWhateverOraclesAreLeftOut) {
  const ContainedCheck check = check_of(block_pool_sides(), Harmful::Plan{});
  CheckOptions options = commands(1'000);
  options.oracles = *oracles_of("expectation");
  const Outcome outcome = check_contained(check, options);
  ASSERT_TRUE(outcome.report.divergence);
  EXPECT_EQ(outcome.report.divergence->oracle, "crash");
  EXPECT_EQ(outcome.report.oracles, options.oracles);
}

TEST(ContainedCheck, ReportsWhatHasNoEnd) {
  const ContainedCheck check =
      check_of(block_pool_sides(), {.harm = Harm::kEndlessLoop, .command = 3});
  const Outcome outcome = check_contained(check, commands(1'000));
  ASSERT_TRUE(outcome.report.divergence);
  EXPECT_EQ(outcome.report.divergence->message,
            "optimized did not end a command within 0.5 s of CPU time");
  EXPECT_EQ(outcome.report.divergence->step, 2);
}

#if !KVFENCE_IS_SANITIZED
TEST(ContainedCheck, ReportsMemoryWithoutEnd) {
  const ContainedCheck check =
      check_of(block_pool_sides(), {.harm = Harm::kMemoryWithoutEnd, .command = 3});
  const Outcome outcome = check_contained(check, commands(1'000));
  ASSERT_TRUE(outcome.report.divergence);
  EXPECT_EQ(outcome.report.divergence->message, "optimized ran out of memory (256 MiB)");
}
#endif

TEST(ContainedCheck, ReportsAnException) {
  const ContainedCheck check = check_of(block_pool_sides(), {.harm = Harm::kException});
  const Outcome outcome = check_contained(check, commands(1'000));
  ASSERT_TRUE(outcome.report.divergence);
  EXPECT_EQ(outcome.report.divergence->message, "optimized threw an exception: no such block");
}

TEST(ContainedCheck, NamesTheSideThatFailed) {
  const TargetSides& sides = block_pool_sides();
  const ContainedCheck check =
      check_of(sides, {[&]() -> std::unique_ptr<Implementation> {
                         return std::make_unique<Harmful>(sides.make_reference(), Harmful::Plan{});
                       },
                       [&] { return sides.make_optimized(); }});
  const Outcome outcome = check_contained(check, commands(1'000));
  ASSERT_TRUE(outcome.report.divergence);
  EXPECT_EQ(outcome.report.divergence->message.find("reference "), 0)
      << outcome.report.divergence->message;
}

TEST(ContainedCheck, TriesOneLongEpisodeWhereEarlierOnesCount) {
  const ContainedCheck check =
      check_of(block_pool_sides(), {.command = 450, .counts_across_episodes = true});
  CheckOptions options = commands(1'000);
  options.shrink = false;
  const Outcome outcome = check_contained(check, options);
  ASSERT_TRUE(outcome.report.divergence);
  EXPECT_EQ(outcome.report.episode, 2);
  const Parsed<Scenario> scenario = scenario_from_document(
      block_pool_sides().target(), outcome.report.scenario, "the report's scenario");
  ASSERT_TRUE(scenario);
  EXPECT_EQ(scenario->steps.size(), 450);
  EXPECT_EQ(outcome.report.reproduce, "");
}

TEST(ContainedCheck, NamesTheEpisodeOfAFileThatCrashes) {
  const ContainedCheck check =
      check_of(block_pool_sides(), {.command = 5, .counts_across_episodes = true});
  const std::string episode = "target block_pool\ntake_events\ntake_events\ntake_events\n";
  CheckOptions options;
  options.scenario = *parse_document(episode + episode + episode);
  options.shrink = false;
  const Outcome outcome = check_contained(check, options);
  ASSERT_TRUE(outcome.report.divergence);
  EXPECT_EQ(outcome.report.divergence->oracle, "crash");
  EXPECT_EQ(outcome.report.divergence->step, 1);
  EXPECT_EQ(outcome.report.episode, 1);
  const Parsed<Scenario> scenario = scenario_from_document(
      block_pool_sides().target(), outcome.report.scenario, "the report's scenario");
  ASSERT_TRUE(scenario);
  EXPECT_EQ(scenario->steps.size(), 2);
}

TEST(ContainedCheck, NamesTheWholeCheckIfNoEpisodeReproducesIt) {
  const ContainedCheck check =
      check_of(block_pool_sides(), {.command = 7, .spares_first_episode = true});
  CheckOptions options = commands(1'000);
  options.config_overrides = {{"profile", Value(std::string("v0.23")), {}}};
  const Outcome outcome = check_contained(check, options);
  ASSERT_TRUE(outcome.report.divergence);
  EXPECT_EQ(outcome.report.episode, 1);
  EXPECT_EQ(outcome.report.reproduce,
            "kvfence check --target block_pool --seed 1 --jobs 1 --commands 207 "
            "--episode-commands 200 --config 'profile=v0.23'");
}

/// Wraps an implementation, and answers wrongly from the n-th command of the process on.
class Forgetful final : public Implementation {
 public:
  Forgetful(std::unique_ptr<Implementation> sound, std::uint64_t command)
      : sound_(std::move(sound)), command_(command) {}

  std::string name() const override { return sound_->name(); }
  std::optional<ImplementationFailure> reset(const Setup& setup) override {
    return sound_->reset(setup);
  }
  std::optional<ImplementationFailure> apply(const Command& command, const World& world,
                                             Observe observe, Observation& observation) override {
    ++num_commands_of_process;
    auto failure = sound_->apply(command, world, observe, observation);
    if (num_commands_of_process >= command_) {
      observation = default_observation(block_pool_sides().target());
    }
    return failure;
  }

 private:
  std::unique_ptr<Implementation> sound_;
  std::uint64_t command_;
};

TEST(ContainedCheck, NamesTheWholeCheckIfTheSidesDifferOnlyAfterOtherEpisodes) {
  const TargetSides& sides = block_pool_sides();
  const ContainedCheck check =
      check_of(sides, {[&] { return sides.make_reference(); },
                       [&]() -> std::unique_ptr<Implementation> {
                         return std::make_unique<Forgetful>(sides.make_optimized(), 450);
                       }});
  for (const bool shrink : {true, false}) {
    CheckOptions options = commands(1'000);
    options.shrink = shrink;
    const Outcome outcome = check_contained(check, options);
    ASSERT_TRUE(outcome.report.divergence);
    EXPECT_EQ(outcome.report.divergence->oracle, "lockstep");
    EXPECT_EQ(
        outcome.report.source,
        "random, seed 1, episode 2, which passes alone, so it depends on what came before it");
    EXPECT_EQ(outcome.report.reproduce,
              "kvfence check --target block_pool --seed 1 --jobs 1 --commands 450 "
              "--episode-commands 200");
  }
  const std::string episode = "target block_pool\ntake_events\ntake_events\ntake_events\n";
  CheckOptions options;
  for (int count = 0; count < 150; ++count) {
    const Document part = *parse_document(episode);
    if (!options.scenario) options.scenario.emplace();
    options.scenario->insert(options.scenario->end(), part.begin(), part.end());
  }
  options.scenario_file = "all of them.kvs";
  const Outcome outcome = check_contained(check, options);
  ASSERT_TRUE(outcome.report.divergence);
  EXPECT_EQ(outcome.report.episode, 149);
  EXPECT_EQ(outcome.report.reproduce, "kvfence run 'all of them.kvs'");
}

TEST(ContainedCheck, FindsTheSameWithAnyNumberOfProcesses) {
  const TargetSides& sides = block_pool_sides();
  ContainedCheck check =
      check_of(sides, {[&] { return sides.make_reference(); },
                       [&] { return sides.make_planted("hash_kept_on_reuse"); }});
  const Outcome one = check_contained(check, commands(20'000));
  ASSERT_TRUE(one.report.divergence);
  for (const std::uint32_t jobs : {2U, 3U, 7U}) {
    check.jobs = jobs;
    const Outcome several = check_contained(check, commands(20'000));
    ASSERT_TRUE(several.report.divergence);
    EXPECT_EQ(several.report.episode, one.report.episode);
    EXPECT_EQ(several.report.commands, one.report.commands);
    EXPECT_EQ(print(several.report.scenario), print(one.report.scenario));
  }
}

TEST(ContainedCheck, CountsTheSameWithAnyNumberOfProcesses) {
  const TargetSides& sides = block_pool_sides();
  ContainedCheck check = check_of(
      sides, {[&] { return sides.make_reference(); }, [&] { return sides.make_optimized(); }});
  const Outcome one = check_contained(check, commands(10'100));
  EXPECT_EQ(one.exit_code, exit_code::kAgree);
  EXPECT_EQ(one.report.commands, 10'100);
  check.jobs = 3;
  const Outcome several = check_contained(check, commands(10'100));
  EXPECT_EQ(several.report.commands, one.report.commands);
  EXPECT_EQ(several.report.numbers, one.report.numbers);
  ASSERT_EQ(several.report.reach.size(), one.report.reach.size());
  for (const ReachCount& count : one.report.reach) {
    const auto same = std::find_if(several.report.reach.begin(), several.report.reach.end(),
                                   [&](const ReachCount& each) { return each.name == count.name; });
    ASSERT_NE(same, several.report.reach.end()) << count.name;
    EXPECT_EQ(same->count, count.count) << count.name;
  }
}

}  // namespace
}  // namespace kvfence
