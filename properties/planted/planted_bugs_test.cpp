// The canaries: every bug that can be planted is caught, so a run that finds nothing says
// something, and shrinks to a few commands. The table that this prints tells by whom.

#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <string_view>

#include "contract/core/scenario.h"
#include "properties/core/campaign.h"
#include "properties/core/prop_test_support.h"
#include "properties/core/shrink.h"

namespace kvfence {
namespace {

/// For the invariants where they have nothing to find.
constexpr std::uint64_t kSilentCommandsMax = 5'000;

/// What is to be expected of a target's bugs.
template <class Target>
struct Canaries;

template <>
struct Canaries<BlockPoolTarget> {
  static constexpr std::uint64_t kCommandsMax = 20'000;
  static constexpr std::uint64_t kInvariantCommandsMax = 15'000;
  static constexpr std::size_t kShrunkCommandsMax = 12;
  /// Bugs that no invariant has to see: their events still lead an index to the hashes in the pool.
  static inline const std::set<std::string_view> kNeedTheReference = {
      "removed_events_reversed", "stored_event_dropped_when_empty",
      "stored_parent_from_block_table"};
};

template <>
struct Canaries<KVCacheTarget> {
  static constexpr std::uint64_t kCommandsMax = 50'000;
  static constexpr std::uint64_t kInvariantCommandsMax = 15'000;
  static constexpr std::size_t kShrunkCommandsMax = 12;
  /// Bugs that no invariant has to see. A hit that could be longer, a full block without a key, a
  /// block that is kept for longer, blocks taken in another order: all of these are sound.
  static inline const std::set<std::string_view> kNeedTheReference = {
      "mask_misses_eagle_block",
      "mamba_drops_eagle_block",
      "eagle_drops_every_round",
      "hits_touched_before_external",
      "external_blocks_counted_as_cached",
      "retention_forgets_prompt_end",
      "gate_ignores_window",
      "mamba_keeps_last_state"};
};

template <>
struct Canaries<SchedulerTarget> {
  static constexpr std::uint64_t kCommandsMax = 200'000;
  static constexpr std::uint64_t kInvariantCommandsMax = 100'000;
  static constexpr std::size_t kShrunkCommandsMax = 20;
  /// Bugs that no invariant has to see: nobody has to be hidden from a step.
  static inline const std::set<std::string_view> kNeedTheReference = {"victim_before_hides_nobody"};
};

template <>
struct Canaries<EvictionTarget> {
  static constexpr std::uint64_t kCommandsMax = 100'000;
  static constexpr std::uint64_t kInvariantCommandsMax = 100'000;
  static constexpr std::size_t kShrunkCommandsMax = 20;
  static inline const std::set<std::string_view> kNeedTheReference = {};
};

template <>
struct Canaries<OffloadTarget> {
  static constexpr std::uint64_t kCommandsMax = 20'000;
  static constexpr std::uint64_t kInvariantCommandsMax = 20'000;
  static constexpr std::size_t kShrunkCommandsMax = 20;
  static inline const std::set<std::string_view> kNeedTheReference = {};
};

template <>
struct Canaries<TieringTarget> {
  /// A file is in doubt, is written anew, and is the only place where its block is.
  static constexpr std::uint64_t kCommandsMax = 150'000;
  static constexpr std::uint64_t kInvariantCommandsMax = 150'000;
  /// A command that submits a job cannot go while a later job is named by its number.
  static constexpr std::size_t kShrunkCommandsMax = 40;
  /// Bugs that no invariant has to see: that a job is given up which could have been done, or a
  /// file is missed, may be a fault that was planned.
  static inline const std::set<std::string_view> kNeedTheReference = {
      "close_error_ignored", "doubtful_not_rewritten", "interrupted_is_failure",
      "short_write_published"};
};

template <>
struct Canaries<ConnectorTarget> {
  /// A window that is not asked again has to hold its last blocks alone.
  static constexpr std::uint64_t kCommandsMax = 1'000'000;
  static constexpr std::uint64_t kInvariantCommandsMax = 5'000'000;
  /// A loaded prefix is stored again, for a tier that wants it, behind its load, the stores of
  /// others and what they evict.
  static constexpr std::size_t kShrunkCommandsMax = 60;
  /// Bugs that no invariant has to see. Waiting for more or later than needed, a store less, hits
  /// that could be longer or are taken from elsewhere, blocks used in another order: all of these
  /// are sound.
  static inline const std::set<std::string_view> kNeedTheReference = {
      "hit_before_promotion_served", "jobs_under_way_ignored",
      "last_jobs_not_flushed",       "loaded_prefix_skipped",
      "loading_hit_served",          "new_store_flushed",
      "schedule_end_behind_stores",  "tier_policy_ignored",
      "touched_behind_lookup",       "window_one_long"};
};

template <>
struct Canaries<MultiConnectorTarget> {
  static constexpr std::uint64_t kCommandsMax = 50'000;
  static constexpr std::uint64_t kInvariantCommandsMax = 50'000;
  static constexpr std::size_t kShrunkCommandsMax = 12;
  static inline const std::set<std::string_view> kNeedTheReference = {};
};

template <>
struct Canaries<DisaggregatedTarget> {
  static constexpr std::uint64_t kCommandsMax = 100'000;
  static constexpr std::uint64_t kInvariantCommandsMax = 100'000;
  static constexpr std::size_t kShrunkCommandsMax = 25;
  static inline const std::set<std::string_view> kNeedTheReference = {};
};

template <>
struct Canaries<SimpleOffloadTarget> {
  static constexpr std::uint64_t kCommandsMax = 200'000;
  static constexpr std::uint64_t kInvariantCommandsMax = 200'000;
  static constexpr std::size_t kShrunkCommandsMax = 30;
  /// Bugs that no invariant has to see: a store less or later, blocks used in another order.
  static inline const std::set<std::string_view> kNeedTheReference = {
      "cursor_not_forgotten", "stored_freed_to_head", "unhashed_block_ends_group",
      "walk_beyond_space", "walk_beyond_target"};
};

template <>
struct Canaries<SynchronousConnectorTarget> {
  static constexpr std::uint64_t kCommandsMax = 100'000;
  static constexpr std::uint64_t kInvariantCommandsMax = 100'000;
  static constexpr std::size_t kShrunkCommandsMax = 20;
  static inline const std::set<std::string_view> kNeedTheReference = {};
};

template <>
struct Canaries<WorkerTarget> {
  static constexpr std::uint64_t kCommandsMax = 100'000;
  static constexpr std::uint64_t kInvariantCommandsMax = 100'000;
  static constexpr std::size_t kShrunkCommandsMax = 12;
  static inline const std::set<std::string_view> kNeedTheReference = {};
};

template <>
struct Canaries<EngineTarget> {
  static constexpr std::uint64_t kCommandsMax = 100'000;
  static constexpr std::uint64_t kInvariantCommandsMax = 100'000;
  /// A step is four commands.
  static constexpr std::size_t kShrunkCommandsMax = 40;
  static inline const std::set<std::string_view> kNeedTheReference = {};
};

template <class Target>
CampaignResult<Target> hunt(std::string_view bug, LockstepOptions lockstep,
                            std::uint64_t commands_max) {
  const auto reference = Implementations<Target>::make_reference();
  const auto planted = Implementations<Target>::make_planted(bug);
  CampaignOptions options;
  options.commands_max = commands_max;
  options.lockstep = lockstep;
  return run_campaign(*reference, *planted, options, [](const CampaignProgress&) { return true; });
}

template <class Target>
std::string caught_by(const CampaignResult<Target>& result) {
  if (!result.failure) return "-";
  const Divergence& divergence = result.failure->divergence;
  return std::to_string(result.progress.commands) + " by " +
         (divergence.oracle == "lockstep" ? divergence.field : divergence.oracle);
}

/// Shrinks a failure that the lockstep found, and says to how many commands; they still fail.
template <class Target>
std::size_t shrunk_commands(std::string_view bug, const CampaignFailure<Target>& failure) {
  const auto reference = Implementations<Target>::make_reference();
  const auto planted = Implementations<Target>::make_planted(bug);
  Lockstep<Target> lockstep(*reference, *planted, {.compare = true, .invariants = false});
  const auto still_fails = [&](const Scenario<Target>& scenario) {
    const auto again = run_scenario(lockstep, scenario);
    return again && again->oracle == failure.divergence.oracle;
  };
  ShrinkOptions options;
  options.tries_max = 20'000;
  options.failing_step = failure.divergence.step;
  const auto shrunk = shrink(failure.scenario, still_fails, options);
  EXPECT_TRUE(shrunk.reproduced) << bug;
  EXPECT_TRUE(shrunk.at_fixpoint) << bug << " after " << shrunk.tries << " tries";
  EXPECT_TRUE(still_fails(shrunk.scenario)) << bug;
  return shrunk.scenario.steps.size();
}

template <class Target>
class PlantedBugs : public ::testing::Test {};
TYPED_TEST_SUITE(PlantedBugs, EveryTarget, );

TYPED_TEST(PlantedBugs, ThereAreTenOrMoreWithNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const PlantedBugInfo& info : Implementations<TypeParam>::planted_bugs()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.doc.empty()) << info.name;
  }
  EXPECT_GE(names.size(), 10u);
  EXPECT_EQ(Implementations<TypeParam>::make_planted("no_such_bug"), nullptr);
  for (std::string_view name : Canaries<TypeParam>::kNeedTheReference) {
    EXPECT_EQ(names.count(name), 1u) << name;
  }
}

TYPED_TEST(PlantedBugs, EachIsCaughtByLockstepAndByTheInvariantsAloneAndShrinks) {
  std::printf("%-34s %-34s %-7s %s\n", "planted bug", "lockstep: commands, field", "shrunk",
              "invariants alone: commands, name");
  for (const PlantedBugInfo& info : Implementations<TypeParam>::planted_bugs()) {
    const bool needs_reference = Canaries<TypeParam>::kNeedTheReference.count(info.name) > 0;
    const auto by_lockstep = hunt<TypeParam>(info.name, {.compare = true, .invariants = false},
                                             Canaries<TypeParam>::kCommandsMax);
    const auto by_invariants = hunt<TypeParam>(
        info.name, {.compare = false, .invariants = true},
        needs_reference ? kSilentCommandsMax : Canaries<TypeParam>::kInvariantCommandsMax);
    ASSERT_TRUE(by_lockstep.failure) << info.name;
    const std::size_t num_shrunk = shrunk_commands(info.name, *by_lockstep.failure);
    std::printf("%-34.*s %-34s %-7zu %s\n", static_cast<int>(info.name.size()), info.name.data(),
                caught_by(by_lockstep).c_str(), num_shrunk, caught_by(by_invariants).c_str());
    EXPECT_LE(num_shrunk, Canaries<TypeParam>::kShrunkCommandsMax) << info.name;
    EXPECT_EQ(by_invariants.failure.has_value(), !needs_reference) << info.name;
  }
}

}  // namespace
}  // namespace kvfence
