#include "contract/tiering/example_tier.h"

#include <array>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace kvfence {
namespace {

constexpr RequestContext kRequest{"r"};

std::vector<JobResult> finished(ExampleTier& tier) {
  std::vector<JobResult> results;
  tier.get_finished_jobs(results);
  return results;
}

TEST(ExampleTier, MovesBytesAtOnce) {
  std::array<std::byte, 6> memory = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  ExampleTier tier(PrimaryKvView{memory.data(), 2, 3});
  const std::array<OffloadKeyView, 2> keys = {"one", "two"};
  const std::array<SlotId, 2> from = {0, 1};
  const std::array<SlotId, 2> to = {2, 0};
  EXPECT_EQ(tier.lookup("one", kRequest), LookupResult::kMiss);
  tier.submit_store({5, keys, from, kRequest});
  EXPECT_EQ(tier.lookup("one", kRequest), LookupResult::kHit);
  tier.submit_load({6, keys, to, kRequest});
  EXPECT_EQ(finished(tier), (std::vector<JobResult>{{5, true}, {6, true}}));
  EXPECT_TRUE(finished(tier).empty());
  EXPECT_EQ(memory, (std::array<std::byte, 6>{std::byte{3}, std::byte{4}, std::byte{3},
                                              std::byte{4}, std::byte{1}, std::byte{2}}));
  EXPECT_EQ(tier.get_num_blocks(), 2u);
}

TEST(ExampleTier, AMissingKeyFailsTheLoad) {
  ExampleTier tier(PrimaryKvView{});
  const std::array<OffloadKeyView, 2> keys = {"one", "two"};
  const std::array<SlotId, 2> slots = {0, 1};
  tier.submit_store({1, {keys.data(), 1}, {slots.data(), 1}, kRequest});
  tier.submit_load({2, keys, slots, kRequest});
  tier.submit_load({3, {}, {}, kRequest});
  EXPECT_EQ(finished(tier), (std::vector<JobResult>{{1, true}, {2, false}, {3, true}}));
}

TEST(SecondaryTierHandle, CopiesWhatItHolds) {
  SecondaryTierHandle handle{ExampleTier(PrimaryKvView{})};
  EXPECT_EQ(handle.tier_type(), "example");
  SecondaryTierHandle copy = handle;
  const OffloadKeyView key = "one";
  const SlotId slot = 0;
  copy.submit_store({1, {&key, 1}, {&slot, 1}, kRequest});
  EXPECT_EQ(copy.lookup("one", kRequest), LookupResult::kHit);
  EXPECT_EQ(handle.lookup("one", kRequest), LookupResult::kMiss);
  ASSERT_NE(copy.get_if<ExampleTier>(), nullptr);
  EXPECT_EQ(copy.get_if<ExampleTier>()->get_num_blocks(), 1u);
}

}  // namespace
}  // namespace kvfence
