// Goal: in the scheduler's half of a synchronous connector, a step costs the requests that join it
// and the blocks in its metadata, and a call its own request. Method: count the requests and table
// entries looked at, with 10^2 to 10^5 requests that decode, are filled or have a name, and
// compare. A scan would grow with that number.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/scheduler/scheduler.h"
#include "planted/optimized/connectors/synchronous/synchronous_connector.h"
#include "properties/planted/switches.h"

namespace kvfence::planted::optimized {
namespace {

constexpr std::uint32_t kBlockSize = 4;
constexpr std::uint32_t kNumTokens = 10;

SynchronousConnectorSpec spec_of(SynchronousConnectorKind kind) {
  SynchronousConnectorSpec spec;
  spec.kind = kind;
  spec.kv_cache.pool.hash.algorithm = HashAlgorithm::kXxhashCbor;
  spec.kv_cache.pool.hash.hash_block_size = kBlockSize;
  spec.kv_cache.groups = {{.block_size = kBlockSize}};
  return spec;
}

/// A scheduler's half asks only which folders exist.
class FoldersOnly final : public SharedStorage {
 public:
  explicit FoldersOnly(bool all_exist) : all_exist_(all_exist) {}
  bool folder_exists(std::string_view) const override { return all_exist_; }
  bool save(std::string_view, std::uint32_t, std::span<const KVSymbol>) override { return false; }
  bool load(std::string_view, std::uint32_t, std::span<KVSymbol>) override { return false; }

 private:
  bool all_exist_;
};

/// Many known requests of one prompt that decode in each step, and one more.
class Crowd final : private ConnectorHost {
 public:
  Crowd(std::uint32_t num_requests, SynchronousConnectorKind kind, SharedStorage& storage)
      : connector_(make_synchronous_connector_scheduler(spec_of(kind), storage)),
        request_(RequestSpec{std::vector<TokenId>(kNumTokens, 7), {}, {}, {}},
                 spec_of(kind).kv_cache.pool.hash),
        num_decoding_(num_requests) {
    for (RequestIndex index = 0; index < num_requests; ++index) {
      const std::uint32_t num_found = look_up(index);
      admit(index, num_found);
      join(index, num_found, /*resumed=*/false);
    }
    step();
  }

  RequestIndex another() const { return num_decoding_; }
  std::uint32_t look_up(RequestIndex index) {
    return connector_->get_num_new_matched_tokens(request(index), 0).num_tokens.value_or(0);
  }
  void admit(RequestIndex index, std::uint32_t num_external_tokens) {
    connector_->update_state_after_alloc(*this, request(index), blocks_, num_external_tokens);
  }
  void finish(RequestIndex index) { connector_->request_finished(*this, request(index), blocks_); }

  /// All known requests decode.
  void decode() {
    for (RequestIndex index = 0; index < num_decoding_; ++index) {
      output_.scheduled.push_back({index, 1, 0, true});
      output_.scheduled_cached_reqs.emplace_back().request = index;
    }
  }
  void join(RequestIndex index, std::uint32_t num_computed_tokens, bool resumed) {
    output_.scheduled.push_back({index, kNumTokens - num_computed_tokens, 0, true});
    const auto first_list = static_cast<std::uint32_t>(output_.block_lists.size());
    output_.block_lists.append(blocks_.front());
    output_.block_lists.end_list();
    if (resumed) {
      SchedulerOutput::Cached& data = output_.scheduled_cached_reqs.emplace_back();
      data.request = index;
      data.resumed = true;
      data.num_computed_tokens = num_computed_tokens;
      data.first_list = first_list;
    } else {
      output_.scheduled_new_reqs.push_back({index, num_computed_tokens, first_list});
    }
  }
  void step() {
    metadata_ = std::static_pointer_cast<const SynchronousConnectorMetadata>(
        connector_->build_connector_meta(*this, output_));
    output_ = {};
  }

  template <class Operation>
  std::uint64_t cost(Operation operation) {
    const auto sum = [] { return operation_counts.table_entries + operation_counts.requests; };
    const std::uint64_t before = sum();
    operation();
    return sum() - before;
  }

  const SynchronousConnectorMetadata& metadata() const { return *metadata_; }

 private:
  ConnectorRequest request(RequestIndex index) const override {
    return {index, "r", request_, kNumTokens, 0, params_};
  }
  bool is_cached(BlockId) const override { return false; }

  std::unique_ptr<SynchronousConnectorScheduler> connector_;
  Request request_;
  std::uint32_t num_decoding_;
  BlocksByGroup blocks_ = {{1, 2, 3}};
  KVTransferParams params_;
  SchedulerOutput output_;
  std::shared_ptr<const SynchronousConnectorMetadata> metadata_;
};

class SynchronousConnectorOperationCount : public testing::TestWithParam<std::uint32_t> {};

TEST_P(SynchronousConnectorOperationCount, AStoreCostsItsRequestAndItsBlocks) {
  FoldersOnly storage(/*all_exist=*/false);
  Crowd crowd(GetParam(), SynchronousConnectorKind::kExample, storage);
  ASSERT_EQ(crowd.metadata().transfers.size(), GetParam());
  crowd.decode();
  EXPECT_EQ(crowd.cost([&] { crowd.step(); }), 0U);
  EXPECT_EQ(crowd.cost([&] { EXPECT_EQ(crowd.look_up(crowd.another()), 0U); }), 1U);
  EXPECT_EQ(crowd.cost([&] { crowd.admit(crowd.another(), 0); }), 1U);
  crowd.decode();
  crowd.join(crowd.another(), 0, /*resumed=*/false);
  EXPECT_EQ(crowd.cost([&] { crowd.step(); }), 4U);  // its match, its tokens, two blocks
  EXPECT_EQ(crowd.metadata().transfers.size(), 1U);
  EXPECT_EQ(crowd.cost([&] { crowd.finish(0); }), 0U);
}

TEST_P(SynchronousConnectorOperationCount, ALoadCostsItsRequestAndItsBlocks) {
  FoldersOnly storage(/*all_exist=*/true);
  Crowd crowd(GetParam(), SynchronousConnectorKind::kExample, storage);
  ASSERT_EQ(crowd.metadata().transfers.size(), GetParam());
  EXPECT_EQ(crowd.cost([&] { EXPECT_EQ(crowd.look_up(crowd.another()), 8U); }), 1U);
  crowd.admit(crowd.another(), 8);
  crowd.decode();
  crowd.join(crowd.another(), 8, /*resumed=*/false);
  EXPECT_EQ(crowd.cost([&] { crowd.step(); }), 2U);  // two blocks
  EXPECT_EQ(crowd.metadata().transfers.size(), 1U);
  crowd.admit(crowd.another(), 8);
  crowd.decode();
  crowd.join(crowd.another(), 8, /*resumed=*/true);
  EXPECT_EQ(crowd.cost([&] { crowd.step(); }), 4U);  // it, its tokens, two blocks
  EXPECT_EQ(crowd.metadata().transfers.size(), 1U);
}

TEST_P(SynchronousConnectorOperationCount, AFillCostsItsBlocks) {
  FoldersOnly storage(/*all_exist=*/false);
  Crowd crowd(GetParam(), SynchronousConnectorKind::kDecodeBench, storage);
  ASSERT_EQ(crowd.metadata().fills.size(), GetParam());
  EXPECT_EQ(crowd.cost([&] { EXPECT_EQ(crowd.look_up(crowd.another()), 9U); }), 1U);
  EXPECT_EQ(crowd.cost([&] { crowd.admit(crowd.another(), 9); }), 4U);  // and three blocks
  crowd.decode();
  crowd.join(crowd.another(), 9, /*resumed=*/false);
  EXPECT_EQ(crowd.cost([&] { crowd.step(); }), 0U);
  EXPECT_EQ(crowd.metadata().fills.size(), 1U);
  EXPECT_EQ(crowd.cost([&] { EXPECT_EQ(crowd.look_up(crowd.another()), 0U); }), 1U);
  EXPECT_EQ(crowd.cost([&] { crowd.finish(GetParam() / 2); }), 1U);
}

INSTANTIATE_TEST_SUITE_P(Sizes, SynchronousConnectorOperationCount,
                         testing::Values(100, 1'000, 10'000, 100'000));

}  // namespace
}  // namespace kvfence::planted::optimized
