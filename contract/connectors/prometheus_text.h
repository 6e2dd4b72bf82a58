#pragma once

/// The text format in which Prometheus reads metrics, version 0.0.4. Each implementation computes
/// the figures; this file writes them for both, pinned by what the Python client writes
/// (golden/kv_connector_stats_golden.txt).
/// Source: prometheus_client exposition.py generate_latest, utils.py floatToGoString.

#include <cstdint>
#include <string>
#include <vector>

namespace kvfence {

enum class PrometheusType : std::uint8_t { kCounter, kHistogram, kGauge };

struct PrometheusLabel {
  std::string name;
  std::string value;
  friend bool operator==(const PrometheusLabel&, const PrometheusLabel&) = default;
};

struct PrometheusSample {
  std::string suffix;  ///< after the metric's name: "_total", "_bucket", "_count", "_sum"
  std::vector<PrometheusLabel> labels;
  double value = 0;
  friend bool operator==(const PrometheusSample&, const PrometheusSample&) = default;
};

struct PrometheusMetric {
  std::string name;  ///< of a counter without "_total"
  std::string help;
  PrometheusType type = PrometheusType::kCounter;
  std::vector<PrometheusSample> samples;
  friend bool operator==(const PrometheusMetric&, const PrometheusMetric&) = default;
};

/// As Python writes a finite number: the shortest text that reads back, with an exponent below 1e-4
/// and from 1e+16 on: "3.0", "1e-05".
std::string python_number(double value);

/// The same with an exponent from a million on, for positive numbers: "+Inf", "-Inf", "NaN", "3.0",
/// "1.5e+06".
std::string prometheus_number(double value);

/// Appends HELP, TYPE and one line per sample, in the order given; labels are sorted by name.
/// Without the client's `_created` series, which are times.
void print_to(std::string& out, const PrometheusMetric& metric);

/// One after the other.
std::string print(const std::vector<PrometheusMetric>& metrics);

}  // namespace kvfence
