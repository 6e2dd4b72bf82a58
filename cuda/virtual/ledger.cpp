#include "cuda/virtual/ledger.h"

#include "contract/core/check.h"

namespace kvfence::virtual_device {
namespace {

BlockState written_by(JobKind kind) {
  switch (kind) {
    case JobKind::kCompute:
      return BlockState::kComputing;
    case JobKind::kStore:
      return BlockState::kStoring;
    case JobKind::kLoad:
      return BlockState::kLoading;
  }
  return BlockState::kFree;
}

const char* to_text(LedgerViolation::Kind kind) {
  switch (kind) {
    case LedgerViolation::Kind::kReadsUnready:
      return "reads";
    case LedgerViolation::Kind::kWritesInUse:
      return "writes";
    case LedgerViolation::Kind::kReleasesInUse:
      return "is released";
    case LedgerViolation::Kind::kUnknownJob:
      return "completes and is not in flight";
    case LedgerViolation::Kind::kJobSubmittedTwice:
      return "is submitted and is in flight";
  }
  return "unknown";
}

}  // namespace

const char* to_text(BlockState state) {
  switch (state) {
    case BlockState::kFree:
      return "free";
    case BlockState::kComputing:
      return "computing";
    case BlockState::kStoring:
      return "storing";
    case BlockState::kLoading:
      return "loading";
    case BlockState::kReady:
      return "ready";
  }
  return "unknown";
}

std::string to_text(const LedgerViolation& violation) {
  const std::string job = "job " + std::to_string(violation.job_id) + " ";
  const std::string block = "block " + std::to_string(violation.block);
  const std::string condition = std::string(", which is ") + to_text(violation.state) + " with " +
                                std::to_string(violation.num_readers) + " readers";
  switch (violation.kind) {
    case LedgerViolation::Kind::kReadsUnready:
    case LedgerViolation::Kind::kWritesInUse:
      return "ledger: " + job + to_text(violation.kind) + " " + block + condition;
    case LedgerViolation::Kind::kReleasesInUse:
      return "ledger: " + block + " " + to_text(violation.kind) + condition;
    case LedgerViolation::Kind::kUnknownJob:
    case LedgerViolation::Kind::kJobSubmittedTwice:
      return "ledger: " + job + to_text(violation.kind);
  }
  return "ledger: unknown";
}

bool Ledger::is_written(const Block& block) const {
  return block.state != BlockState::kFree && block.state != BlockState::kReady;
}

void Ledger::violate(LedgerViolation::Kind kind, std::uint64_t job_id, std::size_t block) {
  LedgerViolation violation{kind, job_id, block};
  if (block < blocks_.size()) {
    violation.state = blocks_[block].state;
    violation.num_readers = blocks_[block].num_readers;
  }
  violations_.push_back(violation);
}

void Ledger::submit(std::uint64_t job_id, JobKind kind, std::span<const std::size_t> reads,
                    std::span<const std::size_t> writes) {
  if (jobs_.count(job_id) != 0) {
    return violate(LedgerViolation::Kind::kJobSubmittedTwice, job_id, 0);
  }
  Job& job = jobs_[job_id];
  for (const std::size_t block : reads) {
    KVFENCE_CHECK(block < blocks_.size(), "a block of the ledger");
    if (blocks_[block].state != BlockState::kReady) {
      violate(LedgerViolation::Kind::kReadsUnready, job_id, block);
    }
    ++blocks_[block].num_readers;
    job.reads.push_back(block);
  }
  for (const std::size_t index : writes) {
    KVFENCE_CHECK(index < blocks_.size(), "a block of the ledger");
    Block& block = blocks_[index];
    if (block.num_readers > 0 || is_written(block)) {
      violate(LedgerViolation::Kind::kWritesInUse, job_id, index);
    }
    block.state = written_by(kind);
    block.writer = job_id;
    job.writes.push_back(index);
  }
}

void Ledger::complete(std::uint64_t job_id, bool succeeded) {
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return violate(LedgerViolation::Kind::kUnknownJob, job_id, 0);
  for (const std::size_t block : found->second.reads) --blocks_[block].num_readers;
  for (const std::size_t index : found->second.writes) {
    Block& block = blocks_[index];
    // Somebody else's by now: said when it was taken.
    if (!is_written(block) || block.writer != job_id) continue;
    block.state = succeeded ? BlockState::kReady : BlockState::kFree;
  }
  jobs_.erase(found);
}

void Ledger::release(std::size_t index) {
  KVFENCE_CHECK(index < blocks_.size(), "a block of the ledger");
  Block& block = blocks_[index];
  if (block.num_readers > 0 || is_written(block)) {
    violate(LedgerViolation::Kind::kReleasesInUse, 0, index);
  }
  block.state = BlockState::kFree;
}

}  // namespace kvfence::virtual_device
