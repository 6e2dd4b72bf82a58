#include "contract/core/scenario.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "contract/core/lists.h"

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

/// The lines of a scenario, sorted: comments at the top, `target`, `config`, `digests`, commands.
struct ScenarioLines {
  std::vector<std::string> comments;
  std::optional<Line> config;
  std::optional<Line> digests;
  std::vector<const Line*> commands;
};

/// Rejects expectation keys that the target's observation does not have.
std::optional<InputError> check_expectation(const std::vector<Field>& expectation,
                                            const std::vector<std::string_view>& names,
                                            std::string_view file) {
  for (const Field& field : expectation) {
    if (!contains(names, field.key)) return detail::unknown_key(file, field, detail::one_of(names));
  }
  return std::nullopt;
}

/// Rejects what is no digest.
std::optional<InputError> check_digest(const Line& line, std::string_view file) {
  const std::vector<Field>& fields = *line.expectation;
  const auto* const bytes = fields.size() == 1 && fields.front().key == Digests::kField
                                ? fields.front().value.get_if<Bytes>()
                                : nullptr;
  if (bytes && bytes->data.size() == Digests::kBytes) return std::nullopt;
  Line found;
  found.expectation = fields;
  return error_at(file, line, "'" + print(found) + "'",
                  "'-> digest=0x' and 16 hex digits, as in every recording with a line 'digests'");
}

Parsed<Digests> digests_of(const Line& line, const std::vector<std::string_view>& names,
                           std::string_view file) {
  if (!line.subject.empty()) return detail::unexpected_subject(file, line);
  Digests digests;
  if (auto error =
          read_fields_of(object_of(digests), line.fields, Digests::kLine, file, line.position)) {
    return *error;
  }
  for (const std::string& member : digests.members) {
    if (contains(names, member)) continue;
    return error_at(file, line, "member '" + member + "'", detail::one_of(names));
  }
  return digests;
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
      return error_at(file, line, "a second 'target'", "one scenario (--episode says which)");
    }
    if (line.verb == "config" || line.verb == Digests::kLine) {
      std::optional<Line>& place = line.verb == "config" ? lines.config : lines.digests;
      if (place) {
        return error_at(file, line, "a second '" + line.verb + "'",
                        "one " + line.verb + " per scenario");
      }
      if (!lines.commands.empty()) {
        return error_at(file, line, "'" + line.verb + "' after a command",
                        line.verb + " before every command");
      }
      place = line;
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
  if (lines->digests) {
    Parsed<Digests> digests = digests_of(*lines->digests, names, file);
    if (!digests) return digests.error();
    scenario.digests = std::move(*digests);
  }
  for (const Line* line : lines->commands) {
    Parsed<Command> command = command_from_line(target, *line, file);
    if (!command) return command.error();
    if (line->expectation) {
      if (auto error = scenario.digests ? check_digest(*line, file)
                                        : check_expectation(*line->expectation, names, file)) {
        return *error;
      }
    }
    scenario.steps.push_back({std::move(*command), line->expectation, line->position});
  }
  return scenario;
}

std::vector<Document> episodes_of(Document document) {
  std::vector<Document> episodes;
  const auto is_target = [](const Line& line) { return line.verb == "target"; };
  auto begin = document.begin();
  auto target = std::find_if(begin, document.end(), is_target);
  while (target != document.end()) {
    target = std::find_if(target + 1, document.end(), is_target);
    auto end = target;
    while (end != document.end() && is_blank(*std::prev(end))) --end;
    episodes.emplace_back(std::move_iterator(begin), std::move_iterator(end));
    begin = end;
  }
  if (episodes.empty()) episodes.push_back(std::move(document));
  return episodes;
}

Parsed<std::vector<Scenario>> scenarios_from_document(const Target& target, Document document,
                                                      std::string_view file) {
  std::vector<Scenario> scenarios;
  const std::vector<Document> episodes = episodes_of(std::move(document));
  for (const Document& episode : episodes) {
    Parsed<Scenario> scenario = scenario_from_document(target, episode, file);
    if (!scenario) return scenario.error();
    if (episodes.size() > 1) scenario->episode = scenarios.size();
    scenarios.push_back(std::move(*scenario));
  }
  return scenarios;
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
  if (scenario.digests) {
    Line& digests = document.emplace_back();
    digests.verb = Digests::kLine;
    digests.fields = fields_of(object_of(*scenario.digests));
  }
  for (const Step& step : scenario.steps) {
    document.push_back(to_line(step.command));
    document.back().expectation = step.expectation;
  }
  return document;
}

}  // namespace kvfence
