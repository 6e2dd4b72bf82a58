#pragma once

/// What an implementation mixes into its hash tables, so that who chooses their keys does not
/// choose their slots.

#include <cstdint>
#include <random>

namespace kvfence {

/// No answer depends on it. The default is a constant that everybody can read, so that a run of
/// kvfence is decided by its commands; an engine that serves strangers draws one for each pool.
struct TableSecret {
  std::uint64_t first = 0xA076'1D64'78BD'642F;
  std::uint64_t second = 0xE703'7ED1'A0B4'28DB;
  friend bool operator==(const TableSecret&, const TableSecret&) = default;
};

/// From the system's source of random numbers.
inline TableSecret draw_table_secret() {
  std::random_device random;
  const auto word = [&random] { return std::uint64_t{random()} << 32 | random(); };
  return {.first = word(), .second = word()};
}

}  // namespace kvfence
