#pragma once

/// The GPUs of this machine, as its driver says: with the toolkit or without, so that a caller can
/// ask before it skips.

#include <cstddef>
#include <string>
#include <vector>

namespace kvfence::cuda {

struct Device {
  std::string name;
  int compute_capability_major = 0;
  int compute_capability_minor = 0;
  std::size_t memory_bytes = 0;
};

struct Devices {
  std::vector<Device> devices;
  std::string none_because;  ///< why there is none; empty where there is one
  /// There is a driver, and it gave another error than that it has no device: no reason to skip.
  bool has_failed = false;
};

/// Cost: the first call initialises the CUDA driver.
/// Errors: none; a runtime that fails is a reason for having no device.
/// Source: CUDA Driver API, cuDeviceGetCount, cuDeviceGetName, cuDeviceGetAttribute,
/// cuDeviceTotalMem.
Devices find_devices();

}  // namespace kvfence::cuda
