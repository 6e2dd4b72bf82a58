#pragma once

/// What the two halves of the kv_cache invariants share (kv_cache_invariants.cpp and
/// kv_cache_change_invariants.cpp): rules by id, and how a broken one is told.

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/block_hash.h"
#include "contract/line.h"
#include "properties/difference.h"
#include "properties/kv_cache_invariants.h"

namespace kvfence::kv_cache::detail {

// The places of kInvariants, so that code names a rule by its id.
enum Rule : std::size_t {
  kK1,
  kK2,
  kK3,
  kK4,
  kK5,
  kK6,
  kK7,
  kK8,
  kK9,
  kK10,
  kK11,
  kK12,
  kK13,
  kK14,
  kK15,
  kK16,
  kK17,
  kK18,
  kK19,
  kK20,
  kK21,
  kK22
};

static_assert(kInvariants.size() == kK22 + 1);

// The overloads of kv_cache would hide those of plain types.
using kv_cache::to_value;
using kvfence::to_value;

/// A block's key as bytes; none for an empty one.
inline Value key_value(const BlockHash& key) {
  return key.empty() ? Value() : Value(Value::Variant(Bytes{key}));
}

inline Value phrase(std::string_view text) { return Value(Value::Variant(std::string(text))); }

inline Divergence broken_values(Rule rule, std::string_view member, Value expected, Value actual,
                                const World& world) {
  Divergence divergence = kvfence::detail::locate_difference(
      std::string(member), std::move(expected), std::move(actual),
      [&](std::string_view bytes) { return world.requests().symbol_of(bytes); });
  divergence.oracle = kInvariants[rule].name;
  divergence.message = kInvariants[rule].rule;
  return divergence;
}

/// Two sides of one member of the observation.
template <class T>
Divergence broken(Rule rule, std::string_view member, const T& expected, const T& actual,
                  const World& world) {
  return broken_values(rule, member, to_value(expected), to_value(actual), world);
}

/// A side that only words describe.
template <class T>
Divergence broken_phrase(Rule rule, std::string_view member, std::string_view expected,
                         const T& actual, const World& world) {
  return broken_values(rule, member, phrase(expected), to_value(actual), world);
}

/// `tables[A][1][2]`: a place of a block table.
inline std::string place_name(std::string_view request, GroupId group, std::size_t index) {
  return "tables[" + std::string(request) + "][" + std::to_string(group) + "][" +
         std::to_string(index) + "]";
}

/// A request's blocks by group; null where it has none.
inline const BlocksByGroup* find_table(const std::vector<RequestBlocks>& tables,
                                       std::string_view request) {
  for (const RequestBlocks& table : tables) {
    if (table.request == request) return &table.blocks;
  }
  return nullptr;
}

/// Whether a packed key is that of a block of a request in a group.
inline bool is_key_of(const BlockHash& key, const Request& request, std::uint32_t block_size,
                      std::size_t index, GroupId group) {
  const BlockHashListView hashes = request.block_hashes(block_size);
  return index < hashes.size() && key.size() == hashes[index].size() + kGroupIdBytes &&
         get_block_hash(key) == hashes[index] && get_group_id(key) == group;
}

template <class T>
bool contains(const std::vector<T>& list, const T& element) {
  return std::find(list.begin(), list.end(), element) != list.end();
}

}  // namespace kvfence::kv_cache::detail
