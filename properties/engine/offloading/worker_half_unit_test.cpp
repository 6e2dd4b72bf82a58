// Tests the worker's half on both sides, in both forms, with a copy engine that the test advances.

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/scripted/scripted_transfer_engine.h"
#include "optimized/connectors/offloading/offloading_connector.h"
#include "properties/core/both_sides_test_support.h"
#include "reference/connectors/offloading/offloading_connector.h"

namespace kvfence {
namespace {

using Ids = std::vector<BlockId>;
using Names = std::vector<std::string>;
using Results = std::vector<TransferResult>;

OffloadingSpec spec_of(Profile profile) {
  OffloadingSpec spec;
  spec.manager.cache.capacity = 8;
  spec.manager.rules = rules_of(profile);
  spec.kv_cache.pool.hash.hash_block_size = 4;
  spec.kv_cache.groups.resize(1);
  spec.kv_cache.groups.front().block_size = 4;
  return spec;
}

using Maker = BySide<decltype(&reference::make_offloading_connector_worker)>;
constexpr Maker kSides[] = {{"reference", reference::make_offloading_connector_worker},
                            {"optimized", optimized::make_offloading_connector_worker}};

/// A rank: a worker's half and its copy engine. A step's metadata is filled before `step`.
class Rank {
 public:
  Rank(const Maker& make, Profile profile) : worker_(make.make(spec_of(profile))) { bind(); }
  /// A copy has its own engine and metadata.
  void bind() {
    worker_->register_kv_caches(engine);
    worker_->bind_connector_metadata(metadata);
  }

  void load(const std::string& request, Ids gpu_blocks, JobId job = 0) {
    add(metadata.loads, request, std::move(gpu_blocks), job);
  }
  void store(const std::string& request, Ids gpu_blocks, JobId job = 0) {
    add(metadata.stores, request, std::move(gpu_blocks), job).spec.is_store = true;
  }

  /// Runs a whole step, then clears the metadata.
  KVConnectorWorkerOutput step(const Names& finished = {}) {
    before_forward();
    worker_->wait_for_save();
    return get_finished(finished);
  }
  /// A step without tokens.
  KVConnectorWorkerOutput step_without_tokens(const Names& finished = {}) {
    before_forward();
    return get_finished(finished);
  }
  void before_forward() {
    bind();
    worker_->handle_preemptions(metadata);
    worker_->start_load_kv();
  }
  KVConnectorWorkerOutput get_finished(const Names& finished = {}) {
    KVConnectorWorkerOutput out;
    out.finished_sending = {"before"};
    worker_->get_finished(finished, out);
    metadata = {};
    return out;
  }
  KVConnectorWorkerHandle& worker() { return worker_; }

  void finish(JobId job) { EXPECT_TRUE(engine.advance(job, TransferProgress::kFinished)); }
  void fail(JobId job) { EXPECT_TRUE(engine.advance(job, TransferProgress::kFailed)); }

  /// The copy engine's transfers in the order of submission: "store 0 A submitted".
  Names transfers() const {
    Names all;
    for (const ScriptedTransferEngine::Transfer& transfer : engine.transfers()) {
      all.push_back((transfer.job.spec.is_store ? "store " : "load ") +
                    std::to_string(transfer.job.job) + " " + transfer.job.request + " " +
                    std::string(to_text(transfer.progress)));
    }
    return all;
  }

  OffloadingConnectorMetadata metadata;
  ScriptedTransferEngine engine;

 private:
  static TransferJob& add(std::vector<TransferJob>& jobs, const std::string& request,
                          Ids gpu_blocks, JobId job) {
    TransferJob& added = jobs.emplace_back();
    added.job = job;
    added.request = request;
    added.spec.gpu_blocks = std::move(gpu_blocks);
    return added;
  }

  KVConnectorWorkerHandle worker_;
};

// Both.

class EachWorker : public ::testing::TestWithParam<std::tuple<Maker, Profile>> {
 protected:
  static Rank rank_of() { return {std::get<0>(GetParam()), std::get<1>(GetParam())}; }
  static bool fences() { return std::get<1>(GetParam()) == Profile::kV023; }
};
INSTANTIATE_TEST_SUITE_P(Offloading, EachWorker,
                         ::testing::Combine(::testing::ValuesIn(kSides),
                                            ::testing::ValuesIn(kProfiles)),
                         SideNames());

template <Profile kProfile>
class OneWorker : public ::testing::TestWithParam<Maker> {
 protected:
  static Rank rank_of() { return {GetParam(), kProfile}; }
};
using HoldingWorker = OneWorker<Profile::kV019>;
using FencingWorker = OneWorker<Profile::kV023>;
INSTANTIATE_TEST_SUITE_P(Offloading, HoldingWorker, ::testing::ValuesIn(kSides), SideNames());
INSTANTIATE_TEST_SUITE_P(Offloading, FencingWorker, ::testing::ValuesIn(kSides), SideNames());

TEST_P(EachWorker, StoresAreSubmittedWithTheNextStep) {
  Rank rank = rank_of();
  rank.store("A", {1}, 0);
  rank.store("B", {2}, 1);
  rank.step();
  EXPECT_EQ(rank.transfers(), Names());
  rank.before_forward();
  EXPECT_EQ(rank.transfers(), Names({"store 0 A submitted", "store 1 B submitted"}));
}

TEST_P(EachWorker, QueuedStoresGoBeforeLoads) {
  Rank rank = rank_of();
  rank.store("A", {1}, 0);
  rank.step();
  rank.load("B", {2}, 1);
  rank.worker()->start_load_kv();
  EXPECT_EQ(rank.transfers(), Names({"store 0 A submitted", "load 1 B submitted"}))
      << "also without a call of handle_preemptions";
}

TEST_P(EachWorker, ALoadIsReportedOnceItEnded) {
  Rank rank = rank_of();
  rank.load("A", {1, 2});
  EXPECT_EQ(rank.step(), KVConnectorWorkerOutput());
  rank.finish(0);
  const KVConnectorWorkerOutput out = rank.step();
  EXPECT_EQ(out.finished_recving, Names({"A"}));
  EXPECT_EQ(out.finished_sending, Names());
  EXPECT_EQ(out.invalid_block_ids, Ids());
  EXPECT_EQ(out.completed_jobs, fences() ? Results({{0, true}}) : Results());
  EXPECT_EQ(rank.step(), KVConnectorWorkerOutput());
}

TEST_P(EachWorker, AFailedLoadIsOverAndItsBlocksAreInvalid) {
  Rank rank = rank_of();
  rank.load("A", {3, 2}, 0);
  rank.load("B", {5}, 1);
  rank.step();
  rank.fail(0);
  rank.finish(1);
  const KVConnectorWorkerOutput out = rank.step();
  EXPECT_EQ(out.finished_recving, Names({"A", "B"}));
  EXPECT_EQ(out.invalid_block_ids, Ids({3, 2}));
  EXPECT_EQ(out.completed_jobs, fences() ? Results({{0, false}, {1, true}}) : Results());
}

TEST_P(EachWorker, AResultThatIsReportedAgainIsPassedOver) {
  Rank rank = rank_of();
  rank.load("A", {1});
  rank.step();
  rank.finish(0);
  rank.step();
  ASSERT_TRUE(rank.engine.report_again(0));
  EXPECT_EQ(rank.step(), KVConnectorWorkerOutput());
}

// Upstream: test_metrics.py, a worker's records.
TEST_P(EachWorker, StatisticsAreWhatEndedWellAndTookAKnownTime) {
  Rank rank = rank_of();
  rank.store("A", {1, 2}, 0);
  rank.step();
  rank.load("B", {3}, 1);
  rank.load("C", {4}, 2);
  rank.load("D", {5}, 3);
  EXPECT_TRUE(rank.step().stats.empty());
  EXPECT_TRUE(rank.engine.advance(0, TransferProgress::kFinished, 7));
  EXPECT_TRUE(rank.engine.advance(1, TransferProgress::kFailed, 7));
  EXPECT_TRUE(rank.engine.advance(2, TransferProgress::kFinished));
  EXPECT_TRUE(rank.engine.advance(3, TransferProgress::kFinished, 5));
  const std::vector<TransferOperations> measured = {{"GPU_to_CPU", {{8192, 7e-6}}},
                                                    {"CPU_to_GPU", {{4096, 5e-6}}}};
  EXPECT_EQ(rank.step().stats, measured);
  EXPECT_TRUE(rank.engine.report_again(0));
  EXPECT_TRUE(rank.step().stats.empty());
}

// Hold.

TEST_P(HoldingWorker, NumbersTransfersItself) {
  Rank rank = rank_of();
  rank.store("A", {1}, 7);
  rank.load("B", {2}, 7);
  rank.step();
  rank.load("C", {3}, 7);
  rank.step();
  EXPECT_EQ(rank.transfers(),
            Names({"load 0 B submitted", "store 1 A submitted", "load 2 C submitted"}));
}

TEST_P(HoldingWorker, StoresAreQueuedAfterTheForwardPass) {
  Rank rank = rank_of();
  rank.store("A", {1});
  rank.step_without_tokens();
  rank.before_forward();
  EXPECT_EQ(rank.transfers(), Names());
}

TEST_P(HoldingWorker, APreemptedRequestsStoresAreAwaited) {
  Rank rank = rank_of();
  rank.store("A", {1});
  rank.store("B", {2});
  rank.step();
  rank.store("A", {3});
  rank.load("C", {4});
  rank.step();
  rank.metadata.requests_to_flush = {"A", "unknown"};
  rank.worker()->handle_preemptions(rank.metadata);
  EXPECT_EQ(rank.transfers(), Names({"store 0 A finished", "store 1 B submitted",
                                     "load 2 C submitted", "store 3 A finished"}))
      << "the queued one too, and no other request's";
}

TEST_P(HoldingWorker, AFinishedRequestIsSentWithItsLastStore) {
  Rank rank = rank_of();
  rank.store("A", {1});
  rank.step();
  rank.store("A", {2});
  rank.step();
  rank.finish(0);
  EXPECT_EQ(rank.step({"A"}), KVConnectorWorkerOutput()) << "the second is under way";
  rank.finish(1);
  EXPECT_EQ(rank.step().finished_sending, Names({"A"}));
  EXPECT_EQ(rank.step({"A"}).finished_sending, Names()) << "once";
}

TEST_P(HoldingWorker, AFinishedRequestIsSentAtOnceIfItsStoresAreDone) {
  Rank rank = rank_of();
  rank.store("A", {1});
  rank.step();
  rank.before_forward();
  rank.finish(0);
  EXPECT_EQ(rank.step(), KVConnectorWorkerOutput()) << "it is not finished";
  EXPECT_EQ(rank.step({"A", "B"}).finished_sending, Names({"A"})) << "B had no store";
  EXPECT_EQ(rank.step({"A"}).finished_sending, Names()) << "once";
}

TEST_P(HoldingWorker, AStoreThatEndsAsItsRequestFinishesIsEnough) {
  Rank rank = rank_of();
  rank.store("A", {1});
  rank.step();
  rank.before_forward();
  rank.finish(0);
  EXPECT_EQ(rank.step({"A"}).finished_sending, Names({"A"}));
}

TEST_P(HoldingWorker, AStoreIsStillQueuedWhenItsRequestFinishes) {
  Rank rank = rank_of();
  rank.store("A", {1});
  EXPECT_EQ(rank.step({"A"}).finished_sending, Names());
  rank.before_forward();
  rank.finish(0);
  EXPECT_EQ(rank.step_without_tokens().finished_sending, Names({"A"}));
}

TEST_P(HoldingWorker, ARequestThatLoadsIsNotSentForEarlierStores) {
  Rank rank = rank_of();
  rank.store("A", {1});
  rank.step();
  rank.before_forward();
  rank.finish(0);
  rank.step();
  rank.load("A", {2});
  EXPECT_EQ(rank.step({"A"}).finished_sending, Names());
  rank.finish(1);
  EXPECT_EQ(rank.step().finished_recving, Names({"A"}));
}

TEST(ReferenceOffloadingWorkerDeathTest, StoresDoNotFail) {
  Rank rank(kSides[0], Profile::kV019);
  rank.store("A", {1});
  rank.step();
  rank.before_forward();
  rank.fail(0);
  EXPECT_DEATH(rank.step(), "stores do not fail");
}

// Fence.

TEST_P(FencingWorker, TransfersHaveTheSchedulersNumbers) {
  Rank rank = rank_of();
  rank.load("A", {1}, 4);
  rank.store("B", {2}, 5);
  rank.step();
  rank.before_forward();
  EXPECT_EQ(rank.transfers(), Names({"load 4 A submitted", "store 5 B submitted"}));
}

TEST_P(FencingWorker, StoresAreQueuedInAStepWithoutTokens) {
  Rank rank = rank_of();
  rank.store("A", {1}, 0);
  rank.step_without_tokens();
  rank.before_forward();
  EXPECT_EQ(rank.transfers(), Names({"store 0 A submitted"}));
}

TEST_P(FencingWorker, JobsToFlushAreAwaitedLoadsToo) {
  Rank rank = rank_of();
  rank.load("A", {1}, 0);
  rank.store("B", {2}, 1);
  rank.store("C", {3}, 2);
  rank.step();
  rank.metadata.jobs_to_flush = {0, 1, 9};
  rank.before_forward();
  EXPECT_EQ(rank.transfers(),
            Names({"load 0 A finished", "store 1 B finished", "store 2 C submitted"}))
      << "the queued one was submitted before";
}

TEST_P(FencingWorker, EveryJobIsReportedInTheOrderOfItsEnd) {
  Rank rank = rank_of();
  rank.store("A", {1}, 0);
  rank.store("B", {2}, 1);
  rank.step();
  rank.before_forward();
  rank.fail(1);
  rank.finish(0);
  const KVConnectorWorkerOutput out = rank.step({"A", "B"});
  EXPECT_EQ(out.completed_jobs, Results({{1, false}, {0, true}}));
  EXPECT_EQ(out.finished_sending, Names()) << "never";
  EXPECT_EQ(out.invalid_block_ids, Ids()) << "a store leaves its blocks as they are";
}

}  // namespace
}  // namespace kvfence
