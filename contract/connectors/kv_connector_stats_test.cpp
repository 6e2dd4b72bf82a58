#include "contract/connectors/kv_connector_stats.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace kvfence {
namespace {

std::optional<std::string> wrong_with(const std::vector<std::string>& labelnames) {
  OffloadPromMetricsConfig config;
  config.labelnames = labelnames;
  config.per_engine_labelvalues[0] = std::vector<std::string>(labelnames.size(), "value");
  return check_config(config);
}

TEST(OffloadPromMetricsConfig, LabelsHaveNamesOfPrometheus) {
  EXPECT_EQ(wrong_with({}), std::nullopt);
  EXPECT_EQ(wrong_with({"a", "z", "A", "Z", "_", "a0", "a9", "_1"}), std::nullopt);
  for (const char* name : {"", "9a", "a-b", "a:b", "a{", "a@", "a`", "a/", "__a"}) {
    EXPECT_EQ(wrong_with({"engine", name}), "a label name of letters, digits and underscores")
        << name;
  }
  EXPECT_EQ(wrong_with({"le"}), "label names besides le and transfer_type");
  EXPECT_EQ(wrong_with({"transfer_type"}), "label names besides le and transfer_type");
  EXPECT_EQ(wrong_with({"engine", "engine"}), "each label name once");
}

TEST(OffloadPromMetricsConfig, AnEngineHasAValuePerLabel) {
  OffloadPromMetricsConfig config;
  config.labelnames = {"engine"};
  config.per_engine_labelvalues = {{0, {"0"}}, {1, {"1", "more"}}};
  EXPECT_EQ(check_config(config), "a label value per name for each engine");
}

}  // namespace
}  // namespace kvfence
