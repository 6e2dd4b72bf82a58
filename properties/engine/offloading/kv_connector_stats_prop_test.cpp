// Goal: statistics and metrics of transfers are the same on both sides and those of vLLM.
// Method: random operations on both, compared after each; every planted bug has to show; the cases
// of contract/golden/kv_connector_stats_golden.txt, which vLLM and the Prometheus client wrote.
//
// A change of the golden file is right only when a pinned release, or the client, answers
// otherwise.

#include "contract/connectors/kv_connector_stats.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "optimized/connectors/kv_connector_stats.h"
#include "planted/optimized/connectors/kv_connector_stats.h"
#include "properties/core/rapid_property.h"
#include "properties/draws/choices.h"
#include "properties/planted/bugs.h"
#include "properties/planted/switches.h"
#include "reference/connectors/kv_connector_stats.h"

namespace kvfence {
namespace {

using nlohmann::json;
using Data = std::vector<TransferOperations>;

constexpr std::array<std::string_view, 3> kMedia = {"GPU", "CPU", "DISK"};
/// Sums of these depend on the order in which they are added.
constexpr std::array<double, 6> kTimes = {0, 0.1, 0.2, 0.3, 1e-9, 1e15};

/// Around the bounds of the buckets, and below and above all of them.
std::uint64_t draw_size(Choices& choices) {
  const std::uint32_t place = choices.below(kOffloadSizeBuckets.size() + 2);
  if (place == kOffloadSizeBuckets.size()) return choices.below(3);
  if (place > kOffloadSizeBuckets.size()) return UINT64_MAX - choices.below(3);
  return static_cast<std::uint64_t>(kOffloadSizeBuckets[place]) + choices.below(3) - 1;
}

TransferType draw_type(Choices& choices) {
  const std::string_view src = kMedia[choices.below(3)];
  return {src, kMedia[choices.below(3)]};
}

std::vector<OffloadingOperationMetrics> draw_ops(Choices& choices) {
  std::vector<OffloadingOperationMetrics> ops(choices.below(4));
  for (OffloadingOperationMetrics& op : ops) {
    op.op_size = draw_size(choices);
    op.op_time = kTimes[choices.below(kTimes.size())];
  }
  return ops;
}

/// Of 0 to 2 types, some without operations.
Data draw_data(Choices& choices) {
  Data data;
  for (std::string_view src : kMedia) {
    if (data.size() < 2 && choices.once_in(2)) {
      data.push_back({std::string(src) + "_to_CPU", draw_ops(choices)});
    }
  }
  return data;
}

OffloadPromMetricsConfig draw_config(Choices& choices) {
  OffloadPromMetricsConfig config;
  config.labelnames = {"model_name", "engine"};
  const std::uint32_t num_engines = 1 + choices.below(4);
  for (std::uint32_t engine = 0; engine < num_engines; ++engine) {
    config.per_engine_labelvalues[engine * 7] = {"model", std::to_string(choices.below(3))};
  }
  return config;
}

/// Several sets of statistics, and metrics that take them in.
template <class Stats, class Metrics>
struct Side {
  std::vector<Stats> stats;
  Metrics metrics;
};

using ReferenceStats = Side<reference::OffloadingConnectorStats, reference::OffloadPromMetrics>;
using OptimizedStats = Side<optimized::OffloadingConnectorStats, optimized::OffloadPromMetrics>;
using PlantedStats =
    Side<planted::optimized::OffloadingConnectorStats, planted::optimized::OffloadPromMetrics>;

/// What one random operation does to a side.
struct Operation {
  std::uint32_t kind = 0;
  std::size_t to = 0;
  std::size_t from = 0;
  std::uint64_t num_bytes = 0;
  double time = 0;
  TransferType type;
  Data data;
  std::uint32_t engine_idx = 0;
};

Operation draw_operation(Choices& choices, std::size_t num_stats, std::uint32_t num_engines) {
  Operation operation;
  operation.kind = choices.below(8);
  operation.to = choices.below(static_cast<std::uint32_t>(num_stats));
  operation.from = choices.below(static_cast<std::uint32_t>(num_stats));
  operation.num_bytes = draw_size(choices);
  operation.time = kTimes[choices.below(kTimes.size())];
  operation.type = draw_type(choices);
  operation.engine_idx = 7 * choices.below(num_engines);
  if (operation.kind == 6) operation.data = draw_data(choices);
  return operation;
}

template <class Stats, class Metrics>
void apply(const Operation& operation, Side<Stats, Metrics>& side) {
  Stats& to = side.stats[operation.to];
  switch (operation.kind) {
    case 0:
      return to.aggregate(side.stats[operation.from]);
    case 1:
      return to.reset();
    case 2:
      to = Stats(side.stats[operation.from]);
      return;
    case 3:
      return side.metrics.observe(to.data(), operation.engine_idx);
    case 6:
      return side.metrics.observe(operation.data, operation.engine_idx);
    default:
      return to.record_transfer(operation.num_bytes, operation.time, operation.type);
  }
}

/// Everything that both sides show, as text; equal text is equal to the bit.
template <class Stats, class Metrics>
std::string shown(const Side<Stats, Metrics>& side) {
  std::string text;
  std::vector<TransferTotals> totals;
  for (const Stats& stats : side.stats) {
    text += stats.is_empty() ? "empty\n" : "";
    for (const TransferOperations& each : stats.data()) {
      text += each.transfer_type + ":";
      for (const OffloadingOperationMetrics& op : each.ops) {
        text += " " + std::to_string(op.op_size) + "/" + python_number(op.op_time);
      }
      text += "\n";
    }
    stats.reduce(totals);
    text += to_log_text(totals) + "\n";
  }
  std::vector<PrometheusMetric> metrics;
  side.metrics.collect(metrics);
  return text + print(metrics);
}

/// The first operation behind which the two differ.
template <class Actual>
std::optional<int> first_difference(Choices& choices, const OffloadPromMetricsConfig& config,
                                    ReferenceStats& expected, Actual& actual, int num_operations) {
  const auto num_engines = static_cast<std::uint32_t>(config.per_engine_labelvalues.size());
  for (int done = 0; done < num_operations && !choices.exhausted(); ++done) {
    const Operation operation = draw_operation(choices, expected.stats.size(), num_engines);
    apply(operation, expected);
    apply(operation, actual);
    if (shown(expected) != shown(actual)) return done;
  }
  return std::nullopt;
}

TEST(KVConnectorStatsProp, OptimizedEqualsReference) {
  EXPECT_TRUE(holds("every operation leaves the same statistics and metrics", [] {
    const std::vector<std::uint8_t> bytes = draw_episode_bytes(600);
    Choices choices = Choices::from_bytes(bytes);
    const OffloadPromMetricsConfig config = draw_config(choices);
    ReferenceStats expected{std::vector<reference::OffloadingConnectorStats>(3),
                            reference::OffloadPromMetrics(config)};
    OptimizedStats actual{std::vector<optimized::OffloadingConnectorStats>(3),
                          optimized::OffloadPromMetrics(config)};
    RC_ASSERT(shown(actual) == shown(expected));
    const auto difference = first_difference(choices, config, expected, actual, 40);
    RC_ASSERT_FALSE(difference.has_value());
  }));
}

/// How many of these random runs show a difference.
int count_found(int bug) {
  planted::plant(bug);
  constexpr int kNumRuns = 100;
  int num_found = 0;
  for (int run = 0; run < kNumRuns; ++run) {
    std::mt19937 generator(static_cast<std::uint32_t>(run));
    std::vector<std::uint8_t> bytes(600);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(generator());
    Choices choices = Choices::from_bytes(bytes);
    const OffloadPromMetricsConfig config = draw_config(choices);
    ReferenceStats expected{std::vector<reference::OffloadingConnectorStats>(3),
                            reference::OffloadPromMetrics(config)};
    PlantedStats actual{std::vector<planted::optimized::OffloadingConnectorStats>(3),
                        planted::optimized::OffloadPromMetrics(config)};
    if (first_difference(choices, config, expected, actual, 40)) ++num_found;
  }
  return num_found;
}

TEST(KVConnectorStatsProp, EveryPlantedBugIsFoundAndNoneIsImagined) {
  EXPECT_EQ(count_found(planted::kSound), 0);
  EXPECT_GE(planted::bugs_of("connectors").size(), 10U);
  for (const planted::Bug& bug : planted::bugs_of("connectors")) {
    EXPECT_GT(count_found(bug.number), 5) << bug.name;
  }
  planted::plant(planted::kSound);
}

// ---- The golden file ----

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

template <class Implementation>
class KVConnectorStatsGolden : public ::testing::Test {};

struct ReferenceTypes {
  using Stats = reference::OffloadingConnectorStats;
  using Metrics = reference::OffloadPromMetrics;
};
struct OptimizedTypes {
  using Stats = optimized::OffloadingConnectorStats;
  using Metrics = optimized::OffloadPromMetrics;
};
using BothTypes = ::testing::Types<ReferenceTypes, OptimizedTypes>;
TYPED_TEST_SUITE(KVConnectorStatsGolden, BothTypes);

TYPED_TEST(KVConnectorStatsGolden, StatisticsAreThoseOfVllm) {
  for (const json& golden : golden_cases("stats")) {
    typename TypeParam::Stats left;
    typename TypeParam::Stats right;
    record(golden.at("left"), left);
    record(golden.at("right"), right);
    left.aggregate(right);
    EXPECT_EQ(left.is_empty(), golden.at("is_empty").get<bool>());
    EXPECT_EQ(Data(left.data().begin(), left.data().end()), data_of(golden.at("data")));
    std::vector<TransferTotals> totals;
    left.reduce(totals);
    EXPECT_EQ(to_log_text(totals), golden.at("log").get<std::string>());
  }
}

TYPED_TEST(KVConnectorStatsGolden, MetricsAreThoseOfVllm) {
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
