// Goal: tables and charts show the figures of a replay; the SVG is well-formed.
// Method: whole texts for small inputs; a checker of XML that is itself shown to find faults.

#include "scenarios/replay/traffic_report.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "scenarios/replay/svg_writer.h"
#include "scenarios/story/xml_fault.h"

namespace kvfence {
namespace {

std::vector<TrafficSample> some_samples() {
  return {{1, 0, {3, 0, 5}, 4, 0, 0}, {2, 60'000, {0, 6, 2}, 8, 2, 1}};
}

std::vector<HitRatePoint> some_curve() {
  std::vector<HitRatePoint> curve(2);
  curve[0].gpu_blocks = 100;
  curve[0].result.blocks = 1000;
  curve[0].result.hits = 100;
  curve[0].result.evictions = 801;
  curve[1].gpu_blocks = 1000;
  curve[1].result.blocks = 1000;
  curve[1].result.hits = 250;
  curve[1].result.too_large = 3;
  return curve;
}

MooncakeTotals some_totals() {
  MooncakeTotals totals;
  totals.num_blocks = 1000;
  totals.num_distinct_blocks = 700;
  return totals;
}

TEST(XmlFault, FindsWhatIsNotWellFormed) {
  EXPECT_EQ(xml_fault("<a><b c=\"1\"/>t &amp; u</a>\n"), "");
  EXPECT_EQ(xml_fault(""), "no root");
  EXPECT_EQ(xml_fault("<a><b></a></b>"), "closes /a");
  EXPECT_EQ(xml_fault("<a>"), "not closed: a");
  EXPECT_EQ(xml_fault("<a/><a/>"), "two roots");
  EXPECT_EQ(xml_fault("<a b=1/>"), "attribute of a");
  EXPECT_EQ(xml_fault("<a b=\"1\" b=\"2\"/>"), "attribute twice in a");
  EXPECT_EQ(xml_fault("<a>R & D</a>"), "raw text");
  EXPECT_EQ(xml_fault("<a b=\"R & D\"/>"), "value in a");
}

TEST(SvgWriter, EscapesText) {
  SvgWriter svg(10, 10, "a < b & \"c\"");
  svg.text({1, 2}, "x > y");

  const std::string text = svg.finish();

  EXPECT_EQ(xml_fault(text), "");
  EXPECT_NE(text.find("<title>a &lt; b &amp; &quot;c&quot;</title>"), std::string::npos);
  EXPECT_NE(text.find("x &gt; y"), std::string::npos);
}

TEST(TrafficReport, WritesTheSeriesAsCsv) {
  EXPECT_EQ(to_csv(std::span<const TrafficSample>(some_samples())),
            "requests,timestamp_ms,empty,cached,referenced,blocks,hits,evictions,hit_rate\n"
            "1,0,3,0,5,4,0,0,0.000000\n"
            "2,60000,0,6,2,8,2,1,0.250000\n");
}

TEST(TrafficReport, DrawsTheSeriesAsText) {
  EXPECT_EQ(to_text_chart(some_samples(), 16, 32),
            "  minute  requests  # referenced  = cached  . empty     referenced   cached    empty"
            "  evictions  hit rate\n"
            "     0.0         1  |####################............|           5        0        3"
            "          0    0.00 %\n"
            "     1.0         2  |########========================|           2        6        0"
            "          1   25.00 %\n");
}

TEST(TrafficReport, KeepsTheLastSampleWhereRowsAreFew) {
  std::vector<TrafficSample> samples(10, some_samples().front());
  samples.back().requests_done = 777;

  const std::string chart = to_text_chart(samples, 3);

  EXPECT_EQ(count_of(chart, "\n"), 4U);
  EXPECT_NE(chart.find("777"), std::string::npos);
}

TEST(TrafficReport, DrawsTheSeriesAsSvg) {
  const std::string svg = to_svg(std::span<const TrafficSample>(some_samples()));

  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_EQ(count_of(svg, "<polygon"), 3U);
  EXPECT_EQ(count_of(svg, "<polyline"), 1U);
  for (const char* label : {"referenced", "cached", "empty", "hit rate", "minutes"}) {
    EXPECT_GE(count_of(svg, label), 1U) << label;
  }
}

TEST(TrafficReport, CountsRequestsWhereTheTraceHasNoTimes) {
  std::vector<TrafficSample> samples = some_samples();
  samples[1].timestamp_ms = 0;

  const std::string svg = to_svg(std::span<const TrafficSample>(samples));

  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_EQ(count_of(svg, "minutes"), 0U);
  EXPECT_EQ(count_of(svg, ">requests<"), 1U);
}

TEST(TrafficReport, WritesTheCurveAsTableAndCsv) {
  EXPECT_EQ(to_table(some_curve(), some_totals()),
            "gpu_blocks  hit rate       hits  evictions too large\n"
            "       100   10.00 %        100        801         0  ####\n"
            "      1000   25.00 %        250          0         3  ##########\n"
            "  no limit   30.00 %        300\n");
  EXPECT_EQ(to_csv(std::span<const HitRatePoint>(some_curve())),
            "gpu_blocks,hit_rate,hits,blocks,evictions,too_large\n"
            "100,0.100000,100,1000,801,0\n"
            "1000,0.250000,250,1000,0,3\n");
}

TEST(TrafficReport, SaysWhereTheCurveDisagrees) {
  std::vector<HitRatePoint> curve = some_curve();
  curve[1].result.divergence.emplace();

  EXPECT_EQ(count_of(to_table(curve, some_totals()), "DISAGREEMENT\n"), 1U);
}

TEST(TrafficReport, DrawsTheCurveAsSvg) {
  const std::string svg = to_svg(some_curve(), some_totals());

  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_EQ(count_of(svg, "<circle"), 2U);
  EXPECT_GE(count_of(svg, "no pool can exceed 30.00 %"), 1U);
}

TEST(TrafficReport, DrawsNothingWithoutFailing) {
  EXPECT_EQ(xml_fault(to_svg(std::span<const TrafficSample>())), "");
  EXPECT_EQ(xml_fault(to_svg({}, MooncakeTotals{})), "");
  EXPECT_EQ(count_of(to_text_chart({}), "\n"), 1U);
}

}  // namespace
}  // namespace kvfence
