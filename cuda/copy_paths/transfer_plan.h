#pragma once

/// Turns the blocks of a transfer into copies: expands host blocks, merges copies, and refuses a
/// batch with an undefined result.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "contract/core/status.h"
#include "contract/worker/worker.h"
#include "cuda/copy_paths/copy_descriptor.h"
#include "cuda/copy_paths/kv_layout.h"

namespace kvfence::cuda {

using worker::Direction;
using worker::kNumDirections;

/// Which blocks go where, as the scheduler's half names them.
struct TransferSpec {
  std::vector<std::uint32_t> gpu_blocks = {};  ///< of all groups, one group after the other
  std::vector<std::uint32_t> cpu_blocks = {};  ///< likewise; each is block_size_factor GPU blocks
  std::vector<std::size_t> group_sizes = {};   ///< GPU blocks of each group
  /// Of each group's first GPU block: its place in the request, counted in GPU blocks.
  std::vector<std::size_t> block_indices = {};
};

struct ByteInterval {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

struct TransferPlan {
  std::vector<CopyDescriptor> copies = {};  ///< merged, by rising destination
  std::vector<ByteInterval> sources = {};   ///< by rising address, disjoint
  std::size_t num_bytes = 0;                ///< of the copies
  std::size_t num_pages = 0;                ///< copies before merging
};

struct PlannedTransfer {
  TransferPlan plan = {};
  ErrorCode refusal = ErrorCode::kNone;  ///< why there is no plan
};

/// `gpu` and `cpu` have the same tensors; a row of the host's has `block_size_factor` pages. A
/// group's first block stands at its place in the request modulo that factor. Refuses unknown
/// blocks (kUnknownBlock), and counts that do not fit (kCountsDiffer). Cost: O(pages log pages).
/// Source: kvo/cpu/gpu_worker.py (v0.23.0).
PlannedTransfer plan_transfer(const KVLayout& gpu, const KVLayout& cpu, Direction direction,
                              const TransferSpec& spec, std::size_t block_size_factor);

/// Sorts by destination and joins what is contiguous on both sides. Cost: O(copies log copies).
std::vector<CopyDescriptor> merge_copies(std::vector<CopyDescriptor> copies);

/// Whether two destinations share bytes, or a destination and a source do: such copies may not be
/// one batch, whose entries have no order. Cost: O(copies).
bool overlaps(const TransferPlan& plan);

/// Whether two transfers in flight at once would disturb each other: one writes what the other
/// reads or writes. Cost: O(copies of both).
bool conflict(const TransferPlan& a, const TransferPlan& b);

}  // namespace kvfence::cuda
