// An engine's configuration line: what is built from it, and what is wrong with others.
#include "contract/engine/engine_target.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace kvfence {
namespace {

using engine::Config;

KVCacheSpec full_attention(std::uint32_t block_size) {
  return {.kind = KVCacheSpecKind::kFullAttention, .block_size = block_size};
}

Config config_of(std::uint32_t block_size = 4) {
  Config config;
  config.hash_block_size = block_size;
  config.groups = {full_attention(block_size)};
  return config;
}

template <class Spoil>
std::string error_of(Spoil spoil) {
  Config config = config_of();
  spoil(config);
  const auto setup = make_engine_setup(config);
  return setup ? "" : setup.error().to_text();
}

TEST(EngineSetup, IsThatOfTheConfiguration) {
  Config config = config_of(8);
  config.profile = "v0.23";
  config.num_gpu_blocks = 20;
  config.num_cpu_blocks = 6;
  config.block_size_factor = 2;
  config.eviction_policy = "arc";

  const auto setup = make_engine_setup(config);

  ASSERT_TRUE(setup);
  EXPECT_EQ(setup->device.num_gpu_blocks, 20U);
  EXPECT_EQ(setup->device.num_cpu_blocks, 6U);
  EXPECT_EQ(setup->device.block_size, 8U);
  EXPECT_EQ(setup->device.block_size_factor, 2U);
  EXPECT_EQ(setup->connector.scheduler.kv_cache.pool.num_gpu_blocks, 20U);
}

TEST(EngineSetup, TakesWhatIsLargestAndSmallest) {
  EXPECT_EQ(error_of([](Config& c) { c.num_gpu_blocks = c.num_cpu_blocks = 4096; }), "");
  EXPECT_EQ(error_of([](Config& c) { c.num_gpu_blocks = 2, c.num_cpu_blocks = 1; }), "");
  EXPECT_EQ(error_of([](Config& c) { c.block_size_factor = 8; }), "");
  EXPECT_EQ(error_of([](Config& c) { c = config_of(32); }), "");
  EXPECT_EQ(error_of([](Config& c) { c = config_of(1); }), "");
}

TEST(EngineSetup, SaysWhatIsTooLarge) {
  EXPECT_EQ(error_of([](Config& c) { c.num_gpu_blocks = 4097; }),
            "found num_gpu_blocks=4097, expected at most 4096");
  EXPECT_EQ(error_of([](Config& c) { c.num_cpu_blocks = 4097; }),
            "found num_cpu_blocks=4097, expected at most 4096");
  EXPECT_EQ(error_of([](Config& c) { c.block_size_factor = 9; }),
            "found block_size_factor=9, expected at most 8");
  EXPECT_EQ(error_of([](Config& c) { c.world_size = 5; }),
            "found world_size=5, expected at most 4");
  EXPECT_EQ(error_of([](Config& c) { c = config_of(33); }),
            "found block_size=33, expected at most 32");
}

TEST(EngineSetup, RefusesWhatItsPartsRefuse) {
  // Of the pool, the KV cache, the scheduler and the connector.
  EXPECT_NE(error_of([](Config& c) { c.num_gpu_blocks = 0; }), "");
  EXPECT_NE(error_of([](Config& c) { c.hash_algorithm = "md5"; }), "");
  EXPECT_NE(error_of([](Config& c) { c.profile = "v9"; }), "");
  EXPECT_NE(error_of([](Config& c) { c.groups.clear(); }), "");
  EXPECT_NE(error_of([](Config& c) { c.max_model_len = 1; }), "");
  EXPECT_NE(error_of([](Config& c) { c.policy = "lifo"; }), "");
  EXPECT_NE(error_of([](Config& c) { c.max_num_seqs = 0; }), "");
  EXPECT_NE(error_of([](Config& c) { c.max_concurrent_batches = 3; }), "");
  EXPECT_NE(error_of([](Config& c) { c.num_cpu_blocks = 0; }), "");
  EXPECT_NE(error_of([](Config& c) { c.block_size_factor = 0; }), "");
  EXPECT_NE(error_of([](Config& c) { c.eviction_policy = "fifo"; }), "");
}

TEST(EngineSetup, TellsGroupsByTheirWindows) {
  Config config = config_of(2);
  config.profile = "v0.23";
  config.world_size = 2;
  config.tokens_only = true;
  config.groups = {full_attention(4),
                   {.kind = KVCacheSpecKind::kSlidingWindow, .block_size = 2, .sliding_window = 3}};

  const auto setup = make_engine_setup(config);

  ASSERT_TRUE(setup);
  EXPECT_EQ(setup->windows, (std::vector<std::uint32_t>{0, 3}));
  EXPECT_EQ(setup->device.num_groups, 2U);
  EXPECT_EQ(setup->device.block_size, 4U);
  EXPECT_FALSE(setup->device.looks_for_races);
  EXPECT_EQ(setup->connector.spec.num_workers, 2U);
}

TEST(EngineSetup, RefusesGroupsOfAnotherKind) {
  const auto with_mamba = [](Config& c) {
    c.profile = "v0.23";
    c.groups = {full_attention(c.hash_block_size),
                {.kind = KVCacheSpecKind::kMamba, .block_size = c.hash_block_size}};
  };
  EXPECT_EQ(error_of(with_mamba),
            "found a group of another kind, expected full attention or a sliding window");
}

TEST(EngineSetup, NamesThePlace) {
  Config config = config_of();
  config.block_size_factor = 9;

  const auto setup = EngineTarget::prepare(config, "a.kvs", {2, 8});

  ASSERT_FALSE(setup);
  EXPECT_EQ(setup.error().to_text(), "a.kvs:2:8: found block_size_factor=9, expected at most 8");
}

}  // namespace
}  // namespace kvfence
