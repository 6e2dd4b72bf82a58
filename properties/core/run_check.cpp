#include "properties/core/run_check.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "properties/core/campaign.h"
#include "properties/core/lockstep.h"
#include "properties/core/shrink.h"

namespace kvfence {
namespace {

constexpr std::uint64_t kCampaignCommands = 100'000;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The first check under way in this process that nobody watches from another one.
std::atomic<const CheckOptions*> guarded{nullptr};

/// A component that calls exit(0) must not end the program as if it had passed.
class ExitGuard {
 public:
  explicit ExitGuard(const CheckOptions& options) {
    static const int kIsRefused = std::atexit(fail);
    const CheckOptions* none = nullptr;
    is_first_ = kIsRefused == 0 && guarded.compare_exchange_strong(none, &options);
  }
  ~ExitGuard() {
    if (is_first_) guarded = nullptr;
  }
  ExitGuard(const ExitGuard&) = delete;
  ExitGuard& operator=(const ExitGuard&) = delete;

 private:
  static void fail() {
    const CheckOptions* const options = guarded;
    if (options == nullptr) return;
    std::fflush(nullptr);
    std::fprintf(stderr,
                 "kvfence: exit() was called during a check; reproduce: seed %llu, episode %llu\n",
                 static_cast<unsigned long long>(options->seed),
                 static_cast<unsigned long long>(options->position->episode.load()));
    std::_Exit(1);
  }

  bool is_first_ = false;
};

/// The members that the overrides pin: a shrunk scenario keeps them, because the component under
/// test may support nothing else.
std::vector<std::pair<std::size_t, Value>> pinned_members(const Config& config,
                                                          const CheckOptions& options) {
  std::vector<std::pair<std::size_t, Value>> pinned;
  const DeclaredObject members = config.declared();
  for (std::size_t index = 0; index < members.size(); ++index) {
    for (const Field& field : options.config_overrides) {
      if (members[index].declaration().name != field.key) continue;
      pinned.emplace_back(index, members[index].value());
    }
  }
  return pinned;
}

/// Adds a failure to the report.
void add_failure(Report& report, const Checks& checks, Implementation& expected,
                 Implementation& actual, Divergence divergence, Scenario scenario,
                 const CheckOptions& options) {
  report.disagreements = 1;
  const std::size_t before = scenario.steps.size();
  // An expectation is about exactly these commands: a shorter list would miss it for no reason. A
  // configuration that one side does not support is no failure.
  const bool may_shrink = options.shrink && divergence.oracle != "expectation" &&
                          divergence.oracle != "unsupported" && divergence.oracle != "unavailable";
  if (may_shrink && shrink_failure(checks, expected, actual, scenario, divergence, options)) {
    report.commands_before_shrinking = before;
  }
  report.divergence = std::move(divergence);
  report.scenario = to_document(scenario);
}

Parsed<Report> run_document(const Checks& checks, Implementation& expected, Implementation& actual,
                            const CheckOptions& options, Report report) {
  Parsed<std::vector<Scenario>> episodes =
      scenarios_from_document(*checks.target, *options.scenario, options.scenario_file);
  if (!episodes) return episodes.error();
  const auto start = Clock::now();
  report.source = options.scenario_file;
  if (episodes->size() > 1 && !options.episode) {
    report.numbers.emplace_back("episodes", static_cast<double>(episodes->size()));
  }
  for (Scenario& scenario : *episodes) {
    if (options.episode && scenario.episode.value_or(0) != *options.episode) continue;
    const std::uint64_t left = options.commands_max.value_or(UINT64_MAX) - report.commands;
    scenario.steps.resize(std::min<std::uint64_t>(scenario.steps.size(), left));
    if (options.position) options.position->episode = scenario.episode.value_or(0);
    Lockstep lockstep(checks, expected, actual,
                      {.oracles = options.oracles,
                       .state_every = scenario.has_sparse_state() ? UINT32_MAX : 1,
                       .position = options.position});
    std::optional<Divergence> divergence = run_scenario(lockstep, scenario);
    report.commands += lockstep.num_commands();
    report.seconds = seconds_since(start);
    if (!divergence) continue;
    if (scenario.episode) {
      report.episode = *scenario.episode;
      report.source += ", episode " + std::to_string(report.episode);
    }
    cut_after(scenario, *divergence);
    add_failure(report, checks, expected, actual, std::move(*divergence), std::move(scenario),
                options);
    break;
  }
  return report;
}

Parsed<Report> run_random(const Checks& checks, Implementation& expected, Implementation& actual,
                          const CheckOptions& options, Report report) {
  CampaignOptions campaign;
  campaign.seed = options.seed;
  campaign.commands_max = options.commands_max.value_or(kCampaignCommands);
  campaign.episode_commands = options.episode_commands;
  campaign.share = options.share;
  campaign.num_shares = options.num_shares;
  campaign.config_overrides = options.config_overrides;
  campaign.lockstep.oracles = options.oracles;
  campaign.lockstep.position = options.position;
  if (options.episode) {
    campaign.first_episode = *options.episode;
    campaign.episodes_max = 1;
  }
  const std::uint64_t total = campaign.commands_max == UINT64_MAX ? 0 : campaign.commands_max;
  const auto start = Clock::now();
  CampaignResult result =
      run_campaign(checks, expected, actual, campaign, [&](const CampaignProgress& progress) {
        return !options.keep_going || options.keep_going(progress.commands, total);
      });
  if (result.config_error) return *result.config_error;
  report.source = "random, seed " + std::to_string(options.seed);
  report.seed = options.seed;
  report.commands = result.progress.commands;
  report.seconds = seconds_since(start);
  report.numbers.emplace_back("episodes", static_cast<double>(result.progress.episodes));
  report.refusals = std::move(result.refusals);
  const bool needs_goals = report.commands >= options.goals_from_commands;
  for (const GoalCount& each : result.goals) {
    report.reach.push_back({std::string(each.goal.name), each.count, needs_goals ? 1u : 0u});
  }
  if (!result.failure) return report;
  report.episode = result.failure->episode;
  report.commands = result.failure->commands;
  report.source += ", episode " + std::to_string(report.episode);
  add_failure(report, checks, expected, actual, std::move(result.failure->divergence),
              std::move(result.failure->scenario), options);
  return report;
}

}  // namespace

Parsed<std::vector<Field>> fields_of(std::string_view text, std::string_view file) {
  Parsed<Line> line = parse_line("config " + std::string(text), file);
  // Places would be in the line that is made here, not in the text.
  if (!line) return InputError{std::string(file), {}, line.error().found, line.error().expected};
  for (Field& field : line->fields) field.position = {};
  if (!line->subject.empty() || line->expectation || !line->comment.empty() ||
      line->fields.empty()) {
    return InputError{std::string(file), {}, "'" + std::string(text) + "'", "key=value"};
  }
  return std::move(line->fields);
}

Parsed<Report> check(const Checks& checks, Implementation& expected, Implementation& actual,
                     const CheckOptions& options) {
  if (options.position == nullptr) {
    RunPosition position;
    CheckOptions watched = options;
    watched.position = &position;
    const ExitGuard guard(watched);
    return check(checks, expected, actual, watched);
  }
  Report report;
  report.target = checks.target->name;
  report.expected_name = expected.name();
  report.actual_name = actual.name();
  report.oracles = options.oracles;
  const auto run = options.scenario ? run_document : run_random;
  Parsed<Report> result = run(checks, expected, actual, options, std::move(report));
  // A child knows its name only when it runs.
  if (result) {
    result->actual_name = actual.name();
    if (auto described = actual.described()) {
      result->compared = std::move(described->reported);
      result->unreported = std::move(described->unreported);
      result->corrections = described->corrections;
      if (options.oracles.rules) result->unjudged = checks.unjudged_without(result->unreported);
    }
  }
  return result;
}

bool shrink_failure(const RunScenario& run, Scenario& scenario, Divergence& divergence,
                    const CheckOptions& options) {
  std::optional<Divergence> of_smallest;
  const auto start = Clock::now();
  const auto pinned = pinned_members(scenario.config, options);
  const auto still_fails = [&](const Scenario& candidate, const Setup& setup) {
    if (seconds_since(start) > options.shrink_seconds_max) return false;
    for (const auto& [index, value] : pinned) {
      if (candidate.config.declared()[index].value() != value) return false;
    }
    std::optional<Divergence> found = run(candidate, setup);
    const bool fails = found && found->oracle == divergence.oracle;
    if (fails) of_smallest = std::move(found);
    return fails;
  };
  ShrinkOptions bounds;
  if (divergence.oracle != "implementation") bounds.failing_step = divergence.step;
  bounds.tries_max = options.shrink_tries_max;
  bounds.progress = [&](std::size_t tries, std::size_t) {
    if (options.keep_going) static_cast<void>(options.keep_going(tries, bounds.tries_max));
  };
  scenario = shrink(std::move(scenario), still_fails, bounds).scenario;
  if (!of_smallest) return false;
  divergence = std::move(*of_smallest);
  return true;
}

bool shrink_failure(const Checks& checks, Implementation& expected, Implementation& actual,
                    Scenario& scenario, Divergence& divergence, const CheckOptions& options) {
  Lockstep lockstep(checks, expected, actual,
                    {.oracles = options.oracles, .position = options.position});
  const auto run = [&](const Scenario& candidate, const Setup& setup) {
    return run_scenario(lockstep, candidate, setup);
  };
  return shrink_failure(run, scenario, divergence, options);
}

Document failing_document(const Report& report) {
  const Divergence& divergence = *report.divergence;
  const std::string who =
      " " + report.actual_name + " against " + report.expected_name + ", " + report.source + ".";
  const std::string what = " Step " + std::to_string(divergence.step) + ", " + divergence.oracle +
                           ", " + divergence.field + ": expected " + divergence.expected +
                           ", actual " + divergence.actual + ".";
  Document document;
  for (std::string comment : {who, what}) {
    for (char& character : comment) {
      if (character == '\n') character = ' ';
    }
    document.emplace_back().comment = std::move(comment);
  }
  document.insert(document.end(), report.scenario.begin(), report.scenario.end());
  return document;
}

}  // namespace kvfence
