#pragma once

/// HugePageAllocator: large arrays on huge pages, where the system has them.
///
/// Random reads of an array of hundreds of MB on pages of 4 KiB miss the TLB every time, which at
/// 10^7 blocks costs as much as the cache misses. Small arrays are allocated as by std::allocator.

#include <cstddef>
#include <limits>
#include <new>

namespace kvfence::optimized {

inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

/// From this size on: one extra page wastes an eighth at most.
inline constexpr std::size_t kHugeBytesMin = 8 * kHugePageBytes;

/// Memory on huge pages where the system grants them: Linux, with transparent huge pages.
/// Errors: std::bad_alloc.
void* allocate_huge(std::size_t num_bytes);
void deallocate_huge(void* memory) noexcept;

template <class T>
struct HugePageAllocator {
  using value_type = T;

  HugePageAllocator() = default;
  template <class U>
  HugePageAllocator(const HugePageAllocator<U>&) {}

  T* allocate(std::size_t num) {
    if (num > std::numeric_limits<std::size_t>::max() / sizeof(T))
      throw std::bad_array_new_length();
    if (is_huge(num)) return static_cast<T*>(allocate_huge(num * sizeof(T)));
    return static_cast<T*>(::operator new (num * sizeof(T), std::align_val_t{alignof(T)}));
  }
  void deallocate(T* memory, std::size_t num) noexcept {
    if (is_huge(num)) return deallocate_huge(memory);
    ::operator delete (memory, std::align_val_t{alignof(T)});
  }

  friend bool operator==(const HugePageAllocator&, const HugePageAllocator&) { return true; }

 private:
  static_assert(alignof(T) <= kHugePageBytes);
  static bool is_huge(std::size_t num) { return num * sizeof(T) >= kHugeBytesMin; }
};

}  // namespace kvfence::optimized
