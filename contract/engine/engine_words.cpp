#include "contract/engine/engine_words.h"

namespace kvfence {
namespace {

template <class Enum>
bool word_from(const Value& value, std::optional<Enum> (*parse)(std::string_view), Enum& member) {
  const auto* text = value.get_if<std::string>();
  const std::optional<Enum> parsed = text ? parse(*text) : std::nullopt;
  if (parsed) member = *parsed;
  return parsed.has_value();
}

}  // namespace

Value to_value(RequestStatus member) { return Value::Variant(std::string(to_text(member))); }
Value to_value(PauseState member) { return Value::Variant(std::string(to_text(member))); }

bool from_value(const Value& value, RequestStatus& member, std::string& expected) {
  expected = "a status such as finished_aborted";
  return word_from(value, from_text<RequestStatus>, member);
}

bool from_value(const Value& value, PauseState& member, std::string& expected) {
  expected = "unpaused, paused_new or paused_all";
  return word_from(value, from_text<PauseState>, member);
}

}  // namespace kvfence
