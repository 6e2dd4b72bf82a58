#include "contract/core/engine_role.h"

namespace kvfence {

std::string_view to_text(EngineRole role) {
  return role == EngineRole::kProducer ? "producer" : "consumer";
}

Value to_value(EngineRole member) { return Value::Variant(std::string(to_text(member))); }

bool from_value(const Value& value, EngineRole& member, std::string& expected) {
  expected = "producer or consumer";
  const auto* text = value.get_if<std::string>();
  for (const EngineRole role : kEngineRoles) {
    if (!text || *text != to_text(role)) continue;
    member = role;
    return true;
  }
  return false;
}

}  // namespace kvfence
