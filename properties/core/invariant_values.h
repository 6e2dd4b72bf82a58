#pragma once

/// How rules of several targets report what is wrong: values besides those of observations.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/line.h"
#include "contract/kv_cache/kv_cache_target.h"
#include "contract/pool/block_hash.h"
#include "contract/pool/request.h"
#include "properties/core/broken_rule.h"

namespace kvfence::detail {

/// A block's key as bytes; none for an empty one.
inline Value key_value(const BlockHash& key) { return key.empty() ? Value() : to_value(key); }

/// A side described in words.
inline Value phrase(std::string_view text) { return Value(Value::Variant(std::string(text))); }

/// `outputs[3]`
inline std::string element(std::string_view list, std::size_t index) {
  return std::string(list) + "[" + std::to_string(index) + "]";
}

/// `tables[A][1][2]`: a place of a block table.
inline std::string place_name(std::string_view request, GroupId group, std::size_t index) {
  return "tables[" + std::string(request) + "][" + std::to_string(group) + "][" +
         std::to_string(index) + "]";
}

/// A request's blocks by group; null if it has none.
inline const BlocksByGroup* find_table(const std::vector<kv_cache::RequestBlocks>& tables,
                                       std::string_view request) {
  for (const kv_cache::RequestBlocks& table : tables) {
    if (table.request == request) return &table.blocks;
  }
  return nullptr;
}

/// Whether a block's packed key is that of the hash and the group.
inline bool carries(const BlockHash& key, BlockHashView hash, GroupId group) {
  return key.size() == hash.size() + kGroupIdBytes && get_block_hash(key) == hash &&
         get_group_id(key) == group;
}

/// Whether a packed key is that of a block of a request in a group.
inline bool is_key_of(const BlockHash& key, const Request& request, std::uint32_t block_size,
                      std::size_t index, GroupId group) {
  const BlockHashListView hashes = request.block_hashes(block_size);
  return index < hashes.size() && carries(key, hashes[index], group);
}

/// Whether an element occurs twice.
template <class T>
bool has_repeats(std::vector<T> list) {
  std::ranges::sort(list);
  return std::ranges::adjacent_find(list) != list.end();
}

}  // namespace kvfence::detail
