#include "scenarios/replay/mooncake_trace.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

namespace kvfence {
namespace {

/// Longest piece of a line that a message repeats.
constexpr std::size_t kFoundCharsMax = 40;

/// One line of a trace: turns what is wrong with it into an InputError with its place.
class LineReader {
 public:
  LineReader(std::string_view text, std::string_view file, std::uint32_t line_number)
      : text_(text), file_(file), line_number_(line_number) {}

  Parsed<MooncakeRequest> read(std::uint32_t block_tokens) const {
    nlohmann::json object;
    try {
      object = nlohmann::json::parse(text_);
    } catch (const nlohmann::json::parse_error& error) {
      return syntax_error(error.byte);
    }
    if (!object.is_object()) {
      return error_at(1, object.type_name(), "an object with timestamp, input_length, ...");
    }
    MooncakeRequest request;
    if (auto error = take(object, "timestamp", request.timestamp_ms)) return std::move(*error);
    if (auto error = take(object, "input_length", request.input_length)) return std::move(*error);
    if (auto error = take(object, "output_length", request.output_length)) return std::move(*error);
    if (auto error = take(object, "hash_ids", request.hash_ids)) return std::move(*error);
    if (auto error = check_num_ids(request, block_tokens)) return std::move(*error);
    return request;
  }

 private:
  InputError error_at(std::size_t column, std::string found, std::string expected) const {
    return {std::string(file_),
            {line_number_, static_cast<std::uint32_t>(column)},
            std::move(found),
            std::move(expected)};
  }

  std::optional<InputError> check_num_ids(const MooncakeRequest& request,
                                          std::uint32_t block_tokens) const {
    if (block_tokens == 0) return std::nullopt;
    const std::size_t num_blocks =
        (std::size_t{request.input_length} + block_tokens - 1) / block_tokens;
    if (request.hash_ids.size() == num_blocks) return std::nullopt;
    return error_at(column_of("hash_ids"),
                    std::to_string(request.hash_ids.size()) + " hash_ids for " +
                        std::to_string(request.input_length) + " tokens",
                    std::to_string(num_blocks) + ", one for each " + std::to_string(block_tokens));
  }

  InputError syntax_error(std::size_t byte) const {
    const std::size_t column = std::max<std::size_t>(byte, 1);
    std::string found = "the end of the line";
    if (column <= text_.size()) {
      const char character = text_[column - 1];
      const bool is_printable = character >= ' ' && character <= '~';
      found = is_printable ? "'" + std::string(1, character) + "'" : "a byte that is not text";
    }
    return error_at(column, std::move(found), "valid JSON");
  }

  /// The position of the key, quotes included. A key written with escapes is not found.
  std::size_t column_of(const std::string& key) const {
    const std::size_t at = text_.find('"' + key + '"');
    return at == std::string_view::npos ? 1 : at + 1;
  }

  InputError wrong_value(const std::string& key, const std::string& place,
                         const nlohmann::json& found, std::string expected) const {
    std::string text = found.dump(-1, ' ', /*ensure_ascii=*/true);
    if (text.size() > kFoundCharsMax) text = text.substr(0, kFoundCharsMax) + "...";
    return error_at(column_of(key), place + ": " + text, std::move(expected));
  }

  template <class Integer>
  std::optional<InputError> take_integer(const std::string& key, const std::string& place,
                                         const nlohmann::json& value, Integer& out) const {
    constexpr std::uint64_t kMax = std::numeric_limits<Integer>::max();
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMax) {
      return wrong_value(key, place, value, "an integer from 0 to " + std::to_string(kMax));
    }
    out = value.get<Integer>();
    return std::nullopt;
  }

  template <class Member>
  std::optional<InputError> take(const nlohmann::json& object, const std::string& key,
                                 Member& out) const {
    const auto at = object.find(key);
    if (at == object.end()) return error_at(1, "an object without " + key, "the key " + key);
    if constexpr (std::is_integral_v<Member>) {
      return take_integer(key, key, *at, out);
    } else {
      if (!at->is_array()) return wrong_value(key, key, *at, "a list of integers");
      out.resize(at->size());
      for (std::size_t index = 0; index < out.size(); ++index) {
        const std::string place = key + "[" + std::to_string(index) + "]";
        if (auto error = take_integer(key, place, (*at)[index], out[index])) return error;
      }
      return std::nullopt;
    }
  }

  std::string_view text_;
  std::string_view file_;
  std::uint32_t line_number_;
};

}  // namespace

Parsed<std::vector<MooncakeRequest>> read_mooncake_trace(std::istream& text, std::string_view file,
                                                         std::uint32_t block_tokens) {
  std::vector<MooncakeRequest> requests;
  std::string line;
  std::uint32_t line_number = 0;
  while (std::getline(text, line)) {
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Parsed<MooncakeRequest> request = LineReader(line, file, line_number).read(block_tokens);
    if (!request) return request.error();
    requests.push_back(std::move(*request));
  }
  if (text.bad()) {
    return InputError{std::string(file), {line_number + 1, 1}, "a read error", "more of the file"};
  }
  if (requests.empty()) {
    return InputError{
        std::string(file), {line_number + 1, 1}, "the end of the file", "at least one request"};
  }
  return requests;
}

Parsed<std::vector<MooncakeRequest>> read_mooncake_trace_file(const std::string& path,
                                                              std::uint32_t block_tokens) {
  std::ifstream text(path);
  if (!text) return InputError{path, {}, "a file that cannot be opened", "a request trace"};
  return read_mooncake_trace(text, path, block_tokens);
}

double MooncakeTotals::hit_rate_max() const {
  return ratio(num_blocks - num_distinct_blocks, num_blocks);
}

MooncakeTotals totals_of(std::span<const MooncakeRequest> requests) {
  MooncakeTotals totals;
  std::unordered_set<std::uint32_t> seen;
  std::uint64_t earliest_ms = UINT64_MAX;
  std::uint64_t latest_ms = 0;
  for (const MooncakeRequest& request : requests) {
    totals.num_blocks += request.hash_ids.size();
    earliest_ms = std::min(earliest_ms, request.timestamp_ms);
    latest_ms = std::max(latest_ms, request.timestamp_ms);
    seen.insert(request.hash_ids.begin(), request.hash_ids.end());
  }
  totals.num_distinct_blocks = seen.size();
  totals.span_ms = requests.empty() ? 0 : latest_ms - earliest_ms;
  return totals;
}

}  // namespace kvfence
