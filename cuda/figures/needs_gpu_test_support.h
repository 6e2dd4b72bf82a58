#pragma once

/// For tests of label gpu: a skip with its reason where there is no GPU, and no skip where one is
/// required. A test includes GoogleTest itself.

#include <cstdlib>
#include <string>

#include "cuda/figures/devices.h"

namespace kvfence::cuda {

/// Why a test of label gpu cannot run here; empty if it can.
inline std::string no_gpu_because() {
  const Devices found = find_devices();
  return found.devices.empty() ? found.none_because : "";
}

/// A skip would hide that the GPU is gone, or that its driver fails.
inline bool requires_gpu() {
  const char* const set = std::getenv("KVFENCE_REQUIRE_GPU");
  return (set != nullptr && std::string(set) == "1") || find_devices().has_failed;
}

}  // namespace kvfence::cuda

/// The first line of a test of label gpu: skips it, with the reason, where there is no GPU. The
/// test fails with KVFENCE_REQUIRE_GPU=1 in the environment, or where a driver is there and fails.
#define KVFENCE_NEEDS_GPU()                                                                \
  if (const std::string because = kvfence::cuda::no_gpu_because(); !because.empty()) {     \
    if (kvfence::cuda::requires_gpu()) FAIL() << "no GPU, and one is needed: " << because; \
    GTEST_SKIP() << because;                                                               \
  }                                                                                        \
  static_assert(true)
