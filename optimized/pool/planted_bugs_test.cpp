// Goal: every planted bug is alive, and only when it is asked for. Method: the same pseudo-random
// operations go to a plain pool and to a planted one; the two part company within a bounded number
// of steps exactly when a bug is planted.

#include "optimized/pool/planted_bugs.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "optimized/base/planted_bugs_table.h"
#include "optimized/pool/block_pool.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kNumBlocks = 7;

BlockPoolConfig config_of() {
  BlockPoolConfig config;
  config.num_gpu_blocks = kNumBlocks;
  config.enable_kv_cache_events = true;
  config.hash.hash_block_size = 1;
  config.max_block_size = 2;
  config.rules = rules_of(Profile::kV023);
  return config;
}

std::vector<Request> requests_of(const HashConfig& config) {
  std::vector<Request> requests;
  for (TokenId token = 0; token < 2; ++token) {
    RequestSpec spec;
    spec.tokens = {9, token, 1, 2};
    requests.emplace_back(spec, config);
  }
  return requests;
}

/// What one operation answered and left behind.
struct Observation {
  int result = 0;
  std::vector<BlockId> out;
  std::vector<std::uint32_t> ref_cnts;
  std::vector<std::string> keys;
  std::vector<BlockId> free_order;
  std::uint32_t num_cached_keys = 0;
  BlockCounts counts;
  double usage = 0;
  std::vector<KVCacheEvent> events;
  friend bool operator==(const Observation&, const Observation&) = default;
};

template <class Pool>
Observation apply(Pool& pool, const std::vector<Request>& requests, std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&random](std::uint32_t bound) {
    return static_cast<std::uint32_t>(random() % bound);
  };
  const auto some_blocks = [&below](std::uint32_t num_blocks) {
    std::vector<BlockId> blocks(num_blocks);
    for (BlockId& block : blocks) block = below(kNumBlocks);
    return blocks;
  };
  Observation observation;
  const auto refused = [&observation](ErrorCode code) {
    observation.result = static_cast<int>(code);
  };
  const Request& request = requests[below(static_cast<std::uint32_t>(requests.size()))];
  const std::uint32_t block_size = below(3) == 0 ? 2 : 1;
  switch (below(12)) {
    case 0:
    case 1:
      observation.out.resize(below(6) == 0 ? 4 : 1);
      refused(pool.get_new_blocks(observation.out));
      break;
    case 2:
      refused(pool.touch(some_blocks(below(3))));
      break;
    case 3:
    case 4: {
      const std::uint32_t num_cached = below(4) == 0 ? 1 : 0;
      const std::uint32_t num_full = num_cached + 1 + below(2);
      const std::vector<std::uint8_t> mask = {static_cast<std::uint8_t>(below(2))};
      const bool has_mask = below(4) == 0;
      refused(pool.cache_full_blocks(
          {.request = request,
           .blocks = some_blocks(num_full),
           .num_cached_blocks = num_cached,
           .num_full_blocks = has_mask ? num_cached + 1 : num_full - below(4) / 3,
           .block_size = block_size,
           .kv_cache_group_id = below(2),
           .block_mask =
               has_mask ? std::optional<std::span<const std::uint8_t>>(mask) : std::nullopt}));
      break;
    }
    case 5:
    case 6:
    case 7: {
      // Mostly blocks that are held, so that some calls are not refused.
      std::vector<BlockId> blocks;
      for (BlockId block = 0; block < kNumBlocks; ++block) {
        if (below(2) == 0) blocks.push_back((block * 3 + 1) % kNumBlocks);
      }
      std::erase_if(blocks, [&](BlockId block) {
        return block != kNullBlockId && pool.ref_cnt(block) == 0 && below(8) != 0;
      });
      if (!blocks.empty() && below(4) == 0) blocks.push_back(blocks.front());
      refused(pool.free_blocks(blocks, below(3) == 0 ? FreeTo::kHead : FreeTo::kTail));
      break;
    }
    case 8:
      refused(pool.evict_blocks(some_blocks(1)));
      break;
    case 9:
      if (below(4) == 0) observation.result = pool.reset_prefix_cache() ? 1 : 0;
      break;
    default: {
      const std::vector<GroupId> groups = {0, 1};
      const std::size_t num_groups = below(3) == 0 ? 2 : 1;
      observation.out.resize(num_groups);
      const bool hit = pool.get_cached_block(request.block_hashes(block_size)[below(2)],
                                             std::span(groups).first(num_groups), observation.out);
      if (!hit) observation.out.clear();
      observation.result = hit ? 1 : 0;
    }
  }
  for (BlockId block = 0; block < kNumBlocks; ++block) {
    observation.ref_cnts.push_back(pool.ref_cnt(block));
    observation.keys.emplace_back(pool.block_key(block));
  }
  pool.get_all_free_blocks(observation.free_order);
  observation.num_cached_keys = pool.num_cached_keys();
  observation.counts = pool.block_counts();
  observation.usage = pool.get_usage();
  pool.take_events(observation.events);
  return observation;
}

/// The step at which a planted pool first differs from the plain one; nothing if it never does.
std::optional<int> first_divergence(PlantedBug bug, int num_steps) {
  const BlockPoolConfig config = config_of();
  const std::vector<Request> requests = requests_of(config.hash);
  BlockPool expected(config);
  PlantedBlockPool actual(config, bug);
  for (int step = 0; step < num_steps; ++step) {
    const auto seed = static_cast<std::uint32_t>(step);
    if (apply(expected, requests, seed) != apply(actual, requests, seed)) return step;
  }
  return std::nullopt;
}

class PlantedBugs : public testing::TestWithParam<PlantedBugInfo> {};

TEST_P(PlantedBugs, PartsFromTheSoundPool) {
  EXPECT_TRUE(first_divergence(GetParam().bug, 5'000).has_value());
}

// After the divergence the pool is broken; it still has to answer, without a crash or an endless
// loop.
TEST_P(PlantedBugs, KeepsAnsweringOnceBroken) {
  const BlockPoolConfig config = config_of();
  const std::vector<Request> requests = requests_of(config.hash);
  PlantedBlockPool pool(config, GetParam().bug);
  std::size_t num_answers = 0;
  for (std::uint32_t seed = 0; seed < 5'000; ++seed) {
    num_answers += apply(pool, requests, seed).keys.size();
  }
  EXPECT_EQ(num_answers, 5'000U * kNumBlocks);
}

INSTANTIATE_TEST_SUITE_P(All, PlantedBugs, testing::ValuesIn(kPlantedBugs),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(PlantedBugTable, NoBugIsTheSoundPool) {
  EXPECT_EQ(first_divergence(PlantedBug::kNone, 5'000), std::nullopt);
}

TEST(PlantedBugTable, IsInTheOrderOfTheEnumerationWithNamesOfItsOwn) {
  EXPECT_EQ(misplaced_bugs(kPlantedBugs, planted_bug_from_name), std::vector<std::string_view>{});
}

}  // namespace
}  // namespace kvfence::optimized
