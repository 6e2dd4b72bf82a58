#pragma once

/// Says that the host reads or writes memory that the GPU may touch. Nothing happens on a real GPU;
/// the virtual device checks it against the copies in flight.

#include <cstddef>

extern "C" {
void kvfence_host_read(const void* address, std::size_t size);
void kvfence_host_write(const void* address, std::size_t size);
}
