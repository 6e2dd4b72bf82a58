#pragma once

/// The switch and the counts that the instrumented copies of product sources use (ci/plant.py
/// writes the copies).
///
/// One planted bug at a time is switched on in a process: one copy has the sound code and every
/// bug. The switch and the counts are per process, so the code under test needs no member for them.

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace kvfence::planted {

/// No bug.
inline constexpr int kSound = 0;

/// The number of the bug that is switched on. Atomic for the threads of a file tier.
inline std::atomic<int> switched_on = kSound;

/// Switches a bug on and all others off.
inline void plant(int bug) { switched_on.store(bug, std::memory_order_relaxed); }

/// In a constant expression the code is sound.
template <int kBug>
constexpr bool on() {
  if (std::is_constant_evaluated()) return false;
  return switched_on.load(std::memory_order_relaxed) == kBug;
}

template <int... kBugs>
constexpr bool none_of() {
  if (std::is_constant_evaluated()) return true;
  const int bug = switched_on.load(std::memory_order_relaxed);
  return ((bug != kBugs) && ...);
}

/// The work of data structures, as `always` edits count it. Tests of O(1) claims check these
/// numbers. Not thread-safe.
struct OperationCounts {
  std::uint64_t links = 0;          ///< nodes of linked lists, read or written
  std::uint64_t probes = 0;         ///< visited slots of hash tables
  std::uint64_t table_entries = 0;  ///< entries of block tables, read or written
  std::uint64_t requests = 0;       ///< visited requests
  std::uint64_t words = 0;          ///< words of a place set, places of a timeline
};

inline OperationCounts operation_counts;

}  // namespace kvfence::planted
