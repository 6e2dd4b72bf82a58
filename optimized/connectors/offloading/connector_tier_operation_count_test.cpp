// Goal: also above tiers, a step costs its requests and the jobs that end or begin with it, for any
// number of other requests, stores, cascades, promotions and blocks in the tiers. Method: count the
// requests, table entries, links, probes and words that connector and tiering manager look at, with
// 10^2 to 10^4 stores under way, cascades and promotions, and check them against constants. A scan
// would grow with that number.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/scheduler/scheduler.h"
#include "planted/optimized/connectors/offloading/offloading_connector.h"
#include "properties/planted/switches.h"

namespace kvfence::planted::optimized {
namespace {

constexpr std::uint32_t kBlockSize = 4;
constexpr std::uint32_t kNumTiers = 3;

/// A table is at most half full, so a longer cluster than this is not chance.
constexpr std::uint64_t kLookupMax = 60;

/// The blocks in the last tier, and the jobs to report, by tier.
struct Below {
  std::set<OffloadKey> held;
  std::vector<std::vector<JobResult>> reports;
  std::vector<TierJobId> submitted;  ///< the last job of each
};

class ReportingTier final : public Cloning<ReportingTier, SecondaryTier> {
 public:
  ReportingTier(std::uint32_t place, std::shared_ptr<Below> below)
      : place_(place), below_(std::move(below)) {}

  LookupResult lookup(OffloadKeyView key, const RequestContext&) override {
    const bool has_it = place_ + 1 == kNumTiers && below_->held.count(OffloadKey(key)) > 0;
    return has_it ? LookupResult::kHit : LookupResult::kMiss;
  }
  void submit_store(const TierJob& job) override { below_->submitted[place_] = job.job_id; }
  void submit_load(const TierJob& job) override { below_->submitted[place_] = job.job_id; }
  void get_finished_jobs(std::vector<JobResult>& out) override {
    std::vector<JobResult>& reports = below_->reports[place_];
    out.insert(out.end(), reports.begin(), reports.end());
    reports.clear();
  }
  OffloadPolicy on_new_request(const RequestContext&) override {
    return place_ == 0 ? OffloadPolicy::kRequestLevel : OffloadPolicy::kBlockLevel;
  }

 private:
  std::uint32_t place_;
  std::shared_ptr<Below> below_;
};

/// As many requests of each kind: with a block that is being stored, with a stored block that
/// cascades to every tier, and with a block that is being promoted. Then come a few unknown ones;
/// the even ones have their block in the last tier.
class ConnectorTierOperationCount : public testing::TestWithParam<std::uint32_t>,
                                    protected ConnectorHost {
 protected:
  static constexpr std::uint32_t kNumFresh = 8;

  void SetUp() override {
    const std::uint32_t num_known = 3 * num();
    below_ = std::make_shared<Below>();
    below_->reports.resize(kNumTiers);
    below_->submitted.resize(kNumTiers);
    std::vector<SecondaryTierHandle> tiers;
    for (std::uint32_t place = 0; place < kNumTiers; ++place) {
      tiers.emplace_back(std::make_unique<ReportingTier>(place, below_));
    }
    connector_ = make_fencing_connector_scheduler(spec(), std::move(tiers));
    for (RequestIndex index = 0; index < num_known + kNumFresh; ++index) {
      RequestSpec prompt;
      for (TokenId token = 0; token < kBlockSize + 2; ++token) {
        prompt.tokens.push_back(100 * index + token);
      }
      requests_.emplace_back(prompt, spec().kv_cache.pool.hash);
      ids_.push_back("r" + std::to_string(index));
      const bool lies_below =
          index >= 2 * num() && (index < num_known || (index - num_known) % 2 == 0);
      if (lies_below) below_->held.insert(key_of(index));
    }
    for (RequestIndex index = 0; index < 2 * num(); ++index) admit(index);
    step();
    ASSERT_EQ(metadata_->stores.size(), 2 * num());
    num_computed_ = kBlockSize;
    KVConnectorOutput output;
    for (std::uint32_t store = num(); store < 2 * num(); ++store) {
      output.completed_jobs.push_back({metadata_->stores[store].job, 1, 0});
    }
    connector_->update_connector_output(*this, output);
    for (RequestIndex index = 2 * num(); index < num_known; ++index) {
      connector_->on_new_request(request(index));
      ASSERT_EQ(look_up(index), std::nullopt);
    }
    step();
    ASSERT_EQ(connector_->tiering()->num_jobs(), kNumTiers * num() + num());
    ASSERT_EQ(connector_->tiering()->num_pending(), 0U);
  }

  std::uint32_t num() const { return GetParam(); }
  RequestIndex storing(std::uint32_t number) const { return number; }
  RequestIndex stored(std::uint32_t number) const { return num() + number; }
  RequestIndex promoted(std::uint32_t number) const { return 2 * num() + number; }
  /// Its block is in the last tier if the number is even, else nowhere.
  RequestIndex fresh(std::uint32_t number) const { return 3 * num() + number; }

  std::optional<std::uint32_t> look_up(RequestIndex index) {
    return connector_->get_num_new_matched_tokens(request(index), 0).num_tokens;
  }

  template <class Operation>
  std::uint64_t cost(Operation operation) {
    const std::uint64_t before = work();
    operation();
    return work() - before;
  }

  void plan_decoding(RequestIndex index) {
    output_.scheduled.push_back({index, 1, 0, true});
    output_.scheduled_cached_reqs.emplace_back().request = index;
  }

  /// The step in which it joins with a block that was loaded.
  void plan_loaded(RequestIndex index) {
    const auto first_list = static_cast<std::uint32_t>(output_.block_lists.size());
    output_.block_lists.push_back(1 + index);
    output_.block_lists.push_back(2 + index);
    output_.block_lists.end_list();
    output_.scheduled.push_back({index, 2, 0, true});
    output_.scheduled_new_reqs.push_back({index, kBlockSize, first_list});
  }

  void step() {
    metadata_ = std::static_pointer_cast<const OffloadingConnectorMetadata>(
        connector_->build_connector_meta(*this, output_));
    output_ = {};
  }

  /// Its first step computes a block, which is stored.
  void admit(RequestIndex index) {
    connector_->on_new_request(request(index));
    EXPECT_EQ(look_up(index), 0U);
    connector_->update_state_after_alloc(*this, request(index), BlocksByGroup(1), 0);
    const auto first_list = static_cast<std::uint32_t>(output_.block_lists.size());
    output_.block_lists.push_back(1 + index);
    output_.block_lists.end_list();
    output_.scheduled.push_back({index, kBlockSize, 0, false});
    output_.scheduled_new_reqs.push_back({index, 0, first_list});
  }

  void report(const KVConnectorOutput& output) {
    connector_->update_connector_output(*this, output);
  }

  ConnectorRequest request(RequestIndex index) const override {
    return {index, ids_[index], requests_[index], kBlockSize + 2, num_computed_, params_};
  }
  bool is_cached(BlockId) const override { return false; }

  std::shared_ptr<Below> below_;
  std::unique_ptr<OffloadingConnectorScheduler> connector_;
  std::shared_ptr<const OffloadingConnectorMetadata> metadata_;
  std::uint32_t num_computed_ = 0;
  const BlocksByGroup no_blocks_ = BlocksByGroup(1);

 private:
  OffloadingSpec spec() const {
    OffloadingSpec spec;
    spec.kv_cache.pool.num_gpu_blocks = 4 * num() + 2 * kNumFresh;
    spec.kv_cache.pool.hash.hash_block_size = kBlockSize;
    spec.kv_cache.pool.hash.algorithm = HashAlgorithm::kXxhashCbor;
    spec.kv_cache.groups = {{.block_size = kBlockSize}};
    spec.manager.cache.capacity = 4 * num() + 2 * kNumFresh;
    spec.manager.rules = rules_of(Profile::kV023);
    spec.has_tiers = true;
    return spec;
  }

  OffloadKey key_of(RequestIndex index) const {
    return make_block_hash_with_group_id(requests_[index].block_hashes(kBlockSize)[0], 0);
  }

  static std::uint64_t work() {
    return operation_counts.links + operation_counts.table_entries + operation_counts.requests +
           operation_counts.words + operation_counts.probes;
  }

  KVTransferParams params_;
  std::vector<Request> requests_;
  std::vector<std::string> ids_;
  SchedulerOutput output_;
};

// If nothing ends or begins, the cost is the poll of each tier and the requests of the step.
TEST_P(ConnectorTierOperationCount, AStepCostsItsRequestsAndOnePollOfEachTier) {
  EXPECT_EQ(cost([&] { step(); }), kNumTiers);
  plan_decoding(storing(num() - 1));
  EXPECT_EQ(cost([&] { step(); }), kNumTiers + 1U);
}

TEST_P(ConnectorTierOperationCount, ALookupCostsItsBlocksInEachTier) {
  constexpr std::uint64_t kCostOfPromotionMax = 240;  // both timelines may tidy 64 places
  EXPECT_EQ(cost([&] { EXPECT_EQ(look_up(storing(1)), std::nullopt); }), 0U)
      << "its job is under way";
  for (std::uint32_t number = 0; number < num(); number += 1 + num() / 20) {
    // A second lookup that finds the block looks at the request's blocks and touches them again.
    EXPECT_LE(cost([&] { EXPECT_EQ(look_up(stored(number)), kBlockSize); }), 4 * kLookupMax);
    EXPECT_LE(cost([&] { EXPECT_EQ(look_up(promoted(number)), std::nullopt); }), 4 * kLookupMax)
        << "being promoted";
  }
  for (std::uint32_t number = 0; number < kNumFresh; ++number) {
    EXPECT_LE(cost([&] { connector_->on_new_request(request(fresh(number))); }), kLookupMax);
    EXPECT_LE(cost([&] {
                const auto hit = look_up(fresh(number));
                EXPECT_EQ(hit.has_value(), number % 2 == 1);
              }),
              kCostOfPromotionMax);
  }
}

TEST_P(ConnectorTierOperationCount, TheEndOfAStepCostsThePromotionsThatItSubmits) {
  for (std::uint32_t number : {0U, 2U}) {
    connector_->on_new_request(request(fresh(number)));
    EXPECT_EQ(look_up(fresh(number)), std::nullopt);
  }
  ASSERT_EQ(connector_->tiering()->num_pending(), 2U);
  EXPECT_LE(cost([&] { step(); }), 2 * kLookupMax + 2 * kNumTiers);
  EXPECT_EQ(connector_->tiering()->num_pending(), 0U);
}

TEST_P(ConnectorTierOperationCount, APollCostsTheJobsThatAreOver) {
  const std::uint32_t num_jobs = connector_->tiering()->num_jobs();
  // The cascades come first, store by store, tier by tier.
  for (std::uint32_t place = 0; place < kNumTiers; ++place) {
    below_->reports[place].push_back({kNumTiers * (num() / 2) + place, true});
  }
  below_->reports[kNumTiers - 1].push_back({below_->submitted[kNumTiers - 1], true});
  EXPECT_LE(cost([&] { step(); }), (kNumTiers + 1) * (kLookupMax + 20));
  EXPECT_EQ(connector_->tiering()->num_jobs(), num_jobs - kNumTiers - 1);
}

TEST_P(ConnectorTierOperationCount, AStoreThatIsOverCostsItsKeysInEachTier) {
  constexpr std::uint64_t kCostOfAKeyMax = 300;
  const std::uint32_t num_jobs = connector_->tiering()->num_jobs();
  KVConnectorOutput output;
  output.completed_jobs.push_back({num() / 2, 1, 0});
  EXPECT_LE(cost([&] { report(output); }), kCostOfAKeyMax);
  EXPECT_EQ(connector_->tiering()->num_jobs(), num_jobs + kNumTiers);
}

// A tier that wants whole requests gets what the CPU cache held already.
TEST_P(ConnectorTierOperationCount, ALoadedPrefixThatGoesDownCostsItsKeys) {
  constexpr std::uint64_t kCostOfAKeyMax = 400;
  below_->reports[kNumTiers - 1].push_back({below_->submitted[kNumTiers - 1], true});
  const RequestIndex index = promoted(num() - 1);
  EXPECT_EQ(look_up(index), kBlockSize);
  const BlocksByGroup blocks = {{1 + index, 2 + index}};
  EXPECT_LE(cost([&] {
              connector_->update_state_after_alloc(*this, request(index), blocks, kBlockSize);
            }),
            4 * kLookupMax);
  step();
  ASSERT_EQ(metadata_->loads.size(), 1U);
  KVConnectorOutput output;
  output.completed_jobs.push_back({metadata_->loads.front().job, 1, 0});
  EXPECT_LE(cost([&] { report(output); }), 4 * kLookupMax);
  const std::uint32_t num_jobs = connector_->tiering()->num_jobs();
  plan_loaded(index);
  EXPECT_LE(cost([&] { step(); }), kCostOfAKeyMax);
  EXPECT_EQ(connector_->tiering()->num_jobs(), num_jobs + 1) << "to the first tier alone";
}

TEST_P(ConnectorTierOperationCount, ARequestCostsTheTiers) {
  const auto finish = [&](RequestIndex index) {
    return cost([&] { connector_->request_finished(*this, request(index), no_blocks_); });
  };
  for (std::uint32_t number = 0; number < num(); number += 1 + num() / 20) {
    EXPECT_LE(finish(storing(number)), kLookupMax) << "and watches its one block";
    EXPECT_LE(finish(stored(number)), kLookupMax);
    EXPECT_LE(finish(promoted(number)), kLookupMax) << "its promotion goes on";
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ConnectorTierOperationCount,
                         testing::Values(100U, 1'000U, 10'000U));

}  // namespace
}  // namespace kvfence::planted::optimized
