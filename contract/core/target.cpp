#include "contract/core/target.h"

#include <algorithm>

namespace kvfence {
namespace {

/// What is known of it without an object.
const DeclaredStruct& struct_of(const ErasedType& type) {
  Erased object;
  object.emplace(type);
  return object.declared().type();
}

}  // namespace

std::vector<DeclaredObject> parts_of(const Observation& observation) {
  std::vector<DeclaredObject> parts{object_of(observation)};
  for (const Erased* part : {&observation.reply, &observation.numbers, &observation.state}) {
    if (part->has_value()) parts.push_back(part->declared());
  }
  return parts;
}

std::vector<Field> to_fields(const Observation& observation) {
  std::vector<Field> fields;
  for (const DeclaredObject& part : parts_of(observation)) {
    for (Field& field : fields_of(part)) fields.push_back(std::move(field));
  }
  return fields;
}

Parsed<Observation> observation_from_fields(const Target& target, const CommandType& type,
                                            const std::vector<Field>& fields, std::string_view file,
                                            Position position) {
  Observation observation;
  observation.numbers.emplace(*target.numbers);
  const auto is_of = [](const DeclaredStruct& part, const Field& field) {
    return std::any_of(part.members.begin(), part.members.end(),
                       [&](const DeclaredMember& member) { return member.name == field.key; });
  };
  if (target.state) {
    const DeclaredStruct& state = struct_of(*target.state);
    const bool is_shown = std::any_of(fields.begin(), fields.end(),
                                      [&](const Field& field) { return is_of(state, field); });
    if (is_shown) observation.state.emplace(*target.state);
  }
  if (const Field* error = find_field(fields, "error")) {
    if (auto wrong = assign_fields_of(object_of(observation), {*error}, file)) return *wrong;
  }
  if (type.reply && observation.error == ErrorCode::kNone) observation.reply.emplace(*type.reply);
  const std::vector<DeclaredObject> parts = parts_of(observation);
  for (const Field& field : fields) {
    const auto part = std::find_if(parts.begin(), parts.end(), [&](const DeclaredObject& object) {
      return is_of(object.type(), field);
    });
    if (part == parts.end()) {
      Field placed = field;
      if (placed.position.line == 0) placed.position = position;
      return detail::unknown_key(file, placed, detail::one_of(observation_names(target)));
    }
    if (auto wrong = assign_fields_of(*part, {field}, file)) return *wrong;
  }
  return observation;
}

std::vector<const DeclaredStruct*> observation_structs(const Target& target) {
  std::vector<const DeclaredStruct*> structs{&declared_struct<Observation>()};
  const auto add = [&](const ErasedType* type) {
    if (!type) return;
    const DeclaredStruct* found = &struct_of(*type);
    if (std::find(structs.begin(), structs.end(), found) == structs.end()) structs.push_back(found);
  };
  for (const CommandType& command : target.commands) add(command.reply);
  add(target.numbers);
  add(target.state);
  return structs;
}

std::vector<std::string_view> observation_names(const Target& target) {
  std::vector<std::string_view> names;
  for (const DeclaredStruct* type : observation_structs(target)) {
    for (std::string_view name : names_of(*type)) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

const CommandType& type_of(const Target& target, const Command& command) {
  const DeclaredStruct* declared = &command.declared().type();
  for (const CommandType& type : target.commands) {
    if (type.declared == declared) return type;
  }
  check_failed(__FILE__, __LINE__, "type.declared == declared", "a command of another target");
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
