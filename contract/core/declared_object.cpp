#include "contract/core/declared_object.h"

#include <utility>

#include "contract/core/declare.h"
#include "contract/core/lists.h"

namespace kvfence {

bool are_equal(const DeclaredObject& a, const DeclaredObject& b) {
  for (std::size_t index = 0; index < a.size(); ++index) {
    if (!a[index].equals(b[index])) return false;
  }
  return true;
}

std::vector<Field> fields_of(const DeclaredObject& object) {
  std::vector<Field> fields;
  for (std::size_t index = 0; index < object.size(); ++index) {
    const MemberRef member = object[index];
    if (!member.is_present()) continue;
    if (member.declaration().is_optional && member.is_default()) continue;
    fields.push_back({std::string(member.declaration().name), member.value(), {}});
  }
  return fields;
}

std::vector<std::string_view> names_of(const DeclaredStruct& type) {
  std::vector<std::string_view> names;
  names.reserve(type.members.size());
  for (const DeclaredMember& member : type.members) names.push_back(member.name);
  return names;
}

std::optional<MemberRef> find_member(const DeclaredObject& object, std::string_view name) {
  for (std::size_t index = 0; index < object.size(); ++index) {
    if (object.type().members[index].name == name) return object[index];
  }
  return std::nullopt;
}

std::optional<InputError> assign_fields_of(const DeclaredObject& object,
                                           const std::vector<Field>& fields,
                                           std::string_view file) {
  std::size_t num_known = 0;
  for (std::size_t index = 0; index < object.size(); ++index) {
    const MemberRef member = object[index];
    const Field* found = find_field(fields, member.declaration().name);
    if (!found) continue;
    ++num_known;
    std::string expected;
    if (!member.assign(found->value, expected)) {
      return detail::wrong_value(file, *found, std::move(expected));
    }
  }
  if (num_known == fields.size()) return std::nullopt;
  const std::vector<std::string_view> names = names_of(object.type());
  for (const Field& field : fields) {
    if (!contains(names, field.key)) {
      return detail::unknown_key(file, field, detail::one_of(names));
    }
  }
  return std::nullopt;
}

std::optional<InputError> read_fields_of(const DeclaredObject& object,
                                         const std::vector<Field>& fields, std::string_view owner,
                                         std::string_view file, Position position) {
  if (auto error = assign_fields_of(object, fields, file)) return error;
  for (const DeclaredMember& member : object.type().members) {
    if (member.is_optional || find_field(fields, member.name)) continue;
    return detail::missing_key(file, position, owner, member.name);
  }
  return std::nullopt;
}

}  // namespace kvfence
