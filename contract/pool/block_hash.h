#pragma once

/// Block hashes: the chained digests that name the contents of a full block and of all that
/// precedes it.
///
/// Hashes are byte strings, not text: 32 bytes for the SHA-256 algorithm, 16 for xxHash. The one
/// part of the contract that computes: both sides use it, so it is pinned by golden values taken
/// from upstream (block_hash_test.cpp).

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "contract/core/types.h"
#include "contract/core/words.h"

namespace kvfence {

class Value;

/// Owned and viewed hash bytes. A type of its own, so that it prints as bytes and not as a word.
struct BlockHash : std::string {
  using std::string::string;
  using std::string::operator=;
  BlockHash(std::string bytes) : std::string(std::move(bytes)) {}  // NOLINT
};
using BlockHashView = std::string_view;

Value to_value(const BlockHash& member);
bool from_value(const Value& value, BlockHash& member, std::string& expected);

/// Upstream's reproducible algorithms. `sha256` and `xxhash` hash a Python pickle and exist only
/// inside CPython. contract/README.md says what equal hashes of different tokens do, and who can
/// construct them.
/// Source: vLLM v0.19.0 utils/hashing.py.
enum class HashAlgorithm : std::uint8_t { kSha256Cbor, kXxhashCbor };

constexpr auto words_of(HashAlgorithm) { return words({"sha256_cbor", "xxhash_cbor"}); }

/// Bytes of one hash: 32 or 16.
std::size_t hash_bytes(HashAlgorithm algorithm);

/// The parent of every first block: H(CBOR text string of the seed), where the seed is the value of
/// PYTHONHASHSEED.
/// Source: vLLM v0.19.0 v1/core/kv_cache_utils.py init_none_hash.
BlockHash none_hash(HashAlgorithm algorithm, std::string_view seed);

/// The digest of bytes that are encoded already.
BlockHash digest(HashAlgorithm algorithm, std::string_view encoded);

/// The most bytes of a hash.
inline constexpr std::size_t kHashBytesMax = 32;

/// The same into the caller's storage: hash_bytes(algorithm) bytes.
void digest_to(HashAlgorithm algorithm, std::string_view encoded, char* out);

/// Length of the group id that a packed key ends with.
inline constexpr std::size_t kGroupIdBytes = 4;

/// Packs a hash and a group id into a prefix-cache key: the hash, then the group id as 4 bytes
/// big-endian.
/// Source: vLLM v0.19.0 v1/core/kv_cache_utils.py make_block_hash_with_group_id.
std::string make_block_hash_with_group_id(BlockHashView hash, GroupId group_id);

/// The parts of a packed key. Requires: key.size() >= 4.
BlockHashView get_block_hash(std::string_view key);
GroupId get_group_id(std::string_view key);

/// The hashes of a request at the granularity of a group's blocks.
///
/// A block of k hash blocks is named by the concatenation of their k hashes. A request keeps its
/// hashes back to back, so the merged hash is a longer slice of the same bytes and the view
/// computes nothing.
/// Source: vLLM v0.19.0 v1/core/kv_cache_utils.py BlockHashListWithBlockSize.
class BlockHashListView {
 public:
  /// Shape:    bytes is [num_hashes][hash_bytes]
  /// Requires: hash_bytes > 0, hashes_per_block > 0
  BlockHashListView(std::string_view bytes, std::size_t hash_bytes, std::uint32_t hashes_per_block)
      : bytes_(bytes), stride_(hash_bytes * hashes_per_block) {}

  /// Whole blocks only: floor(num_hashes / hashes_per_block).
  std::size_t size() const { return bytes_.size() / stride_; }

  BlockHashView operator[](std::size_t index) const {
    return bytes_.substr(index * stride_, stride_);
  }

 private:
  std::string_view bytes_;
  std::size_t stride_;
};

}  // namespace kvfence
