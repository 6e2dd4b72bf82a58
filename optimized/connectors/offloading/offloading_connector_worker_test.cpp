// Goal: the worker's halves submit, wait and report as
// contract/connectors/offloading/offloading_connector.h says.
// Method: one rank with a scripted engine, step by step.

#include "optimized/connectors/offloading/offloading_connector_worker.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "contract/scripted/scripted_transfer_engine.h"
#include "optimized/connectors/offloading/offloading_connector.h"

namespace kvfence::optimized {
namespace {

TransferJob load_of(const std::string& request, std::vector<BlockId> blocks, JobId job = 0) {
  const auto size = static_cast<std::uint32_t>(blocks.size());
  return {job, request, {false, std::move(blocks), {size}, {0}, {7}}};
}

TransferJob store_of(const std::string& request, BlockId block, JobId job = 0) {
  return {job, request, {true, {block}, {1}, {}, {5}}};
}

/// One rank.
class Rank {
 public:
  explicit Rank(Profile profile) {
    OffloadingSpec spec;
    spec.manager.cache.capacity = 4;
    spec.manager.rules = rules_of(profile);
    spec.kv_cache.groups = {{.block_size = 4}};
    worker_ = make_offloading_connector_worker(spec);
    worker_->register_kv_caches(engine_);
  }

  /// The report of one step.
  KVConnectorWorkerOutput step(const OffloadingConnectorMetadata& metadata,
                               const std::vector<std::string>& finished = {},
                               bool has_tokens = true) {
    worker_->handle_preemptions(metadata);
    worker_->bind_connector_metadata(metadata);
    worker_->start_load_kv();
    if (has_tokens) worker_->wait_for_save();
    KVConnectorWorkerOutput out;
    out.finished_sending = {"left over"};
    worker_->get_finished(finished, out);
    return out;
  }

  ScriptedTransferEngine& engine() { return engine_; }
  KVConnectorWorker& worker() { return *worker_; }

  /// Numbers and requests of what the engine has.
  std::vector<std::string> under_way() const {
    std::vector<std::string> names;
    for (const ScriptedTransferEngine::Transfer& transfer : engine_.transfers()) {
      names.push_back(transfer.job.request + std::to_string(transfer.job.job));
    }
    return names;
  }

 private:
  std::unique_ptr<KVConnectorWorker> worker_;
  ScriptedTransferEngine engine_;
};

using Names = std::vector<std::string>;

OffloadingConnectorMetadata stores(std::vector<TransferJob> jobs) {
  OffloadingConnectorMetadata metadata;
  metadata.stores = std::move(jobs);
  return metadata;
}

OffloadingConnectorMetadata loads(std::vector<TransferJob> jobs) {
  OffloadingConnectorMetadata metadata;
  metadata.loads = std::move(jobs);
  return metadata;
}

TEST(HoldingWorker, NumbersTransfersAndSubmitsStoresAStepLater) {
  Rank rank(Profile::kV019);
  OffloadingConnectorMetadata metadata = stores({store_of("A", 1), store_of("B", 2)});
  metadata.loads = {load_of("C", {3})};
  EXPECT_EQ(rank.step(metadata), KVConnectorWorkerOutput());
  EXPECT_EQ(rank.under_way(), Names{"C0"});
  rank.step(loads({load_of("D", {4})}));
  EXPECT_EQ(rank.under_way(), (Names{"C0", "A1", "B2", "D3"}));
}

TEST(HoldingWorker, ReportsARequestAsSentWhenItIsFinishedAndItsLastStoreHasEnded) {
  Rank rank(Profile::kV019);
  rank.step(stores({store_of("A", 1), store_of("A", 2), store_of("B", 3)}));
  rank.step({});
  EXPECT_TRUE(rank.engine().advance(2, TransferProgress::kFinished));
  EXPECT_TRUE(rank.step({}).finished_sending.empty());  // B still runs
  EXPECT_TRUE(rank.engine().advance(0, TransferProgress::kFinished));
  // B's ended before; A has one left; C never stored.
  EXPECT_EQ(rank.step({}, {"A", "B", "C"}).finished_sending, Names{"B"});
  EXPECT_TRUE(rank.engine().advance(1, TransferProgress::kFinished));
  EXPECT_EQ(rank.step({}).finished_sending, Names{"A"});
  EXPECT_TRUE(rank.step({}, {"A", "B"}).finished_sending.empty());  // once
}

TEST(HoldingWorker, WaitsForTheStoresOfPreemptedRequests) {
  Rank rank(Profile::kV019);
  rank.step(stores({store_of("A", 1), store_of("B", 2), store_of("A", 3)}));
  OffloadingConnectorMetadata metadata;
  metadata.requests_to_flush = {"A", "C"};
  rank.step(metadata);
  EXPECT_EQ(rank.under_way(), Names{"B1"});
}

TEST(HoldingWorker, ALoadForgetsThatTheRequestHadStored) {
  Rank rank(Profile::kV019);
  rank.step(stores({store_of("A", 1)}));
  OffloadingConnectorMetadata metadata;
  metadata.requests_to_flush = {"A"};
  rank.step(metadata);
  EXPECT_TRUE(rank.step(loads({load_of("A", {3})}), {"A"}).finished_sending.empty());
  EXPECT_TRUE(rank.engine().advance(1, TransferProgress::kFinished));
  EXPECT_EQ(rank.step({}).finished_recving, Names{"A"});
}

TEST(EachWorker, MeasuresWhatEndedWellAndTookAKnownTime) {
  for (const Profile profile : {Profile::kV019, Profile::kV023}) {
    Rank rank(profile);
    OffloadingConnectorMetadata metadata = loads({load_of("A", {3, 4}), load_of("B", {5})});
    metadata.loads.back().job = 1;
    rank.step(metadata);
    EXPECT_TRUE(rank.engine().advance(1, TransferProgress::kFinished));
    EXPECT_TRUE(rank.engine().advance(0, TransferProgress::kFinished, 2));
    const std::vector<TransferOperations> measured = {{"CPU_to_GPU", {{8192, 2e-6}}}};
    EXPECT_EQ(rank.step({}).stats, measured);
    EXPECT_TRUE(rank.step({}).stats.empty());
  }
}

TEST(HoldingWorker, AFailedLoadIsOverAndItsBlocksAreInvalid) {
  Rank rank(Profile::kV019);
  rank.step(loads({load_of("A", {3, 0, 4})}));
  EXPECT_TRUE(rank.engine().advance(0, TransferProgress::kFailed));
  const KVConnectorWorkerOutput out = rank.step({});
  EXPECT_EQ(out.finished_recving, Names{"A"});
  EXPECT_EQ(out.invalid_block_ids, (std::vector<BlockId>{3, 4}));
  EXPECT_TRUE(rank.engine().report_again(0));
  EXPECT_EQ(rank.step({}), KVConnectorWorkerOutput());
}

TEST(FencingWorker, KeepsTheNumbersAndSubmitsStoresAStepLater) {
  Rank rank(Profile::kV023);
  OffloadingConnectorMetadata metadata = stores({store_of("A", 1, 8)});
  metadata.loads = {load_of("C", {3}, 7)};
  EXPECT_EQ(rank.step(metadata), KVConnectorWorkerOutput());
  EXPECT_EQ(rank.under_way(), Names{"C7"});
  EXPECT_TRUE(rank.engine().advance(7, TransferProgress::kFinished));
  const KVConnectorWorkerOutput out = rank.step({});
  EXPECT_EQ(out.finished_recving, Names{"C"});
  EXPECT_EQ(out.completed_jobs, (std::vector<TransferResult>{{7, true}}));
  EXPECT_EQ(rank.under_way(), Names{"A8"});
}

TEST(FencingWorker, AStepWithoutTokensQueuesAndSubmitsAsWell) {
  Rank rank(Profile::kV023);
  rank.step(stores({store_of("A", 1, 0)}), {}, /*has_tokens=*/false);
  rank.step({}, {}, /*has_tokens=*/false);
  EXPECT_EQ(rank.under_way(), Names{"A0"});
}

TEST(FencingWorker, SubmitsBeforeItWaits) {
  Rank rank(Profile::kV023);
  rank.step(stores({store_of("A", 1, 0), store_of("B", 2, 1)}));
  OffloadingConnectorMetadata metadata;
  metadata.jobs_to_flush = {0, 9};
  const KVConnectorWorkerOutput out = rank.step(metadata, {"A"});
  EXPECT_EQ(out.completed_jobs, (std::vector<TransferResult>{{0, true}}));
  EXPECT_TRUE(out.finished_sending.empty());
  EXPECT_EQ(rank.under_way(), Names{"B1"});
}

TEST(FencingWorker, ReportsFailures) {
  Rank rank(Profile::kV023);
  OffloadingConnectorMetadata metadata = stores({store_of("A", 1, 0)});
  metadata.loads = {load_of("B", {3, 4}, 1)};
  rank.step(metadata);
  rank.step({});
  EXPECT_TRUE(rank.engine().advance(1, TransferProgress::kFailed));
  EXPECT_TRUE(rank.engine().advance(0, TransferProgress::kFailed));
  const KVConnectorWorkerOutput out = rank.step({});
  EXPECT_EQ(out.completed_jobs, (std::vector<TransferResult>{{1, false}, {0, false}}));
  EXPECT_EQ(out.finished_recving, Names{"B"});
  EXPECT_EQ(out.invalid_block_ids, (std::vector<BlockId>{3, 4}));
  EXPECT_TRUE(rank.engine().report_again(0));
  EXPECT_TRUE(rank.engine().report_again(1));
  EXPECT_EQ(rank.step({}), KVConnectorWorkerOutput());
}

TEST(OffloadingWorker, ACopyGoesItsOwnWay) {
  for (Profile profile : kProfiles) {
    Rank rank(profile);
    rank.step(stores({store_of("A", 1, 0)}));
    const std::unique_ptr<KVConnectorWorker> copy = rank.worker().clone();
    rank.step({});
    ScriptedTransferEngine other;
    const OffloadingConnectorMetadata nothing;
    copy->register_kv_caches(other);
    copy->bind_connector_metadata(nothing);
    copy->start_load_kv();
    EXPECT_EQ(other.transfers().size(), 1U);
    EXPECT_EQ(rank.under_way(), Names{"A0"});
  }
}

}  // namespace
}  // namespace kvfence::optimized
