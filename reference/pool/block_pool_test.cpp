// Each rule and each refusal of the pool, on pools of a few blocks of four tokens. A refusal is
// checked against everything that an observer can read.
#include "reference/pool/block_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace kvfence::reference {
namespace {

using Ids = std::vector<BlockId>;
using Events = std::vector<KVCacheEvent>;
using Mask = std::vector<std::uint8_t>;

constexpr std::uint32_t kBlockSize = 4;
constexpr GroupId kGroup = 0;

BlockPoolConfig config_of(Profile profile, std::uint32_t num_gpu_blocks = 8) {
  BlockPoolConfig config;
  config.num_gpu_blocks = num_gpu_blocks;
  config.enable_kv_cache_events = true;
  config.max_block_size = 2 * kBlockSize;
  config.profile = profile;
  config.rules = rules_of(profile);
  return config;
}

/// A request of num_blocks full blocks whose tokens count up from first_token.
RequestSpec spec_of(std::uint32_t num_blocks, TokenId first_token = 0) {
  RequestSpec spec;
  spec.tokens.resize(num_blocks * kBlockSize);
  std::iota(spec.tokens.begin(), spec.tokens.end(), first_token);
  return spec;
}

Request request_of(std::uint32_t num_blocks, TokenId first_token = 0) {
  return {spec_of(num_blocks, first_token), HashConfig{}};
}

std::string hash_of(const Request& request, std::size_t index) {
  return std::string(request.block_hashes(kBlockSize)[index]);
}

std::string key_of(const Request& request, std::size_t index, GroupId group = kGroup) {
  return make_block_hash_with_group_id(request.block_hashes(kBlockSize)[index], group);
}

Ids take(BlockPool& pool, std::size_t num_blocks) {
  Ids blocks(num_blocks);
  EXPECT_EQ(pool.get_new_blocks(blocks), ErrorCode::kNone);
  return blocks;
}

Ids free_list(const BlockPool& pool) {
  Ids blocks;
  pool.get_all_free_blocks(blocks);
  return blocks;
}

Events events_of(BlockPool& pool) {
  Events events;
  pool.take_events(events);
  return events;
}

ErrorCode cache(BlockPool& pool, const Request& request, const Ids& blocks,
                std::uint32_t num_cached_blocks, std::uint32_t num_full_blocks,
                std::uint32_t block_size = kBlockSize, GroupId group = kGroup) {
  return pool.cache_full_blocks(
      {request, blocks, num_cached_blocks, num_full_blocks, block_size, group, std::nullopt});
}

ErrorCode cache_masked(BlockPool& pool, const Request& request, const Ids& blocks,
                       std::uint32_t num_cached_blocks, std::uint32_t num_full_blocks,
                       const Mask& mask) {
  return pool.cache_full_blocks(
      {request, blocks, num_cached_blocks, num_full_blocks, kBlockSize, kGroup, mask});
}

/// The block found for (hash of the request at index, group), or the null block for none.
BlockId find(const BlockPool& pool, const Request& request, std::size_t index,
             GroupId group = kGroup) {
  BlockId out = kNullBlockId;
  const bool hit =
      pool.get_cached_block(request.block_hashes(kBlockSize)[index], {&group, 1}, {&out, 1});
  return hit ? out : kNullBlockId;
}

/// Everything that an observer can read.
struct Observed {
  std::vector<std::uint32_t> ref_cnts;
  std::vector<std::string> keys;
  Ids free_blocks;
  std::uint32_t num_free_blocks;
  std::uint32_t num_cached_keys;
  BlockCounts counts;
  double usage;
  Events events;
  bool operator==(const Observed&) const = default;
};

Observed observe(BlockPool pool) {
  Observed seen{{},
                {},
                free_list(pool),
                pool.get_num_free_blocks(),
                pool.num_cached_keys(),
                pool.block_counts(),
                pool.get_usage(),
                events_of(pool)};
  for (BlockId block = 0; block < pool.config().num_gpu_blocks; ++block) {
    seen.ref_cnts.push_back(pool.ref_cnt(block));
    seen.keys.emplace_back(pool.block_key(block));
  }
  return seen;
}

/// A pool in mid-life: 1 and 2 cached and referenced, 3 referenced, 4 cached and free, 5-7 empty;
/// events pending.
class BlockPoolTest : public testing::Test {
 protected:
  explicit BlockPoolTest(Profile profile = Profile::kV019)
      : request_(request_of(4)), pool_(config_of(profile)) {
    blocks_ = take(pool_, 4);
    EXPECT_EQ(cache(pool_, request_, {1, 2}, 0, 2), ErrorCode::kNone);
    EXPECT_EQ(cache(pool_, request_, {1, 2, 4}, 2, 3), ErrorCode::kNone);
    EXPECT_EQ(pool_.free_blocks(Ids{4}, FreeTo::kTail), ErrorCode::kNone);
    before_ = observe(pool_);
  }

  void expect_unchanged() const { EXPECT_TRUE(observe(pool_) == before_); }

  Request request_;
  BlockPool pool_;
  Ids blocks_;
  Observed before_;
};

class BlockPoolV023Test : public BlockPoolTest {
 protected:
  BlockPoolV023Test() : BlockPoolTest(Profile::kV023) {}
};

TEST(BlockPool, StartsWithAllButTheNullBlockFreeAscending) {
  BlockPool pool(config_of(Profile::kV019, 4));

  EXPECT_EQ(free_list(pool), Ids({1, 2, 3}));
  EXPECT_EQ(pool.get_num_free_blocks(), 3u);
  EXPECT_EQ(pool.block_counts(), (BlockCounts{.empty = 3, .cached = 0, .referenced = 1}));
  EXPECT_EQ(pool.num_cached_keys(), 0u);
  EXPECT_EQ(pool.ref_cnt(kNullBlockId), 0u);
  EXPECT_EQ(events_of(pool), Events{});
}

TEST(BlockPool, UsageLeavesTheNullBlockOut) {
  BlockPool pool(config_of(Profile::kV019, 5));

  EXPECT_EQ(pool.get_usage(), 0.0);
  take(pool, 1);
  EXPECT_EQ(pool.get_usage(), 0.25);
  take(pool, 3);
  EXPECT_EQ(pool.get_usage(), 1.0);
}

TEST(BlockPool, UsageIsInThisFormOfDoubles) {
  BlockPool pool(config_of(Profile::kV019, 11));
  take(pool, 1);

  EXPECT_EQ(pool.get_usage(), 1.0 - 9.0 / 10.0);
  EXPECT_NE(pool.get_usage(), 1.0 / 10.0);
}

TEST(BlockPool, APoolOfTheNullBlockAloneIsNotUsed) {
  BlockPool pool(config_of(Profile::kV019, 1));
  Ids one(1);

  EXPECT_EQ(pool.get_usage(), 0.0);
  EXPECT_EQ(pool.get_new_blocks(one), ErrorCode::kNoFreeBlocks);
  EXPECT_TRUE(pool.reset_prefix_cache());
}

TEST_F(BlockPoolTest, CountsTellEmptyCachedAndReferenced) {
  EXPECT_EQ(pool_.block_counts(), (BlockCounts{.empty = 3, .cached = 1, .referenced = 4}));
  EXPECT_EQ(pool_.get_num_free_blocks(), 4u);
  EXPECT_EQ(pool_.num_cached_keys(), 3u);
}

TEST(BlockPool, SinkBlocksLeaveTheQueueForGood) {
  BlockPool pool(config_of(Profile::kV019, 5));

  EXPECT_EQ(pool.take_sink_blocks(2), ErrorCode::kNone);
  EXPECT_EQ(free_list(pool), Ids({3, 4}));
  EXPECT_EQ(pool.ref_cnt(1), 0u);
  EXPECT_EQ(pool.block_counts(), (BlockCounts{.empty = 2, .cached = 0, .referenced = 3}));
  EXPECT_FALSE(pool.reset_prefix_cache());

  EXPECT_EQ(pool.take_sink_blocks(3), ErrorCode::kNoFreeBlocks);
  EXPECT_EQ(free_list(pool), Ids({3, 4}));
}

TEST_F(BlockPoolTest, ACopyIsAlone) {
  BlockPool copy = pool_;

  take(copy, 4);
  EXPECT_EQ(copy.evict_blocks(Ids{1}), ErrorCode::kNone);

  expect_unchanged();
}

TEST(BlockPoolDeathTest, ABlockOutsideThePoolHasNothingToObserve) {
  BlockPool pool(config_of(Profile::kV019, 2));

  EXPECT_DEATH(pool.ref_cnt(2), "no such block");
  EXPECT_DEATH(pool.block_key(2), "no such block");
}

TEST(BlockPoolDeathTest, AnImpossibleConfigurationAborts) {
  BlockPoolConfig no_blocks = config_of(Profile::kV019, 0);
  BlockPoolConfig odd_block_size = config_of(Profile::kV019);
  odd_block_size.max_block_size = kBlockSize + 1;

  EXPECT_DEATH(BlockPool{no_blocks}, "num_gpu_blocks is out of bounds");
  EXPECT_DEATH(BlockPool{odd_block_size}, "no positive multiple of hash_block_size");
}

TEST(BlockPool, NewBlocksComeFromTheHeadInOrderWithOneReference) {
  BlockPool pool(config_of(Profile::kV019, 5));

  EXPECT_EQ(take(pool, 0), Ids({}));
  EXPECT_EQ(take(pool, 3), Ids({1, 2, 3}));
  EXPECT_EQ(free_list(pool), Ids({4}));
  EXPECT_EQ(pool.ref_cnt(1), 1u);
  EXPECT_EQ(pool.ref_cnt(3), 1u);
  EXPECT_EQ(pool.ref_cnt(4), 0u);
}

TEST_F(BlockPoolTest, NewBlocksLoseTheirHashAtThatMomentWithOneEventEach) {
  events_of(pool_);

  EXPECT_EQ(take(pool_, 4), Ids({5, 6, 7, 4}));

  EXPECT_EQ(pool_.block_key(4), "");
  EXPECT_EQ(find(pool_, request_, 2), kNullBlockId);
  EXPECT_EQ(pool_.num_cached_keys(), 2u);
  EXPECT_EQ(events_of(pool_), Events({BlockRemoved{hash_of(request_, 2), std::nullopt}}));
}

TEST_F(BlockPoolTest, MoreNewBlocksThanAreFreeAreRefused) {
  Ids five = {9, 9, 9, 9, 9};

  EXPECT_EQ(pool_.get_new_blocks(five), ErrorCode::kNoFreeBlocks);

  EXPECT_EQ(five, Ids({9, 9, 9, 9, 9}));
  expect_unchanged();
}

TEST_F(BlockPoolTest, ALookupChangesNothing) {
  EXPECT_EQ(find(pool_, request_, 0), 1u);
  EXPECT_EQ(find(pool_, request_, 2), 4u);
  EXPECT_EQ(find(pool_, request_, 3), kNullBlockId);

  expect_unchanged();
}

TEST_F(BlockPoolTest, ALookupAnswersInTheOrderOfTheGroupsOrNotAtAll) {
  ASSERT_EQ(cache(pool_, request_, {3}, 0, 1, kBlockSize, 7), ErrorCode::kNone);
  const BlockHashView hash = request_.block_hashes(kBlockSize)[0];
  std::array<BlockId, 2> out{};

  EXPECT_TRUE(pool_.get_cached_block(hash, std::array<GroupId, 2>{7, 0}, out));
  EXPECT_EQ(out, (std::array<BlockId, 2>{3, 1}));
  EXPECT_FALSE(pool_.get_cached_block(hash, std::array<GroupId, 2>{0, 1}, out));
  EXPECT_TRUE(pool_.get_cached_block(hash, {}, {}));
}

// Upstream: test_maybe_evict_cached_block
TEST(BlockPool, DuplicatesOfAKeyLeaveOneByOneAndTheFirstSurvivorIsFound) {
  BlockPool pool(config_of(Profile::kV019, 6));
  const Request request = request_of(2);
  take(pool, 4);
  ASSERT_EQ(cache(pool, request, {1, 2}, 0, 2), ErrorCode::kNone);
  ASSERT_EQ(cache(pool, request, {3, 4}, 0, 2), ErrorCode::kNone);
  events_of(pool);
  EXPECT_EQ(pool.num_cached_keys(), 2u);
  EXPECT_EQ(find(pool, request, 0), 1u);

  ASSERT_EQ(pool.evict_blocks(Ids{2}), ErrorCode::kNone);
  EXPECT_EQ(find(pool, request, 1), 4u);
  ASSERT_EQ(pool.evict_blocks(Ids{1}), ErrorCode::kNone);
  EXPECT_EQ(find(pool, request, 0), 3u);
  EXPECT_EQ(pool.num_cached_keys(), 2u);
  ASSERT_EQ(pool.evict_blocks(Ids{3}), ErrorCode::kNone);
  EXPECT_EQ(find(pool, request, 0), kNullBlockId);
  EXPECT_EQ(pool.num_cached_keys(), 1u);
  ASSERT_EQ(pool.evict_blocks(Ids{4}), ErrorCode::kNone);
  EXPECT_EQ(pool.num_cached_keys(), 0u);

  const BlockRemoved first{hash_of(request, 0), std::nullopt};
  const BlockRemoved second{hash_of(request, 1), std::nullopt};
  EXPECT_EQ(events_of(pool), Events({second, first, first, second}));
}

TEST_F(BlockPoolTest, TouchTakesAFreeBlockOutOfTheQueueAndKeepsItsHash) {
  ASSERT_EQ(pool_.touch(Ids{6, 4}), ErrorCode::kNone);

  EXPECT_EQ(free_list(pool_), Ids({5, 7}));
  EXPECT_EQ(pool_.ref_cnt(4), 1u);
  EXPECT_EQ(pool_.block_key(4), key_of(request_, 2));
}

TEST_F(BlockPoolTest, TouchOfAReferencedBlockAddsAReferenceOnly) {
  ASSERT_EQ(pool_.touch(Ids{1}), ErrorCode::kNone);

  EXPECT_EQ(pool_.ref_cnt(1), 2u);
  EXPECT_EQ(free_list(pool_), before_.free_blocks);
}

TEST_F(BlockPoolTest, ABlockListedTwiceIsTouchedTwice) {
  ASSERT_EQ(pool_.touch(Ids{4, 4}), ErrorCode::kNone);

  EXPECT_EQ(pool_.ref_cnt(4), 2u);
  EXPECT_EQ(free_list(pool_), Ids({5, 6, 7}));
}

TEST_F(BlockPoolTest, TheNullBlockIsPassedOverEverywhere) {
  EXPECT_EQ(pool_.touch(Ids{0, 0}), ErrorCode::kNone);
  EXPECT_EQ(pool_.free_blocks(Ids{0, 0}, FreeTo::kTail), ErrorCode::kNone);
  EXPECT_EQ(pool_.evict_blocks(Ids{0}), ErrorCode::kNone);

  expect_unchanged();
}

TEST_F(BlockPoolTest, TouchOfAnUnknownBlockIsRefused) {
  EXPECT_EQ(pool_.touch(Ids{4, 8}), ErrorCode::kUnknownBlock);

  expect_unchanged();
}

TEST(BlockPool, FreedBlocksJoinTheTailInTheGivenOrder) {
  BlockPool pool(config_of(Profile::kV019, 6));
  take(pool, 3);

  ASSERT_EQ(pool.free_blocks(Ids{3, 0, 1}, FreeTo::kTail), ErrorCode::kNone);

  EXPECT_EQ(free_list(pool), Ids({4, 5, 3, 1}));
  EXPECT_EQ(pool.ref_cnt(2), 1u);
  EXPECT_EQ(pool.ref_cnt(3), 0u);
}

TEST_F(BlockPoolTest, FreedBlocksKeepTheirHash) {
  ASSERT_EQ(pool_.free_blocks(Ids{2, 1}, FreeTo::kTail), ErrorCode::kNone);

  EXPECT_EQ(find(pool_, request_, 0), 1u);
  EXPECT_EQ(pool_.block_key(2), key_of(request_, 1));
}

TEST_F(BlockPoolTest, ABlockThatIsStillReferencedStaysOut) {
  ASSERT_EQ(pool_.touch(Ids{1}), ErrorCode::kNone);

  ASSERT_EQ(pool_.free_blocks(Ids{1}, FreeTo::kTail), ErrorCode::kNone);

  EXPECT_EQ(pool_.ref_cnt(1), 1u);
  EXPECT_EQ(free_list(pool_), before_.free_blocks);
}

TEST_F(BlockPoolTest, ABlockListedTwiceMayBeReleasedTwiceIfAReferenceIsLeft) {
  ASSERT_EQ(pool_.touch(Ids{1, 1}), ErrorCode::kNone);

  ASSERT_EQ(pool_.free_blocks(Ids{1, 1}, FreeTo::kTail), ErrorCode::kNone);

  EXPECT_EQ(pool_.ref_cnt(1), 1u);
  EXPECT_EQ(free_list(pool_), before_.free_blocks);
}

TEST_F(BlockPoolTest, AReleaseBelowZeroIsADoubleFree) {
  EXPECT_EQ(pool_.free_blocks(Ids{3, 4}, FreeTo::kTail), ErrorCode::kDoubleFree);
  EXPECT_EQ(pool_.free_blocks(Ids{3, 3}, FreeTo::kTail), ErrorCode::kDoubleFree);

  expect_unchanged();
}

TEST_F(BlockPoolTest, ABlockThatWouldBeQueuedTwiceIsADoubleFree) {
  ASSERT_EQ(pool_.touch(Ids{3}), ErrorCode::kNone);
  before_ = observe(pool_);

  EXPECT_EQ(pool_.free_blocks(Ids{3, 3}, FreeTo::kTail), ErrorCode::kDoubleFree);

  expect_unchanged();
}

TEST_F(BlockPoolTest, FreeLooksForUnknownBlocksInTheWholeListFirst) {
  EXPECT_EQ(pool_.free_blocks(Ids{4, 8}, FreeTo::kTail), ErrorCode::kUnknownBlock);

  expect_unchanged();
}

TEST_F(BlockPoolTest, FreeToTheHeadIsNotInV019) {
  EXPECT_EQ(pool_.free_blocks(Ids{3, 8}, FreeTo::kHead), ErrorCode::kNotInProfile);
  EXPECT_EQ(pool_.free_blocks({}, FreeTo::kHead), ErrorCode::kNotInProfile);

  expect_unchanged();
}

TEST_F(BlockPoolV023Test, FreeToTheHeadPutsTheFirstNextInLine) {
  ASSERT_EQ(pool_.touch(Ids{1}), ErrorCode::kNone);

  ASSERT_EQ(pool_.free_blocks(Ids{3, 0, 1, 2}, FreeTo::kHead), ErrorCode::kNone);

  EXPECT_EQ(free_list(pool_), Ids({3, 2, 5, 6, 7, 4}));
  EXPECT_EQ(take(pool_, 1), Ids({3}));
}

TEST_F(BlockPoolV023Test, FreeToTheHeadRefusesLikeFreeToTheTail) {
  EXPECT_EQ(pool_.free_blocks(Ids{3, 8}, FreeTo::kHead), ErrorCode::kUnknownBlock);
  EXPECT_EQ(pool_.free_blocks(Ids{3, 4}, FreeTo::kHead), ErrorCode::kDoubleFree);

  expect_unchanged();
}

TEST_F(BlockPoolTest, EvictedBlocksKeepTheirReferencesAndTheirPlaceInTheQueue) {
  events_of(pool_);

  ASSERT_EQ(pool_.evict_blocks(Ids{4, 3, 1, 4}), ErrorCode::kNone);

  EXPECT_EQ(pool_.block_key(4), "");
  EXPECT_EQ(pool_.block_key(1), "");
  EXPECT_EQ(pool_.ref_cnt(1), 1u);
  EXPECT_EQ(free_list(pool_), before_.free_blocks);
  EXPECT_EQ(pool_.num_cached_keys(), 1u);
  EXPECT_EQ(events_of(pool_), Events({BlockRemoved{hash_of(request_, 2), std::nullopt},
                                      BlockRemoved{hash_of(request_, 0), std::nullopt}}));
}

TEST_F(BlockPoolTest, EvictionOfAnUnknownBlockIsRefused) {
  EXPECT_EQ(pool_.evict_blocks(Ids{1, 8}), ErrorCode::kUnknownBlock);

  expect_unchanged();
}

// Upstream: test_reset_prefix_cache
TEST_F(BlockPoolTest, ResetIsRefusedWhileABlockIsReferenced) {
  EXPECT_FALSE(pool_.reset_prefix_cache());
  expect_unchanged();

  ASSERT_EQ(pool_.free_blocks(Ids{3, 2}, FreeTo::kTail), ErrorCode::kNone);
  EXPECT_FALSE(pool_.reset_prefix_cache());
  ASSERT_EQ(pool_.free_blocks(Ids{1}, FreeTo::kTail), ErrorCode::kNone);
  events_of(pool_);

  EXPECT_TRUE(pool_.reset_prefix_cache());
  EXPECT_EQ(pool_.num_cached_keys(), 0u);
  EXPECT_EQ(pool_.block_counts(), (BlockCounts{.empty = 7, .cached = 0, .referenced = 1}));
  EXPECT_EQ(find(pool_, request_, 0), kNullBlockId);
  EXPECT_EQ(events_of(pool_), Events({AllBlocksCleared{}}));
}

TEST_F(BlockPoolTest, ResetKeepsTheOrderOfTheQueueAndLaterAllocationRemovesNothing) {
  ASSERT_EQ(pool_.free_blocks(Ids{2, 3, 1}, FreeTo::kTail), ErrorCode::kNone);
  ASSERT_TRUE(pool_.reset_prefix_cache());
  events_of(pool_);

  EXPECT_EQ(take(pool_, 7), Ids({5, 6, 7, 4, 2, 3, 1}));
  EXPECT_EQ(events_of(pool_), Events{});
}

// Upstream: test_cache_blocks
TEST(BlockPool, CachingGoesOnWhereItStopped) {
  for (const HashAlgorithm algorithm : {HashAlgorithm::kSha256Cbor, HashAlgorithm::kXxhashCbor}) {
    SCOPED_TRACE(to_text(algorithm));
    BlockPoolConfig config = config_of(Profile::kV019);
    config.hash.algorithm = algorithm;
    BlockPool pool(config);
    RequestSpec spec = spec_of(3);
    spec.tokens.resize(3 * kBlockSize + 2);
    const Request request(spec, config.hash);
    Ids blocks = take(pool, 2);

    ASSERT_EQ(cache(pool, request, blocks, 0, 2), ErrorCode::kNone);
    EXPECT_EQ(pool.num_cached_keys(), 2u);
    EXPECT_EQ(pool.block_key(1), key_of(request, 0));
    EXPECT_EQ(pool.block_key(2), key_of(request, 1));

    blocks.push_back(take(pool, 1).front());
    ASSERT_EQ(cache(pool, request, blocks, 2, 3), ErrorCode::kNone);
    EXPECT_EQ(pool.num_cached_keys(), 3u);
    EXPECT_EQ(pool.block_key(3), key_of(request, 2));
  }
}

// Upstream: test_kv_cache_events
TEST(BlockPool, EventsTellOfStoresThenOfRemovalsThenOfTheReset) {
  for (const std::uint32_t num_blocks : {2u, 3u, 10u}) {
    SCOPED_TRACE(num_blocks);
    BlockPool pool(config_of(Profile::kV019, num_blocks + 1));
    const Request old_request = request_of(num_blocks);
    const Request new_request = request_of(num_blocks, 1000);

    Ids blocks = take(pool, num_blocks);
    ASSERT_EQ(cache(pool, old_request, blocks, 0, num_blocks), ErrorCode::kNone);
    const Events stored = events_of(pool);
    ASSERT_EQ(stored.size(), 1u);
    EXPECT_EQ(std::get<BlockStored>(stored[0]).block_hashes.size(), num_blocks);
    EXPECT_EQ(events_of(pool), Events{});

    ASSERT_EQ(pool.free_blocks(blocks, FreeTo::kTail), ErrorCode::kNone);
    blocks = take(pool, num_blocks);
    ASSERT_EQ(cache(pool, new_request, blocks, 0, num_blocks), ErrorCode::kNone);
    const Events replaced = events_of(pool);
    ASSERT_EQ(replaced.size(), num_blocks + 1);
    for (std::size_t i = 0; i < num_blocks; ++i) {
      EXPECT_EQ(std::get<BlockRemoved>(replaced[i]).block_hash, hash_of(old_request, i));
    }
    EXPECT_EQ(std::get<BlockStored>(replaced.back()).block_hashes.size(), num_blocks);

    ASSERT_EQ(pool.free_blocks(blocks, FreeTo::kTail), ErrorCode::kNone);
    ASSERT_TRUE(pool.reset_prefix_cache());
    EXPECT_EQ(events_of(pool), Events({AllBlocksCleared{}}));
  }
}

// Upstream: test_null_parent_block_hash
TEST(BlockPool, TheParentHashIsTheRequestsAlthoughANullBlockStandsThere) {
  BlockPool pool(config_of(Profile::kV019));
  const Request request = request_of(3);
  take(pool, 2);

  ASSERT_EQ(cache(pool, request, {0, 1, 2}, 1, 3), ErrorCode::kNone);

  const Events events = events_of(pool);
  ASSERT_EQ(events.size(), 1u);
  const auto& stored = std::get<BlockStored>(events[0]);
  EXPECT_EQ(stored.parent_block_hash, hash_of(request, 0));
  EXPECT_EQ(stored.block_hashes,
            std::vector<BlockHash>({hash_of(request, 1), hash_of(request, 2)}));
}

TEST(BlockPool, AStoredEventHasTheTokensOfTheWholeRangeAndTheHashesOfTheCachedBlocks) {
  BlockPool pool(config_of(Profile::kV019));
  const Request request = request_of(3);
  take(pool, 2);

  ASSERT_EQ(cache(pool, request, {1, 0, 2}, 0, 3), ErrorCode::kNone);

  BlockStored expected;
  expected.block_hashes = {hash_of(request, 0), hash_of(request, 2)};
  expected.token_ids = request.all_token_ids();
  expected.block_size = kBlockSize;
  expected.extra_keys = {std::nullopt, std::nullopt};
  EXPECT_EQ(events_of(pool), Events({expected}));
  EXPECT_EQ(pool.num_cached_keys(), 2u);
}

TEST(BlockPool, ARangeOfPassedOverBlocksIsToldByAnEventWithoutHashes) {
  BlockPool pool(config_of(Profile::kV019));
  const Request request = request_of(2);

  ASSERT_EQ(cache(pool, request, {0, 0}, 1, 2), ErrorCode::kNone);

  BlockStored expected;
  expected.parent_block_hash = hash_of(request, 0);
  expected.token_ids = {4, 5, 6, 7};
  expected.block_size = kBlockSize;
  EXPECT_EQ(events_of(pool), Events({expected}));
  EXPECT_EQ(pool.num_cached_keys(), 0u);
}

TEST(BlockPool, AStoredEventHasLoraAndExtraKeysOfEachCachedBlock) {
  BlockPool pool(config_of(Profile::kV019));
  RequestSpec spec = spec_of(3);
  spec.lora = LoraRequest{"adapter", 5};
  spec.cache_salt = "salt";
  spec.mm_features = {{"image", 3, 4}};
  const Request request(spec, HashConfig{});
  take(pool, 3);

  ASSERT_EQ(cache(pool, request, {1, 2, 3}, 0, 3), ErrorCode::kNone);

  const Events events = events_of(pool);
  ASSERT_EQ(events.size(), 1u);
  const auto& stored = std::get<BlockStored>(events[0]);
  EXPECT_EQ(stored.lora, spec.lora);
  EXPECT_EQ(stored.extra_keys, (std::vector<std::optional<ExtraKeys>>{
                                   ExtraKeys{"adapter", MmExtraKey{"image", 3}, "salt"},
                                   ExtraKeys{"adapter", MmExtraKey{"image", -1}},
                                   ExtraKeys{"adapter"},
                               }));
}

TEST(BlockPool, ExtraKeysOfAPassedOverBlockAreLeftOut) {
  BlockPool pool(config_of(Profile::kV019));
  RequestSpec spec = spec_of(3);
  spec.mm_features = {{"first", 0, 2}, {"second", 5, 6}};
  const Request request(spec, HashConfig{});
  take(pool, 2);

  ASSERT_EQ(cache(pool, request, {1, 0, 2}, 0, 3), ErrorCode::kNone);

  const Events events = events_of(pool);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(std::get<BlockStored>(events[0]).extra_keys,
            (std::vector<std::optional<ExtraKeys>>{ExtraKeys{MmExtraKey{"first", 0}},
                                                   ExtraKeys{MmExtraKey{"second", -3}}}));
}

TEST(BlockPool, TheMultimodalCursorOfAnEventGoesFromBlockToBlock) {
  BlockPool pool(config_of(Profile::kV019));
  RequestSpec spec = spec_of(2);
  spec.mm_features = {{"first", 0, 2}, {"second", 4, 1}, {"third", 5, 1}};
  const Request request(spec, HashConfig{});
  take(pool, 2);

  ASSERT_EQ(cache(pool, request, {1, 2}, 0, 2), ErrorCode::kNone);

  const Events events = events_of(pool);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(std::get<BlockStored>(events[0]).extra_keys,
            (std::vector<std::optional<ExtraKeys>>{
                ExtraKeys{MmExtraKey{"first", 0}},
                ExtraKeys{MmExtraKey{"second", 0}, MmExtraKey{"third", 1}}}));
}

// A block that generated tokens complete is hashed with the last item alone; its event names all
// items all the same.
TEST(BlockPool, TheMultimodalCursorOfAnEventStartsAtTheFirstItem) {
  BlockPool pool(config_of(Profile::kV019));
  RequestSpec spec = spec_of(1);
  spec.mm_features = {{"first", 4, 1}, {"second", 5, 1}};
  Request request(spec, HashConfig{});
  request.append_output_token_ids(std::vector<TokenId>{4, 5, 6, 7});
  take(pool, 2);

  ASSERT_EQ(cache(pool, request, {1, 2}, 1, 2), ErrorCode::kNone);

  const Events events = events_of(pool);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(std::get<BlockStored>(events[0]).extra_keys,
            (std::vector<std::optional<ExtraKeys>>{
                ExtraKeys{MmExtraKey{"first", 0}, MmExtraKey{"second", 1}}}));
}

TEST(BlockPool, ALargerBlockIsNamedByTheHashesItSpans) {
  BlockPool pool(config_of(Profile::kV019));
  const Request request = request_of(5);
  take(pool, 2);

  ASSERT_EQ(cache(pool, request, {1, 2}, 1, 2, 2 * kBlockSize), ErrorCode::kNone);

  const std::string merged = hash_of(request, 2) + hash_of(request, 3);
  EXPECT_EQ(pool.block_key(2), make_block_hash_with_group_id(merged, kGroup));
  const Events events = events_of(pool);
  ASSERT_EQ(events.size(), 1u);
  const auto& stored = std::get<BlockStored>(events[0]);
  EXPECT_EQ(stored.block_hashes, std::vector<BlockHash>({merged}));
  EXPECT_EQ(stored.parent_block_hash, hash_of(request, 0) + hash_of(request, 1));
  EXPECT_EQ(stored.token_ids, std::vector<TokenId>({8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(stored.block_size, 2 * kBlockSize);
}

TEST(BlockPool, GroupsHaveKeysOfTheirOwn) {
  BlockPool pool(config_of(Profile::kV019));
  const Request request = request_of(1);
  take(pool, 2);
  ASSERT_EQ(cache(pool, request, {1}, 0, 1, kBlockSize, 0), ErrorCode::kNone);
  ASSERT_EQ(cache(pool, request, {2}, 0, 1, kBlockSize, 258), ErrorCode::kNone);

  EXPECT_EQ(pool.num_cached_keys(), 2u);
  EXPECT_EQ(find(pool, request, 0, 0), 1u);
  EXPECT_EQ(find(pool, request, 0, 258), 2u);
  EXPECT_EQ(find(pool, request, 0, 2), kNullBlockId);
}

TEST_F(BlockPoolTest, AnEmptyRangeIsNothingWhateverElseIsWrong) {
  EXPECT_EQ(cache(pool_, request_, {}, 2, 2), ErrorCode::kNone);
  EXPECT_EQ(cache(pool_, request_, {8}, 3, 1, 0), ErrorCode::kNone);

  expect_unchanged();
}

TEST_F(BlockPoolTest, BlocksOutsideTheRangeAreNotLookedAt) {
  EXPECT_EQ(cache(pool_, request_, {99, 1, 2, 3, 99}, 3, 4), ErrorCode::kNone);

  EXPECT_EQ(find(pool_, request_, 3), 3u);
}

TEST_F(BlockPoolTest, AMaskIsNotInV019EvenForAnEmptyRange) {
  EXPECT_EQ(cache_masked(pool_, request_, {3}, 0, 1, {1}), ErrorCode::kNotInProfile);
  EXPECT_EQ(cache_masked(pool_, request_, {3}, 1, 1, {}), ErrorCode::kNotInProfile);

  expect_unchanged();
}

TEST(BlockPool, CachingIntoAPoolWithoutCachingIsRefused) {
  BlockPoolConfig config = config_of(Profile::kV019);
  config.enable_caching = false;
  BlockPool pool(config);
  const Request request = request_of(1);
  take(pool, 1);
  const Observed before = observe(pool);

  EXPECT_EQ(cache(pool, request, {1}, 0, 1, 0), ErrorCode::kCachingDisabled);
  EXPECT_EQ(cache(pool, request, {1}, 1, 1), ErrorCode::kNone);

  EXPECT_TRUE(observe(pool) == before);
}

TEST_F(BlockPoolTest, ABlockSizeThatNoGroupHasIsRefused) {
  const std::uint32_t too_large = 3 * kBlockSize;

  EXPECT_EQ(cache(pool_, request_, {3}, 0, 2, 0), ErrorCode::kBadBlockSize);
  EXPECT_EQ(cache(pool_, request_, {3}, 0, 2, kBlockSize + 1), ErrorCode::kBadBlockSize);
  EXPECT_EQ(cache(pool_, request_, {3}, 0, 2, too_large), ErrorCode::kBadBlockSize);

  expect_unchanged();
}

TEST_F(BlockPoolTest, ARangeBeyondTheListOfBlocksIsRefused) {
  EXPECT_EQ(cache(pool_, request_, {5, 6, 8, 5}, 0, 5), ErrorCode::kBadRange);

  expect_unchanged();
}

TEST_F(BlockPoolTest, ARangeBeyondTheHashesIsRefused) {
  EXPECT_EQ(cache(pool_, request_, {3, 8, 5, 6, 7}, 0, 5), ErrorCode::kMissingHash);
  EXPECT_EQ(cache(pool_, request_, {3, 5, 6}, 0, 3, 2 * kBlockSize), ErrorCode::kMissingHash);

  expect_unchanged();
}

TEST_F(BlockPoolTest, AnUnknownBlockInTheRangeIsRefused) {
  EXPECT_EQ(cache(pool_, request_, {1, 8}, 0, 2), ErrorCode::kUnknownBlock);

  expect_unchanged();
}

TEST_F(BlockPoolTest, ABlockThatCarriesAHashIsRefused) {
  EXPECT_EQ(cache(pool_, request_, {3, 1}, 0, 2), ErrorCode::kAlreadyHashed);

  expect_unchanged();
}

TEST_F(BlockPoolTest, ABlockThatStandsTwiceInTheRangeIsRefused) {
  EXPECT_EQ(cache(pool_, request_, {3, 5, 3}, 0, 3), ErrorCode::kAlreadyHashed);

  expect_unchanged();
}

TEST_F(BlockPoolV023Test, MaskedOutBlocksArePassedOver) {
  events_of(pool_);
  take(pool_, 2);

  ASSERT_EQ(cache_masked(pool_, request_, {3, 5, 6}, 0, 3, {1, 0, 1}), ErrorCode::kNone);

  EXPECT_EQ(pool_.block_key(5), "");
  EXPECT_EQ(pool_.block_key(6), key_of(request_, 2));
  const Events events = events_of(pool_);
  ASSERT_EQ(events.size(), 1u);
  const auto& stored = std::get<BlockStored>(events[0]);
  EXPECT_EQ(stored.block_hashes,
            std::vector<BlockHash>({hash_of(request_, 0), hash_of(request_, 2)}));
  EXPECT_EQ(stored.token_ids.size(), 3 * kBlockSize);
  EXPECT_EQ(stored.extra_keys.size(), 2u);
}

TEST_F(BlockPoolV023Test, TheMaskBelongsToTheRangeNotToTheRequest) {
  ASSERT_EQ(cache_masked(pool_, request_, {1, 2, 3, 5}, 2, 4, {1, 0}), ErrorCode::kNone);

  EXPECT_EQ(pool_.block_key(3), key_of(request_, 2));
  EXPECT_EQ(pool_.block_key(5), "");
}

TEST_F(BlockPoolV023Test, AMaskedOutBlockMayCarryAHashOrStandTwice) {
  EXPECT_EQ(cache_masked(pool_, request_, {1, 3, 3}, 0, 3, {0, 0, 1}), ErrorCode::kNone);

  EXPECT_EQ(pool_.block_key(1), key_of(request_, 0));
  EXPECT_EQ(pool_.block_key(3), key_of(request_, 2));
}

TEST_F(BlockPoolV023Test, AnUnknownBlockIsRefusedThoughMaskedOut) {
  EXPECT_EQ(cache_masked(pool_, request_, {3, 8}, 0, 2, {1, 0}), ErrorCode::kUnknownBlock);

  expect_unchanged();
}

TEST_F(BlockPoolV023Test, AMaskOfAnotherLengthIsRefused) {
  EXPECT_EQ(cache_masked(pool_, request_, {3, 8}, 0, 2, {1}), ErrorCode::kBadMask);
  EXPECT_EQ(cache_masked(pool_, request_, {3, 8}, 1, 2, {1, 1}), ErrorCode::kBadMask);
  EXPECT_EQ(cache_masked(pool_, request_, {3, 5, 6, 7, 8}, 0, 5, {1}), ErrorCode::kBadMask);

  expect_unchanged();
}

TEST_F(BlockPoolV023Test, EventsCarryTheGroup) {
  events_of(pool_);

  ASSERT_EQ(cache(pool_, request_, {3}, 0, 1, kBlockSize, 258), ErrorCode::kNone);
  ASSERT_EQ(pool_.evict_blocks(Ids{3}), ErrorCode::kNone);

  const Events events = events_of(pool_);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(std::get<BlockStored>(events[0]).group_idx, 258u);
  EXPECT_EQ(std::get<BlockRemoved>(events[1]).group_idx, 258u);
}

TEST_F(BlockPoolTest, TakeEventsOverwritesAndEmptiesTheLog) {
  Events events(5, AllBlocksCleared{});

  pool_.take_events(events);
  EXPECT_EQ(events, before_.events);
  EXPECT_EQ(events.size(), 2u);
  pool_.take_events(events);
  EXPECT_EQ(events, Events{});
}

TEST(BlockPool, WithoutEventsNothingIsTold) {
  BlockPoolConfig config = config_of(Profile::kV019);
  config.enable_kv_cache_events = false;
  BlockPool pool(config);
  const Request request = request_of(1);
  take(pool, 1);
  Events events(1, AllBlocksCleared{});

  ASSERT_EQ(cache(pool, request, {1}, 0, 1), ErrorCode::kNone);
  ASSERT_EQ(pool.evict_blocks(Ids{1}), ErrorCode::kNone);
  ASSERT_EQ(pool.free_blocks(Ids{1}, FreeTo::kTail), ErrorCode::kNone);
  ASSERT_TRUE(pool.reset_prefix_cache());

  pool.take_events(events);
  EXPECT_EQ(events, Events{});
}

}  // namespace
}  // namespace kvfence::reference
