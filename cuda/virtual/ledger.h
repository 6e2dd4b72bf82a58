#pragma once

/// Who owns the contents of each KV block, and what may be done with them: checked when a job is
/// submitted and when it completes, whatever the bytes are.
///
///   free --submit writer--> computing, storing, loading --complete--> ready --release--> free
///   ready: any number of jobs may read; none may write, nobody may release, while one does
///
/// One ledger holds one tier's blocks or several tiers'; the caller numbers them. It knows nothing
/// of streams: two jobs that hand a block on in one stream need a step between them here too, which
/// is what a scheduler that believes in completions has to have.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace kvfence::virtual_device {

enum class BlockState : std::uint8_t {
  kFree,       ///< holds nothing that anybody may read
  kComputing,  ///< a forward pass writes it
  kStoring,    ///< a store writes it (a block of the host)
  kLoading,    ///< a load writes it
  kReady,      ///< holds contents
};

/// What a job does: the state that the blocks are in that it writes.
enum class JobKind : std::uint8_t { kCompute, kStore, kLoad };

struct LedgerViolation {
  enum class Kind : std::uint8_t {
    kReadsUnready,      ///< the contents are not there, or not yet
    kWritesInUse,       ///< another job reads or writes it
    kReleasesInUse,     ///< freed while a job reads or writes it
    kUnknownJob,        ///< completes without having been submitted, or twice
    kJobSubmittedTwice  ///< the id is in flight
  };
  Kind kind = Kind::kUnknownJob;
  std::uint64_t job_id = 0;  ///< meaningless of kReleasesInUse
  std::size_t block = 0;     ///< meaningless of the last two
  BlockState state = BlockState::kFree;
  std::uint32_t num_readers = 0;
};

const char* to_text(BlockState state);
std::string to_text(const LedgerViolation& violation);

class Ledger {
 public:
  explicit Ledger(std::size_t num_blocks) : blocks_(num_blocks) {}

  /// A job that reads the one and writes the other. What is wrong with it is appended to
  /// violations(); its blocks change state all the same, as the device would do it.
  /// Cost: O(blocks of the job).
  void submit(std::uint64_t job_id, JobKind kind, std::span<const std::size_t> reads,
              std::span<const std::size_t> writes);
  /// The host has seen that the job is over. `succeeded`: else what it wrote is free again.
  void complete(std::uint64_t job_id, bool succeeded = true);
  /// The block's contents are given up.
  void release(std::size_t block);

  BlockState state(std::size_t block) const { return blocks_[block].state; }
  std::uint32_t num_readers(std::size_t block) const { return blocks_[block].num_readers; }
  std::size_t num_jobs() const { return jobs_.size(); }
  const std::vector<LedgerViolation>& violations() const { return violations_; }

 private:
  struct Block {
    BlockState state = BlockState::kFree;
    std::uint32_t num_readers = 0;
    std::uint64_t writer = 0;  ///< the job, of a block that is written
  };
  struct Job {
    std::vector<std::size_t> reads;
    std::vector<std::size_t> writes;
  };

  bool is_written(const Block& block) const;
  void violate(LedgerViolation::Kind kind, std::uint64_t job_id, std::size_t block);

  std::vector<Block> blocks_;
  std::unordered_map<std::uint64_t, Job> jobs_;
  std::vector<LedgerViolation> violations_;
};

}  // namespace kvfence::virtual_device
