#pragma once

/// What a program says to a tool that watches its device. Nothing happens on a real GPU; the
/// virtual device checks accesses against the copies in flight, and repeats labels in its reports.

#include <cstddef>
#include <cstdint>

extern "C" {
/// The host reads or writes memory that the GPU may touch.
void kvfence_host_read(const void* address, std::size_t size);
void kvfence_host_write(const void* address, std::size_t size);
/// What the following calls of the runtime are for; "" ends it. The text is a literal.
void kvfence_label(const char* text, std::uint64_t number);
}
