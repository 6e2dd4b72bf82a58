// Goal: what all ranks report is one report. Method: ranks that report in different steps.

#include "optimized/connectors/kv_output_aggregator.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvfence::optimized {
namespace {

using Names = std::vector<std::string>;

KVConnectorWorkerOutput received(Names names) {
  KVConnectorWorkerOutput output;
  output.finished_recving = std::move(names);
  return output;
}

AggregatedOutput aggregate(KVOutputAggregator& aggregator,
                           const std::vector<KVConnectorWorkerOutput>& outputs) {
  AggregatedOutput out;
  out.finished_sending = {"left over"};
  aggregator.aggregate(outputs, out);
  return out;
}

TEST(KVOutputAggregator, ARequestIsFinishedWhenTheLastRankSaysSo) {
  KVOutputAggregator aggregator(3);
  EXPECT_EQ(aggregate(aggregator, {received({"A", "B"}), received({"B"}), {}}), AggregatedOutput());
  EXPECT_EQ(aggregate(aggregator, {{}, received({"A"}), received({"B", "A"})}).finished_recving,
            (Names{"B", "A"}));
  // Anew.
  EXPECT_TRUE(aggregate(aggregator, {received({"A"}), {}, {}}).finished_recving.empty());
  EXPECT_EQ(aggregate(aggregator, {{}, received({"A"}), received({"A"})}).finished_recving,
            Names{"A"});
}

TEST(KVOutputAggregator, SendingAndReceivingAreCountedApart) {
  KVOutputAggregator aggregator(2);
  KVConnectorWorkerOutput sent;
  sent.finished_sending = {"A"};
  EXPECT_EQ(aggregate(aggregator, {sent, received({"A"})}), AggregatedOutput());
  const AggregatedOutput out = aggregate(aggregator, {received({"A"}), sent});
  EXPECT_EQ(out.finished_sending, Names{"A"});
  EXPECT_EQ(out.finished_recving, Names{"A"});
}

TEST(KVOutputAggregator, OneRankIsAll) {
  KVOutputAggregator aggregator(1);
  EXPECT_EQ(aggregate(aggregator, {received({"A"})}).finished_recving, Names{"A"});
  EXPECT_EQ(aggregate(aggregator, {received({"A"})}).finished_recving, Names{"A"});
}

TEST(KVOutputAggregator, InvalidBlocksAreThoseOfAnyRankAndJobsAddUpWithinAStep) {
  KVOutputAggregator aggregator(2);
  KVConnectorWorkerOutput first;
  first.invalid_block_ids = {7, 2};
  first.completed_jobs = {{5, true}, {1, false}};
  KVConnectorWorkerOutput second;
  second.invalid_block_ids = {2, 9};
  second.completed_jobs = {{1, true}, {3, true}, {5, true}};
  const AggregatedOutput out = aggregate(aggregator, {first, second});
  EXPECT_EQ(out.invalid_block_ids, (std::vector<BlockId>{2, 7, 9}));
  EXPECT_EQ(out.completed_jobs, (std::vector<CompletedJob>{{1, 2, 1}, {3, 1, 0}, {5, 2, 0}}));
  EXPECT_EQ(aggregate(aggregator, {{}, {}}), AggregatedOutput());
}

TEST(KVOutputAggregator, StatisticsAreThoseOfAllRanksInThisStep) {
  KVOutputAggregator aggregator(2);
  KVConnectorWorkerOutput first;
  first.stats = {{"CPU_to_GPU", {{8, 2.0}}}};
  KVConnectorWorkerOutput second;
  second.stats = {{"GPU_to_CPU", {{4, 1.0}}}, {"CPU_to_GPU", {{8, 3.0}}}};
  const std::vector<TransferOperations> both = {{"CPU_to_GPU", {{8, 2.0}, {8, 3.0}}},
                                                {"GPU_to_CPU", {{4, 1.0}}}};
  EXPECT_EQ(aggregate(aggregator, {first, second}).stats, both);
  EXPECT_EQ(aggregate(aggregator, {{}, second}).stats, second.stats);
}

TEST(KVOutputAggregator, StatisticsOfChildrenStayByClass) {
  KVOutputAggregator aggregator(2);
  KVConnectorWorkerOutput first;
  first.stats_of_children = {{"b", {{"GPU_to_CPU", {{8, 1.0}}}}}};
  KVConnectorWorkerOutput second;
  second.stats_of_children = {{"a", {{"GPU_to_CPU", {{4, 1.0}}}}},
                              {"b", {{"GPU_to_CPU", {{8, 2.0}}}}}};
  const std::vector<TransferOperationsOfClass> both = {
      {"b", {{"GPU_to_CPU", {{8, 1.0}, {8, 2.0}}}}}, {"a", {{"GPU_to_CPU", {{4, 1.0}}}}}};
  EXPECT_EQ(aggregate(aggregator, {first, second}).stats_of_children, both);
  EXPECT_EQ(aggregate(aggregator, {{}, second}).stats_of_children, second.stats_of_children);
  EXPECT_EQ(aggregate(aggregator, {{}, {}}), AggregatedOutput());
}

TEST(KVOutputAggregator, ACopyCountsOnItsOwn) {
  KVOutputAggregator aggregator(2);
  aggregate(aggregator, {received({"A"}), {}});
  KVOutputAggregator copy = aggregator;
  EXPECT_EQ(aggregate(copy, {{}, received({"A"})}).finished_recving, Names{"A"});
  EXPECT_EQ(aggregate(aggregator, {{}, received({"A"})}).finished_recving, Names{"A"});
}

}  // namespace
}  // namespace kvfence::optimized
