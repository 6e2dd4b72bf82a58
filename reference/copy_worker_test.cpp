/// Goal: the reference copies, orders, refuses and reports as contract/worker.h says.

#include "reference/copy_worker.h"

#include <vector>

#include <gtest/gtest.h>

namespace kvfence::reference {
namespace {

using worker::Content;
using worker::Direction;
using worker::Ended;
using worker::Stream;
using worker::Transfer;
using Numbers = std::vector<std::uint32_t>;

Content written(std::uint32_t block, std::uint32_t generation) {
  return {Content::Kind::kWritten, block, generation};
}

Transfer store(std::uint32_t job_id, Numbers gpu_blocks, Numbers cpu_blocks) {
  return {.job_id = job_id,
          .direction = Direction::kStore,
          .gpu_blocks = std::move(gpu_blocks),
          .cpu_blocks = std::move(cpu_blocks)};
}

Transfer load(std::uint32_t job_id, Numbers gpu_blocks, Numbers cpu_blocks) {
  Transfer transfer = store(job_id, std::move(gpu_blocks), std::move(cpu_blocks));
  transfer.direction = Direction::kLoad;
  return transfer;
}

std::vector<Ended> finished(CopyWorker& worker) {
  std::vector<Ended> ended;
  worker.get_finished(ended);
  return ended;
}

TEST(CopyWorker, AStoreCopiesWhatTheForwardBeforeItWrote) {
  CopyWorker worker({});
  ASSERT_EQ(worker.forward({}, Numbers{3}), ErrorCode::kNone);
  ASSERT_EQ(worker.transfer_async(store(1, {3}, {2})), ErrorCode::kNone);
  EXPECT_FALSE(worker.advance(Stream::kStore));  // deferred
  worker.start_kv_transfers();
  EXPECT_FALSE(worker.advance(Stream::kStore));  // behind the forward
  EXPECT_TRUE(worker.advance(Stream::kCompute));
  EXPECT_TRUE(finished(worker).empty());
  EXPECT_TRUE(worker.advance(Stream::kStore));
  EXPECT_EQ(worker.cpu_content(2), written(3, 1));
  EXPECT_EQ(finished(worker), (std::vector<Ended>{{1, Direction::kStore, true}}));
  EXPECT_TRUE(finished(worker).empty());
}

TEST(CopyWorker, ALoadDoesNotDisturbTheForwardsBeforeIt) {
  CopyWorker worker({});
  ASSERT_EQ(worker.forward({}, Numbers{0}), ErrorCode::kNone);
  ASSERT_EQ(worker.forward(Numbers{0}, {}), ErrorCode::kNone);
  ASSERT_EQ(worker.transfer_async(load(1, {0}, {0})), ErrorCode::kNone);
  worker.wait(Numbers{1});
  std::vector<worker::Seen> seen;
  worker.take_seen(seen);
  EXPECT_EQ(seen, (std::vector<worker::Seen>{{0, written(0, 1)}}));
  EXPECT_EQ(worker.gpu_content(0), Content{});  // what was loaded was never written
}

TEST(CopyWorker, PagesAreCountedFromThePlaceInTheRequest) {
  CopyWorker worker({.block_size_factor = 2});
  ASSERT_EQ(worker.forward({}, Numbers{0, 1}), ErrorCode::kNone);
  Transfer transfer = store(1, {0, 1}, {3, 1});
  transfer.block_index = 5;
  ASSERT_EQ(worker.transfer_async(transfer), ErrorCode::kNone);
  worker.wait(Numbers{1});
  EXPECT_EQ(worker.cpu_content(6), Content{});
  EXPECT_EQ(worker.cpu_content(7), written(0, 1));
  EXPECT_EQ(worker.cpu_content(2), written(1, 1));
}

TEST(CopyWorker, AWaitRunsNoMoreThanItNeeds) {
  CopyWorker worker({});
  ASSERT_EQ(worker.transfer_async(store(1, {0}, {0})), ErrorCode::kNone);
  ASSERT_EQ(worker.transfer_async(store(2, {1}, {1})), ErrorCode::kNone);
  worker.start_kv_transfers();
  ASSERT_EQ(worker.forward({}, Numbers{2}), ErrorCode::kNone);
  worker.wait(Numbers{1, 9});
  EXPECT_EQ(finished(worker), (std::vector<Ended>{{1, Direction::kStore, true}}));
  EXPECT_EQ(worker.counts().num_in_flight, 1U);
  EXPECT_TRUE(worker.advance(Stream::kCompute));
}

TEST(CopyWorker, FaultsAreOfTheNextTransferThatIsEnqueued) {
  CopyWorker worker({});
  ASSERT_EQ(worker.forward({}, Numbers{0, 1}), ErrorCode::kNone);
  worker.fail_next(worker::Fault::kCopy);
  ASSERT_EQ(worker.transfer_async(store(1, {0}, {0})), ErrorCode::kNone);
  ASSERT_EQ(worker.transfer_async(store(2, {1}, {1})), ErrorCode::kNone);
  EXPECT_EQ(worker.counts().next_fault, worker::Fault::kCopy);
  worker.start_kv_transfers();
  EXPECT_EQ(worker.counts().next_fault, worker::Fault::kNone);
  worker.wait(Numbers{1, 2});
  EXPECT_EQ(worker.cpu_content(0), Content{});
  EXPECT_EQ(worker.cpu_content(1), written(1, 1));
  EXPECT_EQ(finished(worker),
            (std::vector<Ended>{{1, Direction::kStore, false}, {2, Direction::kStore, true}}));
}

TEST(CopyWorker, AnEndThatIsLateIsAskedForAgain) {
  CopyWorker worker({});
  worker.fail_next(worker::Fault::kLate);
  ASSERT_EQ(worker.transfer_async(load(1, {0}, {0})), ErrorCode::kNone);
  EXPECT_TRUE(worker.advance(Stream::kLoad));
  for (std::uint32_t poll = 0; poll < worker::kNumLatePolls; ++poll) {
    EXPECT_TRUE(finished(worker).empty());
  }
  EXPECT_EQ(finished(worker), (std::vector<Ended>{{1, Direction::kLoad, true}}));
}

TEST(CopyWorker, RefusesInOrder) {
  CopyWorker worker({.num_gpu_blocks = 4, .num_cpu_blocks = 2});
  ASSERT_EQ(worker.transfer_async(store(1, {0}, {0})), ErrorCode::kNone);
  EXPECT_EQ(worker.transfer_async(load(1, {9}, {})), ErrorCode::kJobInFlight);
  EXPECT_EQ(worker.transfer_async(load(2, {4}, {})), ErrorCode::kUnknownBlock);
  EXPECT_EQ(worker.transfer_async(load(2, {3, 3}, {1})), ErrorCode::kCountsDiffer);
  EXPECT_EQ(worker.transfer_async(load(2, {3, 3}, {1, 1})), ErrorCode::kListedTwice);
  EXPECT_EQ(worker.transfer_async(load(2, {0}, {1})), ErrorCode::kBlockInFlight);
  EXPECT_EQ(worker.transfer_async(load(2, {1}, {0})), ErrorCode::kBlockInFlight);
  Transfer unordered = load(2, {1}, {1});
  unordered.has_event = false;
  EXPECT_EQ(worker.transfer_async(unordered), ErrorCode::kNotOrdered);
  EXPECT_EQ(worker.forward({}, Numbers{0}), ErrorCode::kBlockInFlight);
  EXPECT_EQ(worker.forward(Numbers{0}, {}), ErrorCode::kNone);
  std::vector<Ended> ended;
  worker.shutdown(ended);
  EXPECT_EQ(ended, (std::vector<Ended>{{1, Direction::kStore, true}}));
  EXPECT_EQ(worker.transfer_async(store(1, {9}, {})), ErrorCode::kShutDown);
}

}  // namespace
}  // namespace kvfence::reference
