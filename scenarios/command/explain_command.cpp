/// `kvfence explain`: the story of a scenario.

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "contract/core/hex.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "contract/worker/worker_target.h"
#include "scenarios/command/commands.h"
#include "scenarios/command/files.h"
#include "scenarios/command/output.h"
#include "scenarios/story/device_story.h"

namespace kvfence {
namespace {

/// Whether there is a device whose story can be drawn; those of a pair cannot.
bool has_devices(const Scenario& scenario) {
  const std::string_view target = scenario.target->name;
  if (target == WorkerTarget::kName) return true;
  if (target != EngineTarget::kName) return false;
  const Parsed<Setup> setup = prepare(scenario);
  return setup->as<EngineSetup>().device && !setup->as<EngineSetup>().is_pair();
}

/// The option whose side runs on devices that cannot be watched, if one was given.
std::optional<std::string_view> hiding_option(const Subject& subject) {
  if (!subject.sut_command.empty()) return "--sut";
  if (!subject.connector_library.empty()) return "--connector-library";
  return std::nullopt;
}

/// Requires: has_devices(scenario).
DeviceStory story_of(const Scenario& scenario, const std::string& planted_bug) {
  const bool is_worker = scenario.target->name == WorkerTarget::kName;
  return is_worker ? story_of_worker(scenario, planted_bug)
                   : story_of_engine(scenario, planted_bug);
}

/// Throws BadInput if the device's story cannot be drawn although it is asked for.
void check_drawing(const ExplainCommandOptions& options, const Scenario& scenario) {
  if (options.html_file.empty() && options.trace_file.empty()) return;
  const std::string option = options.html_file.empty() ? "--trace" : "--html";
  if (!has_devices(scenario)) {
    throw BadInput(option + ": found a scenario of target " + std::string(scenario.target->name) +
                   " without a device to draw; expected target " +
                   std::string(WorkerTarget::kName) + " or " + std::string(EngineTarget::kName) +
                   " (config assembly=" +
                   std::string(to_text(engine::Assembly::kOffloadingOnDevice)) + ", or on_device)");
  }
  if (const auto hidden = hiding_option(options.subject)) {
    throw BadInput(option + ": not with " + std::string(*hidden) + ", whose device cannot be seen");
  }
}

}  // namespace

int explain_command(const ExplainCommandOptions& options) {
  const LoadedScenario loaded = required(load_scenario(options.file, options.episode));
  Scenario scenario = required(loaded.target->scenario(loaded.only(options.episode), options.file));
  check_drawing(options, scenario);
  expect_writable({options.html_file, options.trace_file});
  const Outcome outcome =
      loaded.target->explain(scenario, options.file, options.subject, options.oracles);
  if (outcome.exit_code > exit_code::kDisagreement) return without_report(outcome, {});
  std::printf("%s", printable(outcome.message, "\n").c_str());
  if (!has_devices(scenario) || hiding_option(options.subject)) return outcome.exit_code;
  DeviceStory story = story_of(scenario, options.subject.planted_bug);
  story.difference = outcome.report.divergence;
  std::printf("\n%s", printable(story_text(story), "\n").c_str());
  const bool is_written =
      (options.html_file.empty() || write_if_asked(options.html_file, story_html(story))) &&
      (options.trace_file.empty() || write_if_asked(options.trace_file, story_trace(story)));
  return is_written ? outcome.exit_code : exit_code::kBadInput;
}

}  // namespace kvfence
