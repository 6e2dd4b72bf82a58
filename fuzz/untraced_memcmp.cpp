// Replacements for memcmp and bcmp. The address sanitizer would report the compared values to
// libFuzzer, which takes time, and no input contains those values. The tests of the preset asan
// check that accesses by the replaced functions are in bounds.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

int compare(const void* a, const void* b, std::size_t size) {
  const auto* const left = static_cast<const unsigned char*>(a);
  const auto* const right = static_cast<const unsigned char*>(b);
  std::size_t at = 0;
  for (; at + sizeof(std::uint64_t) <= size; at += sizeof(std::uint64_t)) {
    std::uint64_t eight_left = 0;
    std::uint64_t eight_right = 0;
    std::memcpy(&eight_left, left + at, sizeof eight_left);
    std::memcpy(&eight_right, right + at, sizeof eight_right);
    if (eight_left != eight_right) break;
  }
  for (; at < size; ++at) {
    if (left[at] != right[at]) return left[at] < right[at] ? -1 : 1;
  }
  return 0;
}

}  // namespace

extern "C" int __wrap_memcmp(const void* a, const void* b, std::size_t size) {
  return compare(a, b, size);
}

extern "C" int __wrap_bcmp(const void* a, const void* b, std::size_t size) {
  return compare(a, b, size);
}
