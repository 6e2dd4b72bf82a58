#include "cuda/figures/devices.h"

#include <dlfcn.h>

#include <array>
#include <string>
#include <utility>

namespace kvfence::cuda {
namespace {

// As cuda.h declares them. The driver is asked, because a program that is linked with the virtual
// device cannot be linked with the runtime too.
using Result = int;
using DeviceHandle = int;
constexpr int kMajor = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr int kMinor = 76;
constexpr Result kStubLibrary = 34;  // CUDA_ERROR_STUB_LIBRARY
constexpr Result kNoDevice = 100;    // CUDA_ERROR_NO_DEVICE

/// The driver's library, loaded during the lifetime of this object.
class Driver {
 public:
  Driver() : library_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {}
  ~Driver() {
    if (library_ != nullptr) dlclose(library_);
  }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  bool is_there() const { return library_ != nullptr; }
  /// Calls a function of the driver; anything but 0 is an error.
  template <class... Arguments>
  Result call(const char* name, Arguments... arguments) const {
    constexpr Result kNotFound = 500;  // CUDA_ERROR_NOT_FOUND
    void* const symbol = dlsym(library_, name);
    if (symbol == nullptr) return kNotFound;
    return reinterpret_cast<Result (*)(Arguments...)>(symbol)(arguments...);
  }
  std::string text_of(Result error) const {
    const char* text = nullptr;
    if (call("cuGetErrorString", error, &text) != 0 || text == nullptr) {
      return "the CUDA driver says " + std::to_string(error);
    }
    return text;
  }

 private:
  void* library_;
};

}  // namespace

Devices find_devices() {
  const Driver driver;
  if (!driver.is_there()) return {{}, "the machine has no CUDA driver (libcuda.so.1)", false};
  Devices found;
  int num_devices = 0;
  Result error = driver.call("cuInit", 0U);
  if (error == 0) error = driver.call("cuDeviceGetCount", &num_devices);
  for (int index = 0; error == 0 && index < num_devices; ++index) {
    Device device;
    DeviceHandle handle = 0;
    std::array<char, 256> name{};
    error = driver.call("cuDeviceGet", &handle, index);
    if (error == 0) {
      error = driver.call("cuDeviceGetName", name.data(), static_cast<int>(name.size()), handle);
    }
    for (const auto& [attribute, member] : {std::pair{kMajor, &Device::compute_capability_major},
                                            std::pair{kMinor, &Device::compute_capability_minor}}) {
      if (error != 0) break;
      error = driver.call("cuDeviceGetAttribute", &(device.*member), attribute, handle);
    }
    if (error == 0) error = driver.call("cuDeviceTotalMem_v2", &device.memory_bytes, handle);
    if (error != 0) break;
    device.name = name.data();
    found.devices.push_back(device);
  }
  if (found.devices.empty()) {
    found.none_because = error == 0 ? "the machine has no GPU" : driver.text_of(error);
    found.has_failed = error != 0 && error != kNoDevice && error != kStubLibrary;
  }
  return found;
}

}  // namespace kvfence::cuda
