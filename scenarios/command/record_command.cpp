/// `kvfence record`: writes an implementation's answers as traces.

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "properties/report/number_text.h"
#include "scenarios/command/commands.h"
#include "scenarios/command/files.h"
#include "scenarios/command/output.h"
#include "scenarios/command/progress.h"

namespace kvfence {
namespace {

/// The files written, or why none was.
int finish(const Outcome& outcome, const std::optional<std::string>& problem,
           const std::string& path, std::optional<std::uint64_t> num_traces,
           const OutputOptions& output) {
  if (outcome.exit_code != exit_code::kAgree) return without_report(outcome, output);
  if (problem) throw BadInput(*problem);
  const std::uint64_t commands = outcome.report.commands;
  if (output.json) {
    print_json({{"out", path}, {"traces", num_traces.value_or(1)}, {"commands", commands}});
    return exit_code::kAgree;
  }
  const std::string what = num_traces ? with_thousands(*num_traces) + " traces" : "recorded";
  std::printf("%s: %s, %s commands\n", path.c_str(), what.c_str(),
              with_thousands(commands).c_str());
  return exit_code::kAgree;
}

int record_scenario(const RecordCommandOptions& options) {
  const LoadedScenario loaded =
      required(load_scenario(options.scenario_file, options.record.episode));
  const std::string path = options.out.empty() ? options.scenario_file : options.out;
  expect_writable({path});
  std::string text;
  const Outcome outcome = loaded.target->record_document(
      loaded.only(options.record.episode), options.scenario_file, options.record,
      [&](const std::string&, const Document& document) { text += print(document); });
  std::optional<std::string> problem;
  if (outcome.exit_code == exit_code::kAgree) problem = write_file(path, text);
  return finish(outcome, problem, path, std::nullopt, options.output);
}

}  // namespace

int record_command(const RecordCommandOptions& options) {
  const RecordOptions& record = options.record;
  if (record.sparse_state && !record.digest_every) {
    throw BadInput("--sparse-state: not without --digests");
  }
  if (!options.scenario_file.empty()) return record_scenario(options);
  const TargetTools& target = *required(tools_of(options.target, "--target"));
  if (options.out.empty()) {
    throw BadInput("record: --out says where the traces go: a folder, or a file (.kvs, .kvs.gz)");
  }
  const bool is_one_file = is_scenario_name(options.out);
  if (is_one_file) {
    expect_writable({options.out});
  } else {
    make_out_folder(options.out);
  }

  Progress progress("episodes", options.output.quiet);
  std::optional<std::string> problem;
  std::string text;  // of one file
  std::uint64_t num_episodes = 0;
  const std::string prefix(target.name_under(record.config_overrides));
  const Outcome outcome =
      target.record_random(record, [&](const std::string& name, const Document& document) {
        progress.show(++num_episodes, record.episodes);
        if (is_one_file) {
          text += print(document);
          return;
        }
        const auto path = std::filesystem::path(options.out) / (prefix + "-" + name + ".kvs");
        if (!problem) problem = write_file(path.string(), print(document));
      });
  progress.clear();
  if (is_one_file && outcome.exit_code == exit_code::kAgree)
    problem = write_file(options.out, text);
  for (const Refusal& each : outcome.report.refusals.reasons()) {
    if (options.output.quiet) break;
    std::fprintf(stderr, "kvfence: drawn again %llu times: %s\n",
                 static_cast<unsigned long long>(each.count), each.why.c_str());
  }
  return finish(outcome, problem, options.out, num_episodes, options.output);
}

}  // namespace kvfence
