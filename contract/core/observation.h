#pragma once

/// What an implementation owes its caller after a command.

#include <cstdint>
#include <string>

#include "contract/core/declare.h"
#include "contract/core/erased.h"
#include "contract/core/status.h"

namespace kvfence {

Value to_value(ErrorCode member);
bool from_value(const Value& value, ErrorCode& member, std::string& expected);

/// One operation of a target: a std::variant of its declared commands.
using Command = Erased;

/// How much an observation holds: the answer and the numbers, or the whole state besides.
enum class Observe : std::uint8_t { kNumbers, kState };

/// Which parts there are, and of which types, the target's description says
/// (contract/core/target.h).
struct Observation {
  ErrorCode error = ErrorCode::kNone;  ///< none, or why the command was refused
  Erased reply;    ///< what the command returns; none where it was refused or returns nothing
  Erased numbers;  ///< after every command
  Erased state;    ///< where asked for

  static void declare(auto& fields) {
    fields.add("error", &Observation::error, Domain::kResult,
               "none, or why the command was refused");
  }
  friend bool operator==(const Observation&, const Observation&) = default;
};

}  // namespace kvfence
