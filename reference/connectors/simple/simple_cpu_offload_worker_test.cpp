// Each rule of the worker's half, with a scripted copy engine.
#include "reference/connectors/simple/simple_cpu_offload_worker.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "contract/scripted/scripted_transfer_engine.h"

namespace kvfence::reference {
namespace {

using Names = std::vector<std::string>;
using Jobs = std::vector<JobId>;

class Rank {
 public:
  SimpleCPUOffloadMetadata metadata;

  Rank() {
    worker_.register_kv_caches(engine);
    worker_.bind_connector_metadata(metadata);
  }

  /// A step of which the metadata is told; it is empty again behind it.
  const KVConnectorWorkerOutput& step() {
    worker_.handle_preemptions(metadata);
    worker_.start_load_kv();
    worker_.wait_for_save();
    worker_.get_finished({}, out_);
    metadata = {};
    return out_;
  }
  void load(JobId event, Names requests) {
    metadata.load_event = event;
    metadata.load_gpu_blocks = {5};
    metadata.load_cpu_blocks = {6};
    metadata.load_requests = std::move(requests);
  }
  void store(JobId event) {
    metadata.store_event = event;
    metadata.store_gpu_blocks = {7};
    metadata.store_cpu_blocks = {8};
  }
  void finish(JobId event, bool is_store) {
    EXPECT_TRUE(engine.advance(transfer_number(event, is_store), TransferProgress::kFinished));
  }
  Jobs stored() const {
    Jobs events;
    for (const TransferResult& result : out_.completed_jobs) events.push_back(result.job);
    return events;
  }

  ScriptedTransferEngine engine;

 private:
  SimpleCPUOffloadWorker worker_;
  KVConnectorWorkerOutput out_;
};

TEST(SimpleCPUOffloadWorker, SubmitsLoadsThenStoresBehindTheStep) {
  Rank rank;
  rank.load(0, {"A"});
  rank.store(0);
  rank.step();
  ASSERT_EQ(rank.engine.transfers().size(), 2u);
  const TransferJob& load = rank.engine.transfers()[0].job;
  const TransferJob& store = rank.engine.transfers()[1].job;
  EXPECT_FALSE(load.spec.is_store);
  EXPECT_EQ(load.spec.gpu_blocks, std::vector<BlockId>({5}));
  EXPECT_EQ(load.spec.slots, std::vector<SlotId>({6}));
  EXPECT_TRUE(store.spec.is_store);
  EXPECT_EQ(store.spec.gpu_blocks, std::vector<BlockId>({7}));
  EXPECT_EQ(store.spec.slots, std::vector<SlotId>({8}));
  EXPECT_NE(load.job, store.job);
}

TEST(SimpleCPUOffloadWorker, ReportsWhatEndedOnce) {
  Rank rank;
  rank.load(0, {"A", "B"});
  rank.store(0);
  rank.step();
  EXPECT_TRUE(rank.step().finished_recving.empty());
  rank.finish(0, false);
  EXPECT_EQ(rank.step().finished_recving, Names({"A", "B"}));
  EXPECT_EQ(rank.stored(), Jobs());
  rank.finish(0, true);
  EXPECT_TRUE(rank.step().finished_recving.empty());
  EXPECT_EQ(rank.stored(), Jobs({0}));
  rank.step();
  EXPECT_EQ(rank.stored(), Jobs());
}

TEST(SimpleCPUOffloadWorker, WhatEndsWithinTheStepThatSubmitsItWaits) {
  Rank rank;
  rank.load(0, {"A"});
  rank.step();
  rank.load(1, {"B"});
  rank.finish(0, false);
  EXPECT_EQ(rank.step().finished_recving, Names({"A"}));
  rank.finish(1, false);
  EXPECT_EQ(rank.step().finished_recving, Names({"B"}));
}

TEST(SimpleCPUOffloadWorker, TheMarkCoversWhatWasSubmittedBefore) {
  Rank rank;
  for (const JobId event : {0u, 1u, 2u}) {
    rank.store(event);
    rank.step();
  }
  rank.finish(1, true);
  rank.step();
  EXPECT_EQ(rank.stored(), Jobs({0, 1}));
  rank.finish(0, true);
  rank.step();
  EXPECT_EQ(rank.stored(), Jobs());
  rank.finish(2, true);
  rank.step();
  EXPECT_EQ(rank.stored(), Jobs({2}));
}

TEST(SimpleCPUOffloadWorker, AFlushWaitsForEveryCopyOfTheStepsBefore) {
  Rank rank;
  rank.load(0, {"A"});
  rank.store(0);
  rank.step();
  rank.step();
  EXPECT_EQ(rank.engine.transfers().size(), 2u) << "nobody waits";
  rank.store(1);
  rank.metadata.need_flush = true;
  EXPECT_EQ(rank.step().finished_recving, Names({"A"}));
  EXPECT_EQ(rank.stored(), Jobs({0}));
  ASSERT_EQ(rank.engine.transfers().size(), 1u) << "that of this step";
  EXPECT_EQ(rank.engine.transfers()[0].progress, TransferProgress::kSubmitted);
}

TEST(SimpleCPUOffloadWorker, TransferNumbersComeBack) {
  for (const JobId event : {0u, 1u, 7u}) {
    for (const bool is_store : {false, true}) {
      const JobId transfer = transfer_number(event, is_store);
      EXPECT_EQ(event_of(transfer), event);
      EXPECT_EQ(is_store_transfer(transfer), is_store);
    }
  }
}

}  // namespace
}  // namespace kvfence::reference
