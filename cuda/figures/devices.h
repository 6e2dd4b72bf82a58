#pragma once

/// The GPUs of this machine, as its driver reports them, with the toolkit or without: a test asks
/// before it skips.

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
  std::string none_because;  ///< why there is none; empty if there is one
  /// There is a driver, and its error was not that it has no device: no reason to skip.
  bool has_failed = false;
};

/// Cost: the first call initialises the CUDA driver.
/// Errors: none; a driver that fails is a reason for having no device.
/// Source: CUDA Driver API, cuDeviceGetCount, cuDeviceGetName, cuDeviceGetAttribute,
/// cuDeviceTotalMem.
Devices find_devices();

}  // namespace kvfence::cuda
