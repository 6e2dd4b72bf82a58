/// `kvfence replay --target offload`: recorded production traffic over a GPU tier and a CPU tier.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "contract/offload_target.h"
#include "optimized/offloading_manager.h"
#include "properties/offload_driver.h"
#include "reference/offloading_manager.h"
#include "scenarios/commands.h"
#include "scenarios/exit_code.h"
#include "scenarios/files.h"
#include "scenarios/implementations.h"
#include "scenarios/offload_replay_report.h"
#include "scenarios/output.h"
#include "scenarios/progress.h"
#include "scenarios/unlisted_offloading_manager.h"

namespace kvfence {
namespace {

using Manager = Implementation<OffloadTarget>;

/// Who replays: one side alone, or the reference and the side under test.
struct Sides {
  std::unique_ptr<Manager> expected;
  std::unique_ptr<Manager> actual;  ///< null: the expected side alone
};

template <class Unlisted>
std::unique_ptr<Manager> make_alone(const std::string& name) {
  const auto make = [](const OffloadingManagerConfig& config) { return Unlisted(config); };
  return std::make_unique<OffloadDriver<Unlisted, decltype(make)>>(name, make);
}

Parsed<Sides> make_sides(const ReplayCommandOptions& options) {
  using Available = Implementations<OffloadTarget>;
  Sides sides;
  if (options.only == "reference") {
    sides.expected =
        make_alone<UnlistedOffloadingManager<reference::OffloadingManager>>(options.only);
    return sides;
  }
  if (!options.lockstep) {
    sides.expected =
        make_alone<UnlistedOffloadingManager<optimized::OffloadingManager>>("optimized");
    return sides;
  }
  const std::string& bug = options.subject.planted_bug;
  sides.expected = Available::make_reference();
  sides.actual = bug.empty() ? Available::make_optimized() : Available::make_planted(bug);
  if (sides.actual) return sides;
  return InputError{"--planted-bug", {}, "'" + bug + "'", "a name of kvfence list planted-bugs"};
}

Report report_of(const ReplayCommandOptions& options, const Sides& sides,
                 const OffloadReplayResult& result, double seconds) {
  Report report;
  report.target = OffloadTarget::kName;
  report.source = options.file;
  report.expected_name = sides.expected->name();
  report.actual_name = sides.actual ? sides.actual->name() : "";
  report.commands = result.commands();
  report.seconds = seconds;
  if (const OffloadTierResult* diverged = result.diverged()) {
    report.disagreements = 1;
    report.divergence = diverged->divergence;
  }
  return report;
}

/// Keeps the commands that lead to a divergence, shrunk: real traffic makes long scenarios.
void save_divergence(const ReplayCommandOptions& options, const Scenario<OffloadTarget>& scenario,
                     Report& report) {
  report.scenario = to_document(scenario);
  const TargetTools* target = find_target(OffloadTarget::kName);
  Progress progress("tries", options.output.quiet);
  Outcome shrunk = target->shrink(report.scenario, options.file, options.subject,
                                  [&](std::uint64_t done, std::uint64_t total) {
                                    progress.show(done, total);
                                    return true;
                                  });
  progress.clear();
  if (shrunk.report.divergence) {
    report.divergence = shrunk.report.divergence;
    report.scenario = shrunk.report.scenario;
    report.commands_before_shrinking = shrunk.report.commands_before_shrinking;
  }
  // Not beside the trace: recorded traffic often lies where nobody may write.
  const auto name = std::filesystem::path(shrunk_path(options.file)).filename();
  const auto path = std::filesystem::path(options.out_folder) / name;
  save_failure(report, path.lexically_normal().string(), options.subject);
}

}  // namespace

int replay_offload_command(const ReplayCommandOptions& options) {
  OffloadReplayOptions replay = options.offload;
  replay.enable_events = options.lockstep;  // events are compared too
  if (auto error = validate(replay)) return bad_input(*error);
  const auto requests = read_mooncake_trace_file(options.file);
  if (!requests) return bad_input(requests.error());
  if (auto error = find_repeated_id(*requests, options.file)) return bad_input(*error);
  const Parsed<Sides> sides = make_sides(options);
  if (!sides) return bad_input(sides.error());

  Progress progress("requests", options.output.quiet);
  const std::size_t num_requests = std::min<std::size_t>(requests->size(), replay.requests_max);
  const std::size_t num_runs = 1 + replay.cpu_blocks.size() * replay.policies.size();
  const auto gpu_tier = Implementations<BlockPoolTarget>::make_optimized();
  OffloadRequests traffic = behind_gpu_tier(
      *requests, gpu_options_of(replay), *gpu_tier,
      [&](const auto& done) { progress.show(done.requests_done, num_runs * num_requests); });
  const OffloadReplayResult result = replay_offload_tiers(
      std::move(traffic), replay, *sides->expected, sides->actual.get(),
      [&](std::size_t done) { progress.show(num_requests + done, num_runs * num_requests); });
  progress.clear();
  Report report = report_of(options, *sides, result, progress.seconds());
  const OffloadTierResult* diverged = result.diverged();
  if (diverged != nullptr && diverged->scenario) {
    save_divergence(options, *diverged->scenario, report);
  }
  bool saved = write_if_asked(options.csv_file, to_csv(result));
  saved = write_if_asked(options.svg_file, to_svg(result)) && saved;
  saved = write_junit({report}, options.output) && saved;
  if (options.output.json) {
    nlohmann::ordered_json object = nlohmann::ordered_json::parse(to_json(report));
    object.update(nlohmann::ordered_json::parse(to_json(result)));
    std::printf("%s\n", object.dump().c_str());
  } else {
    if (diverged == nullptr) std::printf("%s\n", to_table(result).c_str());
    std::printf("%s", to_text(report).c_str());
  }
  if (!saved) return exit_code::kBadInput;
  return diverged != nullptr ? exit_code::kDisagreement : exit_code::kAgree;
}

}  // namespace kvfence
