// Goal: a lookup, a promotion, a cascade, a poll and the end of a step cost only what they change,
// for any number of other blocks, queued promotions, jobs and requests. Method: count the words and
// probes of the primary tier, the jobs, blocks and groups looked at, and the names of requests
// compared, with 10^2 to 10^5 of everything else, and check them against constants. A walk anywhere
// would grow with that number.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/offload/offload_key_number.h"
#include "planted/optimized/tiering/tiering_manager.h"
#include "properties/planted/switches.h"

namespace kvfence::planted::optimized {
namespace {

using Numbers = std::vector<std::uint32_t>;

constexpr std::uint32_t kNumTiers = 3;

/// From this key number on, the last tier has every block.
constexpr std::uint32_t kFirstBelow = 1'000'000;

/// The jobs to report, by tier.
using Reports = std::vector<std::vector<JobResult>>;

/// A tier that reports the jobs in Reports. The last one has every block of a high number.
class ReportingTier final : public Cloning<ReportingTier, SecondaryTier> {
 public:
  ReportingTier(std::uint32_t place, std::shared_ptr<Reports> reports)
      : place_(place), reports_(std::move(reports)) {}

  LookupResult lookup(OffloadKeyView key, const RequestContext&) override {
    const bool has_it = place_ + 1 == kNumTiers && number_of_key(key).value() >= kFirstBelow;
    return has_it ? LookupResult::kHit : LookupResult::kMiss;
  }
  void submit_store(const TierJob&) override {}
  void submit_load(const TierJob&) override {}
  void get_finished_jobs(std::vector<JobResult>& out) override {
    out.insert(out.end(), (*reports_)[place_].begin(), (*reports_)[place_].end());
    (*reports_)[place_].clear();
  }
  OffloadPolicy on_new_request(const RequestContext&) override {
    return place_ == 0 ? OffloadPolicy::kRequestLevel : OffloadPolicy::kBlockLevel;
  }

 private:
  std::uint32_t place_;
  std::shared_ptr<Reports> reports_;
};

/// As many of each kind: evictable blocks, blocks that cascades hold, jobs under way, promotions
/// under way, queued promotions, each of its own request, and requests at request level.
class TieringOperationCount : public testing::TestWithParam<std::uint32_t> {
 protected:
  void SetUp() override {
    const std::uint32_t num = GetParam();
    OffloadingManagerConfig config;
    config.cache.capacity = 4 * num;
    config.rules = rules_of(Profile::kV023);
    reports_ = std::make_shared<Reports>(kNumTiers);
    std::vector<SecondaryTierHandle> tiers;
    for (std::uint32_t place = 0; place < kNumTiers; ++place) {
      tiers.emplace_back(std::make_unique<ReportingTier>(place, reports_));
    }
    manager_ = std::make_unique<TieringOffloadingManager>(config, std::move(tiers));
    for (std::uint32_t number = 0; number < num; ++number) {
      manager_->on_new_request({name_of(number)});
      store({number});
      report_last_cascades();
      manager_->on_schedule_end();
      store({num + number});
    }
    for (std::uint32_t number = 0; number < num; ++number) look_up(kFirstBelow + number, number);
    end_step();
    for (std::uint32_t number = num; number < 2 * num; ++number) {
      look_up(kFirstBelow + number, number);
    }
  }

  static std::string name_of(std::uint32_t number) { return "r" + std::to_string(number); }

  static std::uint64_t work() {
    return operation_counts.words + operation_counts.probes + operation_counts.table_entries +
           operation_counts.requests;
  }

  template <class Operation>
  std::uint64_t cost(const Operation& operation) {
    const std::uint64_t before = work();
    operation();
    return work() - before;
  }

  LookupResult look_up(std::uint32_t key, std::uint32_t request) {
    const OffloadKey bytes = key_of_number(key);
    return manager_->lookup(bytes, {name_of(request)});
  }

  void store(const Numbers& numbers) {
    std::vector<OffloadKey> keys;
    for (std::uint32_t number : numbers) keys.push_back(key_of_number(number));
    const std::vector<OffloadKeyView> views(keys.begin(), keys.end());
    bool stored = false;
    PrepareStoreOutput out;
    const RequestContext nobody{"nobody"};
    ASSERT_EQ(manager_->prepare_store(views, nobody, stored, out), ErrorCode::kNone);
    ASSERT_TRUE(stored);
    ASSERT_EQ(manager_->complete_store(views, nobody, true), ErrorCode::kNone);
    next_job_ += kNumTiers;
  }

  /// The jobs of the last store; the next poll reports them.
  void report_last_cascades() {
    for (std::uint32_t place = 0; place < kNumTiers; ++place) {
      (*reports_)[place].push_back({next_job_ - kNumTiers + place, true});
    }
  }

  /// Submits the queued promotions.
  void end_step() {
    next_job_ += manager_->num_pending();
    manager_->on_schedule_end();
  }

  std::uint32_t num() const { return GetParam(); }

  std::shared_ptr<Reports> reports_;
  std::unique_ptr<TieringOffloadingManager> manager_;
  TierJobId next_job_ = 0;
};

/// A table of names or jobs is at most half full, so a longer cluster than this is not chance.
constexpr std::uint64_t kLookupMax = 60;

TEST_P(TieringOperationCount, ALookupCostsTheTiersThatItAsks) {
  for (std::uint32_t number = 0; number < num(); number += 1 + num() / 50) {
    EXPECT_LE(cost([&] { EXPECT_EQ(look_up(number, 0), LookupResult::kHit); }), kLookupMax);
    EXPECT_LE(cost([&] { EXPECT_EQ(look_up(kFirstBelow + number, 0), LookupResult::kPending); }),
              kLookupMax)
        << "being promoted";
    EXPECT_LE(cost([&] { EXPECT_EQ(look_up(500'000 + number, 0), LookupResult::kMiss); }),
              kLookupMax);
  }
}

TEST_P(TieringOperationCount, APromotionCostsAConstant) {
  constexpr std::uint64_t kCostMax = 240;  // both timelines may tidy 64 places
  const std::uint32_t first = kFirstBelow + 2 * num();
  for (std::uint32_t count = 0; count < 20; ++count) {
    EXPECT_LE(cost([&] { EXPECT_EQ(look_up(first + count, count), LookupResult::kPending); }),
              kCostMax);
  }
}

TEST_P(TieringOperationCount, ACascadeCostsItsKeysInEachTier) {
  constexpr std::uint64_t kCostOfAKeyMax = 300;
  for (std::uint32_t count = 0; count < 10; ++count) {
    const Numbers keys = {700'000 + 4 * count, 700'001 + 4 * count, 700'002 + 4 * count,
                          700'003 + 4 * count};
    EXPECT_LE(cost([&] { store(keys); }), kCostOfAKeyMax * keys.size());
  }
}

TEST_P(TieringOperationCount, APollCostsTheJobsThatAreOver) {
  constexpr std::uint64_t kCostOfAJobMax = 80;
  end_step();
  EXPECT_LE(cost([&] { end_step(); }), std::uint64_t{10} * kNumTiers)
      << "nothing is over, nothing is queued";
  store({700'000});
  end_step();
  report_last_cascades();
  const std::uint32_t num_jobs = manager_->num_jobs();
  EXPECT_LE(cost([&] { end_step(); }), kCostOfAJobMax * (kNumTiers + 1));
  EXPECT_EQ(manager_->num_jobs(), num_jobs - kNumTiers);
}

TEST_P(TieringOperationCount, TheEndOfAStepCostsWhatIsQueued) {
  constexpr std::uint64_t kCostOfAPromotionMax = 40;
  EXPECT_EQ(manager_->num_pending(), num());
  EXPECT_LE(cost([&] { manager_->on_schedule_end(); }), kCostOfAPromotionMax * num());
  EXPECT_EQ(manager_->num_pending(), 0U);
  look_up(kFirstBelow + 3 * num(), 0);
  EXPECT_LE(cost([&] { manager_->on_schedule_end(); }),
            kCostOfAPromotionMax + std::uint64_t{10} * kNumTiers);
}

TEST_P(TieringOperationCount, ARequestCostsTheTiers) {
  for (std::uint32_t number = 0; number < num(); number += 1 + num() / 50) {
    EXPECT_LE(cost([&] { manager_->on_request_finished({name_of(number)}); }), kLookupMax);
    EXPECT_LE(cost([&] { manager_->on_new_request({name_of(number)}); }), kLookupMax);
  }
}

TEST_P(TieringOperationCount, ALoadCostsItsKeys) {
  std::vector<SlotId> slots;
  for (std::uint32_t number = 0; number < num(); number += 1 + num() / 50) {
    const OffloadKey key = key_of_number(number);
    const OffloadKeyView view = key;
    EXPECT_LE(cost([&] {
                slots.clear();
                ASSERT_EQ(manager_->prepare_load({&view, 1}, slots), ErrorCode::kNone);
                ASSERT_EQ(manager_->complete_load({&view, 1}), ErrorCode::kNone);
              }),
              kLookupMax);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, TieringOperationCount,
                         testing::Values(100U, 1'000U, 10'000U, 100'000U));

}  // namespace
}  // namespace kvfence::planted::optimized
