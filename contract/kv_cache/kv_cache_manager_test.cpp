/// Goal: what check_config refuses. Method: configurations that differ in one setting.

#include "contract/kv_cache/kv_cache_manager.h"

#include <optional>

#include <gtest/gtest.h>

namespace kvfence {
namespace {

TEST(CheckConfig, ARetentionIntervalNeedsAWindow) {
  KVCacheManagerConfig config;
  config.pool.rules = rules_of(Profile::kV023);
  config.max_model_len = 64;
  config.groups.emplace_back().block_size = 4;
  config.retention_interval = 16;
  EXPECT_EQ(check_config(config), "retention_interval with a sliding-window group");
  config.groups.front().kind = KVCacheSpecKind::kSlidingWindow;
  config.groups.front().sliding_window = 4;
  EXPECT_EQ(check_config(config), std::nullopt);
}

}  // namespace
}  // namespace kvfence
