#include "contract/connectors/prometheus_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace kvfence {
namespace {

std::string formatted(double value, std::chars_format format) {
  std::array<char, 32> buffer;
  return {buffer.data(),
          std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format).ptr};
}

std::string number_text(double value, int exponent_from) {
  const std::string scientific = formatted(value, std::chars_format::scientific);
  const int exponent = std::stoi(scientific.substr(scientific.find('e') + 1));
  if (exponent < -4 || exponent >= exponent_from) return scientific;
  const std::string fixed = formatted(value, std::chars_format::fixed);
  return fixed + (fixed.find('.') == fixed.npos ? ".0" : "");
}

void append_escaped(std::string& out, std::string_view text, bool escape_quotes) {
  for (char character : text) {
    if (character == '\n') {
      out += "\\n";
    } else {
      if (character == '\\' || (escape_quotes && character == '"')) out += '\\';
      out += character;
    }
  }
}

void append_labels(std::string& out, std::vector<PrometheusLabel> labels) {
  std::ranges::sort(labels, {}, &PrometheusLabel::name);
  std::string_view before = "{";
  for (const PrometheusLabel& label : labels) {
    out += before;
    out += label.name + "=\"";
    append_escaped(out, label.value, /*escape_quotes=*/true);
    out += '"';
    before = ",";
  }
  if (!labels.empty()) out += '}';
}

}  // namespace

std::string python_number(double value) { return number_text(value, 16); }

// Source: prometheus_client utils.py floatToGoString
std::string prometheus_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return number_text(value, value > 0 ? 6 : 16);
}

// Source: prometheus_client exposition.py generate_latest
void print_to(std::string& out, const PrometheusMetric& metric) {
  const bool is_counter = metric.type == PrometheusType::kCounter;
  const std::string name = metric.name + (is_counter ? "_total" : "");
  out += "# HELP " + name + " ";
  append_escaped(out, metric.help, /*escape_quotes=*/false);
  constexpr std::string_view kTypes[] = {"counter", "histogram", "gauge"};
  out += "\n# TYPE " + name + " ";
  out += kTypes[static_cast<std::size_t>(metric.type)];
  out += '\n';
  for (const PrometheusSample& sample : metric.samples) {
    out += metric.name + sample.suffix;
    append_labels(out, sample.labels);
    out += " " + prometheus_number(sample.value) + "\n";
  }
}

std::string print(const std::vector<PrometheusMetric>& metrics) {
  std::string text;
  for (const PrometheusMetric& metric : metrics) print_to(text, metric);
  return text;
}

}  // namespace kvfence
