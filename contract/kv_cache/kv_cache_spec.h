#pragma once

/// The layers of a group, the settings of a manager of groups, and block lists by group.

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "contract/core/types.h"
#include "contract/core/words.h"

namespace kvfence {

/// One list of block ids per group.
using BlocksByGroup = std::vector<std::vector<BlockId>>;

inline bool has_blocks(const BlocksByGroup& groups) {
  return std::ranges::any_of(groups, [](const auto& blocks) { return !blocks.empty(); });
}

/// How the layers of a group attend, which decides what of a request they keep.
enum class KVCacheSpecKind : std::uint8_t {
  kFullAttention,      ///< everything
  kSlidingWindow,      ///< the last sliding_window tokens
  kChunkedLocal,       ///< the current chunk of attention_chunk_size tokens
  kMamba,              ///< one state, at block boundaries
  kCrossAttention,     ///< the encoder's tokens, once; never cached
  kSinkFullAttention,  ///< everything, and sink_len tokens of every request in blocks taken at
                       ///< construction
};

constexpr auto words_of(KVCacheSpecKind) {
  return words({"full", "sliding", "chunked", "mamba", "cross", "sink"});
}

/// Upstream's name of a kind, as BlockStored carries it (Rules::events_carry_spec).
/// Source: vLLM v0.23.0 v1/kv_cache_interface.py KVCacheSpecKind.
std::string_view event_name(KVCacheSpecKind kind);

/// The layers of one group. Equal specs make equal groups.
struct KVCacheSpec {
  KVCacheSpecKind kind = KVCacheSpecKind::kFullAttention;
  std::uint32_t block_size = 0;              ///< tokens
  std::uint32_t sliding_window = 0;          ///< tokens; kSlidingWindow
  std::uint32_t attention_chunk_size = 0;    ///< tokens; kChunkedLocal
  bool mamba_align = false;                  ///< kMamba: mamba_cache_mode "align", else "all"
  std::uint32_t num_speculative_blocks = 0;  ///< kMamba
  std::uint32_t sink_len = 0;  ///< tokens, a multiple of block_size; kSinkFullAttention

  /// Full attention and its subclass with a sink: what the hybrid coordinator puts first.
  bool is_full_attention() const {
    return kind == KVCacheSpecKind::kFullAttention || kind == KVCacheSpecKind::kSinkFullAttention;
  }
  /// What follows the kind in the line language.
  static void declare(auto& fields) {
    using S = KVCacheSpec;
    fields.optional("block_size", &S::block_size, "tokens");
    fields.optional("window", &S::sliding_window, "tokens");
    fields.optional("chunk", &S::attention_chunk_size, "tokens");
    fields.optional("align", &S::mamba_align, "mamba_cache_mode");
    fields.optional("spec_blocks", &S::num_speculative_blocks, "for speculation");
    fields.optional("sink_len", &S::sink_len, "tokens");
  }
  friend bool operator==(const KVCacheSpec&, const KVCacheSpec&) = default;
};

/// What a manager is configured with besides its pool.
struct KVCacheSettings {
  std::vector<KVCacheSpec> groups;
  std::uint32_t max_model_len = 0;  ///< tokens
  /// Tokens; Rules::full_sequence_gate_in_allocate_slots.
  std::uint32_t max_num_batched_tokens = 0;
  bool use_eagle = false;
  /// The groups with draft layers; empty stands for all groups. Rules::eagle_by_group.
  std::vector<GroupId> eagle_groups;
  /// Tokens; VLLM_PREFIX_CACHE_RETENTION_INTERVAL. Rules::sliding_window_mask.
  std::optional<std::uint32_t> retention_interval;
  friend bool operator==(const KVCacheSettings&, const KVCacheSettings&) = default;
};

bool all_of_kinds(std::span<const KVCacheSpec> groups,
                  std::initializer_list<KVCacheSpecKind> kinds);

}  // namespace kvfence
