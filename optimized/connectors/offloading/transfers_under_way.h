#pragma once

/// The transfers of a connector's worker half: a queue of those to submit, and a table by number of
/// those under way.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "contract/connectors/transfer_engine.h"
#include "optimized/base/slots.h"

namespace kvfence::optimized {

/// Transfers in order, until they are submitted. Keeps the storage of former ones.
class TransferQueue {
 public:
  void push(const TransferJob& job) {
    if (size_ == jobs_.size()) jobs_.emplace_back();
    jobs_[size_++] = job;
  }

  /// The one pushed last. Requires: not empty.
  TransferJob& back() { return jobs_[size_ - 1]; }

  void submit_all(TransferEngine& engine) {
    for (std::size_t index = 0; index < size_; ++index) engine.transfer_async(jobs_[index]);
    size_ = 0;
  }

  void add_to(StateHash& hash) const { hash.add(std::span(jobs_).first(size_)); }

 private:
  std::vector<TransferJob> jobs_;
  std::size_t size_ = 0;
};

/// The record of a transfer under way.
struct TransferUnderWay {
  static constexpr std::uint32_t kNone = 0xFFFF'FFFF;

  JobId job = 0;
  bool is_store = false;
  std::string request;
  std::vector<BlockId> gpu_blocks;  ///< of a load: invalid if it fails
  // Links the stores of one request, for users of the table that need them.
  std::uint32_t owner = kNone;
  std::uint32_t previous = kNone;
  std::uint32_t next = kNone;
};

/// By number.
using TransfersUnderWay = NumberedSlots<JobId, TransferUnderWay>;

/// The slot of a new record. Requires: no transfer of that number is there.
inline std::uint32_t insert(TransfersUnderWay& transfers, JobId job, const TransferJob& transfer) {
  const std::uint32_t slot = transfers.insert(job);
  TransferUnderWay& entry = transfers[slot];
  entry.job = job;
  entry.is_store = transfer.spec.is_store;
  entry.request = transfer.request;
  entry.gpu_blocks.clear();
  if (!entry.is_store) entry.gpu_blocks = transfer.spec.gpu_blocks;
  return slot;
}

}  // namespace kvfence::optimized
