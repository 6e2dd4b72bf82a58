// Goal: a manager that has seen its longest requests allocates nothing. Method: this program counts
// every call of operator new while it repeats the same life of requests.

#include <gtest/gtest.h>

#include <vector>

#include "optimized/base/counted_allocations.h"
#include "optimized/kv_cache/kv_cache_manager.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kNumTokens = 64;
constexpr std::uint32_t kNumRequests = 3;

KVCacheManagerConfig config_of() {
  KVCacheManagerConfig config;
  config.pool.num_gpu_blocks = 200;
  config.pool.hash.hash_block_size = 2;
  config.pool.max_block_size = 8;
  for (const RuleField& field : kRuleFields) config.pool.rules.*field.member = true;
  config.groups = {{.block_size = 4},
                   {.kind = KVCacheSpecKind::kSlidingWindow, .block_size = 2, .sliding_window = 5},
                   {.kind = KVCacheSpecKind::kMamba, .block_size = 4},
                   {.kind = KVCacheSpecKind::kMamba,
                    .block_size = 4,
                    .mamba_align = true,
                    .num_speculative_blocks = 1}};
  config.max_model_len = kNumTokens;
  config.max_num_batched_tokens = 16;
  return config;
}

/// The arguments that the caller reuses.
struct Answers {
  ComputedBlocks hit;
  BlocksByGroup blocks;
  std::vector<std::uint32_t> counts;
};

/// Requests that come one after the other, hit what the first one cached, and run to their end.
/// Ends as it began, with an empty cache.
void live(KVCacheManager& manager, const std::vector<Request>& requests, Answers& answers) {
  for (RequestIndex index = 0; index < kNumRequests; ++index) {
    manager.new_step_starts();
    std::uint32_t num_computed = 0;
    const auto request = [&] {
      return KVRequest{.index = index,
                       .request = requests[index],
                       .num_computed_tokens = num_computed,
                       .num_prompt_tokens = kNumTokens};
    };
    manager.get_computed_blocks(request(), answers.hit);
    ASSERT_EQ(answers.hit.num_tokens > 0, index > 0);
    const ComputedBlocks* hit = &answers.hit;
    while (num_computed < kNumTokens) {
      bool allocated = false;
      const KVRequest now = request();
      ASSERT_EQ(manager.allocate_slots({.request = now,
                                        .num_new_tokens = 4,
                                        .hit = hit,
                                        .num_lookahead_tokens = 2,
                                        .full_sequence_must_fit = true},
                                       allocated, answers.blocks),
                ErrorCode::kNone);
      ASSERT_TRUE(allocated);
      num_computed += 4 + (hit ? hit->num_tokens : 0);
      hit = nullptr;
    }
    manager.get_block_ids(index, answers.blocks);
    ASSERT_EQ(manager.get_num_common_prefix_blocks(index, answers.counts), ErrorCode::kNone);
    ASSERT_EQ(manager.cache_blocks(request(), kNumTokens), ErrorCode::kNone);
  }
  manager.take_new_block_ids(answers.counts);
  ASSERT_FALSE(answers.counts.empty());
  for (RequestIndex index = 0; index < kNumRequests; ++index) {
    manager.remove_skipped_blocks(index, kNumTokens);
    manager.free(index);
  }
  ASSERT_TRUE(manager.reset_prefix_cache());
}

TEST(KVCacheNoAllocation, OnceTheTablesHaveGrown) {
  const KVCacheManagerConfig config = config_of();
  RequestSpec spec;
  for (TokenId token = 0; token < kNumTokens; ++token) spec.tokens.push_back(token);
  const std::vector<Request> requests(kNumRequests, Request(spec, config.pool.hash));
  KVCacheManager manager(config);
  Answers answers;
  const std::size_t before_warm_up = num_allocations();
  live(manager, requests, answers);
  ASSERT_GT(num_allocations(), before_warm_up);  // the counter counts
  const std::size_t before = num_allocations();

  for (int repeat = 0; repeat < 3; ++repeat) live(manager, requests, answers);

  EXPECT_EQ(num_allocations(), before);
}

}  // namespace
}  // namespace kvfence::optimized
