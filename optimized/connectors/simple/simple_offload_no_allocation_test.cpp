// Goal: once it has seen its longest calls, a simple CPU offload connector allocates only metadata
// that are not empty. Method: this program counts every call of operator new. Request ids fit into
// the string itself.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "contract/scheduler/scheduler.h"
#include "optimized/base/brisk_engine_test_support.h"
#include "optimized/base/counted_allocations.h"
#include "optimized/connectors/simple/simple_cpu_offload.h"
#include "optimized/pool/block_pool.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kBlockSize = 4;
constexpr std::uint32_t kNumTokens = 20;
constexpr std::uint32_t kNumBlocks = kNumTokens / kBlockSize;
constexpr RequestIndex kNumRequests = 6;

SimpleCPUOffloadSpec spec_of(Profile profile, bool lazy_offload) {
  SimpleCPUOffloadSpec spec;
  spec.kv_cache.pool.num_gpu_blocks = 24;
  spec.kv_cache.pool.hash.hash_block_size = kBlockSize;
  spec.kv_cache.pool.rules = rules_of(profile);
  spec.kv_cache.groups = {
      {.block_size = kBlockSize},
      {.kind = KVCacheSpecKind::kSlidingWindow, .block_size = kBlockSize, .sliding_window = 8}};
  spec.kv_cache.max_model_len = kNumTokens;
  spec.kv_cache.max_num_batched_tokens = kNumTokens;
  spec.num_cpu_blocks = 24;  // less than the three prompts together: there are evictions
  spec.lazy_offload = lazy_offload;
  return spec;
}

/// The number of allocations, by kind of call.
struct Cost {
  std::size_t of_metadata = 0;  ///< of steps with metadata
  std::size_t of_silence = 0;   ///< of steps with empty metadata
  std::size_t of_the_rest = 0;  ///< of the scheduler's half
  std::size_t of_workers = 0;
};

/// Repeats the life of the same requests, with all calls that concern them.
class World final : private ConnectorHost, private GpuBlockPool {
 public:
  explicit World(const SimpleCPUOffloadSpec& spec)
      : connector_(make_simple_cpu_offload_scheduler(spec)),
        worker_(make_simple_cpu_offload_worker(spec)),
        gpu_(spec.kv_cache.pool),
        blocks_(spec.kv_cache.groups.size(), std::vector<BlockId>(kNumBlocks)) {
    for (RequestIndex index = 0; index < kNumRequests; ++index) {
      RequestSpec tokens;
      for (TokenId token = 0; token < kNumTokens; ++token) {
        tokens.tokens.push_back(100 * (index / 2) + token);
      }
      requests_.emplace_back(tokens, spec.kv_cache.pool.hash);
    }
  }

  /// Each request comes, is loaded if it was stored before, is computed, stored, decodes and goes.
  Cost life() {
    Cost cost;
    for (RequestIndex index = 0; index < kNumRequests; ++index) {
      current_ = index;
      num_computed_ = 0;
      const std::size_t before = num_allocations();
      const std::uint32_t num_external =
          connector_->get_num_new_matched_tokens(request(index), 0).num_tokens.value_or(0);
      for (std::vector<BlockId>& ids : blocks_) gpu_.get_new_blocks(ids);
      connector_->update_state_after_alloc(*this, request(index), blocks_, num_external);
      cost.of_the_rest += num_allocations() - before;
      num_loaded_ += num_external;
      run_step(cost);
      cache_blocks();
      plan_new();
      run_step(cost);
      num_computed_ = kNumTokens;
      for (int i = 0; i < 3; ++i) {
        output_.scheduled.push_back({index, 1, 0, true});
        output_.scheduled_cached_reqs.emplace_back().request = index;
        run_step(cost);
      }
      const std::size_t before_end = num_allocations();
      connector_->request_finished(*this, request(index), blocks_);
      for (const std::vector<BlockId>& ids : blocks_) gpu_.free_blocks(ids);
      cost.of_the_rest += num_allocations() - before_end;
      for (int i = 0; i < 3; ++i) run_step(cost);
    }
    return cost;
  }

  std::uint64_t num_loaded() const { return num_loaded_; }
  std::uint64_t num_stored() const { return num_stored_; }

 private:
  void cache_blocks() {
    for (GroupId group = 0; group < blocks_.size(); ++group) {
      gpu_.cache_full_blocks({.request = requests_[current_],
                              .blocks = blocks_[group],
                              .num_cached_blocks = 0,
                              .num_full_blocks = kNumBlocks,
                              .block_size = kBlockSize,
                              .kv_cache_group_id = group,
                              .block_mask = std::nullopt});
    }
  }

  void plan_new() {
    output_.scheduled.push_back({current_, kNumTokens - num_computed_, 0, true});
    output_.scheduled_new_reqs.push_back({current_, num_computed_, 0});
    for (const std::vector<BlockId>& ids : blocks_) {
      output_.block_lists.append(ids);
      output_.block_lists.end_list();
    }
  }

  void run_step(Cost& cost) {
    std::size_t before = num_allocations();
    metadata_ = connector_->build_connector_meta(*this, output_);
    const auto& metadata = static_cast<const SimpleCPUOffloadMetadata&>(*metadata_);
    (metadata.load_event || metadata.store_event ? cost.of_metadata : cost.of_silence) +=
        num_allocations() - before;
    num_stored_ += metadata.store_gpu_blocks.size();
    output_.scheduled.clear();
    output_.scheduled_new_reqs.clear();
    output_.scheduled_cached_reqs.clear();
    output_.block_lists.clear();

    before = num_allocations();
    worker_->register_kv_caches(engine_);
    worker_->handle_preemptions(*metadata_);
    worker_->bind_connector_metadata(*metadata_);
    worker_->start_load_kv();
    worker_->wait_for_save();
    worker_->get_finished({}, report_);
    cost.of_workers += num_allocations() - before;

    update_.completed_jobs.clear();
    for (const TransferResult& completed : report_.completed_jobs) {
      update_.completed_jobs.push_back({completed.job, 1, 0});
    }
    update_.finished_recving.assign(report_.finished_recving.size(), current_);
    before = num_allocations();
    connector_->update_connector_output(*this, update_);
    cost.of_the_rest += num_allocations() - before;
  }

  ConnectorRequest request(RequestIndex index) const override {
    return {index, id_, requests_[index], kNumTokens, num_computed_, params_};
  }
  bool is_cached(BlockId block) const override { return !gpu_.block_key(block).empty(); }
  GpuBlockPool* gpu_block_pool() override { return this; }

  std::string_view block_key(BlockId block) const override { return gpu_.block_key(block); }
  void touch(std::span<const BlockId> blocks) override { gpu_.touch(blocks); }
  void free_blocks(std::span<const BlockId> blocks) override { gpu_.free_blocks(blocks); }
  bool is_free(BlockId block) const override { return gpu_.is_free(block); }
  std::optional<BlockId> next_free_block(std::optional<BlockId> block) const override {
    return gpu_.next_free_block(block);
  }

  std::unique_ptr<SimpleCPUOffloadScheduler> connector_;
  std::unique_ptr<KVConnectorWorker> worker_;
  BlockPool gpu_;
  BriskEngine engine_;
  std::vector<Request> requests_;
  BlocksByGroup blocks_;
  std::string id_ = "A";
  KVTransferParams params_;
  RequestIndex current_ = 0;
  std::uint32_t num_computed_ = 0;
  std::uint64_t num_loaded_ = 0;
  std::uint64_t num_stored_ = 0;
  SchedulerOutput output_;
  std::shared_ptr<const KVConnectorMetadata> metadata_;
  KVConnectorWorkerOutput report_;
  KVConnectorOutput update_;
};

class SimpleOffloadNoAllocation : public testing::TestWithParam<std::tuple<Profile, bool>> {};

TEST_P(SimpleOffloadNoAllocation, ButMetadataThatAreNotEmpty) {
  World world(spec_of(std::get<0>(GetParam()), std::get<1>(GetParam())));
  const std::size_t before = num_allocations();
  for (int i = 0; i < 20; ++i) world.life();
  ASSERT_GT(num_allocations(), before);  // the counter counts
  const std::uint64_t num_loaded = world.num_loaded();
  const std::uint64_t num_stored = world.num_stored();
  std::size_t of_metadata = 0;
  for (int i = 0; i < 100; ++i) {
    const Cost cost = world.life();
    EXPECT_EQ(cost.of_silence, 0U);
    EXPECT_EQ(cost.of_the_rest, 0U);
    EXPECT_EQ(cost.of_workers, 0U);
    of_metadata += cost.of_metadata;
  }
  EXPECT_GT(of_metadata, 0U);
  EXPECT_GT(world.num_loaded(), num_loaded);
  EXPECT_GT(world.num_stored(), num_stored);
}

INSTANTIATE_TEST_SUITE_P(Profiles, SimpleOffloadNoAllocation,
                         testing::Combine(testing::ValuesIn(kProfiles), testing::Bool()),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param) == Profile::kV019 ? "v019"
                                                                                         : "v023") +
                                  (std::get<1>(param.param) ? "_lazy" : "_eager");
                         });

}  // namespace
}  // namespace kvfence::optimized
