#include "scenarios/command/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
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

void expect_writable(std::initializer_list<std::string> paths) {
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    if (const auto problem = why_not_writable(path)) throw BadInput(*problem);
  }
}

int exit_code_of(const std::function<int()>& command, bool json) {
  int exit_code = exit_code::kBadInput;
  try {
    exit_code = command();
  } catch (const BadInput& error) {
    bad_input(error.what());
    if (json) print_error_json(error.what(), exit_code);
  }
  return with_stdout_written(exit_code);
}

int bad_input(const std::string& message) {
  std::fprintf(stderr, "kvfence: %s\n", message.c_str());
  return exit_code::kBadInput;
}

void print_json(const nlohmann::ordered_json& object) {
  const std::string text =
      object.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

void print_error_json(const std::string& message, int exit_code) {
  print_json({{"error", message}, {"exit_code", exit_code}});
}

int with_stdout_written(int exit_code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  const std::string reason = errno == 0 ? "" : std::string(": ") + std::strerror(errno);
  return bad_input("stdout: cannot be written" + reason);
}

int without_report(const Outcome& outcome, const OutputOptions& output) {
  std::fprintf(stderr, "kvfence: %s\n", outcome.message.c_str());
  if (output.json) print_error_json(outcome.message, outcome.exit_code);
  return outcome.exit_code;
}

std::string arguments_again(const Report& report, const Subject& subject) {
  std::string text = subject.arguments();
  if (!text.empty()) text.insert(0, " ");
  if (report.oracles != Oracles{}) text += " --oracles " + to_text(report.oracles);
  return text;
}

std::string check_line(std::string_view target, const CheckOptions& options,
                       const std::string& bounds) {
  std::string text = "kvfence check --target " + std::string(target) + " --seed " +
                     std::to_string(options.seed) + bounds;
  for (const Field& field : options.config_overrides) {
    text += " --config " + shell_word(field.key + "=" + print(field.value));
  }
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

bool write_junit(const std::vector<Report>& reports, const OutputOptions& output,
                 const std::vector<NotRun>& not_run) {
  if (output.junit_file.empty()) return true;
  const auto problem = write_file(output.junit_file, to_junit(reports, not_run));
  if (problem) std::fprintf(stderr, "kvfence: --junit: %s\n", problem->c_str());
  return !problem;
}

}  // namespace kvfence
