#pragma once

/// The virtual device's random numbers: seeded, and the same on every machine.

#include <cstdint>

#include "contract/core/state_digest.h"

namespace kvfence::virtual_device {

/// SplitMix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E37'79B9'7F4A'7C15U);
    z = (z ^ (z >> 30)) * 0xBF58'476D'1CE4'E5B9U;
    z = (z ^ (z >> 27)) * 0x94D0'49BB'1331'11EBU;
    return z ^ (z >> 31);
  }

  /// Below `bound`, which is at least 1 and far below 2^32: the bias is below 2^-32.
  std::uint64_t below(std::uint64_t bound) { return ((next() >> 32) * bound) >> 32; }

  bool one_in(std::uint64_t n) { return below(n) == 0; }

  void add_to(StateHash& hash) const { hash.add(state_); }

 private:
  std::uint64_t state_;
};

}  // namespace kvfence::virtual_device
