// Goal: both halves of the ExampleConnector do what its rules say. Method: small lives over files
// in a temporary folder, with requests, steps and KV caches that the test makes up.

#include "optimized/connectors/synchronous/example_connector.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "optimized/connectors/synchronous/synchronous_connector.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kBlockSize = 4;

using Blocks = std::vector<BlockId>;
using Symbols = std::vector<KVSymbol>;
using Tokens = std::vector<TokenId>;
using Transfer = SynchronousConnectorMetadata::Transfer;

SynchronousConnectorSpec spec_of(std::uint32_t num_layers = 1) {
  SynchronousConnectorSpec spec;
  spec.kv_cache.pool.num_gpu_blocks = 16;
  spec.kv_cache.pool.hash.hash_block_size = kBlockSize;
  spec.kv_cache.groups = {{.block_size = kBlockSize}};
  spec.num_layers = num_layers;
  return spec;
}

/// 1, 2, 3, ...
Tokens counting(std::uint32_t num_tokens) {
  Tokens tokens;
  for (TokenId token = 1; token <= num_tokens; ++token) tokens.push_back(token);
  return tokens;
}

std::string folder_of(std::uint32_t num_tokens) { return folder_name(counting(num_tokens)); }

class ExampleConnectorTest : public testing::Test, protected ConnectorHost {
 protected:
  /// Tokens 1, 2, ...; the last num_outputs of them are outputs.
  RequestIndex add(std::uint32_t num_tokens, std::uint32_t num_outputs = 0,
                   std::vector<MmFeature> mm_features = {}) {
    RequestSpec tokens;
    tokens.tokens = counting(num_tokens);
    tokens.mm_features = std::move(mm_features);
    requests_.push_back({Request(tokens, spec_.kv_cache.pool.hash), num_tokens - num_outputs});
    return static_cast<RequestIndex>(requests_.size() - 1);
  }

  std::uint32_t look_up(RequestIndex index, std::uint32_t num_local_tokens = 0) {
    const MatchedTokens found =
        connector_->get_num_new_matched_tokens(request(index), num_local_tokens);
    EXPECT_FALSE(found.load_async);
    EXPECT_TRUE(found.num_tokens);
    return found.num_tokens.value_or(0);
  }

  void admit(RequestIndex index, std::uint32_t num_external_tokens) {
    connector_->update_state_after_alloc(*this, request(index), {}, num_external_tokens);
  }

  void plan_new(RequestIndex index, std::uint32_t num_computed_tokens, std::uint32_t num_tokens,
                const Blocks& blocks) {
    output_.scheduled.push_back({index, num_tokens, 0, true});
    output_.scheduled_new_reqs.push_back({index, num_computed_tokens, list(blocks)});
  }
  void plan_cached(RequestIndex index, bool resumed, std::uint32_t num_computed_tokens,
                   std::uint32_t num_tokens, const Blocks& blocks) {
    output_.scheduled.push_back({index, num_tokens, 0, true});
    SchedulerOutput::Cached& data = output_.scheduled_cached_reqs.emplace_back();
    data.request = index;
    data.resumed = resumed;
    data.num_computed_tokens = num_computed_tokens;
    data.first_list = list(blocks);
  }

  std::vector<Transfer> step() {
    const auto told = connector_->build_connector_meta(*this, output_);
    output_ = {};
    const auto& metadata = static_cast<const SynchronousConnectorMetadata&>(*told);
    EXPECT_TRUE(metadata.fills.empty());
    return metadata.transfers;
  }

  ConnectorRequest request(RequestIndex index) const override {
    return {index, "r", requests_[index].tokens, requests_[index].num_prompt_tokens, 0, params_};
  }
  bool is_cached(BlockId) const override { return false; }

  std::uint32_t list(const Blocks& blocks) {
    output_.block_lists.append(blocks);
    output_.block_lists.end_list();
    return static_cast<std::uint32_t>(output_.block_lists.size() - 1);
  }

  struct Record {
    Request tokens;
    std::uint32_t num_prompt_tokens;
  };

  SynchronousConnectorSpec spec_ = spec_of();
  std::unique_ptr<SharedStorage> storage_ = make_shared_storage();
  std::unique_ptr<SynchronousConnectorScheduler> connector_ =
      make_synchronous_connector_scheduler(spec_, *storage_);
  std::deque<Record> requests_;
  KVTransferParams params_;
  SchedulerOutput output_;
};

TEST_F(ExampleConnectorTest, FindsThePromptsWholeBlocksWithoutItsLastTwoTokens) {
  const RequestIndex nine = add(9);
  const RequestIndex ten = add(10);
  EXPECT_EQ(look_up(nine), 0U);
  EXPECT_EQ(look_up(ten), 0U);
  storage_->make_folder(folder_of(8));
  EXPECT_EQ(look_up(nine), 0U);
  EXPECT_EQ(look_up(ten), 8U);
  EXPECT_EQ(look_up(ten, 4), 4U);
  storage_->make_folder(folder_of(4));
  EXPECT_EQ(look_up(nine), 4U);
  EXPECT_EQ(look_up(nine, 8), 0U) << "not below 0";
}

TEST_F(ExampleConnectorTest, LooksForAMatchEachTime) {
  const RequestIndex index = add(10);
  storage_->make_folder(folder_of(8));
  EXPECT_EQ(look_up(index), 8U);
  storage_->remove_folder(folder_of(8));
  EXPECT_EQ(look_up(index), 0U);
}

TEST_F(ExampleConnectorTest, AShortPromptHasTheFolderOfNoToken) {
  storage_->make_folder(folder_of(0));
  for (const std::uint32_t num_tokens : {1U, 2U, 5U}) EXPECT_EQ(look_up(add(num_tokens)), 0U);
}

TEST_F(ExampleConnectorTest, OutputsAreNoPartOfThePrompt) {
  storage_->make_folder(folder_of(8));
  EXPECT_EQ(look_up(add(12, /*num_outputs=*/6)), 0U);
  EXPECT_EQ(look_up(add(12, /*num_outputs=*/2)), 8U);
}

TEST_F(ExampleConnectorTest, MultimodalItemsAreInTheName) {
  const std::vector<MmFeature> cat = {{"cat", 0, 2}};
  storage_->make_folder(folder_name(counting(8), cat));
  EXPECT_EQ(look_up(add(10)), 0U);
  const RequestIndex index = add(10, 0, cat);
  EXPECT_EQ(look_up(index), 8U);
  admit(index, 8);
  plan_new(index, 8, 2, {1, 2, 3});
  EXPECT_EQ(step(),
            std::vector({Transfer{index, false, folder_name(counting(8), cat), 8, {1, 2}}}));
}

TEST_F(ExampleConnectorTest, TheNextRequestOfAnIndexHasAnotherPrompt) {
  storage_->make_folder(folder_of(8));
  const RequestIndex index = add(10);
  EXPECT_EQ(look_up(index), 8U);
  EXPECT_FALSE(connector_->request_finished(*this, request(index), {}));
  requests_.clear();
  EXPECT_EQ(add(7), index);
  EXPECT_EQ(look_up(index), 0U);
}

TEST_F(ExampleConnectorTest, StoresAPromptThatTheStepComputesToItsEnd) {
  const RequestIndex whole = add(10);
  const RequestIndex chunk = add(10);
  const RequestIndex local = add(10);
  const RequestIndex short_one = add(3);
  for (RequestIndex index = 0; index < 4; ++index) admit(index, 0);
  plan_new(whole, 0, 10, {1, 2, 3});
  plan_new(chunk, 0, 7, {4, 5});
  plan_new(local, 4, 4, {1, 6, 7});
  plan_new(short_one, 0, 3, {8});
  EXPECT_EQ(step(), std::vector({Transfer{whole, true, folder_of(8), 8, {1, 2}},
                                 Transfer{local, true, folder_of(8), 8, {1, 6}},
                                 Transfer{short_one, true, folder_of(0), 0, {}}}));
}

TEST_F(ExampleConnectorTest, OfWholeBlocksAndATokenOneBlockMoreIsKeptThanFound) {
  const RequestIndex index = add(9);
  admit(index, 0);
  plan_new(index, 0, 9, {1, 2, 3});
  EXPECT_EQ(step(), std::vector({Transfer{index, true, folder_of(8), 8, {1, 2}}}));
  storage_->make_folder(folder_of(4));
  const RequestIndex again = add(9);
  EXPECT_EQ(look_up(again), 4U);
  admit(again, 4);
  plan_new(again, 4, 5, {4, 5, 6});
  EXPECT_EQ(step(), std::vector({Transfer{again, false, folder_of(8), 8, {4, 5}}}));
}

TEST_F(ExampleConnectorTest, StoresNothingThatIsFound) {
  storage_->make_folder(folder_of(8));
  const RequestIndex index = add(10);
  admit(index, 0);  // all of it was found locally
  plan_new(index, 8, 2, {1, 2, 3});
  EXPECT_TRUE(step().empty());
}

TEST_F(ExampleConnectorTest, LoadsOnce) {
  storage_->make_folder(folder_of(8));
  const RequestIndex index = add(10);
  admit(index, 8);
  plan_new(index, 8, 2, {1, 2, 3});
  EXPECT_EQ(step().size(), 1U);
  plan_cached(index, /*resumed=*/true, 8, 2, {1, 2, 3});
  EXPECT_TRUE(step().empty());
}

TEST_F(ExampleConnectorTest, AResumedRequestLoadsOutputsToo) {
  const RequestIndex decoding = add(5);
  const RequestIndex index = add(14, /*num_outputs=*/4);
  const RequestIndex fresh = add(6);
  admit(index, 8);
  admit(fresh, 0);
  plan_cached(decoding, false, 4, 1, {});
  plan_cached(index, /*resumed=*/true, 8, 6, {5, 6, 7, 8});
  plan_new(fresh, 0, 6, {9, 10});
  EXPECT_EQ(step(), std::vector({Transfer{fresh, true, folder_of(4), 4, {9}},
                                 Transfer{index, false, folder_of(12), 12, {5, 6, 7}}}));
}

TEST_F(ExampleConnectorTest, AStepWithNothingToTellHasMetadataToo) {
  EXPECT_TRUE(step().empty());
  std::vector<RequestIndex> filled = {1};
  connector_->filled_requests(filled);
  EXPECT_TRUE(filled.empty());
  EXPECT_TRUE(connector_->reset_cache());
}

TEST_F(ExampleConnectorTest, ACopySeesTheSameStorageAndItsOwnRequests) {
  const RequestIndex index = add(10);
  admit(index, 8);
  const std::unique_ptr<KVConnector> copy = connector_->clone();
  plan_new(index, 8, 2, {1, 2, 3});
  const SchedulerOutput same = output_;
  EXPECT_EQ(step().size(), 1U);
  const auto told = copy->build_connector_meta(*this, same);
  EXPECT_EQ(static_cast<const SynchronousConnectorMetadata&>(*told).transfers.size(), 1U);
  storage_->make_folder(folder_of(8));
  EXPECT_EQ(copy->get_num_new_matched_tokens(request(index), 0).num_tokens, 8U);
}

// ---- The worker's half ----

class ExampleConnectorWorkerTest : public testing::Test {
 protected:
  void start(const std::vector<Transfer>& transfers) {
    SynchronousConnectorMetadata metadata;
    metadata.transfers = transfers;
    worker_->start_load_kv(metadata, kv_cache_, report_);
  }
  void save(const std::vector<Transfer>& transfers, std::uint32_t layer) {
    SynchronousConnectorMetadata metadata;
    metadata.transfers = transfers;
    worker_->save_kv_layer(metadata, layer, kv_cache_, report_);
  }
  Symbols block(std::uint32_t layer, BlockId block) const {
    const std::span<const KVSymbol> symbols = kv_cache_.block(layer, block);
    return {symbols.begin(), symbols.end()};
  }

  std::unique_ptr<SharedStorage> storage_ = make_shared_storage();
  std::unique_ptr<SynchronousConnectorWorker> worker_ =
      make_synchronous_connector_worker(spec_of(2), *storage_);
  ScriptedKVCache kv_cache_{/*first_layer=*/2, /*num_layers=*/2, /*num_blocks=*/8, kBlockSize};
  SynchronousWorkerReport report_;
};

TEST_F(ExampleConnectorWorkerTest, SavesALayerAndLoadsAllOfItsOwn) {
  const std::vector<TokenId> tokens = counting(8);
  for (const std::uint32_t layer : {2U, 3U}) {
    kv_cache_.compute(layer, Blocks{3, 1}, 0, tokens);
    save({{5, true, "a", 8, {3, 1}}, {6, false, "b", 8, {4, 5}}}, layer);
  }
  ASSERT_EQ(report_.saved.size(), 2U);
  EXPECT_EQ(report_.saved[0].request, 5U);
  EXPECT_EQ(report_.saved[1].layer, 3U);
  EXPECT_EQ(report_.saved[1].symbols[7], symbol_of(3, tokens));

  start({{7, true, "c", 8, {6, 7}}, {7, false, "a", 8, {6, 7}}});

  EXPECT_FALSE(report_.failed);
  EXPECT_EQ(report_.saved.size(), 2U) << "what came before stays";
  ASSERT_EQ(report_.loaded.size(), 2U);
  EXPECT_EQ(report_.loaded[0].blocks, Blocks({6, 7}));
  EXPECT_EQ(report_.loaded[1].symbols, report_.saved[1].symbols);
  for (const std::uint32_t layer : {2U, 3U}) {
    EXPECT_EQ(block(layer, 6), block(layer, 3));
    EXPECT_EQ(block(layer, 7), block(layer, 1));
  }
}

TEST_F(ExampleConnectorWorkerTest, EndsAtTheFirstFileThatCannotBeLoaded) {
  storage_->put_file("a", 2, Symbols(4, 9));
  start({{1, false, "a", 4, {1}}, {2, false, "b", 4, {2}}});
  EXPECT_EQ(report_.loaded.size(), 1U);
  EXPECT_EQ(report_.failed, (SynchronousWorkerReport::Failed{1, 3, "a", false}));
  EXPECT_EQ(block(2, 1), Symbols(4, 9));
  EXPECT_EQ(block(3, 1), Symbols(4, kNothingComputed));
  EXPECT_FALSE(storage_->folder_exists("b"));
}

TEST_F(ExampleConnectorWorkerTest, EndsAtTheFirstFileThatCannotBeSaved) {
  storage_->fail_next(2, FileOperation::kWrite);
  save({{1, true, "a", 4, {1}}, {2, true, "b", 4, {2}}}, 2);
  EXPECT_TRUE(report_.saved.empty());
  EXPECT_EQ(report_.failed, (SynchronousWorkerReport::Failed{1, 2, "a", true}));
  EXPECT_FALSE(storage_->folder_exists("b"));
}

TEST_F(ExampleConnectorWorkerTest, HalfAFileIsNoFile) {
  storage_->put_file("a", 2, Symbols(4, 9));
  storage_->truncate_file("a", 2);
  start({{1, false, "a", 4, {1}}});
  EXPECT_EQ(report_.failed, (SynchronousWorkerReport::Failed{1, 2, "a", false}));
  EXPECT_EQ(block(2, 1), Symbols(4, kNothingComputed));
}

}  // namespace
}  // namespace kvfence::optimized
