/// Goal: what a scheduler's configuration is refused for, and how little is enough. Method: a good
/// one, and one member changed to either side of its bound.

#include "contract/scheduler/scheduler.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace kvfence {
namespace {

using Change = std::function<void(SchedulerConfig&)>;

KVCacheSpec mamba_in_align_mode(std::uint32_t block_size) {
  return {.kind = KVCacheSpecKind::kMamba, .block_size = block_size, .mamba_align = true};
}

SchedulerConfig changed(const Change& change) {
  SchedulerConfig config;
  config.kv_cache.pool.num_gpu_blocks = 4;
  config.kv_cache.pool.hash.hash_block_size = 4;
  config.kv_cache.pool.max_block_size = 8;
  config.kv_cache.groups = {{.block_size = 4}};
  config.kv_cache.max_model_len = 2;
  config.max_num_seqs = 1;
  config.max_num_scheduled_tokens = 4;
  change(config);
  return config;
}

std::string expected_by(const Change& change, bool has_connector = false) {
  return check_config(changed(change), has_connector).value_or("");
}

TEST(SchedulerConfig, TheLeastIsAccepted) {
  EXPECT_EQ(expected_by([](SchedulerConfig&) {}, /*has_connector=*/true), "");
  EXPECT_EQ(expected_by([](SchedulerConfig& c) { c.max_concurrent_batches = 2; }), "");
  EXPECT_EQ(expected_by([](SchedulerConfig& c) { c.num_speculative_tokens = 1; }), "");
  EXPECT_EQ(expected_by([](SchedulerConfig& c) {
              c.max_concurrent_batches = 2;
              c.num_speculative_tokens = 1;
              c.async_scheduling = true;
            }),
            "");
  EXPECT_EQ(expected_by([](SchedulerConfig& c) {
              c.kv_cache.use_eagle = c.draft_model = true;
              c.num_speculative_tokens = 1;
            }),
            "");
  EXPECT_EQ(expected_by([](SchedulerConfig& c) {
              c.kv_cache.groups = {mamba_in_align_mode(4)};
              c.long_prefill_token_threshold = 4;
            }),
            "");
}

TEST(SchedulerConfig, LessIsRefused) {
  EXPECT_EQ(expected_by([](SchedulerConfig& c) { c.kv_cache.max_model_len = 1; }),
            "max_model_len of at least 2: a prompt, an output");
  EXPECT_EQ(expected_by([](SchedulerConfig& c) { c.max_num_seqs = 0; }),
            "max_num_seqs of at least 1");
  EXPECT_EQ(expected_by([](SchedulerConfig& c) { c.max_num_scheduled_tokens = 0; }),
            "a positive max_num_scheduled_tokens or max_num_batched_tokens");
  for (const std::uint32_t batches : {0U, 3U}) {
    EXPECT_EQ(expected_by([&](SchedulerConfig& c) { c.max_concurrent_batches = batches; }),
              "max_concurrent_batches of 1 or 2");
  }
}

TEST(SchedulerConfig, DraftsThatAreNotThereCannotBePlannedWith) {
  EXPECT_EQ(expected_by([](SchedulerConfig& c) {
              c.max_concurrent_batches = 2;
              c.num_speculative_tokens = 1;
            }),
            "async_scheduling with num_speculative_tokens and max_concurrent_batches of 2");
  const std::string none = "num_speculative_tokens of at least 1 with use_eagle or draft_model";
  EXPECT_EQ(expected_by([](SchedulerConfig& c) { c.kv_cache.use_eagle = true; }), none);
  EXPECT_EQ(expected_by([](SchedulerConfig& c) { c.draft_model = true; }), none);
}

TEST(SchedulerConfig, OfGroups) {
  EXPECT_EQ(expected_by([](SchedulerConfig& c) {
              c.kv_cache.pool.enable_caching = false;
              c.kv_cache.groups = {{.block_size = 8}};
            }),
            "a single group with a block_size of hash_block_size");
  EXPECT_EQ(expected_by([](SchedulerConfig& c) {
              c.kv_cache.pool.enable_caching = false;
              c.kv_cache.groups = {{.kind = KVCacheSpecKind::kCrossAttention, .block_size = 4}};
            }),
            "no cross attention: a scheduler has no encoder inputs");
  EXPECT_EQ(expected_by([](SchedulerConfig& c) { c.kv_cache.groups = {mamba_in_align_mode(4)}; },
                        /*has_connector=*/true),
            "no connector with a Mamba group in align mode");
  EXPECT_EQ(expected_by([](SchedulerConfig& c) {
              c.kv_cache.groups = {mamba_in_align_mode(4), mamba_in_align_mode(8)};
              c.max_num_scheduled_tokens = 8;
            }),
            "one block_size for all Mamba groups in align mode");
}

TEST(SchedulerConfig, AStepTakesABlockOfMambaInAlignMode) {
  const std::string a_block =
      "a token budget and long_prefill_token_threshold of at least the block_size of Mamba groups "
      "in align mode";
  EXPECT_EQ(expected_by([](SchedulerConfig& c) {
              c.kv_cache.groups = {mamba_in_align_mode(4)};
              c.max_num_scheduled_tokens = 3;
            }),
            a_block);
  EXPECT_EQ(expected_by([](SchedulerConfig& c) {
              c.kv_cache.groups = {mamba_in_align_mode(4)};
              c.long_prefill_token_threshold = 3;
            }),
            a_block);
}

}  // namespace
}  // namespace kvfence
