#pragma once

/// How a page is named in reports about memory.

#include <cstdint>

namespace kvfence::cuda {

/// A GPU block, or the page of a CPU block that takes one.
struct PageName {
  bool is_gpu = false;
  std::uint32_t number = 0;
  friend bool operator==(const PageName&, const PageName&) = default;
};

}  // namespace kvfence::cuda
