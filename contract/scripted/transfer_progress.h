#pragma once

/// How far a scripted transfer has come.

#include <array>
#include <cstdint>
#include <string_view>

#include "contract/core/words.h"

namespace kvfence {

enum class TransferProgress : std::uint8_t {
  kSubmitted,
  kPart,      ///< some of its bytes are copied
  kFinished,  ///< all are; not reported yet
  kFailed,    ///< it ended and something is missing; not reported yet
};

constexpr auto words_of(TransferProgress) {
  return std::to_array<std::string_view>({"submitted", "part", "finished", "failed"});
}

}  // namespace kvfence
