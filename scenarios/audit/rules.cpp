#include "scenarios/audit/rules.h"

#include "contract/core/hex.h"

namespace kvfence::audit {

std::string on_one_line(std::string_view text) {
  std::string line;
  for (const char byte : text) {
    const auto code = static_cast<unsigned char>(byte);
    if (code < 0x20 || code == 0x7F) {
      line += "\\x" + to_hex({&byte, 1});
    } else {
      line += byte;
    }
  }
  return line;
}

std::string Finding::to_text() const {
  const RuleText& rule_text = text_of(rule);
  std::string text = std::string(rule_text.id) + " " + std::string(rule_text.name) + ": " + engine;
  if (!topic.empty()) text += " topic '" + topic + "'";
  if (rank) text += " rank " + std::to_string(*rank);
  text += ", message " + std::to_string(at.sequence);
  if (at.event != EventRef::kNoEvent) text += ", event " + std::to_string(at.event);
  if (!event.empty()) text += " (" + event + ")";
  text += ": found " + found + ", expected " + expected;
  if (led_there.empty()) return on_one_line(text);
  text += "; led there: message";
  if (led_there.size() > 1) text += 's';
  for (const EventRef& ref : led_there) text += " " + std::to_string(ref.sequence);
  return on_one_line(text);
}

}  // namespace kvfence::audit
