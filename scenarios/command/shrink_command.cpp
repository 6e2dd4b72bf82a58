/// `kvfence shrink`: makes a failing scenario small.

#include <cstdio>

#include "scenarios/command/commands.h"
#include "scenarios/command/files.h"
#include "scenarios/command/output.h"
#include "scenarios/command/progress.h"
#include "scenarios/command/shell_word.h"

namespace kvfence {

int shrink_command(const ShrinkCommandOptions& options) {
  const LoadedScenario loaded = required(load_scenario(options.file));
  expect_writable({options.out_file});
  Progress progress("tries", options.output.quiet);
  Outcome outcome = loaded.target->shrink(loaded.document, options.file, options.subject,
                                          progress.callback(), options.oracles);
  progress.clear();
  if (outcome.exit_code > exit_code::kDisagreement) return without_report(outcome, options.output);
  Report& report = outcome.report;
  if (!report.divergence) {
    throw BadInput(
        options.file + ": found both sides in agreement, expected a scenario that fails" +
        (options.subject.option().empty() ? " (was it found with --planted-bug or --sut?)" : ""));
  }
  const std::string path = options.out_file.empty() ? shrunk_path(options.file) : options.out_file;
  const bool is_written =
      save_failure(report, path, options.subject, "kvfence run " + shell_argument(options.file));
  std::printf("%s%s", options.output.json ? to_json(report).c_str() : to_text(report).c_str(),
              options.output.json ? "\n" : "");
  // The command's task is to shrink, and that succeeded.
  return is_written ? exit_code::kAgree : exit_code::kBadInput;
}

}  // namespace kvfence
