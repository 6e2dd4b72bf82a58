#include "contract/core/declare.h"

#include <algorithm>
#include <limits>

#include "contract/core/joined.h"

namespace kvfence {
namespace {

/// A value as a message shows it: canonical text, cut if it is long.
std::string quote(const Value& value) {
  constexpr std::size_t kShownMax = 40;
  std::string text = print(value);
  if (text.size() > kShownMax) text = text.substr(0, kShownMax) + "...";
  return text;
}

/// What an integer of the line language, which has 63 bits, can be in a T.
template <class T>
constexpr std::int64_t kIntegerMax = static_cast<std::int64_t>(std::min<std::uint64_t>(
    std::numeric_limits<T>::max(), std::numeric_limits<std::int64_t>::max()));

template <class T>
bool take(const Value& value, T& member, std::string& expected, const char* what) {
  const T* const found = value.get_if<T>();
  if (found) {
    member = *found;
  } else {
    expected = what;
  }
  return found != nullptr;
}

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

}  // namespace

Value to_value(bool member) { return Value::Variant(member); }
Value to_value(std::uint32_t member) { return Value::Variant(std::int64_t{member}); }
Value to_value(std::uint64_t member) { return Value::Variant(static_cast<std::int64_t>(member)); }
Value to_value(std::int64_t member) { return Value::Variant(member); }
Value to_value(double member) { return Value::Variant(member); }
Value to_value(const std::string& member) { return Value::Variant(member); }

bool from_value(const Value& value, bool& member, std::string& expected) {
  return take(value, member, expected, "true or false");
}

bool from_value(const Value& value, std::uint32_t& member, std::string& expected) {
  return take_integer(value, member, expected);
}

bool from_value(const Value& value, std::uint64_t& member, std::string& expected) {
  return take_integer(value, member, expected);
}

bool from_value(const Value& value, std::int64_t& member, std::string& expected) {
  return take(value, member, expected, "an integer");
}

bool from_value(const Value& value, double& member, std::string& expected) {
  return take(value, member, expected, "a decimal such as 0.5");
}

bool from_value(const Value& value, std::string& member, std::string& expected) {
  return take(value, member, expected, "a word or a quoted string");
}

std::string list_of(bool) { return "a list of flags such as [true false]"; }
std::string list_of(std::uint32_t) { return "a list of integers from 0 to 4294967295"; }
std::string list_of(std::uint64_t) { return "a list of integers from 0 to 9223372036854775807"; }
std::string list_of(const std::string&) { return "a list of names such as [A B]"; }
std::string list_of(const std::vector<std::uint32_t>&) {
  return "lists of numbers such as [[1 2] [3]]";
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

bool read_record(const Value& value, std::string_view word, const DeclaredObject& object,
                 std::string& expected) {
  const auto* const record = value.get_if<Record>();
  if (record && record->verb == word && !read_fields_of(object, record->fields, word, {}, {})) {
    return true;
  }
  expected = record_form(word, object.type());
  return false;
}

std::string record_form(std::string_view word, const DeclaredStruct& type) {
  std::string form = "(" + std::string(word);
  for (const std::string_view name : names_of(type)) form += " " + std::string(name) + "=...";
  return form + ")";
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
