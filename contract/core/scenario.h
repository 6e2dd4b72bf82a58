#pragma once

/// A list of commands with its target and configuration: what a `.kvs` file holds, and what every
/// source of interleavings yields. Steps may carry an expectation: some members of the observation
/// that has to follow.
///
///     target block_pool
///     config num_gpu_blocks=4 ...
///     get_new_blocks num_blocks=2 -> blocks=[1 2]

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/line.h"

namespace kvfence {

/// One command and, in a scenario or a trace, what has to be seen after it.
template <class Target>
struct Step {
  typename Target::Command command;
  std::optional<std::vector<Field>> expectation;
  Position position;

  friend bool operator==(const Step& a, const Step& b) {
    return a.command == b.command && a.expectation == b.expectation;
  }
};

template <class Target>
struct Scenario {
  typename Target::Config config;
  std::vector<Step<Target>> steps;
  std::vector<std::string> comments;  ///< the lines at the top, as written behind `#`
  std::string file;                   ///< for messages; empty where there is none

  /// What runs; the comments and the file's name are for people.
  friend bool operator==(const Scenario& a, const Scenario& b) {
    return a.config == b.config && a.steps == b.steps;
  }
};

/// The target that a document names on its first line that is not a comment.
///
/// Errors: no such line, or another verb than `target`.
Parsed<std::string> target_of(const Document& document, std::string_view file = {});

namespace detail {

/// The lines of a scenario, sorted: comments at the top, `target`, `config`, commands.
struct ScenarioLines {
  std::vector<std::string> comments;
  std::optional<Line> config;
  std::vector<const Line*> commands;
};
Parsed<ScenarioLines> sort_lines(const Document& document, std::string_view file);

/// Rejects expectation keys that the target's observation does not have.
std::optional<InputError> check_expectation(const std::vector<Field>& expectation,
                                            const std::vector<std::string_view>& names,
                                            std::string_view file);

/// `target NAME` as a line.
Line target_line(std::string_view name);

}  // namespace detail

/// The configuration of a line such as `config num_gpu_blocks=8`; absent keys keep their defaults.
template <class Target>
Parsed<typename Target::Config> config_from_line(const Line& line, std::string_view file = {}) {
  if (!line.subject.empty()) return detail::unexpected_subject(file, line);
  return from_fields<typename Target::Config>(line.fields, "config", file, line.position,
                                              /*require_all=*/false);
}

template <class Target>
Line config_line(const typename Target::Config& config) {
  Line line;
  line.verb = "config";
  line.fields = to_fields(config);
  return line;
}

/// Errors: what is not a command of the target, with its place; a second `target` or `config`;
/// either one after a
///         command. Whether the configuration makes sense is the target's to say (validate).
template <class Target>
Parsed<Scenario<Target>> scenario_from_document(const Document& document,
                                                std::string_view file = {}) {
  Parsed<detail::ScenarioLines> lines = detail::sort_lines(document, file);
  if (!lines) return lines.error();
  Scenario<Target> scenario;
  scenario.file = file;
  scenario.comments = std::move(lines->comments);
  Position config_position;
  if (lines->config) {
    config_position = lines->config->position;
    Parsed<typename Target::Config> config = config_from_line<Target>(*lines->config, file);
    if (!config) return config.error();
    scenario.config = std::move(*config);
  }
  if (std::optional<InputError> error = Target::validate(scenario.config, file, config_position)) {
    return *error;
  }
  const std::vector<std::string_view> names = field_names<typename Target::Observation>();
  for (const Line* line : lines->commands) {
    Parsed<typename Target::Command> command =
        command_from_line<typename Target::Command>(*line, file);
    if (!command) return command.error();
    if (line->expectation) {
      if (auto error = detail::check_expectation(*line->expectation, names, file)) return *error;
    }
    scenario.steps.push_back({std::move(*command), line->expectation, line->position});
  }
  return scenario;
}

template <class Target>
Document to_document(const Scenario<Target>& scenario) {
  Document document;
  for (const std::string& comment : scenario.comments) {
    document.emplace_back().comment = comment;
  }
  document.push_back(detail::target_line(Target::kName));
  document.push_back(config_line<Target>(scenario.config));
  for (const Step<Target>& step : scenario.steps) {
    document.push_back(to_line(step.command));
    document.back().expectation = step.expectation;
  }
  return document;
}

}  // namespace kvfence
