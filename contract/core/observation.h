#pragma once

/// What an implementation returns after a command.

#include <cstdint>

#include "contract/core/erased.h"

namespace kvfence {

/// One operation of a target: a std::variant of its declared commands.
using Command = Erased;

/// How much an observation holds: the answer and the numbers, or the whole state besides.
enum class Observe : std::uint8_t { kNumbers, kState };

/// What a command returns, of the target's type: the error, which is declared first, the answer,
/// the numbers, the state where asked for.
using Observation = Erased;

}  // namespace kvfence
