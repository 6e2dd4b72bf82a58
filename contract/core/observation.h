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

struct Observation {
  ErrorCode error = ErrorCode::kNone;  ///< none, or why the command was refused
  /// Of the target's type: what the command returns, the numbers, the state where asked for.
  Erased numbers;

  static void declare(auto& fields) {
    fields.result("error", &Observation::error, "none, or why the command was refused");
  }
  friend bool operator==(const Observation&, const Observation&) = default;
};

}  // namespace kvfence
