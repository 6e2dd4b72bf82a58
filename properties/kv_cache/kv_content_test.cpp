/// Goal: the state of a Mamba group in align mode is followed from block to block, and lost where
/// upstream would lose it. Method: runs of one request, whose blocks hold 4 tokens each.

#include "properties/kv_cache/kv_content.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "properties/kv_cache/group_draws.h"

namespace kvfence {
namespace {

constexpr std::uint32_t kNumTokens = 12;

class OneState {
 public:
  OneState() {
    for (TokenId token = 0; token < kNumTokens; ++token) prefixes.append(token);
    groups.front().mamba_align = true;
  }

  /// Computes tokens [begin, end); returns the blocks that are written.
  std::vector<BlockId> compute(std::uint32_t begin, std::uint32_t end,
                               const std::vector<BlockId>& table, bool has_drafts = false) {
    run = {.request = "A", .begin = begin, .end = end, .table = {table}, .has_drafts = has_drafts};
    std::vector<BlockId> written;
    for (const Filled& filled : filled_by(run, prefixes, groups, blocks)) {
      written.push_back(filled.block);
      blocks[filled.block] = filled.content;
    }
    return written;
  }

  /// Whether the block has the state after the last of these tokens.
  bool holds(BlockId block, std::uint32_t begin, std::uint32_t end) const {
    return passes_for(blocks[block], {prefixes.id(end), begin, end, /*group=*/0});
  }

  bool last_run_is_right() const { return !wrong_read(run, prefixes, groups, blocks); }

  Prefixes prefixes;
  std::vector<KVCacheSpec> groups = {mamba(4)};
  std::vector<Content> blocks = std::vector<Content>(6);
  Run run;
};

using Blocks = std::vector<BlockId>;

TEST(KVContent, AStateMovesToTheBlockOfTheLastToken) {
  OneState state;
  EXPECT_EQ(state.compute(0, 8, {kNullBlockId, 1}), Blocks({1}));
  EXPECT_TRUE(state.holds(1, 4, 8));
  EXPECT_TRUE(state.last_run_is_right());
  EXPECT_EQ(state.compute(8, 9, {kNullBlockId, 1, 2}), Blocks({2}));
  EXPECT_EQ(state.compute(9, 10, {kNullBlockId, 1, 2}), Blocks({2}));
  EXPECT_TRUE(state.holds(1, 4, 8));
  EXPECT_TRUE(state.holds(2, 8, 10));
  EXPECT_TRUE(state.last_run_is_right());
}

TEST(KVContent, AStateIsLostWithTheBlockOfTheTokenBefore) {
  for (const std::uint32_t begin : {8U, 9U}) {
    OneState state;
    state.compute(0, begin, begin == 8 ? Blocks{0, 1} : Blocks{0, 1, 2});
    state.blocks[begin == 8 ? 1 : 2] = {};  // given to somebody else
    state.compute(begin, 10, {kNullBlockId, 1, 2});
    EXPECT_FALSE(state.last_run_is_right()) << begin;
  }
}

TEST(KVContent, AStateCutWithinABlockIsNotThatOfTheBlock) {
  OneState state;
  state.compute(0, 3, {1});
  EXPECT_EQ(state.compute(3, 5, {1, 2}), Blocks({2}));
  EXPECT_TRUE(state.last_run_is_right());
  EXPECT_FALSE(state.holds(1, 0, 4));
}

TEST(KVContent, WithDraftsAStateMayBeInAnyBlockOfTheRun) {
  OneState state;
  state.compute(0, 3, {1});
  EXPECT_EQ(state.compute(3, 5, {1, 2}, /*has_drafts=*/true), Blocks({1, 2}));
}

}  // namespace
}  // namespace kvfence
