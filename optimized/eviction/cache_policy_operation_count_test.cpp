// Goal: the O(1) claim, and that no block is skipped. Method: count the words of place sets, the
// places and the slots of the table looked at, with 10^3 to 10^6 blocks, and check them against
// constants. A walk anywhere would grow with the capacity or the number of busy blocks.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "contract/offload/offload_key_number.h"
#include "planted/optimized/eviction/cache_policy.h"
#include "properties/planted/switches.h"

namespace kvfence::planted::optimized {
namespace {

class CachePolicyOperationCount
    : public testing::TestWithParam<std::tuple<EvictionPolicy, std::uint32_t>> {
 protected:
  static std::uint32_t capacity() { return std::get<1>(GetParam()); }

  static CachePolicy empty_policy() {
    return CachePolicy({.policy = std::get<0>(GetParam()), .capacity = capacity()});
  }

  /// Blocks 0, 1, ... that can go; ARC has every other one in T2.
  static CachePolicy full_policy() {
    CachePolicy policy = empty_policy();
    for (std::uint32_t number = 0; number < capacity(); ++number) {
      const OffloadKey key = key_of_number(number);
      policy.set_ref_cnt(policy.insert_new(key, number), 0);
      const OffloadKeyView view = key;
      if (number % 2 == 1) policy.touch({&view, 1});
    }
    return policy;
  }

  /// How much operation() adds to a count.
  template <class Operation>
  static std::uint64_t cost(const std::uint64_t& count, Operation operation) {
    const std::uint64_t before = count;
    operation();
    return count - before;
  }
};

// Hits, misses with eviction, ghosts that are hit and ghosts that are dropped.
TEST_P(CachePolicyOperationCount, AnAccessCostsAConstantOnAverageAndAtMost) {
  constexpr double kWordsPerAccessMax = 6;
  constexpr double kProbesPerAccessMax = 6;
  constexpr std::uint64_t kWordsMax = 200;  // both timelines tidy 64 places
  CachePolicy policy = full_policy();
  std::mt19937 random(1);
  const std::uint32_t num_accesses = std::min(6 * capacity(), 600'000U);
  const std::uint64_t words_before = operation_counts.words;
  const std::uint64_t probes_before = operation_counts.probes;
  std::uint64_t most = 0;
  for (std::uint32_t i = 0; i < num_accesses; ++i) {
    // Half of the accesses to an eighth of the keys.
    const auto drawn = static_cast<std::uint32_t>(random());
    const std::uint32_t number = drawn % (random() % 2 == 0 ? capacity() / 4 : capacity() * 2);
    const OffloadKey key = key_of_number(number);
    const OffloadKeyView view = key;
    most = std::max(most, cost(operation_counts.words, [&] {
                      policy.touch({&view, 1});
                      if (policy.find(key) != CachePolicy::kNone) return;
                      ASSERT_TRUE(policy.evict(1, std::span<const CachePolicy::Index>()));
                      policy.set_ref_cnt(policy.insert_new(key, number), 0);
                    }));
  }
  EXPECT_LE(static_cast<double>(operation_counts.words - words_before) / num_accesses,
            kWordsPerAccessMax);
  EXPECT_LE(static_cast<double>(operation_counts.probes - probes_before) / num_accesses,
            kProbesPerAccessMax);
  EXPECT_LE(most, kWordsMax);
}

TEST_P(CachePolicyOperationCount, ReadingAndReleasingCostAConstant) {
  constexpr std::uint64_t kWordsMax = 14;  // each time six levels of one list, one of the other
  CachePolicy policy = full_policy();
  for (std::uint32_t number = 0; number < capacity(); number += 97) {
    const OffloadKey key = key_of_number(number);
    ASSERT_LE(cost(operation_counts.words,
                   [&] {
                     ASSERT_EQ(policy.acquire(key), ErrorCode::kNone);
                     ASSERT_EQ(policy.release(key), ErrorCode::kNone);
                   }),
              kWordsMax);
  }
}

// Upstream walks over all busy blocks each time.
TEST_P(CachePolicyOperationCount, NeverVisitsBusyBlocks) {
  constexpr std::uint64_t kWordsMax = 24;
  CachePolicy policy = full_policy();
  // The newest tenth is idle.
  for (std::uint32_t number = 0; number < capacity() / 10 * 9; ++number) {
    ASSERT_EQ(policy.acquire(key_of_number(number)), ErrorCode::kNone);
  }
  for (std::uint32_t i = 0; i < capacity() / 20; ++i) {
    ASSERT_LE(cost(operation_counts.words,
                   [&] { ASSERT_TRUE(policy.evict(1, std::span<const CachePolicy::Index>())); }),
              kWordsMax);
  }
  // Each of them is evicted in its turn when it is idle again, at the same cost.
  for (std::uint32_t number = 0; number < capacity() / 10; number += 2) {
    const OffloadKey key = key_of_number(number);
    ASSERT_EQ(policy.release(key), ErrorCode::kNone);
    ASSERT_LE(cost(operation_counts.words,
                   [&] { ASSERT_TRUE(policy.evict(1, std::span<const CachePolicy::Index>())); }),
              kWordsMax);
    ASSERT_EQ(policy.key_of(policy.victims().front()), key);
  }
}

TEST_P(CachePolicyOperationCount, ARefusalLooksOnlyAtProtectedBlocks) {
  constexpr std::uint32_t kNumProtected = 10;
  constexpr std::uint64_t kWordsMax = 5 * kNumProtected;
  constexpr std::uint64_t kProbesMax = 3 * kNumProtected;
  CachePolicy policy = full_policy();
  std::vector<OffloadKey> keys;
  for (std::uint32_t number = 0; number < kNumProtected; ++number) {
    keys.push_back(key_of_number(number));
  }
  const std::vector<OffloadKeyView> views(keys.begin(), keys.end());
  std::vector<EvictedBlock> out;
  const auto refuse = [&] { EXPECT_FALSE(policy.evict(capacity() - 9, views, out)); };
  EXPECT_LE(cost(operation_counts.words, refuse), kWordsMax);
  EXPECT_LE(cost(operation_counts.probes, refuse), kProbesMax);
}

TEST_P(CachePolicyOperationCount, ALargeEvictionCostsAConstantABlock) {
  constexpr double kWordsPerBlockMax = 8;
  constexpr double kProbesPerBlockMax = 3;
  CachePolicy policy = full_policy();
  const std::uint32_t num_blocks = capacity() / 2;
  const std::uint64_t probes_before = operation_counts.probes;
  const std::uint64_t words = cost(operation_counts.words, [&] {
    ASSERT_TRUE(policy.evict(num_blocks, std::span<const CachePolicy::Index>()));
  });
  EXPECT_EQ(policy.victims().size(), num_blocks);
  EXPECT_LE(static_cast<double>(words) / num_blocks, kWordsPerBlockMax);
  EXPECT_LE(static_cast<double>(operation_counts.probes - probes_before) / num_blocks,
            kProbesPerBlockMax);
}

INSTANTIATE_TEST_SUITE_P(Capacities, CachePolicyOperationCount,
                         testing::Combine(testing::Values(EvictionPolicy::kLRU,
                                                          EvictionPolicy::kARC),
                                          testing::Values(1'000, 10'000, 100'000, 1'000'000)),
                         [](const auto& param) {
                           return std::string(to_text(std::get<0>(param.param))) +
                                  std::to_string(std::get<1>(param.param));
                         });

}  // namespace
}  // namespace kvfence::planted::optimized
