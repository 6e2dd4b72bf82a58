#pragma once

/// From the blocks of a transfer to the copies that it takes: expansion of host blocks, merging,
/// and the refusal of what a batch of copies leaves undefined.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "contract/core/status.h"
#include "cuda/copy_paths/copy_descriptor.h"
#include "cuda/copy_paths/kv_layout.h"

namespace kvfence::cuda {

enum class Direction : std::uint8_t { kStore, kLoad };  ///< GPU to CPU, CPU to GPU
inline constexpr std::size_t kNumDirections = 2;

const char* to_text(Direction direction);

/// Which blocks go where, as the scheduler's side says it.
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
  std::string refusal = {};  ///< why there is none; empty where there is one
  ErrorCode code = ErrorCode::kNone;
};

/// How many host blocks a group takes, and how many GPU blocks of the first one are not meant.
enum class FirstBlockRule : std::uint8_t {
  kByCount,  ///< v0.19: one group, what the destination's count leaves over; padded pages
  kByIndex,  ///< v0.23: the place in the request modulo the factor, each group; unpadded pages
};

struct PlanOptions {
  std::size_t block_size_factor = 1;  ///< GPU blocks in a host block
  FirstBlockRule first_block_rule = FirstBlockRule::kByIndex;
  bool refuses_overlap = true;  ///< off only where the refusal itself is under test
};

/// `gpu` and `cpu` have the same tensors; a row of the host's has block_size_factor pages.
/// Refuses counts that do not fit, unknown blocks, and overlap (see find_overlap).
/// Cost: O(pages log pages).
/// Source: kvo/worker/cpu_gpu.py (v0.19.0), kvo/cpu/gpu_worker.py (v0.23.0).
PlannedTransfer plan_transfer(const KVLayout& gpu, const KVLayout& cpu, Direction direction,
                              const TransferSpec& spec, const PlanOptions& options);

/// Sorts by destination and joins what is contiguous on both sides. Cost: O(copies log copies).
std::vector<CopyDescriptor> merge_copies(std::vector<CopyDescriptor> copies);

/// Why the copies may not be one batch, whose entries have no order: two destinations share bytes,
/// or a destination and a source do. Empty where they may. Cost: O(copies log copies).
std::string find_overlap(std::span<const CopyDescriptor> copies);

/// Whether two transfers in flight at once would disturb each other: one writes what the other
/// reads or writes. Cost: O(copies of both).
bool conflict(const TransferPlan& a, const TransferPlan& b);

}  // namespace kvfence::cuda
