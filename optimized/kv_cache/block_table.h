#pragma once

/// BlockTable: the blocks that one group holds for each request, in rows that are reused.
///
/// Rows are indexed by the dense RequestIndex of the contract. An erased row keeps its storage, so
/// a table that has seen its longest requests allocates nothing.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/types.h"
#include "contract/kv_cache/kv_cache_manager.h"

namespace kvfence::optimized {

/// The record of one request in a group.
struct RequestBlocks {
  std::vector<BlockId> blocks;          ///< from the request's start; null where no block is needed
  std::uint32_t num_cached_blocks = 0;  ///< leading blocks that are not to be cached (again)
  /// Index of the block with the state of the step before last, negative for none; Mamba align.
  std::int32_t last_state_block_idx = -1;
  bool is_allocated = false;
  /// num_cached_blocks was set since the allocation, so the request can have no new hit.
  bool is_running = false;
  bool has_running_state = false;  ///< its last 1 + num_speculative_blocks are its own; Mamba align

  friend bool operator==(const RequestBlocks&, const RequestBlocks&) = default;
};

class BlockTable {
 public:
  /// The row of a request, empty unless it is allocated. Invalidates other rows' references.
  RequestBlocks& operator[](RequestIndex request) {
    if (request >= rows_.size()) rows_.resize(std::size_t{request} + 1);
    return rows_[request];
  }

  /// The row of an allocated request, or null.
  const RequestBlocks* find(RequestIndex request) const {
    if (request >= rows_.size() || !rows_[request].is_allocated) return nullptr;
    return &rows_[request];
  }

  /// The row of a request; an empty one unless there is one.
  const RequestBlocks& row(RequestIndex request) const {
    static const RequestBlocks kEmpty;
    return request < rows_.size() ? rows_[request] : kEmpty;
  }

  void set_allocated(RequestIndex request) {
    RequestBlocks& row = (*this)[request];
    if (!row.is_allocated) ++num_requests_;
    row.is_allocated = true;
  }

  void erase(RequestIndex request) {
    RequestBlocks& row = rows_[request];
    if (row.is_allocated) --num_requests_;
    std::vector<BlockId> storage = std::move(row.blocks);
    storage.clear();
    row = RequestBlocks{};
    row.blocks = std::move(storage);
  }

  /// Number of allocated requests.
  std::uint32_t num_requests() const { return num_requests_; }

  /// Adds the rows that are not empty. Cost: O(table).
  void add_to(StateHash& hash) const {
    const RequestBlocks empty;
    hash.add(num_requests_);
    for (std::size_t request = 0; request < rows_.size(); ++request) {
      if (rows_[request] == empty) continue;
      hash.add_entry(request, rows_[request]);
    }
    // No request has this number: it ends the rows.
    hash.add(~std::size_t{0});
  }

 private:
  std::vector<RequestBlocks> rows_;
  std::uint32_t num_requests_ = 0;
};

}  // namespace kvfence::optimized
