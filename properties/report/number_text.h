#pragma once

/// Numbers as people read them.

#include <cstdint>
#include <string>

namespace kvfence {

/// "1,234,567".
std::string with_thousands(std::uint64_t number);

/// "1,234", "0.25": no decimals from 100 on, else at most four, without trailing zeros.
std::string number_text(double number);

}  // namespace kvfence
