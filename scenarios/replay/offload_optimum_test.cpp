// Goal: the optimum is the most that any choice of blocks can find, and no policy finds more.
// Method: an exhaustive search over the held blocks after each request of tiny traffic, independent
// of the greedy choice; LRU and ARC of the optimized manager under random traffic.

#include "scenarios/replay/offload_optimum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "scenarios/replay/offload_replay.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

/// Traffic with its own keys.
struct Traffic {
  std::vector<std::vector<std::uint32_t>> keys;
  std::vector<std::uint32_t> num_gpu_hits;

  std::vector<OffloadRequest> requests() const {
    std::vector<OffloadRequest> made;
    for (std::size_t k = 0; k < keys.size(); ++k) made.push_back({keys[k], num_gpu_hits[k]});
    return made;
  }
};

std::uint64_t optimum_of(const Traffic& traffic, std::uint64_t capacity) {
  return optimal_hits(traffic.requests(), capacity);
}

/// Requests of one block each, all asked for.
Traffic single_blocks(const std::vector<std::uint32_t>& keys) {
  Traffic traffic;
  for (const std::uint32_t key : keys) traffic.keys.push_back({key});
  traffic.num_gpu_hits.assign(keys.size(), 0);
  return traffic;
}

enum class Lookup { kAnywhere, kLeading };

/// The most hits over every choice of what to hold after each request.
std::uint64_t most_hits(const std::vector<OffloadRequest>& requests, std::size_t capacity,
                        Lookup lookup) {
  using Held = std::set<std::uint32_t>;
  std::map<Held, std::uint64_t> best = {{Held{}, 0}};
  for (const OffloadRequest& request : requests) {
    std::map<Held, std::uint64_t> next;
    for (const auto& entry : best) {
      std::uint64_t hits = entry.second;
      for (const std::uint32_t key : request.keys.subspan(request.num_gpu_hits)) {
        if (entry.first.count(key) > 0) {
          ++hits;
        } else if (lookup == Lookup::kLeading) {
          break;
        }
      }
      Held all = entry.first;
      all.insert(request.keys.begin(), request.keys.end());
      const std::vector<std::uint32_t> candidates(all.begin(), all.end());
      for (std::uint32_t chosen = 0; chosen < 1U << candidates.size(); ++chosen) {
        Held held;
        for (std::size_t k = 0; k < candidates.size(); ++k) {
          if ((chosen >> k & 1U) != 0) held.insert(candidates[k]);
        }
        if (held.size() > capacity) continue;
        std::uint64_t& known = next[held];
        known = std::max(known, hits);
      }
    }
    best = std::move(next);
  }
  std::uint64_t most = 0;
  for (const auto& entry : best) most = std::max(most, entry.second);
  return most;
}

/// Requests of up to `length_max` different ones of `num_keys` keys. std::mt19937 and its remainder
/// are the same everywhere; the library's distributions are not.
Traffic random_traffic(std::mt19937& random, std::size_t num_requests, std::uint32_t num_keys,
                       std::uint32_t length_max) {
  Traffic traffic;
  for (std::size_t k = 0; k < num_requests; ++k) {
    std::vector<std::uint32_t> keys;
    const std::uint32_t length = 1 + static_cast<std::uint32_t>(random() % length_max);
    while (keys.size() < length) {
      const auto key = static_cast<std::uint32_t>(random() % num_keys);
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
    traffic.keys.push_back(keys);
    traffic.num_gpu_hits.push_back(
        random() % 3 == 0 ? static_cast<std::uint32_t>(random() % (length + 1)) : 0);
  }
  return traffic;
}

TEST(OffloadOptimum, FindsNothingInNothing) {
  EXPECT_EQ(optimal_hits({}, 4), 0U);
  EXPECT_EQ(optimum_of(single_blocks({1, 2, 3}), 4), 0U);
  EXPECT_EQ(optimum_of(single_blocks({1, 1, 1}), 0), 0U);
}

TEST(OffloadOptimum, KeepsWhatComesSoonest) {
  // Belady's own example would find 6 in three places, since it has to take 4 in. Here 0, 2 and 3
  // remain, and only first occurrences miss.
  EXPECT_EQ(optimum_of(single_blocks({7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2}), 3), 7U);
  EXPECT_EQ(optimum_of(single_blocks({7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2}), 2), 5U);
}

TEST(OffloadOptimum, BypassesWhatIsNotWorthItsPlace) {
  // With one place, 2 and 3 must not push 1 out; a cache that stores every miss finds nothing.
  EXPECT_EQ(optimum_of(single_blocks({1, 2, 1, 3, 1}), 1), 2U);
}

TEST(OffloadOptimum, LooksARequestUpBeforeItStores) {
  // Both blocks of the second request are found although it adds two more, which the third asks for.
  const Traffic traffic = {{{1, 2}, {1, 2, 3, 4}, {3, 4}}, {0, 0, 0}};

  EXPECT_EQ(optimum_of(traffic, 2), 4U);
  EXPECT_EQ(optimum_of(traffic, 1), 2U);
}

TEST(OffloadOptimum, TakesABlockInAgainFromAGpuHit) {
  // The one place goes to 2, then, when the GPU has 1, to 1.
  const Traffic traffic = {{{1}, {2}, {2}, {1}, {1}}, {0, 0, 0, 1, 0}};

  EXPECT_EQ(optimum_of(traffic, 1), 2U);
}

TEST(OffloadOptimum, CountsNoGpuHits) {
  EXPECT_EQ(optimum_of({{{1}, {1}, {1}}, {0, 1, 1}}, 9), 0U);
}

TEST(OffloadOptimum, IsTheMostOfAllChoices) {
  std::mt19937 random(1);
  std::uint64_t num_hits = 0;
  std::size_t num_gaps = 0;
  for (int episode = 0; episode < 400; ++episode) {
    const Traffic traffic = random_traffic(random, 7, 6, 3);
    for (std::size_t capacity = 0; capacity <= 4; ++capacity) {
      SCOPED_TRACE(testing::Message() << "episode " << episode << ", capacity " << capacity);
      const std::uint64_t optimum = optimum_of(traffic, capacity);
      ASSERT_EQ(optimum, most_hits(traffic.requests(), capacity, Lookup::kAnywhere));
      const std::uint64_t leading = most_hits(traffic.requests(), capacity, Lookup::kLeading);
      ASSERT_GE(optimum, leading);
      num_hits += optimum;
      num_gaps += optimum > leading ? 1U : 0U;
    }
  }
  EXPECT_GT(num_hits, 1'000U);
  // If a lookup ends at a gap, the optimum is not attained.
  EXPECT_GT(num_gaps, 100U);
}

TEST(OffloadOptimum, IsNeverBelowAPolicy) {
  std::mt19937 random(2);
  const auto manager = offload_sides().make_optimized();
  std::uint64_t found = 0;
  for (int episode = 0; episode < 150; ++episode) {
    const Traffic traffic = random_traffic(random, 60, 16, 5);
    OffloadReplayOptions options;
    options.profile = episode % 2 == 0 ? Profile::kV019 : Profile::kV023;
    options.store_threshold = episode % 5 == 0 ? 2 : 0;
    for (const std::uint32_t capacity : {1U, 3U, 6U, 12U}) {
      const std::uint64_t optimum = optimum_of(traffic, capacity);
      for (const EvictionPolicy policy : {EvictionPolicy::kLRU, EvictionPolicy::kARC}) {
        SCOPED_TRACE(testing::Message() << episode << " " << to_text(policy) << " " << capacity);
        const OffloadTierResult result = replay_offload_tier(
            traffic.requests(), config_of(options, policy, capacity), 1, *manager, nullptr);
        ASSERT_FALSE(result.divergence) << result.divergence->message;
        ASSERT_LE(result.found, optimum);
        found += result.found;
      }
    }
  }
  EXPECT_GT(found, 10'000U);
}

}  // namespace
}  // namespace kvfence
