#include "contract/scripted/transfer_words.h"

namespace kvfence {

Value to_value(TransferProgress member) { return Value::Variant(std::string(to_text(member))); }

bool from_value(const Value& value, TransferProgress& member, std::string& expected) {
  expected = "part, finished or failed";
  const auto* text = value.get_if<std::string>();
  const auto parsed = text ? transfer_progress_from_text(*text) : std::nullopt;
  if (parsed) member = *parsed;
  return parsed.has_value();
}

}  // namespace kvfence
