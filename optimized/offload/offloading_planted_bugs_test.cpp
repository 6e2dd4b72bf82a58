// Goal: every planted bug is alive, and only when it is asked for. Method: the same pseudo-random
// operations go to a plain policy or manager and to a planted one; the two part company within a
// bounded number of steps, in some configuration, exactly when a bug is planted.

#include "optimized/offload/planted_offloading_bugs.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/offload/offload_key_number.h"
#include "optimized/base/planted_bugs_table.h"
#include "optimized/offload/offloading_manager.h"
#include "optimized/pool/planted_bugs.h"

namespace kvfence::optimized {
namespace {

constexpr int kNumSteps = 3'000;
constexpr std::uint32_t kNumKeys = 12;

/// What one operation answered and left behind.
struct Observation {
  int result = 0;
  std::vector<EvictedBlock> evicted;
  std::vector<OffloadKey> keys;
  std::vector<SlotId> slots;
  std::vector<OffloadingEvent> events;
  std::uint32_t size = 0;
  std::uint32_t num_free_slots = 0;
  PolicyLists lists;
  friend bool operator==(const Observation&, const Observation&) = default;
};

/// Draws the arguments of operations.
class Draws {
 public:
  explicit Draws(std::uint32_t seed) : random_(seed) {
    for (std::uint32_t number = 0; number < kNumKeys; ++number) {
      keys_.push_back(key_of_number(number));
    }
  }

  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }
  OffloadKeyView key() { return keys_[below(kNumKeys)]; }
  std::vector<OffloadKeyView> keys(std::uint32_t num_keys_max) {
    std::vector<OffloadKeyView> views(below(num_keys_max + 1));
    for (OffloadKeyView& view : views) view = key();
    return views;
  }

 private:
  std::mt19937 random_;
  std::vector<OffloadKey> keys_;
};

template <class Policy>
Observation step(Policy& policy, Draws& draws) {
  Observation seen;
  const auto code = [&seen](ErrorCode error) { seen.result = static_cast<int>(error); };
  switch (draws.below(12)) {
    case 0:
    case 1:
    case 2: {
      const SlotId slot = draws.below(100);
      code(policy.insert(draws.key(), slot));
      break;
    }
    case 3:
    case 4:
      code(policy.make_ready(draws.key()));
      break;
    case 5:
      code(policy.acquire(draws.key()));
      break;
    case 6:
      code(policy.release(draws.key()));
      break;
    case 7:
      if (draws.below(4) == 0) code(policy.remove(draws.key()));
      if (draws.below(40) == 0) policy.clear();
      break;
    case 8:
    case 9:
      policy.touch(draws.keys(3));
      break;
    default: {
      const std::uint32_t num_blocks = draws.below(3);
      seen.result = policy.evict(num_blocks, draws.keys(2), seen.evicted) ? 1 : 0;
    }
  }
  BlockStatus status;
  if (policy.get(draws.key(), status)) seen.slots = {status.slot};
  seen.size = policy.size();
  policy.lists(seen.lists);
  return seen;
}

template <class Manager>
Observation step_of_manager(Manager& manager, Draws& draws) {
  Observation seen;
  const auto code = [&seen](ErrorCode error) { seen.result = static_cast<int>(error); };
  switch (draws.below(10)) {
    case 0:
    case 1:
      if (manager.config().rules.lookup_by_key) {
        LookupResult result = LookupResult::kMiss;
        code(manager.lookup_key(draws.key(), result));
        seen.size = static_cast<std::uint32_t>(result);
      } else {
        code(manager.lookup(draws.keys(3), seen.size));
      }
      break;
    case 2:
      manager.touch(draws.keys(3));
      break;
    case 3: {
      std::vector<SlotId> slots;
      code(manager.prepare_load(draws.keys(2), slots));
      if (seen.result == 0) seen.slots = slots;
      break;
    }
    case 4:
      code(manager.complete_load(draws.keys(2)));
      break;
    case 5:
    case 6:
    case 7: {
      PrepareStoreOutput out;
      bool stored = false;
      code(manager.prepare_store(draws.keys(4), stored, out));
      if (seen.result != 0) break;
      seen.result = stored ? -1 : -2;
      seen.keys.assign(out.keys_to_store.begin(), out.keys_to_store.end());
      seen.slots = out.slots;
      seen.evicted = out.evicted;
      break;
    }
    default: {
      const std::vector<OffloadKeyView> keys = draws.keys(6);
      manager.complete_store(keys, draws.below(4) != 0);
      if (draws.below(40) == 0) code(manager.reset_cache());
    }
  }
  manager.take_events(seen.events);
  seen.num_free_slots = manager.num_free_slots();
  manager.policy().lists(seen.lists);
  return seen;
}

std::vector<CachePolicyConfig> policy_configs() {
  std::vector<CachePolicyConfig> configs;
  for (std::uint32_t capacity : {2U, 4U, 6U}) {
    for (bool refuses : {true, false}) {
      configs.push_back({EvictionPolicy::kLRU, capacity, refuses});
      configs.push_back({EvictionPolicy::kARC, capacity, refuses});
    }
  }
  return configs;
}

std::vector<OffloadingManagerConfig> manager_configs() {
  std::vector<OffloadingManagerConfig> configs;
  for (const CachePolicyConfig& cache : policy_configs()) {
    for (Profile profile : {Profile::kV019, Profile::kV023}) {
      for (std::uint32_t store_threshold : {0U, 2U}) {
        configs.push_back({.cache = cache,
                           .enable_events = true,
                           .store_threshold = store_threshold,
                           .max_tracker_size = 8,
                           .rules = rules_of(profile)});
      }
    }
  }
  return configs;
}

bool diverges(PlantedCachePolicyBug bug) {
  std::uint32_t seed = 0;
  for (const CachePolicyConfig& config : policy_configs()) {
    CachePolicy expected(config);
    PlantedCachePolicy actual(config, bug);
    Draws expected_draws(++seed);
    Draws actual_draws(seed);
    for (int i = 0; i < kNumSteps; ++i) {
      if (step(expected, expected_draws) != step(actual, actual_draws)) return true;
    }
  }
  return false;
}

template <class Bug>
bool manager_diverges(Bug bug) {
  std::uint32_t seed = 0;
  for (const OffloadingManagerConfig& config : manager_configs()) {
    OffloadingManager expected(config);
    PlantedOffloadingManager actual(config, bug);
    Draws expected_draws(++seed);
    Draws actual_draws(seed);
    for (int i = 0; i < kNumSteps; ++i) {
      if (step_of_manager(expected, expected_draws) != step_of_manager(actual, actual_draws)) {
        return true;
      }
    }
  }
  return false;
}

/// What is broken still has to answer, without a crash or an endless loop.
template <class Bug>
std::size_t num_manager_answers(Bug bug) {
  std::size_t num_answers = 0;
  std::uint32_t seed = 0;
  for (const OffloadingManagerConfig& config : manager_configs()) {
    PlantedOffloadingManager manager(config, bug);
    Draws draws(++seed);
    for (int i = 0; i < kNumSteps; ++i) {
      step_of_manager(manager, draws);
      ++num_answers;
    }
  }
  return num_answers;
}

class PlantedCachePolicyBugs : public testing::TestWithParam<PlantedCachePolicyBugInfo> {};

TEST_P(PlantedCachePolicyBugs, PartsFromTheSoundPolicy) { EXPECT_TRUE(diverges(GetParam().bug)); }

TEST_P(PlantedCachePolicyBugs, KeepsAnsweringOnceBroken) {
  std::uint32_t seed = 0;
  std::size_t num_answers = 0;
  for (const CachePolicyConfig& config : policy_configs()) {
    PlantedCachePolicy policy(config, GetParam().bug);
    Draws draws(++seed);
    for (int i = 0; i < kNumSteps; ++i) {
      EXPECT_LE(step(policy, draws).size, config.capacity);
      ++num_answers;
    }
  }
  EXPECT_EQ(num_answers, policy_configs().size() * kNumSteps);
}

TEST_P(PlantedCachePolicyBugs, AManagerKeepsAnsweringToo) {
  EXPECT_EQ(num_manager_answers(GetParam().bug), manager_configs().size() * kNumSteps);
}

INSTANTIATE_TEST_SUITE_P(All, PlantedCachePolicyBugs, testing::ValuesIn(kPlantedCachePolicyBugs),
                         [](const auto& param) { return std::string(param.param.name); });

class PlantedOffloadingBugs : public testing::TestWithParam<PlantedOffloadingBugInfo> {};

TEST_P(PlantedOffloadingBugs, PartsFromTheSoundManager) {
  EXPECT_TRUE(manager_diverges(GetParam().bug));
}

TEST_P(PlantedOffloadingBugs, KeepsAnsweringOnceBroken) {
  EXPECT_EQ(num_manager_answers(GetParam().bug), manager_configs().size() * kNumSteps);
}

INSTANTIATE_TEST_SUITE_P(All, PlantedOffloadingBugs, testing::ValuesIn(kPlantedOffloadingBugs),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(PlantedOffloadingBugTables, NoBugIsTheSoundPolicyAndManager) {
  EXPECT_FALSE(diverges(PlantedCachePolicyBug::kNone));
  EXPECT_FALSE(manager_diverges(PlantedOffloadingBug::kNone));
}

TEST(PlantedOffloadingBugTables, AreInTheOrderOfTheEnumerationsWithNamesOfTheirOwn) {
  EXPECT_EQ(misplaced_bugs(kPlantedCachePolicyBugs, planted_cache_policy_bug_from_name),
            std::vector<std::string_view>{});
  std::set<std::string_view> names;
  for (const PlantedCachePolicyBugInfo& info : kPlantedCachePolicyBugs) names.insert(info.name);
  EXPECT_EQ(misplaced_bugs(kPlantedOffloadingBugs, planted_offloading_bug_from_name, names),
            std::vector<std::string_view>{});
}

}  // namespace
}  // namespace kvfence::optimized
