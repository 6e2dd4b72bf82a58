#pragma once

/// Declarations (contract/declare.h) of a struct that holds another one more than once, as bases:
/// each base is declared under a prefix of its own.
///
///     struct Left : Part { static constexpr std::string_view kPrefix = "left_"; };
///     struct Right : Part { static constexpr std::string_view kPrefix = "right_"; };
///     struct Both : Left, Right {
///       static constexpr auto fields() {
///         return std::tuple_cat(prefixed_fields<Both, Left>(), prefixed_fields<Both, Right>());
///       }
///     };

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <utility>

#include "contract/declare.h"

namespace kvfence {

namespace detail {

/// Keeps the characters of one prefixed name.
template <class Part, std::size_t kIndex>
struct PrefixedName {
  static constexpr std::string_view kName = std::get<kIndex>(Part::fields()).name;
  static constexpr auto kCharacters = [] {
    std::array<char, Part::kPrefix.size() + kName.size()> characters{};
    auto* const end = std::copy(Part::kPrefix.begin(), Part::kPrefix.end(), characters.data());
    std::copy(kName.begin(), kName.end(), end);
    return characters;
  }();
  static constexpr std::string_view kText{kCharacters.data(), kCharacters.size()};
};

template <class Owner, class Part, std::size_t kIndex, class Base, class T>
constexpr FieldDeclaration<Owner, T> prefixed(const FieldDeclaration<Base, T>& declaration) {
  T Part::*const member = declaration.member;
  return {PrefixedName<Part, kIndex>::kText, member, declaration.domain, declaration.doc,
          declaration.is_optional};
}

}  // namespace detail

/// The fields of Part, a base of Owner, from the one numbered kFirst on, as fields of Owner.
template <class Owner, class Part, std::size_t kFirst = 0>
constexpr auto prefixed_fields() {
  constexpr std::size_t kSize = std::tuple_size_v<decltype(Part::fields())> - kFirst;
  return []<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    return std::tuple{detail::prefixed<Owner, Part, kFirst + kIndex>(
        std::get<kFirst + kIndex>(Part::fields()))...};
  }
  (std::make_index_sequence<kSize>{});
}

}  // namespace kvfence
