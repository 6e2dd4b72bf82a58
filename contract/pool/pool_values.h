#pragma once

/// Keys, events and multimodal items as values of the line language (contract/core/line.h).

#include <optional>
#include <string>
#include <vector>

#include "contract/core/declare.h"
#include "contract/pool/block_hash.h"
#include "contract/pool/kv_events.h"
#include "contract/pool/request.h"

namespace kvfence {

/// Packed keys by block id, empty for none: what an empty one prints as.
struct KeyList : std::vector<BlockHash> {
  using std::vector<BlockHash>::vector;
};

Value to_value(const MmFeature& member);
Value to_value(const KeyList& member);
bool from_value(const Value& value, std::vector<MmFeature>& member, std::string& expected);
bool from_value(const Value& value, BlockStored& member, std::string& expected);
bool from_value(const Value& value, KeyList& member, std::string& expected);
std::string list_of(const ExtraKey&);
std::string list_of(const std::optional<ExtraKeys>&);
std::string list_of(const KVCacheEvent&);

/// The blocks of a pool, where the whole state is asked for.
struct ShownBlocks {
  Reusable<std::vector<BlockId>> free_queue;      ///< head to tail
  Reusable<std::vector<std::uint32_t>> ref_cnts;  ///< by block id; 0 for the null block
  Reusable<KeyList> keys;                         ///< packed keys by block id; empty for none
  static void declare(auto& fields) {
    using S = ShownBlocks;
    fields.state("free_queue", &S::free_queue, "head to tail");
    fields.state("ref_cnts", &S::ref_cnts, "by block id");
    fields.state("keys", &S::keys, "packed keys by block id");
  }
};

}  // namespace kvfence
