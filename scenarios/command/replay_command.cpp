/// `kvfence replay --target block_pool`: recorded production traffic through the pool. What else it
/// can go through has a file each.

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "scenarios/command/commands.h"
#include "scenarios/command/exit_code.h"
#include "scenarios/command/output.h"
#include "scenarios/command/progress.h"
#include "scenarios/command/replay_implementations.h"
#include "scenarios/command/replay_output.h"
#include "scenarios/replay/mooncake_trace.h"
#include "scenarios/replay/traffic_replay.h"
#include "scenarios/replay/traffic_report.h"

namespace kvfence {
namespace {

using Sides = ReplayImplementations;

Report report_of(const ReplayCommandOptions& options, const Sides& sides,
                 const TrafficReplayResult& result, double seconds) {
  Report report =
      make_report(block_pool_sides(), options, sides, result.commands, result.divergence, seconds);
  const auto number = [&](const char* name, auto value) {
    report.numbers.emplace_back(name, static_cast<double>(value));
  };
  number("requests", result.requests);
  number("too_large", result.too_large);
  number("gpu_blocks", options.gpu_blocks);
  number("concurrency", options.concurrency);
  number("blocks", result.blocks);
  number("hits", result.hits);
  number("hit_rate", result.hit_rate());
  number("evictions", result.evictions);
  number("peak_referenced", result.peak_referenced);
  return report;
}

/// The counts as integers, where the report has decimals.
std::string json_of(const TrafficReplayResult& result, const Report& report) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const auto& [name, value] : report.numbers) {
    if (name != "hit_rate") object[name] = static_cast<std::uint64_t>(value);
  }
  object["hit_rate"] = result.hit_rate();
  return object.dump();
}

int replay_curve(const ReplayCommandOptions& options, const TrafficReplayOptions& replay,
                 const Sides& sides, const std::vector<MooncakeRequest>& requests) {
  Progress progress("requests", options.output.quiet);
  const auto curve =
      hit_rate_curve(requests, options.curve, replay, *sides.expected, sides.actual.get(),
                     [&](std::size_t done, std::size_t total) { progress.show(done, total); });
  progress.clear();
  const MooncakeTotals totals = totals_of(requests);
  nlohmann::ordered_json object = {{"requests", totals.num_requests},
                                   {"blocks", totals.num_blocks},
                                   {"hit_rate_max", totals.hit_rate_max()},
                                   {"seconds", progress.seconds()},
                                   {"disagreements", 0},
                                   {"curve", nlohmann::ordered_json::array()}};
  for (const HitRatePoint& point : curve) {
    object["curve"].push_back({{"gpu_blocks", point.gpu_blocks},
                               {"hits", point.result.hits},
                               {"hit_rate", point.result.hit_rate()},
                               {"evictions", point.result.evictions},
                               {"too_large", point.result.too_large}});
    if (point.result.divergence) object["disagreements"] = 1;
  }
  if (options.output.json) {
    std::printf("%s\n", object.dump().c_str());
  } else {
    std::printf("%s", to_table(curve, totals).c_str());
  }
  if (!write_if_asked(options.csv_file, to_csv(curve)) ||
      !write_if_asked(options.svg_file, to_svg(curve, totals))) {
    return exit_code::kBadInput;
  }
  return object["disagreements"] == 0 ? exit_code::kAgree : exit_code::kDisagreement;
}

}  // namespace

int replay_command(const ReplayCommandOptions& options) {
  if (options.target == kReplayScheduler) return replay_scheduler_command(options);
  if (options.target == kReplayOffload) return replay_offload_command(options);
  if (options.target == kReplayEngine) return replay_engine_command(options);
  TrafficReplayOptions replay;
  replay.gpu_blocks = options.gpu_blocks;
  replay.concurrency = options.concurrency;
  replay.state_every = options.state_every;
  replay.requests_max = options.requests_max;
  if (auto error = validate(replay)) return bad_input(*error);
  for (std::uint32_t size : options.curve) {
    TrafficReplayOptions sized = replay;
    sized.gpu_blocks = size;
    if (auto error = validate(sized)) return bad_input(*error);
  }
  const Parsed<std::vector<MooncakeRequest>> requests = read_mooncake_trace_file(options.file);
  if (!requests) return bad_input(requests.error());
  const Parsed<Sides> sides =
      make_sides(block_pool_sides(), options, /*in_lockstep=*/options.only.empty());
  if (!sides) return bad_input(sides.error());
  if (!options.curve.empty()) return replay_curve(options, replay, *sides, *requests);

  Progress progress("requests", options.output.quiet);
  const TrafficReplayResult result =
      replay_traffic(*requests, replay, *sides->expected, sides->actual.get(),
                     [&](std::size_t done, std::size_t total) { progress.show(done, total); });
  progress.clear();
  Report report = report_of(options, *sides, result, progress.seconds());
  if (result.divergence) save_divergence(options, to_document(*result.scenario), report);
  return show_replay(options, report,
                     {.csv = to_csv(result.samples),
                      .svg = to_svg(result.samples),
                      .json = json_of(result, report),
                      .text = to_text_chart(result.samples) + "\n"});
}

}  // namespace kvfence
