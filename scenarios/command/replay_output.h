#pragma once

/// What the replays of all targets do with what they found.

#include <string>

#include "properties/core/report.h"
#include "scenarios/command/commands.h"

namespace kvfence {

/// What a replay found, in every shape that may be asked for.
struct ReplayFindings {
  std::string csv;
  std::string svg;
  std::string json;  ///< one object, whose members join those of the report
  std::string text;  ///< stands before the report where the sides agree
};

/// Keeps the commands that lead to the report's divergence, shrunk: real traffic makes long
/// scenarios. The report names the file.
void save_divergence(const ReplayCommandOptions& options, Document scenario, Report& report);

/// Writes the files that are asked for, prints the findings and the report, and returns the exit
/// code.
int show_replay(const ReplayCommandOptions& options, const Report& report,
                const ReplayFindings& findings);

}  // namespace kvfence
