#pragma once

/// Keys, events and multimodal items as values of the line language (contract/core/line.h).

#include <string>
#include <vector>

#include "contract/core/declare.h"
#include "contract/pool/block_hash.h"
#include "contract/pool/kv_events.h"
#include "contract/pool/request.h"

namespace kvfence {

/// Packed keys by block id, empty for none. A type of its own, so that it prints as bytes and not
/// as words.
struct KeyList : std::vector<BlockHash> {
  using std::vector<BlockHash>::vector;
};

Value to_value(const MmFeature& member);
Value to_value(const std::vector<MmFeature>& member);
Value to_value(const std::vector<KVCacheEvent>& member);
Value to_value(const KeyList& member);
bool from_value(const Value& value, std::vector<MmFeature>& member, std::string& expected);
bool from_value(const Value& value, std::vector<KVCacheEvent>& member, std::string& expected);
bool from_value(const Value& value, KeyList& member, std::string& expected);

}  // namespace kvfence
