#include "properties/core/simplify.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace kvfence {

Value map_integers(const Value& value, const std::function<std::int64_t(std::int64_t)>& edit) {
  if (const auto* number = value.get_if<std::int64_t>()) {
    return Value(Value::Variant(edit(*number)));
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

namespace simplify {
namespace {

using Attempt = std::function<bool(const Value&)>;

Value of(Value::List list) { return Value(Value::Variant(std::move(list))); }
Value of(std::uint32_t number) { return Value(Value::Variant(std::int64_t{number})); }

bool is_number(const Value& value) {
  const auto* number = value.get_if<std::int64_t>();
  return number && *number >= 0 && *number <= UINT32_MAX;
}

template <class Element>
std::vector<Element> without(std::vector<Element> list, std::size_t begin, std::size_t end) {
  const auto first = list.begin();
  list.erase(first + static_cast<std::ptrdiff_t>(begin), first + static_cast<std::ptrdiff_t>(end));
  return list;
}

/// A list to be simplified: keeps a candidate that attempt accepts.
class List {
 public:
  List(Value::List list, const Attempt& attempt) : best_(std::move(list)), attempt_(attempt) {}

  void shorten() {
    remove_chunks(best_.size(), [&](std::size_t begin, std::size_t end) {
      return keep_if(without(best_, begin, end));
    });
  }

  /// Numbers become 0; flags of a mask become those that mask nothing.
  void simplify_elements() {
    for (std::size_t index = 0; index < best_.size(); ++index) {
      const Value element = best_[index];
      const bool is_flag = element.get_if<bool>() != nullptr;
      if (!is_flag && !is_number(element)) continue;
      value(element, is_flag ? Value(Value::Variant(true)) : of(0u),
            [&](const Value& simpler) { return replace(index, simpler); });
    }
  }

  void simplify_records() {
    for (std::size_t index = 0; index < best_.size(); ++index) {
      drop_fields(index);
      shorten_lists(index);
    }
    lower_numbers();
  }

 private:
  bool keep_if(Value::List candidate) {
    if (!attempt_(of(candidate))) return false;
    best_ = std::move(candidate);
    return true;
  }

  bool replace(std::size_t index, Value element) {
    Value::List candidate = best_;
    candidate[index] = std::move(element);
    return keep_if(std::move(candidate));
  }

  void drop_fields(std::size_t index) {
    const auto* record = best_[index].get_if<Record>();
    for (std::size_t field = record ? record->fields.size() : 0; field-- > 0;) {
      Record shorter = *best_[index].get_if<Record>();
      shorter.fields = without(std::move(shorter.fields), field, field + 1);
      replace(index, Value(Value::Variant(std::move(shorter))));
    }
  }

  void shorten_lists(std::size_t index) {
    const auto* record = best_[index].get_if<Record>();
    for (std::size_t field = record ? record->fields.size() : 0; field-- > 0;) {
      const auto* list = best_[index].get_if<Record>()->fields[field].value.get_if<Value::List>();
      remove_chunks(list ? list->size() : 0, [&](std::size_t begin, std::size_t end) {
        Record shorter = *best_[index].get_if<Record>();
        Value& elements = shorter.fields[field].value;
        elements = of(without(*elements.get_if<Value::List>(), begin, end));
        return replace(index, Value(Value::Variant(std::move(shorter))));
      });
    }
  }

  void lower_numbers() {
    std::vector<std::int64_t> numbers;
    map_integers(of(best_), [&](std::int64_t number) {
      numbers.push_back(number);
      return number;
    });
    for (std::size_t chosen = 0; chosen < numbers.size(); ++chosen) {
      if (numbers[chosen] < 0 || numbers[chosen] > UINT32_MAX) continue;
      lower(static_cast<std::uint32_t>(numbers[chosen]), [&](std::uint32_t simpler) {
        std::size_t at = 0;
        const Value edited = map_integers(of(best_), [&](std::int64_t number) {
          return at++ == chosen ? std::int64_t{simpler} : number;
        });
        return keep_if(*edited.get_if<Value::List>());
      });
    }
  }

  Value::List best_;
  const Attempt& attempt_;
};

/// Whether the value is a list or a record.
bool is_nested(const Value& value) { return value.get_if<Value::List>() || value.get_if<Record>(); }

}  // namespace

void lower(std::uint32_t value, const std::function<bool(std::uint32_t)>& attempt) {
  for (std::uint32_t step = value; step > 0;) {
    if (attempt(value - step)) {
      value -= step;
      step = std::min(step, value);
    } else {
      step /= 2;
    }
  }
}

void remove_chunks(std::size_t size,
                   const std::function<bool(std::size_t begin, std::size_t end)>& attempt) {
  for (std::size_t chunk = size; chunk > 0; chunk /= 2) {
    for (std::size_t end = size; end > 0;) {
      const std::size_t begin = end > chunk ? end - chunk : 0;
      if (attempt(begin, end)) size -= end - begin;
      end = begin;
    }
  }
}

void value(const Value& member, const Value& plain, const Attempt& attempt) {
  if (const auto* list = member.get_if<Value::List>()) {
    if (plain.get_if<None>() && attempt(plain)) return;
    List simpler(*list, attempt);
    simpler.shorten();
    if (std::ranges::any_of(*list, is_nested)) {
      simpler.simplify_records();
    } else {
      simpler.simplify_elements();
    }
    return;
  }
  if (!is_number(member)) {
    if (member == plain || attempt(plain) || !plain.get_if<None>()) return;
    // For an optional member that is present: false, nothing, or the empty word.
    if (member.get_if<bool>()) value(member, Value(Value::Variant(false)), attempt);
    if (member.get_if<double>()) value(member, Value(Value::Variant(0.0)), attempt);
    if (member.get_if<std::string>()) value(member, Value(Value::Variant(std::string())), attempt);
    return;
  }
  if (plain.get_if<None>()) {
    if (!attempt(plain)) value(member, of(0u), attempt);
    return;
  }
  const auto number = static_cast<std::uint32_t>(*member.get_if<std::int64_t>());
  const bool is_plainer = member != plain && is_number(plain) && attempt(plain);
  lower(is_plainer ? static_cast<std::uint32_t>(*plain.get_if<std::int64_t>()) : number,
        [&](std::uint32_t simpler) { return attempt(of(simpler)); });
}

}  // namespace simplify
}  // namespace kvfence
