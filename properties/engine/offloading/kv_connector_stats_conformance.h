#pragma once

/// One named test a rule of contract/connectors/kv_connector_stats.h, small histories by hand, for
/// any statistics of transfers and the metrics that take them in.
///
///     INSTANTIATE_TYPED_TEST_SUITE_P(Mine, KVConnectorStatsConformance, MyTypes);
///
/// in the namespace kv_connector_stats, where MyTypes is a ::testing::Types of types with Stats and
/// Metrics.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "contract/connectors/kv_connector_stats.h"

namespace kvfence::kv_connector_stats {

using Data = std::vector<TransferOperations>;

inline constexpr TransferType kStore{"GPU", "CPU"};
inline constexpr TransferType kLoad{"CPU", "GPU"};

template <class Stats>
Data data_of(const Stats& stats) {
  return {stats.data().begin(), stats.data().end()};
}

template <class Stats>
std::string log_of(const Stats& stats) {
  std::vector<TransferTotals> totals = {{"left over", 1, 1}};
  stats.reduce(totals);
  return to_log_text(totals);
}

template <class Types>
class KVConnectorStatsConformance : public ::testing::Test {};

TYPED_TEST_SUITE_P(KVConnectorStatsConformance);

TYPED_TEST_P(KVConnectorStatsConformance, OperationsStandByTypeInTheOrderOfTheirRecords) {
  typename TypeParam::Stats stats;
  EXPECT_TRUE(stats.is_empty());
  EXPECT_EQ(log_of(stats), "");
  stats.record_transfer(8, 0.5, kStore);
  stats.record_transfer(1, 0.25, kLoad);
  stats.record_transfer(2, 0.125, kStore);
  EXPECT_FALSE(stats.is_empty());
  EXPECT_EQ(data_of(stats),
            (Data{{"GPU_to_CPU", {{8, 0.5}, {2, 0.125}}}, {"CPU_to_GPU", {{1, 0.25}}}}));
  EXPECT_EQ(log_of(stats),
            "GPU_to_CPU_total_bytes=10, GPU_to_CPU_total_time=0.625, CPU_to_GPU_total_bytes=1, "
            "CPU_to_GPU_total_time=0.25");
  stats.reset();
  EXPECT_TRUE(stats.is_empty());
  stats.record_transfer(4, 0.5, kLoad);
  EXPECT_EQ(data_of(stats), (Data{{"CPU_to_GPU", {{4, 0.5}}}}));
  EXPECT_EQ(log_of(stats), "CPU_to_GPU_total_bytes=4, CPU_to_GPU_total_time=0.5");
}

TYPED_TEST_P(KVConnectorStatsConformance, AggregatingAppendsAndLeavesTheOtherAlone) {
  typename TypeParam::Stats first;
  first.record_transfer(1, 0.5, kStore);
  typename TypeParam::Stats second;
  second.record_transfer(2, 0.5, kLoad);
  second.record_transfer(3, 0.5, kStore);
  first.aggregate(second);
  first.record_transfer(4, 0.5, kLoad);
  EXPECT_EQ(data_of(first),
            (Data{{"GPU_to_CPU", {{1, 0.5}, {3, 0.5}}}, {"CPU_to_GPU", {{2, 0.5}, {4, 0.5}}}}));
  EXPECT_EQ(data_of(second), (Data{{"CPU_to_GPU", {{2, 0.5}}}, {"GPU_to_CPU", {{3, 0.5}}}}));
  EXPECT_EQ(log_of(first),
            "GPU_to_CPU_total_bytes=4, GPU_to_CPU_total_time=1.0, CPU_to_GPU_total_bytes=6, "
            "CPU_to_GPU_total_time=1.0");
  second.aggregate(second);
  EXPECT_EQ(data_of(second),
            (Data{{"CPU_to_GPU", {{2, 0.5}, {2, 0.5}}}, {"GPU_to_CPU", {{3, 0.5}, {3, 0.5}}}}));
}

TYPED_TEST_P(KVConnectorStatsConformance, ATypeWithoutOperationsCounts) {
  const Data data = {{"GPU_to_CPU", {}}};
  const typename TypeParam::Stats stats(data);
  EXPECT_FALSE(stats.is_empty());
  EXPECT_EQ(log_of(stats), "GPU_to_CPU_total_bytes=0, GPU_to_CPU_total_time=0.0");
  typename TypeParam::Stats sum;
  sum.aggregate(stats);
  EXPECT_EQ(data_of(sum), data);
}

TYPED_TEST_P(KVConnectorStatsConformance, ASizeIsInEveryBucketWhoseBoundItDoesNotExceed) {
  OffloadPromMetricsConfig config;
  config.labelnames = {"engine"};
  config.per_engine_labelvalues[0] = {"0"};
  typename TypeParam::Metrics metrics(config);
  metrics.observe(Data{{"GPU_to_CPU", {{1'000'000, 0.5}, {1'000'001, 0.25}, {300'000'000, 0.25}}}},
                  0);
  std::vector<PrometheusMetric> out;
  metrics.collect(out);
  ASSERT_EQ(out.size(), 3U);
  const std::vector<PrometheusLabel> labels = {{"engine", "0"}, {"transfer_type", "GPU_to_CPU"}};
  EXPECT_EQ(out[0].samples, (std::vector<PrometheusSample>{{"_total", labels, 302'000'001}}));
  EXPECT_EQ(out[1].samples, (std::vector<PrometheusSample>{{"_total", labels, 1}}));
  std::vector<double> values;
  for (const PrometheusSample& sample : out[2].samples) values.push_back(sample.value);
  EXPECT_EQ(values, (std::vector<double>{1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 302'000'001}));
  EXPECT_EQ(out[2].samples[0].labels.back(), (PrometheusLabel{"le", "1e+06"}));
  EXPECT_EQ(out[2].samples[10].labels.back(), (PrometheusLabel{"le", "+Inf"}));
}

TYPED_TEST_P(KVConnectorStatsConformance, EnginesWithEqualLabelValuesShareTheirSeries) {
  OffloadPromMetricsConfig config;
  config.labelnames = {"engine"};
  config.per_engine_labelvalues = {{0, {"a"}}, {1, {"b"}}, {2, {"a"}}};
  typename TypeParam::Metrics metrics(config);
  metrics.observe(Data{{"GPU_to_CPU", {}}}, 1);
  metrics.observe(Data{{"GPU_to_CPU", {{1, 0.5}}}}, 0);
  const typename TypeParam::Metrics copy = metrics;
  metrics.observe(Data{{"GPU_to_CPU", {{2, 0.5}}}}, 2);
  const auto bytes = [](const typename TypeParam::Metrics& of) {
    std::vector<PrometheusMetric> out;
    of.collect(out);
    std::vector<double> values;
    for (const PrometheusSample& sample : out[0].samples) values.push_back(sample.value);
    return values;
  };
  EXPECT_EQ(bytes(metrics), (std::vector<double>{0, 3}));
  EXPECT_EQ(bytes(copy), (std::vector<double>{0, 1}));
}

REGISTER_TYPED_TEST_SUITE_P(KVConnectorStatsConformance,
                            OperationsStandByTypeInTheOrderOfTheirRecords,
                            AggregatingAppendsAndLeavesTheOtherAlone, ATypeWithoutOperationsCounts,
                            ASizeIsInEveryBucketWhoseBoundItDoesNotExceed,
                            EnginesWithEqualLabelValuesShareTheirSeries);

}  // namespace kvfence::kv_connector_stats
