#pragma once

/// Digests of bytes, from the libraries that have them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kvfence {

/// SHA-256 as 64 lower-case hex digits. (OpenSSL.)
std::string sha256_hex(std::string_view bytes);

/// MD5 as 32 lower-case hex digits: a name, no protection. (OpenSSL.)
std::string md5_hex(std::string_view bytes);

/// XXH3 of 128 bits in its canonical, big-endian form. Finds accidents, not attacks. (xxHash.)
using Xxh3Digest = std::array<std::uint8_t, 16>;
Xxh3Digest xxh3_128(std::span<const std::byte> bytes);

}  // namespace kvfence
