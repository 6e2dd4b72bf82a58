#include "scenarios/audit/encode.h"

#include <array>
#include <bit>
#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "scenarios/audit/big_endian.h"

namespace kvfence::audit {
namespace {

/// Bytes of a hash that is an integer.
constexpr std::size_t kIntegerBytes = 8;

/// Writes msgpack as msgspec does.
class Writer {
 public:
  explicit Writer(WireRelease release) : release_(release) {}
  std::string take() { return std::move(out_); }
  WireRelease release() const { return release_; }
  bool writes_maps() const { return release_ == WireRelease::kV033; }
  void append(std::string_view values) { out_ += values; }

  void nil() { out_ += '\xc0'; }
  void write(double value) {
    out_ += '\xcb';
    append_big_endian(out_, std::bit_cast<std::uint64_t>(value), 8);
  }
  void write(std::uint64_t value) {
    if (value <= 0x7f) {
      append_big_endian(out_, value, 1);
    } else {
      sized(value, {'\xcc', '\xcd', '\xce', '\xcf'});
    }
  }
  void write(std::uint32_t value) { write(std::uint64_t{value}); }
  void write(std::int64_t value) {
    if (value >= 0) return write(static_cast<std::uint64_t>(value));
    const auto bits = static_cast<std::uint64_t>(value);
    if (value >= -32) return append_big_endian(out_, bits, 1);
    constexpr std::array kTags = {'\xd0', '\xd1', '\xd2', '\xd3'};
    std::size_t index = 0;
    while (index < 3 && value < -(std::int64_t{1} << ((8U << index) - 1))) ++index;
    out_ += kTags[index];
    append_big_endian(out_, bits, std::size_t{1} << index);
  }
  void write(std::string_view text) {
    if (text.size() < 32) {
      out_ += static_cast<char>(0xa0 + text.size());
    } else {
      sized(text.size(), {'\xd9', '\xda', '\xdb', '\xdb'});
    }
    out_ += text;
  }
  void bytes(std::string_view bytes) {
    sized(bytes.size(), {'\xc4', '\xc5', '\xc6', '\xc6'});
    out_ += bytes;
  }
  void array(std::size_t size) { container(size, size, 0x90, {'\xdc', '\xdd'}); }
  /// The header has the length that size_max members need.
  void map(std::size_t size, std::size_t size_max) {
    container(size, size_max, 0x80, {'\xde', '\xdf'});
  }

  void write(const EventHash& hash) {
    if (!hash.is_integer) return bytes(hash.bytes);
    write(from_big_endian(hash.bytes));
  }
  void write(const EventExtraKey& key) {
    if (key.kind == EventExtraKey::Kind::kBytes) return bytes(key.value);
    if (!key.offset) return write(std::string_view(key.value));
    array(2);
    write(std::string_view(key.value));
    write(*key.offset);
  }
  void write(const std::string& text) { write(std::string_view(text)); }
  template <class T>
  void write(const std::optional<T>& value) {
    value ? write(*value) : nil();
  }
  template <class T>
  void write(const std::vector<T>& values) {
    array(values.size());
    for (const T& value : values) write(value);
  }

 private:
  /// A tag for one, two, four or eight bytes, and the value in the fewest of these.
  void sized(std::uint64_t value, const std::array<char, 4>& tags) {
    std::size_t index = 0;
    while (index < 3 && value >> (8U << index) != 0) ++index;
    out_ += tags[index];
    append_big_endian(out_, value, std::size_t{1} << index);
  }
  void container(std::size_t size, std::size_t size_max, unsigned tag,
                 const std::array<char, 2>& tags) {
    if (size_max < 16) {
      out_ += static_cast<char>(tag + size);
    } else {
      const bool is_long = size_max > std::numeric_limits<std::uint16_t>::max();
      out_ += tags[is_long ? 1 : 0];
      append_big_endian(out_, size, is_long ? 4 : 2);
    }
  }

  WireRelease release_;
  std::string out_;
};

/// The fields of an event in order, and their number with its tag.
template <class E>
struct Fields {
  const E& event;
  Writer body;
  std::size_t num = 1;
  std::size_t num_max = 1;

  template <class T>
  void add(std::string_view name, T E::*member) {
    ++num;
    ++num_max;
    if (body.writes_maps()) body.write(name);
    body.write(event.*member);
  }
  template <class T>
  void add(std::string_view name, std::optional<T> E::*member, WireRelease since) {
    const bool is_default = body.writes_maps() && !(event.*member);
    if (body.release() >= since && !is_default) return add(name, member);
    ++num_max;
  }
};

template <class E>
void write_event(Writer& writer, const E& event) {
  Fields<E> fields{event, Writer(writer.release())};
  E::declare(fields);
  if (writer.writes_maps()) {
    writer.map(fields.num, fields.num_max);
    writer.write(std::string_view("type"));
  } else {
    writer.array(fields.num);
  }
  writer.write(E::kTag);
  writer.append(fields.body.take());
}

EventExtraKey to_event_key(const ExtraKey& key) {
  using KeyKind = EventExtraKey::Kind;
  if (const auto* text = std::get_if<std::string>(&key))
    return {KeyKind::kText, *text, std::nullopt};
  const auto& item = std::get<MmExtraKey>(key);
  return {KeyKind::kItem, item.identifier, item.offset};
}

const std::string kGpu = "GPU";

StoredEvent to_stored(const BlockStored& event) {
  StoredEvent stored;
  for (const BlockHash& hash : event.block_hashes) stored.block_hashes.push_back({hash, false});
  if (event.parent_block_hash)
    stored.parent_block_hash = EventHash{*event.parent_block_hash, false};
  stored.token_ids = event.token_ids;
  stored.block_size = event.block_size;
  stored.medium = event.medium.value_or(kGpu);
  stored.lora_id = event.lora_id;
  stored.lora_name = event.lora_name;
  if (!event.extra_keys.empty()) stored.extra_keys.emplace();
  for (const auto& keys : event.extra_keys) {
    auto& of_block = stored.extra_keys->emplace_back();
    if (!keys) continue;
    of_block.emplace();
    for (const ExtraKey& key : *keys) of_block->push_back(to_event_key(key));
  }
  stored.group_idx = event.group_idx;
  stored.kv_cache_spec_kind = event.kv_cache_spec_kind;
  stored.kv_cache_spec_sliding_window = event.kv_cache_spec_sliding_window;
  return stored;
}

}  // namespace

std::string encode(const EventBatch& batch, WireRelease release) {
  Writer writer(release);
  writer.array(3);
  writer.write(batch.time);
  writer.array(batch.events.size());
  for (const Event& event : batch.events) {
    std::visit([&](const auto& of_type) { write_event(writer, of_type); }, event);
  }
  writer.write(batch.data_parallel_rank);
  return writer.take();
}

Event to_event(const KVCacheEvent& event) {
  if (const auto* stored = std::get_if<BlockStored>(&event)) return to_stored(*stored);
  const auto* removed = std::get_if<BlockRemoved>(&event);
  if (removed == nullptr) return ClearedEvent{};
  return RemovedEvent{.block_hashes = {{removed->block_hash, false}},
                      .medium = removed->medium.value_or(kGpu),
                      .group_idx = removed->group_idx};
}

void to_low64(EventHash& hash) {
  if (hash.is_integer) return;
  hash.bytes.erase(0, hash.bytes.size() - kIntegerBytes);
  hash.is_integer = true;
}

void to_low64(EventBatch& batch) {
  for (Event& event : batch.events) {
    if (auto* stored = std::get_if<StoredEvent>(&event)) {
      for (EventHash& hash : stored->block_hashes) to_low64(hash);
      if (stored->parent_block_hash) to_low64(*stored->parent_block_hash);
    } else if (auto* removed = std::get_if<RemovedEvent>(&event)) {
      for (EventHash& hash : removed->block_hashes) to_low64(hash);
    }
  }
}

}  // namespace kvfence::audit
