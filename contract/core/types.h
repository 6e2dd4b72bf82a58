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

/// Index of a slot of CPU memory that holds one offloaded block.
using SlotId = std::uint32_t;

/// Names a transfer: an offloading connector's, on its scheduler or on one worker.
using JobId = std::uint32_t;

/// Names a read of one engine by another; 0, 1, ... in the order of submission, over all ranks.
using ReadId = std::uint32_t;

/// Names a notice; 0, 1, ... in the order in which they were sent.
using NoticeId = std::uint32_t;

/// Time since the pair was built, or a span of it.
using Seconds = std::uint32_t;

/// What a slot holds in one layer. 0: nothing that was computed.
using KVSymbol = std::uint32_t;

/// The placeholder block: never cached, never freed, its ref_cnt is not maintained.
/// Source: vLLM v0.19.0 v1/core/block_pool.py BlockPool.__init__ (the first block popped).
inline constexpr BlockId kNullBlockId = 0;

}  // namespace kvfence
