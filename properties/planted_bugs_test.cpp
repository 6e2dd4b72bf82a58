// The canaries: every bug that can be planted is caught, so a run that finds nothing says
// something. The table that this prints tells by whom.

#include <cstdint>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "contract/scenario.h"
#include "properties/block_pool_checks.h"
#include "properties/campaign.h"
#include "properties/prop_test_support.h"

namespace kvfence {
namespace {

constexpr std::uint64_t kCommandsMax = 20'000;

/// Bugs that no invariant has to see: their events still lead an index to the hashes in the pool.
const std::set<std::string_view> kNeedsTheReference = {
    "removed_events_reversed", "stored_event_dropped_when_empty", "stored_parent_from_block_table"};

CampaignResult<BlockPoolTarget> hunt(std::string_view bug, LockstepOptions lockstep) {
  const auto reference = ReferenceSide::make();
  const auto planted = Implementations<BlockPoolTarget>::make_planted(bug);
  CampaignOptions options;
  options.commands_max = kCommandsMax;
  options.lockstep = lockstep;
  return run_campaign(*reference, *planted, options, [](const CampaignProgress&) { return true; });
}

std::string caught_by(const CampaignResult<BlockPoolTarget>& result) {
  if (!result.failure) return "-";
  const Divergence& divergence = result.failure->divergence;
  return std::to_string(result.progress.commands) + " by " +
         (divergence.oracle == "lockstep" ? divergence.field : divergence.oracle);
}

TEST(PlantedBugs, ThereAreTenOrMoreWithNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const PlantedBugInfo& info : Implementations<BlockPoolTarget>::planted_bugs()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.doc.empty()) << info.name;
  }
  EXPECT_GE(names.size(), 10u);
  EXPECT_EQ(Implementations<BlockPoolTarget>::make_planted("no_such_bug"), nullptr);
}

TEST(PlantedBugs, EachIsCaughtByLockstepAndByTheInvariantsAlone) {
  std::printf("%-34s %-34s %s\n", "planted bug", "lockstep: commands, field",
              "invariants alone: commands, name");
  for (const PlantedBugInfo& info : Implementations<BlockPoolTarget>::planted_bugs()) {
    const auto by_lockstep = hunt(info.name, {.compare = true, .invariants = false});
    const auto by_invariants = hunt(info.name, {.compare = false, .invariants = true});
    std::printf("%-34.*s %-34s %s\n", static_cast<int>(info.name.size()), info.name.data(),
                caught_by(by_lockstep).c_str(), caught_by(by_invariants).c_str());
    EXPECT_TRUE(by_lockstep.failure) << info.name;
    const bool needs_reference = kNeedsTheReference.count(info.name) > 0;
    EXPECT_EQ(by_invariants.failure.has_value(), !needs_reference) << info.name;
  }
}

}  // namespace
}  // namespace kvfence
