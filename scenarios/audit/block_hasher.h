#pragma once

/// BlockHasher: computes the hash of a block again, from the engine's events. Unlike
/// contract/pool/block_hash.h it has the two functions that hash a Python pickle, since one of them
/// is the engines' default, and the layouts of several releases.
/// Source: vLLM v0.19.0, v0.23.0 and v0.33.0 utils/hashing.py, v1/core/kv_cache_utils.py; CPython
/// 3.11 Modules/_pickle.c, protocol 5.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/words.h"
#include "contract/pool/block_hash.h"
#include "contract/pool/cbor.h"
#include "scenarios/audit/event_batch.h"

namespace kvfence::audit {

enum class HashFunction : std::uint8_t { kSha256, kSha256Cbor, kXxhash, kXxhashCbor };

constexpr auto words_of(HashFunction) {
  return words({"sha256", "sha256_cbor", "xxhash", "xxhash_cbor"});
}

/// Bytes of one hash: 32 or 16.
std::size_t hash_bytes(HashFunction function);

/// The input of a block's hash, besides its parent's.
struct HashedBlock {
  std::span<const TokenId> tokens;
  const std::vector<EventExtraKey>* extra_keys = nullptr;  ///< null: none
  const std::vector<TokenId>* lookahead = nullptr;         ///< null: no lookahead hashing
  bool has_lora = false;  ///< the first extra key is the LoRA adapter's name
  bool has_tags = false;  ///< since 0.33 each extra key is hashed with its kind
};

class BlockHasher {
 public:
  /// The parent of first blocks under a seed, which is PYTHONHASHSEED.
  BlockHash none_hash(HashFunction function, std::string_view seed);

  /// False: the hash depends on data that events do not carry (with tags, the path of a LoRA adapter;
  /// the offset of an item), or on more bytes than one frame of a pickle has. The parent may be in
  /// `out`.
  bool hash(HashFunction function, BlockHashView parent, const HashedBlock& block, BlockHash& out);

 private:
  CborWriter cbor_;
  std::string pickle_;
};

}  // namespace kvfence::audit
