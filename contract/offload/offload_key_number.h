#pragma once

/// Offload keys as people write them: numbers. Each stands for bytes that look like a digest:
/// mostly 32, of some numbers 20 or 64.

#include <cstdint>
#include <optional>

#include "contract/eviction/cache_policy.h"

namespace kvfence {

/// The key of a number; it never changes.
OffloadKey key_of_number(std::uint32_t number);

/// The inverse; nothing for bytes that are no such key.
std::optional<std::uint32_t> number_of_key(OffloadKeyView key);

}  // namespace kvfence
