#pragma once

/// What each component's room provides for the checks of its target (checks.h): configurations and
/// commands (generator.cpp), rules (rules.cpp), coverage goals (goals.cpp).

#include "contract/eviction/eviction_target.h"
#include "contract/kv_cache/kv_cache_target.h"
#include "contract/offload/offload_target.h"
#include "contract/pool/block_pool_target.h"
#include "contract/tiering/tiering_target.h"
#include "contract/worker/worker_target.h"
#include "properties/core/goals.h"
#include "properties/core/typed_checks.h"
#include "properties/draws/choices.h"

namespace kvfence {

namespace block_pool {

/// A small configuration: 1 to 12 blocks, every switch, every profile.
Config draw_config(Choices& choices);
GeneratorSuite<BlockPoolTarget> generators();
RuleSuite<BlockPoolTarget> rules();
GoalSuite goals();

}  // namespace block_pool

namespace kv_cache {

/// A valid configuration: 4 to 24 blocks, block sizes from 1 to 4 tokens and their small
/// multiples, one to three groups, every profile; now and then larger blocks, and up to eight
/// groups with blocks for each.
Config draw_config(Choices& choices);
GeneratorSuite<KVCacheTarget> generators();
RuleSuite<KVCacheTarget> rules();
GoalSuite goals();

}  // namespace kv_cache

namespace eviction {

/// A small configuration: 1 to 10 blocks, both policies, every profile.
Config draw_config(Choices& choices);
GeneratorSuite<EvictionTarget> generators();
RuleSuite<EvictionTarget> rules();
GoalSuite goals();

}  // namespace eviction

namespace offload {

/// A small configuration: 1 to 10 slots, both policies, with and without a filter, every profile.
Config draw_config(Choices& choices);
GeneratorSuite<OffloadTarget> generators();
RuleSuite<OffloadTarget> rules();
GoalSuite goals();

}  // namespace offload

namespace tiering {

/// A small configuration: 1 to 10 slots, both policies, 0 to 3 tiers, half of them with file
/// tiers.
Config draw_config(Choices& choices);
GeneratorSuite<TieringTarget> generators();
RuleSuite<TieringTarget, Setup> rules();
GoalSuite goals();

}  // namespace tiering

namespace worker {

/// A small configuration: 2 to 8 GPU blocks, 1 to 6 CPU blocks, every layout, path and
/// schedule, 1 to 3 ranks.
Config draw_config(Choices& choices);
GeneratorSuite<WorkerTarget> generators();
RuleSuite<WorkerTarget> rules();
GoalSuite goals();

}  // namespace worker

}  // namespace kvfence
