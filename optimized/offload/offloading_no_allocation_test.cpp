// Goal: a policy allocates nothing after construction, and a manager, once it has seen its longest
// call, only what the caller takes over. Method: this program counts every call of operator new.
// The caller takes over strings: keys of 8 bytes fit into the string itself.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "contract/offload/offload_key_number.h"
#include "optimized/base/counted_allocations.h"
#include "optimized/offload/offloading_manager.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kCapacity = 50;
constexpr std::uint32_t kNumKeys = 400;

/// Key bytes: 36 are a digest with its group id.
std::vector<OffloadKey> keys_of(std::size_t num_bytes) {
  std::vector<OffloadKey> keys;
  for (std::uint32_t number = 0; number < kNumKeys; ++number) {
    keys.push_back((key_of_number(number) + "....").substr(0, num_bytes));
  }
  return keys;
}

std::vector<OffloadKeyView> views_of(const std::vector<OffloadKey>& keys) {
  return {keys.begin(), keys.end()};
}

class OffloadingNoAllocation : public testing::TestWithParam<EvictionPolicy> {};

/// Every operation, with ghosts that are hit, dropped and taken in again, and long enough that
/// places are used up many times.
void use_everything(CachePolicy& policy, const std::vector<OffloadKeyView>& keys) {
  const auto some = [&keys](std::size_t first, std::size_t count) {
    return std::span(keys).subspan(first % (keys.size() - count), count);
  };
  BlockStatus status;
  for (std::size_t i = 0; i < 5'000; ++i) {
    const OffloadKeyView key = keys[i * 7 % 97 + i % 300];
    if (!policy.get(key, status)) {
      if (policy.size() == kCapacity) {
        // T2 alone may be too small.
        const auto num_blocks = static_cast<std::uint32_t>(1 + i % 3);
        if (!policy.evict(num_blocks, std::span<const CachePolicy::Index>())) continue;
      }
      ASSERT_EQ(policy.insert(key, 1), ErrorCode::kNone);
      ASSERT_EQ(policy.make_ready(key), ErrorCode::kNone);
    }
    policy.touch(some(i, 20));
    ASSERT_EQ(policy.acquire(key), ErrorCode::kNone);
    ASSERT_EQ(policy.release(key), ErrorCode::kNone);
    if (i % 11 == 0) {
      ASSERT_EQ(policy.remove(key), ErrorCode::kNone);
    }
    if (i % 1'000 == 999) policy.clear();
  }
}

TEST_P(OffloadingNoAllocation, OfAPolicyButTheListOfTheLongestEviction) {
  const std::vector<OffloadKey> keys = keys_of(36);
  const std::vector<OffloadKeyView> views = views_of(keys);
  const std::size_t before_construction = num_allocations();
  CachePolicy policy({.policy = GetParam(), .capacity = kCapacity});
  ASSERT_GT(num_allocations(), before_construction);  // the counter counts
  const std::size_t before = num_allocations();
  use_everything(policy, views);
  EXPECT_LE(num_allocations() - before, 3U);  // a list of 3 victims grows to 1, 2, 4
  const std::size_t after = num_allocations();
  use_everything(policy, views);
  EXPECT_EQ(num_allocations(), after);
}

/// Stores, loads, failures, refusals, evictions; with a filter that drops keys.
void use_everything(OffloadingManager& manager, const std::vector<OffloadKeyView>& keys,
                    std::vector<SlotId>& slots, PrepareStoreOutput& out) {
  std::uint32_t num_hits = 0;
  bool stored = false;
  for (std::size_t i = 0; i < 1'000; ++i) {
    const auto some = std::span(keys).subspan(i * 37 % (keys.size() - 16), 16);
    ASSERT_EQ(manager.lookup(some, num_hits), ErrorCode::kNone);
    ASSERT_EQ(manager.lookup(some, num_hits), ErrorCode::kNone);
    manager.touch(some);
    const auto hits = some.first(num_hits);
    ASSERT_EQ(manager.prepare_load(hits, slots), ErrorCode::kNone);
    ASSERT_EQ(manager.prepare_store(some, stored, out), ErrorCode::kNone);
    ASSERT_EQ(manager.complete_load(hits), ErrorCode::kNone);
    ASSERT_EQ(manager.prepare_load(std::span(keys).last(1), slots), ErrorCode::kUnknownKey);
    manager.complete_store(some.first(10), /*success=*/true);
    manager.complete_store(some, /*success=*/i % 5 != 0);
  }
}

TEST_P(OffloadingNoAllocation, OfAManagerThatHasSeenItsLongestCall) {
  const std::vector<OffloadKey> keys = keys_of(8);
  const std::vector<OffloadKeyView> views = views_of(keys);
  OffloadingManagerConfig config;
  config.cache = {.policy = GetParam(), .capacity = kCapacity};
  config.enable_events = true;
  config.store_threshold = 2;
  config.max_tracker_size = 100;
  OffloadingManager manager(config);
  std::vector<SlotId> slots;
  PrepareStoreOutput out;
  std::vector<OffloadingEvent> events;
  const std::size_t before_warm_up = num_allocations();
  use_everything(manager, views, slots, out);
  ASSERT_GT(num_allocations(), before_warm_up);
  manager.take_events(events);
  ASSERT_FALSE(events.empty());
  use_everything(manager, views, slots, out);
  manager.take_events(events);
  const std::size_t before = num_allocations();

  use_everything(manager, views, slots, out);

  EXPECT_EQ(num_allocations(), before);
}

INSTANTIATE_TEST_SUITE_P(Policies, OffloadingNoAllocation,
                         testing::Values(EvictionPolicy::kLRU, EvictionPolicy::kARC),
                         [](const auto& param) { return std::string(to_text(param.param)); });

}  // namespace
}  // namespace kvfence::optimized
