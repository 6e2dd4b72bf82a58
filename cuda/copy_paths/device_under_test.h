#pragma once

/// For tests that run on the virtual device and, compiled again with KVFENCE_REAL_RUNTIME, on a
/// GPU: the device, in each of its runs.
///
/// On a GPU there is one run. On the virtual device there is one run per schedule, and its findings
/// (races, misuses, memory that was not given back) are checked too.

#include <cuda_runtime_api.h>

#include <string>

#include "cuda/figures/needs_gpu_test_support.h"

#if !defined(KVFENCE_REAL_RUNTIME)
#include <array>

#include "cuda/virtual/device.h"
#endif

namespace kvfence::cuda {

#if defined(KVFENCE_REAL_RUNTIME)

inline constexpr bool kIsOnGpu = true;
inline constexpr std::size_t kNumRuns = 1;

class DeviceUnderTest {
 public:
  explicit DeviceUnderTest(std::size_t /*run*/) {}
  static std::string name() { return "GPU"; }
  static std::size_t num_races() { return 0; }
  /// What is wrong beside what the test itself sees; empty if nothing is.
  static std::string findings() {
    const cudaError_t code = cudaDeviceSynchronize();
    return code == cudaSuccess ? "" : cudaGetErrorName(code);
  }
};

#else

inline constexpr bool kIsOnGpu = false;
inline constexpr std::size_t kNumRuns = 8;

class DeviceUnderTest {
 public:
  explicit DeviceUnderTest(std::size_t run) : device_(options_of(run)), installed_(device_) {}
  std::string name() const { return device_.report().substr(0, device_.report().find('\n')); }
  std::size_t num_races() const { return device_.races().size(); }
  std::string findings() const {
    std::string found = device_.is_clean() ? "" : device_.report();
    if (device_.num_allocations() + device_.num_streams() + device_.num_events() > 0) {
      found += "memory, streams or events were not given back";
    }
    return found;
  }

 private:
  static virtual_device::Options options_of(std::size_t run) {
    using virtual_device::Schedule;
    constexpr std::array kSchedules = {Schedule::kEager, Schedule::kLazy, Schedule::kRandom,
                                       Schedule::kPriority};
    return {.schedule = kSchedules[run % kSchedules.size()],
            .seed = 1 + run / kSchedules.size(),
            // With it half of the runs find addresses that were not translated.
            .registered_memory_has_own_device_address = run >= kSchedules.size()};
  }

  virtual_device::Device device_;
  virtual_device::Installed installed_;
};

#endif

}  // namespace kvfence::cuda

/// The first line of each such test: KVFENCE_NEEDS_GPU where it runs on a GPU.
#if defined(KVFENCE_REAL_RUNTIME)
#define KVFENCE_NEEDS_DEVICE() KVFENCE_NEEDS_GPU()
#else
#define KVFENCE_NEEDS_DEVICE() static_assert(true)
#endif
