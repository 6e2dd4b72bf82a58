// Goal: a call of the manager costs only the blocks that it touches, however long the request is.
// Method: count links, probes and table entries.

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "planted/optimized/kv_cache/kv_cache_manager.h"
#include "properties/planted/switches.h"

namespace kvfence::planted::optimized {
namespace {

constexpr std::uint32_t kBlockSize = 16;
constexpr std::uint32_t kLongTokens = 128 * 1024;
/// Slots looked at for one key in a half full table, on average.
constexpr double kProbesPerLookupMax = 2.0;

KVCacheSpec full() { return {.block_size = kBlockSize}; }
KVCacheSpec sliding(std::uint32_t window) {
  return {
      .kind = KVCacheSpecKind::kSlidingWindow, .block_size = kBlockSize, .sliding_window = window};
}

KVCacheManagerConfig config_of(std::vector<KVCacheSpec> groups) {
  KVCacheManagerConfig config;
  config.pool.num_gpu_blocks = 4 * kLongTokens / kBlockSize;
  config.pool.hash.algorithm = HashAlgorithm::kXxhashCbor;
  config.pool.hash.hash_block_size = kBlockSize;
  config.pool.max_block_size = kBlockSize;
  config.groups = std::move(groups);
  config.max_model_len = 2 * kLongTokens;
  return config;
}

Request request_of(const KVCacheManagerConfig& config, std::uint32_t num_tokens) {
  RequestSpec spec;
  spec.tokens.resize(num_tokens);
  std::iota(spec.tokens.begin(), spec.tokens.end(), 0U);
  return Request(spec, config.pool.hash);
}

std::uint64_t num_probes() { return operation_counts.probes; }

/// Links and table entries.
std::uint64_t num_steps() { return operation_counts.links + operation_counts.table_entries; }

void allocate(KVCacheManager& manager, const Request& request, std::uint32_t num_computed_tokens,
              std::uint32_t num_new_tokens) {
  bool allocated = false;
  BlocksByGroup blocks;
  const KVRequest now{.index = 0, .request = request, .num_computed_tokens = num_computed_tokens};
  ASSERT_EQ(
      manager.allocate_slots({.request = now, .num_new_tokens = num_new_tokens}, allocated, blocks),
      ErrorCode::kNone);
  ASSERT_TRUE(allocated);
}

TEST(KVCacheOperationCount, ALongHitIsOneLookupABlock) {
  constexpr std::uint32_t kNumHitBlocks = kLongTokens / kBlockSize - 1;
  const KVCacheManagerConfig config = config_of({full()});
  KVCacheManager manager(config);
  const Request request = request_of(config, kLongTokens);
  const KVRequest now{.index = 1, .request = request};
  ComputedBlocks hit;

  std::uint64_t before = num_probes();
  manager.get_computed_blocks(now, hit);
  EXPECT_LE(num_probes() - before, 1U);  // the first miss ends it

  allocate(manager, request, 0, kLongTokens);
  before = num_probes();
  manager.get_computed_blocks(now, hit);
  ASSERT_EQ(hit.blocks[0].size(), kNumHitBlocks);
  EXPECT_LE(static_cast<double>(num_probes() - before), kProbesPerLookupMax * kNumHitBlocks);
}

TEST(KVCacheOperationCount, AColdWindowLookupAsksForOneBlockAWindow) {
  constexpr std::uint32_t kWindowBlocks = 64;
  const KVCacheManagerConfig config = config_of({sliding(kWindowBlocks * kBlockSize + 1)});
  KVCacheManager manager(config);
  const Request request = request_of(config, kLongTokens);
  ComputedBlocks hit;
  const std::uint64_t before = num_probes();
  manager.get_computed_blocks({.index = 0, .request = request}, hit);
  EXPECT_EQ(hit.num_tokens, 0U);
  EXPECT_LE(num_probes() - before, kLongTokens / kBlockSize / kWindowBlocks + 1);
}

TEST(KVCacheOperationCount, ADecodeTokenCostsItsGroupsWhateverTheLength) {
  for (const std::uint32_t num_tokens : {kLongTokens / 64, kLongTokens}) {
    SCOPED_TRACE(num_tokens);
    const KVCacheManagerConfig config = config_of({full(), sliding(1024), sliding(512)});
    KVCacheManager manager(config);
    const Request request = request_of(config, num_tokens + 2 * kBlockSize);
    allocate(manager, request, 0, num_tokens);
    allocate(manager, request, num_tokens, 1);  // the windows drop what the prompt needed

    std::uint64_t before = num_steps();
    for (std::uint32_t i = 1; i + 1 < kBlockSize; ++i) {
      allocate(manager, request, num_tokens + i, 1);
    }
    EXPECT_EQ(num_steps() - before, 0U);

    // A full block is cached, a new one taken, and each window drops one: a table entry each, and a
    // few links.
    before = num_steps();
    allocate(manager, request, num_tokens + kBlockSize - 1, 1);
    allocate(manager, request, num_tokens + kBlockSize, 1);
    EXPECT_GT(num_steps() - before, 0U);
    EXPECT_LE(num_steps() - before, 8 * config.groups.size());
  }
}

TEST(KVCacheOperationCount, ABlockIsRemovedOnce) {
  const KVCacheManagerConfig config = config_of({sliding(kBlockSize)});
  KVCacheManager manager(config);
  const Request request = request_of(config, kLongTokens);
  allocate(manager, request, 0, kLongTokens);
  const std::uint64_t before = num_steps();
  for (std::uint32_t num_tokens = 0; num_tokens <= kLongTokens; num_tokens += kBlockSize) {
    manager.remove_skipped_blocks(0, num_tokens);
  }
  manager.free(0);
  // One table entry and two links a block, and two links a call.
  EXPECT_LE(num_steps() - before, 5 * (kLongTokens / kBlockSize) + 5);
}

}  // namespace
}  // namespace kvfence::planted::optimized
