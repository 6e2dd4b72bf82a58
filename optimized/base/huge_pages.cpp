#include "optimized/base/huge_pages.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace kvfence::optimized {

void* allocate_huge(std::size_t num_bytes) {
  void* const memory = ::operator new (num_bytes, std::align_val_t{kHugePageBytes});
#ifdef MADV_HUGEPAGE
  // Only advice: the answer of a system without them does not matter.
  madvise(memory, num_bytes, MADV_HUGEPAGE);
#endif
  return memory;
}

void deallocate_huge(void* memory) noexcept {
  ::operator delete (memory, std::align_val_t{kHugePageBytes});
}

}  // namespace kvfence::optimized
