#include "contract/pool/pool_values.h"

#include <algorithm>

namespace kvfence {

Value to_value(const MmFeature& member) { return detail::record_of("item", object_of(member)); }

bool from_value(const Value& value, std::vector<MmFeature>& member, std::string& expected) {
  const auto* const list = value.get_if<Value::List>();
  member.clear();
  const auto take = [&](const Value& from) {
    return detail::read_record(from, "item", object_of(member.emplace_back()), expected);
  };
  if (list && std::ranges::all_of(*list, take) &&
      std::ranges::is_sorted(member, {}, &MmFeature::offset)) {
    return true;
  }
  expected = "items such as [(item id=cat offset=0 length=4)], by offset";
  return false;
}

bool from_value(const Value& value, BlockStored& member, std::string& expected) {
  if (!detail::read_record(value, BlockStored::kWord, object_of(member), expected)) return false;
  if (member.lora_name.has_value() != member.lora_id.has_value()) return false;
  const std::size_t num_hashes = member.block_hashes.size();
  if (find_field(value.get_if<Record>()->fields, "extra_keys")) {
    return member.extra_keys.size() == num_hashes;
  }
  // A connector's event has none at all, which is printed like a pool's without any.
  if (!member.medium) member.extra_keys.resize(num_hashes);
  return true;
}

std::string list_of(const ExtraKey&) { return "a list of words and (item ...)"; }
std::string list_of(const std::optional<ExtraKeys>&) { return "a list of extra keys and none"; }
std::string list_of(const KVCacheEvent&) {
  return "a list of events: (stored ...), (removed ...), (cleared)";
}

Value to_value(const KeyList& member) {
  Value::List list;
  for (const BlockHash& hash : member) list.push_back(hash.empty() ? Value() : to_value(hash));
  return Value::Variant(std::move(list));
}

bool from_value(const Value& value, KeyList& member, std::string& expected) {
  const auto* const list = value.get_if<Value::List>();
  member.resize(list ? list->size() : 0);
  const auto take = [&](const Value& from, BlockHash& key) {
    key.clear();
    return from.get_if<None>() || from_value(from, key, expected);
  };
  if (list && std::ranges::equal(*list, member, take)) return true;
  expected = "a list of bytes and none";
  return false;
}

}  // namespace kvfence
