#include "contract/connectors/offloading/offloading_facet.h"

namespace kvfence {

Value to_value(const KeyBytes& member) { return Value::Variant(Bytes{member.bytes}); }

bool from_value(const Value& value, KeyBytes& member, std::string& expected) {
  expected = "a key";
  KeyList keys;
  if (!from_value(Value(Value::Variant(Value::List{value})), keys, expected)) return false;
  member.bytes = keys.front();
  return true;
}

}  // namespace kvfence
