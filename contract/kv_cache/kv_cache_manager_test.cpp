/// Goal: what check_config refuses. Method: configurations that differ in one setting.

#include "contract/kv_cache/kv_cache_manager.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace kvfence {
namespace {

using Kind = KVCacheSpecKind;

/// One group of full attention, in a pool of four blocks.
KVCacheManagerConfig config_of(Profile profile) {
  KVCacheManagerConfig config;
  config.pool.rules = rules_of(profile);
  config.pool.num_gpu_blocks = 4;
  config.pool.max_block_size = 8;
  config.pool.hash.hash_block_size = 4;
  config.pool.enable_caching = true;
  config.max_model_len = 64;
  config.groups.emplace_back().block_size = 4;
  return config;
}

using Edit = void (*)(KVCacheManagerConfig& config, KVCacheSpec& group);

std::optional<std::string> wrong_with(Profile profile, Edit edit) {
  KVCacheManagerConfig config = config_of(profile);
  edit(config, config.groups.front());
  return check_config(config);
}

struct Case {
  std::optional<std::string> expected;
  std::vector<Edit> edits;
};

TEST(CheckConfig, RefusesWhatMakesNoSense) {
  const std::vector<Case> cases = {
      {std::nullopt, {[](auto&, auto&) {}}},
      {"at least one group", {[](auto& config, auto&) { config.groups.clear(); }}},
      {"a max_model_len of at least one token",
       {[](auto& config, auto&) { config.max_model_len = 0; }}},
      {"a block size of at least one token", {[](auto&, auto& group) { group.block_size = 0; }}},
      {"a block size that is a multiple of hash_block_size and at most max_block_size",
       {[](auto&, auto& group) { group.block_size = 6; },
        [](auto&, auto& group) { group.block_size = 12; }}},
      {"settings of the group's own kind alone",
       {[](auto&, auto& group) { group.sliding_window = 1; },
        [](auto&, auto& group) { group.attention_chunk_size = 1; },
        [](auto&, auto& group) { group.mamba_align = true; },
        [](auto&, auto& group) { group.num_speculative_blocks = 1; },
        [](auto&, auto& group) { group.sink_len = 1; }}},
      {"a window of at least one token",
       {[](auto&, auto& group) { group.kind = Kind::kSlidingWindow; }}},
      {"a chunk of at least one token",
       {[](auto&, auto& group) { group.kind = Kind::kChunkedLocal; }}},
      {"chunked local attention without eagle", {[](auto& config, auto& group) {
         group.kind = Kind::kChunkedLocal;
         group.attention_chunk_size = 4;
         config.use_eagle = true;
       }}},
      {"cross attention without prefix caching",
       {[](auto&, auto& group) { group.kind = Kind::kCrossAttention; }}},
      {"eagle_groups below the number of groups",
       {[](auto& config, auto&) { config.eagle_groups = {1}; }}},
      {"a single group whose block size is hash_block_size",
       {[](auto&, auto& group) { group.block_size = 8; }}},
      {"two different groups at least, or prefix caching off", {[](auto& config, auto& group) {
         config.groups = {group, group};
       }}},
  };
  for (const Case& each : cases) {
    for (const Edit edit : each.edits) {
      EXPECT_EQ(wrong_with(Profile::kV019, edit), each.expected);
      EXPECT_EQ(wrong_with(Profile::kV023, edit), each.expected);
    }
  }
}

TEST(CheckConfig, SinksFitIntoThePool) {
  const auto wrong_with_sinks = [](Profile profile, std::uint32_t sink_len) {
    KVCacheManagerConfig config = config_of(profile);
    config.groups.front().kind = Kind::kSinkFullAttention;
    config.groups.front().sink_len = sink_len;
    return check_config(config);
  };
  EXPECT_EQ(wrong_with_sinks(Profile::kV023, 4), "no attention sink in this profile");
  for (const std::uint32_t sink_len : {0U, 6U}) {
    EXPECT_EQ(wrong_with_sinks(Profile::kV019, sink_len),
              "a sink of a positive multiple of the block size");
  }
  EXPECT_EQ(wrong_with_sinks(Profile::kV019, 12), std::nullopt);
  EXPECT_EQ(wrong_with_sinks(Profile::kV019, 16), "sinks that fit into the pool");
}

TEST(CheckConfig, ARetentionIntervalNeedsAWindow) {
  KVCacheManagerConfig config = config_of(Profile::kV023);
  config.retention_interval = 16;
  EXPECT_EQ(check_config(config), "retention_interval with a sliding-window group");
  config.groups.front().kind = Kind::kSlidingWindow;
  config.groups.front().sliding_window = 4;
  EXPECT_EQ(check_config(config), std::nullopt);
  config.retention_interval = 6;
  EXPECT_EQ(check_config(config),
            "a retention_interval that is a multiple of the groups' common block size");
  config.pool.rules = rules_of(Profile::kV019);
  EXPECT_EQ(check_config(config), "no retention_interval in this profile");
}

}  // namespace
}  // namespace kvfence
