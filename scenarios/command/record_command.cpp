/// `kvfence record`: what an implementation does, written down as traces.

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "properties/core/number_text.h"
#include "scenarios/command/commands.h"
#include "scenarios/command/exit_code.h"
#include "scenarios/command/files.h"
#include "scenarios/command/output.h"
#include "scenarios/command/progress.h"

namespace kvfence {
namespace {

int record_scenario(const RecordCommandOptions& options) {
  const Parsed<LoadedScenario> loaded = load_scenario(options.scenario_file);
  if (!loaded) return bad_input(loaded.error());
  const std::string path = options.out.empty() ? options.scenario_file : options.out;
  std::optional<std::string> problem;
  const Outcome outcome = loaded->target->record_document(
      loaded->document, options.scenario_file, options.record.subject,
      [&](const std::string&, const Document& document) {
        problem = write_file(path, print(document));
      });
  if (outcome.exit_code != exit_code::kAgree) return without_report(outcome, options.output);
  if (problem) return bad_input(*problem);
  std::printf("%s: %llu commands recorded\n", path.c_str(),
              static_cast<unsigned long long>(outcome.report.commands));
  return exit_code::kAgree;
}

}  // namespace

int record_command(const RecordCommandOptions& options) {
  if (!options.scenario_file.empty()) return record_scenario(options);
  const auto found = tools_of(options.target, "--target");
  if (!found) return bad_input(found.error());
  const TargetTools& target = **found;
  if (options.out.empty()) return bad_input("record: --out FOLDER says where the traces go");
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  if (error) return bad_input("--out: " + options.out + ": " + error.message());

  Progress progress("episodes", options.output.quiet);
  std::optional<std::string> problem;
  std::uint64_t num_files = 0;
  const std::string prefix(target.name_under(options.record.config_overrides));
  const Outcome outcome =
      target.record_random(options.record, [&](const std::string& name, const Document& document) {
        const auto path = std::filesystem::path(options.out) / (prefix + "-" + name + ".kvs");
        if (!problem) problem = write_file(path.string(), print(document));
        progress.show(++num_files, options.record.episodes);
      });
  progress.clear();
  if (outcome.exit_code != exit_code::kAgree) return without_report(outcome, options.output);
  if (problem) return bad_input(*problem);
  std::printf("%s: %llu traces, %s commands\n", options.out.c_str(),
              static_cast<unsigned long long>(num_files),
              with_thousands(outcome.report.commands).c_str());
  return exit_code::kAgree;
}

}  // namespace kvfence
