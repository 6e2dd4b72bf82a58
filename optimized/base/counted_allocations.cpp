#include "optimized/base/counted_allocations.h"

#include <cstdlib>
#include <new>

namespace {

std::size_t num_calls = 0;

void* counted(void* memory) {
  ++num_calls;
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Out of line: g++ 12 reports new and free as a mismatch where it inlines only one of them.
[[gnu::noinline]] void* operator new(std::size_t size) { return counted(std::malloc(size)); }
// std::stable_sort calls it.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++num_calls;
  return std::malloc(size);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto align = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(align, (size + align - 1) / align * align));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace kvfence::optimized {

std::size_t num_allocations() { return num_calls; }

}  // namespace kvfence::optimized
