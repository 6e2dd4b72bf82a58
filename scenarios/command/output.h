#pragma once

/// The output of every command: text or JSON on stdout, messages on stderr, JUnit into a file.

#include <string>
#include <vector>

#include "contract/core/line.h"
#include "properties/report/report.h"
#include "scenarios/command/commands.h"

namespace kvfence {

/// `kvfence: message` on stderr; returns exit_code::kBadInput.
int bad_input(const InputError& error);
int bad_input(const std::string& message);

/// Prints the message of an outcome that has no report (exit codes 2 and 77) and returns its exit
/// code.
int without_report(const Outcome& outcome, const OutputOptions& output);

/// The options after the file in a command line that reproduces: "" or " --planted-bug X".
std::string arguments_again(const Report& report, const Subject& subject);

/// Writes a failing report's scenario to `path`, with the failure in its first lines, and names the
/// file in report.reproduce.
void save_failure(Report& report, const std::string& path, const Subject& subject);

/// Writes the text to the file, if one is asked for; false, with a message on stderr, on failure.
bool write_if_asked(const std::string& path, const std::string& text);

/// Writes the JUnit file if one is asked for; false, with a message on stderr, on failure.
bool write_junit(const std::vector<Report>& reports, const OutputOptions& output);

}  // namespace kvfence
