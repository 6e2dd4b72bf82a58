/// Goal: the target `worker` sees the actual bytes of a copy worker, for every layout and path, and
/// its findings are those of the device.

#include "cuda/worker/worker_on_virtual_device.h"

#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "planted/cuda/worker/worker_on_virtual_device.h"
#include "properties/planted/bugs.h"

namespace kvfence::cuda {
namespace {

using worker::Content;
using worker::Direction;
using worker::Ended;
using worker::Stream;
using Numbers = std::vector<std::uint32_t>;

static_assert(worker::CopyWorkers<WorkersOnVirtualDevices>);

Content written(std::uint32_t block, std::uint32_t generation) {
  return {Content::Kind::kWritten, block, generation};
}

worker::Transfer transfer(Direction direction, std::uint32_t job_id, Numbers gpu_blocks,
                          Numbers cpu_blocks, std::uint32_t block_index = 0) {
  return {.job_id = job_id,
          .direction = direction,
          .gpu_blocks = std::move(gpu_blocks),
          .cpu_blocks = std::move(cpu_blocks),
          .block_index = block_index};
}

class EachLayoutAndPath
    : public ::testing::TestWithParam<std::tuple<worker::Layout, worker::Path, bool>> {};

TEST_P(EachLayoutAndPath, GoesThereAndBack) {
  const auto [layout, path, differs] = GetParam();
  WorkerOnVirtualDevice worker({.layout = layout,
                                .path = path,
                                .num_gpu_blocks = 6,
                                .num_cpu_blocks = 3,
                                .block_size_factor = 2,
                                .batch_entries_max = 3,
                                .host_address_differs = differs});
  for (std::uint32_t block = 0; block < 6; ++block) {
    EXPECT_EQ(worker.gpu_content(block), Content{});
    EXPECT_EQ(worker.cpu_content(block), Content{});
  }
  worker.forward({}, Numbers{0, 4, 2});
  worker.transfer_async(transfer(Direction::kStore, 1, {4, 2, 0}, {2, 0}, 1));
  worker.start_kv_transfers();
  EXPECT_FALSE(worker.advance(Stream::kStore));
  EXPECT_TRUE(worker.advance(Stream::kCompute));
  EXPECT_EQ(worker.gpu_content(4), written(4, 1));
  EXPECT_TRUE(worker.advance(Stream::kStore));
  EXPECT_EQ(worker.cpu_content(5), written(4, 1));
  EXPECT_EQ(worker.cpu_content(0), written(2, 1));
  EXPECT_EQ(worker.cpu_content(1), written(0, 1));
  EXPECT_EQ(worker.cpu_content(4), Content{});
  std::vector<Ended> ended;
  worker.get_finished(ended);
  worker.transfer_async(transfer(Direction::kLoad, 2, {1, 5}, {0}));
  EXPECT_TRUE(worker.advance(Stream::kLoad));
  worker.get_finished(ended);
  EXPECT_EQ(ended, (std::vector<Ended>{{1, Direction::kStore, true}, {2, Direction::kLoad, true}}));
  EXPECT_EQ(worker.gpu_content(1), written(2, 1));
  EXPECT_EQ(worker.gpu_content(5), written(0, 1));
  worker.forward(Numbers{5}, {});
  worker.advance(Stream::kCompute);
  std::vector<worker::Seen> seen;
  worker.take_seen(seen);
  EXPECT_EQ(seen, (std::vector<worker::Seen>{{5, written(0, 1)}}));
  EXPECT_EQ(worker.num_stray_bytes(), 0U);
  EXPECT_TRUE(worker.device().is_clean()) << worker.device().report();
}

INSTANTIATE_TEST_SUITE_P(
    WorkerOnVirtualDevice, EachLayoutAndPath,
    ::testing::Combine(::testing::Values(worker::Layout::kBlocksFirst, worker::Layout::kKVFirst,
                                         worker::Layout::kCrossLayers, worker::Layout::kMamba,
                                         worker::Layout::kPadded),
                       ::testing::Values(worker::Path::kBatched, worker::Path::kLooped,
                                         worker::Path::kStrided, worker::Path::kKernel),
                       ::testing::Bool()),
    [](const auto& tested) {
      return std::string(to_text(std::get<0>(tested.param))) + "_" +
             std::string(to_text(std::get<1>(tested.param))) +
             (std::get<2>(tested.param) ? "_translated" : "");
    });

TEST(WorkerOnVirtualDevice, CountsBytesOutsideOfPages) {
  const planted::SwitchedOn bug("worker", "padding_copied");
  planted::cuda::WorkerOnVirtualDevice worker({.layout = worker::Layout::kPadded});
  worker.transfer_async(transfer(Direction::kLoad, 1, {0}, {0}));
  worker.wait(Numbers{1});
  EXPECT_EQ(worker.num_stray_bytes(), 32U);
}

TEST(WorkerOnVirtualDevice, CountsRaces) {
  const planted::SwitchedOn bug("worker", "store_ignores_compute");
  planted::cuda::WorkerOnVirtualDevice worker({});
  worker.forward({}, Numbers{0});
  worker.transfer_async(transfer(Direction::kStore, 1, {0}, {0}));
  EXPECT_EQ(worker.counts().num_races, 0U);
  worker.start_kv_transfers();
  EXPECT_GT(worker.counts().num_races, 0U);
}

TEST(WorkerOnVirtualDevice, AForwardThatRacesSeesATornBlock) {
  const planted::SwitchedOn bug("worker", "load_ignores_readers");
  planted::cuda::WorkerOnVirtualDevice worker({.layout = worker::Layout::kKVFirst});
  worker.forward({}, Numbers{0});
  ASSERT_TRUE(worker.advance(Stream::kCompute));
  worker.forward(Numbers{0}, {});
  worker.transfer_async(transfer(Direction::kLoad, 1, {0}, {0}));
  EXPECT_TRUE(worker.advance(Stream::kLoad, 9));
  EXPECT_EQ(worker.gpu_content(0).kind, Content::Kind::kUndefined);
  ASSERT_TRUE(worker.advance(Stream::kCompute));
  std::vector<worker::Seen> seen;
  worker.take_seen(seen);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].content.kind, Content::Kind::kTorn);
  EXPECT_GT(worker.counts().num_races, 0U);
}

TEST(WorkerOnVirtualDevice, OfAFreeDeviceTheHostKnowsWhatItHasWaitedFor) {
  using worker::Schedule;
  for (const Schedule schedule :
       {Schedule::kEager, Schedule::kLazy, Schedule::kRandom, Schedule::kPriority}) {
    for (std::uint32_t seed = 1; seed <= 20; ++seed) {
      WorkerOnVirtualDevice worker({.schedule = schedule, .seed = seed});
      worker.forward({}, Numbers{0});
      worker.transfer_async(transfer(Direction::kStore, 1, {0}, {0}));
      worker.start_kv_transfers();
      worker.forward(Numbers{0}, Numbers{1});
      EXPECT_FALSE(worker.advance(Stream::kCompute));
      EXPECT_EQ(worker.cpu_content(0).kind, Content::Kind::kUndefined);
      worker.wait(Numbers{1});
      EXPECT_EQ(worker.cpu_content(0), written(0, 1));
      EXPECT_EQ(worker.gpu_content(0), written(0, 1));
      EXPECT_EQ(worker.gpu_content(1).kind, Content::Kind::kUndefined);
      std::vector<worker::Seen> seen;
      worker.take_seen(seen);
      EXPECT_TRUE(seen.empty());
      std::vector<Ended> ended;
      worker.transfer_async(transfer(Direction::kLoad, 2, {2}, {1}));
      worker.get_finished(ended);
      EXPECT_EQ(ended.size(), 2U);
      worker.take_seen(seen);
      EXPECT_EQ(seen.size(), 1U);
      EXPECT_EQ(worker.gpu_content(1), written(1, 2));
    }
  }
}

TEST(WorkerOnVirtualDevice, AFaultIsMetOnce) {
  WorkerOnVirtualDevice worker({.path = worker::Path::kLooped});
  worker.fail_next(worker::Fault::kCopy);
  worker.transfer_async(transfer(Direction::kStore, 1, {0}, {0}));
  worker.transfer_async(transfer(Direction::kStore, 2, {1}, {1}));
  EXPECT_EQ(worker.counts().next_fault, worker::Fault::kCopy);
  worker.start_kv_transfers();
  EXPECT_EQ(worker.counts().next_fault, worker::Fault::kNone);
  worker.wait(Numbers{1, 2});
  std::vector<Ended> ended;
  worker.get_finished(ended);
  EXPECT_EQ(ended,
            (std::vector<Ended>{{1, Direction::kStore, false}, {2, Direction::kStore, true}}));
}

}  // namespace
}  // namespace kvfence::cuda
