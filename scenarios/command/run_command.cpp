/// `kvfence run`: runs scenarios and traces against the reference.

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "properties/report/number_text.h"
#include "scenarios/command/commands.h"
#include "scenarios/command/files.h"
#include "scenarios/command/output.h"
#include "scenarios/command/progress.h"
#include "scenarios/command/shell_word.h"

namespace kvfence {
namespace {

/// The worse of two exit codes.
int worse(int a, int b) {
  constexpr std::array kFromBest = {exit_code::kAgree, exit_code::kCannotRun,
                                    exit_code::kDisagreement, exit_code::kBadInput};
  const auto rank = [&](int code) { return std::ranges::find(kFromBest, code); };
  return rank(b) > rank(a) ? b : a;
}

}  // namespace

int run_command(const RunCommandOptions& options) {
  const std::vector<std::string> files = required(scenario_files(options.paths));
  expect_writable({options.output.junit_file});

  Progress progress("files", options.output.quiet);
  std::vector<Report> reports;
  std::vector<NotRun> not_run;
  int exit_code = exit_code::kAgree;
  std::uint64_t num_commands = 0;
  std::size_t num_disagreements = 0;
  for (const std::string& file : files) {
    progress.show(reports.size(), files.size());
    const Parsed<LoadedScenario> loaded = load_scenario(file, options.check.episode);
    if (!loaded) {
      progress.clear();
      not_run.push_back({file, loaded.error().to_text()});
      exit_code = worse(exit_code, bad_input(not_run.back().why));
      continue;
    }
    Outcome outcome = loaded->target->run(loaded->document, file, options.subject, options.check);
    exit_code = worse(exit_code, outcome.exit_code);
    progress.clear();
    if (outcome.exit_code > exit_code::kDisagreement) {
      not_run.push_back({file, outcome.message});
      std::fprintf(stderr, "kvfence: %s\n", outcome.message.c_str());
      continue;
    }
    Report& report = outcome.report;
    num_commands += report.commands;
    num_disagreements += report.disagreements;
    std::string again = "kvfence run " + shell_argument(file);
    if (report.episode > 0) again += " --episode " + std::to_string(report.episode);
    if (report.divergence && report.commands_before_shrinking > 0) {
      save_failure(report, shrunk_path(file), options.subject, again);
    } else if (report.divergence) {
      // Unless the episode by itself does not show it.
      if (report.reproduce.empty()) report.reproduce = std::move(again);
      report.reproduce += arguments_again(report, options.subject);
    }
    if (!options.output.json) {
      if (report.passed()) {
        std::printf("ok    %s  (%llu commands)\n", file.c_str(),
                    static_cast<unsigned long long>(report.commands));
      } else {
        std::printf("%s%s", to_text(report).c_str(), files.size() > 1 ? "\n" : "");
      }
    }
    reports.push_back(std::move(report));
  }
  if (!write_junit(reports, options.output, not_run)) {
    exit_code = worse(exit_code, exit_code::kBadInput);
  }

  std::size_t num_failed = not_run.size();
  for (const Report& report : reports) num_failed += report.passed() ? 0 : 1;
  if (options.output.json) {
    nlohmann::ordered_json object = {{"files", files.size()},
                                     {"failed", num_failed},
                                     {"commands", num_commands},
                                     {"disagreements", num_disagreements},
                                     {"seconds", progress.seconds()},
                                     {"errors", nlohmann::ordered_json::array()},
                                     {"reports", nlohmann::ordered_json::array()}};
    for (const NotRun& each : not_run) object["errors"].push_back(each.why);
    for (const Report& report : reports) {
      object["reports"].push_back(nlohmann::ordered_json::parse(to_json(report)));
    }
    print_json(object);
  } else if (files.size() > 1) {
    std::printf("%zu files, %zu failed, %s commands\n", files.size(), num_failed,
                with_thousands(num_commands).c_str());
  }
  return exit_code;
}

}  // namespace kvfence
