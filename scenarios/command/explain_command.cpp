/// `kvfence explain`: the story of a scenario.

#include <cstdio>
#include <optional>
#include <string>

#include "contract/engine/engine_target.h"
#include "contract/worker/worker_target.h"
#include "scenarios/command/commands.h"
#include "scenarios/command/exit_code.h"
#include "scenarios/command/files.h"
#include "scenarios/command/output.h"
#include "scenarios/story/engine_story.h"
#include "scenarios/story/worker_story.h"

namespace kvfence {
namespace {

bool has_devices(const TargetTools& target) {
  return target.name() == WorkerTarget::kName || target.name() == EngineTarget::kName;
}

/// The story of a document of a target with devices.
Parsed<DeviceStory> tell(const LoadedScenario& loaded, const ExplainCommandOptions& options) {
  const std::string& bug = options.subject.planted_bug;
  const bool is_worker = loaded.target->name() == WorkerTarget::kName;
  const Target& target = is_worker ? WorkerTarget::description() : EngineTarget::description();
  const auto scenario = scenario_from_document(target, loaded.document, options.file);
  if (!scenario) return scenario.error();
  return is_worker ? tell_worker(*scenario, bug) : tell_engine(*scenario, bug);
}

/// Why the device's story cannot be drawn though it is asked for.
std::optional<std::string> refusal(const ExplainCommandOptions& options,
                                   const TargetTools& target) {
  if (options.html_file.empty() && options.trace_file.empty()) return std::nullopt;
  const std::string option = options.html_file.empty() ? "--trace" : "--html";
  if (!has_devices(target)) {
    return option + ": found a scenario of target " + std::string(target.name()) +
           ", which has no device to draw; expected target " + std::string(WorkerTarget::kName) +
           " or " + std::string(EngineTarget::kName);
  }
  if (!options.subject.sut_command.empty()) {
    return option + ": not with --sut, whose device cannot be seen";
  }
  return std::nullopt;
}

}  // namespace

int explain_command(const ExplainCommandOptions& options) {
  const Parsed<LoadedScenario> loaded = load_scenario(options.file);
  if (!loaded) return bad_input(loaded.error());
  if (const auto refused = refusal(options, *loaded->target)) return bad_input(*refused);
  const Outcome outcome = loaded->target->explain(loaded->document, options.file, options.subject);
  if (outcome.exit_code > exit_code::kDisagreement) return without_report(outcome, {});
  std::printf("%s", outcome.message.c_str());
  if (!has_devices(*loaded->target) || !options.subject.sut_command.empty()) {
    return outcome.exit_code;
  }
  const Parsed<DeviceStory> story = tell(*loaded, options);
  if (!story) return bad_input(story.error());
  std::printf("\n%s", story_text(*story).c_str());
  const bool is_written =
      (options.html_file.empty() || write_if_asked(options.html_file, story_html(*story))) &&
      (options.trace_file.empty() || write_if_asked(options.trace_file, story_trace(*story)));
  return is_written ? outcome.exit_code : exit_code::kBadInput;
}

}  // namespace kvfence
