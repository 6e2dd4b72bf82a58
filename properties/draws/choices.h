#pragma once

/// A stream of decisions, drawn from a seed or read from bytes. It is the only source of decisions
/// of a generator: so one generator serves random campaigns, rapidcheck and libFuzzer, and the seed
/// or the bytes determine a run.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kvfence {

class Choices {
 public:
  /// Endless and determined by the seed.
  static Choices from_seed(std::uint64_t seed) { return Choices(seed); }

  /// Every byte string is valid; after its end every choice is 0.
  static Choices from_bytes(std::span<const std::uint8_t> bytes) { return Choices(bytes); }

  /// A number from 0 to bound - 1. Requires: bound > 0.
  std::uint32_t below(std::uint32_t bound) {
    if (bytes_.data() != nullptr) return below_by_bytes(bound);
    const std::uint64_t high = next() >> 32;
    return static_cast<std::uint32_t>((high * bound) >> 32);
  }

  /// True once in `one_in` times on average; after the end of bytes never.
  bool once_in(std::uint32_t one_in) { return below(one_in) == one_in - 1; }

  /// Whether bytes are used up; a seed never is.
  bool exhausted() const { return bytes_.data() != nullptr && at_ >= bytes_.size(); }
  /// Bytes that were used.
  std::size_t num_used() const { return at_; }

 private:
  explicit Choices(std::uint64_t seed) : state_(seed) {}
  explicit Choices(std::span<const std::uint8_t> bytes)
      : bytes_(bytes.data() != nullptr ? bytes : std::span<const std::uint8_t>(&kNothing, 0)) {}

  /// Apart from below, which compilers inline without it.
  [[gnu::noinline]] std::uint32_t below_by_bytes(std::uint32_t bound) {
    std::uint32_t number = take_byte();
    if (bound > 256) number = (number << 8) | take_byte();
    if (bound > 65536) number = (number << 16) | (std::uint32_t{take_byte()} << 8) | take_byte();
    return number % bound;
  }

  std::uint8_t take_byte() { return at_ < bytes_.size() ? bytes_[at_++] : std::uint8_t{0}; }

  /// SplitMix64: one addition and three multiply-shift rounds; every seed gives a full-period
  /// stream.
  /// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
  std::uint64_t next() {
    state_ += 0x9E37'79B9'7F4A'7C15;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58'476D'1CE4'E5B9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D0'49BB'1331'11EB;
    return mixed ^ (mixed >> 31);
  }

  static constexpr std::uint8_t kNothing = 0;

  std::uint64_t state_ = 0;
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

/// A number below the bound: low ones often, high ones seldom. Requires: bound > 0.
inline std::uint32_t skewed(Choices& choices, std::uint32_t bound) {
  const std::uint32_t first = choices.below(bound);
  return std::min(first, choices.below(bound));
}

/// How long a list is: mostly up to `most`, now and then up to four times that, as the lists of a
/// long request are.
inline std::uint32_t draw_length(Choices& choices, std::uint32_t most) {
  return 1 + skewed(choices, choices.once_in(16) ? 4 * most : most);
}

/// An element of a vector or array, all equally likely. Requires: not empty.
template <class List>
const typename List::value_type& pick(Choices& choices, const List& list) {
  return list[choices.below(static_cast<std::uint32_t>(list.size()))];
}

}  // namespace kvfence
