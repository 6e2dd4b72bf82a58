#pragma once

/// Offload keys as people write them: numbers. Each stands for 32 bytes that look like a digest.

#include <cstdint>
#include <optional>

#include "contract/eviction/cache_policy.h"

namespace kvfence {

/// The key of a number: 32 bytes, the same ever after.
OffloadKey key_of_number(std::uint32_t number);

/// The inverse; nothing for bytes that are no such key.
std::optional<std::uint32_t> number_of_key(OffloadKeyView key);

}  // namespace kvfence
