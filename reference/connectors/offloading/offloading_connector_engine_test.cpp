// Stories of a whole engine: the scheduler with the offloading connector behind it, the workers of
// all ranks, and copy engines whose progress the test decides. Blocks have 4 tokens, a step has a
// budget of 16.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "contract/scripted/scripted_transfer_engine.h"
#include "reference/connectors/kv_output_aggregator.h"
#include "reference/connectors/offloading/offloading_connector.h"
#include "reference/scheduler/scheduler.h"

namespace kvfence::reference {
namespace {

using Jobs = std::vector<JobId>;
using Names = std::vector<std::string>;
using Tokens = std::vector<TokenId>;

struct Setting {
  std::uint32_t num_gpu_blocks = 33;
  std::uint32_t num_cpu_blocks = 16;
  std::uint32_t num_workers = 1;
  bool runs_ahead = false;  ///< asynchronous scheduling, two steps in flight
};

SchedulerConfig scheduler_config(Profile profile, const Setting& setting) {
  SchedulerConfig config;
  config.kv_cache.pool.num_gpu_blocks = setting.num_gpu_blocks;
  config.kv_cache.pool.hash.hash_block_size = 4;
  config.kv_cache.pool.max_block_size = 4;
  config.kv_cache.pool.profile = profile;
  config.kv_cache.pool.rules = rules_of(profile);
  config.kv_cache.groups.resize(1);
  config.kv_cache.groups.front().block_size = 4;
  config.kv_cache.max_model_len = 64;
  config.kv_cache.max_num_batched_tokens = 16;
  config.max_num_seqs = 4;
  config.async_scheduling = setting.runs_ahead;
  config.max_concurrent_batches = setting.runs_ahead ? 2 : 1;
  config.kv_load_failure_policy = KVLoadFailurePolicy::kRecompute;
  return config;
}

OffloadingSpec spec_of(Profile profile, const Setting& setting) {
  OffloadingSpec spec;
  spec.manager.cache.capacity = setting.num_cpu_blocks;
  spec.manager.rules = rules_of(profile);
  spec.kv_cache = scheduler_config(profile, setting).kv_cache;
  spec.num_workers = setting.num_workers;
  return spec;
}

/// A worker of one rank, with its copy engine.
struct Rank {
  KVConnectorWorkerHandle worker;
  ScriptedTransferEngine engine;
};

class Engine {
 public:
  explicit Engine(Profile profile, const Setting& setting = {})
      : scheduler(
            scheduler_config(profile, setting),
            KVConnectorHandle(make_offloading_connector_scheduler(spec_of(profile, setting)))),
        ranks(setting.num_workers, Rank{KVConnectorWorkerHandle(make_offloading_connector_worker(
                                            spec_of(profile, setting))),
                                        {}}),
        aggregator_(setting.num_workers) {}

  /// Prompts that begin with the same token share what they both have.
  void add(const std::string& id, TokenId first, std::uint32_t num_tokens,
           std::uint32_t max_tokens = 16) {
    NewRequest request;
    request.id = id;
    request.spec.tokens = Tokens(num_tokens, 1);
    request.spec.tokens.front() = first;
    request.max_tokens = max_tokens;
    RequestIndex index = 0;
    ASSERT_EQ(scheduler.add_request(request, index), ErrorCode::kNone);
    names_[index] = id;
  }

  /// Who got how many tokens.
  Names schedule() {
    Planned& planned = planned_.emplace_back();
    EXPECT_EQ(scheduler.schedule(planned.output), ErrorCode::kNone);
    for (const RequestIndex index : planned.output.finished) {
      planned.finished.push_back(names_.at(index));
    }
    metadata =
        dynamic_cast<const OffloadingConnectorMetadata&>(*planned.output.kv_connector_metadata);
    preempted.clear();
    for (const RequestIndex index : planned.output.preempted) {
      preempted.push_back(names_.at(index));
    }
    Names names;
    for (const SchedulerOutput::Scheduled& entry : planned.output.scheduled) {
      names.push_back(names_.at(entry.request) + ":" + std::to_string(entry.num_tokens));
    }
    return names;
  }

  /// The oldest step runs on all ranks and comes back.
  ErrorCode try_update() {
    const Planned planned = planned_.front();
    planned_.erase(planned_.begin());
    const auto& told = *planned.output.kv_connector_metadata;
    std::vector<KVConnectorWorkerOutput> outputs(ranks.size());
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      auto& [worker, engine] = ranks[rank];
      worker->register_kv_caches(engine);  // a copy has engines of its own
      worker->handle_preemptions(told);
      worker->bind_connector_metadata(told);
      worker->start_load_kv();
      if (planned.output.total_num_scheduled_tokens > 0) worker->wait_for_save();
      worker->get_finished(planned.finished, outputs[rank]);
    }
    aggregator_.aggregate(outputs, report);

    KVConnectorOutput connector_output;
    connector_output.finished_recving = indices(report.finished_recving);
    connector_output.finished_sending = indices(report.finished_sending);
    connector_output.invalid_block_ids = report.invalid_block_ids;
    connector_output.completed_jobs = report.completed_jobs;
    ModelRunnerOutput result;
    result.kv_connector_output = &connector_output;
    for (const SchedulerOutput::Scheduled& entry : planned.output.scheduled) {
      if (entry.samples) result.sampled_token_ids.push_back(7);
      result.sampled_token_ids.end_list();
    }
    EngineCoreOutputs out;
    return scheduler.update_from_output(planned.output, result, out);
  }
  void update() { EXPECT_EQ(try_update(), ErrorCode::kNone); }

  Names step() {
    Names names = schedule();
    update();
    return names;
  }

  void copy(JobId job, std::size_t rank = 0) {
    EXPECT_TRUE(ranks[rank].engine.advance(job, TransferProgress::kFinished)) << job;
  }
  void copy_all() {
    for (Rank& rank : ranks) {
      const std::vector<ScriptedTransferEngine::Transfer> transfers = rank.engine.transfers();
      for (const ScriptedTransferEngine::Transfer& transfer : transfers) {
        rank.engine.advance(transfer.job.job, TransferProgress::kFinished);
      }
    }
  }
  /// Steps and copies until nothing is left to do.
  void drain() {
    for (int i = 0; i < 4; ++i) {
      step();
      copy_all();
    }
    EXPECT_EQ(transfers(), Names());
  }
  void abort(const std::string& id) {
    const std::vector<RequestIndex> requests = indices({id});
    scheduler.finish_requests(requests, RequestStatus::kFinishedAborted);
  }

  /// Under way, "load 0 B".
  Names transfers(std::size_t rank = 0) const {
    Names all;
    for (const ScriptedTransferEngine::Transfer& transfer : ranks[rank].engine.transfers()) {
      all.push_back((transfer.job.spec.is_store ? "store " : "load ") +
                    std::to_string(transfer.job.job) + " " + transfer.job.request);
    }
    return all;
  }
  bool is_finished(JobId job) const {
    for (const ScriptedTransferEngine::Transfer& transfer : ranks.front().engine.transfers()) {
      if (transfer.job.job == job) return transfer.progress == TransferProgress::kFinished;
    }
    return false;
  }

  RequestView view(const std::string& id) const { return scheduler.view(indices({id}).front()); }
  bool is_there(const std::string& id) const { return scheduler.find_request(id).has_value(); }
  std::uint32_t num_free() const {
    return scheduler.kv_cache_manager().block_pool().get_num_free_blocks();
  }

  Scheduler scheduler;
  std::vector<Rank> ranks;
  OffloadingConnectorMetadata metadata;  ///< of the last step that was planned
  Names preempted;                       ///< in it
  AggregatedOutput report;               ///< of the last step that came back

 private:
  struct Planned {
    SchedulerOutput output;
    Names finished;
  };

  std::vector<RequestIndex> indices(const Names& ids) const {
    std::vector<RequestIndex> all;
    for (const std::string& id : ids) all.push_back(*scheduler.find_request(id));
    return all;
  }

  KVOutputAggregator aggregator_;
  std::map<RequestIndex, std::string> names_;
  std::vector<Planned> planned_;  ///< in flight
};

class EachEngine : public testing::TestWithParam<Profile> {
 protected:
  bool fences() const { return GetParam() == Profile::kV023; }
};

INSTANTIATE_TEST_SUITE_P(Profiles, EachEngine, testing::ValuesIn(kProfiles),
                         [](const auto& instance) {
                           return instance.param == Profile::kV019 ? "hold" : "fence";
                         });

/// A prompt of 12 tokens is in CPU memory, and nothing is in the GPU's cache.
void store_prompt(Engine& engine, TokenId first = 1) {
  engine.add("S" + std::to_string(first), first, 12, /*max_tokens=*/1);
  engine.drain();
  EXPECT_TRUE(engine.scheduler.reset_prefix_cache(false, false));
}

TEST_P(EachEngine, WhatWasStoredIsLoaded) {
  Engine engine(GetParam());
  store_prompt(engine);
  EXPECT_FALSE(engine.is_there("S1"));
  EXPECT_EQ(engine.num_free(), 32u);

  engine.add("A", 1, 13);
  EXPECT_EQ(engine.step(), Names()) << "an asynchronous load";
  EXPECT_EQ(engine.metadata.loads.size(), 1u);
  EXPECT_EQ(engine.view("A").status, RequestStatus::kWaitingForRemoteKVs);
  EXPECT_EQ(engine.transfers(), Names({"load 1 A"}));
  EXPECT_EQ(engine.step(), Names());
  engine.copy(1);
  engine.step();
  EXPECT_EQ(engine.report.finished_recving, Names({"A"}));
  EXPECT_EQ(engine.step(), Names({"A:1"}));
  EXPECT_EQ(engine.metadata.stores.size(), 0u) << "what was loaded is not stored again";
}

TEST_P(EachEngine, AFullHitComputesItsLastTokenAnew) {
  Engine engine(GetParam());
  store_prompt(engine);
  engine.add("A", 1, 12);
  engine.step();
  engine.copy_all();
  engine.step();
  EXPECT_EQ(engine.step(), Names({"A:1"}));
}

TEST_P(EachEngine, ABlockIsLoadedOnce) {
  Engine engine(GetParam());
  store_prompt(engine);
  engine.add("A", 1, 13);
  engine.add("B", 1, 14);
  engine.step();
  EXPECT_EQ(engine.transfers(), Names({"load 1 A"}));
  EXPECT_EQ(engine.view("B").status, RequestStatus::kWaiting) << "ask again";
  engine.copy(1);
  engine.step();
  EXPECT_EQ(engine.step(), Names({"A:1", "B:2"})) << "B finds the blocks in the GPU's cache";
}

TEST_P(EachEngine, AnAbortedRequestsStores) {
  Engine engine(GetParam());
  engine.add("A", 1, 8);
  engine.add("B", 2, 1);
  engine.step();
  engine.step();
  EXPECT_EQ(engine.transfers(), Names({"store 0 A"}));
  EXPECT_EQ(engine.num_free(), 28u);
  engine.abort("A");
  EXPECT_EQ(engine.is_there("A"), !fences());
  EXPECT_EQ(engine.num_free(), fences() ? 31u : 28u);
  engine.step();
  EXPECT_EQ(engine.transfers(), Names({"store 0 A"}));
  engine.copy(0);
  engine.step();
  EXPECT_EQ(engine.report.finished_sending, fences() ? Names() : Names({"A"}));
  EXPECT_FALSE(engine.is_there("A"));
  EXPECT_EQ(engine.num_free(), 31u);
}

TEST_P(EachEngine, AnAbortedLoadHoldsItsBlocksUntilItIsOver) {
  Engine engine(GetParam());
  store_prompt(engine);
  engine.add("A", 1, 13);
  engine.add("B", 2, 3);
  engine.step();
  engine.abort("A");
  EXPECT_TRUE(engine.is_there("A"));
  const std::uint32_t num_free = engine.num_free();
  engine.step();
  EXPECT_EQ(engine.metadata.jobs_to_flush, Jobs()) << "B is not finished";
  EXPECT_EQ(engine.num_free(), num_free);
  engine.copy_all();
  engine.step();
  EXPECT_FALSE(engine.is_there("A"));
}

TEST_P(EachEngine, AFailedLoadIsTriedAgain) {
  Engine engine(GetParam());
  store_prompt(engine);
  engine.add("A", 1, 13);
  engine.step();
  ASSERT_TRUE(engine.ranks.front().engine.advance(1, TransferProgress::kFailed));
  engine.step();
  EXPECT_EQ(engine.report.invalid_block_ids.size(), 3u);
  EXPECT_EQ(engine.step(), Names());
  EXPECT_EQ(engine.transfers(), Names({"load 2 A"}));
  engine.copy(2);
  engine.step();
  EXPECT_EQ(engine.step(), Names({"A:1"}));
}

TEST_P(EachEngine, APreemptedRequestsStoresEndBeforeItsBlocksAreUsedAgain) {
  Engine engine(GetParam(), {.num_gpu_blocks = 7});
  engine.add("A", 1, 8);
  engine.add("B", 2, 8);
  while (engine.preempted.empty()) {
    engine.schedule();
    if (engine.preempted.empty()) engine.update();
  }
  EXPECT_EQ(engine.preempted, Names({"B"}));
  ASSERT_GE(engine.transfers().size(), 2u);
  EXPECT_EQ(engine.transfers()[1], "store 1 B");
  EXPECT_FALSE(engine.is_finished(1));
  EXPECT_EQ(engine.metadata.requests_to_flush, fences() ? Names() : Names({"B"}));
  EXPECT_EQ(engine.metadata.jobs_to_flush, fences() ? Jobs({1}) : Jobs());
  engine.update();
  for (const std::string& transfer : engine.transfers()) EXPECT_EQ(transfer.back(), 'A');
}

TEST_P(EachEngine, AllRanksHaveToReport) {
  Engine engine(GetParam(), {.num_workers = 2});
  engine.add("A", 1, 12, /*max_tokens=*/1);
  engine.add("B", 2, 3);
  engine.step();
  engine.step();
  engine.copy(0, /*rank=*/0);
  engine.step();
  engine.add("C", 1, 13);
  EXPECT_EQ(engine.is_there("A"), !fences());
  engine.copy(0, /*rank=*/1);
  engine.step();
  EXPECT_FALSE(engine.is_there("A"));

  engine.abort("B");
  engine.abort("C");
  engine.drain();
  ASSERT_TRUE(engine.scheduler.reset_prefix_cache(false, false));
  engine.add("D", 1, 13);
  engine.step();
  const std::string load = engine.transfers().front();
  const JobId job = engine.ranks[0].engine.transfers().front().job.job;
  engine.copy(job, 1);
  engine.step();
  EXPECT_EQ(engine.report.finished_recving, Names()) << load;
  EXPECT_EQ(engine.step(), Names());
  engine.copy(job, 0);
  engine.step();
  EXPECT_EQ(engine.report.finished_recving, Names({"D"}));
  EXPECT_EQ(engine.step(), Names({"D:1"}));
}

TEST_P(EachEngine, ACopyOfTheEngineGoesItsOwnWay) {
  Engine engine(GetParam());
  store_prompt(engine);
  engine.add("A", 1, 13);
  engine.step();
  Engine copy = engine;
  copy.copy_all();
  copy.step();
  EXPECT_EQ(copy.step(), Names({"A:1"}));
  EXPECT_EQ(engine.step(), Names());
  EXPECT_EQ(engine.transfers(), Names({"load 1 A"}));
}

// Upstream reports it as sent too, which gives blocks back that are being written, and then asserts
// when the load is reported for a request that is gone.
TEST(HoldingEngine, ARequestThatStoredAndIsAbortedWhileItLoadsIsHeldByItsLoad) {
  Engine engine(Profile::kV019, {.num_gpu_blocks = 7});
  engine.add("A", 1, 8);
  engine.add("B", 2, 8);
  while (engine.preempted.empty()) engine.step();
  engine.abort("A");
  engine.copy_all();
  EXPECT_EQ(engine.step(), Names()) << "B does not fit beside what is held of A";
  ASSERT_FALSE(engine.is_there("A"));
  ASSERT_TRUE(engine.scheduler.reset_prefix_cache(false, false));
  engine.step();
  ASSERT_EQ(engine.view("B").status, RequestStatus::kWaitingForRemoteKVs);
  engine.abort("B");
  engine.step();
  EXPECT_EQ(engine.report.finished_sending, Names());
  EXPECT_TRUE(engine.is_there("B"));
  EXPECT_EQ(engine.num_free(), 3u);
  engine.copy_all();
  engine.step();
  EXPECT_EQ(engine.report.finished_recving, Names({"B"}));
  EXPECT_EQ(engine.num_free(), 6u);
}

TEST(FencingEngine, AStoreEndsBeforeABlockOfItsFinishedRequestIsUsedAgain) {
  Engine engine(Profile::kV023, {.num_gpu_blocks = 6});
  engine.add("A", 1, 8, /*max_tokens=*/1);
  engine.add("B", 2, 3);
  engine.step();
  EXPECT_FALSE(engine.is_there("A"));
  engine.add("C", 3, 14);
  EXPECT_EQ(engine.schedule(), Names({"B:1", "C:14"}));
  EXPECT_EQ(engine.metadata.jobs_to_flush, Jobs({0}));
  engine.update();
  EXPECT_EQ(engine.report.completed_jobs, (std::vector<CompletedJob>{{0, 1, 0}}));
}

TEST(FencingEngine, WithNobodyLeftEveryTransferIsAwaited) {
  Engine engine(Profile::kV023);
  engine.add("A", 1, 8, /*max_tokens=*/1);
  engine.step();
  EXPECT_FALSE(engine.is_there("A"));
  EXPECT_TRUE(engine.scheduler.has_finished_requests());
  engine.step();
  EXPECT_EQ(engine.metadata.jobs_to_flush, Jobs({0}));
  EXPECT_EQ(engine.transfers(), Names());
  EXPECT_EQ(engine.report.completed_jobs.size(), 1u);
}

TEST(FencingEngine, AResetWithTransfersUnderWay) {
  Engine engine(Profile::kV023);
  store_prompt(engine);
  engine.add("A", 1, 13);
  engine.add("B", 2, 9);
  engine.step();
  engine.step();
  EXPECT_EQ(engine.transfers(), Names({"load 1 A", "store 2 B"}));
  EXPECT_FALSE(engine.scheduler.reset_prefix_cache(false, true)) << "blocks are held";
  engine.schedule();
  EXPECT_EQ(engine.metadata.jobs_to_flush, Jobs({1, 2}));
  EXPECT_EQ(engine.metadata.stores.size(), 1u) << "B is stored anew";
  engine.update();
  EXPECT_EQ(engine.report.finished_recving, Names({"A"}));
  EXPECT_EQ(engine.report.completed_jobs.size(), 2u) << "and passed over";
  EXPECT_EQ(engine.schedule(), Names({"B:1", "A:1"}));
  EXPECT_EQ(engine.metadata.stores.size(), 1u) << "A, from its first block on";
  EXPECT_EQ(engine.metadata.stores.front().spec.gpu_blocks.size(), 3u);
}

TEST(FencingEngine, ARequestThatComesInAgainBeforeItsStoresAreReportedIsAskedForAgain) {
  Engine engine(Profile::kV023, {.num_gpu_blocks = 7, .runs_ahead = true});
  engine.add("A", 1, 8);
  engine.add("B", 2, 8);
  engine.schedule();
  while (engine.preempted.empty()) {
    engine.schedule();
    if (engine.preempted.empty()) engine.update();
  }
  EXPECT_EQ(engine.preempted, Names({"B"}));
  engine.abort("A");
  engine.update();
  EXPECT_EQ(engine.schedule(), Names()) << "B's stores end with the step in flight";
  engine.update();
  EXPECT_EQ(engine.report.completed_jobs, (std::vector<CompletedJob>{{1, 1, 0}}));
  engine.schedule();
  EXPECT_NE(engine.view("B").status, RequestStatus::kPreempted);
}

}  // namespace
}  // namespace kvfence::reference
