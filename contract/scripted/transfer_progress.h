#pragma once

/// How far a scripted transfer has come.

#include <cstdint>

#include "contract/core/words.h"

namespace kvfence {

enum class TransferProgress : std::uint8_t {
  kSubmitted,
  kPart,      ///< some of its bytes are copied
  kFinished,  ///< all are; not reported yet
  kFailed,    ///< it ended and something is missing; not reported yet
};

constexpr auto words_of(TransferProgress) {
  return words({"submitted", "part", "finished", "failed"});
}

constexpr bool is_under_way(TransferProgress progress) {
  return progress < TransferProgress::kFinished;
}

}  // namespace kvfence
