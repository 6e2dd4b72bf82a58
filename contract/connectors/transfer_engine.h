#pragma once

/// The copy engine that moves blocks between the GPU and the slots of CPU memory on one worker, as
/// the worker's half of a connector sees it.
/// Source: vLLM v0.19.0 and v0.23.0 v1/kv_offload/worker/worker.py OffloadingHandler,
/// OffloadingWorker.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "contract/connectors/kv_connector.h"
#include "contract/core/types.h"
#include "contract/eviction/cache_policy.h"

namespace kvfence {

/// Which blocks are copied where. A slot is as large as block_size_factor GPU blocks of one group.
struct TransferSpec {
  bool is_store = false;                     ///< GPU to CPU, else CPU to GPU
  std::vector<BlockId> gpu_blocks;           ///< group after group, in the order of their tokens
  std::vector<std::uint32_t> group_sizes;    ///< GPU blocks by group
  std::vector<std::uint32_t> block_indices;  ///< by group: place of its first GPU block in the
                                             ///< request's table; where it has none, 0 of a store,
                                             ///< of a load the blocks that need none. Empty: a
                                             ///< store with hold, which starts with a whole slot
  std::vector<SlotId> slots;                 ///< one per offloaded block, in the same order
  friend bool operator==(const TransferSpec&, const TransferSpec&) = default;
};

/// A transfer for a request.
struct TransferJob {
  JobId job = 0;
  std::string request;  ///< its id
  TransferSpec spec;
  friend bool operator==(const TransferJob&, const TransferJob&) = default;
};

struct TransferResult {
  JobId job = 0;
  bool success = true;
  std::uint64_t num_bytes = 0;  ///< that it copied
  double seconds = 0;           ///< that it took; 0: not known
  friend bool operator==(const TransferResult&, const TransferResult&) = default;
};

class TransferEngine {
 public:
  /// Submits a transfer under a number that no transfer had before.
  virtual void transfer_async(const TransferJob& job) = 0;

  /// Replaces out by the transfers that ended since the last call, in the order of their ends.
  virtual void get_finished(std::vector<TransferResult>& out) = 0;

  /// Blocks until these transfers have ended; numbers that are not under way are passed over.
  virtual void wait(std::span<const JobId> jobs) = 0;

 protected:
  ~TransferEngine() = default;
};

}  // namespace kvfence
