// Tests that the statistics and metrics of both sides are those of vLLM, with the cases of
// contract/golden/kv_connector_stats_golden.txt, which vLLM and the Prometheus client wrote. Only
// these cases have types without operations, which no engine sends.
//
// Change the golden file only when a pinned release, or the client, gives other answers.

#include "contract/connectors/kv_connector_stats.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "optimized/connectors/kv_connector_stats.h"
#include "properties/core/both_sides_test_support.h"
#include "reference/connectors/kv_connector_stats.h"

namespace kvfence {
namespace {

using nlohmann::json;
using Data = std::vector<TransferOperations>;

std::vector<json> golden_cases(const std::string& kind) {
  std::ifstream file(KVFENCE_GOLDEN_DIR "/kv_connector_stats_golden.txt");
  std::vector<json> cases;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    json golden = json::parse(line);
    if (golden.at("kind") == kind) cases.push_back(std::move(golden));
  }
  EXPECT_FALSE(cases.empty()) << "no case of " << kind;
  return cases;
}

Data data_of(const json& golden) {
  Data data;
  for (const json& type : golden) {
    TransferOperations& each = data.emplace_back();
    type.at(0).get_to(each.transfer_type);
    for (const json& op : type.at(1)) {
      each.ops.push_back({op.at(0).get<std::uint64_t>(), op.at(1).get<double>()});
    }
  }
  return data;
}

template <class Stats>
void record(const json& golden, Stats& stats) {
  for (const json& transfer : golden) {
    const std::string src = transfer.at(2);
    const std::string dst = transfer.at(3);
    stats.record_transfer(transfer.at(0), transfer.at(1), {src, dst});
  }
}

struct ReferenceTypes {
  using Stats = reference::OffloadingConnectorStats;
  using Metrics = reference::OffloadPromMetrics;
};
struct OptimizedTypes {
  using Stats = optimized::OffloadingConnectorStats;
  using Metrics = optimized::OffloadPromMetrics;
};
using Sides = ::testing::Types<ReferenceTypes, OptimizedTypes>;

template <class Types>
class KVConnectorStatsRules : public ::testing::Test {};
TYPED_TEST_SUITE(KVConnectorStatsRules, Sides, SideNames);

TYPED_TEST(KVConnectorStatsRules, StatisticsAreThoseOfVllm) {
  for (const json& golden : golden_cases("stats")) {
    typename TypeParam::Stats left;
    typename TypeParam::Stats right;
    record(golden.at("left"), left);
    record(golden.at("right"), right);
    left.aggregate(right.data());
    EXPECT_EQ(left.is_empty(), golden.at("is_empty").get<bool>());
    EXPECT_EQ(Data(left.data().begin(), left.data().end()), data_of(golden.at("data")));
    std::vector<TransferTotals> totals;
    left.reduce(totals);
    EXPECT_EQ(to_log_text(totals), golden.at("log").get<std::string>());
  }
}

TYPED_TEST(KVConnectorStatsRules, MetricsAreThoseOfVllm) {
  for (const json& golden : golden_cases("metrics")) {
    OffloadPromMetricsConfig config;
    golden.at("labelnames").get_to(config.labelnames);
    for (const json& engine : golden.at("engines")) {
      engine.at(1).get_to(config.per_engine_labelvalues[engine.at(0).get<std::uint32_t>()]);
    }
    ASSERT_FALSE(check_config(config));
    typename TypeParam::Metrics metrics(config);
    for (const json& observation : golden.at("observations")) {
      metrics.observe(data_of(observation.at(1)), observation.at(0).get<std::uint32_t>());
    }
    std::vector<PrometheusMetric> out;
    metrics.collect(out);
    EXPECT_EQ(print(out), golden.at("text").get<std::string>());
  }
}

TEST(PrometheusTextGolden, NumbersAreThoseOfTheClient) {
  for (const json& golden : golden_cases("number")) {
    const std::string hex = golden.at("hex");
    EXPECT_EQ(prometheus_number(std::strtod(hex.c_str(), nullptr)), golden.at("text")) << hex;
  }
}

}  // namespace
}  // namespace kvfence
