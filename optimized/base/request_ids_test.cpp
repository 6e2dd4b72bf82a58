// Goal: RequestIds finds exactly its members, also while clusters of its slots are taken apart.
// Method: the same pseudo-random changes go to it and to std::map.

#include "optimized/base/request_ids.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace kvfence::optimized {
namespace {

TEST(RequestIdsTest, IsAMap) {
  constexpr RequestIndex kNumRequests = 300;
  constexpr std::uint32_t kNumIds = 400;
  std::vector<std::string> ids(kNumRequests);
  const auto id_of = [&ids](RequestIndex request) { return std::string_view(ids[request]); };
  RequestIds actual;
  std::map<std::string, RequestIndex> expected;
  std::mt19937 random(1);
  for (int step = 0; step < 50'000; ++step) {
    const auto request = static_cast<RequestIndex>(random() % kNumRequests);
    const std::string id = std::to_string(random() % kNumIds);
    const auto at = expected.find(id);
    if (at == expected.end()) {
      ASSERT_EQ(actual.find(id, id_of), std::nullopt);
    } else {
      ASSERT_EQ(actual.find(id, id_of), at->second);
    }
    if (!ids[request].empty()) {
      actual.erase(ids[request], request);
      expected.erase(ids[request]);
      ids[request].clear();
    } else if (at == expected.end()) {
      ids[request] = id;
      actual.insert(id, request);
      expected.emplace(id, request);
    }
  }
  ASSERT_FALSE(expected.empty());
  for (const auto& [id, request] : expected) EXPECT_EQ(actual.find(id, id_of), request);
}

}  // namespace
}  // namespace kvfence::optimized
