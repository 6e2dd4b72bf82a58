// The canaries: every planted bug is caught and shrinks to a few commands, so a run without
// findings means something. The printed table shows what caught each bug.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/scenario.h"
#include "contract/engine/engine_target.h"
#include "properties/core/campaign.h"
#include "properties/core/cases_test_support.h"
#include "properties/core/prop_test_support.h"
#include "properties/core/shrink.h"

namespace kvfence {
namespace {

/// The length of the rules' runs if they need not find the bug.
constexpr std::uint64_t kSilentCommandsMax = 5'000;
constexpr std::uint64_t kRareCommandsMax = 1'000'000;

/// The expectations for the bugs of a target or an assembly.
struct Canaries {
  std::string_view part;
  std::uint64_t commands_max;
  std::uint64_t rule_commands_max;
  /// Of the longest one. A bug may need a long run: a pool that is full of the right blocks, steps
  /// until a request that nothing can replace has grown.
  std::size_t shrunk_commands_max;
  /// Of three bugs in four.
  std::size_t mostly_shrunk_max = 15;
  /// Bugs that the rules need not find.
  std::set<std::string_view> need_the_reference = {};
  /// These need a state that comes once in half a million commands: lockstep gets kRareCommandsMax
  /// commands, and the rules run a scenario.
  std::set<std::string_view> rules_get_the_scenario = {};
};

const std::vector<Canaries> kCanaries = {
    {.part = "block_pool",
     .commands_max = 20'000,
     .rule_commands_max = 15'000,
     .shrunk_commands_max = 12,
     // Which free block is taken next, which copy of a key is found, whether a request was
     // possible: any answer is sound. Events still lead an index to the hashes in the pool.
     .need_the_reference =
         {
             "evict_moves_block_to_head",
             "free_puts_unhashed_at_head",
             "free_reverses_list",
             "get_keeps_last_block",
             "lookup_returns_newest_copy",
             "prepend_reverses_list",
             "removed_events_reversed",
             "reset_ignores_references",
             "stored_event_dropped_when_empty",
             "stored_parent_from_block_table",
         }},
    {.part = "kv_cache",
     .commands_max = 100'000,
     .rule_commands_max = 15'000,
     .shrunk_commands_max = 12,
     // A hit of another length, a full block without a key, a block that is kept for longer, blocks
     // freed or taken in another order, an allocation that could have waited, statistics: any of
     // these is sound. No state shows that draft layers need a block again.
     .need_the_reference =
         {
             "eagle_drops_every_round",
             "external_blocks_counted_as_cached",
             "freed_in_forward_order",
             "gate_ignores_window",
             "hit_blocks_cached_again",
             "hits_touched_before_external",
             "mamba_drops_eagle_block",
             "mamba_keeps_last_state",
             "mask_misses_eagle_block",
             "nulls_not_counted_as_cached",
             "padding_counted_as_unhashed",
             "remaining_ignores_window",
             "reserved_blocks_ignored",
             "retention_forgets_prompt_end",
             "skipped_kept_when_refused",
             "skipped_reads_in_stats",
             "unhashed_freed_to_tail",
             "window_freed_late",
         }},
    {.part = "engine.scheduler",
     .commands_max = 200'000,
     .rule_commands_max = 100'000,
     .shrunk_commands_max = 40,
     // Which requests get a turn, tokens and room, in which order, and what is computed or cached
     // earlier or later than needed; what workers and statistics get besides blocks.
     .need_the_reference = {"all_token_ids_missing",
                            "async_load_counts_against_budget",
                            "connector_asked_again_after_load",
                            "connector_reset_skipped",
                            "drafts_kept_over_preemption",
                            "extra_step_past_max_tokens",
                            "full_length_not_reserved",
                            "held_request_keeps_its_slot",
                            "held_requests_are_no_work",
                            "length_beats_stop_token",
                            "only_invalid_blocks_evicted",
                            "parked_loads_count_as_running",
                            "placeholders_not_counted_as_output",
                            "planned_output_dropped_on_preemption",
                            "preempted_to_tail_of_waiting",
                            "prefills_not_reserved_for",
                            "resumed_load_sent_as_new",
                            "sharer_cut_back",
                            "skipped_order_reversed",
                            "split_ignores_external_tokens",
                            "stale_output_taken",
                            "unverified_tokens_cached",
                            "victim_before_hides_nobody",
                            "victim_tokens_not_given_back"},
     // A load of several groups after a hit, with hardly a free block.
     .rules_get_the_scenario = {"external_blocks_before_hits"}},
    {.part = "eviction",
     .commands_max = 100'000,
     .rule_commands_max = 100'000,
     .shrunk_commands_max = 24,
     // Which idle block is evicted, what is remembered of it, how the target moves within its
     // bounds.
     .need_the_reference =
         {
             "arc_falls_back_to_t1",
             "chosen_not_counted",
             "ghost_hit_not_moved",
             "ghost_returns_to_t2",
             "ghost_trimmed_at_newest_end",
             "not_ready_promoted",
             "quotient_of_integers",
             "released_to_newest",
             "removed_remembered",
             "target_not_floored",
             "touch_in_forward_order",
         }},
    {.part = "offload",
     .commands_max = 20'000,
     .rule_commands_max = 20'000,
     .shrunk_commands_max = 20,
     // Which free slot is used, and which keys are worth a store.
     .need_the_reference =
         {
             "counted_key_stays_old",
             "freed_slots_before_fresh",
             "freed_slots_oldest_first",
             "lookup_counts_until_miss",
             "reset_drops_counts",
             "threshold_off_by_one",
             "tracker_drops_newest",
             "tracker_holds_one_more",
         }},
    {.part = "tiering",
     // A file in doubt is rewritten while it is the only copy of its block.
     .commands_max = 500'000,
     .rule_commands_max = 150'000,
     // Shrinking cannot remove a command that submits a job if a later job is named by its number.
     .shrunk_commands_max = 40,
     // Another plan: a tier is searched, gets a block or is touched less often, or promotions are
     // grouped otherwise. A job that is given up needlessly, or a missed file, may be a planned
     // fault.
     .need_the_reference =
         {
             "again_ends_the_search",
             "cascade_to_first_tier_only",
             "close_error_ignored",
             "doubtful_not_rewritten",
             "failed_store_cascaded",
             "interrupted_is_failure",
             "late_store_not_cascaded",
             "leftovers_not_reclaimed",
             "leftovers_of_the_living_reclaimed",
             "no_writer_for_good",
             "number_with_files_left_taken",
             "pending_key_stops_request_level",
             "promotions_not_grouped",
             "promotions_of_all_requests_merged",
             "request_level_forgotten",
             "short_write_published",
             "touch_stays_in_primary",
         }},
    {.part = "engine.offloading",
     // A window that is not asked again must hold only its last blocks.
     .commands_max = 1'000'000,
     .rule_commands_max = 200'000,
     // A loaded prefix is stored again for a tier that wants it, after its load and after the
     // stores and evictions of others.
     .shrunk_commands_max = 100,
     // Waiting for more or later than needed, a store less or more, hits that could be longer or are
     // taken from elsewhere, blocks used in another order, fewer notices to tiers, statistics: all
     // of these are sound.
     .need_the_reference = {"aggregate_replaces",
                            "bound_is_outside",
                            "buckets_not_cumulative",
                            "directions_swapped",
                            "drafts_count_as_storable",
                            "failed_transfer_measured",
                            "first_engine_for_all",
                            "full_cache_asks_again",
                            "hit_before_promotion_served",
                            "jobs_under_way_ignored",
                            "largest_not_counted",
                            "last_jobs_not_flushed",
                            "loaded_prefix_skipped",
                            "loading_hit_served",
                            "max_offload_tokens_ignored",
                            "new_store_flushed",
                            "planned_tokens_counted",
                            "preempted_stores_stay_pending",
                            "prompt_only_ignored",
                            "refused_store_moves_cursor",
                            "reset_keeps_cursors",
                            "reset_keeps_finished",
                            "reset_keeps_operations",
                            "reset_keeps_totals",
                            "schedule_end_after_stores",
                            "sent_stores_keep_their_owner",
                            "series_of_each_engine",
                            "stats_of_others_kept",
                            "stats_kept",
                            "stats_of_rank_0",
                            "stores_stay_in_cpu",
                            "tier_policy_ignored",
                            "tiers_not_notified_of_end",
                            "totals_not_aggregated",
                            "touched_after_lookup",
                            "unknown_time_counted",
                            "window_one_long"},
     .rules_get_the_scenario = {"short_state_stored", "shrunk_hit_not_checked"}},
    {.part = "engine.prefill_decode",
     .commands_max = 100'000,
     .rule_commands_max = 100'000,
     // Four readers, each with its own read and notice.
     .shrunk_commands_max = 40,
     // A lease is renewed more often or for longer than needed, a load more than needed.
     .need_the_reference =
         {
             "forgotten_request_keeps_its_slot",
             "heartbeats_at_each_step",
             "heartbeats_never_stop",
             "one_token_prompt_loads",
         }},
    {.part = "engine.simple",
     .commands_max = 200'000,
     .rule_commands_max = 200'000,
     .shrunk_commands_max = 50,
     // A store less, later, earlier or once more, of what is computed when it is copied; a token
     // that is computed again; a flush that nothing waits for, since copies hold their blocks;
     // blocks used in another order: all of these are sound.
     .need_the_reference =
         {
             "cursor_not_forgotten",
             "finished_stays_known",
             "flush_not_sent",
             "full_moves_place",
             "last_token_not_left",
             "never_findable",
             "placeholders_counted",
             "resume_keeps_ids",
             "stale_window_id_stored",
             "step_tokens_stored",
             "store_under_way_repeated",
             "stored_again",
             "stored_freed_to_head",
             "stores_not_aligned",
             "unhashed_block_ends_group",
             "walk_beyond_space",
             "walk_beyond_target",
         }},
    {.part = "engine.synchronous",
     .commands_max = 100'000,
     .rule_commands_max = 100'000,
     .shrunk_commands_max = 40,
     // Less, more or other blocks are looked up, loaded, stored or filled, with the content of
     // their names; a file that still fails ends the engine; dummies that are not read; one file or
     // folder more or less.
     .need_the_reference =
         {
             "all_groups_filled",
             "failed_create_keeps_file",
             "fill_rounded_to_blocks",
             "filled_again",
             "groups_dropped",
             "load_makes_no_folder",
             "load_under_lookup_key",
             "load_without_hit",
             "lookup_under_store_key",
             "match_not_looked_for",
             "match_remembered",
             "need_load_kept",
             "null_block_spared",
             "outputs_not_filled",
             "resumed_outputs_not_loaded",
             "step_tokens_not_counted",
             "store_not_aligned",
             "store_under_lookup_key",
             "stored_again",
         }},
    {.part = "engine.multi",
     .commands_max = 100'000,
     .rule_commands_max = 200'000,
     .shrunk_commands_max = 40,
     // Only the reference decides which child loads, how many notices count, how an engine starts,
     // and how reports of several children or ranks are combined; other decisions are sound too.
     .need_the_reference = {"choice_lost_at_again", "cross_layers_by_layer", "cross_layers_if_any",
                            "extra_saves_replaced", "extra_saves_stay", "first_choice_kept",
                            "handshake_of_first_child", "last_hit_chosen",
                            "load_errors_of_one_child", "most_tokens_chosen",
                            "params_of_last_child", "params_of_nixl_not_passed",
                            "received_swallowed", "search_ends_at_hit", "stats_counted_twice",
                            "stats_overwritten", "unsaid_reset_fails"}},
    {.part = "worker",
     .commands_max = 100'000,
     .rule_commands_max = 100'000,
     .shrunk_commands_max = 12,
     // A store that is enqueued too early copies the same content; an order of reports is a choice.
     .need_the_reference =
         {
             "ended_job_stays_known",
             "loads_reported_first",
             "store_not_deferred",
         }},
    {.part = "engine.offloading_on_device",
     .commands_max = 100'000,
     .rule_commands_max = 100'000,
     // A step is four commands.
     .shrunk_commands_max = 120,
     .mostly_shrunk_max = 30},
    {.part = "engine.on_device",
     .commands_max = 250'000,
     .rule_commands_max = 250'000,
     .shrunk_commands_max = 120,
     .mostly_shrunk_max = 40},
};

const Canaries& canaries_of(const CheckedPart& part) {
  for (const Canaries& canaries : kCanaries) {
    if (canaries.part == part.name) return canaries;
  }
  check_failed(__FILE__, __LINE__, "canaries.part == name", "a part without expectations");
}

CampaignResult hunt(const CheckedPart& part, std::string_view bug, LockstepOptions lockstep,
                    std::uint64_t commands_max) {
  const auto reference = part.sides->make_reference();
  const auto planted = part.sides->make_planted(bug);
  CampaignOptions options;
  options.commands_max = commands_max;
  options.lockstep = lockstep;
  return run_campaign(*part.checks, *reference, *planted, options,
                      [](const CampaignProgress&) { return true; });
}

/// The report of the rules alone on the scenario of a bug.
std::optional<Divergence> judged_by_rules(const CheckedPart& part, std::string_view bug) {
  const std::string file = cases_folder(part.name) + "/bugs/" + std::string(bug) + ".kvs";
  const Parsed<Document> document = read_document(file);
  KVFENCE_CHECK(document, "the scenario of a planted bug is in the line language");
  const Parsed<Scenario> scenario = scenario_from_document(*part.checks->target, *document, file);
  KVFENCE_CHECK(scenario, "the scenario of a planted bug can be run");
  const auto reference = part.sides->make_reference();
  const auto planted = part.sides->make_planted(bug);
  Lockstep rules(*part.checks, *reference, *planted,
                 {.oracles = {.lockstep = false, .expectation = false, .leaks = false}});
  return run_scenario(rules, *scenario);
}

std::string caught_by(const CampaignResult& result) {
  if (!result.failure) return "-";
  const Divergence& divergence = result.failure->divergence;
  return std::to_string(result.progress.commands) + " by " +
         (divergence.oracle == "lockstep" ? divergence.field : divergence.oracle);
}

/// Shrinks a failure that the lockstep found. Returns: the number of commands, which still fail.
std::size_t shrunk_commands(const CheckedPart& part, std::string_view bug,
                            const CampaignFailure& failure) {
  const auto reference = part.sides->make_reference();
  const auto planted = part.sides->make_planted(bug);
  // With the target's checks: a smaller configuration may be of another assembly.
  Lockstep lockstep(*part.sides->checks, *reference, *planted, {.oracles = {.rules = false}});
  const auto still_fails = [&](const Scenario& scenario, const Setup& setup) {
    const auto again = run_scenario(lockstep, scenario, setup);
    return again && again->oracle == failure.divergence.oracle;
  };
  ShrinkOptions options;
  options.tries_max = 20'000;
  options.failing_step = failure.divergence.step;
  const ShrinkResult shrunk = shrink(failure.scenario, still_fails, options);
  EXPECT_TRUE(shrunk.reproduced) << bug;
  EXPECT_TRUE(shrunk.at_fixpoint) << bug << " after " << shrunk.tries << " tries";
  EXPECT_TRUE(still_fails(shrunk.scenario, *prepare(shrunk.scenario))) << bug;
  return shrunk.scenario.steps.size();
}

class PlantedBugs : public ::testing::TestWithParam<const CheckedPart*> {};
INSTANTIATE_TEST_SUITE_P(EveryPart, PlantedBugs, ::testing::ValuesIn(every_part()), name_of_part);

TEST_P(PlantedBugs, ThereAreTenOrMoreWithNamesOfTheirOwn) {
  const CheckedPart& part = *GetParam();
  std::set<std::string_view> names;
  for (const PlantedBugInfo& info : part.planted_bugs) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.doc.empty()) << info.name;
  }
  EXPECT_GE(names.size(), 10u);
  EXPECT_EQ(part.sides->make_planted("no_such_bug"), nullptr);
  for (std::string_view name : canaries_of(part).need_the_reference) {
    EXPECT_EQ(names.count(name), 1u) << name;
  }
}

TEST_P(PlantedBugs, EachIsCaughtByLockstepAndByTheRulesAloneAndShrinks) {
  const CheckedPart& part = *GetParam();
  const Canaries& canaries = canaries_of(part);
  std::printf("%-34s %-34s %-7s %s\n", "planted bug", "lockstep: commands, field", "shrunk",
              "rules alone: commands, name");
  std::vector<std::size_t> shrunk;
  for (const PlantedBugInfo& info : part.planted_bugs) {
    const bool needs_reference = canaries.need_the_reference.count(info.name) > 0;
    const bool is_rare = canaries.rules_get_the_scenario.count(info.name) > 0;
    const CampaignResult by_lockstep = hunt(part, info.name, {.oracles = {.rules = false}},
                                            is_rare ? kRareCommandsMax : canaries.commands_max);
    CampaignResult by_rules;
    if (is_rare) {
      EXPECT_TRUE(judged_by_rules(part, info.name)) << info.name;
    } else {
      by_rules = hunt(part, info.name, {.oracles = {.lockstep = false, .leaks = false}},
                      needs_reference ? kSilentCommandsMax : canaries.rule_commands_max);
      EXPECT_EQ(by_rules.failure.has_value(), !needs_reference) << info.name;
    }
    ASSERT_TRUE(by_lockstep.failure) << info.name;
    const std::size_t num_shrunk = shrunk_commands(part, info.name, *by_lockstep.failure);
    std::printf("%-34.*s %-34s %-7zu %s\n", static_cast<int>(info.name.size()), info.name.data(),
                caught_by(by_lockstep).c_str(), num_shrunk, caught_by(by_rules).c_str());
    EXPECT_LE(num_shrunk, canaries.shrunk_commands_max) << info.name;
    shrunk.push_back(num_shrunk);
  }
  std::sort(shrunk.begin(), shrunk.end());
  EXPECT_LE(shrunk[shrunk.size() * 3 / 4], canaries.mostly_shrunk_max);
}

// The core rules hold under every connector: they find the scheduler's bugs in each assembly,
// without the reference.
TEST(PlantedBugsOfTheScheduler, AreCaughtUnderEveryConnector) {
  for (const CheckedPart* part : every_part()) {
    if (part->checks->target != &EngineTarget::description()) continue;
    for (const std::string_view bug : {"max_num_seqs_off_by_one", "token_budget_overrun",
                                       "computed_tokens_kept_over_preemption"}) {
      for (const bool compare : {true, false}) {
        const CampaignResult caught =
            hunt(*part, bug, {.oracles = {.lockstep = compare, .rules = !compare, .leaks = false}},
                 100'000);
        EXPECT_TRUE(caught.failure) << part->name << ": " << bug;
      }
    }
  }
}

}  // namespace
}  // namespace kvfence
