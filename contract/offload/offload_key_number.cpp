#include "contract/offload/offload_key_number.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

namespace kvfence {
namespace {

constexpr std::size_t kNumBytesMax = 64;

/// Most are as long as the digest that vLLM uses; tables treat others apart.
constexpr std::size_t num_bytes_of(std::uint32_t number) {
  switch (number % 8) {
    case 3:
      return kNumBytesMax;
    case 5:
      return 20;
    default:
      return 32;
  }
}

/// SplitMix64's output function: a bijection that spreads every bit.
std::uint64_t mix(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xBF58'476D'1CE4'E5B9;
  bits = (bits ^ (bits >> 27)) * 0x94D0'49BB'1331'11EB;
  return bits ^ (bits >> 31);
}

/// Requires: as many bytes as the key of the number has.
void write_key(std::uint32_t number, std::span<char> key) {
  for (std::size_t begin = 0; begin < key.size(); begin += 8) {
    const std::uint64_t bits = mix((std::uint64_t{begin / 8} << 32) + number + 1);
    const std::size_t end = std::min(begin + 8, key.size());
    for (std::size_t at = begin; at < end; ++at) {
      key[at] = static_cast<char>(bits >> (8 * (at - begin)));
    }
  }
  // The last four bytes hold the number, hidden under the first four.
  for (std::size_t i = 0; i < 4; ++i) {
    key[key.size() - 4 + i] = static_cast<char>(key[i] ^ static_cast<char>(number >> (8 * i)));
  }
}

}  // namespace

OffloadKey key_of_number(std::uint32_t number) {
  OffloadKey key(num_bytes_of(number), '\0');
  write_key(number, key);
  return key;
}

std::optional<std::uint32_t> number_of_key(OffloadKeyView key) {
  if (key.size() < 8) return std::nullopt;
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const auto byte = static_cast<std::uint8_t>(key[key.size() - 4 + i] ^ key[i]);
    number |= std::uint32_t{byte} << (8 * i);
  }
  // Observations ask for every key that they show: no allocation.
  std::array<char, kNumBytesMax> expected;
  const std::span<char> bytes = std::span(expected).first(num_bytes_of(number));
  write_key(number, bytes);
  if (!std::ranges::equal(bytes, key)) return std::nullopt;
  return number;
}

}  // namespace kvfence
