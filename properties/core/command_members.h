#pragma once

/// Visits the declared members of commands whose type is known.

#include <type_traits>
#include <variant>

#include "contract/core/declare.h"

namespace kvfence {

/// Calls visit(member, domain) for each declared member of a struct, such as a configuration.
template <class Struct, class Visit>
void for_each_member_of(Struct& object, Visit&& visit) {
  for_each_field<std::remove_const_t<Struct>>(
      [&](auto member, Domain domain) { visit(object.*member, domain); });
}

/// The same for whichever command a variant holds.
template <class Command, class Visit>
void for_each_member_of_command(Command& command, Visit&& visit) {
  std::visit([&](auto& alternative) { for_each_member_of(alternative, visit); }, command);
}

}  // namespace kvfence
