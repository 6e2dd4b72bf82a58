/// Goal: the reference copies, orders, refuses and reports as contract/worker/worker.h says.

#include "reference/worker/copy_worker.h"

#include "reference/worker/copy_workers.h"

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
  EXPECT_FALSE(worker.advance(Stream::kStore, 0));  // deferred
  worker.start_kv_transfers();
  EXPECT_FALSE(worker.advance(Stream::kStore, 0));  // after the forward
  EXPECT_TRUE(worker.advance(Stream::kCompute, 0));
  EXPECT_TRUE(finished(worker).empty());
  EXPECT_TRUE(worker.advance(Stream::kStore, 0));
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
  EXPECT_TRUE(worker.advance(Stream::kCompute, 0));
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
  EXPECT_TRUE(worker.advance(Stream::kLoad, 0));
  for (std::uint32_t poll = 0; poll < worker::kNumLatePolls; ++poll) {
    EXPECT_TRUE(finished(worker).empty());
  }
  EXPECT_EQ(finished(worker), (std::vector<Ended>{{1, Direction::kLoad, true}}));
}

TEST(CopyWorker, APartIsNoEnd) {
  CopyWorker worker({});
  const Content undefined{.kind = Content::Kind::kUndefined};
  ASSERT_EQ(worker.transfer_async(load(1, {0, 1}, {0, 1})), ErrorCode::kNone);
  EXPECT_EQ(worker.gpu_content(0), Content{});
  EXPECT_TRUE(worker.advance(Stream::kLoad, 100));
  EXPECT_EQ(worker.gpu_content(0), undefined);
  EXPECT_EQ(worker.gpu_content(1), undefined);
  EXPECT_TRUE(finished(worker).empty());
  EXPECT_TRUE(worker.advance(Stream::kLoad, 0));
  EXPECT_EQ(worker.gpu_content(0), Content{});
  EXPECT_EQ(finished(worker), (std::vector<Ended>{{1, Direction::kLoad, true}}));
  EXPECT_FALSE(worker.advance(Stream::kLoad, 1));
}

TEST(CopyWorker, APartialFailureTearsAllThatItWrites) {
  CopyWorker worker({});
  ASSERT_EQ(worker.forward({}, Numbers{0, 1}), ErrorCode::kNone);
  worker.fail_next(worker::Fault::kPartial);
  ASSERT_EQ(worker.transfer_async(store(1, {0, 1}, {0, 1})), ErrorCode::kNone);
  worker.start_kv_transfers();
  EXPECT_EQ(worker.cpu_content(0), Content{});
  worker.wait(Numbers{1});
  EXPECT_EQ(worker.cpu_content(0).kind, Content::Kind::kTorn);
  EXPECT_EQ(worker.cpu_content(1).kind, Content::Kind::kTorn);
  EXPECT_EQ(finished(worker), (std::vector<Ended>{{1, Direction::kStore, false}}));
  ASSERT_EQ(worker.transfer_async(store(2, {0}, {1})), ErrorCode::kNone);
  worker.wait(Numbers{2});
  EXPECT_EQ(worker.cpu_content(1), written(0, 1));
  EXPECT_EQ(finished(worker), (std::vector<Ended>{{2, Direction::kStore, true}}));
}

TEST(CopyWorker, ALostDeviceFailsAllWhoseEndNoWaitHasTold) {
  CopyWorker worker({});
  ASSERT_EQ(worker.forward({}, Numbers{0, 1, 2}), ErrorCode::kNone);
  for (std::uint32_t job = 0; job < 2; ++job) {
    ASSERT_EQ(worker.transfer_async(store(job, {job}, {job})), ErrorCode::kNone);
  }
  EXPECT_TRUE(worker.wait(Numbers{0}));
  EXPECT_TRUE(worker.advance(Stream::kStore, 0));
  worker.fail_next(worker::Fault::kSticky);
  ASSERT_EQ(worker.transfer_async(load(2, {7}, {3})), ErrorCode::kNone);
  EXPECT_TRUE(worker.advance(Stream::kLoad, 0));
  EXPECT_TRUE(worker.wait(Numbers{0})) << "its end was reported before";
  EXPECT_EQ(finished(worker), (std::vector<Ended>{{0, Direction::kStore, true},
                                                  {1, Direction::kStore, false, false},
                                                  {2, Direction::kLoad, false, false}}));
  ASSERT_EQ(worker.forward(Numbers{0}, {}), ErrorCode::kNone);
  EXPECT_FALSE(worker.advance(Stream::kCompute, 0));
  ASSERT_EQ(worker.transfer_async(load(3, {6}, {0})), ErrorCode::kNone);
  worker.fail_next(worker::Fault::kLate);
  std::vector<Ended> ended;
  worker.shutdown(ended);
  EXPECT_EQ(ended, (std::vector<Ended>{{3, Direction::kLoad, false, false}}));
  EXPECT_EQ(worker.counts().next_fault, worker::Fault::kLate);
}

TEST(CopyWorker, OfAFreeDeviceTheHostKnowsWhatItHasWaitedFor) {
  CopyWorker worker({.schedule = worker::Schedule::kEager});
  const Content undefined{.kind = Content::Kind::kUndefined};
  ASSERT_EQ(worker.forward({}, Numbers{0}), ErrorCode::kNone);
  ASSERT_EQ(worker.transfer_async(store(1, {0}, {0})), ErrorCode::kNone);
  worker.start_kv_transfers();
  ASSERT_EQ(worker.forward(Numbers{0}, Numbers{1}), ErrorCode::kNone);
  EXPECT_FALSE(worker.advance(Stream::kCompute, 0));
  EXPECT_EQ(worker.gpu_content(0), undefined);
  EXPECT_EQ(worker.cpu_content(0), undefined);
  worker.wait(Numbers{1});
  EXPECT_EQ(worker.gpu_content(0), written(0, 1));
  EXPECT_EQ(worker.gpu_content(1), undefined);
  EXPECT_EQ(worker.cpu_content(0), written(0, 1));
  EXPECT_EQ(finished(worker).size(), 1U);
  ASSERT_EQ(worker.transfer_async(load(2, {2}, {0})), ErrorCode::kNone);
  EXPECT_EQ(finished(worker).size(), 1U);
  EXPECT_EQ(worker.gpu_content(1), written(1, 2));
  EXPECT_EQ(worker.gpu_content(2), written(0, 1));
}

TEST(CopyWorkers, OneRankOfTwoIsNotAll) {
  CopyWorkers workers({.num_ranks = 2});
  static_assert(worker::CopyWorkers<CopyWorkers>);
  const auto reported = [&] {
    std::vector<Ended> ended;
    workers.get_finished(ended);
    return ended;
  };
  for (std::uint32_t job = 1; job <= 2; ++job) {
    ASSERT_EQ(workers.transfer_async(load(job, {job}, {job})), ErrorCode::kNone);
  }
  workers.advance(0, Stream::kLoad, 0);
  workers.advance(0, Stream::kLoad, 0);
  EXPECT_TRUE(reported().empty());
  EXPECT_EQ(workers.counts().num_in_flight, 2U);
  // The first rank would take it.
  EXPECT_EQ(workers.transfer_async(load(1, {3}, {3})), ErrorCode::kJobInFlight);
  EXPECT_EQ(workers.transfer_async(store(3, {1}, {0})), ErrorCode::kBlockInFlight);
  workers.advance(1, Stream::kLoad, 0);
  EXPECT_EQ(reported(), (std::vector<Ended>{{1, Direction::kLoad, true}}));
  workers.fail_next(1, worker::Fault::kCopy);
  EXPECT_EQ(workers.counts().next_fault, worker::Fault::kCopy);
  ASSERT_EQ(workers.transfer_async(load(3, {3}, {3})), ErrorCode::kNone);
  workers.wait(Numbers{2, 3});
  EXPECT_EQ(reported(),
            (std::vector<Ended>{{2, Direction::kLoad, true}, {3, Direction::kLoad, false}}));
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
