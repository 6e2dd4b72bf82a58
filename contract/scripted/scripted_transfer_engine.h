#pragma once

/// A copy engine whose progress is commands: the world around the worker's half of a connector in
/// scenarios and campaigns.

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "contract/connectors/transfer_engine.h"
#include "contract/core/state_digest.h"
#include "contract/scripted/transfer_progress.h"

namespace kvfence {

/// What a GPU block counts for in TransferResult::num_bytes, by default.
inline constexpr std::uint32_t kScriptedBlockBytes = 4096;

class ScriptedTransferEngine final : public TransferEngine {
 public:
  struct Transfer {
    TransferJob job;
    TransferProgress progress = TransferProgress::kSubmitted;
    friend bool operator==(const Transfer&, const Transfer&) = default;
  };

  void transfer_async(const TransferJob& job) override;
  /// The transfers that ended, in order, including reported ones that are to be reported again.
  void get_finished(std::vector<TransferResult>& out) override;
  /// Those under way finish, in the order of submission.
  void wait(std::span<const JobId> jobs) override;

  /// False if no transfer of that number is under way. Else sets its progress and, if it ends, its
  /// duration.
  /// Requires: kPart, kFinished or kFailed.
  bool advance(JobId job, TransferProgress progress, std::uint32_t microseconds = 0);

  /// False if no transfer of that number was reported. Else it will be reported once more.
  bool report_again(JobId job);

  /// What a GPU block counts for in transfers that end from now on.
  void set_block_bytes(std::uint32_t bytes) { block_bytes_ = bytes; }

  /// From now on, calls it with each transfer that was submitted or made progress, to show copies
  /// in memory.
  void watch(std::function<void(const Transfer&)> on_progress) {
    on_progress_ = std::move(on_progress);
  }

  /// In the order of submission; reported ones are gone.
  const std::vector<Transfer>& transfers() const { return transfers_; }

  friend bool operator==(const ScriptedTransferEngine& a, const ScriptedTransferEngine& b) {
    return a.transfers_ == b.transfers_ && a.ended_ == b.ended_ && a.reported_ == b.reported_;
  }

  void add_to(StateHash& hash) const { hash.add_all(transfers_, ended_, reported_); }

 private:
  std::uint64_t block_bytes_ = kScriptedBlockBytes;
  std::vector<Transfer> transfers_;
  std::vector<TransferResult> ended_;     ///< not reported yet, in order
  std::vector<TransferResult> reported_;  ///< in order
  std::function<void(const Transfer&)> on_progress_;
};

}  // namespace kvfence
