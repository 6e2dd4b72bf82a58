#include "contract/core/declare.h"

#include <algorithm>
#include <limits>

#include "contract/core/joined.h"

namespace kvfence {
namespace {

/// A value as it would stand in a message: canonical text, cut where it grows long.
std::string quote(const Value& value) {
  constexpr std::size_t kShownMax = 40;
  std::string text = print(value);
  if (text.size() > kShownMax) text = text.substr(0, kShownMax) + "...";
  return text;
}

template <class T>
Value list_of(const std::vector<T>& member) {
  Value::List list;
  list.reserve(member.size());
  for (const T element : member) list.push_back(to_value(element));
  return Value::Variant(std::move(list));
}

/// What an integer of the line language, which has 63 bits, can be in a T.
template <class T>
constexpr std::int64_t kIntegerMax = static_cast<std::int64_t>(std::min<std::uint64_t>(
    std::numeric_limits<T>::max(), std::numeric_limits<std::int64_t>::max()));

template <class T>
bool take_integer(const Value& value, T& member, std::string& expected) {
  const std::int64_t* found = value.get_if<std::int64_t>();
  if (!found || *found < 0 || *found > kIntegerMax<T>) {
    expected = "an integer from 0 to " + std::to_string(kIntegerMax<T>);
    return false;
  }
  member = static_cast<T>(*found);
  return true;
}

template <class T>
bool take_integers(const Value& value, std::vector<T>& member, std::string& expected) {
  const Value::List* list = value.get_if<Value::List>();
  if (!list) {
    expected = "a list of integers such as [1 2 3]";
    return false;
  }
  member.resize(list->size());
  for (std::size_t index = 0; index < list->size(); ++index) {
    if (take_integer((*list)[index], member[index], expected)) continue;
    expected = "a list of integers from 0 to " + std::to_string(kIntegerMax<T>);
    return false;
  }
  return true;
}

}  // namespace

Value to_value(bool member) { return Value::Variant(member); }
Value to_value(std::uint32_t member) { return Value::Variant(std::int64_t{member}); }
Value to_value(std::uint64_t member) { return Value::Variant(static_cast<std::int64_t>(member)); }
Value to_value(double member) { return Value::Variant(member); }
Value to_value(const std::string& member) { return Value::Variant(member); }

Value to_value(const std::vector<std::uint32_t>& member) { return list_of(member); }
Value to_value(const std::vector<std::uint64_t>& member) { return list_of(member); }

Value to_value(const std::vector<bool>& member) {
  Value::List list;
  list.reserve(member.size());
  for (bool element : member) list.push_back(to_value(element));
  return Value::Variant(std::move(list));
}

Value to_value(const std::vector<std::string>& member) {
  Value::List list;
  list.reserve(member.size());
  for (const std::string& element : member) list.push_back(to_value(element));
  return Value::Variant(std::move(list));
}

Value to_value(const std::vector<std::vector<std::uint32_t>>& member) {
  Value::List lists;
  for (const std::vector<std::uint32_t>& list : member) lists.push_back(to_value(list));
  return Value::Variant(std::move(lists));
}

bool from_value(const Value& value, bool& member, std::string& expected) {
  const bool* found = value.get_if<bool>();
  if (!found) {
    expected = "true or false";
    return false;
  }
  member = *found;
  return true;
}

bool from_value(const Value& value, std::uint32_t& member, std::string& expected) {
  return take_integer(value, member, expected);
}

bool from_value(const Value& value, std::uint64_t& member, std::string& expected) {
  return take_integer(value, member, expected);
}

bool from_value(const Value& value, double& member, std::string& expected) {
  const double* found = value.get_if<double>();
  if (!found) {
    expected = "a decimal such as 0.5";
    return false;
  }
  member = *found;
  return true;
}

bool from_value(const Value& value, std::string& member, std::string& expected) {
  const std::string* found = value.get_if<std::string>();
  if (!found) {
    expected = "a word or a quoted string";
    return false;
  }
  member = *found;
  return true;
}

bool from_value(const Value& value, std::vector<std::uint32_t>& member, std::string& expected) {
  return take_integers(value, member, expected);
}

bool from_value(const Value& value, std::vector<std::uint64_t>& member, std::string& expected) {
  return take_integers(value, member, expected);
}

bool from_value(const Value& value, std::vector<bool>& member, std::string& expected) {
  const Value::List* list = value.get_if<Value::List>();
  member.clear();
  if (list) {
    for (const Value& element : *list) {
      const bool* flag = element.get_if<bool>();
      if (!flag) break;
      member.push_back(*flag);
    }
  }
  if (!list || member.size() != list->size()) {
    expected = "a list of flags such as [true false]";
    return false;
  }
  return true;
}

bool from_value(const Value& value, std::vector<std::string>& member, std::string& expected) {
  expected = "a list of names such as [A B]";
  const Value::List* list = value.get_if<Value::List>();
  if (!list) return false;
  member.clear();
  for (const Value& element : *list) {
    const std::string* name = element.get_if<std::string>();
    if (!name) return false;
    member.push_back(*name);
  }
  return true;
}

bool from_value(const Value& value, std::vector<std::vector<std::uint32_t>>& member,
                std::string& expected) {
  expected = "lists of numbers such as [[1 2] [3]]";
  const auto* lists = value.get_if<Value::List>();
  if (!lists) return false;
  member.resize(lists->size());
  std::string ignored;
  for (std::size_t index = 0; index < lists->size(); ++index) {
    if (!from_value((*lists)[index], member[index], ignored)) return false;
  }
  return true;
}

namespace detail {

void add_member(std::vector<DeclaredMember>& members, std::string_view name, std::string_view doc,
                Domain domain, const MemberType& type, std::size_t offset) {
  members.push_back({std::string(name), doc, domain, false, &type, offset});
}

void make_part(std::vector<DeclaredMember>& members, std::size_t first, std::string_view prefix,
               std::size_t offset) {
  for (std::size_t index = first; index < members.size(); ++index) {
    members[index].name.insert(0, prefix);
    members[index].offset += offset;
    members[index].is_optional = true;
  }
}

std::size_t distance(const void* object, const void* member) {
  return static_cast<std::size_t>(static_cast<const char*>(member) -
                                  static_cast<const char*>(object));
}

Value record_of(std::string_view word, const DeclaredObject& object) {
  return Value(Value::Variant(Record{std::string(word), fields_of(object)}));
}

bool read_records(const Value& value, std::string_view word, const DeclaredStruct& type,
                  const std::function<DeclaredObject()>& append, std::string& expected) {
  expected = "records such as [(" + std::string(word);
  for (const std::string_view name : names_of(type)) expected += " " + std::string(name) + "=...";
  expected += ")]";
  const auto* list = value.get_if<Value::List>();
  if (!list) return false;
  return std::ranges::all_of(*list, [&](const Value& element) {
    const auto* record = element.get_if<Record>();
    return record && record->verb == word &&
           !read_fields_of(append(), record->fields, word, {}, {});
  });
}

InputError wrong_value(std::string_view file, const Field& field, std::string expected) {
  return {std::string(file), field.position, field.key + "=" + quote(field.value),
          std::move(expected)};
}

InputError unknown_key(std::string_view file, const Field& field, std::string expected) {
  return {std::string(file), field.position, "key '" + field.key + "'", std::move(expected)};
}

InputError missing_key(std::string_view file, Position position, std::string_view owner,
                       std::string_view key) {
  return {std::string(file), position, std::string(owner) + " without " + std::string(key),
          std::string(key) + "=..."};
}

InputError unexpected_subject(std::string_view file, const Line& line) {
  return {std::string(file), line.position, "'" + line.verb + " " + line.subject + "'",
          line.verb + " with key=value arguments"};
}

std::string one_of(const std::vector<std::string_view>& names) {
  if (names.empty()) return "no key";
  return (names.size() == 1 ? "" : "one of ") + joined(names);
}

}  // namespace detail
}  // namespace kvfence
