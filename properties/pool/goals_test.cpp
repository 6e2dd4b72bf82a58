#include "properties/pool/goals.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/goals_test_support.h"

namespace kvfence::block_pool {
namespace {

using Situations = std::vector<Reached>;

/// Requests A (two hashes) and B (the same first hash), hash_block_size 2.
World small_world() {
  BlockPoolConfig config;
  config.hash.hash_block_size = 2;
  World world(config);
  world.apply(DeclareRequest{"A", {1, 2, 3, 4}, std::nullopt, 0, std::nullopt, {}});
  world.apply(DeclareRequest{"B", {1, 2, 9}, std::nullopt, 0, std::nullopt, {}});
  return world;
}

/// What counting this one command adds.
Situations reached_by(const Command& command, const Observation& before, const Observation& after,
                      const World& world = small_world()) {
  Reach reach;
  reach.count(command, before, after, world);
  return counted_between(Reach(), reach);
}

Observation numbers(std::uint32_t num_free, std::uint32_t num_cached, std::uint32_t num_keys) {
  Observation shown;
  shown.num_free_blocks = num_free;
  shown.num_cached = num_cached;
  shown.num_empty = num_free - num_cached;
  shown.num_cached_keys = num_keys;
  return shown;
}

Observation with_state(Observation shown, std::vector<std::uint32_t> ref_cnts,
                       const std::vector<std::string_view>& keys) {
  shown.ref_cnts.emplace() = std::move(ref_cnts);
  const World world = small_world();
  for (std::string_view key : keys) {
    shown.keys.emplace().push_back(key.empty() ? "" : world.requests().resolve(key).value());
  }
  return shown;
}

Observation with_hit(Observation shown, std::optional<std::vector<BlockId>> blocks) {
  shown.hit.emplace() = blocks.has_value();
  if (blocks) shown.blocks.emplace() = *blocks;
  return shown;
}

CacheFullBlocks cache_of(std::vector<BlockId> blocks, std::uint32_t block_size = 2) {
  const auto end = static_cast<std::uint32_t>(blocks.size());
  return {"A", std::move(blocks), 0, end, block_size, 0, std::nullopt};
}

TEST(Reach, NamesAreUniqueAndEveryGoalIsPositive) { expect_named_once_and_positive(Reach()); }

TEST(Reach, CountsAllocation) {
  EXPECT_EQ(reached_by(GetNewBlocks{1}, numbers(3, 1, 1), numbers(2, 0, 0)),
            Situations{Reached::kEvictionOnAllocation});
  EXPECT_EQ(reached_by(GetNewBlocks{1}, numbers(1, 0, 0), numbers(0, 0, 0)),
            Situations{Reached::kPoolExhausted});
  EXPECT_EQ(reached_by(GetNewBlocks{0}, numbers(0, 0, 0), numbers(0, 0, 0)), Situations{});
  EXPECT_EQ(reached_by(GetNewBlocks{1}, numbers(3, 1, 1), numbers(2, 1, 1)), Situations{});
}

TEST(Reach, CountsLookups) {
  const Observation before;
  const Observation two_groups = with_state({}, {0, 1, 1}, {"", "A:0/0", "A:0/1"});
  const Command both = GetCachedBlock{"A", 0, 2, {0, 1}};
  EXPECT_EQ(reached_by(both, before, with_hit(two_groups, {{1, 2}})),
            Situations{Reached::kMultiGroupHit});

  const Observation one_group = with_state({}, {0, 1, 1}, {"", "A:0/0", "A:1/0"});
  EXPECT_EQ(reached_by(both, before, with_hit(one_group, std::nullopt)),
            Situations{Reached::kMultiGroupMissByOneGroup});
  const Command neither = GetCachedBlock{"A", 0, 2, {1, 2}};
  EXPECT_EQ(reached_by(neither, before, with_hit(one_group, std::nullopt)), Situations{});

  const Command lookup = GetCachedBlock{"B", 0, 2, {0}};
  EXPECT_EQ(reached_by(lookup, before, with_hit(one_group, {{1}})), Situations{});
  const Observation duplicates = with_state({}, {0, 1, 1}, {"", "A:0/0", "B:0/0"});
  EXPECT_EQ(reached_by(lookup, before, with_hit(duplicates, {{1}})),
            Situations{Reached::kLookupHitOnDuplicate});
}

TEST(Reach, CountsTouches) {
  const Observation after;
  const Observation hit = with_hit(with_state({}, {0, 0, 1, 0}, {"", "A:0/0", "A:1/0", ""}), {{1}});
  EXPECT_EQ(reached_by(Touch{{1}}, hit, after), Situations{Reached::kHitOnFreeBlockThenTouch});
  EXPECT_EQ(reached_by(Touch{{3}}, hit, after), Situations{});
  const Observation hit_on_held =
      with_hit(with_state({}, {0, 0, 1, 0}, {"", "A:0/0", "A:1/0", ""}), {{2}});
  EXPECT_EQ(reached_by(Touch{{2}}, hit_on_held, after), Situations{});
  EXPECT_EQ(reached_by(Touch{{2, 3, 2}}, {}, after), Situations{Reached::kBlockTouchedTwice});
  EXPECT_EQ(reached_by(Touch{{0, 2, 0}}, {}, after), Situations{Reached::kNullBlockInList});
}

TEST(Reach, CountsCaching) {
  const Observation before = numbers(0, 0, 1);
  EXPECT_EQ(reached_by(cache_of({1, 2}), before, numbers(0, 0, 3)), Situations{});
  EXPECT_EQ(reached_by(cache_of({1, 2}), before, numbers(0, 0, 2)),
            Situations{Reached::kDuplicateKeyCached});
  EXPECT_EQ(reached_by(cache_of({1}, 4), before, numbers(0, 0, 2)),
            Situations{Reached::kMergedHashCached});
  EXPECT_EQ(reached_by(cache_of({0}, 4), before, before), Situations{Reached::kNullBlockInList});
  CacheFullBlocks masked = cache_of({1, 2});
  masked.block_mask = {false, true};
  EXPECT_EQ(reached_by(masked, before, numbers(0, 0, 2)), Situations{Reached::kBlockMaskedOut});
  CacheFullBlocks masked_null = cache_of({0, 2});
  masked_null.block_mask = {false, true};
  EXPECT_EQ(reached_by(masked_null, before, numbers(0, 0, 2)),
            Situations{Reached::kNullBlockInList});
}

TEST(Reach, CountsFreeing) {
  const Observation before = numbers(1, 0, 0);
  EXPECT_EQ(reached_by(FreeBlocks{{1}, false}, before, numbers(2, 0, 0)), Situations{});
  EXPECT_EQ(reached_by(FreeBlocks{{1}, true}, before, before),
            Situations{Reached::kFreedBlockStaysReferenced});
  EXPECT_EQ(reached_by(FreeBlocks{{1}, true}, before, numbers(2, 0, 0)),
            Situations{Reached::kFreePrepended});
  EXPECT_EQ(reached_by(FreeBlocks{{0}, false}, before, before),
            Situations{Reached::kNullBlockInList});
}

TEST(Reach, CountsEvictionAndReset) {
  const Observation before = with_state(numbers(1, 1, 2), {0, 0, 1}, {"", "A:0/0", "A:1/0"});
  EXPECT_EQ(reached_by(EvictBlocks{{1}}, before, numbers(1, 0, 1)),
            Situations{Reached::kFreeBlockEvicted});
  EXPECT_EQ(reached_by(EvictBlocks{{2}}, before, numbers(1, 1, 1)),
            Situations{Reached::kReferencedBlockEvicted});
  EXPECT_EQ(reached_by(EvictBlocks{{0}}, before, before), Situations{Reached::kNullBlockInList});

  Observation after;
  after.success.emplace() = true;
  EXPECT_EQ(reached_by(ResetPrefixCache{}, before, after), Situations{Reached::kResetDone});
  EXPECT_EQ(reached_by(ResetPrefixCache{}, numbers(2, 0, 0), after), Situations{});
  after.success.emplace() = false;
  EXPECT_EQ(reached_by(ResetPrefixCache{}, before, after), Situations{Reached::kResetRefused});
}

TEST(Reach, CountsEvents) {
  const auto reached = [](BlockStored stored) {
    Observation after;
    after.events.emplace() = {AllBlocksCleared{}, std::move(stored)};
    return reached_by(TakeEvents{}, {}, after);
  };
  BlockStored stored;
  EXPECT_EQ(reached(stored), Situations{Reached::kStoredEventWithoutHashes});
  stored.block_hashes = {"h"};
  stored.extra_keys = {std::nullopt};
  EXPECT_EQ(reached(stored), Situations{});
  stored.extra_keys = {ExtraKeys{std::string("salt")}};
  EXPECT_EQ(reached(stored), Situations{Reached::kStoredEventWithExtraKeys});
  stored.extra_keys = {std::nullopt};
  stored.parent_block_hash = "p";
  EXPECT_EQ(reached(stored), Situations{Reached::kStoredEventWithParent});
}

TEST(Reach, CountsCompletedHashes) {
  World world = small_world();
  const auto append = [&](std::vector<TokenId> tokens) {
    const Command command = AppendTokens{"B", std::move(tokens)};
    world.apply(command);
    return reached_by(command, {}, {}, world);
  };
  EXPECT_EQ(append({4}), Situations{Reached::kAppendCompletesHash});     // 4 tokens
  EXPECT_EQ(append({5}), Situations{});                                  // 5
  EXPECT_EQ(append({}), Situations{});                                   // 5
  EXPECT_EQ(append({6, 7}), Situations{Reached::kAppendCompletesHash});  // 7
}

TEST(Reach, CountsEveryRefusalOfAPoolOnce) {
  const std::vector<std::pair<ErrorCode, std::string_view>> codes = {
      {ErrorCode::kUnknownRequest, "error_unknown_request"},
      {ErrorCode::kUnknownBlock, "error_unknown_block"},
      {ErrorCode::kNoFreeBlocks, "error_no_free_blocks"},
      {ErrorCode::kNotInProfile, "error_not_in_profile"},
      {ErrorCode::kCachingDisabled, "error_caching_disabled"},
      {ErrorCode::kBadBlockSize, "error_bad_block_size"},
      {ErrorCode::kBadRange, "error_bad_range"},
      {ErrorCode::kBadMask, "error_bad_mask"},
      {ErrorCode::kMissingHash, "error_missing_hash"},
      {ErrorCode::kAlreadyHashed, "error_already_hashed"},
      {ErrorCode::kDoubleFree, "error_double_free"},
  };
  for (const auto& [error, name] : codes) {
    Observation after = numbers(0, 0, 0);
    after.error = error;
    // A refused command counts as its refusal and as nothing else.
    const Situations reached = reached_by(Touch{{0, 1, 1}}, numbers(1, 1, 1), after);
    ASSERT_EQ(reached.size(), 1U) << name;
    EXPECT_EQ(kReachGoals[static_cast<std::size_t>(reached[0])].name, name);
  }
}

// The answer of a faulty pool is counted without harm.
TEST(Reach, SurvivesAnswersThatShouldHaveBeenRefused) {
  CacheFullBlocks beyond = cache_of({1});
  beyond.num_full_blocks = 5;
  beyond.block_mask.emplace();
  EXPECT_EQ(reached_by(beyond, numbers(0, 0, 0), numbers(0, 0, 1)), Situations{});
  const Observation miss = with_hit(with_state({}, {0, 1}, {"", "A:0/0"}), std::nullopt);
  EXPECT_EQ(reached_by(GetCachedBlock{"A", 9, 2, {0, 1}}, {}, miss), Situations{});
  EXPECT_EQ(reached_by(GetCachedBlock{"A", 0, 0, {0, 1}}, {}, miss), Situations{});
  EXPECT_EQ(reached_by(GetCachedBlock{"Z", 0, 2, {0, 1}}, {}, miss), Situations{});
  const Observation hit = with_hit(with_state({}, {0, 1}, {"", "A:0/0"}), {{77}});
  EXPECT_EQ(reached_by(GetCachedBlock{"A", 0, 2, {0}}, {}, hit), Situations{});
  EXPECT_EQ(reached_by(Touch{{77}}, hit, {}), Situations{});
  EXPECT_EQ(reached_by(EvictBlocks{{77}}, hit, {}), Situations{});
}

TEST(Reach, GoalsAreReachedAllOrNot) {
  Reach reach;
  EXPECT_FALSE(reach.all_reached());
  // Every goal but one, by hand, is not all of them.
  Observation refused;
  const World world = small_world();
  refused.error = ErrorCode::kDoubleFree;
  reach.count(FreeBlocks{}, {}, refused, world);
  EXPECT_FALSE(reach.all_reached());
  const auto at = static_cast<std::size_t>(Reached::kErrorDoubleFree);
  EXPECT_TRUE(reach.goal(at).reached());
  EXPECT_EQ(reach.goal(at).name, "error_double_free");
  EXPECT_FALSE(reach.goal(0).reached());

  Reach other = reach;
  other.merge(reach);
  EXPECT_EQ(other.count_of(Reached::kErrorDoubleFree), 2U);
  EXPECT_EQ(reach.count_of(Reached::kErrorDoubleFree), 1U);
}

/// Reaches every goal by hand, except one that is left out.
Reach reach_all_but(std::optional<Reached> left_out) {
  Reach all;
  const World world = small_world();
  const auto count = [&](Reached reached, const Command& command, const Observation& before,
                         const Observation& after) {
    if (left_out != reached) all.count(command, before, after, world);
  };
  const Observation none;
  count(Reached::kEvictionOnAllocation, GetNewBlocks{1}, numbers(3, 1, 1), numbers(2, 0, 0));
  count(Reached::kPoolExhausted, GetNewBlocks{1}, numbers(1, 0, 0), numbers(0, 0, 0));
  const Observation duplicates = with_state({}, {0, 1, 1}, {"", "A:0/0", "B:0/0"});
  count(Reached::kLookupHitOnDuplicate, GetCachedBlock{"A", 0, 2, {0}}, none,
        with_hit(duplicates, {{1}}));
  const Observation keyed = with_state(numbers(1, 1, 2), {0, 0, 1}, {"", "A:0/0", "A:1/0"});
  count(Reached::kMultiGroupHit, GetCachedBlock{"A", 0, 2, {0, 0}}, none,
        with_hit(keyed, {{1, 1}}));
  count(Reached::kMultiGroupMissByOneGroup, GetCachedBlock{"A", 0, 2, {0, 1}}, none,
        with_hit(keyed, std::nullopt));
  count(Reached::kHitOnFreeBlockThenTouch, Touch{{1}}, with_hit(keyed, {{1}}), none);
  count(Reached::kBlockTouchedTwice, Touch{{2, 2}}, none, none);
  count(Reached::kDuplicateKeyCached, cache_of({1}), none, none);
  count(Reached::kMergedHashCached, cache_of({1}, 4), none, numbers(0, 0, 1));
  CacheFullBlocks masked = cache_of({1});
  masked.block_mask = {false};
  count(Reached::kBlockMaskedOut, masked, none, none);
  count(Reached::kNullBlockInList, Touch{{0}}, none, none);
  count(Reached::kFreedBlockStaysReferenced, FreeBlocks{{1}, false}, none, none);
  count(Reached::kFreePrepended, FreeBlocks{{1}, true}, none, numbers(1, 0, 0));
  count(Reached::kReferencedBlockEvicted, EvictBlocks{{2}}, keyed, keyed);
  count(Reached::kFreeBlockEvicted, EvictBlocks{{1}}, keyed, numbers(1, 0, 1));
  Observation reset;
  reset.success.emplace() = true;
  count(Reached::kResetDone, ResetPrefixCache{}, keyed, reset);
  reset.success.emplace() = false;
  count(Reached::kResetRefused, ResetPrefixCache{}, keyed, reset);
  const auto taken = [](BlockStored stored) {
    Observation after;
    after.events.emplace() = {std::move(stored)};
    return after;
  };
  BlockStored stored;
  count(Reached::kStoredEventWithoutHashes, TakeEvents{}, none, taken(stored));
  stored.block_hashes = {"h"};
  stored.extra_keys = {ExtraKeys{std::string("salt")}};
  count(Reached::kStoredEventWithExtraKeys, TakeEvents{}, none, taken(stored));
  stored.extra_keys = {std::nullopt};
  stored.parent_block_hash = "p";
  count(Reached::kStoredEventWithParent, TakeEvents{}, none, taken(stored));
  count(Reached::kAppendCompletesHash, AppendTokens{"A", {3, 4}}, none, none);
  for (int code = 1; code < kNumErrorCodes; ++code) {
    Observation refused;
    refused.error = static_cast<ErrorCode>(code);
    const std::string name = "error_" + std::string(to_text(refused.error));
    for (const ReachGoal& goal : kReachGoals) {
      if (goal.name == name) count(goal.reached, Touch{}, none, refused);
    }
  }
  return all;
}

TEST(Reach, AllReachedMeansEachGoal) {
  EXPECT_TRUE(reach_all_but(std::nullopt).all_reached());
  for (const ReachGoal& goal : kReachGoals) {
    const Reach reach = reach_all_but(goal.reached);
    EXPECT_FALSE(reach.all_reached()) << goal.name;
    EXPECT_EQ(reach.count_of(goal.reached), 0U) << goal.name;
  }
}

}  // namespace
}  // namespace kvfence::block_pool
