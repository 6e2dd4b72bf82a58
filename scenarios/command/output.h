#pragma once

/// The output of every command: text or JSON on stdout, messages on stderr, JUnit into a file.

#include <functional>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/line.h"
#include "properties/report/report.h"
#include "scenarios/command/commands.h"

namespace kvfence {

/// Ends a command: its input is bad. exit_code_of() catches it.
class BadInput : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  explicit BadInput(const InputError& error) : runtime_error(error.to_text()) {}
};

/// The value. Throws BadInput if there is none.
template <class T>
T required(Parsed<T> parsed) {
  if (!parsed) throw BadInput(parsed.error());
  return std::move(*parsed);
}

/// Throws BadInput if there is an error.
void fail_on(const std::optional<InputError>& error);

/// Makes the folder of --out. Throws BadInput if that cannot be done.
void make_out_folder(const std::string& path);

/// Throws BadInput if one of these files, where a name is not empty, could not be written: better
/// before a long run than after it.
void expect_writable(std::initializer_list<std::string> paths);

/// The exit code of a command that may throw BadInput, or whose output cannot be written.
int exit_code_of(const std::function<int()>& command, bool json);

/// `kvfence: message` on stderr; returns exit_code::kBadInput.
int bad_input(const std::string& message);

/// On one line of stdout. Bytes that are not UTF-8 become U+FFFD.
void print_json(const nlohmann::ordered_json& object);

/// `{"error": ..., "exit_code": ...}` on stdout: of a command with --json that has no report.
void print_error_json(const std::string& message, int exit_code);

/// The exit code; exit_code::kBadInput, with a message on stderr, if stdout could not be written.
int with_stdout_written(int exit_code);

/// Prints the message of an outcome that has no report (exit codes 2 and 77) and returns its exit
/// code.
int without_report(const Outcome& outcome, const OutputOptions& output);

/// The options after the file in a command line that reproduces: "" or " --planted-bug X".
std::string arguments_again(const Report& report, const Subject& subject);

/// The line that draws the commands of a check again; `bounds` are the options that say which.
std::string check_line(std::string_view target, const CheckOptions& options,
                       const std::string& bounds);

/// Writes a failing report's scenario to `path`, with the failure in its first lines, and names the
/// file in report.reproduce; false, with a message on stderr, if that cannot be done. `otherwise`
/// is the line that then reproduces the failure, without the arguments of the subject.
bool save_failure(Report& report, const std::string& path, const Subject& subject,
                  const std::string& otherwise);

/// Writes the text to the file, if one is asked for; false, with a message on stderr, on failure.
bool write_if_asked(const std::string& path, const std::string& text);

/// Writes the JUnit file if one is asked for; false, with a message on stderr, on failure.
bool write_junit(const std::vector<Report>& reports, const OutputOptions& output,
                 const std::vector<NotRun>& not_run = {});

}  // namespace kvfence
