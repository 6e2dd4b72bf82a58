// Cases that the lockstep with the reference does not reach: keys of any length, many tiers,
// requests and jobs at once, and storage that jobs and promotions reuse.
#include "optimized/tiering/tiering_manager.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "contract/offload/offload_key_number.h"
#include "contract/scripted/scripted_tier.h"

namespace kvfence::optimized {
namespace {

OffloadingManagerConfig config_of(std::uint32_t capacity) {
  OffloadingManagerConfig config;
  config.cache.capacity = capacity;
  config.rules = rules_of(Profile::kV023);
  return config;
}

std::vector<SecondaryTierHandle> tiers_of(std::uint32_t num_tiers,
                                          const std::shared_ptr<TierCalls>& calls) {
  std::vector<SecondaryTierHandle> tiers;
  for (std::uint32_t place = 0; place < num_tiers; ++place) {
    tiers.emplace_back(std::make_unique<ScriptedTier>(place, calls));
  }
  return tiers;
}

ScriptedTier& tier_of(TieringOffloadingManager& manager, std::uint32_t place) {
  return dynamic_cast<ScriptedTier&>(*manager.tiers()[place].get());
}

/// Keys of 32 bytes, of 5, and longer than an entry of the key table holds.
std::vector<OffloadKey> keys_of_every_length() {
  return {key_of_number(1), "short", std::string(100, 'x') + "long",
          std::string(100, 'x') + "LONG"};
}

TEST(TieringOffloadingManager, KeysOfEveryLengthComeAndGo) {
  const auto calls = std::make_shared<TierCalls>();
  TieringOffloadingManager manager(config_of(4), tiers_of(1, calls));
  const std::vector<OffloadKey> keys = keys_of_every_length();
  for (const OffloadKey& key : keys) {
    tier_of(manager, 0).add(key);
    EXPECT_EQ(manager.lookup(key, {"a request of a rather long name"}), LookupResult::kPending);
  }
  calls->clear();
  manager.on_schedule_end();
  ASSERT_EQ(calls->size(), 2u);
  EXPECT_EQ(calls->front().keys, keys);
  tier_of(manager, 0).finish(0, /*success=*/true);
  for (const OffloadKey& key : keys) {
    EXPECT_EQ(manager.lookup(key, {"A"}), LookupResult::kHit);
  }
}

TEST(TieringOffloadingManager, AFailedPromotionOfManyKeysForgetsThemAll) {
  const auto calls = std::make_shared<TierCalls>();
  TieringOffloadingManager manager(config_of(4), tiers_of(1, calls));
  for (const OffloadKey& key : keys_of_every_length()) {
    tier_of(manager, 0).add(key);
    manager.lookup(key, {"A"});
  }
  manager.on_schedule_end();
  tier_of(manager, 0).finish(0, /*success=*/false);
  manager.on_schedule_end();
  EXPECT_EQ(manager.primary().num_free_slots(), 4u);
  EXPECT_EQ(manager.num_jobs(), 0u);
}

TEST(TieringOffloadingManager, ManyRequestsAreGroupedInTheirOrder) {
  constexpr std::uint32_t kNumRequests = 100;
  const auto calls = std::make_shared<TierCalls>();
  TieringOffloadingManager manager(config_of(3 * kNumRequests), tiers_of(2, calls));
  for (std::uint32_t step = 0; step < 3; ++step) {
    for (std::uint32_t turn = 0; turn < 2; ++turn) {
      for (std::uint32_t number = 0; number < kNumRequests; ++number) {
        const OffloadKey key = key_of_number(1'000 * step + 2 * number + turn);
        tier_of(manager, number % 2).add(key);
        manager.lookup(key, {"request " + std::to_string(number)});
      }
    }
    EXPECT_EQ(manager.num_pending(), 2 * kNumRequests);
    calls->clear();
    manager.on_schedule_end();
    ASSERT_EQ(calls->size(), kNumRequests + 2);
    for (std::uint32_t at = 0; at < kNumRequests; ++at) {
      const std::uint32_t number = at < kNumRequests / 2 ? 2 * at : 2 * at - kNumRequests + 1;
      const TierCall& call = (*calls)[at];
      EXPECT_EQ(call.tier, number % 2);
      EXPECT_EQ(call.request, "request " + std::to_string(number));
      const OffloadKey first = key_of_number(1'000 * step + 2 * number);
      EXPECT_EQ(call.keys,
                (std::vector<OffloadKey>{first, key_of_number(1'000 * step + 2 * number + 1)}));
      tier_of(manager, call.tier).finish(*call.job, /*success=*/true);
    }
  }
}

TEST(TieringOffloadingManager, RequestsAtRequestLevelComeAndGo) {
  const auto calls = std::make_shared<TierCalls>();
  TieringOffloadingManager manager(config_of(4), tiers_of(2, calls));
  const OffloadKey key = key_of_number(1);
  const OffloadKeyView view = key;
  bool stored = false;
  PrepareStoreOutput out;
  manager.prepare_store({&view, 1}, {"A"}, stored, out);
  manager.complete_store({&view, 1}, {"A"}, /*success=*/true);
  for (std::uint32_t round = 0; round < 3; ++round) {
    for (std::uint32_t number = 0; number < 20; ++number) {
      tier_of(manager, 0)
          .want(number % 3 == 0 ? OffloadPolicy::kRequestLevel : OffloadPolicy::kBlockLevel);
      tier_of(manager, 1)
          .want(number % 2 == 0 ? OffloadPolicy::kRequestLevel : OffloadPolicy::kBlockLevel);
      const std::string request = std::to_string(number);
      const bool any = number % 3 == 0 || number % 2 == 0;
      EXPECT_EQ(manager.on_new_request({request}),
                any ? OffloadPolicy::kRequestLevel : OffloadPolicy::kBlockLevel);
    }
    for (std::uint32_t number = 0; number < 20; ++number) {
      const std::string request = std::to_string(number);
      const std::uint32_t num_before = manager.num_jobs();
      manager.prepare_store({&view, 1}, {request}, stored, out);
      EXPECT_EQ(manager.num_jobs() - num_before, (number % 3 == 0) + (number % 2 == 0));
      manager.on_request_finished({request});
      manager.prepare_store({&view, 1}, {request}, stored, out);
      EXPECT_EQ(manager.num_jobs() - num_before, (number % 3 == 0) + (number % 2 == 0));
    }
  }
}

}  // namespace
}  // namespace kvfence::optimized
