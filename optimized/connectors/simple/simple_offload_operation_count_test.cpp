// Goal: an eager step costs its requests, their new ids and the blocks that are due; a lazy one the
// free blocks that it looks at; a report the blocks of the transfers that it ends. Method: count
// the requests, table entries and free blocks looked at, with 10^2 to 10^5 of everything else, and
// compare. A scan would grow with that number.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "contract/scheduler/scheduler.h"
#include "planted/optimized/connectors/simple/simple_cpu_offload.h"
#include "planted/optimized/pool/block_pool.h"
#include "properties/planted/switches.h"

namespace kvfence::planted::optimized {
namespace {

constexpr std::uint32_t kBlockSize = 4;

/// Many requests of two full blocks and a token, the first one of each stored, and the store under
/// way; lazily, as many free blocks.
class Crowd final : private ConnectorHost, private GpuBlockPool {
 public:
  Crowd(std::uint32_t num_requests, bool lazy_offload)
      : connector_(make_simple_cpu_offload_scheduler(spec_of(num_requests, lazy_offload))),
        gpu_(spec_of(num_requests, lazy_offload).kv_cache.pool),
        blocks_(1) {
    const HashConfig hash = spec_of(num_requests, lazy_offload).kv_cache.pool.hash;
    for (RequestIndex index = 0; index < num_requests; ++index) {
      RequestSpec spec;
      for (TokenId token = 0; token < 2 * kBlockSize + 1; ++token) {
        spec.tokens.push_back(100 * index + token);
      }
      requests_.emplace_back(spec, hash);
    }
    for (RequestIndex index = 0; index < num_requests; ++index) {
      admit(index, /*plan=*/!lazy_offload);
      if (!lazy_offload) continue;
      EXPECT_EQ(gpu_.free_blocks(blocks_[0]), ErrorCode::kNone);
    }
    num_computed_ = kBlockSize;
    if (!lazy_offload) step();
    num_computed_ = 2 * kBlockSize;
  }

  /// The cost of one more step with one token of one request.
  std::uint64_t cost_of_decoding(RequestIndex index) {
    output_.scheduled.push_back({index, 1, 0, true});
    output_.scheduled_cached_reqs.emplace_back().request = index;
    return cost_of_a_step();
  }
  std::uint64_t cost_of_a_step() {
    return cost([&] { step(); });
  }
  std::uint64_t cost_of_completing(JobId event) {
    KVConnectorOutput output;
    output.completed_jobs.push_back({event, 1, 0});
    return cost([&] { connector_->update_connector_output(*this, output); });
  }
  std::uint64_t cost_of_a_lookup(RequestIndex index) {
    return cost([&] {
      num_found_ = connector_->get_num_new_matched_tokens(request(index), 0).num_tokens.value_or(0);
    });
  }
  std::uint64_t cost_of_a_load(RequestIndex index) {
    set_blocks(index);
    return cost(
        [&] { connector_->update_state_after_alloc(*this, request(index), blocks_, num_found_); });
  }
  std::uint64_t cost_of_finishing(RequestIndex index) {
    return cost([&] { connector_->request_finished(*this, request(index), blocks_); });
  }
  std::uint64_t cost_of_loaded(RequestIndex index) {
    KVConnectorOutput output;
    output.finished_recving.push_back(index);
    return cost([&] { connector_->update_connector_output(*this, output); });
  }

  const SimpleCPUOffloadMetadata& metadata() const { return *metadata_; }
  std::uint32_t num_found() const { return num_found_; }

 private:
  static SimpleCPUOffloadSpec spec_of(std::uint32_t num_requests, bool lazy_offload) {
    SimpleCPUOffloadSpec spec;
    spec.kv_cache.pool.num_gpu_blocks = 2 * num_requests + 8;
    spec.kv_cache.pool.hash.hash_block_size = kBlockSize;
    spec.kv_cache.pool.hash.algorithm = HashAlgorithm::kXxhashCbor;
    spec.kv_cache.pool.rules = rules_of(Profile::kV023);
    spec.kv_cache.groups = {{.block_size = kBlockSize}};
    spec.kv_cache.max_model_len = 64;
    spec.kv_cache.max_num_batched_tokens = 4 * kBlockSize;
    spec.num_cpu_blocks = 2 * num_requests + 8;
    spec.lazy_offload = lazy_offload;
    return spec;
  }

  void set_blocks(RequestIndex index) { blocks_[0] = {1 + 2 * index, 2 + 2 * index}; }

  void admit(RequestIndex index, bool plan) {
    blocks_[0].resize(2);
    EXPECT_EQ(gpu_.get_new_blocks(blocks_[0]), ErrorCode::kNone);
    EXPECT_EQ(gpu_.cache_full_blocks({.request = requests_[index],
                                      .blocks = blocks_[0],
                                      .num_cached_blocks = 0,
                                      .num_full_blocks = 2,
                                      .block_size = kBlockSize,
                                      .kv_cache_group_id = 0,
                                      .block_mask = std::nullopt}),
              ErrorCode::kNone);
    if (!plan) return;
    connector_->update_state_after_alloc(*this, request(index), blocks_, 0);
    output_.scheduled_new_reqs.push_back(
        {index, 0, static_cast<std::uint32_t>(output_.block_lists.size())});
    output_.block_lists.append(blocks_[0]);
    output_.block_lists.end_list();
  }

  void step() {
    metadata_ = std::static_pointer_cast<const SimpleCPUOffloadMetadata>(
        connector_->build_connector_meta(*this, output_));
    output_ = {};
  }

  template <class Operation>
  std::uint64_t cost(Operation operation) {
    // Links and probes are of the CPU's pool.
    const auto sum = [] { return operation_counts.table_entries + operation_counts.requests; };
    const std::uint64_t before = sum();
    operation();
    return sum() - before;
  }

  ConnectorRequest request(RequestIndex index) const override {
    return {index, id_, requests_[index], 2 * kBlockSize + 1, num_computed_, params_};
  }
  bool is_cached(BlockId) const override { return false; }
  GpuBlockPool* gpu_block_pool() override { return this; }

  std::string_view block_key(BlockId block) const override { return gpu_.block_key(block); }
  void touch(std::span<const BlockId> blocks) override { gpu_.touch(blocks); }
  void free_blocks(std::span<const BlockId> blocks) override { gpu_.free_blocks(blocks); }
  bool is_free(BlockId block) const override { return gpu_.is_free(block); }
  std::optional<BlockId> next_free_block(std::optional<BlockId> block) const override {
    return gpu_.next_free_block(block);
  }

  std::unique_ptr<SimpleCPUOffloadScheduler> connector_;
  BlockPool gpu_;
  BlocksByGroup blocks_;
  std::string id_ = "A";
  KVTransferParams params_;
  std::vector<Request> requests_;
  std::uint32_t num_computed_ = 0;
  std::uint32_t num_found_ = 0;
  SchedulerOutput output_;
  std::shared_ptr<const SimpleCPUOffloadMetadata> metadata_;
};

class SimpleOffloadOperationCount : public testing::TestWithParam<std::uint32_t> {
 protected:
  static RequestIndex last() { return GetParam() - 1; }
};

TEST_P(SimpleOffloadOperationCount, AnEagerStepCostsItsRequestsAndTheBlocksWhoseTurnItIs) {
  Crowd crowd(GetParam(), /*lazy_offload=*/false);
  ASSERT_EQ(crowd.metadata().store_gpu_blocks.size(), GetParam());
  EXPECT_EQ(crowd.cost_of_decoding(last()), 2U);  // the request and its second block
  EXPECT_EQ(crowd.metadata().store_gpu_blocks.size(), 1U);
  EXPECT_EQ(crowd.cost_of_decoding(last()), 1U);
  EXPECT_EQ(crowd.cost_of_a_step(), 0U);
  EXPECT_EQ(crowd.cost_of_completing(1), 1U);
  EXPECT_EQ(crowd.cost_of_finishing(0), 0U);
}

TEST_P(SimpleOffloadOperationCount, ALoadCostsItsBlocks) {
  Crowd crowd(GetParam(), /*lazy_offload=*/false);
  crowd.cost_of_completing(0);
  EXPECT_EQ(crowd.cost_of_a_lookup(last()), 0U);
  ASSERT_EQ(crowd.num_found(), kBlockSize);
  EXPECT_EQ(crowd.cost_of_a_load(last()), 4U);  // the pin, the table, one block
  EXPECT_EQ(crowd.cost_of_a_step(), 2U);        // the request and the block
  EXPECT_EQ(crowd.metadata().load_requests.size(), 1U);
  EXPECT_EQ(crowd.cost_of_loaded(last()), 1U);
}

TEST_P(SimpleOffloadOperationCount, ALazyStepCostsTheBlocksThatItLooksAt) {
  constexpr std::uint64_t kNumBlocksToWalk = 8;
  Crowd crowd(GetParam(), /*lazy_offload=*/true);
  // Each walk begins at the head, since the one before holds the block at which it stopped. Seven
  // blocks there never held anything.
  EXPECT_EQ(crowd.cost_of_a_step(), kNumBlocksToWalk);
  EXPECT_EQ(crowd.metadata().store_gpu_blocks.size(), 1U);
  EXPECT_EQ(crowd.cost_of_a_step(), kNumBlocksToWalk);
  EXPECT_EQ(crowd.cost_of_completing(0), 1U);
  EXPECT_EQ(crowd.cost_of_a_step(), kNumBlocksToWalk);
  EXPECT_EQ(crowd.metadata().store_gpu_blocks.size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Sizes, SimpleOffloadOperationCount,
                         testing::Values(100, 1'000, 10'000, 100'000));

}  // namespace
}  // namespace kvfence::planted::optimized
