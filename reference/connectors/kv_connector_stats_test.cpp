// Goal: label names and values that Prometheus has no place for are refused. Method: one of each;
// what is counted is looked at by
// properties/engine/offloading/kv_connector_stats_unit_test.cpp.

#include "reference/connectors/kv_connector_stats.h"

#include <gtest/gtest.h>

#include <optional>

namespace kvfence::reference {
namespace {

TEST(OffloadPromMetrics, ABadConfigurationIsRefused) {
  OffloadPromMetricsConfig config;
  config.labelnames = {"engine"};
  config.per_engine_labelvalues[0] = {"0"};
  EXPECT_EQ(check_config(config), std::nullopt);
  config.per_engine_labelvalues[1] = {};
  EXPECT_EQ(check_config(config), "a label value a name for each engine");
  config.per_engine_labelvalues.erase(1);
  for (const char* name : {"", "1st", "a-b", "__a", "le", "transfer_type"}) {
    config.labelnames = {name};
    EXPECT_TRUE(check_config(config)) << name;
  }
  for (const char* name : {"a", "z", "A", "Z", "_", "a0", "a9", "_1"}) {
    config.labelnames = {name};
    EXPECT_EQ(check_config(config), std::nullopt) << name;
  }
  config.labelnames = {"a", "a"};
  EXPECT_EQ(check_config(config), "each label name once");
}

}  // namespace
}  // namespace kvfence::reference
