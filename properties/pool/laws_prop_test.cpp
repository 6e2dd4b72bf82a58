// Laws of the block pool as sentences. Each holds of one implementation alone, whatever state a
// random history has led to.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "contract/pool/block_pool_target.h"
#include "properties/core/choices.h"
#include "properties/core/prop_test_support.h"

namespace kvfence {
namespace {

using Ids = std::vector<BlockId>;

/// What the pool shows.
const block_pool::Observation& now(const Session& session) {
  return session.now().numbers.as<block_pool::Observation>();
}
const block_pool::Observation& run(Session& session, block_pool::Command command) {
  session.run(Command(std::move(command)));
  return now(session);
}

const Ids& free_queue(const Session& session) { return *now(session).free_queue; }
std::uint32_t ref_cnt(const Session& session, BlockId block) {
  return (*now(session).ref_cnts)[block];
}
const BlockHash& key(const Session& session, BlockId block) { return (*now(session).keys)[block]; }
std::size_t num_blocks(const Session& session) { return now(session).keys->size(); }

block_pool::Command touch(BlockId block) { return block_pool::Touch{{block}}; }
block_pool::Command free_one(BlockId block) { return block_pool::FreeBlocks{{block}, false}; }

class BlockPoolLaws : public ::testing::TestWithParam<Side> {};
INSTANTIATE_TEST_SUITE_P(BothSides, BlockPoolLaws,
                         ::testing::ValuesIn(both_sides(block_pool_sides())), name_of_side);

TEST_P(BlockPoolLaws, FreeingThenTouchingKeepsTheHash) {
  int num_keyed = 0;
  EXPECT_TRUE(holds("freeing then touching keeps the hash", [&] {
    const auto wanderer = wander(GetParam());
    Session& session = *wanderer.session;
    for (BlockId block = 1; block < num_blocks(session); ++block) {
      if (ref_cnt(session, block) == 0) continue;
      const block_pool::Observation before = now(session);
      num_keyed += !key(session, block).empty();
      run(session, free_one(block));
      run(session, touch(block));
      RC_ASSERT(now(session) == [&] {
        block_pool::Observation same = before;
        same.error = ErrorCode::kNone;
        same.hit.reset();
        same.blocks.reset();
        same.success.reset();
        same.events.reset();
        return same;
      }());
    }
  }));
  EXPECT_GT(num_keyed, 0);
}

TEST_P(BlockPoolLaws, TouchingThenFreeingMovesToTheTail) {
  int num_moved = 0;
  EXPECT_TRUE(holds("touching then freeing a queued block moves it to the tail", [&] {
    const auto wanderer = wander(GetParam());
    Session& session = *wanderer.session;
    const Ids queue = free_queue(session);
    for (BlockId block : queue) {
      Ids expected = free_queue(session);
      num_moved += expected.back() != block;
      expected.erase(std::find(expected.begin(), expected.end(), block));
      expected.push_back(block);
      const std::vector<BlockHash> keys = *now(session).keys;
      run(session, touch(block));
      run(session, free_one(block));
      RC_ASSERT(free_queue(session) == expected);
      RC_ASSERT(*now(session).keys == keys);
    }
  }));
  EXPECT_GT(num_moved, 0);
}

TEST_P(BlockPoolLaws, AfterAResetNoLookupHits) {
  int num_lookups = 0;
  int num_keys = 0;
  EXPECT_TRUE(holds("after a reset no lookup hits", [&] {
    const auto wanderer = wander(GetParam());
    Session& session = *wanderer.session;
    const std::uint32_t block_size =
        wanderer.setup.config().as<block_pool::Config>().hash_block_size;
    for (BlockId block = 1; block < num_blocks(session); ++block) {
      while (ref_cnt(session, block) > 0) run(session, free_one(block));
    }
    num_keys += static_cast<int>(now(session).num_cached_keys);
    const Ids queue = free_queue(session);
    RC_ASSERT(*run(session, block_pool::ResetPrefixCache{}).success);
    RC_ASSERT(now(session).num_cached_keys == 0u);
    RC_ASSERT(free_queue(session) == queue);
    for (const char* name : {"A", "B", "C", "D"}) {
      const Request* request =
          typed_world<block_pool::World>(session.world()).requests().find(name);
      const auto num_hashes = request ? static_cast<std::uint32_t>(request->num_hashes()) : 0;
      for (std::uint32_t index = 0; index < num_hashes; ++index) {
        for (GroupId group : {0u, 1u, 2u}) {
          ++num_lookups;
          RC_ASSERT_FALSE(
              *run(session, block_pool::GetCachedBlock{name, index, block_size, {group}}).hit);
        }
      }
    }
  }));
  EXPECT_GT(num_lookups, 0);
  EXPECT_GT(num_keys, 0);
}

/// Serves a request as a scheduler does, alone: what is found from its start is touched, the rest
/// is allocated and cached, and all is freed, its end first. Returns the blocks found.
std::uint32_t serve(Session& session, const std::vector<TokenId>& tokens) {
  constexpr std::uint32_t kBlockSize = 1;
  run(session, block_pool::DeclareRequest{"R", tokens, std::nullopt, 0, std::nullopt, {}});
  const auto num_blocks = static_cast<std::uint32_t>(tokens.size());
  Ids blocks;
  while (blocks.size() < num_blocks) {
    const auto index = static_cast<std::uint32_t>(blocks.size());
    const block_pool::Observation& found =
        run(session, block_pool::GetCachedBlock{"R", index, kBlockSize, {0}});
    if (!*found.hit) break;
    blocks.push_back(found.blocks->front());
  }
  const auto num_found = static_cast<std::uint32_t>(blocks.size());
  run(session, block_pool::Touch{blocks});
  const block_pool::Observation& allocated =
      run(session, block_pool::GetNewBlocks{num_blocks - num_found});
  RC_ASSERT(allocated.error == ErrorCode::kNone);
  blocks.insert(blocks.end(), allocated.blocks->begin(), allocated.blocks->end());
  run(session,
      block_pool::CacheFullBlocks{"R", blocks, num_found, num_blocks, kBlockSize, 0, std::nullopt});
  RC_ASSERT(now(session).error == ErrorCode::kNone);
  std::reverse(blocks.begin(), blocks.end());
  run(session, block_pool::FreeBlocks{blocks, false});
  return num_found;
}

TEST_P(BlockPoolLaws, ALargerPoolNeverEvictsEarlier) {
  int num_larger_finds_more = 0;
  EXPECT_TRUE(holds("a request finds as much or more in a larger pool", [&] {
    constexpr std::uint32_t kTokensMax = 5;
    const std::vector<std::uint8_t> bytes = draw_episode_bytes(300);
    Choices choices = Choices::from_bytes(bytes);
    block_pool::Config config;
    config.hash_block_size = 1;
    config.num_gpu_blocks = 1 + kTokensMax + choices.below(6);
    Session smaller(GetParam().make(), prepared(GetParam().target(), Config(config)));
    config.num_gpu_blocks += 1 + choices.below(4);
    Session larger(GetParam().make(), prepared(GetParam().target(), Config(config)));
    while (!choices.exhausted()) {
      std::vector<TokenId> tokens(1 + choices.below(kTokensMax));
      for (TokenId& token : tokens) token = choices.below(2);
      const std::uint32_t found_in_smaller = serve(smaller, tokens);
      const std::uint32_t found_in_larger = serve(larger, tokens);
      RC_ASSERT(found_in_larger >= found_in_smaller);
      num_larger_finds_more += found_in_larger > found_in_smaller;
    }
  }));
  EXPECT_GT(num_larger_finds_more, 0);
}

}  // namespace
}  // namespace kvfence
