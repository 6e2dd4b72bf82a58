/// `kvfence check`: checks random interleavings against the reference.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>

#include "properties/core/campaign.h"
#include "scenarios/command/commands.h"
#include "scenarios/command/interrupt.h"
#include "scenarios/command/output.h"
#include "scenarios/command/progress.h"

namespace kvfence {
namespace {

/// The exit code of what a signal ended, as shells have it, less the signal.
constexpr int kInterrupted = 128;

/// The line that draws the commands of the failing episode again.
std::string check_again(const CheckOptions& options, const Report& report) {
  std::string bounds = " --episode " + std::to_string(report.episode) + " --episode-commands " +
                       std::to_string(options.episode_commands);
  if (options.commands_max && *options.commands_max != UINT64_MAX) {
    const std::uint64_t first = options.episode.value_or(0);
    const std::uint64_t before =
        commands_of_episodes(first, report.episode - first, options.episode_commands);
    bounds += " --commands " + std::to_string(*options.commands_max - before);
  }
  return check_line(report.target, options, bounds);
}

}  // namespace

int check_command(const CheckCommandOptions& options) {
  const TargetTools& target = *required(tools_of(options.target, "--target"));
  make_out_folder(options.out_folder);
  expect_writable({options.output.junit_file});

  remember_interrupts();
  Progress progress("commands", options.output.quiet);
  CheckOptions check = options.check;
  check.keep_going = [&](std::uint64_t done, std::uint64_t total) {
    progress.show(done, total, options.seconds_max.value_or(0));
    if (interrupt() != 0) return false;
    return !options.seconds_max || progress.seconds() < *options.seconds_max;
  };
  Outcome outcome = target.check(options.subject, std::move(check), options.jobs);
  progress.clear();
  if (outcome.exit_code > exit_code::kDisagreement) return without_report(outcome, options.output);
  Report& report = outcome.report;
  if (report.divergence) {
    const auto path =
        std::filesystem::path(options.out_folder) / ("kvfence-" + outcome.case_name + ".kvs");
    save_failure(report, path.lexically_normal().string(), options.subject,
                 check_again(options.check, report));
  }
  if (options.output.json) {
    std::printf("%s\n", to_json(report).c_str());
  } else {
    std::printf("%s", to_text(report).c_str());
  }
  if (!write_junit({report}, options.output)) return exit_code::kBadInput;
  if (interrupt() == 0 || outcome.exit_code != exit_code::kAgree) return outcome.exit_code;
  std::fprintf(stderr, "kvfence: interrupted; this is what was compared until then\n");
  return kInterrupted + interrupt();
}

}  // namespace kvfence
