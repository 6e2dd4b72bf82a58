#pragma once

/// For tests: a program that links counted_allocations.cpp counts every call of operator new.

#include <cstddef>

namespace kvfence::optimized {

/// Since the program began.
std::size_t num_allocations();

}  // namespace kvfence::optimized
