// Goal: settings become the spec that upstream would build, and each bad one is named. Method: the
// arithmetic by hand, for both forms; one mistake per case.

#include "contract/connectors/offloading/offloading_spec_factory.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvfence {
namespace {

std::vector<Field> settings_of(const std::string& text) {
  const Parsed<Line> line = parse_line("settings " + text, "a.kvs");
  EXPECT_TRUE(line) << line.error().to_text();
  return line->fields;
}

/// Two layers with a page of 100 bytes each, 10 blocks, 2 workers.
OffloadingSpecContext context_of(Profile profile) {
  OffloadingSpecContext context;
  KVCacheManagerConfig& kv_cache = context.kv_cache;
  kv_cache.pool.num_gpu_blocks = 10;
  kv_cache.pool.profile = profile;
  kv_cache.pool.rules = rules_of(profile);
  kv_cache.pool.hash.hash_block_size = 16;
  kv_cache.pool.enable_kv_cache_events = true;
  kv_cache.groups = {{.block_size = 16}};
  context.world_size = 2;
  context.page_size_bytes = {100};
  context.kv_cache_tensors = {1000, 1009};
  return context;
}

Parsed<OffloadingSpec> create(const std::string& settings,
                              const OffloadingSpecContext& context = context_of(Profile::kV023)) {
  const OffloadingSpecFactory factory = built_in_offloading_specs();
  return factory.create_spec(settings_of(settings), context, "a.kvs");
}

std::string error_of(const std::string& settings,
                     const OffloadingSpecContext& context = context_of(Profile::kV023)) {
  const auto spec = create(settings, context);
  return spec ? "no error" : spec.error().to_text();
}

TEST(OffloadingSpecFactory, DefaultsAreUpstreams) {
  const auto spec = create("cpu_bytes_to_use=4000");
  ASSERT_TRUE(spec) << spec.error().to_text();
  EXPECT_EQ(spec->manager.cache.policy, EvictionPolicy::kLRU);
  EXPECT_EQ(spec->manager.store_threshold, 0U);
  EXPECT_EQ(spec->manager.max_tracker_size, 64'000U);
  EXPECT_TRUE(spec->manager.enable_events);
  EXPECT_EQ(spec->manager.rules, rules_of(Profile::kV023));
  EXPECT_EQ(spec->block_size_factor, 1U);
  EXPECT_EQ(spec->num_workers, 2U);
  EXPECT_TRUE(spec->offload_prompt_only);
  EXPECT_FALSE(spec->request_level_policy);
}

TEST(OffloadingSpecFactory, SlotsAreWhatTheBytesOfAllWorkersHold) {
  const auto slots = [](const std::string& settings, const OffloadingSpecContext& context) {
    const auto spec = create(settings, context);
    EXPECT_TRUE(spec) << spec.error().to_text();
    return spec->manager.cache.capacity;
  };
  // fence: 2009 / 10 = 200 bytes per block and worker, though a tensor has odd bytes.
  const OffloadingSpecContext fence = context_of(Profile::kV023);
  EXPECT_EQ(slots("cpu_bytes_to_use=400", fence), 1U);
  EXPECT_EQ(slots("cpu_bytes_to_use=4399", fence), 10U);
  EXPECT_EQ(slots("cpu_bytes_to_use=4800 block_size=48", fence), 4U);
  EXPECT_EQ(slots("cpu_bytes_to_use=4800 block_size_factor=3", fence), 4U);
  OffloadingSpecContext blocks_of_a_token = fence;
  blocks_of_a_token.kv_cache.pool.hash.hash_block_size = 1;
  blocks_of_a_token.kv_cache.groups = {{.block_size = 1}};
  EXPECT_EQ(slots("cpu_bytes_to_use=4800 block_size=3", blocks_of_a_token), 4U);
  // hold: 2 tensors of 101 bytes per block, whatever the tensors hold.
  OffloadingSpecContext hold = context_of(Profile::kV019);
  hold.page_size_bytes = {101};
  EXPECT_EQ(slots("cpu_bytes_to_use=4400", hold), 10U);
  EXPECT_EQ(slots("cpu_bytes_to_use=4400 block_size=32", hold), 5U);
  // As int() of Python.
  EXPECT_EQ(slots("cpu_bytes_to_use=4.4e3", fence), 11U);
  EXPECT_EQ(slots("cpu_bytes_to_use=\"4400\"", fence), 11U);
}

TEST(OffloadingSpecFactory, SettingsReachTheSpec) {
  const auto spec = create(
      "spec_name=CPUOffloadingSpec cpu_bytes_to_use=4000 eviction_policy=arc store_threshold=2 "
      "max_tracker_size=7 offload_prompt_only=false");
  ASSERT_TRUE(spec) << spec.error().to_text();
  EXPECT_EQ(spec->manager.cache.policy, EvictionPolicy::kARC);
  EXPECT_EQ(spec->manager.store_threshold, 2U);
  EXPECT_EQ(spec->manager.max_tracker_size, 7U);
  EXPECT_FALSE(spec->offload_prompt_only);
}

TEST(OffloadingSpecFactory, TieringOffloadingSpecAsksForTiers) {
  const std::string settings = "spec_name=TieringOffloadingSpec cpu_bytes_to_use=8200 ";
  const auto spec = create(settings + "eviction_policy=arc store_threshold=1");
  ASSERT_TRUE(spec) << spec.error().to_text();
  EXPECT_TRUE(spec->has_tiers);
  EXPECT_EQ(spec->manager.cache.policy, EvictionPolicy::kARC);
  EXPECT_EQ(spec->manager.cache.capacity, 2U) << "400 bytes take a page";
  EXPECT_FALSE(create("cpu_bytes_to_use=4000")->has_tiers);
  EXPECT_EQ(create(settings + "store_threshold=0.0")->manager.store_threshold, 0U) << "int(0.0)";
  EXPECT_TRUE(spec->secondary_tiers.empty());
  const auto tiered = create(settings + "secondary_tiers=[(fs root_dir=kv) (example)]");
  ASSERT_TRUE(tiered) << tiered.error().to_text();
  const std::vector<SecondaryTierConfig> tiers = {
      {"fs", {{"root_dir", Value(Value::Variant(std::string("kv"))), {}}}}, {"example", {}}};
  EXPECT_EQ(tiered->secondary_tiers, tiers);
  EXPECT_EQ(error_of(settings + "secondary_tiers=fs"),
            "a.kvs:1:64: found secondary_tiers with fs, expected a list of tiers, (type key=value "
            "...)");
  EXPECT_EQ(error_of(settings + "secondary_tiers=[fs]"),
            "a.kvs:1:64: found secondary_tiers with fs, expected tiers, (type key=value ...)");
  EXPECT_EQ(error_of("cpu_bytes_to_use=4000 secondary_tiers=[]").find("secondary_tiers=[]"), 18U)
      << "a CPU cache alone has none";
  EXPECT_EQ(error_of(settings + "store_threshold=2"),
            "a.kvs: found these settings, expected no store_threshold above several tiers");
  EXPECT_EQ(error_of(settings, context_of(Profile::kV019)),
            "a.kvs: found these settings, expected a profile with the rule tiering: v0.23");
}

TEST(OffloadingSpecFactory, SlotsAboveTiersArePages) {
  const auto slots = [](const std::string& settings) {
    const auto spec = create("spec_name=TieringOffloadingSpec " + settings);
    EXPECT_TRUE(spec) << spec.error().to_text();
    return spec->manager.cache.capacity;
  };
  EXPECT_EQ(slots("cpu_bytes_to_use=4096"), 1U);
  EXPECT_EQ(slots("cpu_bytes_to_use=12287"), 2U);
  EXPECT_EQ(slots("cpu_bytes_to_use=16384 block_size_factor=11"), 2U) << "4400 bytes take two";
  EXPECT_EQ(error_of("spec_name=TieringOffloadingSpec cpu_bytes_to_use=4095"),
            "a.kvs:1:42: found cpu_bytes_to_use=4095, expected bytes for 1 to 2^32 - 1 slots, each "
            "of 1 blocks of 200 bytes for 2 workers, in pages of 4096");
}

TEST(OffloadingSpecFactory, EachBadSettingIsNamed) {
  EXPECT_EQ(error_of(""), "a.kvs: found no cpu_bytes_to_use, expected cpu_bytes_to_use=BYTES");
  EXPECT_EQ(error_of("cpu_bytes_to_use=0"),
            "a.kvs:1:10: found cpu_bytes_to_use=0, expected a whole number from 1 to "
            "9223372036854775807");
  EXPECT_EQ(error_of("cpu_bytes_to_use=399"),
            "a.kvs:1:10: found cpu_bytes_to_use=399, expected bytes for 1 to 2^32 - 1 slots, each "
            "of 1 blocks of 200 bytes for 2 workers");
  const std::string bytes = "cpu_bytes_to_use=4000 ";
  const auto expect_error = [&](const std::string& setting, const std::string& expected) {
    EXPECT_EQ(error_of(bytes + setting), "a.kvs:1:32: found " + setting + ", expected " + expected);
  };
  expect_error("block_size=24", "a multiple of 16");
  expect_error("block_size=0", "a whole number from 1 to 4294967295");
  expect_error("block_size_factor=-1", "a whole number from 1 to 4294967295");
  expect_error("block_size_factor=none", "a whole number from 1 to 4294967295");
  EXPECT_EQ(error_of(bytes + "block_size_factor=2 block_size=32"),
            "a.kvs:1:32: found block_size_factor=2, expected block_size or block_size_factor, not "
            "both");
  expect_error("eviction_policy=fifo", "one of lru, arc");
  expect_error("eviction_policy=1", "one of lru, arc");
  expect_error("store_threshold=few", "a whole number from 0 to 4294967295");
  expect_error("max_tracker_size=0", "a whole number from 1 to 4294967295");
  expect_error("offload_prompt_only=\"false\"", "true or false");
  expect_error("cpu_bytes=1",
               "one of cpu_bytes_to_use, block_size, block_size_factor, eviction_policy, "
               "store_threshold, max_tracker_size, offload_prompt_only");
}

TEST(OffloadingSpecFactory, AModelThatDoesNotFitIsRefused) {
  OffloadingSpecContext two_sizes = context_of(Profile::kV023);
  two_sizes.kv_cache.groups.push_back({.block_size = 32});
  EXPECT_EQ(error_of("cpu_bytes_to_use=4000 block_size=32", two_sizes),
            "a.kvs:1:32: found block_size=32, expected groups with one common block size");
  OffloadingSpecContext two_pages = context_of(Profile::kV019);
  two_pages.page_size_bytes.push_back(7);
  EXPECT_EQ(error_of("cpu_bytes_to_use=4000", two_pages),
            "a.kvs: found page_size_bytes of the groups, expected one common page size");
  OffloadingSpecContext no_blocks = context_of(Profile::kV023);
  no_blocks.kv_cache.pool.num_gpu_blocks = 0;
  EXPECT_EQ(error_of("cpu_bytes_to_use=4000", no_blocks),
            "a.kvs: found a KV cache without bytes, expected blocks, tensors and workers");
  OffloadingSpecContext two_groups = context_of(Profile::kV019);
  two_groups.kv_cache.groups.push_back({.block_size = 16});
  EXPECT_EQ(error_of("cpu_bytes_to_use=4000", two_groups),
            "a.kvs: found these settings, expected one group of full attention with blocks of "
            "hash_block_size");
}

TEST(OffloadingSpecFactory, ASpecIsFoundByName) {
  EXPECT_EQ(error_of("spec_name=Other"),
            "a.kvs:1:10: found spec_name=Other, expected one of CPUOffloadingSpec, "
            "TieringOffloadingSpec");
  OffloadingSpecFactory factory;
  EXPECT_FALSE(factory.register_spec("mine", make_cpu_offloading_spec));
  const auto error = factory.register_spec("mine", make_cpu_offloading_spec);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->to_text(), "found spec mine registered twice, expected each name once");
  const std::vector<Field> settings = settings_of("spec_name=mine cpu_bytes_to_use=4000");
  EXPECT_TRUE(factory.create_spec(settings, context_of(Profile::kV023)));
  EXPECT_FALSE(
      factory.create_spec(settings_of("cpu_bytes_to_use=4000"), context_of(Profile::kV023)))
      << "the default is not registered";
}

}  // namespace
}  // namespace kvfence
