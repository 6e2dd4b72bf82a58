// Goal: RequestNumbers is a map. Method: compare random histories with std::map, with few names, so
// that they are erased and set again.
#include "optimized/base/request_numbers.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace kvfence::optimized {
namespace {

TEST(RequestNumbers, AgreesWithAMap) {
  std::mt19937 random(1);
  RequestNumbers numbers;
  std::map<std::string, std::uint32_t> expected;
  for (int step = 0; step < 20'000; ++step) {
    const std::string request = "request-" + std::to_string(random() % 40);
    switch (random() % 4) {
      case 0:
        numbers.erase(request);
        expected.erase(request);
        break;
      case 1:
        if (random() % 200 > 0) break;
        numbers.clear();
        expected.clear();
        break;
      default: {
        const std::uint32_t number = static_cast<std::uint32_t>(random() % 8);
        numbers.set(request, number);
        expected[request] = number;
      }
    }
    std::map<std::string, std::uint32_t> shown;
    numbers.for_each([&](std::string_view name, std::uint32_t number) {
      EXPECT_TRUE(shown.emplace(name, number).second) << name;
    });
    ASSERT_EQ(shown, expected);
    const std::uint32_t* found = numbers.find(request);
    const auto wanted = expected.find(request);
    ASSERT_EQ(found != nullptr, wanted != expected.end());
    if (found) {
      ASSERT_EQ(*found, wanted->second);
    }
  }
}

TEST(RequestNumbers, ACopyIsItsOwn) {
  RequestNumbers numbers;
  numbers.set("A", 1);
  RequestNumbers copy = numbers;
  *copy.find("A") = 2;
  EXPECT_EQ(*numbers.find("A"), 1u);
}

}  // namespace
}  // namespace kvfence::optimized
