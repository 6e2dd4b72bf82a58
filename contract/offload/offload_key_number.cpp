#include "contract/offload/offload_key_number.h"

#include <cstddef>

namespace kvfence {
namespace {

constexpr std::size_t kKeyBytes = 32;

/// SplitMix64's output function: a bijection that spreads every bit.
std::uint64_t mix(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xBF58'476D'1CE4'E5B9;
  bits = (bits ^ (bits >> 27)) * 0x94D0'49BB'1331'11EB;
  return bits ^ (bits >> 31);
}

}  // namespace

OffloadKey key_of_number(std::uint32_t number) {
  OffloadKey key;
  key.reserve(kKeyBytes);
  for (std::uint64_t word = 0; word < kKeyBytes / 8; ++word) {
    const std::uint64_t bits = mix((word << 32) + number + 1);
    for (int shift = 0; shift < 64; shift += 8) key.push_back(static_cast<char>(bits >> shift));
  }
  // The last four bytes hold the number, hidden under the first four.
  for (std::size_t i = 0; i < 4; ++i) {
    key[kKeyBytes - 4 + i] = static_cast<char>(key[i] ^ static_cast<char>(number >> (8 * i)));
  }
  return key;
}

std::optional<std::uint32_t> number_of_key(OffloadKeyView key) {
  if (key.size() != kKeyBytes) return std::nullopt;
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const auto byte = static_cast<std::uint8_t>(key[kKeyBytes - 4 + i] ^ key[i]);
    number |= std::uint32_t{byte} << (8 * i);
  }
  if (key_of_number(number) != key) return std::nullopt;
  return number;
}

}  // namespace kvfence
