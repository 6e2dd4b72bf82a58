/// `kvfence replay --target engine`: recorded production traffic through a whole engine.

#include <algorithm>
#include <memory>
#include <utility>

#include "contract/engine_target.h"
#include "cuda/engine_on_virtual_device.h"
#include "scenarios/commands.h"
#include "scenarios/engine_replay_report.h"
#include "scenarios/output.h"
#include "scenarios/progress.h"
#include "scenarios/replay_output.h"

namespace kvfence {
namespace {

using Engine = Implementation<EngineTarget>;

/// Who replays: one side alone, or the reference and the side under test.
struct Sides {
  std::unique_ptr<Engine> expected;
  std::unique_ptr<Engine> actual;  ///< null: the expected side alone
  bool has_bytes = true;           ///< one of them copies on the virtual device
};

Parsed<Sides> make_sides(const ReplayCommandOptions& options) {
  using Available = Implementations<EngineTarget>;
  Sides sides;
  if (options.only == "reference") {
    sides.expected = Available::make_reference();
    sides.has_bytes = false;
    return sides;
  }
  if (!options.lockstep) {
    sides.expected = Available::make_optimized();
    return sides;
  }
  const std::string& bug = options.subject.planted_bug;
  sides.expected = Available::make_reference();
  sides.actual = bug.empty() ? Available::make_optimized() : Available::make_planted(bug);
  if (sides.actual) return sides;
  return InputError{"--planted-bug", {}, "'" + bug + "'", "a name of kvfence list planted-bugs"};
}

Report report_of(const ReplayCommandOptions& options, const Sides& sides,
                 const EngineReplayResult& result, double seconds) {
  Report report;
  report.target = EngineTarget::kName;
  report.source = options.file;
  report.expected_name = sides.expected->name();
  report.actual_name = sides.actual ? sides.actual->name() : "";
  report.commands = result.commands;
  report.seconds = seconds;
  report.disagreements = result.divergence ? 1 : 0;
  report.divergence = result.divergence;
  return report;
}

}  // namespace

int replay_engine_command(const ReplayCommandOptions& options) {
  const EngineReplayOptions& replay = options.engine;
  const auto requests = read_mooncake_trace_file(options.file, kMooncakeBlockTokens);
  if (!requests) return bad_input(requests.error());
  if (auto error = validate(replay, *requests)) return bad_input(*error);
  const Parsed<Sides> sides = make_sides(options);
  if (!sides) return bad_input(sides.error());

  Progress progress("requests", options.output.quiet);
  const std::size_t num_requests = std::min<std::size_t>(requests->size(), replay.requests_max);
  const EngineReplayResult result =
      replay_traffic(*requests, replay, *sides->expected, sides->actual.get(),
                     [&](std::size_t done) { progress.show(done, num_requests); });
  progress.clear();
  Report report = report_of(options, *sides, result, progress.seconds());
  if (result.scenario) save_divergence(options, to_document(*result.scenario), report);
  const std::size_t block_bytes =
      sides->has_bytes ? replay.block_size * cuda::kEngineTokenBytes : 0;
  return show_replay(options, report,
                     {.csv = to_csv(result),
                      .svg = "",
                      .json = to_json(result, block_bytes),
                      .text = to_summary(result, block_bytes) + "\n"});
}

}  // namespace kvfence
