#include "optimized/pool/event_log.h"

#include <string>
#include <variant>

namespace kvfence::optimized {

void EventLog::begin_block_stored(std::uint32_t block_size, const std::optional<LoraRequest>& lora,
                                  std::optional<GroupId> group_idx,
                                  std::optional<BlockHashView> parent_block_hash,
                                  std::span<const TokenId> token_ids) {
  records_.push_back({.kind = Kind::kBlockStored,
                      .has_parent = parent_block_hash.has_value(),
                      .group_idx = group_idx,
                      .block_size = block_size,
                      .lora_id = lora ? std::optional(lora->id) : std::nullopt,
                      .num_hashes = 0,
                      .num_tokens = token_ids.size()});
  if (parent_block_hash) add_string(*parent_block_hash);
  if (lora) add_string(lora->name);
  token_ids_.insert(token_ids_.end(), token_ids.begin(), token_ids.end());
}

void EventLog::add_stored_block(BlockHashView hash, const ExtraKeys& extra_keys) {
  ++records_.back().num_hashes;
  add_string(hash);
  num_extra_keys_.push_back(static_cast<std::uint32_t>(extra_keys.size()));
  for (const ExtraKey& key : extra_keys) {
    if (const auto* item = std::get_if<MmExtraKey>(&key)) {
      extra_keys_.push_back({.is_mm = true, .offset = item->offset});
      add_string(item->identifier);
    } else {
      extra_keys_.push_back({});
      add_string(std::get<std::string>(key));
    }
  }
}

void EventLog::add_block_removed(BlockHashView hash, std::optional<GroupId> group_idx) {
  Record record;
  record.kind = Kind::kBlockRemoved;
  record.group_idx = group_idx;
  records_.push_back(record);
  add_string(hash);
}

void EventLog::add_all_blocks_cleared() { records_.emplace_back(); }

/// Walks the arenas once, in the order in which they were written.
class EventLog::Reader {
 public:
  explicit Reader(const EventLog& log) : log_(log) {}

  KVCacheEvent next(const Record& record) {
    switch (record.kind) {
      case Kind::kBlockStored: {
        BlockStored event;
        event.block_size = record.block_size;
        event.group_idx = record.group_idx;
        if (record.has_parent) event.parent_block_hash = next_string();
        event.lora_id = record.lora_id;
        if (record.lora_id) event.lora_name = next_string();
        const auto tokens = log_.token_ids_.begin() + static_cast<std::ptrdiff_t>(token_);
        event.token_ids.assign(tokens, tokens + static_cast<std::ptrdiff_t>(record.num_tokens));
        token_ += record.num_tokens;
        for (std::uint32_t i = 0; i < record.num_hashes; ++i) {
          event.block_hashes.push_back(next_string());
          event.extra_keys.push_back(next_extra_keys());
        }
        return event;
      }
      case Kind::kBlockRemoved:
        return BlockRemoved{next_string(), record.group_idx, std::nullopt};
      case Kind::kAllBlocksCleared:
        break;
    }
    return AllBlocksCleared{};
  }

 private:
  std::string next_string() {
    const std::span<const char> text = log_.strings_[string_++];
    return {text.begin(), text.end()};
  }

  std::optional<ExtraKeys> next_extra_keys() {
    const std::uint32_t num_keys = log_.num_extra_keys_[stored_hash_++];
    if (num_keys == 0) return std::nullopt;
    ExtraKeys keys;
    for (std::uint32_t i = 0; i < num_keys; ++i) {
      const ExtraKeyRecord& record = log_.extra_keys_[extra_key_++];
      if (record.is_mm) {
        keys.emplace_back(MmExtraKey{next_string(), record.offset});
      } else {
        keys.emplace_back(next_string());
      }
    }
    return keys;
  }

  const EventLog& log_;
  std::size_t token_ = 0;
  std::size_t stored_hash_ = 0;
  std::size_t extra_key_ = 0;
  std::size_t string_ = 0;
};

void EventLog::take(std::vector<KVCacheEvent>& out) {
  out.clear();
  out.reserve(records_.size());
  Reader reader(*this);
  for (const Record& record : records_) out.push_back(reader.next(record));
  records_.clear();
  token_ids_.clear();
  num_extra_keys_.clear();
  extra_keys_.clear();
  strings_.clear();
}

}  // namespace kvfence::optimized
