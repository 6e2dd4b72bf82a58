#include "properties/draws/factors.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "contract/core/lists.h"

namespace kvfence {
namespace {

std::string band_of(std::int64_t number) {
  constexpr std::array<std::int64_t, 10> kFirst = {0, 1, 2, 4, 8, 16, 32, 64, 256, 1024};
  const auto* const above = std::upper_bound(kFirst.begin(), kFirst.end(), number);
  const std::int64_t first = *(above - 1);
  if (above == kFirst.end()) return std::to_string(first) + "+";
  if (*above == first + 1) return std::to_string(first);
  return std::to_string(first) + "-" + std::to_string(*above - 1);
}

Value of(Value::List list) { return Value(Value::Variant(std::move(list))); }
Value of(Record record) { return Value(Value::Variant(std::move(record))); }

void add_mixtures(const Value::List& list, const Value::List& other, std::vector<Value>& mixed) {
  for (const Value& other_element : other) {
    Value::List longer = list;
    longer.push_back(other_element);
    mixed.push_back(of(std::move(longer)));
    for (std::size_t at = 0; at < list.size(); ++at) {
      for (Value& element : mixtures(list[at], other_element)) {
        Value::List changed = list;
        changed[at] = std::move(element);
        mixed.push_back(of(std::move(changed)));
      }
    }
  }
}

void add_mixtures(const Record& record, const Record& other, std::vector<Value>& mixed) {
  for (const Field& other_field : other.fields) {
    const Field* field = find_field(record.fields, other_field.key);
    for (Value& value : mixtures(field ? field->value : Value(), other_field.value)) {
      mixed.push_back(of(with_field(record, other_field.key, std::move(value))));
    }
  }
  for (const Field& field : record.fields) {
    if (find_field(other.fields, field.key)) continue;
    Record without = record;
    std::erase_if(without.fields, [&](const Field& each) { return each.key == field.key; });
    mixed.push_back(of(std::move(without)));
  }
}

}  // namespace

Record with_field(const Record& record, const std::string& key, Value value) {
  Record changed = record;
  std::erase_if(changed.fields, [&](const Field& field) { return field.key == key; });
  changed.fields.push_back({key, std::move(value), {}});
  return changed;
}

void learn_members(const std::string& path, const Value& value, MembersOfRecords& members) {
  if (const auto* list = value.get_if<Value::List>()) {
    for (const Value& element : *list) learn_members(path, element, members);
  } else if (const auto* record = value.get_if<Record>()) {
    const std::string kind = path + "." + record->verb;
    for (const Field& field : record->fields) {
      std::vector<std::string>& known = members[kind];
      if (!contains(known, field.key)) known.push_back(field.key);
      learn_members(kind + "." + field.key, field.value, members);
    }
  }
}

void for_each_factor(const std::string& member, const Value& value, const MembersOfRecords& members,
                     const FactorVisitor& visit) {
  if (const auto* list = value.get_if<Value::List>()) {
    visit(member + ".length", band_of(static_cast<std::int64_t>(list->size())));
    for (const Value& element : *list) for_each_factor(member, element, members, visit);
  } else if (const auto* record = value.get_if<Record>()) {
    visit(member, record->verb);
    const std::string kind = member + "." + record->verb;
    for (const Field& field : record->fields) {
      for_each_factor(kind + "." + field.key, field.value, members, visit);
    }
    const auto known = members.find(kind);
    if (known == members.end()) return;
    for (const std::string& name : known->second) {
      if (!find_field(record->fields, name)) visit(kind + "." + name, "default");
    }
  } else if (const auto* number = value.get_if<std::int64_t>()) {
    visit(member, band_of(*number));
  } else {
    visit(member, print(value));
  }
}

bool has_factor(const DeclaredObject& config, std::string_view factor_and_value) {
  const std::size_t equals = factor_and_value.find('=');
  const std::string_view factor = factor_and_value.substr(0, equals);
  const std::string_view value = factor_and_value.substr(equals + 1);
  MembersOfRecords members;
  const std::size_t dot = factor.rfind('.');
  if (dot != std::string_view::npos) {
    members[std::string(factor.substr(0, dot))].emplace_back(factor.substr(dot + 1));
  }
  bool found = false;
  const FactorVisitor look = [&](const std::string& each, const std::string& text) {
    found = found || (each == factor && text == value);
  };
  for (std::size_t index = 0; index < config.size() && !found; ++index) {
    const std::string& name = config.type().members[index].name;
    const bool may_have =
        factor.starts_with(name) && (factor.size() == name.size() || factor[name.size()] == '.');
    if (may_have) for_each_factor(name, config[index].value(), members, look);
  }
  return found;
}

bool has_both(const DeclaredObject& config, const NeverTogether& row) {
  return has_factor(config, row.first) && (row.second.empty() || has_factor(config, row.second));
}

std::vector<Value> mixtures(const Value& value, const Value& other) {
  std::vector<Value> mixed{other};
  const auto* list = value.get_if<Value::List>();
  const auto* other_list = other.get_if<Value::List>();
  if (list && other_list) add_mixtures(*list, *other_list, mixed);
  const auto* record = value.get_if<Record>();
  const auto* other_record = other.get_if<Record>();
  if (record && other_record && record->verb == other_record->verb) {
    add_mixtures(*record, *other_record, mixed);
  }
  return mixed;
}

}  // namespace kvfence
