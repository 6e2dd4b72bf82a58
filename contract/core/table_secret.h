#pragma once

/// A secret that an implementation mixes into its hash tables, so that clients that choose the keys
/// cannot choose the slots.

#include <cstdint>
#include <random>

namespace kvfence {

/// No answer depends on it. The default is a public constant, so that a run of kvfence depends on
/// its commands alone; an engine with untrusted clients draws one per pool.
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
