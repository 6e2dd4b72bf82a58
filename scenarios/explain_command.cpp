/// `kvfence explain`: the story of a scenario.

#include <cstdio>

#include "scenarios/commands.h"
#include "scenarios/exit_code.h"
#include "scenarios/files.h"
#include "scenarios/output.h"

namespace kvfence {

int explain_command(const ExplainCommandOptions& options) {
  const Parsed<LoadedScenario> loaded = load_scenario(options.file);
  if (!loaded) return bad_input(loaded.error());
  const Outcome outcome = loaded->target->explain(loaded->document, options.file, options.subject);
  if (outcome.exit_code > exit_code::kDisagreement) return without_report(outcome, {});
  std::printf("%s", outcome.message.c_str());
  return outcome.exit_code;
}

}  // namespace kvfence
