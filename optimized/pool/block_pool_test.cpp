#include "optimized/pool/block_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "contract/pool/request.h"

namespace kvfence::optimized {
namespace {

using Blocks = std::vector<BlockId>;

BlockPoolConfig config_of(Profile profile, std::uint32_t num_gpu_blocks = 8) {
  BlockPoolConfig config;
  config.num_gpu_blocks = num_gpu_blocks;
  config.enable_kv_cache_events = true;
  config.hash.hash_block_size = 2;
  config.max_block_size = 4;
  config.profile = profile;
  config.rules = rules_of(profile);
  return config;
}

/// A pool of v0.23 rules with events, 8 blocks, hashes of 2 tokens, and a request of 8 tokens.
class BlockPoolTest : public testing::Test {
 protected:
  Blocks get(std::size_t num_blocks) {
    Blocks out(num_blocks);
    EXPECT_EQ(pool_.get_new_blocks(out), ErrorCode::kNone);
    return out;
  }

  ErrorCode cache(const Blocks& blocks, std::uint32_t num_cached, std::uint32_t num_full,
                  std::uint32_t block_size = 2, GroupId group = 0) {
    return pool_.cache_full_blocks({.request = request_,
                                    .blocks = blocks,
                                    .num_cached_blocks = num_cached,
                                    .num_full_blocks = num_full,
                                    .block_size = block_size,
                                    .kv_cache_group_id = group,
                                    .block_mask = std::nullopt});
  }

  ErrorCode cache_masked(const Blocks& blocks, std::uint32_t num_full,
                         const std::vector<std::uint8_t>& mask) {
    return pool_.cache_full_blocks({.request = request_,
                                    .blocks = blocks,
                                    .num_cached_blocks = 0,
                                    .num_full_blocks = num_full,
                                    .block_size = 2,
                                    .kv_cache_group_id = 0,
                                    .block_mask = mask});
  }

  std::string hash(std::size_t index, std::uint32_t block_size = 2) const {
    return std::string(request_.block_hashes(block_size)[index]);
  }

  bool lookup(const std::string& hash, const std::vector<GroupId>& groups, Blocks& out) const {
    out.assign(groups.size(), kNullBlockId);
    return pool_.get_cached_block(hash, groups, out);
  }

  BlockId lookup(const std::string& hash) const {
    Blocks out;
    return lookup(hash, {0}, out) ? out[0] : kNullBlockId;
  }

  Blocks free_order() const {
    Blocks all;
    pool_.get_all_free_blocks(all);
    return all;
  }

  std::vector<KVCacheEvent> take_events() {
    std::vector<KVCacheEvent> events;
    pool_.take_events(events);
    return events;
  }

  BlockPool pool_{config_of(Profile::kV023)};
  Request request_{RequestSpec{.tokens = {1, 2, 3, 4, 5, 6, 7, 8},
                               .lora = LoraRequest{"tuned", 7},
                               .cache_salt = "salt",
                               .mm_features = {{.identifier = "image", .offset = 3, .length = 2}}},
                   config_of(Profile::kV023).hash};
};

TEST_F(BlockPoolTest, StartsWithAllButTheNullBlockFree) {
  EXPECT_EQ(free_order(), (Blocks{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(pool_.block_counts(), (BlockCounts{.empty = 7, .cached = 0, .referenced = 1}));
  EXPECT_EQ(pool_.get_usage(), 0.0);
  EXPECT_EQ(pool_.ref_cnt(kNullBlockId), 0U);
}

TEST_F(BlockPoolTest, UsageOfAPoolWithOnlyTheNullBlockIsZero) {
  EXPECT_EQ(BlockPool(config_of(Profile::kV019, 1)).get_usage(), 0.0);
}

TEST_F(BlockPoolTest, GetNewBlocksPopsFromTheHead) {
  EXPECT_EQ(get(3), (Blocks{1, 2, 3}));

  EXPECT_EQ(pool_.ref_cnt(2), 1U);
  EXPECT_EQ(pool_.get_num_free_blocks(), 4U);
  EXPECT_EQ(pool_.get_usage(), 1.0 - 4.0 / 7.0);
}

TEST_F(BlockPoolTest, GetNewBlocksRefusesMoreThanThereAre) {
  Blocks out(8, 99);

  EXPECT_EQ(pool_.get_new_blocks(out), ErrorCode::kNoFreeBlocks);

  EXPECT_EQ(out, Blocks(8, 99));
  EXPECT_EQ(pool_.get_num_free_blocks(), 7U);
  EXPECT_EQ(pool_.get_new_blocks(std::span(out).first(7)), ErrorCode::kNone);
}

TEST_F(BlockPoolTest, CachedBlockIsFoundAndSurvivesBeingFreed) {
  const Blocks blocks = get(2);

  ASSERT_EQ(cache(blocks, 0, 2), ErrorCode::kNone);
  ASSERT_EQ(pool_.free_blocks(blocks, FreeTo::kTail), ErrorCode::kNone);

  EXPECT_EQ(lookup(hash(1)), blocks[1]);
  EXPECT_EQ(lookup(hash(2)), kNullBlockId);
  EXPECT_EQ(pool_.block_counts(), (BlockCounts{.empty = 5, .cached = 2, .referenced = 1}));
  EXPECT_EQ(pool_.block_key(blocks[0]), make_block_hash_with_group_id(hash(0), 0));
  EXPECT_EQ(free_order(), (Blocks{3, 4, 5, 6, 7, 1, 2}));
}

TEST_F(BlockPoolTest, ReuseEvictsInPopOrder) {
  const Blocks blocks = get(2);
  ASSERT_EQ(cache(blocks, 0, 2), ErrorCode::kNone);
  ASSERT_EQ(pool_.free_blocks(Blocks{2, 1}, FreeTo::kTail), ErrorCode::kNone);
  take_events();

  EXPECT_EQ(get(7), (Blocks{3, 4, 5, 6, 7, 2, 1}));

  EXPECT_EQ(take_events(),
            (std::vector<KVCacheEvent>{BlockRemoved{hash(1), 0}, BlockRemoved{hash(0), 0}}));
  EXPECT_EQ(pool_.num_cached_keys(), 0U);
  EXPECT_EQ(pool_.block_key(1), "");
  EXPECT_EQ(pool_.block_counts(), (BlockCounts{.empty = 0, .cached = 0, .referenced = 8}));
}

TEST_F(BlockPoolTest, LookupNeedsEveryGroup) {
  const Blocks blocks = get(3);
  ASSERT_EQ(cache({blocks[0]}, 0, 1, 2, 0), ErrorCode::kNone);
  ASSERT_EQ(cache({blocks[1]}, 0, 1, 2, 5), ErrorCode::kNone);
  Blocks out;

  EXPECT_TRUE(lookup(hash(0), {5, 0}, out));
  EXPECT_EQ(out, (Blocks{blocks[1], blocks[0]}));
  EXPECT_FALSE(lookup(hash(0), {0, 1}, out));
  EXPECT_TRUE(lookup(hash(0), {}, out));
}

TEST_F(BlockPoolTest, MergedHashNamesALargerBlock) {
  const Blocks blocks = get(2);

  ASSERT_EQ(cache(blocks, 0, 2, 4), ErrorCode::kNone);

  EXPECT_EQ(hash(1, 4), hash(2) + hash(3));
  EXPECT_EQ(lookup(hash(1, 4)), blocks[1]);
  EXPECT_EQ(lookup(hash(3)), kNullBlockId);
}

TEST_F(BlockPoolTest, TouchTakesAFreeBlockOffTheQueueAndCountsRepeats) {
  const Blocks blocks = get(2);
  ASSERT_EQ(cache(blocks, 0, 1), ErrorCode::kNone);
  ASSERT_EQ(pool_.free_blocks(blocks, FreeTo::kTail), ErrorCode::kNone);

  EXPECT_EQ(pool_.touch(Blocks{1, kNullBlockId, 1, 5}), ErrorCode::kNone);

  EXPECT_EQ(pool_.ref_cnt(1), 2U);
  EXPECT_EQ(pool_.ref_cnt(5), 1U);
  EXPECT_EQ(pool_.ref_cnt(kNullBlockId), 0U);
  EXPECT_EQ(free_order(), (Blocks{3, 4, 6, 7, 2}));
  EXPECT_EQ(pool_.block_counts(), (BlockCounts{.empty = 5, .cached = 0, .referenced = 3}));
}

TEST_F(BlockPoolTest, TouchRefusesUnknownBlocksWhole) {
  EXPECT_EQ(pool_.touch(Blocks{1, 8}), ErrorCode::kUnknownBlock);
  EXPECT_EQ(pool_.ref_cnt(1), 0U);
}

TEST_F(BlockPoolTest, FreeQueuesOnlyWhatReachesZero) {
  get(3);
  ASSERT_EQ(pool_.touch(Blocks{2}), ErrorCode::kNone);

  EXPECT_EQ(pool_.free_blocks(Blocks{3, kNullBlockId, 2, 1}, FreeTo::kTail), ErrorCode::kNone);

  EXPECT_EQ(pool_.ref_cnt(2), 1U);
  EXPECT_EQ(free_order(), (Blocks{4, 5, 6, 7, 3, 1}));
}

TEST_F(BlockPoolTest, FreeToTheHeadKeepsTheGivenOrder) {
  get(3);

  EXPECT_EQ(pool_.free_blocks(Blocks{2, 3, 1}, FreeTo::kHead), ErrorCode::kNone);

  EXPECT_EQ(free_order(), (Blocks{2, 3, 1, 4, 5, 6, 7}));
}

TEST_F(BlockPoolTest, FreeToTheHeadIsNotInTheOlderProfile) {
  BlockPool pool(config_of(Profile::kV019));

  EXPECT_EQ(pool.free_blocks(Blocks{99}, FreeTo::kHead), ErrorCode::kNotInProfile);
}

TEST_F(BlockPoolTest, FreeListedTwiceIsFineWhileReferencesRemain) {
  get(1);
  ASSERT_EQ(pool_.touch(Blocks{1, 1}), ErrorCode::kNone);

  EXPECT_EQ(pool_.free_blocks(Blocks{1, 1}, FreeTo::kTail), ErrorCode::kNone);
  EXPECT_EQ(pool_.ref_cnt(1), 1U);
}

TEST_F(BlockPoolTest, RefusedFreeChangesNothing) {
  get(3);
  ASSERT_EQ(pool_.touch(Blocks{2}), ErrorCode::kNone);
  const Blocks order = free_order();

  EXPECT_EQ(pool_.free_blocks(Blocks{1, 3, 4}, FreeTo::kTail), ErrorCode::kDoubleFree);
  EXPECT_EQ(pool_.free_blocks(Blocks{1, 3, 1}, FreeTo::kTail), ErrorCode::kDoubleFree);
  EXPECT_EQ(pool_.free_blocks(Blocks{1, 2, 3, 2}, FreeTo::kHead), ErrorCode::kDoubleFree);
  EXPECT_EQ(pool_.free_blocks(Blocks{1, 8}, FreeTo::kTail), ErrorCode::kUnknownBlock);
  EXPECT_EQ(pool_.free_blocks(Blocks{4, 1, 8}, FreeTo::kTail), ErrorCode::kUnknownBlock);

  EXPECT_EQ(pool_.ref_cnt(1), 1U);
  EXPECT_EQ(pool_.ref_cnt(2), 2U);
  EXPECT_EQ(pool_.ref_cnt(3), 1U);
  EXPECT_EQ(free_order(), order);
  EXPECT_EQ(pool_.block_counts(), (BlockCounts{.empty = 4, .cached = 0, .referenced = 4}));
}

TEST_F(BlockPoolTest, EvictTakesTheHashAndNothingElse) {
  const Blocks blocks = get(3);
  ASSERT_EQ(cache(blocks, 0, 3), ErrorCode::kNone);
  ASSERT_EQ(pool_.free_blocks(Blocks{1}, FreeTo::kHead), ErrorCode::kNone);
  take_events();

  EXPECT_EQ(pool_.evict_blocks(Blocks{3, kNullBlockId, 1, 4, 3}), ErrorCode::kNone);

  EXPECT_EQ(take_events(),
            (std::vector<KVCacheEvent>{BlockRemoved{hash(2), 0}, BlockRemoved{hash(0), 0}}));
  EXPECT_EQ(pool_.ref_cnt(3), 1U);
  EXPECT_EQ(free_order(), (Blocks{1, 4, 5, 6, 7}));
  EXPECT_EQ(pool_.block_counts(), (BlockCounts{.empty = 5, .cached = 0, .referenced = 3}));
  EXPECT_EQ(lookup(hash(1)), blocks[1]);
}

TEST_F(BlockPoolTest, EvictRefusesUnknownBlocksWhole) {
  const Blocks blocks = get(1);
  ASSERT_EQ(cache(blocks, 0, 1), ErrorCode::kNone);

  EXPECT_EQ(pool_.evict_blocks(Blocks{1, 8}), ErrorCode::kUnknownBlock);
  EXPECT_EQ(lookup(hash(0)), 1U);
}

TEST_F(BlockPoolTest, CopiesOfAKeyAreSeparateBlocks) {
  get(2);
  ASSERT_EQ(cache({2}, 0, 1), ErrorCode::kNone);
  ASSERT_EQ(cache({1}, 0, 1), ErrorCode::kNone);
  EXPECT_EQ(lookup(hash(0)), 2U);
  EXPECT_EQ(pool_.num_cached_keys(), 1U);
  take_events();

  ASSERT_EQ(pool_.evict_blocks(Blocks{2}), ErrorCode::kNone);

  EXPECT_EQ(lookup(hash(0)), 1U);
  EXPECT_EQ(take_events(), (std::vector<KVCacheEvent>{BlockRemoved{hash(0), 0}}));
}

TEST_F(BlockPoolTest, ResetNeedsAllBlocksFree) {
  const Blocks blocks = get(2);
  ASSERT_EQ(cache(blocks, 0, 2), ErrorCode::kNone);
  ASSERT_EQ(pool_.free_blocks(Blocks{2}, FreeTo::kTail), ErrorCode::kNone);
  take_events();
  EXPECT_FALSE(pool_.reset_prefix_cache());
  EXPECT_EQ(pool_.num_cached_keys(), 2U);
  EXPECT_EQ(take_events(), std::vector<KVCacheEvent>{});

  ASSERT_EQ(pool_.free_blocks(Blocks{1}, FreeTo::kTail), ErrorCode::kNone);
  EXPECT_TRUE(pool_.reset_prefix_cache());

  EXPECT_EQ(pool_.num_cached_keys(), 0U);
  EXPECT_EQ(pool_.block_key(1), "");
  EXPECT_EQ(free_order(), (Blocks{3, 4, 5, 6, 7, 2, 1}));
  EXPECT_EQ(pool_.block_counts(), (BlockCounts{.empty = 7, .cached = 0, .referenced = 1}));
  EXPECT_EQ(take_events(), std::vector<KVCacheEvent>{AllBlocksCleared{}});
}

TEST_F(BlockPoolTest, StoredEventTellsEverythingOfTheRange) {
  get(3);

  ASSERT_EQ(cache({1, kNullBlockId, 2}, 0, 3), ErrorCode::kNone);
  ASSERT_EQ(cache({1, kNullBlockId, 2, 3}, 3, 4, 2, 0), ErrorCode::kNone);

  const ExtraKey lora = std::string("tuned");
  BlockStored first;
  first.block_hashes = {hash(0), hash(2)};
  first.token_ids = {1, 2, 3, 4, 5, 6};
  first.block_size = 2;
  first.lora = LoraRequest{"tuned", 7};
  first.extra_keys = {ExtraKeys{lora, std::string("salt")},
                      ExtraKeys{lora, MmExtraKey{"image", -1}}};
  first.group_idx = 0;
  BlockStored second;
  second.block_hashes = {hash(3)};
  second.parent_block_hash = hash(2);
  second.token_ids = {7, 8};
  second.block_size = 2;
  second.lora = LoraRequest{"tuned", 7};
  second.extra_keys = {ExtraKeys{lora}};
  second.group_idx = 0;
  EXPECT_EQ(take_events(), (std::vector<KVCacheEvent>{first, second}));
  EXPECT_EQ(take_events(), std::vector<KVCacheEvent>{});
}

TEST_F(BlockPoolTest, RangeOfPassedOverBlocksIsStillAnEvent) {
  get(1);

  ASSERT_EQ(cache_masked({kNullBlockId, 1}, 2, {1, 0}), ErrorCode::kNone);

  const std::vector<KVCacheEvent> events = take_events();
  ASSERT_EQ(events.size(), 1U);
  const auto& stored = std::get<BlockStored>(events[0]);
  EXPECT_TRUE(stored.block_hashes.empty());
  EXPECT_TRUE(stored.extra_keys.empty());
  EXPECT_EQ(stored.token_ids.size(), 4U);
  EXPECT_EQ(pool_.num_cached_keys(), 0U);
}

TEST_F(BlockPoolTest, OlderProfileLeavesTheGroupOut) {
  BlockPool pool(config_of(Profile::kV019));
  Blocks blocks(1);
  ASSERT_EQ(pool.get_new_blocks(blocks), ErrorCode::kNone);
  ASSERT_EQ(pool.cache_full_blocks({.request = request_,
                                    .blocks = blocks,
                                    .num_cached_blocks = 0,
                                    .num_full_blocks = 1,
                                    .block_size = 2,
                                    .kv_cache_group_id = 3,
                                    .block_mask = std::nullopt}),
            ErrorCode::kNone);
  ASSERT_EQ(pool.evict_blocks(blocks), ErrorCode::kNone);
  std::vector<KVCacheEvent> events;
  pool.take_events(events);

  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(std::get<BlockStored>(events[0]).group_idx, std::nullopt);
  EXPECT_EQ(events[1], KVCacheEvent(BlockRemoved{hash(0), std::nullopt}));
}

TEST_F(BlockPoolTest, WithoutEventsNothingIsLogged) {
  BlockPoolConfig config = config_of(Profile::kV023);
  config.enable_kv_cache_events = false;
  BlockPool pool(config);
  ASSERT_TRUE(pool.reset_prefix_cache());
  std::vector<KVCacheEvent> events = {AllBlocksCleared{}};

  pool.take_events(events);

  EXPECT_TRUE(events.empty());
}

TEST_F(BlockPoolTest, CacheOfAnEmptyRangeIsNothing) {
  EXPECT_EQ(cache({99}, 1, 1, 3), ErrorCode::kNone);
  EXPECT_EQ(cache({}, 5, 2, 0), ErrorCode::kNone);
  EXPECT_EQ(take_events(), std::vector<KVCacheEvent>{});
}

TEST_F(BlockPoolTest, CacheRefusesInTheOrderOfTheContract) {
  get(4);

  EXPECT_EQ(cache({1}, 0, 9, 0), ErrorCode::kBadBlockSize);
  EXPECT_EQ(cache({1}, 0, 9, 3), ErrorCode::kBadBlockSize);
  EXPECT_EQ(cache({1}, 0, 9, 6), ErrorCode::kBadBlockSize);
  EXPECT_EQ(cache({1}, 0, 9), ErrorCode::kBadRange);
  EXPECT_EQ(cache_masked({1, 2, 3, 4, 8}, 5, {1}), ErrorCode::kBadMask);
  EXPECT_EQ(cache({1, 2, 3, 4, 8}, 0, 5), ErrorCode::kMissingHash);
  EXPECT_EQ(cache({1, 2, 3}, 0, 3, 4), ErrorCode::kMissingHash);
  EXPECT_EQ(cache({1, 1, 8}, 0, 3), ErrorCode::kUnknownBlock);
  EXPECT_EQ(cache({1, 1, 2}, 0, 3), ErrorCode::kAlreadyHashed);
  EXPECT_EQ(cache({8, 2, 8}, 1, 2), ErrorCode::kNone);
}

TEST_F(BlockPoolTest, CacheIsRefusedWithoutCaching) {
  BlockPoolConfig config = config_of(Profile::kV019);
  config.enable_caching = false;
  BlockPool pool(config);
  const std::vector<std::uint8_t> mask = {1};
  CacheFullBlocksArgs args{.request = request_,
                           .blocks = {},
                           .num_cached_blocks = 0,
                           .num_full_blocks = 1,
                           .block_size = 0,
                           .kv_cache_group_id = 0,
                           .block_mask = std::nullopt};

  EXPECT_EQ(pool.cache_full_blocks(args), ErrorCode::kCachingDisabled);
  args.block_mask = mask;
  args.num_full_blocks = 0;
  EXPECT_EQ(pool.cache_full_blocks(args), ErrorCode::kNotInProfile);
  EXPECT_EQ(pool.block_key(1), "");
  EXPECT_TRUE(pool.reset_prefix_cache());
}

TEST_F(BlockPoolTest, RefusedCacheChangesNothing) {
  get(3);
  ASSERT_EQ(pool_.free_blocks(Blocks{2}, FreeTo::kTail), ErrorCode::kNone);
  ASSERT_EQ(cache({3}, 0, 1), ErrorCode::kNone);
  take_events();

  EXPECT_EQ(cache({1, 2, kNullBlockId, 3}, 0, 4), ErrorCode::kAlreadyHashed);
  EXPECT_EQ(cache({1, 2, 1}, 0, 3), ErrorCode::kAlreadyHashed);

  EXPECT_EQ(pool_.num_cached_keys(), 1U);
  EXPECT_EQ(lookup(hash(0)), 3U);
  EXPECT_EQ(pool_.block_key(1), "");
  EXPECT_EQ(pool_.block_counts(), (BlockCounts{.empty = 5, .cached = 0, .referenced = 3}));
  EXPECT_EQ(take_events(), std::vector<KVCacheEvent>{});
}

TEST_F(BlockPoolTest, CachingAFreeBlockCountsAsCached) {
  ASSERT_EQ(cache({4}, 0, 1), ErrorCode::kNone);
  EXPECT_EQ(pool_.block_counts(), (BlockCounts{.empty = 6, .cached = 1, .referenced = 1}));

  EXPECT_EQ(pool_.evict_blocks(Blocks{4}), ErrorCode::kNone);
  EXPECT_EQ(pool_.block_counts(), (BlockCounts{.empty = 7, .cached = 0, .referenced = 1}));
}

TEST_F(BlockPoolTest, MaskPassesBlocksOver) {
  get(2);

  ASSERT_EQ(cache_masked({1, 2}, 2, {0, 1}), ErrorCode::kNone);

  EXPECT_EQ(pool_.block_key(1), "");
  EXPECT_EQ(lookup(hash(1)), 2U);
}

TEST_F(BlockPoolTest, ABlockIsFoundUnderAKeyThatACopyBroughtAlong) {
  const Blocks blocks = get(2);
  const std::string key = make_block_hash_with_group_id(hash(0), 3);
  EXPECT_FALSE(pool_.has_key(key));

  ASSERT_EQ(pool_.cache_block(1, key), ErrorCode::kNone);
  EXPECT_EQ(pool_.cache_block(1, key), ErrorCode::kAlreadyHashed);
  EXPECT_EQ(pool_.cache_block(8, key), ErrorCode::kUnknownBlock);
  EXPECT_TRUE(pool_.has_key(key));
  EXPECT_FALSE(pool_.has_key(make_block_hash_with_group_id(hash(0), 0)));
  EXPECT_EQ(pool_.block_key(1), key);

  ASSERT_EQ(pool_.free_blocks(blocks), ErrorCode::kNone);
  EXPECT_EQ(pool_.block_counts(), (BlockCounts{.empty = 6, .cached = 1, .referenced = 1}));
  get(7);
  EXPECT_FALSE(pool_.has_key(key)) << "evicted";
}

TEST_F(BlockPoolTest, TheFreeQueueCanBeWalked) {
  const Blocks blocks = get(3);
  ASSERT_EQ(pool_.free_blocks(Blocks{2}), ErrorCode::kNone);
  EXPECT_TRUE(pool_.is_free(2));
  EXPECT_FALSE(pool_.is_free(1));
  EXPECT_FALSE(pool_.is_free(kNullBlockId));
  EXPECT_FALSE(pool_.is_free(8));

  Blocks walked;
  for (auto at = pool_.next_free_block(std::nullopt); at; at = pool_.next_free_block(at)) {
    walked.push_back(*at);
  }
  EXPECT_EQ(walked, Blocks({4, 5, 6, 7, 2}));
}

TEST_F(BlockPoolTest, CopyIsIndependent) {
  const Blocks blocks = get(1);
  ASSERT_EQ(cache(blocks, 0, 1), ErrorCode::kNone);
  const BlockPool copy = pool_;

  ASSERT_EQ(pool_.evict_blocks(blocks), ErrorCode::kNone);
  ASSERT_EQ(pool_.free_blocks(blocks, FreeTo::kTail), ErrorCode::kNone);

  EXPECT_EQ(copy.ref_cnt(1), 1U);
  EXPECT_EQ(copy.block_key(1), make_block_hash_with_group_id(hash(0), 0));
}

}  // namespace
}  // namespace kvfence::optimized
