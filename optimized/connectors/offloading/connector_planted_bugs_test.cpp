// Goal: every planted bug of the connector is alive, and only when it is asked for. Method: the
// same pseudo-random life of requests and transfers goes to a scheduler with sound halves of a
// connector and to one with planted ones; the two part company in some configuration exactly when a
// bug is planted.

#include "optimized/connectors/offloading/planted_connector_bugs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "contract/scripted/scripted_tier.h"
#include "contract/scripted/scripted_transfer_engine.h"
#include "optimized/base/planted_bugs_table.h"
#include "optimized/connectors/kv_output_aggregator.h"
#include "optimized/connectors/offloading/copying_life.h"
#include "optimized/connectors/offloading/offloading_connector.h"
#include "optimized/scheduler/scheduler.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kBlockSize = 4;
constexpr std::uint32_t kMaxModelLen = 48;
constexpr int kNumSteps = 6'000;
constexpr int kNumStepsBroken = 1'500;

struct World {
  SchedulerConfig scheduler;
  OffloadingSpec spec;
  std::uint32_t num_tiers = 0;
  bool last_tier_wants_requests = false;  ///< at request level
};

/// Each side has its own.
std::vector<SecondaryTierHandle> tiers_of(const World& world) {
  std::vector<SecondaryTierHandle> tiers;
  const auto calls = std::make_shared<TierCalls>();
  for (std::uint32_t place = 0; place < world.num_tiers; ++place) {
    ScriptedTier tier(place, calls);
    const bool is_last = place + 1 == world.num_tiers;
    if (is_last && world.last_tier_wants_requests) tier.want(OffloadPolicy::kRequestLevel);
    tiers.emplace_back(std::move(tier));
  }
  return tiers;
}

World world_of(Profile profile) {
  World world;
  KVCacheManagerConfig& kv_cache = world.scheduler.kv_cache;
  kv_cache.pool.num_gpu_blocks = 16;
  kv_cache.pool.hash.hash_block_size = kBlockSize;
  kv_cache.pool.hash.algorithm = HashAlgorithm::kXxhashCbor;
  kv_cache.pool.max_block_size = kBlockSize;
  kv_cache.pool.profile = profile;
  kv_cache.pool.rules = rules_of(profile);
  kv_cache.groups = {{.block_size = kBlockSize}};
  kv_cache.max_model_len = kMaxModelLen;
  kv_cache.max_num_batched_tokens = 18;
  world.scheduler.max_num_seqs = 4;
  world.scheduler.kv_load_failure_policy = KVLoadFailurePolicy::kRecompute;
  world.spec.manager.cache.capacity = 10;
  world.spec.manager.enable_events = true;
  world.spec.manager.rules = rules_of(profile);
  return world;
}

void set_async(World& world) {
  world.scheduler.async_scheduling = true;
  world.scheduler.max_concurrent_batches = 2;
}

void add_tiers(World& world, std::uint32_t num_tiers) {
  world.spec.has_tiers = true;
  world.num_tiers = num_tiers;
}

void add_window(World& world, std::uint32_t block_size, std::uint32_t sliding_window) {
  world.scheduler.kv_cache.groups.push_back({.kind = KVCacheSpecKind::kSlidingWindow,
                                             .block_size = block_size,
                                             .sliding_window = sliding_window});
}

std::vector<World> worlds() {
  std::vector<World> all;
  for (Profile profile : {Profile::kV019, Profile::kV023}) {
    all.push_back(world_of(profile));
    all.back().spec.offload_prompt_only = false;
    all.push_back(world_of(profile));
    all.back().spec.num_workers = 3;
    all.back().spec.block_size_factor = 2;
    all.back().spec.manager.cache.policy = EvictionPolicy::kARC;
    all.push_back(world_of(profile));
    set_async(all.back());
    all.back().spec.num_workers = 2;
    all.back().spec.offload_prompt_only = false;
    all.back().scheduler.kv_cache.pool.num_gpu_blocks = 12;
    all.push_back(world_of(profile));
    all.back().scheduler.long_prefill_token_threshold = 5;
    all.back().spec.manager.cache.capacity = 4;
    all.back().spec.request_level_policy = true;
  }
  all.push_back(world_of(Profile::kV023));
  add_window(all.back(), kBlockSize, 11);
  all.back().scheduler.kv_cache.pool.num_gpu_blocks = 28;
  all.back().spec.manager.cache.capacity = 30;
  all.push_back(world_of(Profile::kV023));
  add_window(all.back(), kBlockSize, 6);
  all.back().scheduler.kv_cache.pool.num_gpu_blocks = 20;
  all.back().spec.manager.cache.capacity = 9;
  all.back().spec.offload_prompt_only = false;
  set_async(all.back());
  all.push_back(world_of(Profile::kV023));
  all.back().scheduler.kv_cache.groups.front().block_size = 3 * kBlockSize;
  all.back().scheduler.kv_cache.pool.max_block_size = 3 * kBlockSize;
  add_window(all.back(), kBlockSize, 5);
  add_window(all.back(), kBlockSize, 9);
  all.back().scheduler.kv_cache.pool.num_gpu_blocks = 36;
  all.back().spec.manager.cache.capacity = 20;
  all.back().spec.offload_prompt_only = false;
  all.push_back(world_of(Profile::kV023));
  all.back().scheduler.kv_cache.pool.max_block_size = 2 * kBlockSize;
  add_window(all.back(), kBlockSize, 9);
  add_window(all.back(), 2 * kBlockSize, 5);
  all.back().scheduler.kv_cache.pool.num_gpu_blocks = 36;
  all.back().spec.manager.cache.capacity = 20;
  all.push_back(world_of(Profile::kV023));
  all.back().scheduler.kv_cache.groups.push_back(
      {.kind = KVCacheSpecKind::kMamba, .block_size = kBlockSize});
  all.back().scheduler.kv_cache.pool.num_gpu_blocks = 28;
  all.back().spec.num_workers = 2;
  all.push_back(world_of(Profile::kV023));
  add_window(all.back(), kBlockSize, 6);
  all.back().scheduler.kv_cache.pool.num_gpu_blocks = 24;
  all.back().spec.manager.cache.capacity = 5;
  all.back().spec.block_size_factor = 2;
  all.back().spec.offload_prompt_only = false;
  all.push_back(world_of(Profile::kV023));
  add_tiers(all.back(), 2);
  all.back().last_tier_wants_requests = true;
  all.push_back(world_of(Profile::kV023));
  add_tiers(all.back(), 1);
  set_async(all.back());
  all.back().spec.num_workers = 2;
  all.back().spec.manager.cache.policy = EvictionPolicy::kARC;
  all.back().spec.manager.cache.capacity = 5;
  for (World& world : all) world.spec.kv_cache = world.scheduler.kv_cache;
  return all;
}

struct Observation : LifeObservation {
  std::vector<TransferJob> loads;
  std::vector<TransferJob> stores;
  std::vector<std::string> requests_to_flush;
  std::vector<JobId> jobs_to_flush;
  std::vector<EngineCoreOutputs::Output> outputs;
  std::vector<KVCacheEvent> events;
  PolicyLists lists;
  std::uint32_t num_free_slots = 0;
  TierCalls tier_calls;
  std::vector<TierJobState> tier_jobs;
  friend bool operator==(const Observation&, const Observation&) = default;
};

struct SoundSide {
  auto make_scheduler(const World& world) const {
    return Scheduler(world.scheduler, KVConnectorHandle(make_offloading_connector_scheduler(
                                          world.spec, tiers_of(world))));
  }
  auto make_worker(const World& world) const {
    return make_offloading_connector_worker(world.spec);
  }
  auto make_aggregator(std::uint32_t num_workers) const { return KVOutputAggregator(num_workers); }
};

/// The scheduler has no bug.
struct PlantedSide {
  auto make_scheduler(const World& world) const {
    return Scheduler(world.scheduler, KVConnectorHandle(make_planted_offloading_connector_scheduler(
                                          world.spec, bug, tiers_of(world))));
  }
  auto make_worker(const World& world) const {
    return make_planted_offloading_connector_worker(world.spec, bug);
  }
  auto make_aggregator(std::uint32_t num_workers) const {
    return PlantedKVOutputAggregator(num_workers, bug);
  }

  PlantedConnectorBug bug = PlantedConnectorBug::kNone;
};

template <class Side>
class Life : public CopyingLife<Life<Side>, World, Side, Observation> {
  using Base = typename Life::CopyingLife;
  friend Base;

 public:
  using Base::Base;

 private:
  OffloadingConnectorScheduler& connector() {
    return static_cast<OffloadingConnectorScheduler&>(*Base::scheduler().connector());
  }

  void draw_params(NewRequest& request) {
    request.skip_reading_prefix_cache = Base::below(6) == 0;
    if (Base::below(4) == 0) request.kv_transfer_params.max_offload_tokens = Base::below(24);
  }

  /// Failures and reports that come twice among them.
  void move_a_copy(ScriptedTransferEngine& engine) {
    if (Base::world().num_tiers > 0 && Base::flip()) return move_a_tier();
    const std::uint32_t draw = Base::below(64);
    if (draw < 8 && next_job_ > 0) {
      engine.report_again(Base::below(next_job_));
      return;
    }
    if (engine.transfers().empty()) return;
    const TransferJob& job =
        engine.transfers()[draw % static_cast<std::uint32_t>(engine.transfers().size())].job;
    // Failed loads are for one group only.
    const bool may_fail = job.spec.is_store ? Base::world().spec.manager.rules.offload_fences_reuse
                                            : Base::world().scheduler.kv_cache.groups.size() == 1;
    next_job_ = std::max(next_job_, job.job + 1);
    engine.advance(
        job.job,
        may_fail && draw % 8 == 0 ? TransferProgress::kFailed : TransferProgress::kFinished,
        /*microseconds=*/draw % 3);
  }

  ScriptedTier& tier(std::uint32_t place) {
    return *connector().tiers()[place].template get_if<ScriptedTier>();
  }

  /// A job is over, mostly; or a tier loses a block, or is slow to find one.
  void move_a_tier() {
    const std::uint32_t draw = Base::below(64);
    std::vector<TierJobState> jobs;
    connector().tier_jobs(jobs);
    if (draw >= 8 && !jobs.empty()) {
      const TierJobState& job = jobs[draw % jobs.size()];
      return tier(job.tier).finish(job.id, draw % 6 != 0);
    }
    ScriptedTier& changed = tier(draw % Base::world().num_tiers);
    const std::vector<OffloadKey> held = changed.held();
    if (held.empty()) return;
    const OffloadKey& key = held[draw % held.size()];
    draw < 4 ? changed.drop(key) : changed.ask_again(key, 1);
  }

  void observe_metadata(const KVConnectorMetadata& told, Observation& seen) {
    const auto& metadata = static_cast<const OffloadingConnectorMetadata&>(told);
    seen.loads = metadata.loads;
    seen.stores = metadata.stores;
    seen.requests_to_flush = metadata.requests_to_flush;
    seen.jobs_to_flush = metadata.jobs_to_flush;
  }

  void observe_outputs(const EngineCoreOutputs& out, Observation& seen) {
    seen.outputs = out.outputs;
    seen.events = out.events;
  }

  void observe_connector(Observation& seen) {
    connector().policy_lists(seen.lists);
    seen.num_free_slots = connector().num_free_slots();
    connector().tier_jobs(seen.tier_jobs);
    if (Base::world().num_tiers > 0) std::swap(seen.tier_calls, *tier(0).calls());
  }

  JobId next_job_ = 0;
};

bool diverges(PlantedConnectorBug bug) {
  std::uint32_t seed = 0;
  for (const World& world : worlds()) {
    Life<SoundSide> expected(world, SoundSide(), ++seed);
    Life<PlantedSide> actual(world, PlantedSide{bug}, seed);
    for (int i = 0; i < kNumSteps; ++i) {
      if (expected.step() != actual.step()) return true;
    }
  }
  return false;
}

class PlantedConnectorBugs : public testing::TestWithParam<PlantedConnectorBugInfo> {};

TEST_P(PlantedConnectorBugs, PartsFromTheSoundConnector) { EXPECT_TRUE(diverges(GetParam().bug)); }

TEST_P(PlantedConnectorBugs, KeepsAnsweringOnceBroken) {
  std::uint32_t seed = 0;
  std::size_t num_answers = 0;
  const std::vector<World> all = worlds();
  for (const World& world : all) {
    Life<PlantedSide> life(world, PlantedSide{GetParam().bug}, ++seed);
    for (int i = 0; i < kNumStepsBroken; ++i) {
      EXPECT_LE(life.step().num_free_slots, world.spec.manager.cache.capacity);
      ++num_answers;
    }
  }
  EXPECT_EQ(num_answers, all.size() * kNumStepsBroken);
}

INSTANTIATE_TEST_SUITE_P(All, PlantedConnectorBugs, testing::ValuesIn(kPlantedConnectorBugs),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(PlantedConnectorBugTable, NoBugIsTheSoundConnector) {
  EXPECT_FALSE(diverges(PlantedConnectorBug::kNone));
}

// A sound connector's reports are never refused, and its life is a life.
TEST(PlantedConnectorBugTable, TheSoundConnectorLoadsStoresAndFlushes) {
  std::uint32_t seed = 0;
  for (const World& world : worlds()) {
    SCOPED_TRACE(seed);
    Life<SoundSide> life(world, SoundSide(), ++seed);
    std::size_t num_loads = 0;
    std::size_t num_stores = 0;
    std::size_t num_flushes = 0;
    for (int i = 0; i < kNumSteps; ++i) {
      const Observation seen = life.step();
      ASSERT_EQ(seen.code, ErrorCode::kNone);
      num_loads += seen.loads.size();
      num_stores += seen.stores.size();
      num_flushes += seen.jobs_to_flush.size() + seen.requests_to_flush.size();
    }
    EXPECT_GT(num_loads, 20U);
    EXPECT_GT(num_stores, 20U);
    EXPECT_GT(num_flushes, 5U);
  }
}

TEST(PlantedConnectorBugTable, IsInTheOrderOfTheEnumerationWithNamesOfItsOwn) {
  EXPECT_EQ(misplaced_bugs(kPlantedConnectorBugs, planted_connector_bug_from_name),
            std::vector<std::string_view>{});
}

}  // namespace
}  // namespace kvfence::optimized
