// Goal: a configuration with an offloading connector says what is wrong with its groups and its
// tiers, and lists the tiers in the spec. Method: configurations, one mistake each.

#include "contract/connectors/offloading/offloading_setup.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"

namespace kvfence {
namespace {

engine::Config config_of(std::vector<KVCacheSpec> groups) {
  engine::Config config;
  make_assembly(engine::Assembly::kOffloading, config);
  config.profile = Profile::kV023;
  config.hash_block_size = 1;
  config.groups = std::move(groups);
  return config;
}

KVCacheSpec full(std::uint32_t block_size) { return {.block_size = block_size}; }

KVCacheSpec sliding(std::uint32_t block_size, std::uint32_t window) {
  return {
      .kind = KVCacheSpecKind::kSlidingWindow, .block_size = block_size, .sliding_window = window};
}

std::string wrong_with(const engine::Config& config) {
  const auto setup = EngineTarget::prepare(config, {}, {});
  return setup ? "" : setup.error().to_text();
}

TEST(ConnectorSetup, WindowsFitWhereOthersEndHits) {
  EXPECT_EQ(wrong_with(config_of({full(4), sliding(2, 5), sliding(4, 4)})),
            "found a window of 4 tokens with block_size=4 beside block_size=2, expected blocks "
            "that end where the other ones do");
  EXPECT_EQ(wrong_with(config_of({full(4), sliding(3, 3)})),
            "found a window of 3 tokens with block_size=3 beside block_size=4, expected blocks "
            "that end where the other ones do");
  EXPECT_EQ(wrong_with(config_of({full(4), sliding(8, 8)})),
            "found a windowed group with block_size=8, expected at most 4, as in a full-attention "
            "group");
  for (const KVCacheSpec& window :
       {sliding(4, 3), sliding(2, 3), sliding(1, 9), sliding(3, 1), sliding(3, 5)}) {
    EXPECT_EQ(wrong_with(config_of({full(4), window})), "") << window.block_size;
  }
}

TEST(ConnectorSetup, EachEngineIndexHasALabel) {
  engine::Config config = config_of({full(1)});
  auto& labels = config.edit_connector<engine::offloading::Record>().engine_labels;
  labels = {7, 0};
  const auto prepared = EngineTarget::prepare(config, {}, {});
  ASSERT_TRUE(prepared) << prepared.error().to_text();
  const OffloadPromMetricsConfig& metrics = prepared->offloading->metrics;
  EXPECT_EQ(check_config(metrics), std::nullopt);
  EXPECT_EQ(metrics.per_engine_labelvalues, (std::map<std::uint32_t, std::vector<std::string>>{
                                                {0, {"toy", "7"}}, {1, {"toy", "0"}}}));
  labels.clear();
  EXPECT_EQ(wrong_with(config), "found engine_labels=[], expected at least one engine index");
}

TEST(ConnectorSetup, TiersNeedTheirSpec) {
  engine::Config config = config_of({full(1)});
  config.edit_connector<engine::offloading::Record>().num_tiers = 1;
  EXPECT_EQ(wrong_with(config),
            "found num_tiers=1 with spec_name=CPUOffloadingSpec, expected TieringOffloadingSpec");
}

TEST(ConnectorSetup, TheSpecListsTheTiers) {
  engine::Config config = config_of({full(4)});
  config.hash_block_size = 4;
  auto& record = config.edit_connector<engine::offloading::Record>();
  record.spec_name = "TieringOffloadingSpec";
  record.num_tiers = 3;
  record.request_level_tiers = {2};
  record.file_tiers = {1};
  const auto prepared = EngineTarget::prepare(config, {}, {});
  ASSERT_TRUE(prepared) << prepared.error().to_text();
  const ConnectorSetup& setup = *prepared->offloading;
  EXPECT_EQ(print(to_value(setup.spec.secondary_tiers)),
            "[(scripted place=0 request_level=false) (scripted_files place=1 request_level=false) "
            "(scripted place=2 request_level=true)]");
  EXPECT_TRUE(setup.has_files(1));
  EXPECT_FALSE(setup.has_files(0) || setup.has_files(2) || setup.has_files(3));
  record.file_tiers = {1, 1};
  EXPECT_EQ(wrong_with(config),
            "found file_tiers with 1, expected places below num_tiers=3, ascending, each once");
  record.file_tiers = {};
  record.request_level_tiers = {3};
  EXPECT_EQ(wrong_with(config),
            "found request_level_tiers with 3, expected places below num_tiers=3, ascending, each "
            "once");
}

}  // namespace
}  // namespace kvfence
