// Goal: both halves of the DecodeBenchConnector do what its rules say. Method: calls that a
// scheduler would make, and a KV cache of its own.

#include "optimized/connectors/synchronous/decode_bench_connector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "optimized/connectors/synchronous/synchronous_connector.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kBlockSize = 4;

using Blocks = std::vector<BlockId>;
using Fill = SynchronousConnectorMetadata::Fill;
using Indices = std::vector<RequestIndex>;
using Symbols = std::vector<KVSymbol>;

SynchronousConnectorSpec spec_of() {
  SynchronousConnectorSpec spec;
  spec.kind = SynchronousConnectorKind::kDecodeBench;
  spec.kv_cache.pool.num_gpu_blocks = 16;
  spec.kv_cache.pool.hash.hash_block_size = kBlockSize;
  spec.kv_cache.groups = {{.block_size = kBlockSize}};
  return spec;
}

class DecodeBenchConnectorTest : public testing::Test, protected ConnectorHost {
 protected:
  RequestIndex add(std::uint32_t num_tokens, std::uint32_t num_outputs = 0) {
    RequestSpec tokens;
    tokens.tokens.assign(num_tokens, 7);
    requests_.push_back({Request(tokens, {}), num_tokens - num_outputs});
    return static_cast<RequestIndex>(requests_.size() - 1);
  }
  std::uint32_t look_up(RequestIndex index, std::uint32_t num_local_tokens = 0) {
    const MatchedTokens found =
        connector_->get_num_new_matched_tokens(request(index), num_local_tokens);
    EXPECT_FALSE(found.load_async);
    return found.num_tokens.value_or(99);
  }
  void admit(RequestIndex index, const BlocksByGroup& blocks, std::uint32_t num_external_tokens) {
    connector_->update_state_after_alloc(*this, request(index), blocks, num_external_tokens);
  }
  std::vector<Fill> step() {
    const auto told = connector_->build_connector_meta(*this, {});
    return static_cast<const SynchronousConnectorMetadata&>(*told).fills;
  }
  void finish(RequestIndex index) {
    EXPECT_FALSE(connector_->request_finished(*this, request(index), {}));
  }
  Indices filled() const {
    Indices requests = {99};
    connector_->filled_requests(requests);
    return requests;
  }

  ConnectorRequest request(RequestIndex index) const override {
    return {index, "r", requests_[index].tokens, requests_[index].num_prompt_tokens, 0, params_};
  }
  bool is_cached(BlockId) const override { return false; }

  struct Record {
    Request tokens;
    std::uint32_t num_prompt_tokens;
  };

  std::unique_ptr<SharedStorage> storage_ = make_shared_storage();
  std::unique_ptr<SynchronousConnectorScheduler> connector_ =
      make_synchronous_connector_scheduler(spec_of(), *storage_);
  std::deque<Record> requests_;
  KVTransferParams params_;
};

TEST_F(DecodeBenchConnectorTest, FindsAllTokensButTheLast) {
  EXPECT_EQ(look_up(add(10)), 9U);
  EXPECT_EQ(look_up(add(10), 4), 5U);
  EXPECT_EQ(look_up(add(10), 9), 0U);
  EXPECT_EQ(look_up(add(10), 10), 0U) << "not below 0";
  EXPECT_EQ(look_up(add(1)), 0U);
  EXPECT_EQ(look_up(add(10, /*num_outputs=*/3)), 9U);
}

TEST_F(DecodeBenchConnectorTest, FillsTheFirstBlocksOfEachGroup) {
  const RequestIndex index = add(14);
  admit(index, {{4, 5, 6, 7}, {0, 8, 9, 10}}, 9);
  EXPECT_EQ(step(), std::vector({Fill{index, 9, {{4, 5, 6}, {0, 8, 9}}}}));
  EXPECT_TRUE(step().empty());
}

TEST_F(DecodeBenchConnectorTest, FillsARequestOnce) {
  const RequestIndex index = add(10);
  admit(index, {{1, 2, 3}}, 0);
  EXPECT_EQ(look_up(index), 9U);
  EXPECT_TRUE(step().empty());
  admit(index, {{1, 2, 3}}, 9);
  EXPECT_EQ(look_up(index), 0U);
  EXPECT_EQ(step().size(), 1U);
  EXPECT_EQ(look_up(index), 0U);
  finish(index);
  EXPECT_EQ(look_up(index), 9U);
  finish(index);
}

TEST_F(DecodeBenchConnectorTest, TellsFillsAndFilledRequestsInOrder) {
  const RequestIndex first = add(6);
  const RequestIndex second = add(6);
  const RequestIndex third = add(6);
  admit(second, {{1, 2}}, 5);
  admit(first, {{3, 4}}, 5);
  admit(third, {{5, 6}}, 5);
  EXPECT_EQ(filled(), Indices({second, first, third}));
  finish(first);
  EXPECT_EQ(filled(), Indices({second, third}));
  const std::vector<Fill> fills = step();
  ASSERT_EQ(fills.size(), 3U);
  EXPECT_EQ(fills[0].request, second);
  EXPECT_EQ(fills[1].request, first);
}

TEST_F(DecodeBenchConnectorTest, ACopyHasFillsOfItsOwn) {
  const RequestIndex index = add(6);
  admit(index, {{1, 2}}, 5);
  const std::unique_ptr<KVConnector> copy = connector_->clone();
  EXPECT_EQ(step().size(), 1U);
  const auto told = copy->build_connector_meta(*this, {});
  EXPECT_EQ(static_cast<const SynchronousConnectorMetadata&>(*told).fills.size(), 1U);
  EXPECT_TRUE(connector_->reset_cache());
}

TEST(DecodeBenchConnectorWorker, FillsTheBlocksOfTheFirstGroupInEachLayer) {
  const std::unique_ptr<SharedStorage> storage = make_shared_storage();
  const auto worker = make_synchronous_connector_worker(spec_of(), *storage);
  ScriptedKVCache kv_cache(/*first_layer=*/2, /*num_layers=*/2, /*num_blocks=*/4, kBlockSize);
  SynchronousConnectorMetadata metadata;
  metadata.fills = {{5, 6, {{0, 2}, {1, 3}}}, {6, 1, {{3}}}};
  SynchronousWorkerReport report;

  worker->start_load_kv(metadata, kv_cache, report);
  worker->save_kv_layer(metadata, 2, kv_cache, report);

  EXPECT_EQ(report.filled, std::vector({SynchronousWorkerReport::Filled{5, 2, {0, 2}},
                                        {5, 3, {0, 2}},
                                        {6, 2, {3}},
                                        {6, 3, {3}}}));
  for (const std::uint32_t layer : {2U, 3U}) {
    const std::span<const KVSymbol> symbols = std::as_const(kv_cache).layer(layer);
    Symbols expected(16, kFilledWithDummies);
    std::fill(expected.begin() + 4, expected.begin() + 8, kNothingComputed);
    EXPECT_EQ(Symbols(symbols.begin(), symbols.end()), expected);
  }
  EXPECT_TRUE(report.saved.empty());
  EXPECT_FALSE(report.failed);
}

}  // namespace
}  // namespace kvfence::optimized
