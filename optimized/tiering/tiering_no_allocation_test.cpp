// Goal: once it has seen its longest call and its greatest number of jobs, a manager allocates only
// what the caller takes over and the keys that its promotions evict. Method: this program counts
// every call of operator new, above a tier that allocates nothing itself. Evicted keys have 8
// bytes, which fit into the string itself.

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "contract/offload/offload_key_number.h"
#include "optimized/base/counted_allocations.h"
#include "optimized/tiering/tiering_manager.h"

namespace kvfence::optimized {
namespace {

/// Has every block, and ends each job two steps after its submission; every fifth fails.
class SteadyTier final : public Cloning<SteadyTier, SecondaryTier> {
 public:
  LookupResult lookup(OffloadKeyView, const RequestContext&) override { return LookupResult::kHit; }
  void submit_store(const TierJob& job) override { submit(job.job_id); }
  void submit_load(const TierJob& job) override { submit(job.job_id); }
  void get_finished_jobs(std::vector<JobResult>& out) override {
    for (std::size_t at = 0; at < num_old_; ++at) out.push_back({old_[at], old_[at] % 5 != 0});
    old_ = young_;
    num_old_ = num_young_;
    num_young_ = 0;
  }
  OffloadPolicy on_new_request(const RequestContext&) override {
    return OffloadPolicy::kRequestLevel;
  }

 private:
  void submit(TierJobId job) { young_.at(num_young_++) = job; }

  std::array<TierJobId, 64> young_{};
  std::array<TierJobId, 64> old_{};
  std::size_t num_young_ = 0;
  std::size_t num_old_ = 0;
};

TEST(NoAllocation, AManagerInItsSteadyState) {
  OffloadingManagerConfig config;
  config.cache.policy = EvictionPolicy::kARC;
  config.cache.capacity = 100;
  config.rules = rules_of(Profile::kV023);
  std::vector<SecondaryTierHandle> tiers;
  for (int place = 0; place < 2; ++place) tiers.emplace_back(std::make_unique<SteadyTier>());
  TieringOffloadingManager manager(config, std::move(tiers));

  std::vector<OffloadKey> keys;
  for (std::uint32_t number = 0; number < 400; ++number) {
    keys.push_back(key_of_number(number).substr(0, 8));
  }
  const std::vector<OffloadKeyView> views(keys.begin(), keys.end());
  const std::array<RequestContext, 3> requests = {{{"A"}, {"B"}, {"C"}}};
  std::vector<SlotId> slots;
  PrepareStoreOutput out;
  std::size_t num_hits = 0;
  std::size_t num_stored = 0;
  const auto run_steps = [&](std::size_t first, std::size_t last) {
    for (std::size_t step = first; step < last; ++step) {
      const RequestContext& request = requests[step % requests.size()];
      const auto some = std::span(views).subspan(step * 37 % 390, 5);
      manager.on_new_request(request);
      for (OffloadKeyView key : some) {
        if (manager.lookup(key, request) != LookupResult::kHit) continue;
        ++num_hits;
        ASSERT_EQ(manager.prepare_load({&key, 1}, slots), ErrorCode::kNone);
        ASSERT_EQ(manager.complete_load({&key, 1}), ErrorCode::kNone);
      }
      bool stored = false;
      const auto others = std::span(views).subspan(step * 53 % 390, 4);
      ASSERT_EQ(manager.prepare_store(others, request, stored, out), ErrorCode::kNone);
      if (stored) {
        ++num_stored;
        ASSERT_EQ(manager.complete_store(out.keys_to_store, request, step % 7 != 0),
                  ErrorCode::kNone);
      }
      manager.touch(some, request);
      manager.on_schedule_end();
      manager.on_request_finished(request);
    }
  };
  run_steps(0, 2'000);
  const std::size_t num_before = num_allocations();
  num_hits = 0;
  num_stored = 0;
  run_steps(2'000, 6'000);
  EXPECT_EQ(num_allocations(), num_before);
  EXPECT_GT(num_hits, 100u);
  EXPECT_GT(num_stored, 1'000u);
}

}  // namespace
}  // namespace kvfence::optimized
