#pragma once

/// What the text of an option must be. CLI11 by itself reads -1, and what is too large, as another
/// number, and 010 as 8. A check without a name adds nothing to --help.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

namespace kvfence {

namespace detail {

template <class T>
struct ElementOf {
  using Type = T;
};
template <class T>
struct ElementOf<std::optional<T>> : ElementOf<T> {};
template <class T>
struct ElementOf<std::vector<T>> : ElementOf<T> {};

}  // namespace detail

/// Decimal, or hexadecimal after 0x, and at most `max`.
CLI::Validator whole_number(std::uint64_t max);
CLI::Validator finite_number();
CLI::Validator positive_number();
CLI::Validator at_most(std::uint32_t max);
/// A variable of a shell that is not set must not select something else than what it should name.
CLI::Validator not_empty();

/// An option whose value, or each of its values, is a number.
template <class Member>
inline constexpr bool kIsNumber = std::is_arithmetic_v<typename detail::ElementOf<Member>::Type>;

/// Whether the text is a number of the type of the option's member.
template <class Member>
CLI::Validator fits() {
  using Number = typename detail::ElementOf<Member>::Type;
  if constexpr (std::is_floating_point_v<Number>) return finite_number();
  return whole_number(static_cast<std::uint64_t>(std::numeric_limits<Number>::max()));
}

}  // namespace kvfence
