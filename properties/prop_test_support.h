#pragma once

/// What the property suites share: episodes out of shrinkable bytes, and implementations as types.
/// Where RC_PARAMS fixes a seed, as ctest does, a suite is deterministic.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "contract/block_pool_target.h"
#include "contract/implementation.h"
#include "scenarios/implementations.h"

namespace kvfence {

/// Bytes for Choices::from_bytes, 0 to bytes_max of them. They shrink to a shorter episode of
/// plainer commands.
inline rc::Gen<std::vector<std::uint8_t>> episode_bytes(int bytes_max) {
  return rc::gen::resize(bytes_max, rc::gen::container<std::vector<std::uint8_t>>(
                                        rc::gen::resize(100, rc::gen::arbitrary<std::uint8_t>())));
}

struct ReferenceSide {
  static std::unique_ptr<Implementation<BlockPoolTarget>> make() {
    return Implementations<BlockPoolTarget>::make_reference();
  }
};

struct OptimizedSide {
  static std::unique_ptr<Implementation<BlockPoolTarget>> make() {
    return Implementations<BlockPoolTarget>::make_optimized();
  }
};

using BothSides = ::testing::Types<ReferenceSide, OptimizedSide>;

}  // namespace kvfence
