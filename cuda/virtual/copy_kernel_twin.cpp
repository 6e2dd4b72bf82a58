/// The copy kernel on the virtual device, the host's accesses, and labels.

#include <cstring>
#include <span>
#include <vector>

#include "cuda/copy_paths/copy_kernel.h"
#include "cuda/copy_paths/host_access.h"
#include "cuda/virtual/device.h"

cudaError_t kvfence_launch_copy_kernel(const kvfence::cuda::CopyDescriptor* descriptors,
                                       const kvfence::cuda::CopyDescriptor* expected,
                                       std::size_t count, cudaStream_t stream) {
  using namespace kvfence::virtual_device;
  using kvfence::cuda::CopyDescriptor;
  std::vector<MemoryRange> reads = {{descriptors, count * sizeof *descriptors}};
  std::vector<MemoryRange> writes;
  for (const CopyDescriptor& copy : std::span(expected, count)) {
    reads.push_back({reinterpret_cast<const void*>(copy.src), copy.size});
    writes.push_back({reinterpret_cast<const void*>(copy.dst), copy.size});
  }
  Device& device = current();
  std::vector<CopyDescriptor> declared(expected, expected + count);
  return device.launch(stream, reads, writes, [&device, descriptors, declared] {
    // Read when it runs, as the kernel does.
    const std::byte* bytes = device.bytes(descriptors, declared.size() * sizeof *descriptors);
    for (const CopyDescriptor& meant : declared) {
      CopyDescriptor copy;
      std::memcpy(&copy, bytes, sizeof copy);
      bytes += sizeof copy;
      // Rewritten meanwhile, which is a race: this kernel must not touch what it names now.
      if (!(copy == meant)) continue;
      const auto* src = reinterpret_cast<const void*>(copy.src);
      const auto* dst = reinterpret_cast<const void*>(copy.dst);
      std::memcpy(device.bytes(dst, copy.size), device.bytes(src, copy.size), copy.size);
    }
  });
}

void kvfence_host_read(const void* address, std::size_t size) {
  kvfence::virtual_device::current().host_read(address, size);
}

void kvfence_host_write(const void* address, std::size_t size) {
  kvfence::virtual_device::current().host_write(address, size);
}

void kvfence_label(const char* text, std::uint64_t number) {
  kvfence::virtual_device::current().set_label({text, number});
}
