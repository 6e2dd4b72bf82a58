#include "scenarios/audit/rules.h"

#include "contract/core/hex.h"

namespace kvfence::audit {

std::string Finding::to_text() const {
  const RuleText& rule_text = text_of(rule);
  std::string text = std::string(rule_text.id) + " " + std::string(rule_text.name) + ": " + engine;
  if (!topic.empty()) text += " topic '" + topic + "'";
  if (rank) text += " rank " + std::to_string(*rank);
  text += ", message " + std::to_string(at.sequence);
  if (at.event != EventRef::kNoEvent) text += ", event " + std::to_string(at.event);
  if (!event.empty()) text += " (" + event + ")";
  text += ": found " + found + ", expected " + expected;
  if (led_there.empty()) return printable(text);
  text += "; led there: message";
  if (led_there.size() > 1) text += 's';
  for (const EventRef& ref : led_there) text += " " + std::to_string(ref.sequence);
  return printable(text);
}

}  // namespace kvfence::audit
