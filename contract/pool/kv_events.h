#pragma once

/// What a pool reports of its prefix cache, in the order in which it happened.
/// Source: vLLM v0.19.0 and v0.23.0 distributed/kv_events.py.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/types.h"
#include "contract/pool/block_hash.h"
#include "contract/pool/request.h"

namespace kvfence {

/// Full blocks became findable. One event a call of cache_full_blocks, even when every block was
/// passed over.
struct BlockStored {
  std::vector<BlockHash> block_hashes;  ///< of the blocks not passed over; no group suffix
  std::optional<BlockHash>
      parent_block_hash;           ///< the request's hash before the range; none at its start
  std::vector<TokenId> token_ids;  ///< all tokens of the range, those of passed-over blocks too
  std::uint32_t block_size = 0;    ///< tokens
  std::optional<LoraRequest> lora;
  /// One entry per hash; none where a block has no extra keys. Empty stands for upstream's none.
  std::vector<std::optional<ExtraKeys>> extra_keys;
  std::optional<GroupId> group_idx;  ///< where the rules say that events carry it
  /// Upstream's name of the group's kind, and its window in tokens: added by a KV-cache manager,
  /// where the rules say so.
  std::optional<std::string> kv_cache_spec_kind;
  std::optional<std::uint32_t> kv_cache_spec_sliding_window;
  std::optional<std::string> medium =
      std::nullopt;  ///< "CPU" of an offloading connector; none: GPU
  void add_to(StateHash& hash) const {
    hash.add_all(block_hashes, parent_block_hash, token_ids, block_size, lora, extra_keys,
                 group_idx, kv_cache_spec_kind, kv_cache_spec_sliding_window, medium);
  }
  friend bool operator==(const BlockStored&, const BlockStored&) = default;
};

/// One block lost its hash. One event a block, also when another block still carries the same hash.
struct BlockRemoved {
  BlockHash block_hash;  ///< no group suffix
  std::optional<GroupId> group_idx;
  std::optional<std::string> medium = std::nullopt;  ///< as BlockStored
  void add_to(StateHash& hash) const { hash.add_all(block_hash, group_idx, medium); }
  friend bool operator==(const BlockRemoved&, const BlockRemoved&) = default;
};

/// The prefix cache was reset.
struct AllBlocksCleared {
  void add_to(StateHash&) const {}
  friend bool operator==(const AllBlocksCleared&, const AllBlocksCleared&) = default;
};

using KVCacheEvent = std::variant<BlockStored, BlockRemoved, AllBlocksCleared>;

}  // namespace kvfence
