#include "contract/core/observation.h"

#include <optional>
#include <string>

namespace kvfence {

Value to_value(ErrorCode member) {
  // The code `none` is spelled like the absent value.
  return member == ErrorCode::kNone ? Value() : to_value(std::string(to_text(member)));
}

bool from_value(const Value& value, ErrorCode& member, std::string& expected) {
  std::string text;
  if (value.get_if<None>()) text = "none";
  const bool is_word = !text.empty() || from_value(value, text, expected);
  const auto code = is_word ? from_text<ErrorCode>(text) : std::nullopt;
  if (!code) {
    expected = "an error code such as no_free_blocks, or none";
    return false;
  }
  member = *code;
  return true;
}

}  // namespace kvfence
