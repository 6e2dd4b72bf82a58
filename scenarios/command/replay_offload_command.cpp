/// `kvfence replay --target offload`: recorded production traffic over a GPU tier and a CPU tier.

#include <algorithm>
#include <utility>

#include "optimized/offload/offloading_manager.h"
#include "properties/offload/driver.h"
#include "reference/offload/offloading_manager.h"
#include "scenarios/command/commands.h"
#include "scenarios/command/output.h"
#include "scenarios/command/progress.h"
#include "scenarios/command/replay_implementations.h"
#include "scenarios/command/replay_output.h"
#include "scenarios/replay/offload_replay_report.h"
#include "scenarios/replay/unlisted_offloading_manager.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

using Sides = ReplayImplementations;

/// A side alone shows no lists, which cost the whole capacity at each command.
Parsed<Sides> make_sides_of_tier(const ReplayCommandOptions& options) {
  using Reference = UnlistedOffloadingManager<reference::OffloadingManager>;
  using Optimized = UnlistedOffloadingManager<optimized::OffloadingManager>;
  if (options.only == "reference")
    return Sides{make_offload_driver<Reference>(options.only), nullptr};
  if (!options.lockstep) return Sides{make_offload_driver<Optimized>("optimized"), nullptr};
  return make_both_sides(offload_sides(), options);
}

}  // namespace

int replay_offload_command(const ReplayCommandOptions& options) {
  OffloadReplayOptions replay = options.offload;
  replay.enable_events = options.lockstep;  // events are compared too
  if (auto error = validate(replay)) return bad_input(*error);
  const auto requests = read_mooncake_trace_file(options.file);
  if (!requests) return bad_input(requests.error());
  if (auto error = find_repeated_id(*requests, options.file)) return bad_input(*error);
  const Parsed<Sides> sides = make_sides_of_tier(options);
  if (!sides) return bad_input(sides.error());

  Progress progress("requests", options.output.quiet);
  // The run through the GPU tier, then those through the CPU tier, which count what it left of them.
  const std::size_t num_requests = std::min<std::size_t>(requests->size(), replay.requests_max);
  const std::size_t num_runs = 1 + replay.cpu_blocks.size() * replay.policies.size();
  const auto show = [&](std::size_t done) { progress.show(done, num_runs * num_requests); };
  const auto gpu_tier = block_pool_sides().make_optimized();
  OffloadRequests traffic = behind_gpu_tier(*requests, gpu_options_of(replay), *gpu_tier,
                                            [&](std::size_t done, std::size_t) { show(done); });
  const OffloadReplayResult result =
      replay_offload_tiers(std::move(traffic), replay, *sides->expected, sides->actual.get(),
                           [&](std::size_t done, std::size_t) { show(num_requests + done); });
  progress.clear();
  const OffloadTierResult* diverged = result.diverged();
  Report report = make_report(offload_sides(), options, *sides, result.commands(),
                              diverged ? diverged->divergence : std::nullopt, progress.seconds());
  if (diverged != nullptr && diverged->scenario) {
    save_divergence(options, to_document(*diverged->scenario), report);
  }
  return show_replay(options, report,
                     {.csv = to_csv(result),
                      .svg = to_svg(result),
                      .json = to_json(result),
                      .text = to_table(result) + "\n"});
}

}  // namespace kvfence
