#include "contract/core/target.h"

namespace kvfence {

std::vector<DeclaredObject> parts_of(const Observation& observation) {
  std::vector<DeclaredObject> parts{object_of(observation)};
  if (observation.numbers.has_value()) parts.push_back(observation.numbers.declared());
  return parts;
}

std::vector<Field> to_fields(const Observation& observation) {
  std::vector<Field> fields;
  for (const DeclaredObject& part : parts_of(observation)) {
    for (Field& field : fields_of(part)) fields.push_back(std::move(field));
  }
  return fields;
}

std::optional<MemberRef> find_member(const Observation& observation, std::string_view name) {
  for (const DeclaredObject& part : parts_of(observation)) {
    if (const auto member = find_member(part, name)) return member;
  }
  return std::nullopt;
}

Observation default_observation(const Target& target) {
  Observation observation;
  observation.numbers.emplace(*target.numbers);
  return observation;
}

std::vector<std::string_view> observation_names(const Target& target) {
  std::vector<std::string_view> names;
  const Observation observation = default_observation(target);
  for (const DeclaredObject& part : parts_of(observation)) {
    for (const std::string_view name : names_of(part.type())) names.push_back(name);
  }
  return names;
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
