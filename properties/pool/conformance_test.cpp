// Goal: each rule and error code of contract/pool/block_pool.h holds for both pools.
// Method: one named test per rule and code, a scenario with what has to be seen.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "contract/core/implementation.h"
#include "contract/core/line.h"
#include "contract/core/scenario.h"
#include "properties/core/lockstep.h"
#include "properties/targets/checks.h"
#include "scenarios/targets/targets.h"

namespace kvfence {

class BlockPoolConformance
    : public ::testing::TestWithParam<std::function<std::unique_ptr<Implementation>()>> {
 protected:
  /// Runs the lines on one implementation: every expectation must be met and every rule hold.
  void expect(std::string_view lines) {
    const Parsed<Document> document = parse_document("target block_pool\n" + std::string(lines));
    ASSERT_TRUE(document) << document.error().to_text();
    const Checks& checks = block_pool_checks();
    const auto scenario = scenario_from_document(*checks.target, *document);
    ASSERT_TRUE(scenario) << scenario.error().to_text();
    const auto watched = GetParam()();
    const auto same = GetParam()();
    Lockstep lockstep(checks, *watched, *same);
    const std::optional<Divergence> divergence = run_scenario(lockstep, *scenario);
    if (!divergence) return;
    FAIL() << watched->name() << ", " << print(to_line(scenario->steps[divergence->step].command))
           << "\n"
           << divergence->oracle << ": " << divergence->message << "\n"
           << divergence->field << "\n  expected " << divergence->expected << "\n  actual   "
           << divergence->actual;
  }
};

TEST_P(BlockPoolConformance, StartsWithAllButTheNullBlockQueuedAscending) {
  expect(R"(config num_gpu_blocks=4
get_new_blocks num_blocks=0 -> blocks=[] free_queue=[1 2 3] usage=0.0 num_empty=3 num_referenced=1
)");
}

TEST_P(BlockPoolConformance, GetTakesTheHeadInOrder) {
  expect(R"(config num_gpu_blocks=4
get_new_blocks num_blocks=2 -> blocks=[1 2] free_queue=[3] ref_cnts=[0 1 1 0]
)");
}

TEST_P(BlockPoolConformance, GetEvictsWhatItHandsOut) {
  expect(R"(config num_gpu_blocks=3 hash_block_size=1
request id=A tokens=[1 2]
get_new_blocks num_blocks=2
cache_full_blocks request=A blocks=[1 2] num_cached_blocks=0 num_full_blocks=2 block_size=1 group=0 -> num_cached_keys=2
free_blocks blocks=[2 1] -> num_cached=2 num_empty=0
get_new_blocks num_blocks=2 -> blocks=[2 1] num_cached_keys=0 keys=[none none none]
take_events -> events=[(stored block_hashes=[A:0 A:1] token_ids=[1 2] block_size=1) (removed block_hash=A:1) (removed block_hash=A:0)]
)");
}

TEST_P(BlockPoolConformance, GetRefusesMoreThanAreFree) {
  expect(R"(config num_gpu_blocks=3
get_new_blocks num_blocks=3 -> error=no_free_blocks free_queue=[1 2]
get_new_blocks num_blocks=4294967295 -> error=no_free_blocks free_queue=[1 2]
)");
}

TEST_P(BlockPoolConformance, ALookupFindsTheFirstInsertedSurvivor) {
  expect(R"(config num_gpu_blocks=4 hash_block_size=1
request id=A tokens=[1]
get_new_blocks num_blocks=3
cache_full_blocks request=A blocks=[2] num_cached_blocks=0 num_full_blocks=1 block_size=1 group=0
cache_full_blocks request=A blocks=[1] num_cached_blocks=0 num_full_blocks=1 block_size=1 group=0
cache_full_blocks request=A blocks=[3] num_cached_blocks=0 num_full_blocks=1 block_size=1 group=0 -> num_cached_keys=1
take_events
evict_blocks blocks=[3] -> keys=[none A:0/0 A:0/0 none]
take_events -> events=[(removed block_hash=A:0)]
get_cached_block request=A index=0 block_size=1 groups=[0] -> hit=true blocks=[2]
evict_blocks blocks=[2]
get_cached_block request=A index=0 block_size=1 groups=[0] -> hit=true blocks=[1]
evict_blocks blocks=[1]
get_cached_block request=A index=0 block_size=1 groups=[0] -> hit=false blocks=none
)");
}

TEST_P(BlockPoolConformance, ALookupNeedsEveryGroup) {
  expect(R"(config num_gpu_blocks=4 hash_block_size=1
request id=A tokens=[1]
get_new_blocks num_blocks=2
cache_full_blocks request=A blocks=[1] num_cached_blocks=0 num_full_blocks=1 block_size=1 group=1
get_cached_block request=A index=0 block_size=1 groups=[0 1] -> hit=false
get_cached_block request=A index=0 block_size=1 groups=[1 0] -> hit=false
cache_full_blocks request=A blocks=[2] num_cached_blocks=0 num_full_blocks=1 block_size=1 group=0
get_cached_block request=A index=0 block_size=1 groups=[1 0] -> hit=true blocks=[1 2]
get_cached_block request=A index=0 block_size=1 groups=[] -> hit=true blocks=[]
)");
}

TEST_P(BlockPoolConformance, ALookupRefusesWhatHasNoHash) {
  expect(R"(config num_gpu_blocks=4 hash_block_size=2
get_cached_block request=A index=0 block_size=2 groups=[0] -> error=unknown_request
request id=A tokens=[1 1 1]
get_cached_block request=A index=0 block_size=3 groups=[0] -> error=bad_block_size
get_cached_block request=A index=1 block_size=2 groups=[0] -> error=missing_hash
)");
}

TEST_P(BlockPoolConformance, TouchCountsEveryMention) {
  expect(R"(config num_gpu_blocks=4
touch blocks=[2 2 0 2] -> ref_cnts=[0 0 3 0] free_queue=[1 3]
touch blocks=[1 4] -> error=unknown_block ref_cnts=[0 0 3 0] free_queue=[1 3]
)");
}

TEST_P(BlockPoolConformance, FreeQueuesAtTheTailInTheGivenOrder) {
  expect(R"(config num_gpu_blocks=5
get_new_blocks num_blocks=3
touch blocks=[2]
free_blocks blocks=[3 2 0 1] -> free_queue=[4 3 1] ref_cnts=[0 0 1 0 0]
)");
}

TEST_P(BlockPoolConformance, FreeToTheHeadKeepsTheGivenOrder) {
  expect(R"(config num_gpu_blocks=5 profile=v0.23
get_new_blocks num_blocks=3
free_blocks blocks=[3 1] prepend=true -> free_queue=[3 1 4]
)");
}

TEST_P(BlockPoolConformance, FreeRefusesWhatWouldBeReleasedOrQueuedTwice) {
  expect(R"(config num_gpu_blocks=4 profile=v0.19
get_new_blocks num_blocks=2
free_blocks blocks=[1] prepend=true -> error=not_in_profile
free_blocks blocks=[1 9] -> error=unknown_block
free_blocks blocks=[1 3] -> error=double_free ref_cnts=[0 1 1 0] free_queue=[3]
free_blocks blocks=[1 1] -> error=double_free
touch blocks=[1]
free_blocks blocks=[1 1] -> error=double_free ref_cnts=[0 2 1 0]
touch blocks=[1]
free_blocks blocks=[1 1] -> error=none ref_cnts=[0 1 1 0]
)");
}

TEST_P(BlockPoolConformance, EvictLeavesReferencesAndQueue) {
  expect(R"(config num_gpu_blocks=4 hash_block_size=1
request id=A tokens=[1 2]
get_new_blocks num_blocks=2
cache_full_blocks request=A blocks=[1 2] num_cached_blocks=0 num_full_blocks=2 block_size=1 group=0
free_blocks blocks=[2]
evict_blocks blocks=[2 0 1 3] -> keys=[none none none none] ref_cnts=[0 1 0 0] free_queue=[3 2]
evict_blocks blocks=[4] -> error=unknown_block
)");
}

TEST_P(BlockPoolConformance, ResetNeedsAnIdlePoolAndKeepsTheQueue) {
  expect(R"(config num_gpu_blocks=3 hash_block_size=1
request id=A tokens=[1]
get_new_blocks num_blocks=1
cache_full_blocks request=A blocks=[1] num_cached_blocks=0 num_full_blocks=1 block_size=1 group=0
reset_prefix_cache -> success=false num_cached_keys=1
free_blocks blocks=[1]
take_events
reset_prefix_cache -> success=true num_cached_keys=0 free_queue=[2 1] keys=[none none none]
take_events -> events=[(cleared)]
)");
}

TEST_P(BlockPoolConformance, CacheNamesTheRangeAndReportsItOnce) {
  expect(R"(config num_gpu_blocks=4 hash_block_size=1
request id=A tokens=[5 6 7]
get_new_blocks num_blocks=2
cache_full_blocks request=A blocks=[3 0 1] num_cached_blocks=1 num_full_blocks=3 block_size=1 group=2 -> keys=[none A:2/2 none none]
take_events -> events=[(stored block_hashes=[A:2] parent_block_hash=A:0 token_ids=[6 7] block_size=1)]
cache_full_blocks request=A blocks=[9] num_cached_blocks=1 num_full_blocks=1 block_size=7 group=0 -> error=none
take_events -> events=[]
cache_full_blocks request=A blocks=[0] num_cached_blocks=0 num_full_blocks=1 block_size=1 group=0
take_events -> events=[(stored block_hashes=[] token_ids=[5] block_size=1)]
)");
}

TEST_P(BlockPoolConformance, CacheNamesALargerBlockByTheHashesItSpans) {
  expect(R"(config num_gpu_blocks=3 hash_block_size=1 max_block_size=2
request id=A tokens=[5 6 7]
get_new_blocks num_blocks=1
cache_full_blocks request=A blocks=[1] num_cached_blocks=0 num_full_blocks=1 block_size=2 group=0 -> keys=[none A:0*2/0 none]
get_cached_block request=A index=0 block_size=1 groups=[0] -> hit=false
)");
}

TEST_P(BlockPoolConformance, CacheRefusesInTheOrderOfTheCodes) {
  expect(R"(config num_gpu_blocks=4 hash_block_size=2 profile=v0.23
cache_full_blocks request=A blocks=[1] num_cached_blocks=0 num_full_blocks=1 block_size=2 group=0 -> error=unknown_request
request id=A tokens=[1 1 1 1 1]
cache_full_blocks request=A blocks=[9] num_cached_blocks=0 num_full_blocks=2 block_size=3 group=0 block_mask=[] -> error=bad_block_size
cache_full_blocks request=A blocks=[9] num_cached_blocks=0 num_full_blocks=2 block_size=2 group=0 block_mask=[] -> error=bad_range
cache_full_blocks request=A blocks=[9 1 1] num_cached_blocks=0 num_full_blocks=3 block_size=2 group=0 block_mask=[] -> error=bad_mask
cache_full_blocks request=A blocks=[9 1 1] num_cached_blocks=0 num_full_blocks=3 block_size=2 group=0 -> error=missing_hash
cache_full_blocks request=A blocks=[9 1] num_cached_blocks=0 num_full_blocks=2 block_size=2 group=0 -> error=unknown_block
cache_full_blocks request=A blocks=[1 1] num_cached_blocks=0 num_full_blocks=2 block_size=2 group=0 -> error=already_hashed num_cached_keys=0
take_events -> events=[]
)");
}

TEST_P(BlockPoolConformance, CacheRefusesInAPoolWithoutCaching) {
  expect(R"(config num_gpu_blocks=4 hash_block_size=1 enable_caching=false
request id=A tokens=[1]
cache_full_blocks request=A blocks=[1] num_cached_blocks=0 num_full_blocks=1 block_size=1 group=0 -> error=caching_disabled
)");
}

TEST_P(BlockPoolConformance, AMaskPassesOverAndIsOfItsProfile) {
  const std::string lines = R"(request id=A tokens=[1 2]
get_new_blocks num_blocks=2
cache_full_blocks request=A blocks=[1 2] num_cached_blocks=0 num_full_blocks=2 block_size=1 group=0 block_mask=[false true] -> )";
  expect("config num_gpu_blocks=3 hash_block_size=1 profile=v0.23\n" + lines +
         "keys=[none none A:1/0]\n");
  expect("config num_gpu_blocks=3 hash_block_size=1 profile=v0.19\n" + lines +
         "error=not_in_profile\n");
}

TEST_P(BlockPoolConformance, EventsAreOffIfTheyAreSwitchedOff) {
  expect(R"(config num_gpu_blocks=3 hash_block_size=1 enable_kv_cache_events=false
request id=A tokens=[1]
cache_full_blocks request=A blocks=[1] num_cached_blocks=0 num_full_blocks=1 block_size=1 group=0 -> num_cached_keys=1
take_events -> events=[]
)");
}

TEST_P(BlockPoolConformance, UsageLeavesTheNullBlockOut) {
  expect(R"(config num_gpu_blocks=5
get_new_blocks num_blocks=1 -> usage=0.25
get_new_blocks num_blocks=3 -> usage=1.0
)");
  expect(R"(config num_gpu_blocks=1
get_new_blocks num_blocks=0 -> usage=0.0
)");
}

INSTANTIATE_TEST_SUITE_P(Reference, BlockPoolConformance,
                         ::testing::Values(block_pool_sides().make_reference));
INSTANTIATE_TEST_SUITE_P(Optimized, BlockPoolConformance,
                         ::testing::Values(block_pool_sides().make_optimized));

}  // namespace kvfence
