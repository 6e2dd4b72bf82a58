#pragma once

/// Names for temporary files, so that whoever comes later can tell whether their writer is alive.
///
/// A writer has a number. It holds a lock on the file <folder>/<number>.lock for as long as it
/// lives, which the system drops when its process dies, however it dies. Its temporary files are
/// <folder>/<number>.<count>.tmp. Who gets the lock of a number, of a file that still has its name,
/// is the only one to touch what goes by that number: it may remove the files and the lock file, or
/// write under the number. Only who holds the lock removes a lock file, so the check that it still
/// has its name, made under the lock, cannot become false.

#include <cstdint>
#include <mutex>
#include <string>

#include "optimized/files/file_operations.h"

namespace kvfence::optimized {

/// One writer. Safe to use from several threads. `files` outlives it.
class WriterNames {
 public:
  WriterNames(FileOperations& files, std::string folder)
      : files_(files), folder_(std::move(folder)) {}
  WriterNames(const WriterNames&) = delete;
  WriterNames& operator=(const WriterNames&) = delete;
  ~WriterNames() { release(); }

  /// Becomes a writer: removes what dead writers left, and takes the smallest number of which nobody
  /// else has a file. 0, or a negative errno: then it is no writer. May be called again when the
  /// folder was lost.
  /// Requires: the folder is there, or the answer is -ENOENT.
  int claim();

  /// A name that was not given out before; empty if this is no writer.
  std::string next();

  /// Is no writer any more. The lock file goes, unless `keep_lock`: a temporary file is still there
  /// and has to be reclaimed by its lock.
  void release(bool keep_lock = false);

 private:
  bool reclaim(std::uint32_t number);
  bool remove_temporary_files(std::uint32_t number);
  std::string lock_path(std::uint32_t number) const;
  void release_locked(bool keep_lock);

  FileOperations& files_;
  const std::string folder_;
  std::mutex mutex_;
  bool is_writer_ = false;
  std::uint32_t number_ = 0;
  FileHandle lock_ = -1;
  std::uint64_t count_ = 0;
};

}  // namespace kvfence::optimized
