#pragma once

/// Candidates for a simpler value, by the value's type. Each function calls attempt(candidate)
/// until none is accepted; attempt says whether the candidate is kept, and a later candidate builds
/// on it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "properties/value_parts.h"

namespace kvfence::simplify {

/// Tries 0, then half, down to one less, from wherever the last accepted step led.
/// Cost: logarithmic in value if smaller is simpler throughout.
template <class Attempt>
void lower(std::uint32_t value, Attempt&& attempt) {
  for (std::uint32_t step = value; step > 0;) {
    if (attempt(value - step)) {
      value -= step;
      step = std::min(step, value);
    } else {
      step /= 2;
    }
  }
}

/// Delta debugging over [0, size): offers to remove chunks [begin, end), from the back, of all,
/// half, a quarter ... down to single elements. From the back, because what comes later rests on
/// what came before.
template <class Attempt>
void remove_chunks(std::size_t size, Attempt&& attempt) {
  for (std::size_t chunk = size; chunk > 0; chunk /= 2) {
    for (std::size_t end = size; end > 0;) {
      const std::size_t begin = end > chunk ? end - chunk : 0;
      if (attempt(begin, end)) size -= end - begin;
      end = begin;
    }
  }
}

/// Simplifies a list of records: fewer records, fewer fields, shorter lists and smaller numbers in
/// them.
template <ListOfRecords T, class Attempt>
void records(const T& member, Attempt&& attempt) {
  const Value whole = to_value(member);
  Value::List best = *whole.get_if<Value::List>();
  const auto keep_if = [&](Value::List candidate) {
    T list;
    std::string expected;
    if (!from_value(Value(Value::Variant(candidate)), list, expected) || !attempt(list)) {
      return false;
    }
    best = std::move(candidate);
    return true;
  };
  remove_chunks(best.size(), [&](std::size_t begin, std::size_t end) {
    Value::List candidate = best;
    const auto first = candidate.begin();
    candidate.erase(first + static_cast<std::ptrdiff_t>(begin),
                    first + static_cast<std::ptrdiff_t>(end));
    return keep_if(std::move(candidate));
  });
  for (std::size_t index = 0; index < best.size(); ++index) {
    const auto* record = best[index].get_if<Record>();
    for (std::size_t field = record ? record->fields.size() : 0; field-- > 0;) {
      Record shorter = *best[index].get_if<Record>();
      shorter.fields.erase(shorter.fields.begin() + static_cast<std::ptrdiff_t>(field));
      Value::List candidate = best;
      candidate[index] = Value(Value::Variant(std::move(shorter)));
      keep_if(std::move(candidate));
    }
    record = best[index].get_if<Record>();
    for (std::size_t field = record ? record->fields.size() : 0; field-- > 0;) {
      const auto* list = best[index].get_if<Record>()->fields[field].value.get_if<Value::List>();
      remove_chunks(list ? list->size() : 0, [&](std::size_t begin, std::size_t end) {
        Record shorter = *best[index].get_if<Record>();
        Value::List elements = *shorter.fields[field].value.get_if<Value::List>();
        const auto first = elements.begin();
        elements.erase(first + static_cast<std::ptrdiff_t>(begin),
                       first + static_cast<std::ptrdiff_t>(end));
        shorter.fields[field].value = Value(Value::Variant(std::move(elements)));
        Value::List candidate = best;
        candidate[index] = Value(Value::Variant(std::move(shorter)));
        return keep_if(std::move(candidate));
      });
    }
  }
  std::vector<std::int64_t> numbers;
  map_integers(Value(Value::Variant(best)), [&](std::int64_t number) {
    numbers.push_back(number);
    return number;
  });
  for (std::size_t chosen = 0; chosen < numbers.size(); ++chosen) {
    if (numbers[chosen] < 0 || numbers[chosen] > UINT32_MAX) continue;
    lower(static_cast<std::uint32_t>(numbers[chosen]), [&](std::uint32_t simpler) {
      std::size_t at = 0;
      const Value edited = map_integers(Value(Value::Variant(best)), [&](std::int64_t number) {
        return at++ == chosen ? std::int64_t{simpler} : number;
      });
      return keep_if(*edited.get_if<Value::List>());
    });
  }
}

/// `plain` is the member's default: what a reader need not think about.
template <class T, class Attempt>
void value(const T& member, const T& plain, Attempt&& attempt) {
  if (member == plain || attempt(plain)) return;
  if constexpr (ListOfRecords<T>) records(member, attempt);
}

/// The default may be plainer than a smaller number.
template <class Attempt>
void value(std::uint32_t member, std::uint32_t plain, Attempt&& attempt) {
  lower(member != plain && attempt(plain) ? plain : member, attempt);
}

template <class T, class Attempt>
void value(const std::vector<T>& member, const std::vector<T>&, Attempt&& attempt) {
  if constexpr (ListOfRecords<std::vector<T>>) {
    records(member, attempt);
    return;
  }
  std::vector<T> best = member;
  const auto keep_if = [&](std::vector<T> candidate) {
    if (!attempt(candidate)) return false;
    best = std::move(candidate);
    return true;
  };
  remove_chunks(best.size(), [&](std::size_t begin, std::size_t end) {
    std::vector<T> candidate = best;
    const auto first = candidate.begin();
    candidate.erase(first + static_cast<std::ptrdiff_t>(begin),
                    first + static_cast<std::ptrdiff_t>(end));
    return keep_if(std::move(candidate));
  });
  if constexpr (std::is_arithmetic_v<T>) {
    // A flag of a mask is plain where it masks nothing.
    const T plain_element = std::is_same_v<T, bool> ? T{1} : T{0};
    for (std::size_t index = 0; index < best.size(); ++index) {
      const T element = best[index];
      value(element, plain_element, [&](T simpler) {
        std::vector<T> candidate = best;
        candidate[index] = simpler;
        return keep_if(std::move(candidate));
      });
    }
  }
}

template <class T, class Attempt>
void value(const std::optional<T>& member, const std::optional<T>&, Attempt&& attempt) {
  if (!member || attempt(std::optional<T>())) return;
  value(*member, T{}, [&](const T& simpler) { return attempt(std::optional<T>(simpler)); });
}

}  // namespace kvfence::simplify
