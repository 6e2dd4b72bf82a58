#include "contract/connectors/kv_connector_stats.h"

#include <algorithm>

#include "contract/core/joined.h"

namespace kvfence {
namespace {

bool is_label_name(std::string_view name) {
  const auto is_letter = [](char character) {
    return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') ||
           character == '_';
  };
  const auto is_rest = [&](char character) {
    return is_letter(character) || (character >= '0' && character <= '9');
  };
  return !name.empty() && is_letter(name.front()) && name.substr(0, 2) != "__" &&
         std::all_of(name.begin(), name.end(), is_rest);
}

}  // namespace

std::string to_log_text(std::span<const TransferTotals> totals) {
  return joined(totals, ", ", [](const TransferTotals& each) {
    return each.transfer_type + "_total_bytes=" + std::to_string(each.total_bytes) + ", " +
           each.transfer_type + "_total_time=" + python_number(each.total_time);
  });
}

std::optional<std::string> check_config(const OffloadPromMetricsConfig& config) {
  const std::vector<std::string>& names = config.labelnames;
  for (const std::string& name : names) {
    if (!is_label_name(name)) return "a label name of letters, digits and underscores";
    if (name == "le" || name == "transfer_type") return "label names besides le and transfer_type";
    if (std::count(names.begin(), names.end(), name) > 1) return "each label name once";
  }
  for (const auto& [engine, values] : config.per_engine_labelvalues) {
    if (values.size() != names.size()) return "a label value per name for each engine";
  }
  return std::nullopt;
}

}  // namespace kvfence
