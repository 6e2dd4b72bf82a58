#include "contract/core/target.h"

namespace kvfence {

ErrorCode shown_error(const Observation& observation) {
  const std::optional<MemberRef> member = find_member(observation.declared(), "error");
  const auto* const error = member ? get_if<ErrorCode>(*member) : nullptr;
  KVFENCE_CHECK(error, "each observation has its error");
  return *error;
}

Observation default_observation(const Target& target) {
  Observation observation;
  observation.emplace(*target.observation);
  return observation;
}

std::vector<std::string_view> observation_names(const Target& target) {
  return names_of(default_observation(target).declared().type());
}

Line to_line(const Command& command) {
  const DeclaredObject object = command.declared();
  Line line;
  line.verb = object.type().verb;
  line.fields = fields_of(object);
  return line;
}

Parsed<Command> command_from_line(const Target& target, const Line& line, std::string_view file) {
  if (!line.subject.empty()) return detail::unexpected_subject(file, line);
  std::vector<std::string_view> verbs;
  for (const CommandType& type : target.commands) {
    verbs.push_back(type.declared->verb);
    if (line.verb != type.declared->verb) continue;
    Command command;
    const DeclaredObject members = type.emplace(command);
    if (auto error = read_fields_of(members, line.fields, line.verb, file, line.position)) {
      return *error;
    }
    return command;
  }
  return InputError{std::string(file), line.position, "'" + line.verb + "'",
                    "a command, " + detail::one_of(verbs)};
}

Config default_config(const Target& target) {
  Config config;
  config.emplace(*target.config);
  return config;
}

Parsed<Config> config_from_line(const Target& target, const Line& line, std::string_view file) {
  if (!line.subject.empty()) return detail::unexpected_subject(file, line);
  Config config = default_config(target);
  if (auto error = assign_fields_of(config.declared(), line.fields, file)) return *error;
  return config;
}

Line config_line(const Config& config) {
  Line line;
  line.verb = "config";
  line.fields = fields_of(config.declared());
  return line;
}

Setup prepared(const Target& target, Config config) {
  Parsed<Setup> setup = target.prepare(std::move(config), {}, {});
  KVFENCE_CHECK(setup, setup ? "" : setup.error().to_text());
  return std::move(*setup);
}

}  // namespace kvfence
