#include "properties/core/difference.h"

#include <algorithm>
#include <utility>

#include "contract/core/target.h"

namespace kvfence {
namespace {

const Value& value_or_none(const std::vector<Field>& fields, std::string_view key) {
  static const Value none;
  const Field* field = find_field(fields, key);
  return field ? field->value : none;
}

/// Whether every element is a number, a flag, a word or bytes.
bool is_flat(const Value::List& list) {
  return std::ranges::all_of(list, [](const Value& element) {
    return !element.get_if<Value::List>() && !element.get_if<Record>();
  });
}

/// The keys of both sides: those of the first side in its order, then those of the second alone.
std::vector<std::string> keys_of(const std::vector<Field>& first,
                                 const std::vector<Field>& second) {
  std::vector<std::string> keys;
  for (const Field& field : first) keys.push_back(field.key);
  for (const Field& field : second) {
    if (!find_field(first, field.key)) keys.push_back(field.key);
  }
  return keys;
}

/// How two values are compared: exactly, or as an expectation, which may be spelled differently.
using Equal = std::function<bool(const Value& expected, const Value& actual)>;

/// Descends while both sides have the same kind of value; path and both pointers end at the
/// innermost members that are worth printing.
void descend(std::string& path, const Value*& expected, const Value*& actual, const Equal& equal) {
  if (const auto* a = expected->get_if<Value::List>(), *b = actual->get_if<Value::List>(); a && b) {
    std::size_t index = 0;
    while (index < a->size() && index < b->size() && equal((*a)[index], (*b)[index])) ++index;
    path += "[" + std::to_string(index) + "]";
    if (index >= a->size() || index >= b->size() || (is_flat(*a) && is_flat(*b))) return;
    expected = &(*a)[index];
    actual = &(*b)[index];
    descend(path, expected, actual, equal);
    return;
  }
  const auto* a = expected->get_if<Record>();
  const auto* b = actual->get_if<Record>();
  if (!a || !b || a->verb != b->verb) return;
  for (const std::string& key : keys_of(a->fields, b->fields)) {
    const Value& inner_expected = value_or_none(a->fields, key);
    const Value& inner_actual = value_or_none(b->fields, key);
    if (equal(inner_expected, inner_actual)) continue;
    path += "." + key;
    expected = &inner_expected;
    actual = &inner_actual;
    descend(path, expected, actual, equal);
    return;
  }
}

Divergence divergence_at(std::string path, const Value& expected, const Value& actual,
                         const Equal& equal) {
  const Value* inner_expected = &expected;
  const Value* inner_actual = &actual;
  // Members may differ although their texts are equal.
  if (!equal(expected, actual)) descend(path, inner_expected, inner_actual, equal);
  return {
      .field = std::move(path), .expected = print(*inner_expected), .actual = print(*inner_actual)};
}

/// Whether an observed value meets an expectation.
class Matcher {
 public:
  explicit Matcher(const ResolveSymbol& resolve) : resolve_(resolve) {}

  bool operator()(const Value& expected, const Value& actual) const {
    if (expected == actual) return true;
    if (const auto* symbol = expected.get_if<std::string>()) {
      const auto* bytes = actual.get_if<Bytes>();
      return bytes && resolve_ && resolve_(*symbol) == bytes->data;
    }
    if (const auto* integer = expected.get_if<std::int64_t>()) {
      const auto* decimal = actual.get_if<double>();
      return decimal && *decimal == static_cast<double>(*integer);
    }
    // The code of success is the word none, which is spelled like absence.
    if (expected.get_if<None>()) {
      const auto* word = actual.get_if<std::string>();
      return word && *word == "none";
    }
    if (const auto* list = expected.get_if<Value::List>()) {
      const auto* other = actual.get_if<Value::List>();
      return other && std::ranges::equal(*list, *other, *this);
    }
    if (const auto* record = expected.get_if<Record>()) {
      const auto* other = actual.get_if<Record>();
      return other && record->verb == other->verb && match(record->fields, other->fields);
    }
    return false;
  }

 private:
  bool match(const std::vector<Field>& expected, const std::vector<Field>& actual) const {
    const std::vector<std::string> keys = keys_of(expected, actual);
    return std::ranges::all_of(keys, [&](const std::string& key) {
      return (*this)(value_or_none(expected, key), value_or_none(actual, key));
    });
  }

  const ResolveSymbol& resolve_;
};

}  // namespace

void symbolize(Value& value, const SymbolOf& symbol_of) {
  if (const auto* bytes = value.get_if<Bytes>()) {
    if (std::optional<std::string> symbol = symbol_of(bytes->data)) {
      value = Value(Value::Variant(std::move(*symbol)));
    }
  } else if (const auto* list = value.get_if<Value::List>()) {
    Value::List elements = *list;
    for (Value& element : elements) symbolize(element, symbol_of);
    value = Value(Value::Variant(std::move(elements)));
  } else if (const auto* found = value.get_if<Record>()) {
    Record record = *found;
    for (Field& field : record.fields) symbolize(field.value, symbol_of);
    value = Value(Value::Variant(std::move(record)));
  }
}

namespace detail {

Divergence locate_difference(std::string path, Value expected, Value actual,
                             const SymbolOf& symbol_of) {
  if (symbol_of) {
    symbolize(expected, symbol_of);
    symbolize(actual, symbol_of);
  }
  return divergence_at(std::move(path), expected, actual, std::equal_to<Value>());
}

}  // namespace detail

std::optional<Divergence> matches(const std::vector<Field>& expectation,
                                  const Observation& observation, std::size_t step,
                                  const ResolveSymbol& resolve) {
  const Matcher match(resolve);
  for (const Field& field : expectation) {
    const std::optional<MemberRef> member = find_member(observation.declared(), field.key);
    const Value actual = member && member->is_present() ? member->value() : Value();
    if (match(field.value, actual)) continue;
    // A member that the text may leave out counts as absent if it has its default.
    const bool says_nothing = member && member->declaration().is_optional && member->is_default();
    if (says_nothing && field.value.get_if<None>()) continue;
    Divergence divergence = divergence_at(field.key, field.value, actual, match);
    divergence.step = step;
    divergence.oracle = "expectation";
    divergence.message = "the scenario expects " + field.key + "=" + print(field.value);
    return divergence;
  }
  return std::nullopt;
}

std::optional<Divergence> first_difference(const DeclaredObject& expected,
                                           const DeclaredObject& actual, std::size_t step,
                                           const SymbolOf& symbol_of) {
  for (std::size_t index = 0; index < expected.size(); ++index) {
    if (expected[index].equals(actual[index])) continue;
    const DeclaredMember& member = expected[index].declaration();
    const std::string name(member.name);
    Divergence found =
        detail::locate_difference(name, expected[index].value(), actual[index].value(), symbol_of);
    found.step = step;
    found.oracle = "lockstep";
    found.message = name + " (" + std::string(member.doc) + ") must equal the reference's";
    return found;
  }
  return std::nullopt;
}

}  // namespace kvfence
