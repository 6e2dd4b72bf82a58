#pragma once

/// The members of a plain struct, without a list of them that someone has to keep complete.

#include <cstddef>
#include <type_traits>

namespace kvfence {

/// A stand-in for the value of any member; never made.
struct AnyMember {
  template <class T>
  operator T() const;
};

/// How many members an aggregate has: as many as its braces take values.
template <class T, class... Members>
constexpr std::size_t num_members() {
  if constexpr (requires { T{Members{}..., AnyMember{}}; }) {
    return num_members<T, Members..., AnyMember>();
  } else {
    return sizeof...(Members);
  }
}

/// Calls take with all members of an aggregate, in their order. A struct with a base class or a C
/// array does not compile, nor does one with a number of members that none had so far.
template <class T, class Take>
void with_members(const T& value, const Take& take) {
  constexpr std::size_t kCount = num_members<T>();
  if constexpr (kCount == 2) {
    const auto& [a, b] = value;
    take(a, b);
  } else if constexpr (kCount == 3) {
    const auto& [a, b, c] = value;
    take(a, b, c);
  } else if constexpr (kCount == 4) {
    const auto& [a, b, c, d] = value;
    take(a, b, c, d);
  } else if constexpr (kCount == 5) {
    const auto& [a, b, c, d, e] = value;
    take(a, b, c, d, e);
  } else if constexpr (kCount == 6) {
    const auto& [a, b, c, d, e, f] = value;
    take(a, b, c, d, e, f);
  } else if constexpr (kCount == 7) {
    const auto& [a, b, c, d, e, f, g] = value;
    take(a, b, c, d, e, f, g);
  } else if constexpr (kCount == 8) {
    const auto& [a, b, c, d, e, f, g, h] = value;
    take(a, b, c, d, e, f, g, h);
  } else if constexpr (kCount == 10) {
    const auto& [a, b, c, d, e, f, g, h, i, j] = value;
    take(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (kCount == 11) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k] = value;
    take(a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (kCount == 13) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = value;
    take(a, b, c, d, e, f, g, h, i, j, k, l, m);
  } else {
    static_assert(std::is_empty_v<T>, "a case for this number of members is missing above");
  }
}

}  // namespace kvfence
