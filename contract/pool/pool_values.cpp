#include "contract/pool/pool_values.h"

#include <utility>
#include <variant>

namespace kvfence {
namespace {

Value bytes_value(const std::string& bytes) { return Value::Variant(Bytes{bytes}); }

bool bytes_from(const Value& value, std::string& bytes) {
  const Bytes* found = value.get_if<Bytes>();
  if (found) bytes = found->data;
  return found != nullptr;
}

Value extra_key_value(const ExtraKey& key) {
  if (const auto* text = std::get_if<std::string>(&key)) return to_value(*text);
  const auto& item = std::get<MmExtraKey>(key);
  return Value::Variant(
      Record{"item",
             {{"id", to_value(item.identifier), {}}, {"offset", Value::Variant(item.offset), {}}}});
}

bool extra_key_from(const Value& value, ExtraKey& key) {
  if (const auto* text = value.get_if<std::string>()) {
    key = *text;
    return true;
  }
  const auto* record = value.get_if<Record>();
  if (!record || record->verb != "item") return false;
  MmExtraKey item;
  std::string expected;
  const Field* id = find_field(record->fields, "id");
  const Field* offset = find_field(record->fields, "offset");
  if (!id || !offset || !from_value(id->value, item.identifier, expected)) return false;
  const auto* number = offset->value.get_if<std::int64_t>();
  if (!number) return false;
  item.offset = *number;
  key = std::move(item);
  return true;
}

Value extra_keys_value(const std::optional<ExtraKeys>& keys) {
  if (!keys) return Value();
  Value::List list;
  for (const ExtraKey& key : *keys) list.push_back(extra_key_value(key));
  return Value::Variant(std::move(list));
}

bool extra_keys_from(const Value& value, std::optional<ExtraKeys>& keys) {
  if (value.get_if<None>()) return true;
  const auto* list = value.get_if<Value::List>();
  if (!list) return false;
  keys.emplace();
  for (const Value& element : *list) {
    if (!extra_key_from(element, keys->emplace_back())) return false;
  }
  return true;
}

/// Where the member is there.
template <class T>
void add(std::vector<Field>& fields, const char* key, const std::optional<T>& member) {
  if (member) fields.push_back({key, to_value(*member), {}});
}

Value event_value(const BlockStored& event) {
  std::vector<Field> fields;
  fields.push_back({"block_hashes", Value(), {}});
  Value::List hashes;
  for (const BlockHash& hash : event.block_hashes) hashes.push_back(bytes_value(hash));
  fields.back().value = Value::Variant(std::move(hashes));
  fields.push_back({"parent_block_hash",
                    event.parent_block_hash ? bytes_value(*event.parent_block_hash) : Value(),
                    {}});
  fields.push_back({"token_ids", to_value(event.token_ids), {}});
  fields.push_back({"block_size", to_value(event.block_size), {}});
  if (event.lora) {
    fields.push_back({"lora_name", to_value(event.lora->name), {}});
    fields.push_back({"lora_id", to_value(event.lora->id), {}});
  }
  bool any_extra_keys = false;
  Value::List extra_keys;
  for (const auto& keys : event.extra_keys) {
    any_extra_keys = any_extra_keys || keys.has_value();
    extra_keys.push_back(extra_keys_value(keys));
  }
  // A list of nothing but none says no more than the number of hashes.
  if (any_extra_keys) fields.push_back({"extra_keys", Value::Variant(std::move(extra_keys)), {}});
  add(fields, "group_idx", event.group_idx);
  add(fields, "kv_cache_spec_kind", event.kv_cache_spec_kind);
  add(fields, "kv_cache_spec_sliding_window", event.kv_cache_spec_sliding_window);
  add(fields, "medium", event.medium);
  return Value::Variant(Record{"stored", std::move(fields)});
}

Value event_value(const BlockRemoved& event) {
  std::vector<Field> fields;
  fields.push_back({"block_hash", bytes_value(event.block_hash), {}});
  add(fields, "group_idx", event.group_idx);
  add(fields, "medium", event.medium);
  return Value::Variant(Record{"removed", std::move(fields)});
}

Value event_value(const AllBlocksCleared&) { return Value::Variant(Record{"cleared", {}}); }

/// Reads the fields of one record and counts them, so that an unknown key does not pass unseen.
class RecordReader {
 public:
  explicit RecordReader(const Record& record) : record_(record) {}

  const Value* find(std::string_view key) {
    const Field* field = find_field(record_.fields, key);
    if (!field) return nullptr;
    ++num_read_;
    return &field->value;
  }

  template <class T>
  bool read(std::string_view key, T& member) {
    const Value* value = find(key);
    return value && from_value(*value, member, expected_);
  }

  /// One of the wrong kind counts as absent.
  template <class T>
  void read_if_there(std::string_view key, std::optional<T>& member) {
    T value{};
    if (read(key, value)) member = std::move(value);
  }

  bool all_read() const { return num_read_ == record_.fields.size(); }

 private:
  const Record& record_;
  std::size_t num_read_ = 0;
  std::string expected_;
};

bool stored_from(const Record& record, BlockStored& event) {
  RecordReader reader(record);
  const Value* hashes = reader.find("block_hashes");
  const auto* list = hashes ? hashes->get_if<Value::List>() : nullptr;
  if (!list) return false;
  for (const Value& hash : *list) {
    if (!bytes_from(hash, event.block_hashes.emplace_back())) return false;
  }
  const Value* parent = reader.find("parent_block_hash");
  if (!parent) return false;
  if (!parent->get_if<None>() && !bytes_from(*parent, event.parent_block_hash.emplace()))
    return false;
  if (!reader.read("token_ids", event.token_ids)) return false;
  if (!reader.read("block_size", event.block_size)) return false;
  LoraRequest lora;
  const bool has_name = reader.read("lora_name", lora.name);
  const bool has_id = reader.read("lora_id", lora.id);
  if (has_name != has_id) return false;
  if (has_name) event.lora = std::move(lora);
  event.extra_keys.resize(event.block_hashes.size());
  if (const Value* extra_keys = reader.find("extra_keys")) {
    const auto* entries = extra_keys->get_if<Value::List>();
    if (!entries || entries->size() != event.extra_keys.size()) return false;
    for (std::size_t index = 0; index < entries->size(); ++index) {
      if (!extra_keys_from((*entries)[index], event.extra_keys[index])) return false;
    }
  }
  reader.read_if_there("group_idx", event.group_idx);
  reader.read_if_there("kv_cache_spec_kind", event.kv_cache_spec_kind);
  reader.read_if_there("kv_cache_spec_sliding_window", event.kv_cache_spec_sliding_window);
  reader.read_if_there("medium", event.medium);
  // A connector's event has none at all, which is printed like a pool's without any.
  if (event.medium && !find_field(record.fields, "extra_keys")) event.extra_keys.clear();
  return reader.all_read();
}

bool removed_from(const Record& record, BlockRemoved& event) {
  RecordReader reader(record);
  const Value* hash = reader.find("block_hash");
  if (!hash || !bytes_from(*hash, event.block_hash)) return false;
  reader.read_if_there("group_idx", event.group_idx);
  reader.read_if_there("medium", event.medium);
  return reader.all_read();
}

}  // namespace

Value to_value(const MmFeature& member) {
  return Value::Variant(Record{"item",
                               {{"id", to_value(member.identifier), {}},
                                {"offset", to_value(member.offset), {}},
                                {"length", to_value(member.length), {}}}});
}

Value to_value(const KVCacheEvent& member) {
  return std::visit([](const auto& event) { return event_value(event); }, member);
}

Value to_value(const KeyList& member) {
  Value::List list;
  for (const BlockHash& hash : member) list.push_back(hash.empty() ? Value() : bytes_value(hash));
  return Value::Variant(std::move(list));
}

bool from_value(const Value& value, std::vector<MmFeature>& member, std::string& expected) {
  expected = "items such as [(item id=cat offset=0 length=4)], by offset";
  const auto* list = value.get_if<Value::List>();
  if (!list) return false;
  member.clear();
  for (const Value& element : *list) {
    const auto* record = element.get_if<Record>();
    if (!record || record->verb != "item") return false;
    RecordReader reader(*record);
    MmFeature feature;
    const bool read = reader.read("id", feature.identifier) &&
                      reader.read("offset", feature.offset) &&
                      reader.read("length", feature.length) && reader.all_read();
    if (!read || (!member.empty() && member.back().offset > feature.offset)) return false;
    member.push_back(std::move(feature));
  }
  return true;
}

bool from_value(const Value& value, KVCacheEvent& member, std::string& expected) {
  expected = "an event: (stored ...), (removed ...) or (cleared)";
  const auto* record = value.get_if<Record>();
  if (!record) return false;
  if (record->verb == "stored") return stored_from(*record, member.emplace<BlockStored>());
  if (record->verb == "removed") return removed_from(*record, member.emplace<BlockRemoved>());
  if (record->verb != "cleared" || !record->fields.empty()) return false;
  member.emplace<AllBlocksCleared>();
  return true;
}

std::string list_of(const KVCacheEvent&) {
  return "a list of events: (stored ...), (removed ...), (cleared)";
}

bool from_value(const Value& value, KeyList& member, std::string& expected) {
  expected = "a list of bytes and none";
  const auto* list = value.get_if<Value::List>();
  if (!list) return false;
  member.resize(list->size());
  for (std::size_t index = 0; index < list->size(); ++index) {
    member[index].clear();
    if ((*list)[index].get_if<None>()) continue;
    if (!bytes_from((*list)[index], member[index])) return false;
  }
  return true;
}

}  // namespace kvfence
