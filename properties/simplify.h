#pragma once

/// Candidates for a simpler value, by the value's type. Each function calls attempt(candidate)
/// until none is accepted; attempt says whether the candidate is kept, and a later candidate builds
/// on it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

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

/// `plain` is the member's default: what a reader need not think about.
template <class T, class Attempt>
void value(const T& member, const T& plain, Attempt&& attempt) {
  if (member != plain) attempt(plain);
}

template <class Attempt>
void value(std::uint32_t member, std::uint32_t, Attempt&& attempt) {
  lower(member, attempt);
}

template <class T, class Attempt>
void value(const std::vector<T>& member, const std::vector<T>&, Attempt&& attempt) {
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
