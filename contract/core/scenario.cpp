#include "contract/core/scenario.h"

namespace kvfence {
namespace {

InputError error_at(std::string_view file, const Line& line, std::string found,
                    std::string expected) {
  return {std::string(file), line.position, std::move(found), std::move(expected)};
}

bool is_blank(const Line& line) { return line.verb.empty() && !line.expectation; }

/// The name on a `target` line.
Parsed<std::string> target_name(const Line& line, std::string_view file) {
  if (line.subject.empty() || !line.fields.empty()) {
    return error_at(file, line, "'" + print(line) + "'",
                    "target and its name, as in 'target block_pool'");
  }
  return line.subject;
}

}  // namespace

Parsed<std::string> target_of(const Document& document, std::string_view file) {
  for (const Line& line : document) {
    if (is_blank(line)) continue;
    if (line.verb == "target") return target_name(line, file);
    return error_at(file, line, "'" + line.verb + "'", "'target NAME' before anything else");
  }
  return InputError{std::string(file), {1, 1}, "nothing but comments", "'target NAME'"};
}

namespace detail {

Parsed<ScenarioLines> sort_lines(const Document& document, std::string_view file) {
  ScenarioLines lines;
  bool target_seen = false;
  for (const Line& line : document) {
    if (is_blank(line)) {
      if (!target_seen && !line.comment.empty()) lines.comments.push_back(line.comment);
      continue;
    }
    if (!target_seen) {
      Parsed<std::string> name = target_of(document, file);
      if (!name) return name.error();
      target_seen = true;
      continue;
    }
    if (line.verb == "target") {
      return error_at(file, line, "a second 'target'", "one target a file");
    }
    if (line.verb == "config") {
      if (lines.config) return error_at(file, line, "a second 'config'", "one config a file");
      if (!lines.commands.empty()) {
        return error_at(file, line, "'config' after a command", "config before every command");
      }
      lines.config = line;
      continue;
    }
    if (line.verb.empty()) {
      return error_at(file, line, "'->' without a command", "a command before '->'");
    }
    lines.commands.push_back(&line);
  }
  if (!target_seen) return target_of(document, file).error();
  return lines;
}

std::optional<InputError> check_expectation(const std::vector<Field>& expectation,
                                            const std::vector<std::string_view>& names,
                                            std::string_view file) {
  for (const Field& field : expectation) {
    bool known = false;
    for (std::string_view name : names) known = known || name == field.key;
    if (!known) return unknown_key(file, field, one_of(names));
  }
  return std::nullopt;
}

Line target_line(std::string_view name) {
  Line line;
  line.verb = "target";
  line.subject = name;
  return line;
}

}  // namespace detail
}  // namespace kvfence
