// Goal: a step costs its requests, their new blocks and the jobs that it flushes, for any number of
// other known requests, watched blocks and jobs under way. Method: count the requests, table
// entries, keys and list nodes looked at, with 10^2 to 10^5 of the others, and check them against
// constants. A scan would grow with that number.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "contract/scheduler/scheduler.h"
#include "planted/optimized/connectors/offloading/offloading_connector.h"
#include "properties/planted/switches.h"

namespace kvfence::planted::optimized {
namespace {

constexpr std::uint32_t kBlockSize = 4;

/// The cost of the connector; the manager's is in words and probes.
std::uint64_t work() {
  return operation_counts.links + operation_counts.table_entries + operation_counts.requests;
}

/// Many requests of two blocks each that have stored their first one, and a connector half.
class Crowd final : private ConnectorHost {
 public:
  Crowd(Profile profile, std::uint32_t num_requests, bool has_window)
      : connector_(make_offloading_connector_scheduler(spec_of(profile, num_requests, has_window))),
        num_groups_(has_window ? 2 : 1) {
    HashConfig hash;
    hash.hash_block_size = kBlockSize;
    hash.algorithm = HashAlgorithm::kXxhashCbor;
    for (RequestIndex index = 0; index < num_requests; ++index) {
      RequestSpec spec;
      for (TokenId token = 0; token < kBlockSize + 2; ++token) {
        spec.tokens.push_back(100 * index + token);
      }
      requests_.emplace_back(spec, hash);
    }
    for (RequestIndex index = 0; index < num_requests; ++index) admit(index);
    step();
    num_computed_ = kBlockSize;
  }

  // Of the last step.
  std::size_t num_stores() const { return metadata_->stores.size(); }
  std::size_t num_flushed() const { return metadata_->jobs_to_flush.size(); }

  /// The cost of one more step with one token of one request.
  std::uint64_t cost_of_decoding(RequestIndex index) {
    output_.scheduled.push_back({index, 1, 0, true});
    output_.scheduled_cached_reqs.emplace_back().request = index;
    return cost([&] { step(); });
  }

  /// The same, with this new block in each group.
  std::uint64_t cost_of_a_block(RequestIndex index, BlockId block) {
    output_.scheduled.push_back({index, 1, 0, true});
    SchedulerOutput::Cached& entry = output_.scheduled_cached_reqs.emplace_back();
    entry.request = index;
    entry.first_list = list(block);
    return cost([&] { step(); });
  }

  std::uint64_t cost_of_nothing() {
    return cost([&] { step(); });
  }

  std::uint64_t cost_of_preempting(RequestIndex index) {
    output_.preempted.push_back(index);
    return cost([&] { step(); });
  }

  std::uint64_t cost_of_finishing(RequestIndex index) {
    const BlocksByGroup blocks(num_groups_);
    return cost([&] { connector_->request_finished(*this, request(index), blocks); });
  }

  std::uint64_t cost_of_a_report(RequestIndex index) {
    KVConnectorOutput output;
    output.completed_jobs.push_back({index, 1, 0});
    output.finished_sending.push_back(index);
    return cost([&] { connector_->update_connector_output(*this, output); });
  }

  /// Of its map of jobs, and of the manager's table of keys.
  std::uint64_t probes_of_a_report(RequestIndex index) {
    const std::uint64_t before = operation_counts.probes;
    cost_of_a_report(index);
    return operation_counts.probes - before;
  }

  std::uint64_t cost_of_a_lookup(RequestIndex index) {
    return cost([&] { connector_->get_num_new_matched_tokens(request(index), 0); });
  }

  /// A block of that request, in the group with a window if there is one.
  BlockId block_of(RequestIndex index) const { return 1 + 2 * index + (num_groups_ == 2 ? 1 : 0); }

 private:
  static OffloadingSpec spec_of(Profile profile, std::uint32_t num_requests, bool has_window) {
    OffloadingSpec spec;
    spec.kv_cache.pool.num_gpu_blocks = 4 * num_requests + 8;
    spec.kv_cache.pool.hash.hash_block_size = kBlockSize;
    spec.kv_cache.pool.hash.algorithm = HashAlgorithm::kXxhashCbor;
    spec.kv_cache.groups = {{.block_size = kBlockSize}};
    if (has_window) {
      spec.kv_cache.groups.push_back({.kind = KVCacheSpecKind::kSlidingWindow,
                                      .block_size = kBlockSize,
                                      .sliding_window = kBlockSize});
    }
    spec.manager.cache.capacity = 2 * num_requests + 8;
    spec.manager.rules = rules_of(profile);
    return spec;
  }

  /// Its first step computes a block, which is stored.
  void admit(RequestIndex index) {
    connector_->on_new_request(request(index));
    connector_->get_num_new_matched_tokens(request(index), 0);
    connector_->update_state_after_alloc(*this, request(index), BlocksByGroup(num_groups_), 0);
    const auto first_list = static_cast<std::uint32_t>(output_.block_lists.size());
    for (std::size_t group = 0; group < num_groups_; ++group) {
      output_.block_lists.push_back(1 + 2 * index + static_cast<BlockId>(group));
      output_.block_lists.end_list();
    }
    output_.scheduled.push_back({index, kBlockSize, 0, false});
    output_.scheduled_new_reqs.push_back({index, 0, first_list});
  }

  std::uint32_t list(BlockId block) {
    const auto first = static_cast<std::uint32_t>(output_.block_lists.size());
    for (std::size_t group = 0; group < num_groups_; ++group) {
      output_.block_lists.push_back(block);
      output_.block_lists.end_list();
    }
    return first;
  }

  void step() {
    metadata_ = std::static_pointer_cast<const OffloadingConnectorMetadata>(
        connector_->build_connector_meta(*this, output_));
    output_ = {};
  }

  template <class Operation>
  std::uint64_t cost(Operation operation) {
    const std::uint64_t before = work();
    operation();
    return work() - before;
  }

  ConnectorRequest request(RequestIndex index) const override {
    return {index, id_, requests_[index], kBlockSize + 2, num_computed_, params_};
  }
  bool is_cached(BlockId) const override { return false; }

  std::unique_ptr<OffloadingConnectorScheduler> connector_;
  std::size_t num_groups_;
  std::string id_ = "A";
  KVTransferParams params_;
  std::vector<Request> requests_;
  std::uint32_t num_computed_ = 0;
  SchedulerOutput output_;
  std::shared_ptr<const OffloadingConnectorMetadata> metadata_;
};

class ConnectorOperationCount : public testing::TestWithParam<std::uint32_t> {
 protected:
  static RequestIndex last() { return GetParam() - 1; }
};

// A request whose stores are pending, and all the others with theirs.
TEST_P(ConnectorOperationCount, AHoldingStepCostsItsRequests) {
  Crowd crowd(Profile::kV019, GetParam(), /*has_window=*/false);
  ASSERT_EQ(crowd.num_stores(), GetParam());
  EXPECT_EQ(crowd.cost_of_decoding(last()), 1U);
  EXPECT_EQ(crowd.cost_of_a_block(last(), crowd.block_of(0)), 2U);
  EXPECT_EQ(crowd.cost_of_preempting(last()), 2U);
  EXPECT_EQ(crowd.cost_of_finishing(0), 0U);
  EXPECT_EQ(crowd.cost_of_a_report(0), 2U);
  EXPECT_EQ(crowd.cost_of_a_lookup(1), 2U);
}

TEST_P(ConnectorOperationCount, AFencingStepCostsItsRequests) {
  Crowd crowd(Profile::kV023, GetParam(), /*has_window=*/false);
  ASSERT_EQ(crowd.num_stores(), GetParam());
  EXPECT_EQ(crowd.cost_of_decoding(last()), 1U);
  EXPECT_EQ(crowd.cost_of_preempting(last()), 1U);  // flushes its one job
  EXPECT_EQ(crowd.cost_of_a_lookup(last()), 0U);    // its job is under way
  EXPECT_EQ(crowd.cost_of_finishing(0), 1U);        // watches its one block
  EXPECT_EQ(crowd.cost_of_finishing(1), 1U);
  EXPECT_EQ(crowd.cost_of_a_report(1), 5U);
}

// The others' jobs have neighbouring numbers.
TEST_P(ConnectorOperationCount, AReportFindsItsJobAlone) {
  constexpr std::uint64_t kProbesMax = 60;
  Crowd crowd(Profile::kV023, GetParam(), /*has_window=*/false);
  for (RequestIndex index = 0; index < GetParam(); index += 1 + GetParam() / 50) {
    EXPECT_LE(crowd.probes_of_a_report(index), kProbesMax);
  }
}

// All requests but one are finished, and their jobs watch their blocks.
TEST_P(ConnectorOperationCount, ABlockThatIsWatchedFlushesItsJobsAlone) {
  Crowd crowd(Profile::kV023, GetParam(), /*has_window=*/false);
  for (RequestIndex index = 0; index < last(); ++index) crowd.cost_of_finishing(index);
  EXPECT_EQ(crowd.cost_of_a_block(last(), crowd.block_of(3)), 3U);
  EXPECT_EQ(crowd.num_flushed(), 1U);
  EXPECT_EQ(crowd.cost_of_a_block(last(), crowd.block_of(last()) + 2), 2U);
  EXPECT_EQ(crowd.num_flushed(), 0U);
}

// All requests have a block in the window, where reused ids must be forgotten, and their running
// stores watch the blocks.
TEST_P(ConnectorOperationCount, ABlockOfAWindowIsForgottenWhereItStood) {
  Crowd crowd(Profile::kV023, GetParam(), /*has_window=*/true);
  ASSERT_EQ(crowd.num_stores(), GetParam());
  EXPECT_EQ(crowd.cost_of_decoding(last()), 1U);
  EXPECT_LE(crowd.cost_of_a_block(last(), crowd.block_of(3)), 8U);
  EXPECT_EQ(crowd.num_flushed(), 1U);
  // The id is in the table of the request that has it now.
  EXPECT_LE(crowd.cost_of_a_block(0, crowd.block_of(3)), 8U);
}

// A flush costs its jobs: all of them once no request is left.
TEST_P(ConnectorOperationCount, TheLastFlushCostsTheJobs) {
  Crowd crowd(Profile::kV023, GetParam(), /*has_window=*/false);
  for (RequestIndex index = 0; index <= last(); ++index) crowd.cost_of_finishing(index);
  EXPECT_EQ(crowd.cost_of_nothing(), GetParam());
  EXPECT_EQ(crowd.num_flushed(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Sizes, ConnectorOperationCount,
                         testing::Values(100, 1'000, 10'000, 100'000));

}  // namespace
}  // namespace kvfence::planted::optimized
