#include "scenarios/command/option_checks.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace kvfence {
namespace {

template <class Holds>
CLI::Validator expecting(std::string expected, Holds holds, const char* name = "") {
  return {[expected = std::move(expected), holds](const std::string& text) -> std::string {
            return holds(text) ? "" : "found '" + text + "', expected " + expected;
          },
          name};
}

}  // namespace

CLI::Validator whole_number(std::uint64_t max) {
  const auto holds = [max](std::string_view text) {
    const bool is_hex = text.starts_with("0x");
    const std::string_view digits = text.substr(is_hex ? 2 : 0);
    const bool is_octal = !is_hex && digits.size() > 1 && digits.front() == '0';
    const char* const end = digits.data() + digits.size();
    std::uint64_t number = 0;
    const auto [stop, error] = std::from_chars(digits.data(), end, number, is_hex ? 16 : 10);
    return error == std::errc() && stop == end && !is_octal && number <= max;
  };
  return expecting("an integer from 0 to " + std::to_string(max), holds);
}

CLI::Validator finite_number() {
  const auto holds = [](const std::string& text) {
    char* stop = nullptr;
    const double number = std::strtod(text.c_str(), &stop);
    return !text.empty() && *stop == '\0' && std::isfinite(number);
  };
  return expecting("a number", holds);
}

CLI::Validator positive_number() {
  const auto holds = [](const std::string& text) { return std::strtod(text.c_str(), nullptr) > 0; };
  return expecting("more than 0", holds, "POSITIVE");
}

CLI::Validator at_most(std::uint32_t max) {
  const auto holds = [max](const std::string& text) {
    return std::strtod(text.c_str(), nullptr) <= max;
  };
  return expecting("at most " + std::to_string(max), holds);
}

CLI::Validator not_empty() {
  return expecting("a name", [](const std::string& text) { return !text.empty(); });
}

}  // namespace kvfence
