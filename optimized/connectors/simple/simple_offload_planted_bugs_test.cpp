// Goal: every planted bug of the simple CPU offload connector is alive, and only when it is asked
// for. Method: the same pseudo-random life of requests and copies goes to a scheduler with sound
// halves of a connector and to one with planted ones; the two part company in some configuration
// exactly when a bug is planted.

#include "optimized/connectors/simple/planted_simple_offload_bugs.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/scripted/scripted_transfer_engine.h"
#include "optimized/base/planted_bugs_table.h"
#include "optimized/connectors/kv_output_aggregator.h"
#include "optimized/connectors/offloading/copying_life.h"
#include "optimized/connectors/simple/simple_cpu_offload_scheduler.h"
#include "optimized/connectors/simple/simple_cpu_offload_worker.h"
#include "optimized/scheduler/scheduler.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kBlockSize = 4;
constexpr std::uint32_t kMaxModelLen = 48;
constexpr int kNumSteps = 4'000;
constexpr int kNumStepsBroken = 1'000;

struct World {
  SchedulerConfig scheduler;
  SimpleCPUOffloadSpec spec;
};

World world_of(Profile profile, bool lazy_offload) {
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
  world.spec.num_cpu_blocks = 12;
  world.spec.lazy_offload = lazy_offload;
  return world;
}

void set_async(World& world) {
  world.scheduler.async_scheduling = true;
  world.scheduler.max_concurrent_batches = 2;
}

void add_window(World& world, std::uint32_t block_size, std::uint32_t sliding_window) {
  world.scheduler.kv_cache.groups.push_back({.kind = KVCacheSpecKind::kSlidingWindow,
                                             .block_size = block_size,
                                             .sliding_window = sliding_window});
}

std::vector<World> worlds() {
  std::vector<World> all;
  for (Profile profile : {Profile::kV019, Profile::kV023}) {
    for (bool lazy_offload : {false, true}) {
      all.push_back(world_of(profile, lazy_offload));
      all.push_back(world_of(profile, lazy_offload));
      all.back().spec.num_workers = 2;
      all.back().spec.num_cpu_blocks = 5;
      set_async(all.back());
      all.push_back(world_of(profile, lazy_offload));
      all.back().scheduler.long_prefill_token_threshold = 5;
      all.back().scheduler.kv_cache.max_num_batched_tokens = 4;
      all.back().scheduler.kv_cache.pool.num_gpu_blocks = 24;
      all.push_back(world_of(profile, lazy_offload));
      add_window(all.back(), kBlockSize, 6);
      all.back().scheduler.kv_cache.pool.num_gpu_blocks = 26;
      all.back().spec.num_cpu_blocks = 24;
      set_async(all.back());
      all.push_back(world_of(profile, lazy_offload));
      add_window(all.back(), kBlockSize, 9);
      all.back().scheduler.kv_cache.groups.push_back(
          {.kind = KVCacheSpecKind::kMamba, .block_size = kBlockSize});
      all.back().scheduler.kv_cache.pool.num_gpu_blocks = 36;
      all.back().spec.num_cpu_blocks = 40;
    }
  }
  all.push_back(world_of(Profile::kV023, /*lazy_offload=*/false));
  all.back().scheduler.kv_cache.groups.front().block_size = 2 * kBlockSize;
  all.back().scheduler.kv_cache.pool.max_block_size = 2 * kBlockSize;
  add_window(all.back(), kBlockSize, 6);
  all.back().scheduler.kv_cache.pool.num_gpu_blocks = 28;
  all.back().spec.num_cpu_blocks = 20;
  for (World& world : all) world.spec.kv_cache = world.scheduler.kv_cache;
  return all;
}

struct Observation : LifeObservation {
  std::optional<JobId> load_event;
  std::optional<JobId> store_event;
  std::vector<std::string> load_requests;
  std::vector<std::vector<BlockId>> copied;
  bool need_flush = false;
  std::uint32_t num_gpu_blocks_free = 0;
  CpuPoolState cpu_pool;
  std::optional<BlockId> cursor;
  std::vector<PinnedHit> pins;

  friend bool operator==(const Observation& a, const Observation& b) {
    return static_cast<const LifeObservation&>(a) == b && a.load_event == b.load_event &&
           a.store_event == b.store_event && a.load_requests == b.load_requests &&
           a.copied == b.copied && a.need_flush == b.need_flush &&
           a.num_gpu_blocks_free == b.num_gpu_blocks_free &&
           a.cpu_pool.free_queue == b.cpu_pool.free_queue &&
           a.cpu_pool.ref_cnts == b.cpu_pool.ref_cnts && a.cpu_pool.keys == b.cpu_pool.keys &&
           a.cursor == b.cursor && a.pins == b.pins;
  }
};

struct SoundSide {
  auto make_scheduler(const World& world) const {
    return Scheduler(world.scheduler,
                     KVConnectorHandle(make_simple_cpu_offload_scheduler(world.spec)));
  }
  auto make_worker(const World& world) const { return make_simple_cpu_offload_worker(world.spec); }
  auto make_aggregator(std::uint32_t num_workers) const { return KVOutputAggregator(num_workers); }
};

/// The scheduler has no bug, but bears what a broken connector does to its pool.
struct PlantedSide {
  auto make_scheduler(const World& world) const {
    return PlantedScheduler(
        world.scheduler,
        KVConnectorHandle(make_planted_simple_cpu_offload_scheduler(world.spec, bug)),
        PlantedInstrumentation());
  }
  auto make_worker(const World& world) const {
    return make_planted_simple_cpu_offload_worker(world.spec, bug);
  }
  auto make_aggregator(std::uint32_t num_workers) const { return KVOutputAggregator(num_workers); }

  PlantedSimpleOffloadBug bug = PlantedSimpleOffloadBug::kNone;
};

template <class Side>
class Life : public CopyingLife<Life<Side>, World, Side, Observation> {
  using Base = typename Life::CopyingLife;
  friend Base;

 public:
  using Base::Base;

 private:
  SimpleCPUOffloadScheduler& connector() {
    return static_cast<SimpleCPUOffloadScheduler&>(*Base::scheduler().connector());
  }

  void draw_params(NewRequest& request) {
    // With several groups a hit of one may be taken for another's load.
    const bool has_groups = Base::world().spec.kv_cache.groups.size() > 1;
    request.skip_reading_prefix_cache = Base::below(2) == 0 || has_groups;
  }

  /// The oldest one of a direction.
  void move_a_copy(ScriptedTransferEngine& engine) {
    const bool is_store = Base::flip();
    for (const ScriptedTransferEngine::Transfer& transfer : engine.transfers()) {
      if (transfer.job.spec.is_store != is_store) continue;
      if (transfer.progress == TransferProgress::kFinished) continue;
      engine.advance(transfer.job.job, TransferProgress::kFinished);
      return;
    }
  }

  void observe_metadata(const KVConnectorMetadata& told, Observation& seen) {
    const auto& metadata = static_cast<const SimpleCPUOffloadMetadata&>(told);
    seen.load_event = metadata.load_event;
    seen.store_event = metadata.store_event;
    seen.load_requests = metadata.load_requests;
    seen.copied = {metadata.load_gpu_blocks, metadata.load_cpu_blocks, metadata.store_gpu_blocks,
                   metadata.store_cpu_blocks};
    seen.need_flush = metadata.need_flush;
  }

  void observe_outputs(const EngineCoreOutputs&, Observation&) {}

  void observe_connector(Observation& seen) {
    seen.num_gpu_blocks_free =
        Base::scheduler().kv_cache_manager().block_pool().get_num_free_blocks();
    connector().cpu_pool(seen.cpu_pool);
    seen.cursor = connector().lazy_cursor();
    connector().pinned_hits(seen.pins);
  }
};

bool diverges(PlantedSimpleOffloadBug bug) {
  std::uint32_t seed = 0;
  for (const World& world : worlds()) {
    Life<SoundSide> expected(world, SoundSide(), ++seed);
    Life<PlantedSide> actual(world, PlantedSide{bug}, seed);
    for (int i = 0; i < kNumSteps; ++i) {
      if (!(expected.step() == actual.step())) return true;
    }
  }
  return false;
}

class PlantedSimpleOffloadBugs : public testing::TestWithParam<PlantedSimpleOffloadBugInfo> {};

TEST_P(PlantedSimpleOffloadBugs, PartsFromTheSoundConnector) {
  EXPECT_TRUE(diverges(GetParam().bug));
}

TEST_P(PlantedSimpleOffloadBugs, KeepsAnsweringOnceBroken) {
  std::uint32_t seed = 0;
  std::size_t num_answers = 0;
  const std::vector<World> all = worlds();
  for (const World& world : all) {
    Life<PlantedSide> life(world, PlantedSide{GetParam().bug}, ++seed);
    for (int i = 0; i < kNumStepsBroken; ++i) {
      EXPECT_LT(life.step().cpu_pool.free_queue.size(), world.spec.num_cpu_blocks);
      ++num_answers;
    }
  }
  EXPECT_EQ(num_answers, all.size() * kNumStepsBroken);
}

INSTANTIATE_TEST_SUITE_P(All, PlantedSimpleOffloadBugs,
                         testing::ValuesIn(kPlantedSimpleOffloadBugs),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(PlantedSimpleOffloadBugTable, NoBugIsTheSoundConnector) {
  EXPECT_FALSE(diverges(PlantedSimpleOffloadBug::kNone));
}

// A sound connector's reports are never refused, and its life is a life.
TEST(PlantedSimpleOffloadBugTable, TheSoundConnectorLoadsAndStores) {
  std::uint32_t seed = 0;
  std::size_t num_flushes = 0;
  for (const World& world : worlds()) {
    SCOPED_TRACE(seed);
    Life<SoundSide> life(world, SoundSide(), ++seed);
    std::size_t num_loads = 0;
    std::size_t num_stores = 0;
    for (int i = 0; i < kNumSteps; ++i) {
      const Observation seen = life.step();
      ASSERT_EQ(seen.code, ErrorCode::kNone);
      num_loads += seen.load_event ? 1 : 0;
      num_stores += seen.store_event ? 1 : 0;
      num_flushes += seen.need_flush ? 1 : 0;
    }
    EXPECT_GT(num_loads, 5U);
    EXPECT_GT(num_stores, 20U);
  }
  EXPECT_GT(num_flushes, 100U);
}

TEST(PlantedSimpleOffloadBugTable, IsInTheOrderOfTheEnumerationWithNamesOfItsOwn) {
  EXPECT_EQ(misplaced_bugs(kPlantedSimpleOffloadBugs, planted_simple_offload_bug_from_name),
            std::vector<std::string_view>{});
}

}  // namespace
}  // namespace kvfence::optimized
