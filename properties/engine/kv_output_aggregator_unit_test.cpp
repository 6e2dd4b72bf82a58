// Tests the aggregation over ranks on both sides.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "optimized/connectors/kv_output_aggregator.h"
#include "properties/core/both_sides_test_support.h"
#include "reference/connectors/kv_output_aggregator.h"

namespace kvfence {
namespace {

using Ids = std::vector<BlockId>;
using Jobs = std::vector<CompletedJob>;
using Names = std::vector<std::string>;
using Outputs = std::vector<KVConnectorWorkerOutput>;

KVConnectorWorkerOutput sent(Names requests) {
  KVConnectorWorkerOutput output;
  output.finished_sending = std::move(requests);
  return output;
}

KVConnectorWorkerOutput received(Names requests, Ids invalid_block_ids = {}) {
  KVConnectorWorkerOutput output;
  output.finished_recving = std::move(requests);
  output.invalid_block_ids = std::move(invalid_block_ids);
  return output;
}

KVConnectorWorkerOutput completed(std::vector<TransferResult> jobs) {
  KVConnectorWorkerOutput output;
  output.completed_jobs = std::move(jobs);
  return output;
}

template <class KVOutputAggregator>
AggregatedOutput aggregate(KVOutputAggregator& aggregator, const Outputs& outputs) {
  AggregatedOutput out = {{"before"}, {"before"}, {9}, {{9, 9, 9}}, {{"before", {}}}};
  aggregator.aggregate(outputs, out);
  return out;
}

template <class Aggregator>
class KVOutputAggregatorRules : public ::testing::Test {};
using Aggregators = ::testing::Types<reference::KVOutputAggregator, optimized::KVOutputAggregator>;
TYPED_TEST_SUITE(KVOutputAggregatorRules, Aggregators, SideNames);

// Upstream: test_aggregate_workers_output.
TYPED_TEST(KVOutputAggregatorRules, ARequestIsFinishedWhenAllRanksReportedIt) {
  TypeParam aggregator(2);
  EXPECT_EQ(aggregate(aggregator, {sent({"A"}), received({"B"})}), AggregatedOutput());
  EXPECT_EQ(aggregate(aggregator, {received({"B"}), received({})}),
            (AggregatedOutput{{}, {"B"}, {}, {}}));
  EXPECT_EQ(aggregate(aggregator, {received({}), sent({"A"})}),
            (AggregatedOutput{{"A"}, {}, {}, {}}));
}

TYPED_TEST(KVOutputAggregatorRules, SendingAndReceivingAreCountedApart) {
  TypeParam aggregator(2);
  EXPECT_EQ(aggregate(aggregator, {sent({"A"}), received({"A"})}), AggregatedOutput());
}

TYPED_TEST(KVOutputAggregatorRules, ARequestStandsWhereTheReportThatCompletesItDoes) {
  TypeParam aggregator(2);
  EXPECT_EQ(aggregate(aggregator, {sent({"A"}), sent({"B", "C"})}), AggregatedOutput());
  EXPECT_EQ(aggregate(aggregator, {sent({"C", "B"}), sent({"A"})}).finished_sending,
            Names({"C", "B", "A"}));
}

TYPED_TEST(KVOutputAggregatorRules, AFinishedRequestCanBeReportedAnew) {
  TypeParam aggregator(2);
  EXPECT_EQ(aggregate(aggregator, {received({"A"}), received({"A"})}).finished_recving,
            Names({"A"}));
  EXPECT_EQ(aggregate(aggregator, {received({"A"}), received({})}).finished_recving, Names());
  EXPECT_EQ(aggregate(aggregator, {received({}), received({"A"})}).finished_recving, Names({"A"}));
}

TYPED_TEST(KVOutputAggregatorRules, InvalidBlocksAreThoseOfAnyRank) {
  TypeParam aggregator(3);
  EXPECT_EQ(aggregate(aggregator, {received({"A"}, {7, 3}), received({}), received({"A"}, {5, 3})}),
            (AggregatedOutput{{}, {}, {3, 5, 7}, {}}));
}

// Upstream: test_worker_metadata.py, its sums.
TYPED_TEST(KVOutputAggregatorRules, JobsAreSummedOverTheStepAlone) {
  TypeParam aggregator(2);
  const Outputs outputs = {completed({{4, true}, {1, true}}), completed({{1, false}, {2, true}})};
  EXPECT_EQ(aggregate(aggregator, outputs).completed_jobs, Jobs({{1, 2, 1}, {2, 1, 0}, {4, 1, 0}}));
  EXPECT_EQ(aggregate(aggregator, {completed({}), completed({{4, true}})}).completed_jobs,
            Jobs({{4, 1, 0}}));
}

TYPED_TEST(KVOutputAggregatorRules, StatisticsAreAggregatedRankByRank) {
  TypeParam aggregator(2);
  KVConnectorWorkerOutput stored;
  stored.stats = {{"GPU_to_CPU", {{4096, 1e-6}}}};
  KVConnectorWorkerOutput loaded_and_stored;
  loaded_and_stored.stats = {{"CPU_to_GPU", {{8192, 3e-6}}}, {"GPU_to_CPU", {{4096, 2e-6}}}};
  const std::vector<TransferOperations> all = {{"GPU_to_CPU", {{4096, 1e-6}, {4096, 2e-6}}},
                                               {"CPU_to_GPU", {{8192, 3e-6}}}};
  EXPECT_EQ(aggregate(aggregator, {stored, loaded_and_stored}).stats, all);
  EXPECT_EQ(aggregate(aggregator, {{}, stored}).stats, stored.stats);
}

TYPED_TEST(KVOutputAggregatorRules, StatisticsOfChildrenAreAggregatedClassByClass) {
  TypeParam aggregator(2);
  KVConnectorWorkerOutput first;
  first.stats_of_children = {{"b", {{"GPU_to_CPU", {{8, 1.0}}}}}};
  KVConnectorWorkerOutput second;
  second.stats_of_children = {{"a", {{"GPU_to_CPU", {{4, 1.0}}}}},
                              {"b", {{"GPU_to_CPU", {{8, 2.0}}}}}};
  const std::vector<TransferOperationsOfClass> both = {
      {"b", {{"GPU_to_CPU", {{8, 1.0}, {8, 2.0}}}}}, {"a", {{"GPU_to_CPU", {{4, 1.0}}}}}};
  EXPECT_EQ(aggregate(aggregator, {first, second}).stats_of_children, both);
  EXPECT_TRUE(aggregate(aggregator, {first, second}).stats.empty());
  EXPECT_EQ(aggregate(aggregator, {{}, second}).stats_of_children, second.stats_of_children);
}

TYPED_TEST(KVOutputAggregatorRules, ACopyGoesItsOwnWay) {
  TypeParam aggregator(2);
  aggregate(aggregator, {sent({"A"}), sent({})});
  TypeParam copy = aggregator;
  EXPECT_EQ(aggregate(copy, {sent({}), sent({"A"})}).finished_sending, Names({"A"}));
  EXPECT_EQ(aggregate(aggregator, {sent({}), sent({})}).finished_sending, Names());
  EXPECT_EQ(aggregate(aggregator, {sent({}), sent({"A"})}).finished_sending, Names({"A"}));
}

TYPED_TEST(KVOutputAggregatorRules, OneRankIsAll) {
  TypeParam aggregator(1);
  EXPECT_EQ(aggregate(aggregator, {received({"A"})}).finished_recving, Names({"A"}));
  EXPECT_EQ(aggregate(aggregator, {received({"A"})}).finished_recving, Names({"A"}));
}

TEST(ReferenceAggregatorDeathTest, EachRankReports) {
  reference::KVOutputAggregator aggregator(2);
  EXPECT_DEATH(aggregate(aggregator, {sent({"A"})}), "each rank reports");
}

}  // namespace
}  // namespace kvfence
