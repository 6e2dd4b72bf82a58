// Goal: each situation is counted where it happens and nowhere else. Method: commands with
// observations written by hand, and the exact list of what counting them adds.

#include "properties/kv_cache/goals.h"

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/goals_test_support.h"
#include "properties/core/typed_test_support.h"

namespace kvfence::kv_cache {
namespace {

using Situations = std::vector<Reached>;

Config plain(GroupList groups = {KVCacheSpec{.block_size = 2}}) {
  Config config;
  config.num_gpu_blocks = 6;
  config.hash_block_size = 2;
  config.groups = std::move(groups);
  config.max_model_len = 16;
  return config;
}

KVCacheSpec window_spec() {
  return {.kind = KVCacheSpecKind::kSlidingWindow, .block_size = 2, .sliding_window = 2};
}

/// Requests A and B of five tokens, the first four the same.
World world_of(const Config& config) {
  World world = fresh_world<KVCacheTarget>(config);
  DeclareRequest command;
  command.id = "A";
  command.tokens = {1, 2, 3, 4, 5};
  world.apply(command);
  command.id = "B";
  command.tokens.back() = 9;
  world.apply(command);
  return world;
}

/// An observation of a state; keys as symbols, empty for none.
Observation state(const Config& config, std::vector<BlockId> queue,
                  std::vector<RequestBlocks> tables, const std::vector<std::string_view>& symbols) {
  const World world = world_of(config);
  Observation shown;
  shown.free_queue.emplace() = std::move(queue);
  std::vector<std::uint32_t>& refs = shown.ref_cnts.emplace();
  refs.assign(config.num_gpu_blocks, 0);
  for (const RequestBlocks& table : tables) {
    for (const auto& blocks : table.blocks) {
      for (BlockId block : blocks) refs[block] += block == kNullBlockId ? 0 : 1;
    }
  }
  shown.tables.emplace() = std::move(tables);
  KeyList& keys = shown.keys.emplace();
  keys.assign(config.num_gpu_blocks, {});
  for (std::size_t block = 0; block < symbols.size(); ++block) {
    if (!symbols[block].empty()) keys[block] = world.requests().resolve(symbols[block]).value();
  }
  return shown;
}

Situations reached_by(const Config& config, const Command& command, const Observation& before,
                      const Observation& after) {
  Reach reach;
  reach.start(config);
  reach.count(command, before, after, world_of(config));
  return counted_between(Reach(), reach);
}

Observation with_slots(Observation shown, BlockLists blocks) {
  shown.allocated.emplace() = true;
  shown.blocks.emplace() = std::move(blocks);
  return shown;
}

Observation with_hit(Observation shown, BlockLists blocks, std::uint32_t num_tokens) {
  shown.blocks.emplace() = std::move(blocks);
  shown.num_hit_tokens.emplace() = num_tokens;
  return shown;
}

TEST(KVCacheReach, CountsAllocationsByKind) {
  const std::vector<std::pair<KVCacheSpec, Reached>> cases = {
      {{.block_size = 2}, Reached::kFullAllocated},
      {window_spec(), Reached::kSlidingAllocated},
      {{.kind = KVCacheSpecKind::kChunkedLocal, .block_size = 2, .attention_chunk_size = 4},
       Reached::kChunkedAllocated},
      {{.kind = KVCacheSpecKind::kMamba, .block_size = 2}, Reached::kMambaAllAllocated},
      {{.kind = KVCacheSpecKind::kMamba, .block_size = 2, .mamba_align = true},
       Reached::kMambaAlignAllocated},
      {{.kind = KVCacheSpecKind::kSinkFullAttention, .block_size = 2, .sink_len = 2},
       Reached::kSinkAllocated}};
  for (const auto& [spec, goal] : cases) {
    const Config config = plain({spec});
    const Observation before = state(config, {2, 3, 4, 5}, {}, {});
    const Observation after = state(config, {3, 4, 5}, {{"A", {{2}}}}, {"", "", "A:0/0"});
    EXPECT_EQ(reached_by(config, AllocateSlots{.request = "A", .num_new_tokens = 2}, before,
                         with_slots(after, {{2}})),
              Situations{goal})
        << to_text(spec.kind);
  }
}

TEST(KVCacheReach, CountsHits) {
  const Config config = plain();
  const Observation shown = state(config, {3, 4, 5, 2, 1}, {}, {"", "A:0/0", "A:1/0"});
  EXPECT_EQ(reached_by(config, GetComputedBlocks{"B"}, shown, with_hit(shown, {{1, 2}}, 4)),
            Situations{Reached::kHit});
  EXPECT_EQ(reached_by(config, GetComputedBlocks{"B", true}, shown, with_hit(shown, {{1, 2}}, 4)),
            (Situations{Reached::kHit, Reached::kHitAgainAfterPreemption}));
  EXPECT_EQ(reached_by(config, GetComputedBlocks{"B"}, shown, with_hit(shown, {{}}, 0)),
            Situations{});

  Config eagle = config;
  eagle.use_eagle = true;
  EXPECT_EQ(reached_by(eagle, GetComputedBlocks{"B"}, shown, with_hit(shown, {{1}}, 2)),
            (Situations{Reached::kHit, Reached::kEagleDrop}));
}

TEST(KVCacheReach, CountsWhatGroupsTakeFromEachOther) {
  const Config config = plain({KVCacheSpec{.block_size = 2}, window_spec()});
  // Full attention has two blocks, the window only the first.
  const Observation shown = state(config, {4, 5, 3, 2, 1}, {}, {"", "A:0/0", "A:1/0", "A:0/1"});
  EXPECT_EQ(reached_by(config, GetComputedBlocks{"B"}, shown, with_hit(shown, {{1}, {3}}, 2)),
            (Situations{Reached::kHit, Reached::kHybridHit, Reached::kHitShortenedByAGroup}));
  const Observation whole = state(config, {4, 5, 3, 2, 1}, {}, {"", "A:0/0", "A:1/0", "A:1/1"});
  EXPECT_EQ(reached_by(config, GetComputedBlocks{"B"}, whole, with_hit(whole, {{1, 2}, {0, 3}}, 4)),
            (Situations{Reached::kHit, Reached::kWindowHit, Reached::kHybridHit}));
}

TEST(KVCacheReach, CountsDroppingSharingAndTheHead) {
  Config config = plain({window_spec()});
  config.profile = "v0.23";
  const Observation before = state(config, {4, 5}, {{"A", {{1, 2, 3}}}}, {});
  const Observation after = state(config, {2, 1, 4, 5}, {{"A", {{0, 0, 3}}}}, {});
  EXPECT_EQ(reached_by(config, RemoveSkippedBlocks{"A", 5}, before, after),
            (Situations{Reached::kSkippedBlockDropped, Reached::kUnhashedBlockToTheHead}));
  config.profile = "v0.19";
  EXPECT_EQ(reached_by(config, RemoveSkippedBlocks{"A", 5}, before, after),
            Situations{Reached::kSkippedBlockDropped});

  const Config full = plain();
  const Observation shared = state(full, {4, 5}, {{"A", {{1, 2, 3}}}, {"B", {{1}}}}, {"", "A:0/0"});
  EXPECT_EQ(reached_by(full, NewStepStarts{}, shared, shared), Situations{Reached::kSharedPrefix});
  const Observation twice = state(full, {1, 2, 3, 4, 5}, {}, {"", "A:0/0", "A:0/0"});
  EXPECT_EQ(reached_by(full, NewStepStarts{}, twice, twice), Situations{Reached::kDuplicateKey});
}

TEST(KVCacheReach, CountsFailuresAndArguments) {
  const Config config = plain();
  Observation failed;
  failed.allocated.emplace() = false;
  EXPECT_EQ(
      reached_by(config, AllocateSlots{.request = "A", .num_new_tokens = 5}, Observation{}, failed),
      Situations{Reached::kAllocationFailed});

  Observation done;
  done.allocated.emplace() = true;
  const AllocateSlots command{.request = "A",
                              .num_new_tokens = 2,
                              .num_lookahead_tokens = 15,
                              .num_external_tokens = 1,
                              .delay_cache_blocks = true};
  EXPECT_EQ(reached_by(config, command, Observation{}, done),
            (Situations{Reached::kExternalTokens, Reached::kCachingDelayed, Reached::kLookahead,
                        Reached::kModelLengthCapsSlots}));
}

TEST(KVCacheReach, SeesAMambaStateOfTheSameStep) {
  const Config config = plain({KVCacheSpec{.kind = KVCacheSpecKind::kMamba, .block_size = 2}});
  const World world = world_of(config);
  const Observation empty = state(config, {1, 2, 3, 4, 5}, {}, {});
  const Observation held = state(config, {4, 5}, {{"A", {{1, 2, 3}}}}, {"", "A:0/0", "A:1/0"});
  const Observation found = with_hit(held, {{0, 2}}, 4);
  Observation failed = held;
  failed.allocated.emplace() = false;
  const AllocateSlots waits{.request = "B", .num_new_tokens = 1, .from_cache = true};
  for (const bool same_step : {true, false}) {
    Reach reach;
    reach.start(config);
    reach.count(AllocateSlots{.request = "A", .num_new_tokens = 5}, empty,
                with_slots(held, {{1, 2, 3}}), world);
    if (!same_step) reach.count(NewStepStarts{}, held, held, world);
    reach.count(GetComputedBlocks{"B"}, held, found, world);
    reach.count(waits, found, failed, world);
    EXPECT_EQ(reach.count_of(Reached::kMambaRefusedInSameStep), same_step ? 1u : 0u);
  }
}

TEST(KVCacheReach, CountsEachRefusalByItsCode) {
  std::set<Reached> reached;
  for (ErrorCode code :
       {ErrorCode::kUnknownRequest, ErrorCode::kUnknownBlock, ErrorCode::kNotInProfile,
        ErrorCode::kBadRange, ErrorCode::kMissingHash, ErrorCode::kAlreadyDeclared,
        ErrorCode::kAlreadyAllocated, ErrorCode::kNotAllocated, ErrorCode::kNoTokens,
        ErrorCode::kBeyondModelLength, ErrorCode::kTableShrinks}) {
    Observation refused;
    refused.error = code;
    const Situations found = reached_by(plain(), NewStepStarts{}, Observation{}, refused);
    ASSERT_EQ(found.size(), 1u) << to_text(code);
    EXPECT_TRUE(reached.insert(found[0]).second) << to_text(code);
  }
}

TEST(KVCacheReach, MergesAndTellsWhatIsMissing) {
  Reach reach;
  EXPECT_FALSE(reach.all_reached());
  Reach other;
  Observation refused;
  refused.error = ErrorCode::kNoTokens;
  other.count(NewStepStarts{}, Observation{}, refused, World{});
  reach.merge(other);
  reach.merge(other);
  EXPECT_EQ(reach.count_of(Reached::kErrorNoTokens), 2u);
  const auto at = static_cast<std::size_t>(Reached::kErrorNoTokens);
  EXPECT_TRUE(reach.goal(at).reached());
  EXPECT_EQ(reach.goal(at).name, "error_no_tokens");
}

}  // namespace
}  // namespace kvfence::kv_cache
