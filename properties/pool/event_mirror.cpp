#include "properties/pool/event_mirror.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <variant>

#include "contract/pool/block_hash.h"
#include "properties/core/broken_rule.h"
#include "properties/core/invariant_values.h"

namespace kvfence {

using detail::phrase;

namespace {

// The end of a merged hash depends on all of its parts; its beginning does not.
std::uint64_t fingerprint_of(BlockHashView hash) {
  std::uint64_t fingerprint = 0;
  const std::size_t size = std::min(hash.size(), sizeof fingerprint);
  std::memcpy(&fingerprint, hash.data() + (hash.size() - size), size);
  return fingerprint + hash.size();
}

}  // namespace

std::size_t EventMirror::find(BlockHashView hash, GroupId group) const {
  const std::uint64_t fingerprint = fingerprint_of(hash);
  for (std::size_t index = 0; index < size_; ++index) {
    const Entry& entry = entries_[index];
    if (entry.fingerprint == fingerprint && entry.group == group && entry.hash == hash)
      return index;
  }
  return size_;
}

void EventMirror::change(BlockHashView hash, GroupId group, std::int64_t by) {
  const std::size_t at = find(hash, group);
  if (at == size_) {
    if (size_ == entries_.size()) entries_.emplace_back();
    Entry& entry = entries_[size_++];
    entry.fingerprint = fingerprint_of(hash);
    entry.hash.assign(hash);
    entry.group = group;
    entry.count = by;
    return;
  }
  entries_[at].count += by;
  if (entries_[at].count == 0) std::swap(entries_[at], entries_[--size_]);
}

void EventMirror::take(std::span<const KVCacheEvent> events, const BlockPoolConfig& config) {
  const Rules& rules = config.rules;
  if (!config.enable_kv_cache_events) {
    if (events.empty()) return;
    const std::vector<KVCacheEvent> none;
    broken_rule(*rule_, "events", none, std::vector<KVCacheEvent>(events.begin(), events.end()));
  }
  const auto wrong = [&](std::size_t at, std::string_view expected) {
    const Value actual = to_value(std::vector<KVCacheEvent>{events[at]});
    broken_rule(*rule_, detail::element("events", at), phrase(expected),
                actual.get_if<Value::List>()->front());
  };
  for (std::size_t at = 0; at < events.size(); ++at) {
    if (const auto* stored = std::get_if<BlockStored>(&events[at])) {
      if (stored->group_idx.has_value() != rules.events_carry_group) {
        wrong(at, rules.events_carry_group ? "a group_idx" : "no group_idx");
      }
      if (stored->kv_cache_spec_kind.has_value() != rules.events_carry_spec) {
        wrong(at, rules.events_carry_spec ? "a kv_cache_spec_kind" : "no kv_cache_spec_kind");
      }
      for (const BlockHash& hash : stored->block_hashes) {
        change(hash, stored->group_idx.value_or(0), 1);
      }
    } else if (const auto* removed = std::get_if<BlockRemoved>(&events[at])) {
      const GroupId group = removed->group_idx.value_or(0);
      if (removed->group_idx.has_value() != rules.events_carry_group) {
        wrong(at, rules.events_carry_group ? "a group_idx" : "no group_idx");
      }
      if (find(removed->block_hash, group) == size_) {
        wrong(at, "a hash that the index holds");
      }
      change(removed->block_hash, group, -1);
    } else {
      clear();
    }
  }
}

void EventMirror::compare(const KeyList& keys, const BlockPoolConfig& config) {
  if (!config.enable_kv_cache_events) return;
  const auto change_by_keys = [&](std::int64_t by) {
    for (const BlockHash& key : keys) {
      if (key.empty()) continue;
      change(get_block_hash(key), config.rules.events_carry_group ? get_group_id(key) : 0, by);
    }
  };
  change_by_keys(-1);
  if (size_ > 0) {
    const Entry& entry = entries_[0];
    const std::string is = std::to_string(entry.count) + (entry.count > 0 ? " more" : " less");
    Record hash{"index", {{"block_hash", to_value(entry.hash), {}}}};
    hash.fields.push_back({"is", phrase(is), {}});
    broken_rule(*rule_, "events", phrase("an index that holds the keys"),
                Value(Value::Variant(std::move(hash))));
  }
  change_by_keys(1);
}

}  // namespace kvfence
