#pragma once

/// Faults of a file system, planned: the n-th call of an operation fails, or moves fewer bytes than
/// it was asked to. A plan decides a run completely, so a model can be given the same one.

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/state_digest.h"
#include "contract/core/words.h"

namespace kvfence {

/// What the file tier asks of the file system. Each counts its calls on its own.
enum class FileOperation : std::uint8_t {
  kMakeFolder,
  kList,
  kCreate,
  kOpen,
  kLock,  ///< opening a lock file, and trying to lock it
  kSize,
  kRead,
  kWrite,
  kSync,
  kClose,
  kRename,
  kRemove,
};

inline constexpr std::size_t kNumFileOperations = 12;

constexpr auto words_of(FileOperation) {
  return words({"make_folder", "list", "create", "open", "lock", "size", "read", "write", "sync",
                "close", "rename", "remove"});
}

struct FileFault {
  FileOperation operation = FileOperation::kWrite;
  std::uint32_t call = 0;       ///< which call of this operation since the plan began, from 0
  int error = 0;                ///< an errno; 0: a read or write of num_bytes at most
  std::uint64_t num_bytes = 0;  ///< with error == 0
  friend bool operator==(const FileFault&, const FileFault&) = default;
};

/// A plan, and how far it is carried out.
class FaultPlan {
 public:
  FaultPlan() = default;
  explicit FaultPlan(std::vector<FileFault> faults) : faults_(std::move(faults)) {
    for (const FileFault& fault : faults_) {
      KVFENCE_CHECK(fault.error != 0 || fault.operation == FileOperation::kRead ||
                        fault.operation == FileOperation::kWrite,
                    "only reads and writes can be short");
    }
  }

  /// Counts a call. Returns its fault, or nullptr; the first planned wins.
  const FileFault* next(FileOperation operation) {
    const std::uint32_t call = num_calls_[static_cast<std::size_t>(operation)]++;
    for (const FileFault& fault : faults_) {
      if (fault.operation == operation && fault.call == call) return &fault;
    }
    return nullptr;
  }

  /// The remaining faults, by the number of calls until then.
  void add_to(StateHash& hash) const {
    for (const FileFault& fault : faults_) {
      const std::uint32_t num_calls = num_calls_[static_cast<std::size_t>(fault.operation)];
      if (fault.call < num_calls) continue;
      hash.add_all(fault.operation, fault.call - num_calls, fault.error, fault.num_bytes);
    }
  }

 private:
  std::vector<FileFault> faults_;
  std::array<std::uint32_t, kNumFileOperations> num_calls_{};
};

}  // namespace kvfence
