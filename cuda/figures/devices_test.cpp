/// Goal: a machine reports either its GPUs or why it has none, never both or neither.

#include "cuda/figures/devices.h"

#include <gtest/gtest.h>

#include "cuda/figures/needs_gpu_test_support.h"

namespace kvfence::cuda {
namespace {

TEST(Devices, AreThereOrAReasonIs) {
  const Devices found = find_devices();

  EXPECT_EQ(found.devices.empty(), !found.none_because.empty()) << found.none_because;
}

TEST(Devices, HaveANameAndMemory) {
  KVFENCE_NEEDS_GPU();

  const Devices found = find_devices();
  for (const Device& device : found.devices) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_GT(device.memory_bytes, 0U);
    EXPECT_GE(device.compute_capability_major, 1);
  }
}

}  // namespace
}  // namespace kvfence::cuda
