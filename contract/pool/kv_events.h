#pragma once

/// The events of a pool's prefix cache, oldest first.
/// Source: vLLM v0.19.0 and v0.23.0 distributed/kv_events.py.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/core/types.h"
#include "contract/pool/block_hash.h"
#include "contract/pool/request.h"

namespace kvfence {

/// What the hashes of several blocks depend on; none where a block has no extra keys.
struct ExtraKeysOfBlocks : std::vector<std::optional<ExtraKeys>> {
  using std::vector<std::optional<ExtraKeys>>::vector;
};

/// Where no block has any they say no more than the number of blocks, and are left out of the text.
inline bool is_present(const ExtraKeysOfBlocks& extra_keys) {
  return std::ranges::any_of(extra_keys, [](const auto& keys) { return keys.has_value(); });
}

/// Full blocks became findable. One event per call of cache_full_blocks, even when every block was
/// passed over.
struct BlockStored {
  static constexpr std::string_view kWord = "stored";
  std::vector<BlockHash> block_hashes;
  std::optional<BlockHash> parent_block_hash;
  std::vector<TokenId> token_ids;
  std::uint32_t block_size = 0;
  std::optional<std::string> lora_name;
  std::optional<std::uint32_t> lora_id;  ///< with the name
  ExtraKeysOfBlocks extra_keys;          ///< one entry per hash; empty stands for upstream's none
  std::optional<GroupId> group_idx;
  std::optional<std::string> kv_cache_spec_kind;
  std::optional<std::uint32_t> kv_cache_spec_sliding_window;
  std::optional<std::string> medium = std::nullopt;
  static void declare(auto& fields) {
    using S = BlockStored;
    fields.add("block_hashes", &S::block_hashes, "of the blocks not passed over; no group suffix");
    fields.add("parent_block_hash", &S::parent_block_hash,
               "the request's hash before the range; none at its start");
    fields.add("token_ids", &S::token_ids,
               "all tokens of the range, those of passed-over blocks too");
    fields.add("block_size", &S::block_size, "tokens");
    fields.optional("lora_name", &S::lora_name, "of the request");
    fields.optional("lora_id", &S::lora_id, "of the request");
    fields.optional("extra_keys", &S::extra_keys, "of each block; none where it has none");
    fields.optional("group_idx", &S::group_idx, "where the rules say that events carry it");
    // Both: added by a KV-cache manager, where the rules say so.
    fields.optional("kv_cache_spec_kind", &S::kv_cache_spec_kind,
                    "upstream's name of the group's kind");
    fields.optional("kv_cache_spec_sliding_window", &S::kv_cache_spec_sliding_window, "tokens");
    fields.optional("medium", &S::medium, "CPU of an offloading connector; none: GPU");
  }
  friend bool operator==(const BlockStored&, const BlockStored&) = default;
};

/// One block lost its hash. One event per block, even when another block still carries the same
/// hash.
struct BlockRemoved {
  static constexpr std::string_view kWord = "removed";
  BlockHash block_hash;
  std::optional<GroupId> group_idx;
  std::optional<std::string> medium = std::nullopt;
  static void declare(auto& fields) {
    using S = BlockRemoved;
    fields.add("block_hash", &S::block_hash, "no group suffix");
    fields.optional("group_idx", &S::group_idx, "as BlockStored");
    fields.optional("medium", &S::medium, "as BlockStored");
  }
  friend bool operator==(const BlockRemoved&, const BlockRemoved&) = default;
};

/// The prefix cache was reset.
struct AllBlocksCleared {
  static constexpr std::string_view kWord = "cleared";
  friend bool operator==(const AllBlocksCleared&, const AllBlocksCleared&) = default;
};

using KVCacheEvent = std::variant<BlockStored, BlockRemoved, AllBlocksCleared>;

}  // namespace kvfence
