/// `kvfence replay --target scheduler`: recorded production traffic through a whole scheduler, an
/// engine without a connector.

#include <memory>
#include <utility>

#include "contract/engine/engine_target.h"
#include "optimized/scheduler/scheduler.h"
#include "reference/scheduler/scheduler.h"
#include "scenarios/command/commands.h"
#include "scenarios/command/output.h"
#include "scenarios/command/progress.h"
#include "scenarios/command/replay_output.h"
#include "scenarios/replay/scheduler_lockstep.h"
#include "scenarios/replay/scheduler_replay_report.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

template <class SchedulerType>
std::unique_ptr<SchedulerSide> make_alone(const SchedulerConfig& config) {
  return std::make_unique<OneScheduler<SchedulerType>>(SchedulerType(config, KVConnectorHandle()));
}

/// Who replays, with the names that stand in the report.
struct Sides {
  std::unique_ptr<SchedulerSide> side;
  std::string expected_name;
  std::string actual_name;  ///< empty: the expected side alone
};

Parsed<Sides> make_sides(const ReplayCommandOptions& options, const engine::Config& config,
                         const SchedulerConfig& setup) {
  if (options.only == "reference") {
    return Sides{make_alone<reference::Scheduler>(setup), options.only, ""};
  }
  if (!options.lockstep) return Sides{make_alone<optimized::Scheduler>(setup), "optimized", ""};
  const std::string& bug = options.subject.planted_bug;
  const TargetSides& target = engine_sides();
  auto actual = bug.empty() ? target.make_optimized() : target.make_planted(bug);
  if (!actual) {
    return InputError{"--planted-bug", {}, "'" + bug + "'", "a name of kvfence list planted-bugs"};
  }
  auto expected = target.make_reference();
  const std::string expected_name = expected->name();
  const std::string actual_name = actual->name();
  return Sides{std::make_unique<SchedulersInLockstep>(std::move(expected), std::move(actual),
                                                      config, options.state_every),
               expected_name, actual_name};
}

Report report_of(const ReplayCommandOptions& options, const Sides& sides,
                 const SchedulerReplayResult& result, double seconds) {
  Report report;
  report.target = kReplayScheduler;
  report.source = options.file;
  report.expected_name = sides.expected_name;
  report.actual_name = sides.actual_name;
  report.commands = result.steps + result.idle_steps;
  report.seconds = seconds;
  report.disagreements = result.divergence ? 1 : 0;
  report.divergence = result.divergence;
  if (result.divergence) {
    report.reproduce =
        "kvfence replay " + options.arguments + " --requests " + std::to_string(result.requests);
  }
  return report;
}

}  // namespace

int replay_scheduler_command(const ReplayCommandOptions& options) {
  SchedulerReplayOptions replay = options.scheduler;
  replay.enable_kv_cache_events = options.lockstep;  // events are compared too
  if (auto error = validate(replay)) return bad_input(*error);
  const auto requests = read_mooncake_trace_file(options.file, replay.block_tokens);
  if (!requests) return bad_input(requests.error());
  const Parsed<SchedulerConfig> config = config_of(replay, *requests);
  if (!config) return bad_input(config.error());
  const Parsed<Sides> sides = make_sides(options, target_config_of(replay, *requests), *config);
  if (!sides) return bad_input(sides.error());

  Progress progress("requests", options.output.quiet);
  const SchedulerReplayResult result =
      replay_traffic(*requests, replay, *config, *sides->side,
                     [&](std::size_t done, std::size_t total) { progress.show(done, total); });
  progress.clear();
  const Report report = report_of(options, *sides, result, progress.seconds());
  return show_replay(options, report,
                     {.csv = to_csv(result.samples),
                      .svg = to_svg(result.samples),
                      .json = to_json(result),
                      .text = to_text_chart(result.samples) + "\n" + to_summary(result) + "\n"});
}

}  // namespace kvfence
