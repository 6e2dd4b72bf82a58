// Goal: once it has seen its most requests, the scheduler's half of a synchronous connector
// allocates only names of new ones and metadata that are not empty, and its storage nothing when
// asked for a folder. Method: this program counts every call of operator new.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "contract/scheduler/scheduler.h"
#include "optimized/base/counted_allocations.h"
#include "optimized/connectors/synchronous/synchronous_connector.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kBlockSize = 4;
constexpr std::uint32_t kNumTokens = 10;
constexpr RequestIndex kNumRequests = 6;

SynchronousConnectorSpec spec_of(SynchronousConnectorKind kind) {
  SynchronousConnectorSpec spec;
  spec.kind = kind;
  spec.kv_cache.pool.hash.hash_block_size = kBlockSize;
  spec.kv_cache.groups = {{.block_size = kBlockSize}};
  return spec;
}

/// The number of allocations, by kind of call.
struct Cost {
  std::size_t of_names = 0;     ///< of requests asked for the first time
  std::size_t of_metadata = 0;  ///< of steps with metadata, and their fills
  std::size_t of_silence = 0;   ///< of steps with empty metadata
  std::size_t of_the_rest = 0;
};

/// Repeats the life of the same requests. Half of the prompts are in storage.
class World final : private ConnectorHost {
 public:
  explicit World(SynchronousConnectorKind kind)
      : kind_(kind),
        storage_(make_shared_storage()),
        connector_(make_synchronous_connector_scheduler(spec_of(kind), *storage_)) {
    for (RequestIndex index = 0; index < kNumRequests; ++index) {
      RequestSpec tokens;
      for (TokenId token = 0; token < kNumTokens; ++token) {
        tokens.tokens.push_back(100 * index + token);
      }
      requests_.emplace_back(tokens, spec_of(kind).kv_cache.pool.hash);
      if (index % 2 == 0) storage_->make_folder(folder_name(std::span(tokens.tokens).first(8)));
    }
  }

  /// Each request comes, is asked for until it is admitted, is planned, decodes, is resumed, goes.
  Cost life() {
    Cost cost;
    for (RequestIndex index = 0; index < kNumRequests; ++index) {
      add(cost.of_names, [&] { num_found_ = look_up(index); });
      add(cost.of_the_rest, [&] {
        for (int i = 0; i < 10; ++i) num_found_ = look_up(index);
      });
      plan(index, /*resumed=*/false, cost);
      for (int i = 0; i < 3; ++i) {
        output_.scheduled.push_back({index, 1, 0, true});
        output_.scheduled_cached_reqs.emplace_back().request = index;
        step(cost);
      }
      add(cost.of_the_rest, [&] { num_found_ = look_up(index); });
      plan(index, /*resumed=*/true, cost);
      add(cost.of_the_rest, [&] { connector_->request_finished(*this, request(index), blocks_); });
    }
    return cost;
  }

  std::uint64_t num_reported() const { return num_reported_; }

 private:
  template <class Operation>
  void add(std::size_t& cost, Operation operation) {
    const std::size_t before = num_allocations();
    operation();
    cost += num_allocations() - before;
  }

  std::uint32_t look_up(RequestIndex index) {
    return connector_->get_num_new_matched_tokens(request(index), 0).num_tokens.value_or(0);
  }

  void plan(RequestIndex index, bool resumed, Cost& cost) {
    const bool fills = kind_ == SynchronousConnectorKind::kDecodeBench && num_found_ > 0;
    add(fills ? cost.of_metadata : cost.of_the_rest,
        [&] { connector_->update_state_after_alloc(*this, request(index), blocks_, num_found_); });
    output_.block_lists.append(blocks_.front());
    output_.block_lists.end_list();
    output_.scheduled.push_back({index, kNumTokens - num_found_, 0, true});
    if (resumed) {
      output_.scheduled_cached_reqs.push_back({index, true, true, num_found_, 0, 0});
    } else {
      output_.scheduled_new_reqs.push_back({index, num_found_, 0});
    }
    step(cost);
  }

  void step(Cost& cost) {
    std::size_t here = 0;
    add(here, [&] { metadata_ = connector_->build_connector_meta(*this, output_); });
    const auto& metadata = static_cast<const SynchronousConnectorMetadata&>(*metadata_);
    const std::size_t num_reported = metadata.transfers.size() + metadata.fills.size();
    (num_reported > 0 ? cost.of_metadata : cost.of_silence) += here;
    num_reported_ += num_reported;
    output_.scheduled.clear();
    output_.scheduled_new_reqs.clear();
    output_.scheduled_cached_reqs.clear();
    output_.block_lists.clear();
  }

  ConnectorRequest request(RequestIndex index) const override {
    return {index, "r", requests_[index], kNumTokens, 0, params_};
  }
  bool is_cached(BlockId) const override { return false; }

  SynchronousConnectorKind kind_;
  std::unique_ptr<StorageWorld> storage_;
  std::unique_ptr<SynchronousConnectorScheduler> connector_;
  std::vector<Request> requests_;
  BlocksByGroup blocks_ = {{1, 2, 3}};
  KVTransferParams params_;
  SchedulerOutput output_;
  std::shared_ptr<const KVConnectorMetadata> metadata_;
  std::uint32_t num_found_ = 0;
  std::uint64_t num_reported_ = 0;
};

class SynchronousConnectorNoAllocation : public testing::TestWithParam<SynchronousConnectorKind> {};

TEST_P(SynchronousConnectorNoAllocation, ButNamesAndMetadataThatAreNotEmpty) {
  const bool has_names = GetParam() == SynchronousConnectorKind::kExample;
  World world(GetParam());
  const std::size_t before = num_allocations();
  for (int i = 0; i < 3; ++i) world.life();
  ASSERT_GT(num_allocations(), before);  // the counter counts
  const std::uint64_t num_reported = world.num_reported();
  for (int i = 0; i < 20; ++i) {
    const Cost cost = world.life();
    EXPECT_EQ(cost.of_silence, 0U);
    EXPECT_EQ(cost.of_the_rest, 0U);
    EXPECT_EQ(cost.of_names > 0, has_names);
    EXPECT_GT(cost.of_metadata, 0U);
  }
  EXPECT_GT(world.num_reported(), num_reported);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SynchronousConnectorNoAllocation,
                         testing::Values(SynchronousConnectorKind::kExample,
                                         SynchronousConnectorKind::kDecodeBench),
                         [](const auto& param) {
                           return param.param == SynchronousConnectorKind::kExample
                                      ? "example"
                                      : "decode_bench";
                         });

}  // namespace
}  // namespace kvfence::optimized
