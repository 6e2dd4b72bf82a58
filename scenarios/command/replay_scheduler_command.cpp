/// `kvfence replay --target scheduler`: recorded production traffic through a whole scheduler, an
/// engine without a connector.

#include "scenarios/command/commands.h"
#include "scenarios/command/output.h"
#include "scenarios/command/progress.h"
#include "scenarios/command/replay_implementations.h"
#include "scenarios/command/replay_output.h"
#include "scenarios/replay/scheduler_replay_report.h"

namespace kvfence {

int replay_scheduler_command(const ReplayCommandOptions& options) {
  SchedulerReplayOptions replay = options.scheduler;
  replay.enable_kv_cache_events = options.lockstep;  // events are compared too
  const auto requests = read_mooncake_trace_file(options.file, replay.block_tokens);
  if (!requests) return bad_input(requests.error());
  if (auto error = validate(replay, *requests)) return bad_input(*error);
  const auto sides = make_sides(engine_sides(), options, options.lockstep);
  if (!sides) return bad_input(sides.error());

  Progress progress("requests", options.output.quiet);
  const SchedulerReplayResult result =
      replay_traffic(*requests, replay, *sides->expected, sides->actual.get(),
                     [&](std::size_t done, std::size_t total) { progress.show(done, total); });
  progress.clear();
  Report report = make_report(engine_sides(), options, *sides, result.steps + result.idle_steps,
                              result.divergence, progress.seconds());
  report.target = kReplayScheduler;
  if (result.divergence) {
    report.reproduce =
        "kvfence replay " + options.arguments + " --requests " + std::to_string(result.requests);
  }
  return show_replay(options, report,
                     {.csv = to_csv(result.samples),
                      .svg = to_svg(result.samples),
                      .json = to_json(result),
                      .text = to_text_chart(result.samples) + "\n" + to_summary(result) + "\n"});
}

}  // namespace kvfence
