/// `kvfence replay --target engine`: recorded production traffic through a whole engine.

#include "contract/engine/engine_target.h"
#include "cuda/worker/engine_on_virtual_device.h"
#include "scenarios/command/commands.h"
#include "scenarios/command/output.h"
#include "scenarios/command/progress.h"
#include "scenarios/command/replay_implementations.h"
#include "scenarios/command/replay_output.h"
#include "scenarios/replay/engine_replay_report.h"

namespace kvfence {
int replay_engine_command(const ReplayCommandOptions& options) {
  const EngineReplayOptions& replay = options.engine;
  const auto requests = read_mooncake_trace_file(options.file, kMooncakeBlockTokens);
  if (!requests) return bad_input(requests.error());
  if (auto error = validate(replay, *requests)) return bad_input(*error);
  const auto sides = make_sides(engine_sides(), options, options.lockstep);
  if (!sides) return bad_input(sides.error());

  Progress progress("requests", options.output.quiet);
  const EngineReplayResult result =
      replay_traffic(*requests, replay, *sides->expected, sides->actual.get(),
                     [&](std::size_t done, std::size_t total) { progress.show(done, total); });
  progress.clear();
  Report report = make_report(engine_sides(), options, *sides, result.commands, result.divergence,
                              progress.seconds());
  if (result.scenario) save_divergence(options, to_document(*result.scenario), report);
  // The reference moves symbols; beside it or alone, the optimized engine copies.
  const bool has_bytes = options.only != "reference";
  const std::size_t block_bytes = has_bytes ? replay.block_size * cuda::kEngineTokenBytes : 0;
  return show_replay(options, report,
                     {.csv = to_csv(result),
                      .svg = "",
                      .json = to_json(result, block_bytes),
                      .text = to_summary(result, block_bytes) + "\n"});
}

}  // namespace kvfence
