// Goal: numbers, labels and lines as the Python client writes them. Method: what it wrote, by hand;
// more is in golden/kv_connector_stats_golden.txt.

#include "contract/connectors/prometheus_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace kvfence {
namespace {

TEST(PrometheusText, NumbersTakeAnExponentFromAMillionOn) {
  EXPECT_EQ(prometheus_number(0), "0.0");
  EXPECT_EQ(prometheus_number(-0.0), "-0.0");
  EXPECT_EQ(prometheus_number(3), "3.0");
  EXPECT_EQ(prometheus_number(999'999.5), "999999.5");
  EXPECT_EQ(prometheus_number(1e6), "1e+06");
  EXPECT_EQ(prometheus_number(-1e6), "-1000000.0");
  EXPECT_EQ(prometheus_number(1234567.25), "1.23456725e+06");
  EXPECT_EQ(prometheus_number(2e10), "2e+10");
  EXPECT_EQ(prometheus_number(1e100), "1e+100");
  EXPECT_EQ(prometheus_number(0.0001), "0.0001");
  EXPECT_EQ(prometheus_number(0.00001), "1e-05");
  EXPECT_EQ(prometheus_number(0.1 + 0.2), "0.30000000000000004");
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(prometheus_number(infinity), "+Inf");
  EXPECT_EQ(prometheus_number(-infinity), "-Inf");
  EXPECT_EQ(prometheus_number(std::numeric_limits<double>::quiet_NaN()), "NaN");
}

TEST(PrometheusText, PythonTakesAnExponentLater) {
  EXPECT_EQ(python_number(1e6), "1000000.0");
  EXPECT_EQ(python_number(1e15), "1000000000000000.0");
  EXPECT_EQ(python_number(1e16), "1e+16");
  EXPECT_EQ(python_number(0.5), "0.5");
}

TEST(PrometheusText, LabelsStandInTheOrderOfTheirNamesAndAreEscaped) {
  PrometheusMetric metric;
  metric.name = "size";
  metric.help = "a \\ and a \"\nline";
  metric.type = PrometheusType::kHistogram;
  metric.samples = {{"_bucket", {{"z", "a\"b\\c\nd"}, {"le", "+Inf"}}, 2}, {"_count", {}, 2}};
  EXPECT_EQ(print({metric}),
            "# HELP size a \\\\ and a \"\\nline\n"
            "# TYPE size histogram\n"
            "size_bucket{le=\"+Inf\",z=\"a\\\"b\\\\c\\nd\"} 2.0\n"
            "size_count 2.0\n");
}

TEST(PrometheusText, ACounterWithoutSeriesIsDescribed) {
  PrometheusMetric metric;
  metric.name = "bytes";
  metric.help = "some";
  EXPECT_EQ(print({metric}), "# HELP bytes_total some\n# TYPE bytes_total counter\n");
}

}  // namespace
}  // namespace kvfence
