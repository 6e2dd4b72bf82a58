#include "contract/connectors/prometheus_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace kvfence {
namespace {

/// A finite number as digits and a power of ten: 1.5e+06 is "15" and 6.
struct Decimal {
  bool negative = false;
  std::string digits;
  int exponent = 0;
};

Decimal shortest_decimal(double value) {
  std::array<char, 32> buffer;
  const char* const end = std::to_chars(buffer.data(), buffer.data() + buffer.size(),
                                        std::abs(value), std::chars_format::scientific)
                              .ptr;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::size_t e = text.find('e');
  Decimal decimal;
  decimal.negative = std::signbit(value);
  for (char character : text.substr(0, e)) {
    if (character != '.') decimal.digits += character;
  }
  decimal.exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  return decimal;
}

std::string with_exponent(const Decimal& decimal) {
  std::string text = decimal.digits.substr(0, 1);
  if (decimal.digits.size() > 1) text += "." + decimal.digits.substr(1);
  const std::string power = std::to_string(std::abs(decimal.exponent));
  text += decimal.exponent < 0 ? "e-" : "e+";
  return text + (power.size() < 2 ? "0" : "") + power;
}

std::string without_exponent(const Decimal& decimal) {
  const std::string& digits = decimal.digits;
  if (decimal.exponent < 0) {
    return "0." + std::string(static_cast<std::size_t>(-decimal.exponent - 1), '0') + digits;
  }
  const std::size_t whole = static_cast<std::size_t>(decimal.exponent) + 1;
  if (digits.size() <= whole) return digits + std::string(whole - digits.size(), '0') + ".0";
  return digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string number_text(double value, int exponent_from) {
  const Decimal decimal = shortest_decimal(value);
  const bool plain = decimal.exponent >= -4 && decimal.exponent < exponent_from;
  return (decimal.negative ? "-" : "") +
         (plain ? without_exponent(decimal) : with_exponent(decimal));
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
  std::sort(labels.begin(), labels.end(),
            [](const PrometheusLabel& left, const PrometheusLabel& right) {
              return left.name < right.name;
            });
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
