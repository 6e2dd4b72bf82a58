/// `kvfence replay`: recorded production traffic through a pool, a scheduler (which is an engine
/// without a connector), two tiers, or a whole engine.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/implementation.h"
#include "cuda/worker/engine_on_virtual_device.h"
#include "optimized/offload/offloading_manager.h"
#include "properties/offload/driver.h"
#include "reference/offload/offloading_manager.h"
#include "scenarios/command/commands.h"
#include "scenarios/command/files.h"
#include "scenarios/command/output.h"
#include "scenarios/command/progress.h"
#include "scenarios/command/publication.h"
#include "scenarios/replay/replay_reports.h"
#include "scenarios/replay/unlisted_offloading_manager.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

using Json = nlohmann::ordered_json;

// ---- The sides, and the report on them ----

/// One side alone, or the reference and the side under test.
struct Sides {
  std::unique_ptr<Implementation> expected;
  std::unique_ptr<Implementation> actual;  ///< null: the expected side alone
};

/// The optimized side, with the bug that the options name, if any.
std::unique_ptr<Implementation> make_subject(const TargetSides& target,
                                             const ReplayCommandOptions& options) {
  const std::string& bug = options.subject.planted_bug;
  auto subject = bug.empty() ? target.make_optimized() : target.make_planted(bug);
  if (subject) return subject;
  throw BadInput(
      InputError{"--planted-bug", {}, "'" + bug + "'", "a name of kvfence list planted-bugs"});
}

/// The side that the options ask for alone, or both.
Sides make_sides(const TargetSides& target, const ReplayCommandOptions& options, bool in_lockstep) {
  if (options.only == "reference") return {target.make_reference(), nullptr};
  if (in_lockstep) return {target.make_reference(), make_subject(target, options)};
  return {make_subject(target, options), nullptr};
}

/// A side alone shows no lists, since reading them costs the whole capacity at each command.
Sides make_sides_of_tier(const ReplayCommandOptions& options) {
  using Reference = UnlistedOffloadingManager<reference::OffloadingManager>;
  using Optimized = UnlistedOffloadingManager<optimized::OffloadingManager>;
  if (options.only == "reference") {
    return {make_driver<OffloadDriver, Reference>(options.only), nullptr};
  }
  if (!options.lockstep && options.subject.planted_bug.empty()) {
    return {make_driver<OffloadDriver, Optimized>("optimized"), nullptr};
  }
  return make_sides(offload_sides(), options, options.lockstep);
}

Report make_report(const TargetSides& target, const ReplayCommandOptions& options,
                   const Sides& sides, const ReplayEnd& end, double seconds) {
  Report report;
  report.target = target.target().name;
  report.source = options.file;
  report.expected_name = sides.expected->name();
  report.actual_name = sides.actual ? sides.actual->name() : "";
  report.commands = end.commands;
  report.seconds = seconds;
  report.disagreements = end.divergence ? 1 : 0;
  report.divergence = end.divergence;
  return report;
}

// ---- The outcome ----

/// The result of a replay, in every form that may be asked for.
struct Findings {
  std::string csv;
  std::string svg;
  std::string json;  ///< one object, whose members join those of the report
  std::string text;  ///< printed before the report if the sides agree
};

/// Keeps the commands that lead to the report's divergence, if there are any, shrunk: real traffic
/// makes long scenarios. The report names the file.
void save_divergence(const ReplayCommandOptions& options, const std::optional<Scenario>& scenario,
                     Report& report) {
  if (!scenario) return;
  report.scenario = to_document(*scenario);
  const TargetTools& target = **tools_of(report.target, {});
  Progress progress("tries", options.output.quiet);
  const Outcome shrunk =
      target.shrink(report.scenario, options.file, options.subject, progress.callback());
  progress.clear();
  if (shrunk.report.divergence) {
    report.divergence = shrunk.report.divergence;
    report.scenario = shrunk.report.scenario;
    report.commands_before_shrinking = shrunk.report.commands_before_shrinking;
  }
  // Not beside the trace: recorded traffic is often in a read-only folder.
  const auto name = std::filesystem::path(shrunk_path(options.file)).filename();
  const auto path = std::filesystem::path(options.out_folder) / name;
  if (!save_failure(report, path.lexically_normal().string(), options.subject, {})) {
    report.reproduce = "kvfence replay " + options.arguments;
  }
}

/// Writes the files that are asked for; false, with a message on stderr, on failure.
bool write_pictures(const ReplayCommandOptions& options, const std::string& csv,
                    const std::string& svg) {
  const bool is_saved = write_if_asked(options.csv_file, csv);
  return write_if_asked(options.svg_file, svg) && is_saved;
}

/// Writes, prints the findings and the report, and returns the exit code.
int show_replay(const ReplayCommandOptions& options, const Report& report,
                const Findings& findings) {
  bool is_saved = write_pictures(options, findings.csv, findings.svg);
  is_saved = write_junit({report}, options.output) && is_saved;
  if (options.output.json) {
    Json object = Json::parse(to_json(report));
    object.update(Json::parse(findings.json));
    print_json(object);
  } else {
    if (report.disagreements == 0) std::printf("%s", findings.text.c_str());
    std::printf("%s", to_text(report).c_str());
  }
  if (!is_saved) return exit_code::kBadInput;
  // Sides that were never asked must not look like sides that agree.
  if (report.commands == 0) {
    std::fprintf(stderr, "kvfence: %s: nothing was replayed, expected a request that fits\n",
                 options.file.c_str());
    return exit_code::kCannotRun;
  }
  return report.disagreements == 0 ? exit_code::kAgree : exit_code::kDisagreement;
}

// ---- A pool ----

/// The figures, with counts as integers instead of the report's decimals.
Json add_numbers(const ReplayCommandOptions& options, const TrafficReplayResult& result,
                 Report& report) {
  Json counts = {{"requests", result.requests},
                 {"too_large", result.too_large},
                 {"gpu_blocks", options.pool.gpu_blocks},
                 {"concurrency", options.pool.concurrency},
                 {"blocks", result.blocks},
                 {"hits", result.hits},
                 {"hit_rate", result.hit_rate()},
                 {"evictions", result.evictions},
                 {"peak_referenced", result.peak_referenced}};
  for (const auto& [name, value] : counts.items()) {
    report.numbers.emplace_back(name, value.get<double>());
  }
  // The share comes after the counts.
  counts.erase("hit_rate");
  counts["hit_rate"] = result.hit_rate();
  return counts;
}

int replay_curve(const ReplayCommandOptions& options, const Sides& sides,
                 const std::vector<MooncakeRequest>& requests) {
  Progress progress("requests", options.output.quiet);
  const auto curve = hit_rate_curve(requests, options.curve, options.pool, *sides.expected,
                                    sides.actual.get(), progress.callback());
  progress.clear();
  const MooncakeTotals totals = totals_of(requests);
  // It is over at the first size that diverged.
  const TrafficReplayResult& last = curve.back().result;
  Report report = make_report(block_pool_sides(), options, sides, last, progress.seconds());
  report.commands = 0;
  Json figures = {{"requests", requests.size()},
                  {"blocks", totals.num_blocks},
                  {"hit_rate_max", totals.hit_rate_max()},
                  {"curve", Json::array()}};
  for (const HitRatePoint& point : curve) {
    report.commands += point.result.commands;
    figures["curve"].push_back({{"gpu_blocks", point.gpu_blocks},
                                {"hits", point.result.hits},
                                {"hit_rate", point.result.hit_rate()},
                                {"evictions", point.result.evictions},
                                {"too_large", point.result.too_large}});
  }
  save_divergence(options, last.scenario, report);
  return show_replay(options, report,
                     {.csv = to_csv(curve),
                      .svg = to_svg(curve, totals),
                      .json = figures.dump(),
                      .text = to_table(curve, totals) + "\n"});
}

int replay_pool(const ReplayCommandOptions& options) {
  TrafficReplayOptions replay = options.pool;
  replay.enable_kv_cache_events = options.is_published();
  fail_on(validate(replay));
  for (std::uint32_t size : options.curve) {
    TrafficReplayOptions sized = replay;
    sized.gpu_blocks = size;
    fail_on(validate(sized));
  }
  const auto requests = required(read_mooncake_trace_file(options.file));
  const Sides sides = make_sides(block_pool_sides(), options,
                                 /*in_lockstep=*/options.only.empty() && !options.is_published());
  if (!options.curve.empty()) return replay_curve(options, sides, requests);
  Publication publication(options.publish, replay.profile, replay.hash_algorithm);

  Progress progress("requests", options.output.quiet);
  const TrafficReplayResult result =
      replay_traffic(requests, replay, *sides.expected, sides.actual.get(), progress.callback(),
                     publication.tap());
  progress.clear();
  publication.finish();
  Report report = make_report(block_pool_sides(), options, sides, result, progress.seconds());
  Json counts = add_numbers(options, result, report);
  counts.update(Json::parse(publication.to_json()));
  save_divergence(options, result.scenario, report);
  return show_replay(options, report,
                     {.csv = to_csv(result.samples),
                      .svg = to_svg(result.samples),
                      .json = counts.dump(),
                      .text = to_text_chart(result.samples) + "\n" + publication.to_text()});
}

// ---- A scheduler, two tiers, an engine ----

int replay_scheduler(const ReplayCommandOptions& options) {
  SchedulerReplayOptions replay = options.scheduler;
  replay.enable_kv_cache_events = options.lockstep || options.is_published();
  const auto requests = required(read_mooncake_trace_file(options.file, replay.block_tokens));
  fail_on(validate(replay, requests));
  const Sides sides = make_sides(engine_sides(), options, options.lockstep);
  Publication publication(options.publish, replay.profile, replay.hash_algorithm);

  Progress progress("requests", options.output.quiet);
  const SchedulerReplayResult result =
      replay_traffic(requests, replay, *sides.expected, sides.actual.get(), progress.callback(),
                     publication.tap());
  progress.clear();
  publication.finish();
  Report report = make_report(engine_sides(), options, sides, result, progress.seconds());
  report.target = kReplayScheduler;
  if (result.divergence) {
    report.reproduce =
        "kvfence replay " + options.arguments + " --requests " + std::to_string(result.requests);
  }
  Json figures = Json::parse(to_json(result));
  figures.update(Json::parse(publication.to_json()));
  return show_replay(options, report,
                     {.csv = to_csv(result.samples),
                      .svg = to_svg(result.samples),
                      .json = figures.dump(),
                      .text = to_text_chart(result.samples) + "\n" + to_summary(result) + "\n" +
                              publication.to_text()});
}

int replay_offload(const ReplayCommandOptions& options) {
  OffloadReplayOptions replay = options.offload;
  replay.enable_events = options.lockstep;  // events are compared too
  fail_on(validate(replay));
  const auto requests = required(read_mooncake_trace_file(options.file));
  fail_on(find_repeated_id(requests, options.file));
  const Sides sides = make_sides_of_tier(options);

  Progress progress("requests", options.output.quiet);
  // The run through the GPU tier, then those through the CPU tier, without the requests that the GPU
  // tier left out.
  const std::size_t num_requests = std::min<std::size_t>(requests.size(), replay.requests_max);
  const std::size_t num_runs = 1 + replay.cpu_blocks.size() * replay.policies.size();
  const auto show = [&](std::size_t done) { progress.show(done, num_runs * num_requests); };
  const auto gpu_tier = block_pool_sides().make_optimized();
  OffloadRequests traffic = below_gpu_tier(requests, gpu_options_of(replay), *gpu_tier,
                                           [&](std::size_t done, std::size_t) { show(done); });
  const OffloadReplayResult result =
      replay_offload_tiers(std::move(traffic), replay, *sides.expected, sides.actual.get(),
                           [&](std::size_t done, std::size_t) { show(num_requests + done); });
  progress.clear();
  ReplayEnd end;
  if (const OffloadTierResult* const diverged = result.diverged()) end = *diverged;
  end.commands = result.commands();
  Report report = make_report(offload_sides(), options, sides, end, progress.seconds());
  save_divergence(options, end.scenario, report);
  return show_replay(options, report,
                     {.csv = to_csv(result),
                      .svg = to_svg(result),
                      .json = to_json(result),
                      .text = to_table(result) + "\n"});
}

int replay_engine(const ReplayCommandOptions& options) {
  const EngineReplayOptions& replay = options.engine;
  const auto requests = required(read_mooncake_trace_file(options.file, kMooncakeBlockTokens));
  fail_on(validate(replay, requests));
  const Sides sides = make_sides(engine_sides(), options, options.lockstep);

  Progress progress("requests", options.output.quiet);
  const EngineReplayResult result =
      replay_traffic(requests, replay, *sides.expected, sides.actual.get(), progress.callback());
  progress.clear();
  Report report = make_report(engine_sides(), options, sides, result, progress.seconds());
  save_divergence(options, result.scenario, report);
  // The reference moves symbols; beside it or alone, the optimized engine copies.
  const bool has_bytes = options.only != "reference";
  const std::size_t block_bytes = has_bytes ? replay.block_size * cuda::kEngineTokenBytes : 0;
  return show_replay(options, report,
                     {.csv = to_csv(result),
                      .svg = "",
                      .json = to_json(result, block_bytes),
                      .text = to_summary(result, block_bytes) + "\n"});
}

}  // namespace

int replay_command(const ReplayCommandOptions& options) {
  if (options.is_published() && !options.publish.is_recorded() &&
      !audit::Publisher::is_available()) {
    std::fprintf(stderr,
                 "kvfence: --publish %s: this build has no ZeroMQ, expected one with libzmq and "
                 "cppzmq; a file works without\n",
                 options.publish.publisher.endpoint.c_str());
    return exit_code::kCannotRun;
  }
  make_out_folder(options.out_folder);
  expect_writable({options.output.junit_file, options.csv_file, options.svg_file});
  if (options.target == kReplayScheduler) return replay_scheduler(options);
  if (options.target == kReplayOffload) return replay_offload(options);
  if (options.target == kReplayEngine) return replay_engine(options);
  return replay_pool(options);
}

}  // namespace kvfence
