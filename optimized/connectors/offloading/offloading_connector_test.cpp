// Goal: the scheduler's halves plan, flush and complete as
// contract/connectors/offloading/offloading_connector.h says, in the cases that a random life
// seldom tells apart. Method: hand-made steps of a host that has the requests a test needs.

#include "optimized/connectors/offloading/offloading_connector.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "contract/scheduler/scheduler.h"
#include "optimized/connectors/offloading/fencing_connector_scheduler.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kBlockSize = 4;

OffloadingSpec spec_of(Profile profile) {
  OffloadingSpec spec;
  spec.kv_cache.pool.num_gpu_blocks = 64;
  spec.kv_cache.pool.hash.hash_block_size = kBlockSize;
  spec.kv_cache.groups = {{.block_size = kBlockSize}};
  spec.manager.cache.capacity = 16;
  spec.manager.enable_events = true;
  spec.manager.rules = rules_of(profile);
  return spec;
}

OffloadingSpec with_window(OffloadingSpec spec, std::uint32_t block_size,
                           std::uint32_t sliding_window) {
  spec.kv_cache.groups.push_back({.kind = KVCacheSpecKind::kSlidingWindow,
                                  .block_size = block_size,
                                  .sliding_window = sliding_window});
  return spec;
}

/// Requests, which of their blocks carry a key, and one half of a connector that hears of them.
class Engine final : private ConnectorHost {
 public:
  explicit Engine(const OffloadingSpec& spec)
      : hash_(spec.kv_cache.pool.hash), connector_(make_offloading_connector_scheduler(spec)) {
    num_groups_ = spec.kv_cache.groups.size();
  }

  /// A request of the tokens first, first + 1, ...; equal starts are equal prefixes.
  RequestIndex add(std::uint32_t num_tokens, TokenId first = 0,
                   std::optional<std::uint32_t> max_offload_tokens = std::nullopt) {
    const auto index = static_cast<RequestIndex>(requests_.size());
    RequestSpec spec;
    for (TokenId token = 0; token < num_tokens; ++token) spec.tokens.push_back(first + token);
    requests_.push_back({std::string(1, static_cast<char>('A' + index)), Request(spec, hash_),
                         num_tokens, 0, KVTransferParams{max_offload_tokens}});
    connector_->on_new_request(request(index));
    return index;
  }

  void append(RequestIndex index, TokenId token) {
    requests_[index].request.append_output_token_ids(std::span(&token, 1));
  }
  void set_num_computed(RequestIndex index, std::uint32_t num_tokens) {
    requests_[index].num_computed_tokens = num_tokens;
  }
  void set_cached(BlockId block) { cached_.insert(block); }

  MatchedTokens match(RequestIndex index, std::uint32_t num_local_tokens = 0) {
    return connector_->get_num_new_matched_tokens(request(index), num_local_tokens);
  }
  void allocate(RequestIndex index, const BlocksByGroup& blocks,
                std::uint32_t num_external_tokens) {
    connector_->update_state_after_alloc(*this, request(index), blocks, num_external_tokens);
  }

  // What the next step says.
  void schedule_new(RequestIndex index, std::uint32_t num_tokens, const BlocksByGroup& blocks) {
    step_.scheduled.push_back({index, num_tokens, 0, false});
    step_.scheduled_new_reqs.push_back({index, requests_[index].num_computed_tokens, list(blocks)});
  }
  void schedule_cached(RequestIndex index, std::uint32_t num_tokens,
                       const BlocksByGroup& new_blocks, bool resumed = false) {
    step_.scheduled.push_back({index, num_tokens, 0, false});
    SchedulerOutput::Cached& entry = step_.scheduled_cached_reqs.emplace_back();
    entry.request = index;
    entry.resumed = resumed;
    if (!new_blocks.empty()) entry.first_list = list(new_blocks);
  }
  void preempt(RequestIndex index) { step_.preempted.push_back(index); }

  /// Plans the step; its tokens count as computed afterwards.
  OffloadingConnectorMetadata step() {
    const auto metadata = connector_->build_connector_meta(*this, step_);
    for (const SchedulerOutput::Scheduled& entry : step_.scheduled) {
      requests_[entry.request].num_computed_tokens += entry.num_tokens;
    }
    step_ = {};
    return static_cast<const OffloadingConnectorMetadata&>(*metadata);
  }

  void report(const KVConnectorOutput& output) {
    connector_->update_connector_output(*this, output);
  }
  void complete(JobId job, std::uint32_t num_workers = 1, std::uint32_t num_failed = 0) {
    KVConnectorOutput output;
    output.completed_jobs.push_back({job, num_workers, num_failed});
    report(output);
  }
  bool finish(RequestIndex index) {
    return connector_->request_finished(*this, request(index), BlocksByGroup(num_groups_));
  }

  OffloadingConnectorScheduler& connector() { return *connector_; }
  std::vector<PolicyEntry> lru() const {
    PolicyLists lists;
    connector_->policy_lists(lists);
    return lists.t1;
  }
  std::size_t num_ready() const {
    std::size_t count = 0;
    for (const PolicyEntry& entry : lru()) count += entry.status.ref_cnt == kNotReady ? 0 : 1;
    return count;
  }
  const Request& tokens(RequestIndex index) const { return requests_[index].request; }

 private:
  struct Entry {
    std::string id;
    Request request;
    std::uint32_t num_prompt_tokens = 0;
    std::uint32_t num_computed_tokens = 0;
    KVTransferParams params;
  };

  ConnectorRequest request(RequestIndex index) const override {
    const Entry& entry = requests_[index];
    return {
        index,       entry.id, entry.request, entry.num_prompt_tokens, entry.num_computed_tokens,
        entry.params};
  }
  bool is_cached(BlockId block) const override { return cached_.count(block) > 0; }

  std::uint32_t list(const BlocksByGroup& blocks) {
    const auto first = static_cast<std::uint32_t>(step_.block_lists.size());
    for (const std::vector<BlockId>& ids : blocks) {
      step_.block_lists.append(ids);
      step_.block_lists.end_list();
    }
    return first;
  }

  HashConfig hash_;
  std::unique_ptr<OffloadingConnectorScheduler> connector_;
  std::size_t num_groups_ = 1;
  std::deque<Entry> requests_;
  std::set<BlockId> cached_;
  SchedulerOutput step_;
};

/// A request whose prompt is on the CPU: blocks of num_tokens tokens from `first`.
void offload(Engine& engine, std::uint32_t num_tokens, BlockId first_block, TokenId first = 0) {
  const RequestIndex request = engine.add(num_tokens, first);
  engine.match(request);
  std::vector<BlockId> blocks;
  for (std::uint32_t i = 0; i * kBlockSize < num_tokens; ++i) blocks.push_back(first_block + i);
  engine.allocate(request, {blocks}, 0);
  engine.schedule_new(request, num_tokens, {blocks});
  const OffloadingConnectorMetadata metadata = engine.step();
  ASSERT_EQ(metadata.stores.size(), 1U);
  const bool holds = engine.finish(request);
  KVConnectorOutput report;
  if (holds) {
    report.finished_sending = {request};
  } else {
    report.completed_jobs = {{metadata.stores.front().job, 1, 0}};
  }
  engine.report(report);
}

TEST(HoldingConnector, StoresFullBlocksAndHoldsUntilTheyAreSent) {
  Engine engine(spec_of(Profile::kV019));
  const RequestIndex a = engine.add(11);
  EXPECT_EQ(engine.match(a).num_tokens, 0U);
  engine.allocate(a, {{1, 2, 3}}, 0);
  engine.schedule_new(a, 7, {{1, 2}});
  OffloadingConnectorMetadata metadata = engine.step();
  ASSERT_EQ(metadata.stores.size(), 1U);
  EXPECT_EQ(metadata.stores[0], (TransferJob{0, "A", {true, {1}, {1}, {}, {0}}}));

  engine.schedule_cached(a, 4, {{3}});
  metadata = engine.step();
  ASSERT_EQ(metadata.stores.size(), 1U);
  EXPECT_EQ(metadata.stores[0].spec.gpu_blocks, std::vector<BlockId>{2});
  EXPECT_EQ(engine.num_ready(), 0U);

  EXPECT_TRUE(engine.finish(a));
  KVConnectorOutput report;
  report.finished_sending = {a};
  engine.report(report);
  EXPECT_EQ(engine.num_ready(), 2U);
  std::vector<KVCacheEvent> events;
  engine.connector().take_events(events);
  ASSERT_EQ(events.size(), 1U);  // one call, keys in the order of planning
  const auto& stored = std::get<BlockStored>(events[0]);
  EXPECT_EQ(stored.block_hashes,
            (std::vector<BlockHash>{BlockHash(engine.tokens(a).hash_bytes().substr(0, 32)),
                                    BlockHash(engine.tokens(a).hash_bytes().substr(32, 32))}));
  EXPECT_EQ(stored.block_size, kBlockSize);
  EXPECT_EQ(stored.medium, "CPU");
}

TEST(HoldingConnector, LoadsBehindTheLocalHitAndDelaysWhoeverWantsTheSame) {
  Engine engine(spec_of(Profile::kV019));
  offload(engine, 12, 1);
  const RequestIndex b = engine.add(14);
  EXPECT_EQ(engine.match(b, 4).num_tokens, 8U);
  EXPECT_TRUE(engine.match(b, 4).load_async);
  engine.set_cached(20);
  engine.allocate(b, {{20, 21, 22}}, 8);
  const RequestIndex c = engine.add(13);
  EXPECT_EQ(engine.match(c).num_tokens, std::nullopt);
  const OffloadingConnectorMetadata metadata = engine.step();
  ASSERT_EQ(metadata.loads.size(), 1U);
  EXPECT_EQ(metadata.loads[0], (TransferJob{0, "B", {false, {21, 22}, {2}, {1}, {1, 2}}}));
  KVConnectorOutput report;
  report.finished_recving = {b};
  engine.report(report);
  EXPECT_EQ(engine.match(c).num_tokens, 12U);
  // What was loaded is not stored again.
  engine.allocate(b, {{20, 21, 22, 23}}, 0);
  engine.set_num_computed(b, 12);
  engine.schedule_new(b, 2, {{20, 21, 22, 23}});
  EXPECT_TRUE(engine.step().stores.empty());
  EXPECT_FALSE(engine.finish(b));
}

TEST(HoldingConnector, APreemptedRequestsStoresAreCompletedWhileTheWorkersWait) {
  Engine engine(spec_of(Profile::kV019));
  const RequestIndex a = engine.add(8);
  engine.match(a);
  engine.allocate(a, {{1, 2}}, 0);
  engine.schedule_new(a, 8, {{1, 2}});
  EXPECT_EQ(engine.step().stores.size(), 1U);
  engine.preempt(a);
  const OffloadingConnectorMetadata metadata = engine.step();
  EXPECT_EQ(metadata.requests_to_flush, std::vector<std::string>{"A"});
  EXPECT_EQ(engine.num_ready(), 2U);
  EXPECT_TRUE(engine.finish(a));  // it had stored
}

TEST(HoldingConnector, ALoadForgetsThatTheRequestHadStored) {
  Engine engine(spec_of(Profile::kV019));
  const RequestIndex a = engine.add(9);
  engine.match(a);
  engine.allocate(a, {{1, 2, 3}}, 0);
  engine.schedule_new(a, 9, {{1, 2, 3}});
  EXPECT_EQ(engine.step().stores.size(), 1U);
  engine.preempt(a);
  engine.step();
  EXPECT_EQ(engine.match(a).num_tokens, 8U);
  engine.allocate(a, {{4, 5}}, 8);
  EXPECT_FALSE(engine.finish(a));
}

TEST(HoldingConnector, TheCursorWaitsForARefusedStore) {
  OffloadingSpec spec = spec_of(Profile::kV019);
  spec.manager.cache.capacity = 1;
  Engine engine(spec);
  const RequestIndex a = engine.add(8);
  engine.match(a);
  engine.allocate(a, {{1, 2}}, 0);
  engine.schedule_new(a, 8, {{1, 2}});
  EXPECT_TRUE(engine.step().stores.empty());
  engine.append(a, 100);
  engine.schedule_cached(a, 1, {{3}});
  EXPECT_TRUE(engine.step().stores.empty());  // two blocks still: neither has gone
  EXPECT_TRUE(engine.lru().empty());
}

TEST(HoldingConnector, ABlockOfSeveralIsNamedByItsLastHash) {
  OffloadingSpec spec = spec_of(Profile::kV019);
  spec.block_size_factor = 2;
  Engine engine(spec);
  const RequestIndex a = engine.add(16);
  engine.match(a);
  engine.allocate(a, {{1, 2, 3, 4}}, 0);
  engine.schedule_new(a, 16, {{1, 2, 3, 4}});
  const OffloadingConnectorMetadata metadata = engine.step();
  ASSERT_EQ(metadata.stores.size(), 1U);
  EXPECT_EQ(metadata.stores[0].spec.gpu_blocks, (std::vector<BlockId>{1, 2, 3, 4}));
  EXPECT_EQ(metadata.stores[0].spec.slots, (std::vector<SlotId>{0, 1}));
  const std::string_view hashes = engine.tokens(a).hash_bytes();
  std::set<OffloadKey> keys;
  for (const PolicyEntry& entry : engine.lru()) keys.insert(entry.key);
  EXPECT_EQ(keys, (std::set<OffloadKey>{OffloadKey(hashes.substr(32, 32)),
                                        OffloadKey(hashes.substr(96, 32))}));
  KVConnectorOutput report;
  engine.finish(a);
  report.finished_sending = {a};
  engine.report(report);
  // A load that begins inside a slot.
  const RequestIndex b = engine.add(17);
  EXPECT_EQ(engine.match(b, 4).num_tokens, 12U);
  engine.set_cached(10);
  engine.allocate(b, {{10, 11, 12, 13}}, 12);
  const TransferSpec load = engine.step().loads.at(0).spec;
  EXPECT_EQ(load.gpu_blocks, (std::vector<BlockId>{11, 12, 13}));
  EXPECT_EQ(load.block_indices, std::vector<std::uint32_t>{1});
  EXPECT_EQ(load.slots.size(), 2U);
}

TEST(HoldingConnector, AResetChangesNothing) {
  Engine engine(spec_of(Profile::kV019));
  offload(engine, 12, 1);
  EXPECT_TRUE(engine.connector().reset_cache());
  EXPECT_EQ(engine.num_ready(), 3U);
}

TEST(FencingConnector, NumbersItsJobsAndCountsTheWorkers) {
  OffloadingSpec spec = spec_of(Profile::kV023);
  spec.num_workers = 2;
  Engine engine(spec);
  const RequestIndex a = engine.add(8);
  engine.match(a);
  engine.allocate(a, {{1, 2}}, 0);
  engine.schedule_new(a, 4, {{1}});
  EXPECT_EQ(engine.step().stores.at(0), (TransferJob{0, "A", {true, {1}, {1}, {0}, {0}}}));
  engine.schedule_cached(a, 4, {{2}});
  EXPECT_EQ(engine.step().stores.at(0), (TransferJob{1, "A", {true, {2}, {1}, {1}, {1}}}));
  engine.complete(1);
  EXPECT_EQ(engine.num_ready(), 0U);
  engine.complete(1);
  EXPECT_EQ(engine.num_ready(), 1U);
  engine.complete(1);  // over already
  engine.complete(0, 2, 1);
  EXPECT_EQ(engine.lru().size(), 1U);  // the failed store is gone
  EXPECT_EQ(engine.num_ready(), 1U);
}

TEST(FencingConnector, BlocksOfAFinishedRequestAreFlushedWhenTheyAreUsedAgain) {
  Engine engine(spec_of(Profile::kV023));
  const RequestIndex a = engine.add(8);
  engine.match(a);
  engine.schedule_new(a, 8, {{1, 2}});
  EXPECT_EQ(engine.step().stores.size(), 1U);
  const RequestIndex b = engine.add(12, 100);
  engine.match(b);
  EXPECT_FALSE(engine.finish(a));
  engine.schedule_new(b, 4, {{3}});
  EXPECT_TRUE(engine.step().jobs_to_flush.empty());
  engine.schedule_cached(b, 4, {{2}});
  OffloadingConnectorMetadata metadata = engine.step();
  EXPECT_EQ(metadata.jobs_to_flush, std::vector<JobId>{0});
  // As long as it is under way.
  engine.complete(0);
  engine.schedule_cached(b, 4, {{1}});
  EXPECT_TRUE(engine.step().jobs_to_flush.empty());
}

TEST(FencingConnector, BlocksOfALoadCountAsUsedAgain) {
  Engine engine(spec_of(Profile::kV023));
  offload(engine, 8, 1);
  const RequestIndex a = engine.add(8, 100);
  engine.match(a);
  engine.schedule_new(a, 8, {{5, 6}});
  const JobId store = engine.step().stores.at(0).job;
  const RequestIndex b = engine.add(9);
  EXPECT_EQ(engine.match(b).num_tokens, 8U);
  engine.finish(a);
  engine.allocate(b, {{6, 7}}, 8);
  const OffloadingConnectorMetadata metadata = engine.step();
  EXPECT_EQ(metadata.loads.at(0), (TransferJob{store + 1, "C", {false, {6, 7}, {2}, {0}, {0, 1}}}));
  EXPECT_EQ(metadata.jobs_to_flush, std::vector<JobId>{store});
  EXPECT_EQ(engine.match(b).num_tokens, std::nullopt);  // its load is under way
}

TEST(FencingConnector, APreemptedRequestAndTheLastOnesAreFlushed) {
  Engine engine(spec_of(Profile::kV023));
  const RequestIndex a = engine.add(8);
  const RequestIndex b = engine.add(8, 100);
  engine.match(a);
  engine.match(b);
  engine.schedule_new(a, 8, {{1, 2}});
  engine.schedule_new(b, 8, {{3, 4}});
  EXPECT_EQ(engine.step().stores.size(), 2U);
  engine.preempt(b);
  EXPECT_EQ(engine.step().jobs_to_flush, std::vector<JobId>{1});
  EXPECT_EQ(engine.match(b).num_tokens, std::nullopt);  // its store is not reported yet
  engine.finish(b);
  EXPECT_TRUE(engine.step().jobs_to_flush.empty());
  engine.finish(a);
  EXPECT_EQ(engine.step().jobs_to_flush, (std::vector<JobId>{0, 1}));
  engine.complete(0);
  engine.complete(1);
  EXPECT_TRUE(engine.step().jobs_to_flush.empty());
}

TEST(FencingConnector, StoresThePromptAloneUnlessToldOtherwise) {
  for (bool prompt_only : {true, false}) {
    OffloadingSpec spec = spec_of(Profile::kV023);
    spec.offload_prompt_only = prompt_only;
    Engine engine(spec);
    const RequestIndex a = engine.add(7);
    engine.match(a);
    engine.schedule_new(a, 7, {{1, 2}});
    EXPECT_EQ(engine.step().stores.at(0).spec.gpu_blocks, std::vector<BlockId>{1});
    engine.append(a, 50);
    engine.schedule_cached(a, 1, {});
    EXPECT_EQ(engine.step().stores.size(), prompt_only ? 0U : 1U);
  }
}

TEST(FencingConnector, StoresAsManyTokensAsTheRequestAllows) {
  Engine engine(spec_of(Profile::kV023));
  const RequestIndex a = engine.add(12, 0, 7);
  engine.match(a);
  engine.schedule_new(a, 12, {{1, 2, 3}});
  EXPECT_EQ(engine.step().stores.at(0).spec.gpu_blocks, std::vector<BlockId>{1});
}

TEST(FencingConnector, IdsOfAWindowThatAreUsedAgainAreNotStored) {
  Engine engine(with_window(spec_of(Profile::kV023), kBlockSize, 8));
  const RequestIndex a = engine.add(12);
  const RequestIndex b = engine.add(9, 100);
  engine.match(a);
  engine.match(b);
  engine.schedule_new(a, 3, {{1, 2}, {11, 12}});  // less than a block: nothing is stored
  EXPECT_TRUE(engine.step().stores.empty());
  engine.schedule_new(b, 3, {{3}, {11}});  // has left the window of A
  engine.step();
  engine.schedule_cached(a, 9, {{4}, {13}});
  const TransferSpec store = engine.step().stores.at(0).spec;
  EXPECT_EQ(store.gpu_blocks, (std::vector<BlockId>{1, 2, 4, 12, 13}));
  EXPECT_EQ(store.group_sizes, (std::vector<std::uint32_t>{3, 2}));
  EXPECT_EQ(store.block_indices, (std::vector<std::uint32_t>{0, 1}));
}

TEST(FencingConnector, BlocksOfAWindowAreWatchedWhileTheRequestRuns) {
  Engine engine(with_window(spec_of(Profile::kV023), kBlockSize, 8));
  const RequestIndex a = engine.add(8);
  const RequestIndex b = engine.add(9, 100);
  engine.match(a);
  engine.match(b);
  engine.schedule_new(a, 8, {{1, 2}, {11, 12}});
  EXPECT_TRUE(engine.step().jobs_to_flush.empty());
  engine.schedule_new(b, 3, {{1}, {}});  // cannot be: A has it; full attention is not watched
  EXPECT_TRUE(engine.step().jobs_to_flush.empty());
  engine.schedule_cached(b, 1, {{}, {12}});
  EXPECT_EQ(engine.step().jobs_to_flush, std::vector<JobId>{0});
}

TEST(FencingConnector, OfASegmentOnlyTheWindowIsStored) {
  OffloadingSpec spec = spec_of(Profile::kV023);
  spec.kv_cache.groups.front().block_size = 4 * kBlockSize;
  spec = with_window(spec, kBlockSize, 5);  // two blocks of a segment of four
  Engine engine(spec);
  const RequestIndex a = engine.add(32);
  engine.match(a);
  engine.schedule_new(a, 32, {{1, 2}, {11, 12, 13, 14, 15, 16, 17, 18}});
  const TransferSpec store = engine.step().stores.at(0).spec;
  EXPECT_EQ(store.gpu_blocks, (std::vector<BlockId>{1, 2, 13, 14, 17, 18}));
  EXPECT_EQ(store.block_indices, (std::vector<std::uint32_t>{0, 2}));
}

TEST(FencingConnector, AWindowHitNeedsItsWindowAlone) {
  OffloadingSpec spec = with_window(spec_of(Profile::kV023), kBlockSize, 8);
  Engine engine(spec);
  const RequestIndex a = engine.add(16);
  engine.match(a);
  engine.schedule_new(a, 16, {{1, 2, 3, 4}, {0, 0, 13, 14}});
  engine.complete(engine.step().stores.at(0).job);
  const RequestIndex b = engine.add(17);
  EXPECT_EQ(engine.match(b).num_tokens, 16U);
  engine.allocate(b, {{21, 22, 23, 24}, {0, 0, 33, 34}}, 16);
  const TransferJob job = engine.step().loads.at(0);
  const TransferSpec& load = job.spec;
  EXPECT_EQ(load.gpu_blocks, (std::vector<BlockId>{21, 22, 23, 24, 33, 34}));
  EXPECT_EQ(load.block_indices, (std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(load.slots.size(), 6U);
  // One token less: the last one is left to compute, in a block that is loaded all the same.
  const RequestIndex c = engine.add(16);
  EXPECT_EQ(engine.match(c).num_tokens, std::nullopt);
  engine.complete(job.job);
  EXPECT_EQ(engine.match(c).num_tokens, 15U);
}

TEST(FencingConnector, AResetFlushesEverythingAndStartsOver) {
  Engine engine(spec_of(Profile::kV023));
  const RequestIndex a = engine.add(12);
  engine.match(a);
  engine.schedule_new(a, 8, {{1, 2}});
  EXPECT_EQ(engine.step().stores.at(0).job, 0U);
  EXPECT_TRUE(engine.connector().reset_cache());
  EXPECT_TRUE(engine.lru().empty());
  engine.schedule_cached(a, 4, {{3}});
  const OffloadingConnectorMetadata metadata = engine.step();
  EXPECT_EQ(metadata.jobs_to_flush, std::vector<JobId>{0});
  EXPECT_EQ(metadata.stores.at(0).job, 1U);
  EXPECT_EQ(metadata.stores.at(0).spec.gpu_blocks, (std::vector<BlockId>{1, 2, 3}));
  engine.complete(0);  // from before
  EXPECT_EQ(engine.num_ready(), 0U);
  engine.complete(1);
  EXPECT_EQ(engine.num_ready(), 3U);
}

TEST(FencingConnector, EventsCarryHashesWithoutTheGroup) {
  Engine engine(spec_of(Profile::kV023));
  offload(engine, 4, 1);
  std::vector<KVCacheEvent> events;
  engine.connector().take_events(events);
  ASSERT_EQ(events.size(), 1U);
  const auto& stored = std::get<BlockStored>(events[0]);
  EXPECT_EQ(stored.block_hashes.at(0).size(), 32U);
  EXPECT_EQ(stored.block_size, 0U);
  EXPECT_EQ(engine.lru().at(0).key, make_block_hash_with_group_id(stored.block_hashes.at(0), 0));
}

TEST(OffloadingConnector, ACopyGoesItsOwnWay) {
  for (Profile profile : kProfiles) {
    Engine engine(spec_of(profile));
    offload(engine, 8, 1);
    const std::unique_ptr<KVConnector> copy = engine.connector().clone();
    auto& twin = static_cast<OffloadingConnectorScheduler&>(*copy);
    offload(engine, 8, 1, 100);
    PolicyLists lists;
    twin.policy_lists(lists);
    EXPECT_EQ(lists.t1.size(), 2U);
    EXPECT_EQ(engine.lru().size(), 4U);
  }
}

}  // namespace
}  // namespace kvfence::optimized
