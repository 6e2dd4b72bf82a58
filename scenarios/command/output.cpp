#include "scenarios/command/output.h"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "properties/core/run_check.h"
#include "scenarios/command/files.h"
#include "scenarios/command/shell_word.h"

namespace kvfence {

void fail_on(const std::optional<InputError>& error) {
  if (error) throw BadInput(*error);
}

void make_out_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw BadInput("--out: " + path + ": " + error.message());
}

int exit_code_of(const std::function<int()>& command) {
  try {
    return command();
  } catch (const BadInput& error) {
    return bad_input(error.what());
  }
}

int bad_input(const std::string& message) {
  std::fprintf(stderr, "kvfence: %s\n", message.c_str());
  return exit_code::kBadInput;
}

int without_report(const Outcome& outcome, const OutputOptions& output) {
  std::fprintf(stderr, "kvfence: %s\n", outcome.message.c_str());
  if (output.json) {
    const nlohmann::ordered_json object = {{"error", outcome.message},
                                           {"exit_code", outcome.exit_code}};
    std::printf("%s\n",
                object.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).c_str());
  }
  return outcome.exit_code;
}

std::string arguments_again(const Report& report, const Subject& subject) {
  std::string text = subject.arguments();
  if (!text.empty()) text.insert(0, " ");
  if (report.oracles != Oracles{}) text += " --oracles " + to_text(report.oracles);
  return text;
}

bool save_failure(Report& report, const std::string& path, const Subject& subject,
                  const std::string& otherwise) {
  const bool is_written = write_if_asked(path, print(failing_document(report)));
  // Unless the scenario by itself does not show it.
  if (report.reproduce.empty()) {
    report.reproduce = is_written ? "kvfence run " + shell_argument(path) : otherwise;
  }
  report.reproduce += arguments_again(report, subject);
  return is_written;
}

bool write_if_asked(const std::string& path, const std::string& text) {
  if (path.empty()) return true;
  const std::optional<std::string> problem = write_file(path, text);
  if (problem) std::fprintf(stderr, "kvfence: %s\n", problem->c_str());
  return !problem;
}

bool write_junit(const std::vector<Report>& reports, const OutputOptions& output) {
  if (output.junit_file.empty()) return true;
  const std::optional<std::string> problem = write_file(output.junit_file, to_junit(reports));
  if (problem) std::fprintf(stderr, "kvfence: --junit: %s\n", problem->c_str());
  return !problem;
}

}  // namespace kvfence
