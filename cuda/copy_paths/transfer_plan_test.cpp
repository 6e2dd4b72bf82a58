/// Goal: host blocks are expanded as upstream does it, copies are merged, and a batch with an
/// undefined result is refused.

#include "cuda/copy_paths/transfer_plan.h"

#include <gtest/gtest.h>

namespace kvfence::cuda {
namespace {

constexpr std::uintptr_t kGpu = 0x1000'0000;
constexpr std::uintptr_t kCpu = 0x2000'0000;

KVLayout layout(std::uintptr_t address, std::size_t num_blocks, std::size_t page,
                std::size_t num_groups = 1) {
  return {.tensors = {{address, num_blocks, page, page}},
          .groups = std::vector<std::vector<PageRef>>(num_groups, {{0, 16}})};
}

/// Pages of 32 bytes, 16 of them used; three per host block.
struct Plan {
  KVLayout gpu = layout(kGpu, 32, 32);
  KVLayout cpu = layout(kCpu, 8, 96);

  PlannedTransfer operator()(Direction direction, const TransferSpec& spec) const {
    return plan_transfer(gpu, cpu, direction, spec, 3);
  }
};

std::uintptr_t gpu_page(std::size_t block) { return kGpu + block * 32; }
std::uintptr_t cpu_page(std::size_t block, std::size_t sub) { return kCpu + block * 96 + sub * 32; }

TEST(TransferPlan, TheFirstBlockIsSkippedByItsIndex) {
  const Plan plan;
  for (const Direction direction : {Direction::kStore, Direction::kLoad}) {
    const auto planned = plan(direction, {{4, 9, 5}, {6, 2}, {3}, {7}});
    ASSERT_EQ(planned.refusal, ErrorCode::kNone);
    EXPECT_EQ(planned.plan.num_pages, 3U);
    EXPECT_EQ(planned.plan.num_bytes, 48U);
    const bool is_store = direction == Direction::kStore;
    std::vector<CopyDescriptor> expected;
    const std::uintptr_t pairs[][2] = {{gpu_page(4), cpu_page(6, 1)},
                                       {gpu_page(9), cpu_page(6, 2)},
                                       {gpu_page(5), cpu_page(2, 0)}};
    for (const auto& [gpu, cpu] : pairs) {
      expected.push_back({is_store ? cpu : gpu, is_store ? gpu : cpu, 16});
    }
    EXPECT_EQ(planned.plan.copies, merge_copies(expected));
  }
}

TEST(TransferPlan, EachGroupSkipsForItself) {
  Plan plan;
  plan.gpu = layout(kGpu, 32, 32, 3);
  plan.cpu = layout(kCpu, 8, 96, 3);
  const auto planned = plan(Direction::kLoad, {{1, 3, 5}, {0, 4, 7}, {1, 0, 2}, {1, 1, 2}});
  ASSERT_EQ(planned.refusal, ErrorCode::kNone);
  EXPECT_EQ(planned.plan.copies, merge_copies({{gpu_page(1), cpu_page(0, 1), 16},
                                               {gpu_page(3), cpu_page(4, 2), 16},
                                               {gpu_page(5), cpu_page(7, 0), 16}}));
}

TEST(TransferPlan, CountsThatDoNotFitAreRefused) {
  const Plan plan;
  for (const TransferSpec& spec : {TransferSpec{{1, 2}, {0}, {2}, {2}},
                                   {{1, 2}, {0, 1}, {2}, {0}},
                                   {{1}, {0}, {2}, {0}},
                                   {{1}, {0}, {1, 1}, {0}},
                                   {{1}, {0}, {1}, {}}}) {
    EXPECT_EQ(plan(Direction::kLoad, spec).refusal, ErrorCode::kCountsDiffer);
    EXPECT_EQ(plan(Direction::kStore, spec).refusal, ErrorCode::kCountsDiffer);
  }
  EXPECT_EQ(plan(Direction::kStore, {{32}, {0}, {1}, {0}}).refusal, ErrorCode::kUnknownBlock);
  EXPECT_EQ(plan(Direction::kStore, {{31}, {8}, {1}, {0}}).refusal, ErrorCode::kUnknownBlock);
  const auto empty = plan(Direction::kStore, {{}, {}, {0}, {0}});
  EXPECT_EQ(empty.refusal, ErrorCode::kNone);
  EXPECT_TRUE(empty.plan.copies.empty());
}

TEST(TransferPlan, RunsAreMergedWhereBothSidesAreContiguous) {
  EXPECT_EQ(merge_copies({{132, 232, 32}, {100, 200, 32}, {164, 264, 8}}),
            (std::vector<CopyDescriptor>{{100, 200, 72}}));
  // On one side only.
  EXPECT_EQ(merge_copies({{100, 200, 32}, {132, 240, 32}}).size(), 2U);
  EXPECT_EQ(merge_copies({{100, 200, 32}, {140, 232, 32}}).size(), 2U);
  EXPECT_EQ(merge_copies({}).size(), 0U);
  Plan plan;
  plan.gpu.groups = {{{0, 32}}};
  const auto planned = plan(Direction::kStore, {{3, 4, 5, 8}, {1, 2}, {4}, {0}});
  EXPECT_EQ(planned.plan.copies.size(), 2U);
  EXPECT_EQ(planned.plan.num_pages, 4U);
  EXPECT_EQ(planned.plan.num_bytes, 128U);
}

TEST(TransferPlan, OverlapIsFound) {
  using Copies = std::vector<CopyDescriptor>;
  const auto overlap = [](Copies copies, std::vector<ByteInterval> sources) {
    return overlaps({.copies = std::move(copies), .sources = std::move(sources)});
  };
  EXPECT_FALSE(overlap({{100, 200, 32}, {132, 200, 32}}, {{200, 232}}));
  // Of destinations, and of a destination and a source.
  EXPECT_TRUE(overlap({{100, 200, 32}, {131, 300, 32}}, {{200, 232}, {300, 332}}));
  EXPECT_TRUE(overlap({{100, 200, 32}, {231, 300, 32}}, {{200, 232}, {300, 332}}));
  EXPECT_FALSE(overlap({{100, 200, 32}, {232, 300, 32}}, {{200, 232}, {300, 332}}));
  EXPECT_TRUE(overlap({{100, 116, 32}}, {{116, 148}}));
  const Plan plan;
  EXPECT_TRUE(overlaps(plan(Direction::kLoad, {{1, 1}, {0}, {2}, {0}}).plan));
  // Reads twice.
  EXPECT_FALSE(overlaps(plan(Direction::kStore, {{1, 1}, {0}, {2}, {0}}).plan));
}

TEST(TransferPlan, OffsetsMayNeedMoreThan32Bits) {
  constexpr std::size_t kPage = std::size_t{1} << 20;
  const KVLayout gpu = layout(kGpu, 100'000, kPage);
  const KVLayout cpu = layout(kCpu, 100'000, 3 * kPage);
  const auto planned =
      plan_transfer(gpu, cpu, Direction::kLoad, {{9'000, 7}, {50'000}, {2}, {1}}, 3);
  ASSERT_EQ(planned.refusal, ErrorCode::kNone);
  EXPECT_EQ(planned.plan.copies, (std::vector<CopyDescriptor>{
                                     {kGpu + 7'340'032, kCpu + 157'288'497'152, 16},
                                     {kGpu + 9'437'184'000, kCpu + 157'287'448'576, 16},
                                 }));
}

TEST(TransferPlan, SourcesAreDisjointAndRise) {
  Plan plan;
  plan.gpu.groups = {{{0, 32}}};
  const auto sources = plan(Direction::kStore, {{5, 4, 4, 9}, {1, 2}, {4}, {0}}).plan.sources;
  ASSERT_EQ(sources.size(), 2U);
  EXPECT_EQ(sources[0].begin, gpu_page(4));
  EXPECT_EQ(sources[0].end, gpu_page(6));
  EXPECT_EQ(sources[1].begin, gpu_page(9));
}

TEST(TransferPlan, TransfersConflictWhereOneWritesWhatTheOtherTouches) {
  const Plan plan;
  const auto store = plan(Direction::kStore, {{1}, {0}, {1}, {0}}).plan;
  const auto load = [&](std::uint32_t gpu, std::uint32_t cpu, std::size_t index) {
    return plan(Direction::kLoad, {{gpu}, {cpu}, {1}, {index}}).plan;
  };
  EXPECT_TRUE(conflict(store, load(1, 5, 0)));   // over what is stored
  EXPECT_TRUE(conflict(store, load(2, 0, 0)));   // of what is not there yet
  EXPECT_FALSE(conflict(store, load(2, 0, 1)));  // another page of the block
  EXPECT_FALSE(conflict(store, load(2, 5, 0)));
  EXPECT_TRUE(conflict(load(1, 5, 0), load(1, 6, 0)));
  EXPECT_FALSE(conflict(load(1, 5, 0), load(2, 5, 0)));
}

}  // namespace
}  // namespace kvfence::cuda
