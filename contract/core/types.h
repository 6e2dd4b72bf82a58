#pragma once

/// The plain words of the field that every layer uses.
///
/// Ids are plain integers because each is an index into an array on both sides; what an id counts
/// is in its name. Depends on the standard library only.

#include <cstdint>

namespace kvfence {

/// Index of a physical KV slot, 0 .. num_gpu_blocks - 1.
using BlockId = std::uint32_t;

/// Index of a KV-cache group (layers that share one block table).
using GroupId = std::uint32_t;

/// A token of the model's vocabulary.
using TokenId = std::uint32_t;

/// The placeholder block: never cached, never freed, its ref_cnt is not maintained.
/// Source: vLLM v0.19.0 v1/core/block_pool.py BlockPool.__init__ (the first block popped).
inline constexpr BlockId kNullBlockId = 0;

}  // namespace kvfence
