#pragma once

/// Members that are lists of records, such as a configuration's groups: what walks and simplifies
/// scenarios sees their numbers through the value that they print as.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "contract/declare.h"
#include "contract/line.h"

namespace kvfence {

/// A list whose elements are neither numbers, nor flags, nor words.
template <class T>
concept ListOfRecords = requires(const T& member, T& target, std::string& expected) {
  typename T::value_type;
  requires std::derived_from<T, std::vector<typename T::value_type>>;
  requires !std::is_arithmetic_v<typename T::value_type>;
  requires !std::is_same_v<typename T::value_type, std::string>;
  { to_value(member) } -> std::same_as<Value>;
  { from_value(Value(), target, expected) } -> std::same_as<bool>;
};

/// A list of declared structs: their members have domains of their own.
template <class T>
concept ListOfDeclaredRecords = ListOfRecords<T> && DeclaredRecord<typename T::value_type>;

/// The value with each integer in it replaced by edit(integer), in the order of the text.
template <class Edit>
Value map_integers(const Value& value, Edit&& edit) {
  if (const auto* number = value.get_if<std::int64_t>()) {
    return Value(Value::Variant(std::int64_t{edit(*number)}));
  }
  if (const auto* list = value.get_if<Value::List>()) {
    Value::List mapped;
    for (const Value& element : *list) mapped.push_back(map_integers(element, edit));
    return Value(Value::Variant(std::move(mapped)));
  }
  if (const auto* record = value.get_if<Record>()) {
    Record mapped = *record;
    for (Field& field : mapped.fields) field.value = map_integers(field.value, edit);
    return Value(Value::Variant(std::move(mapped)));
  }
  return value;
}

/// Calls visit(number) for each number in a list of records; where the list may change, the number
/// may too. Numbers above 32 bits are passed over.
template <class List, class Visit>
void for_each_number_in(List& list, Visit&& visit) {
  const Value edited = map_integers(to_value(list), [&](std::int64_t integer) {
    auto number = static_cast<std::uint32_t>(integer);
    if (std::int64_t{number} != integer) return integer;
    visit(number);
    return std::int64_t{number};
  });
  if constexpr (!std::is_const_v<List>) {
    std::string expected;
    from_value(edited, list, expected);
  }
}

}  // namespace kvfence
