// Goal: transfers are counted as upstream counts them. Method: small histories, by hand.

#include "optimized/kv_connector_stats.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvfence::optimized {
namespace {

constexpr TransferType kStore{"GPU", "CPU"};
constexpr TransferType kLoad{"CPU", "GPU"};

using Data = std::vector<TransferOperations>;

Data data_of(const OffloadingConnectorStats& stats) {
  return {stats.data().begin(), stats.data().end()};
}

std::string log_of(const OffloadingConnectorStats& stats) {
  std::vector<TransferTotals> totals = {{"left over", 1, 1}};
  stats.reduce(totals);
  return to_log_text(totals);
}

TEST(OffloadingConnectorStats, OperationsStandByTypeInTheOrderOfTheirRecords) {
  OffloadingConnectorStats stats;
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

TEST(OffloadingConnectorStats, AggregatingAppendsAndLeavesTheOtherAlone) {
  OffloadingConnectorStats first;
  first.record_transfer(1, 0.5, kStore);
  OffloadingConnectorStats second;
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

TEST(OffloadingConnectorStats, ATypeWithoutOperationsCounts) {
  const Data data = {{"GPU_to_CPU", {}}};
  const OffloadingConnectorStats stats(data);
  EXPECT_FALSE(stats.is_empty());
  EXPECT_EQ(log_of(stats), "GPU_to_CPU_total_bytes=0, GPU_to_CPU_total_time=0.0");
  OffloadingConnectorStats sum;
  sum.aggregate(stats);
  EXPECT_EQ(data_of(sum), data);
}

TEST(OffloadPromMetrics, ASizeIsInEveryBucketWhoseBoundItDoesNotExceed) {
  OffloadPromMetricsConfig config;
  config.labelnames = {"engine"};
  config.per_engine_labelvalues[0] = {"0"};
  OffloadPromMetrics metrics(config);
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

TEST(OffloadPromMetrics, EnginesWithEqualLabelValuesShareTheirSeries) {
  OffloadPromMetricsConfig config;
  config.labelnames = {"engine"};
  config.per_engine_labelvalues = {{0, {"a"}}, {1, {"b"}}, {2, {"a"}}};
  OffloadPromMetrics metrics(config);
  metrics.observe(Data{{"GPU_to_CPU", {}}}, 1);
  metrics.observe(Data{{"GPU_to_CPU", {{1, 0.5}}}}, 0);
  const OffloadPromMetrics copy = metrics;
  metrics.observe(Data{{"GPU_to_CPU", {{2, 0.5}}}}, 2);
  const auto bytes = [](const OffloadPromMetrics& of) {
    std::vector<PrometheusMetric> out;
    of.collect(out);
    std::vector<double> values;
    for (const PrometheusSample& sample : out[0].samples) values.push_back(sample.value);
    return values;
  };
  EXPECT_EQ(bytes(metrics), (std::vector<double>{0, 3}));
  EXPECT_EQ(bytes(copy), (std::vector<double>{0, 1}));
}

TEST(OffloadingConnectorStats, AnIntervalLikeTheLastOneUsesItsMemory) {
  OffloadingConnectorStats stats;
  stats.record_transfer(1, 0.5, kStore);
  const OffloadingOperationMetrics* const memory = stats.data().front().ops.data();
  stats.reset();
  stats.record_transfer(2, 0.5, kStore);
  EXPECT_EQ(stats.data().front().ops.data(), memory);
}

}  // namespace
}  // namespace kvfence::optimized
