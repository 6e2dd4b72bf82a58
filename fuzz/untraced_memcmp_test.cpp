// The replacements for memcmp and bcmp return what these return.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <vector>

extern "C" int __wrap_memcmp(const void* a, const void* b, std::size_t size);
extern "C" int __wrap_bcmp(const void* a, const void* b, std::size_t size);

namespace kvfence::fuzz {
namespace {

int sign(int number) { return (number > 0) - (number < 0); }

void expect_same(const std::vector<unsigned char>& a, const std::vector<unsigned char>& b) {
  const int expected = sign(std::memcmp(a.data(), b.data(), a.size()));
  EXPECT_EQ(sign(__wrap_memcmp(a.data(), b.data(), a.size())), expected);
  EXPECT_EQ(__wrap_bcmp(a.data(), b.data(), a.size()) != 0, expected != 0);
}

TEST(UntracedMemcmp, TheFirstDifferenceDecides) {
  for (std::size_t size = 1; size <= 40; ++size) {
    const std::vector<unsigned char> a(size, 127);
    expect_same(a, a);
    for (std::size_t place = 0; place < size; ++place) {
      for (const int other : {0, 126, 128, 255}) {
        std::vector<unsigned char> b = a;
        b[place] = static_cast<unsigned char>(other);
        expect_same(a, b);
        // A later difference in the other direction does not count.
        b.back() = static_cast<unsigned char>(other < 127 ? 255 : 0);
        expect_same(a, b);
        expect_same(b, a);
      }
    }
  }
}

}  // namespace
}  // namespace kvfence::fuzz
