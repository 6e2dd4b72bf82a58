#include "scenarios/command/replay_output.h"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "scenarios/command/exit_code.h"
#include "scenarios/command/files.h"
#include "scenarios/command/output.h"
#include "scenarios/command/progress.h"
#include "scenarios/command/target_tools.h"

namespace kvfence {

void save_divergence(const ReplayCommandOptions& options, Document scenario, Report& report) {
  report.scenario = std::move(scenario);
  const TargetTools& target = **tools_of(report.target, {});
  Progress progress("tries", options.output.quiet);
  Outcome shrunk = target.shrink(report.scenario, options.file, options.subject,
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

int show_replay(const ReplayCommandOptions& options, const Report& report,
                const ReplayFindings& findings) {
  bool saved = write_if_asked(options.csv_file, findings.csv);
  saved = write_if_asked(options.svg_file, findings.svg) && saved;
  saved = write_junit({report}, options.output) && saved;
  if (options.output.json) {
    nlohmann::ordered_json object = nlohmann::ordered_json::parse(to_json(report));
    object.update(nlohmann::ordered_json::parse(findings.json));
    std::printf("%s\n", object.dump().c_str());
  } else {
    if (report.disagreements == 0) std::printf("%s", findings.text.c_str());
    std::printf("%s", to_text(report).c_str());
  }
  if (!saved) return exit_code::kBadInput;
  return report.disagreements == 0 ? exit_code::kAgree : exit_code::kDisagreement;
}

}  // namespace kvfence
