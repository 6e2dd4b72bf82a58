// Tests the worker's half of a simple connector on both sides, with a copy engine that the test
// advances.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "contract/scripted/scripted_transfer_engine.h"
#include "optimized/connectors/simple/simple_cpu_offload.h"
#include "properties/core/both_sides_test_support.h"
#include "reference/connectors/simple/simple_cpu_offload.h"

namespace kvfence {
namespace {

using Names = std::vector<std::string>;
using Jobs = std::vector<TransferResult>;

using Maker = BySide<decltype(&reference::make_simple_cpu_offload_worker)>;
constexpr Maker kSides[] = {{"reference", reference::make_simple_cpu_offload_worker},
                            {"optimized", optimized::make_simple_cpu_offload_worker}};

class SimpleCPUOffloadWorkerRules : public ::testing::TestWithParam<Maker> {
 protected:
  static SimpleCPUOffloadSpec spec() {
    SimpleCPUOffloadSpec spec;
    spec.kv_cache.groups = {{.block_size = 4}};
    return spec;
  }

  SimpleCPUOffloadWorkerRules() { worker->register_kv_caches(engine); }

  void step(const SimpleCPUOffloadMetadata& metadata) {
    worker->handle_preemptions(metadata);
    worker->bind_connector_metadata(metadata);
    worker->start_load_kv();
    worker->wait_for_save();
    EXPECT_EQ(engine.transfers().size(), num_transfers_) << "nothing is submitted before";
    worker->get_finished({}, report);
    num_transfers_ = engine.transfers().size();
  }

  static SimpleCPUOffloadMetadata load(JobId event, Names requests) {
    SimpleCPUOffloadMetadata metadata;
    metadata.load_event = event;
    metadata.load_gpu_blocks = {3, 4};
    metadata.load_cpu_blocks = {1, 2};
    metadata.load_requests = std::move(requests);
    return metadata;
  }
  static SimpleCPUOffloadMetadata store(JobId event) {
    SimpleCPUOffloadMetadata metadata;
    metadata.store_event = event;
    metadata.store_gpu_blocks = {5};
    metadata.store_cpu_blocks = {6};
    return metadata;
  }

  void end(JobId event, bool is_store) {
    ASSERT_TRUE(engine.advance(transfer_number(event, is_store), TransferProgress::kFinished));
  }

  std::unique_ptr<KVConnectorWorker> worker = GetParam().make(spec());
  ScriptedTransferEngine engine;
  KVConnectorWorkerOutput report;

 private:
  std::size_t num_transfers_ = 0;  ///< after the last step
};

INSTANTIATE_TEST_SUITE_P(Simple, SimpleCPUOffloadWorkerRules, ::testing::ValuesIn(kSides),
                         SideNames());

TEST_P(SimpleCPUOffloadWorkerRules, SubmitsLoadsThenStores) {
  SimpleCPUOffloadMetadata metadata = load(0, {"a"});
  metadata.store_event = 0;
  metadata.store_gpu_blocks = {5};
  metadata.store_cpu_blocks = {6};
  step(metadata);
  ASSERT_EQ(engine.transfers().size(), 2U);
  const TransferJob& first = engine.transfers()[0].job;
  EXPECT_EQ(first.job, transfer_number(0, /*is_store=*/false));
  EXPECT_EQ(first.request, "");
  EXPECT_FALSE(first.spec.is_store);
  EXPECT_EQ(first.spec.gpu_blocks, std::vector<BlockId>({3, 4}));
  EXPECT_EQ(first.spec.slots, std::vector<SlotId>({1, 2}));
  const TransferJob& second = engine.transfers()[1].job;
  EXPECT_EQ(second.job, transfer_number(0, /*is_store=*/true));
  EXPECT_TRUE(second.spec.is_store);
  EXPECT_EQ(second.spec.gpu_blocks, std::vector<BlockId>({5}));
  EXPECT_EQ(second.spec.slots, std::vector<SlotId>({6}));
  EXPECT_EQ(report, KVConnectorWorkerOutput());
}

TEST_P(SimpleCPUOffloadWorkerRules, ReportsWhatEnded) {
  step(load(0, {"a", "b"}));
  step(store(0));
  end(0, /*is_store=*/true);
  step({});
  EXPECT_EQ(report.completed_jobs, Jobs({{0, true}}));
  EXPECT_EQ(report.finished_recving, Names());
  end(0, /*is_store=*/false);
  step({});
  EXPECT_EQ(report.completed_jobs, Jobs());
  EXPECT_EQ(report.finished_recving, Names({"a", "b"}));
  step({});
  EXPECT_EQ(report, KVConnectorWorkerOutput()) << "once";
}

// Each direction has its own mark; copies up to the mark have ended.
TEST_P(SimpleCPUOffloadWorkerRules, AMarkCoversEarlierCopiesOfItsDirection) {
  step(load(0, {"a"}));
  step(load(1, {"b", "c"}));
  step(load(2, {"d"}));
  step(store(0));
  step(store(1));
  step(store(2));
  end(1, /*is_store=*/false);
  end(2, /*is_store=*/true);
  step({});
  EXPECT_EQ(report.finished_recving, Names({"a", "b", "c"}));
  EXPECT_EQ(report.completed_jobs, Jobs({{0, true}, {1, true}, {2, true}}));
  end(0, /*is_store=*/false);
  step({});
  EXPECT_EQ(report, KVConnectorWorkerOutput());
}

TEST_P(SimpleCPUOffloadWorkerRules, AFlushWaitsForAllThatIsUnderWay) {
  step(load(0, {"a"}));
  step(store(0));
  SimpleCPUOffloadMetadata metadata = store(1);
  metadata.need_flush = true;
  step(metadata);
  EXPECT_EQ(report.finished_recving, Names({"a"}));
  EXPECT_EQ(report.completed_jobs, Jobs({{0, true}}))
      << "its own store is submitted after the flush";
  ASSERT_EQ(engine.transfers().size(), 1U);
  EXPECT_EQ(engine.transfers()[0].progress, TransferProgress::kSubmitted);
}

TEST_P(SimpleCPUOffloadWorkerRules, ManyEventsUnderWayKeepTheirOrder) {
  Names expected;
  for (JobId event = 0; event < 11; ++event) {
    step(load(event, {std::to_string(event)}));
    if (event >= 3) continue;
    end(event, /*is_store=*/false);
    step({});
    EXPECT_EQ(report.finished_recving, Names({std::to_string(event)}));
  }
  for (JobId event = 3; event < 11; ++event) expected.push_back(std::to_string(event));
  end(10, /*is_store=*/false);
  step({});
  EXPECT_EQ(report.finished_recving, expected);
}

}  // namespace
}  // namespace kvfence
