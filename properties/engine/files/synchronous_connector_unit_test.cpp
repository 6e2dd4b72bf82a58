// Tests both halves of the two synchronous connectors on both sides, with handmade requests and
// steps. Blocks have 4 tokens.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/scheduler/scheduler.h"
#include "optimized/connectors/synchronous/synchronous_connector.h"
#include "properties/core/both_sides_test_support.h"
#include "reference/connectors/synchronous/shared_storage.h"
#include "reference/connectors/synchronous/synchronous_connector.h"

namespace kvfence {
namespace {

using Ids = std::vector<BlockId>;
using Names = std::vector<std::string>;
using Symbols = std::vector<KVSymbol>;
using Tokens = std::vector<TokenId>;

SynchronousConnectorSpec spec_of(SynchronousConnectorKind kind, std::uint32_t num_groups = 1) {
  SynchronousConnectorSpec spec;
  spec.kind = kind;
  spec.num_layers = 2;
  spec.kv_cache.pool.num_gpu_blocks = 16;
  spec.kv_cache.pool.rules = rules_of(Profile::kV023);
  spec.kv_cache.groups.assign(num_groups, KVCacheSpec{.block_size = 4});
  return spec;
}

/// 1, 2, 3, ...
Tokens counting(std::uint32_t num_tokens) {
  Tokens tokens;
  for (TokenId token = 1; token <= num_tokens; ++token) tokens.push_back(token);
  return tokens;
}

/// Makes both connectors of a side.
struct Makers {
  std::unique_ptr<StorageWorld> (*storage)();
  std::unique_ptr<SynchronousConnectorScheduler> (*scheduler)(const SynchronousConnectorSpec&,
                                                              SharedStorage&);
  std::unique_ptr<KVConnectorWorker> (*worker)(const SynchronousConnectorSpec&, SharedStorage&,
                                               ScriptedKVCache&, SynchronousWorkerReport&);
};
using Maker = BySide<Makers>;
constexpr Maker kSides[] = {
    {"reference",
     {reference::make_shared_storage,
      [](const SynchronousConnectorSpec& spec, SharedStorage& storage) {
        return reference::make_synchronous_connector_scheduler(spec, storage);
      },
      reference::make_synchronous_connector_worker}},
    {"optimized",
     {optimized::make_shared_storage, optimized::make_synchronous_connector_scheduler,
      optimized::make_synchronous_connector_worker}},
};

/// A scheduler's half and its requests.
class Half final : public ConnectorHost {
 public:
  Half(const Makers& make, const SynchronousConnectorSpec& spec)
      : storage(make.storage()), connector(make.scheduler(spec, *storage)) {}

  void add(RequestIndex index, Tokens prompt, std::vector<MmFeature> images = {}) {
    Known& known = known_[index];
    known.id = std::to_string(index);
    known.num_prompt_tokens = static_cast<std::uint32_t>(prompt.size());
    known.request = std::make_unique<Request>(
        RequestSpec{std::move(prompt), std::nullopt, std::nullopt, std::move(images)},
        HashConfig{});
  }
  void sample(RequestIndex index, std::uint32_t num_tokens) {
    known_[index].request->append_output_token_ids(Tokens(num_tokens, 99));
  }
  ConnectorRequest request(RequestIndex index) const override {
    const Known& known = known_.at(index);
    return {index, known.id, *known.request,         known.num_prompt_tokens,
            0,     params_,  RequestStatus::kWaiting};
  }
  bool is_cached(BlockId) const override { return false; }

  std::uint32_t ask(RequestIndex index, std::uint32_t num_local_tokens = 0) {
    const MatchedTokens matched =
        connector->get_num_new_matched_tokens(request(index), num_local_tokens);
    EXPECT_TRUE(matched.num_tokens.has_value());
    EXPECT_FALSE(matched.load_async);
    return matched.num_tokens.value_or(0);
  }
  void allocate(RequestIndex index, std::uint32_t num_external_tokens, BlocksByGroup blocks = {}) {
    connector->update_state_after_alloc(*this, request(index), blocks, num_external_tokens);
  }

  /// Adds the request, new or resumed, to the step that is being planned.
  void schedule(RequestIndex index, std::uint32_t num_computed_tokens, std::uint32_t num_tokens,
                const Ids& blocks, bool resumed = false) {
    step_.scheduled.push_back({index, num_tokens, 0, true});
    const auto first_list = static_cast<std::uint32_t>(step_.block_lists.size());
    step_.block_lists.append(blocks);
    step_.block_lists.end_list();
    if (resumed) {
      step_.scheduled_cached_reqs.push_back(
          {index, true, true, num_computed_tokens, 0, first_list});
    } else {
      step_.scheduled_new_reqs.push_back({index, num_computed_tokens, first_list});
    }
  }
  SynchronousConnectorMetadata build() {
    const auto built = connector->build_connector_meta(*this, step_);
    step_ = {};
    return static_cast<const SynchronousConnectorMetadata&>(*built);
  }

  std::unique_ptr<StorageWorld> storage;
  std::unique_ptr<SynchronousConnectorScheduler> connector;

 private:
  struct Known {
    std::string id;
    std::uint32_t num_prompt_tokens = 0;
    std::unique_ptr<Request> request;
  };
  std::map<RequestIndex, Known> known_;
  KVTransferParams params_;
  SchedulerOutput step_;
};

class ExampleConnectorRules : public ::testing::TestWithParam<Maker> {
 protected:
  Half half{GetParam().make, spec_of(SynchronousConnectorKind::kExample)};
};

TEST_P(ExampleConnectorRules, FindsTheFolderOfTheBlocksBeforeTheLastTwoTokens) {
  half.storage->make_folder(folder_name(counting(8)));
  for (std::uint32_t n = 1; n <= 16; ++n) {
    half.add(n, counting(n));
    EXPECT_EQ(half.ask(n), n >= 10 && n <= 13 ? 8u : 0u) << n;
  }
}

TEST_P(ExampleConnectorRules, AnswersWhatIsAfterTheLocalHit) {
  half.storage->make_folder(folder_name(counting(8)));
  half.add(0, counting(10));

  EXPECT_EQ(half.ask(0, 4), 4u);
  EXPECT_EQ(half.ask(0, 8), 0u);
  EXPECT_EQ(half.ask(0, 12), 0u) << "upstream answers -4";
}

TEST_P(ExampleConnectorRules, AsksForThePromptAlone) {
  half.storage->make_folder(folder_name(counting(8)));
  half.add(0, counting(10));
  half.sample(0, 9);

  EXPECT_EQ(half.ask(0), 8u);
}

TEST_P(ExampleConnectorRules, ImagesAreInTheName) {
  half.storage->make_folder(folder_name(counting(8)));
  half.add(0, counting(10), {{"cat", 0, 2}});

  EXPECT_EQ(half.ask(0), 0u);
}

TEST_P(ExampleConnectorRules, StoresThePromptThatIsNotFound) {
  half.add(3, counting(11));
  half.schedule(3, 0, 11, {5, 6, 7});

  EXPECT_EQ(half.build().transfers,
            std::vector({FileTransfer{"3", true, folder_name(counting(8)), 8, {5, 6}}}));
}

TEST_P(ExampleConnectorRules, StoresOneBlockMoreThanItLooksFor) {
  half.add(3, counting(9));
  half.schedule(3, 0, 9, {5, 6, 7});

  EXPECT_EQ(half.build().transfers,
            std::vector({FileTransfer{"3", true, folder_name(counting(8)), 8, {5, 6}}}));
  half.storage->make_folder(folder_name(counting(8)));
  EXPECT_EQ(half.ask(3), 0u) << "it looks for 4 tokens";
}

TEST_P(ExampleConnectorRules, StoresNothingThatIsFound) {
  half.add(3, counting(11));
  half.storage->make_folder(folder_name(counting(8)));
  half.schedule(3, 8, 3, {5, 6, 7});

  EXPECT_TRUE(half.build().transfers.empty());
}

TEST_P(ExampleConnectorRules, ShortPromptsStoreNoBlocksUnderOneName) {
  half.add(3, counting(4));
  half.schedule(3, 0, 4, {5});

  EXPECT_EQ(half.build().transfers,
            std::vector({FileTransfer{"3", true, folder_name(Tokens{}), 0, {}}}));

  half.storage->make_folder(folder_name(Tokens{}));
  half.add(4, Tokens{70, 71, 72, 73, 74});
  EXPECT_EQ(half.ask(4), 0u);
  half.schedule(4, 0, 5, {6, 7});
  EXPECT_TRUE(half.build().transfers.empty()) << "found";
}

TEST_P(ExampleConnectorRules, StoresNothingThatTheStepDoesNotCompute) {
  half.add(3, counting(11));
  half.schedule(3, 0, 7, {5, 6});
  EXPECT_TRUE(half.build().transfers.empty());
  half.schedule(3, 0, 8, {5, 6});
  EXPECT_EQ(half.build().transfers.size(), 1u);
  half.schedule(3, 4, 4, {5, 6});
  EXPECT_EQ(half.build().transfers.size(), 1u) << "with the local hit";
}

TEST_P(ExampleConnectorRules, LoadsWhatWasAllocated) {
  half.add(3, counting(10));
  half.add(4, counting(20));
  half.allocate(3, 8);
  half.allocate(4, 0);
  half.schedule(3, 8, 2, {5, 6, 7});
  half.schedule(4, 0, 20, {8, 9, 10, 11, 12});

  EXPECT_EQ(half.build().transfers,
            std::vector({FileTransfer{"3", false, folder_name(counting(8)), 8, {5, 6}},
                         FileTransfer{"4", true, folder_name(counting(16)), 16, {8, 9, 10, 11}}}));
  half.schedule(3, 0, 10, {5, 6, 7});
  EXPECT_TRUE(half.build().transfers.front().store) << "no longer needs a load";
}

TEST_P(ExampleConnectorRules, ALoadMayBeOfABlockThatWasNotLookedUp) {
  half.add(3, counting(9));
  half.allocate(3, 4);
  half.schedule(3, 4, 5, {5, 6, 7});

  EXPECT_EQ(half.build().transfers,
            std::vector({FileTransfer{"3", false, folder_name(counting(8)), 8, {5, 6}}}));
}

TEST_P(ExampleConnectorRules, AResumedRequestLoadsItsOutputsToo) {
  half.add(3, counting(10));
  half.sample(3, 4);
  half.allocate(3, 8);
  half.schedule(3, 8, 6, {5, 6, 7, 8}, /*resumed=*/true);
  Tokens tokens = counting(10);
  tokens.insert(tokens.end(), 2, 99);

  EXPECT_EQ(half.build().transfers,
            std::vector({FileTransfer{"3", false, folder_name(tokens), 12, {5, 6, 7}}}));
}

TEST_P(ExampleConnectorRules, AResumedRequestLoadsWhatTheStepComputes) {
  half.add(3, counting(10));
  half.sample(3, 4);
  half.allocate(3, 8);
  half.schedule(3, 8, 3, {5, 6, 7}, /*resumed=*/true);

  EXPECT_EQ(half.build().transfers,
            std::vector({FileTransfer{"3", false, folder_name(counting(8)), 8, {5, 6}}}));
}

TEST_P(ExampleConnectorRules, AResumedRequestStoresNothing) {
  half.add(3, counting(10));
  half.allocate(3, 0);
  half.schedule(3, 0, 10, {5, 6, 7}, /*resumed=*/true);

  EXPECT_TRUE(half.build().transfers.empty());
}

TEST_P(ExampleConnectorRules, HoldsNothingAndReportsNothing) {
  half.add(3, counting(10));
  EXPECT_FALSE(half.connector->request_finished(half, half.request(3), {{5}}));
  EXPECT_TRUE(half.connector->reset_cache());
  std::vector<RequestIndex> filled = {1};
  half.connector->filled_requests(filled);
  EXPECT_TRUE(filled.empty());
  std::vector<KVCacheEvent> events;
  half.connector->take_events(events);
  EXPECT_TRUE(events.empty());
}

TEST_P(ExampleConnectorRules, LooksForAMatchEachTimeAndForEachRequestOfAnIndex) {
  half.storage->make_folder(folder_name(counting(8)));
  half.add(0, counting(10));
  EXPECT_EQ(half.ask(0), 8u);
  half.storage->remove_folder(folder_name(counting(8)));
  EXPECT_EQ(half.ask(0), 0u);
  half.storage->make_folder(folder_name(counting(8)));
  EXPECT_EQ(half.ask(0), 8u);
  EXPECT_FALSE(half.connector->request_finished(half, half.request(0), {}));
  half.add(0, counting(7));
  EXPECT_EQ(half.ask(0), 0u);
}

TEST_P(ExampleConnectorRules, ACopySeesTheSameStorage) {
  half.add(3, counting(10));
  const std::unique_ptr<KVConnector> copy = half.connector->clone();
  half.storage->make_folder(folder_name(counting(8)));

  EXPECT_EQ(copy->get_num_new_matched_tokens(half.request(3), 0).num_tokens, 8u);
}

/// Rank 1 of two: layers 2 and 3.
class WorkerRules : public ::testing::TestWithParam<Maker> {
 protected:
  void make(SynchronousConnectorKind kind) {
    worker = GetParam().make.worker(spec_of(kind), *storage, kv_cache, report);
    worker->bind_connector_metadata(metadata);
  }
  void store(const std::string& request, const std::string& folder, Ids blocks) {
    metadata.transfers.push_back({request, true, folder, 0, std::move(blocks)});
  }
  void load(const std::string& request, const std::string& folder, Ids blocks) {
    metadata.transfers.push_back({request, false, folder, 0, std::move(blocks)});
  }
  Names folders() const {
    Names names;
    storage->folders(names);
    return names;
  }
  void hold(std::uint32_t layer, BlockId block, const Symbols& symbols) {
    std::copy(symbols.begin(), symbols.end(), kv_cache.block(layer, block).begin());
  }
  Symbols held(std::uint32_t layer, BlockId block) const {
    const auto symbols = std::as_const(kv_cache).block(layer, block);
    return {symbols.begin(), symbols.end()};
  }

  std::unique_ptr<StorageWorld> storage = GetParam().make.storage();
  ScriptedKVCache kv_cache{2, 2, 16, /*block_size=*/2};
  SynchronousConnectorMetadata metadata;
  SynchronousWorkerReport report;
  std::unique_ptr<KVConnectorWorker> worker;
};

class ExampleWorkerRules : public WorkerRules {
 protected:
  ExampleWorkerRules() { make(SynchronousConnectorKind::kExample); }
};

TEST_P(ExampleWorkerRules, SavesALayerOfEachStore) {
  hold(2, 5, {50, 52});
  hold(3, 5, {51, 53});
  hold(3, 6, {61, 63});
  store("7", "a", {5, 6});
  load("8", "c", {9});
  store("9", "b", {6});

  worker->save_kv_layer(3);

  EXPECT_FALSE(report.failed.has_value());
  EXPECT_EQ(report.saved, (std::vector<FileCopy>{{"7", 3, "a", {5, 6}, {51, 53, 61, 63}},
                                                 {"9", 3, "b", {6}, {61, 63}}}));
  Symbols symbols(4);
  EXPECT_TRUE(storage->load("a", 3, symbols));
  EXPECT_EQ(symbols, Symbols({51, 53, 61, 63}));
  EXPECT_EQ(folders(), Names({"a", "b"}));
}

TEST_P(ExampleWorkerRules, LoadsAllLayersOfEachLoad) {
  for (const std::uint32_t layer : {1u, 2u, 3u}) {
    storage->put_file("a", layer,
                      Symbols{layer * 10, layer * 10 + 1, layer * 10 + 2, layer * 10 + 3});
  }
  hold(2, 7, {70, 71});
  store("6", "b", {7});
  load("8", "a", {5, 6});

  worker->start_load_kv();

  EXPECT_FALSE(report.failed.has_value());
  EXPECT_EQ(report.loaded, (std::vector<FileCopy>{{"8", 2, "a", {5, 6}, {20, 21, 22, 23}},
                                                  {"8", 3, "a", {5, 6}, {30, 31, 32, 33}}}));
  EXPECT_EQ(held(2, 5), Symbols({20, 21}));
  EXPECT_EQ(held(2, 6), Symbols({22, 23}));
  EXPECT_EQ(held(3, 6), Symbols({32, 33}));
  EXPECT_EQ(held(2, 7), Symbols({70, 71}));
  EXPECT_EQ(folders(), Names({"a"}));
}

TEST_P(ExampleWorkerRules, EndsAtAFileThatIsNotThere) {
  storage->put_file("a", 2, Symbols{20, 21});
  storage->put_file("b", 2, Symbols{22, 23});
  load("8", "a", {5});
  load("9", "b", {6});

  worker->start_load_kv();

  ASSERT_TRUE(report.failed.has_value());
  EXPECT_EQ(*report.failed, (FailedFile{"8", false, 3, "a"}));
  EXPECT_EQ(report.loaded.size(), 1u) << "earlier loads stay";
  EXPECT_EQ(held(2, 5), Symbols({20, 21}));
  EXPECT_EQ(held(2, 6), Symbols(2, kNothingComputed));
}

TEST_P(ExampleWorkerRules, LookingForAFolderMakesIt) {
  load("8", "a", {5});

  worker->start_load_kv();

  EXPECT_TRUE(report.failed.has_value());
  EXPECT_EQ(folders(), Names({"a"}));
}

TEST_P(ExampleWorkerRules, EndsAtAFileThatCannotBeWritten) {
  storage->fail_next(2, FileOperation::kWrite);
  store("8", "a", {5});
  store("9", "b", {6});

  worker->save_kv_layer(2);

  ASSERT_TRUE(report.failed.has_value());
  EXPECT_EQ(*report.failed, (FailedFile{"8", true, 2, "a"}));
  EXPECT_TRUE(report.saved.empty());
  EXPECT_EQ(folders(), Names({"a"}));
}

class DecodeBenchConnectorRules : public ::testing::TestWithParam<Maker> {
 protected:
  std::vector<RequestIndex> filled() const {
    std::vector<RequestIndex> filled;
    half.connector->filled_requests(filled);
    return filled;
  }
  Half half{GetParam().make, spec_of(SynchronousConnectorKind::kDecodeBench, 2)};
};

TEST_P(DecodeBenchConnectorRules, FillsAllButTheLastToken) {
  half.add(3, counting(10));
  half.sample(3, 1);

  EXPECT_EQ(half.ask(3), 10u);
  EXPECT_EQ(half.ask(3, 4), 6u);
  EXPECT_EQ(half.ask(3, 10), 0u);
  half.add(4, counting(1));
  EXPECT_EQ(half.ask(4), 0u);
}

TEST_P(DecodeBenchConnectorRules, FillsTheFirstBlocksOfEachGroup) {
  half.add(3, counting(10));
  half.add(4, counting(6));
  half.allocate(4, 5, {{1, 2}, {0, 3}});
  half.allocate(3, 5, {{4, 5, 6}, {7, 8, 9}});

  EXPECT_EQ(half.build().fills,
            std::vector({BlockFill{"4", 5, {{1, 2}, {0, 3}}}, BlockFill{"3", 5, {{4, 5}, {7, 8}}}}))
      << "the local hit's blocks, not those after";
  EXPECT_TRUE(half.build().fills.empty());
}

TEST_P(DecodeBenchConnectorRules, FillsARequestOnce) {
  half.add(3, counting(10));
  half.add(4, counting(10));
  half.allocate(4, 9, {{1, 2, 3}, {4, 5, 6}});
  half.allocate(3, 9, {{1, 2, 3}, {4, 5, 6}});
  EXPECT_EQ(filled(), std::vector<RequestIndex>({4, 3}));

  EXPECT_EQ(half.ask(3), 0u);
  half.allocate(3, 0, {{1, 2, 3}, {4, 5, 6}});
  EXPECT_EQ(half.build().fills.size(), 2u);
  EXPECT_FALSE(half.connector->request_finished(half, half.request(3), {}));
  EXPECT_EQ(filled(), std::vector<RequestIndex>({4}));
  EXPECT_EQ(half.ask(3), 9u) << "the index may name another request";
}

TEST_P(DecodeBenchConnectorRules, AskingFillsNothing) {
  half.add(3, counting(10));
  half.ask(3);

  EXPECT_EQ(half.ask(3), 9u);
  EXPECT_TRUE(filled().empty());
}

TEST_P(DecodeBenchConnectorRules, ResetsNothing) { EXPECT_TRUE(half.connector->reset_cache()); }

class DecodeBenchWorkerRules : public WorkerRules {
 protected:
  DecodeBenchWorkerRules() { make(SynchronousConnectorKind::kDecodeBench); }
};

TEST_P(DecodeBenchWorkerRules, FillsGroup0InAllLayers) {
  metadata.fills = {{"3", 5, {{4, 0}, {7, 8}}}, {"4", 1, {{9}, {10}}}};

  worker->start_load_kv();

  EXPECT_EQ(report.filled, (std::vector<FilledBlocks>{
                               {"3", 2, {4, 0}}, {"3", 3, {4, 0}}, {"4", 2, {9}}, {"4", 3, {9}}}));
  for (const std::uint32_t layer : {2u, 3u}) {
    for (const BlockId block : {4u, 0u, 9u}) {
      EXPECT_EQ(held(layer, block), Symbols(2, kFilledWithDummies));
    }
    for (const BlockId block : {7u, 8u, 10u}) {
      EXPECT_EQ(held(layer, block), Symbols(2, kNothingComputed));
    }
  }
  EXPECT_FALSE(report.failed.has_value());
}

TEST_P(DecodeBenchWorkerRules, SavesNothing) {
  metadata.fills = {{"3", 5, {{4}}}};

  worker->save_kv_layer(2);

  EXPECT_TRUE(report.saved.empty());
  EXPECT_TRUE(folders().empty());
}

INSTANTIATE_TEST_SUITE_P(Files, ExampleConnectorRules, ::testing::ValuesIn(kSides), SideNames());
INSTANTIATE_TEST_SUITE_P(Files, ExampleWorkerRules, ::testing::ValuesIn(kSides), SideNames());
INSTANTIATE_TEST_SUITE_P(Files, DecodeBenchConnectorRules, ::testing::ValuesIn(kSides),
                         SideNames());
INSTANTIATE_TEST_SUITE_P(Files, DecodeBenchWorkerRules, ::testing::ValuesIn(kSides), SideNames());

}  // namespace
}  // namespace kvfence
