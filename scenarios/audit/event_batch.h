#pragma once

/// A batch of KV events as vLLM and SGLang publish it, before any check.
/// Source: vLLM v0.19.0, v0.23.0 and v0.33.0 distributed/kv_events.py.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/core/types.h"

namespace kvfence::audit {

/// The release whose fields a payload has. Arrays have every field of their release, none as nil:
/// msgspec omits defaults only in maps. Members without a field in the release are left out.
/// Source: vLLM v0.19.0, v0.23.0 and v0.33.0 distributed/kv_events.py, encoded by msgspec 0.22.0.
enum class WireRelease : std::uint8_t {
  kV019,  ///< arrays that end with extra_keys
  kV023,  ///< and then have group_idx and the kind of the group
  kV033,  ///< maps
};

/// A block's hash: bytes, or an integer of 64 bits where the engine publishes hashes as numbers
/// (its low 64 bits; SGLang's may be negative). The integer is kept as 8 bytes, big-endian.
struct EventHash {
  std::string bytes;
  bool is_integer = false;

  friend bool operator==(const EventHash&, const EventHash&) = default;
  friend auto operator<=>(const EventHash&, const EventHash&) = default;
};

/// One extra key of a block, in the order of the wire: a text (LoRA name, cache salt), bytes
/// (a digest), or a multimodal item with its offset in tokens, which 0.19.0 leaves out.
struct EventExtraKey {
  enum class Kind : std::uint8_t { kText, kBytes, kItem };

  Kind kind = Kind::kText;
  std::string value;                   ///< the item's identifier of kItem
  std::optional<std::int64_t> offset;  ///< of kItem

  friend bool operator==(const EventExtraKey&, const EventExtraKey&) = default;
};

struct StoredEvent {
  static constexpr std::string_view kTag = "BlockStored";

  std::vector<EventHash> block_hashes;
  std::optional<EventHash> parent_block_hash;
  std::vector<TokenId> token_ids;  ///< of pairs, the first ones
  std::uint32_t block_size = 0;    ///< tokens
  std::optional<std::int64_t> lora_id;
  std::optional<std::string> medium;  ///< none: GPU
  std::optional<std::string> lora_name;
  /// One entry per hash; an entry is none where the block has no extra keys.
  std::optional<std::vector<std::optional<std::vector<EventExtraKey>>>> extra_keys;
  std::optional<std::uint32_t> group_idx;
  std::optional<std::string> kv_cache_spec_kind;
  std::optional<std::uint32_t> kv_cache_spec_sliding_window;
  std::optional<std::string> locality;
  std::optional<std::string> ownership;
  std::optional<std::string> session_id;
  std::optional<std::vector<std::vector<TokenId>>> lookahead_token_ids;

  /// In the order of the wire. With a release: the field exists since then, and its default is none.
  static void declare(auto& fields) {
    using enum WireRelease;
    fields.add("block_hashes", &StoredEvent::block_hashes);
    fields.add("parent_block_hash", &StoredEvent::parent_block_hash);
    fields.add("token_ids", &StoredEvent::token_ids);
    fields.add("block_size", &StoredEvent::block_size);
    fields.add("lora_id", &StoredEvent::lora_id);
    fields.add("medium", &StoredEvent::medium);
    fields.add("lora_name", &StoredEvent::lora_name);
    fields.add("extra_keys", &StoredEvent::extra_keys, kV019);
    fields.add("group_idx", &StoredEvent::group_idx, kV023);
    fields.add("kv_cache_spec_kind", &StoredEvent::kv_cache_spec_kind, kV023);
    fields.add("kv_cache_spec_sliding_window", &StoredEvent::kv_cache_spec_sliding_window, kV023);
    fields.add("locality", &StoredEvent::locality, kV033);
    fields.add("ownership", &StoredEvent::ownership, kV033);
    fields.add("session_id", &StoredEvent::session_id, kV033);
    fields.add("lookahead_token_ids", &StoredEvent::lookahead_token_ids, kV033);
  }
  friend bool operator==(const StoredEvent&, const StoredEvent&) = default;
};

struct RemovedEvent {
  static constexpr std::string_view kTag = "BlockRemoved";

  std::vector<EventHash> block_hashes = {};
  std::optional<std::string> medium = {};  ///< none: GPU
  std::optional<std::uint32_t> group_idx = {};
  std::optional<std::string> locality = {};
  std::optional<std::string> ownership = {};

  /// As StoredEvent::declare.
  static void declare(auto& fields) {
    using enum WireRelease;
    fields.add("block_hashes", &RemovedEvent::block_hashes);
    fields.add("medium", &RemovedEvent::medium);
    fields.add("group_idx", &RemovedEvent::group_idx, kV023);
    fields.add("locality", &RemovedEvent::locality, kV033);
    fields.add("ownership", &RemovedEvent::ownership, kV033);
  }
  friend bool operator==(const RemovedEvent&, const RemovedEvent&) = default;
};

struct ClearedEvent {
  static constexpr std::string_view kTag = "AllBlocksCleared";
  static void declare(auto&) {}
  friend bool operator==(const ClearedEvent&, const ClearedEvent&) = default;
};

inline bool is_on_gpu(const std::optional<std::string>& medium) {
  return !medium || *medium == "GPU" || *medium == "gpu";
}

using Event = std::variant<StoredEvent, RemovedEvent, ClearedEvent>;

/// The payload of a message.
struct EventBatch {
  double time = 0;  ///< seconds since the epoch, of the publisher's clock
  std::vector<Event> events;
  std::optional<std::uint32_t> data_parallel_rank;

  friend bool operator==(const EventBatch&, const EventBatch&) = default;
};

/// How an event is encoded in the payload; the batch is an array in both.
enum class Encoding : std::uint8_t {
  kArrays,  ///< a type tag and the fields in order; to 0.23, and SGLang
  kMaps,    ///< a map with the type under "type"; 0.33
};

/// A message: the frames of one ZMQ multipart, without the frames of a replay's envelope.
struct Message {
  std::string topic;
  std::uint64_t sequence = 0;
  std::string payload;  ///< msgpack of an EventBatch

  friend bool operator==(const Message&, const Message&) = default;
};

}  // namespace kvfence::audit
