#include "properties/pool/event_mirror.h"

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "contract/pool/block_hash.h"

namespace kvfence {

using detail::Mismatch;
using detail::phrase;

std::optional<Mismatch> EventMirror::take(std::span<const KVCacheEvent> events,
                                          const BlockPoolConfig& config) {
  const Rules& rules = config.rules;
  if (!config.enable_kv_cache_events) {
    if (events.empty()) return std::nullopt;
    return Mismatch{"events", to_value(std::vector<KVCacheEvent>()),
                    to_value(std::vector<KVCacheEvent>(events.begin(), events.end()))};
  }
  const auto wrong = [&](std::size_t at, std::string_view expected) {
    const Value actual = to_value(std::vector<KVCacheEvent>{events[at]});
    return Mismatch{"events[" + std::to_string(at) + "]", phrase(expected),
                    actual.get_if<Value::List>()->front()};
  };
  for (std::size_t at = 0; at < events.size(); ++at) {
    if (const auto* stored = std::get_if<BlockStored>(&events[at])) {
      if (stored->group_idx.has_value() != rules.events_carry_group) {
        return wrong(at, rules.events_carry_group ? "a group_idx" : "no group_idx");
      }
      if (stored->kv_cache_spec_kind.has_value() != rules.events_carry_spec) {
        return wrong(at,
                     rules.events_carry_spec ? "a kv_cache_spec_kind" : "no kv_cache_spec_kind");
      }
      for (const BlockHash& hash : stored->block_hashes) {
        index_.change(hash, stored->group_idx.value_or(0), 1);
      }
    } else if (const auto* removed = std::get_if<BlockRemoved>(&events[at])) {
      const GroupId group = removed->group_idx.value_or(0);
      if (removed->group_idx.has_value() != rules.events_carry_group) {
        return wrong(at, rules.events_carry_group ? "a group_idx" : "no group_idx");
      }
      if (index_.amount(removed->block_hash, group) <= 0) {
        return wrong(at, "a hash that the index holds");
      }
      index_.change(removed->block_hash, group, -1);
    } else {
      index_.clear();
    }
  }
  return std::nullopt;
}

std::optional<Mismatch> EventMirror::compare(const KeyList& keys, const BlockPoolConfig& config) {
  if (!config.enable_kv_cache_events) return std::nullopt;
  const auto change_by_keys = [&](std::int64_t by) {
    for (const BlockHash& key : keys) {
      if (key.empty()) continue;
      index_.change(get_block_hash(key), config.rules.events_carry_group ? get_group_id(key) : 0,
                    by);
    }
  };
  change_by_keys(-1);
  if (const block_pool::EventDebt::Entry* entry = index_.first()) {
    const auto text = [](std::int64_t amount) {
      return phrase(std::to_string(amount) + (amount > 0 ? " more than there is" : " less"));
    };
    Record hash{"index", {{"block_hash", Value(Value::Variant(Bytes{entry->hash})), {}}}};
    hash.fields.push_back({"is", text(entry->amount), {}});
    return Mismatch{"events", phrase("an index that holds the keys"),
                    Value(Value::Variant(std::move(hash)))};
  }
  change_by_keys(1);
  return std::nullopt;
}

}  // namespace kvfence
