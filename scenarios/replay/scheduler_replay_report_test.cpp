// Goal: summary, series and pictures show the figures of a replay.
// Method: whole texts for small inputs; the checker of XML that traffic_report_test shows to work.

#include "scenarios/replay/scheduler_replay_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "scenarios/story/xml_fault.h"

namespace kvfence {
namespace {

std::vector<SchedulerSample> some_samples() {
  return {{30'000, 2, 1, {3, 0, 5}, 10, 800, 1, 600, 0, 900, 0},
          {60'000, 1, 0, {0, 6, 2}, 20, 50, 0, 200, 50, 200, 50}};
}

SchedulerReplayResult some_result() {
  SchedulerReplayResult result;
  result.requests = 5;
  result.completed = 3;
  result.refused = 1;
  result.never_fit = 1;
  result.steps = 1000;
  result.idle_steps = 2;
  result.tokens = 12'500;
  result.prompt_tokens = 9000;
  result.output_tokens = 4000;
  result.admitted_tokens = 9000;
  result.found_tokens = 900;
  result.prefix_cache.queries = 18'000;
  result.prefix_cache.hits = 900;
  result.prefix_cache.preempted_requests = 2;
  result.prefix_cache.preempted_queries = 700;
  result.prefix_cache.preempted_hits = 350;
  result.preemptions = 1;
  result.end_us = 20'000'000;
  result.busy_us = 15'000'000;
  result.queueing = {3, 1'500'000, 1'000'000, 2'500'000, 2'500'000};
  result.running = {1, 4, 2.25};
  result.scheduler_seconds = 0.01;
  return result;
}

TEST(SchedulerReplayReport, SumsUp) {
  const std::string text = to_summary(some_result());

  for (const char* line :
       {"  requests        5, 3 completed, 1 refused, 1 too large for the pool\n",
        "  simulated time  20.0 s, steps ran for 75.00 % of it\n",
        "  steps           1,000, and 2 without tokens\n",
        "  scheduled       12,500 tokens, 12.5 a step\n",
        "  outputs         4,000 tokens, 200.0 a second\n",
        "  prefix cache    10.00 %: 900 of 9,000 prompt tokens found\n",
        "    by lookups    5.00 %: 900 of 18,000 tokens, each attempt to admit a request counted\n",
        "  preemptions     1\n    and resumed   350 of 700 tokens found\n",
        "  queueing             1.500      1.000      2.500      2.500\n",
        "  running                  1        2.2          4\n",
        "  wall time       0.01 s in schedule and update_from_output: 10.0 us a step, 100,200 "
        "steps "
        "a second\n"}) {
    EXPECT_EQ(count_of(text, line), 1U) << line << "in\n" << text;
  }
  EXPECT_EQ(count_of(text, "drafts"), 0U);
}

TEST(SchedulerReplayReport, WritesJson) {
  const auto object = nlohmann::json::parse(to_json(some_result()));

  EXPECT_EQ(object["steps"], 1000);
  EXPECT_EQ(object["hit_rate"], 0.1);
  EXPECT_EQ(object["lookup_hit_rate"], 0.05);
  EXPECT_EQ(object["queueing_seconds"]["p99"], 2.5);
  EXPECT_EQ(object["running"]["mean"], 2.25);
}

TEST(SchedulerReplayReport, WritesTheSeriesAsCsv) {
  EXPECT_EQ(to_csv(some_samples()),
            "time_s,running,waiting,empty,cached,referenced,steps,tokens,preemptions,"
            "admitted_tokens,found_tokens,hit_rate,queries,hits\n"
            "30.000,2,1,3,0,5,10,800,1,600,0,0.000000,900,0\n"
            "60.000,1,0,0,6,2,20,50,0,200,50,0.250000,200,50\n");
}

TEST(SchedulerReplayReport, DrawsTheSeriesAsText) {
  EXPECT_EQ(
      to_text_chart(some_samples(), 16, 32),
      "  minute  running  waiting  # referenced  = cached  . empty    preemptions  hit rate\n"
      "     0.5        2        1  |####################............|           1    0.00 %\n"
      "     1.0        1        0  |########========================|           0   25.00 %\n");
}

TEST(SchedulerReplayReport, SumsUpWhereRowsAreFew) {
  EXPECT_EQ(
      to_text_chart(some_samples(), 1, 32),
      "  minute  running  waiting  # referenced  = cached  . empty    preemptions  hit rate\n"
      "     1.0        1        0  |########========================|           1    6.25 %\n");
}

TEST(SchedulerReplayReport, DrawsTheSeriesAsSvg) {
  const std::string svg = to_svg(some_samples());

  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_EQ(count_of(svg, "<polygon"), 4U);
  EXPECT_EQ(count_of(svg, "<polyline"), 2U);
  for (const char* label :
       {"referenced", "cached", "empty", "running", "waiting", "preemptions", "minutes"}) {
    EXPECT_GE(count_of(svg, label), 1U) << label;
  }
}

TEST(SchedulerReplayReport, DrawsNothingWithoutFailing) {
  EXPECT_EQ(xml_fault(to_svg({})), "");
  EXPECT_EQ(count_of(to_csv({}), "\n"), 1U);
  EXPECT_EQ(count_of(to_text_chart({}), "\n"), 1U);
  EXPECT_FALSE(to_summary(SchedulerReplayResult{}).empty());
}

}  // namespace
}  // namespace kvfence
