#pragma once

/// A request as the KV cache sees it: its tokens, what else its blocks depend on, and the chained
/// hash of each full block. Hashes are computed at construction and whenever tokens are appended;
/// they are never removed.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/types.h"
#include "contract/pool/block_hash.h"

namespace kvfence {

/// A multimodal item in the prompt: placeholder tokens [offset, offset + length).
struct MmFeature {
  std::string identifier;
  std::uint32_t offset = 0;
  std::uint32_t length = 0;
  static void declare(auto& fields) {
    fields.add("id", &MmFeature::identifier, "which");
    fields.add("offset", &MmFeature::offset, "tokens before it");
    fields.add("length", &MmFeature::length, "tokens");
  }
  friend bool operator==(const MmFeature&, const MmFeature&) = default;
};

struct LoraRequest {
  std::string name;
  std::uint32_t id = 0;
  friend bool operator==(const LoraRequest&, const LoraRequest&) = default;
};

/// The extra key of a multimodal item in a block; the offset is relative to the block's start and
/// may be negative.
struct MmExtraKey {
  static constexpr std::string_view kWord = "item";
  std::string identifier;
  std::int64_t offset = 0;
  static void declare(auto& fields) {
    fields.add("id", &MmExtraKey::identifier, "which");
    fields.add("offset", &MmExtraKey::offset, "tokens");
  }
  friend bool operator==(const MmExtraKey&, const MmExtraKey&) = default;
};

/// A LoRA name or a cache salt (bare strings upstream), or a multimodal item.
using ExtraKey = std::variant<std::string, MmExtraKey>;

/// What a block's hash depends on besides its parent and its tokens. Empty means none, never an
/// empty tuple.
using ExtraKeys = std::vector<ExtraKey>;

/// Everything that a request is given.
struct RequestSpec {
  std::vector<TokenId> tokens;
  std::optional<LoraRequest> lora;
  std::optional<std::string> cache_salt;
  std::vector<MmFeature> mm_features;  ///< sorted by offset
  friend bool operator==(const RequestSpec&, const RequestSpec&) = default;
};

/// How a pool's requests are hashed.
struct HashConfig {
  HashAlgorithm algorithm = HashAlgorithm::kSha256Cbor;
  std::string seed = "0";             ///< PYTHONHASHSEED; decides NONE_HASH
  std::uint32_t hash_block_size = 4;  ///< tokens that a hash stands for
  friend bool operator==(const HashConfig&, const HashConfig&) = default;
};

/// The extra keys of tokens [start_token_index, end_token_index) and the next multimodal cursor.
///
/// Order: LoRA name, multimodal items that overlap the block, cache salt (only for the block at
/// token 0, only if not empty). A cursor of -1 stands for the last item.
/// Source: vLLM v0.19.0 v1/core/kv_cache_utils.py generate_block_hash_extra_keys.
struct ExtraKeysAndCursor {
  ExtraKeys keys;
  std::int64_t mm_cursor = 0;
};
ExtraKeysAndCursor generate_block_hash_extra_keys(const RequestSpec& spec,
                                                  std::size_t start_token_index,
                                                  std::size_t end_token_index,
                                                  std::int64_t mm_cursor);

/// The hash of one full block: H(CBOR [parent, [tokens...], extra keys or null]).
///
/// Source: vLLM v0.19.0 v1/core/kv_cache_utils.py hash_block_tokens, utils/hashing.py.
BlockHash hash_block_tokens(HashAlgorithm algorithm, BlockHashView parent_hash,
                            std::span<const TokenId> tokens, const ExtraKeys& extra_keys);

class Request {
 public:
  /// Requires: config.hash_block_size > 0
  /// Cost:     one digest per full block, and one for NONE_HASH if there is a full block
  Request(RequestSpec spec, const HashConfig& config);

  const RequestSpec& spec() const { return spec_; }
  const std::vector<TokenId>& all_token_ids() const { return spec_.tokens; }

  /// Makes it what the constructor would, and keeps the storage.
  void assign(const RequestSpec& spec, const HashConfig& config);

  /// Appends generated tokens and hashes the blocks that they complete. The multimodal cursor of
  /// these later batches starts at the last item, as upstream's does.
  void append_output_token_ids(std::span<const TokenId> tokens) {
    for (TokenId token : tokens) spec_.tokens.push_back(token);
    if (spec_.tokens.size() >= num_tokens_at_next_hash_) hash_full_blocks();
  }

  /// Number of full blocks hashed so far, at hash granularity.
  std::size_t num_hashes() const { return hash_bytes_.size() / hash_size_; }

  /// All hashes, back to back: [num_hashes][hash_bytes].
  std::string_view hash_bytes() const { return hash_bytes_; }

  /// The hashes at a group's granularity. Requires: block_size a positive multiple of
  /// hash_block_size.
  BlockHashListView block_hashes(std::uint32_t block_size) const {
    return {hash_bytes_, hash_size_, block_size / hash_block_size_};
  }

  /// The same of the tokens from first_token on. Requires: a multiple of hash_block_size.
  BlockHashListView block_hashes(std::uint32_t block_size, std::size_t first_token) const {
    const std::size_t begin = first_token / hash_block_size_ * hash_size_;
    const std::string_view bytes = hash_bytes_;
    return {bytes.substr(begin < bytes.size() ? begin : bytes.size()), hash_size_,
            block_size / hash_block_size_};
  }

  /// The hashes follow from the tokens.
  void add_to(StateHash& hash) const { hash.add(spec_); }

 private:
  /// Hashes anew, in the storage that is there.
  void hash_by(const HashConfig& config);
  void hash_full_blocks();

  std::size_t num_tokens_at_next_hash_ = 0;  ///< beside the tokens: read with each of them
  RequestSpec spec_;
  HashAlgorithm algorithm_{};
  std::uint32_t hash_block_size_ = 0;
  std::size_t hash_size_ = 0;
  std::string seed_;  ///< NONE_HASH is derived where the first block is hashed, once
  std::string hash_bytes_;
};

}  // namespace kvfence
