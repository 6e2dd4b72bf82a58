#pragma once

/// Declarations (contract/core/declare.h) of a struct that holds another one more than once, as
/// bases: each base is declared under a prefix of its own.
///
///     struct Left : Part { static constexpr std::string_view kPrefix = "left_"; };
///     struct Right : Part { static constexpr std::string_view kPrefix = "right_"; };
///     struct Both : Left, Right {
///       static void declare(auto& fields) {
///         add_prefixed_fields<Left>(fields);
///         add_prefixed_fields<Right>(fields);
///       }
///     };

#include <string>
#include <string_view>

#include "contract/core/declare.h"

namespace kvfence {

namespace detail {

/// Takes the declarations of Part, a base, and adds them to `fields` under their new names.
template <class Part, class Fields>
struct PrefixedFields {
  Fields& fields;

  template <class Base, class T>
  DeclaredMember& add(std::string_view name, T Base::*member, Domain domain, std::string_view doc) {
    T Part::*const of_part = member;  // Base may be a base more than once.
    return fields.add(std::string(Part::kPrefix).append(name), of_part, domain, doc);
  }
};

}  // namespace detail

/// The fields of Part.
template <class Part, class Fields>
void add_prefixed_fields(Fields& fields) {
  detail::PrefixedFields<Part, Fields> prefixed{fields};
  Part::declare(prefixed);
}

}  // namespace kvfence
