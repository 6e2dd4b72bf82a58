#pragma once

/// Which bug a lockstep program plants in its optimized side.

#include <string_view>

namespace kvfence::fuzz {

/// Empty: none.
std::string_view planted_bug();

}  // namespace kvfence::fuzz
