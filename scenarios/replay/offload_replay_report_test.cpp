// Goal: tables and charts show the figures of a replay over two tiers; the SVG is well-formed.
// Method: whole texts for a small result, a checker of XML.

#include "scenarios/replay/offload_replay_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "scenarios/story/xml_fault.h"

namespace kvfence {
namespace {

OffloadReplayResult some_result() {
  OffloadReplayResult result;
  result.policies = {"lru", "arc"};
  result.traffic.num_blocks = 1000;
  result.traffic.num_gpu_hits = 200;
  result.found_max = 400;
  result.points.resize(2);
  for (OffloadPoint& point : result.points) point.results.resize(2);
  result.points[0].cpu_blocks = 100;
  result.points[0].results[0].found = 40;
  result.points[0].results[0].stored = 700;
  result.points[0].results[0].evicted = 600;
  result.points[0].results[1].found = 80;
  result.points[0].results[1].refused = 3;
  result.points[0].optimum = 160;
  result.points[1].cpu_blocks = 1000;
  result.points[1].results[0].found = 200;
  result.points[1].results[1].found = 240;
  result.points[1].optimum = 400;
  return result;
}

TEST(OffloadReplayReport, WritesTheTable) {
  EXPECT_EQ(to_table(some_result()),
            "                                CPU tier                        both tiers\n"
            "cpu_blocks       lru       arc   optimum           lru       arc   optimum\n"
            "       100    5.00 %   10.00 %   20.00 %       24.00 %   28.00 %   36.00 %\n"
            "      1000   25.00 %   30.00 %   50.00 %       40.00 %   44.00 %   60.00 %\n"
            "  no limit                       50.00 %                           60.00 %\n"
            "\n"
            "0 requests, 1000 blocks: 200 found in the GPU tier (20.00 %), 800 asked of the CPU "
            "tier\n");
}

TEST(OffloadReplayReport, SaysWhatWasLeftOut) {
  OffloadReplayResult result = some_result();
  result.traffic.too_large = 7;

  EXPECT_NE(to_table(result).find("7 requests left out"), std::string::npos);
}

TEST(OffloadReplayReport, ShowsWhereARunEnded) {
  OffloadReplayResult result = some_result();
  result.points[1].results.pop_back();

  EXPECT_NE(to_table(result).find("      1000   25.00 %         -   50.00 %"), std::string::npos);
  EXPECT_EQ(xml_fault(to_svg(result)), "");
}

TEST(OffloadReplayReport, WritesCsv) {
  EXPECT_EQ(to_csv(some_result()),
            "cpu_blocks,policy,asked,found,hit_rate,hit_rate_of_both_tiers,stored,evicted,refused\n"
            "100,lru,800,40,0.050000,0.240000,700,600,0\n"
            "100,arc,800,80,0.100000,0.280000,0,0,3\n"
            "100,optimum,800,160,0.200000,0.360000,,,\n"
            "1000,lru,800,200,0.250000,0.400000,0,0,0\n"
            "1000,arc,800,240,0.300000,0.440000,0,0,0\n"
            "1000,optimum,800,400,0.500000,0.600000,,,\n");
}

TEST(OffloadReplayReport, WritesJson) {
  const auto object = nlohmann::json::parse(to_json(some_result()));

  EXPECT_EQ(object["asked"], 800);
  EXPECT_EQ(object["no_limit"]["found"], 400);
  ASSERT_EQ(object["capacities"].size(), 2U);
  EXPECT_EQ(object["capacities"][0]["cpu_blocks"], 100);
  EXPECT_EQ(object["capacities"][0]["lru"]["evicted"], 600);
  EXPECT_EQ(object["capacities"][0]["arc"]["hit_rate"], 0.1);
  EXPECT_EQ(object["capacities"][1]["optimum"]["hit_rate_of_both_tiers"], 0.6);
}

TEST(OffloadReplayReport, DrawsALineForEachPolicyAndTheOptimum) {
  const std::string svg = to_svg(some_result());

  EXPECT_EQ(xml_fault(svg), "");
  for (const char* word :
       {">lru<", ">arc<", ">optimum (Belady, with bypass)<", "no capacity can exceed 50.00 %"}) {
    EXPECT_NE(svg.find(word), std::string::npos) << word;
  }
  std::size_t num_lines = 0;
  for (std::size_t at = 0; (at = svg.find("<polyline", at)) != std::string::npos; ++at) ++num_lines;
  EXPECT_EQ(num_lines, 3U);
}

TEST(OffloadReplayReport, DrawsNothingOfNothing) {
  EXPECT_EQ(xml_fault(to_svg({})), "");
  EXPECT_EQ(to_csv({}).find('\n') + 1, to_csv({}).size());
}

}  // namespace
}  // namespace kvfence
