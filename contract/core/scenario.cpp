#include "contract/core/scenario.h"

#include <utility>

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

/// The lines of a scenario, sorted: comments at the top, `target`, `config`, commands.
struct ScenarioLines {
  std::vector<std::string> comments;
  std::optional<Line> config;
  std::vector<const Line*> commands;
};

/// Rejects expectation keys that the target's observation does not have.
std::optional<InputError> check_expectation(const std::vector<Field>& expectation,
                                            const std::vector<std::string_view>& names,
                                            std::string_view file) {
  for (const Field& field : expectation) {
    bool known = false;
    for (std::string_view name : names) known = known || name == field.key;
    if (!known) return detail::unknown_key(file, field, detail::one_of(names));
  }
  return std::nullopt;
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

namespace {

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

}  // namespace

Parsed<Setup> prepare(const Scenario& scenario) {
  return scenario.target->prepare(scenario.config, scenario.file, scenario.config_position);
}

Parsed<Scenario> scenario_from_document(const Target& target, const Document& document,
                                        std::string_view file) {
  Parsed<ScenarioLines> lines = sort_lines(document, file);
  if (!lines) return lines.error();
  Scenario scenario(target);
  scenario.file = file;
  scenario.comments = std::move(lines->comments);
  if (lines->config) {
    scenario.config_position = lines->config->position;
    Parsed<Config> config = config_from_line(target, *lines->config, file);
    if (!config) return config.error();
    scenario.config = std::move(*config);
  }
  if (const Parsed<Setup> setup = prepare(scenario); !setup) return setup.error();
  const std::vector<std::string_view> names = observation_names(target);
  for (const Line* line : lines->commands) {
    Parsed<Command> command = command_from_line(target, *line, file);
    if (!command) return command.error();
    if (line->expectation) {
      if (auto error = check_expectation(*line->expectation, names, file)) return *error;
    }
    scenario.steps.push_back({std::move(*command), line->expectation, line->position});
  }
  return scenario;
}

Document to_document(const Scenario& scenario) {
  Document document;
  for (const std::string& comment : scenario.comments) {
    document.emplace_back().comment = comment;
  }
  Line& target = document.emplace_back();
  target.verb = "target";
  target.subject = scenario.target->name;
  document.push_back(config_line(scenario.config));
  for (const Step& step : scenario.steps) {
    document.push_back(to_line(step.command));
    document.back().expectation = step.expectation;
  }
  return document;
}

}  // namespace kvfence
