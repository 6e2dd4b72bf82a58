#include "scenarios/command/contained_check.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "properties/core/campaign.h"
#include "properties/core/lockstep.h"
#include "scenarios/command/interrupt.h"
#include "scenarios/command/output.h"
#include "scenarios/command/shell_word.h"

namespace kvfence {
namespace {

/// Limit of the shrinker's tries if each is a process.
constexpr std::size_t kTriesMax = 3'000;
constexpr std::chrono::milliseconds kWaitForEach{50};
/// For a try: an endless command need not be waited for as long as when it was found.
constexpr double kSecondsOfATryMax = 0.25;
constexpr double kShrinkSecondsMax = 30;
constexpr std::uint64_t kMemoryOfATryMax = std::uint64_t{512} << 20;
/// Commands of one episode that stands for all before a crash.
constexpr std::uint64_t kLongEpisodeMax = 20'000;

constexpr const char* kReference = "reference";
constexpr std::string_view kCrash = "crash";  ///< Divergence::oracle

using Clock = std::chrono::steady_clock;

/// A process that ended without an answer.
struct Crash {
  std::uint64_t episode = 0;
  std::uint64_t step = 0;
  RunPhase phase = RunPhase::kExpected;
  std::string how;
};

class Checker {
 public:
  Checker(const ContainedCheck& check, const CheckOptions& options)
      : check_(check), options_(options), target_(*check.checks.target) {}

  Outcome run() {
    const auto start = Clock::now();
    run_shares();
    for (Outcome& answer : answers_) {
      if (answer.exit_code > exit_code::kDisagreement) return std::move(answer);
    }
    Outcome outcome = merged();
    outcome.report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (outcome.report.divergence) settle(outcome);
    return outcome;
  }

 private:
  // ---- The campaign, or the scenario ----

  ContainedRun::Work share(std::uint64_t number, std::uint64_t num_shares) const {
    return [this, number, num_shares](RunPosition& position) {
      CheckOptions options = options_;
      options.share = number;
      options.num_shares = num_shares;
      options.shrink = false;
      return answer_of(std::move(options), position);
    };
  }

  /// In the other process.
  std::string answer_of(CheckOptions options, RunPosition& position) const {
    options.position = &position;
    options.keep_going = [&](std::uint64_t done, std::uint64_t total) {
      position.done = done;
      position.total = total;
      return position.episode + options.num_shares <= position.last_episode;
    };
    return to_bytes(check_.run(options));
  }

  void run_shares() {
    const bool is_one = options_.scenario || options_.episode;
    const std::uint32_t num_shares = is_one ? 1 : std::max(1U, check_.jobs);
    answers_.resize(num_shares);
    crashes_.resize(num_shares);
    is_taken_.resize(num_shares);
    std::vector<std::unique_ptr<ContainedRun>> runs;
    for (std::uint64_t number = 0; number < num_shares; ++number) {
      runs.push_back(std::make_unique<ContainedRun>(share(number, num_shares), check_.limits));
    }
    bool is_any_left = true;
    while (is_any_left) {
      is_any_left = false;
      if (!ask_to_go_on(runs)) {
        for (const auto& run : runs) run->position().must_stop = true;
      }
      for (std::size_t number = 0; number < runs.size(); ++number) {
        if (!runs[number]->wait_for(kWaitForEach)) {
          is_any_left = true;
        } else if (!is_taken_[number]) {
          take(number, *runs[number]);
        }
      }
      // An earlier episode may still fail.
      for (const auto& run : runs) {
        const std::uint64_t last = run->position().last_episode;
        run->position().last_episode = std::min(last, first_failed_episode_);
      }
    }
  }

  void take(std::size_t number, const ContainedRun& run) {
    is_taken_[number] = true;
    if (run.answer()) {
      answers_[number] = outcome_from_bytes(*run.answer());
      if (!answers_[number].report.divergence) return;
      first_failed_episode_ = std::min(first_failed_episode_, answers_[number].report.episode);
    } else {
      crashes_[number] = crash_of(run);
      first_failed_episode_ = std::min(first_failed_episode_, crashes_[number]->episode);
    }
  }

  static Crash crash_of(const ContainedRun& run) {
    const RunPosition& position = run.position();
    return {position.episode, position.step, position.phase, run.how_it_ended()};
  }

  bool ask_to_go_on(const std::vector<std::unique_ptr<ContainedRun>>& runs) const {
    if (!options_.keep_going) return true;
    std::uint64_t done = 0;
    std::uint64_t total = 0;
    for (const auto& run : runs) {
      done += run->position().done;
      total = std::max<std::uint64_t>(total, run->position().total);
    }
    return options_.keep_going(done, total);
  }

  // ---- The outcome ----

  /// The outcome of the first episode that failed; of all shares together if none did.
  Outcome merged() {
    for (std::size_t number = 0; number < answers_.size(); ++number) {
      if (crashes_[number] && crashes_[number]->episode == first_failed_episode_) {
        return outcome_of(*crashes_[number]);
      }
      Report& report = answers_[number].report;
      if (report.divergence && report.episode == first_failed_episode_) {
        report.reach.clear();
        return std::move(answers_[number]);
      }
    }
    Outcome all = std::move(answers_.front());
    for (std::size_t number = 1; number < answers_.size(); ++number) {
      add(answers_[number].report, all.report);
    }
    if (!all.report.passed()) all.exit_code = exit_code::kDisagreement;
    return all;
  }

  /// Adds the counts of a share to those of all.
  void add(const Report& share, Report& all) const {
    all.commands += share.commands;
    all.refusals.add(share.refusals);
    for (std::size_t k = 0; k < all.numbers.size(); ++k) {
      all.numbers[k].second += share.numbers[k].second;
    }
    // A share lists the goals that its configurations can reach.
    for (const ReachCount& count : share.reach) {
      const auto same =
          std::find_if(all.reach.begin(), all.reach.end(),
                       [&](const ReachCount& each) { return each.name == count.name; });
      if (same == all.reach.end()) {
        all.reach.push_back(count);
      } else {
        same->count += count.count;
      }
    }
    const bool needs_goals = all.commands >= options_.goals_from_commands;
    for (ReachCount& count : all.reach) count.goal = needs_goals ? 1 : 0;
  }

  // ---- A crash ----

  Outcome outcome_of(const Crash& crash) {
    Outcome outcome;
    outcome.exit_code = exit_code::kDisagreement;
    Report& report = outcome.report;
    report.target = target_.name;
    report.expected_name = kReference;
    report.actual_name = check_.actual_name;
    report.oracles = options_.oracles;
    report.disagreements = 1;
    report.divergence = divergence_of(crash);
    if (options_.scenario) {
      report.source = options_.scenario_file;
      report.episode = crash.episode;
      report.commands = crash.step + 1;
      Parsed<Scenario> scenario = parsed(episodes_of(*options_.scenario).at(crash.episode));
      KVFENCE_CHECK(scenario, "a scenario that ran can be read");
      scenario->steps.resize(std::min<std::size_t>(scenario->steps.size(), crash.step + 1));
      report.scenario = to_document(*scenario);
      return outcome;
    }
    report.seed = options_.seed;
    report.episode = crash.episode;
    report.commands = commands_before(crash.episode) + crash.step + 1;
    report.source = "random, seed " + std::to_string(options_.seed) + ", episode " +
                    std::to_string(crash.episode);
    find_commands(crash, report);
    return outcome;
  }

  Divergence divergence_of(const Crash& crash) const {
    const std::string who = crash.phase == RunPhase::kExpected ? kReference
                            : crash.phase == RunPhase::kActual ? check_.actual_name
                                                               : "what judges both sides";
    return {crash.step, std::string(kCrash), "", "an answer", "none", who + " " + crash.how};
  }

  /// The commands of the episode. What crashes it may have come from earlier ones, as a static
  /// counter does: then one episode as long as all of them is tried.
  void find_commands(const Crash& crash, Report& report) {
    bool is_drawn = false;
    for (const bool is_long : {false, true}) {
      const std::uint64_t as_long = std::min(report.commands, kLongEpisodeMax);
      const auto scenario =
          is_long ? commands_of(crash.episode, as_long, as_long - 1)
                  : commands_of(crash.episode, num_commands_of(crash.episode), crash.step);
      if (!scenario) continue;
      is_drawn = true;
      const auto found = run_contained(to_document(*scenario), check_.limits);
      if (is_long && (!found || found->oracle != kCrash)) break;
      report.scenario = to_document(*scenario);
      if (found && found->oracle == kCrash) {
        report.divergence = found;
        return;
      }
    }
    report.divergence->message +=
        is_drawn ? "; not when the episode runs alone, so it depends on what came before it"
                 : "; nor can its commands be drawn, for the reference ends there, too";
    name_whole_run(report);
  }

  /// A line that reproduces what one episode alone does not.
  void name_whole_run(Report& report) {
    reproduces_alone_ = false;
    if (options_.scenario) {
      report.reproduce = "kvfence run " + shell_argument(options_.scenario_file);
      return;
    }
    std::string bounds =
        " --jobs 1 --commands " +
        std::to_string(commands_before(report.episode) + report.divergence->step + 1) +
        " --episode-commands " + std::to_string(options_.episode_commands);
    if (options_.episode) bounds += " --episode " + std::to_string(*options_.episode);
    report.reproduce = check_line(target_.name, options_, bounds);
  }

  std::uint64_t commands_before(std::uint64_t episode) const {
    const std::uint64_t first = options_.episode.value_or(0);
    return commands_of_episodes(first, episode - first, options_.episode_commands);
  }

  /// The report on the whole episode, as it would be without the crash.
  std::uint64_t num_commands_of(std::uint64_t episode) const {
    const std::uint64_t whole = commands_of_episode(episode, options_.episode_commands);
    if (!options_.commands_max) return whole;
    return std::min(whole, *options_.commands_max - commands_before(episode));
  }

  /// The commands that the generator draws from the reference's answers: up to the last command,
  /// which is not run, since the reference itself may crash in it.
  std::optional<Scenario> commands_of(std::uint64_t episode, std::uint64_t num_commands,
                                      std::uint64_t last) const {
    ContainedRun run(
        [&](RunPosition&) {
          const auto expected = check_.make_reference();
          const auto same = check_.make_reference();
          Choices choices = episode_choices(options_.seed, episode);
          const Parsed<Setup> setup =
              draw_setup(check_.checks, choices, options_.config_overrides, episode);
          KVFENCE_CHECK(setup, "a configuration that was drawn is drawn again");
          Lockstep lockstep(
              check_.checks, *expected, *same,
              {.oracles = {.rules = false}, .state_every = state_every_of_episode(episode, 1)});
          Scenario scenario(target_);
          run_episode(lockstep, *setup, choices, num_commands, scenario, {}, nullptr, last);
          return print(to_document(scenario));
        },
        check_.limits);
    run.wait();
    if (!run.answer()) return std::nullopt;
    const Parsed<Document> document = parse_document(*run.answer());
    if (!document) return std::nullopt;
    Parsed<Scenario> scenario = parsed(*document);
    if (!scenario) return std::nullopt;
    return std::move(*scenario);
  }

  // ---- Shrinking ----

  /// Shrinks the failure, if the options say so. What is reported fails by itself, unless it needs
  /// what earlier episodes changed, as in a child that keeps a table across its `config`.
  void settle(Outcome& outcome) {
    if (!reproduces_alone_) return;
    // No command can be left out, and each try may wait for a child that does not answer.
    if (options_.scenario && outcome.report.divergence->oracle == "implementation" &&
        parsed(outcome.report.scenario)->steps.empty()) {
      return;
    }
    const bool is_crash = outcome.report.divergence->oracle == kCrash;
    const bool may_shrink = options_.shrink && outcome.report.divergence->oracle != "expectation";
    // In one process first, at full speed: most failures do not harm it.
    if (may_shrink && !is_crash && shrink_in_one_process(outcome)) return;
    if (!is_crash && !fails_alone(outcome.report)) {
      outcome.report.source += ", which passes alone, so it depends on what came before it";
      name_whole_run(outcome.report);
    } else if (may_shrink) {
      shrink_in_processes(outcome);
    }
  }

  /// In a process of its own, where nothing came before it.
  bool fails_alone(const Report& report) const {
    if (!options_.scenario) return run_contained(report.scenario, check_.limits).has_value();
    if (episodes_of(*options_.scenario).size() == 1) return true;
    CheckOptions options = options_;
    options.episode = report.episode;
    options.shrink = false;
    return run_contained(std::move(options), check_.limits).has_value();
  }

  void shrink_in_processes(Outcome& outcome) {
    Parsed<Scenario> scenario = parsed(outcome.report.scenario);
    KVFENCE_CHECK(scenario, "a scenario that failed can be read");
    CheckOptions options = options_;
    options.shrink_tries_max = std::min(options.shrink_tries_max, kTriesMax);
    options.shrink_seconds_max = std::min(options.shrink_seconds_max, kShrinkSecondsMax);
    const std::size_t before = scenario->steps.size();
    ContainedLimits limits = check_.limits;
    limits.is_quiet = true;
    limits.seconds_per_command = std::min(limits.seconds_per_command, kSecondsOfATryMax);
    limits.memory_bytes = std::min(limits.memory_bytes, kMemoryOfATryMax);
    const auto run = [&](const Scenario& candidate, const Setup&) {
      // A shorter one that is not tried is one that passes.
      if (interrupt() != 0) return std::optional<Divergence>();
      return run_contained(to_document(candidate), limits);
    };
    Divergence divergence = *outcome.report.divergence;
    if (!shrink_failure(run, *scenario, divergence, options)) return;
    // The report of the smallest scenario, with the full limits.
    const auto found = run_contained(to_document(*scenario), check_.limits);
    if (!found || found->oracle != divergence.oracle) return;
    outcome.report.commands_before_shrinking = before;
    outcome.report.divergence = found;
    outcome.report.scenario = to_document(*scenario);
  }

  /// False: that process crashed, or its result fails in no other one.
  bool shrink_in_one_process(Outcome& outcome) {
    CheckOptions options = options_;
    options.scenario = outcome.report.scenario;
    options.commands_max.reset();
    options.episode.reset();
    ContainedRun run([&](RunPosition& position) { return answer_of(std::move(options), position); },
                     check_.limits);
    while (!run.wait_for(kWaitForEach)) {
      if (interrupt() != 0) return true;
      if (options_.keep_going) {
        static_cast<void>(options_.keep_going(run.position().done, run.position().total));
      }
    }
    if (!run.answer()) return false;
    Report shrunk = outcome_from_bytes(*run.answer()).report;
    if (!shrunk.divergence || !run_contained(shrunk.scenario, check_.limits)) return false;
    outcome.report.divergence = std::move(shrunk.divergence);
    outcome.report.scenario = std::move(shrunk.scenario);
    outcome.report.commands_before_shrinking = shrunk.commands_before_shrinking;
    return true;
  }

  /// The failure of a scenario, a crash included.
  std::optional<Divergence> run_contained(Document scenario, const ContainedLimits& limits) const {
    CheckOptions options;
    options.scenario = std::move(scenario);
    options.oracles = options_.oracles;
    options.shrink = false;
    return run_contained(std::move(options), limits);
  }

  std::optional<Divergence> run_contained(CheckOptions options,
                                          const ContainedLimits& limits) const {
    ContainedRun run([&](RunPosition& position) { return answer_of(std::move(options), position); },
                     limits);
    run.wait();
    if (!run.answer()) return divergence_of(crash_of(run));
    return outcome_from_bytes(*run.answer()).report.divergence;
  }

  Parsed<Scenario> parsed(const Document& document) const {
    return scenario_from_document(target_, document, options_.scenario_file);
  }

  const ContainedCheck& check_;
  const CheckOptions& options_;
  const Target& target_;
  std::vector<Outcome> answers_;  ///< by share
  std::vector<std::optional<Crash>> crashes_;
  std::vector<bool> is_taken_;
  std::uint64_t first_failed_episode_ = UINT64_MAX;
  bool reproduces_alone_ = true;
};

}  // namespace

Outcome check_contained(const ContainedCheck& check, const CheckOptions& options) {
  return Checker(check, options).run();
}

}  // namespace kvfence
