#pragma once

/// The words of enumerations in the line language. An enumeration has them once, beside it, in the
/// order of its values, which count from 0:
///
///   constexpr auto words_of(EvictionPolicy) { return words({"lru", "arc"}); }

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

#include "contract/core/check.h"

namespace kvfence {

template <std::size_t kCount>
constexpr auto words(const std::string_view (&list)[kCount]) {
  return std::to_array(list);
}

template <class E>
concept Worded = std::is_enum_v<E> && requires {
  words_of(E{});
};

namespace detail {
template <Worded E>
inline constexpr auto kWords = words_of(E{});
}  // namespace detail

template <Worded E>
constexpr std::string_view to_text(E value) {
  const auto index = static_cast<std::size_t>(value);
  KVFENCE_CHECK(index < detail::kWords<E>.size(), "a value outside its enumeration");
  return detail::kWords<E>[index];
}

/// Nothing for an unknown word.
template <Worded E>
constexpr std::optional<E> from_text(std::string_view text) {
  for (std::size_t index = 0; index < detail::kWords<E>.size(); ++index) {
    if (detail::kWords<E>[index] == text) return static_cast<E>(index);
  }
  return std::nullopt;
}

}  // namespace kvfence
