#pragma once

/// Names for temporary files that show later writers whether the file's writer is alive.
///
/// A writer has a number. During its life it holds a lock on the file <folder>/<number>.lock, which
/// the system drops when the process ends in any way. Its temporary files are
/// <folder>/<number>.<count>.tmp. Only the holder of the lock of a lock file that still has its
/// name may touch files of that number: it may remove them and the lock file, or write under the
/// number. Only the holder removes a lock file, so a check under the lock that the file still has
/// its name stays true.

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

  /// Becomes a writer: removes the files of dead writers, and takes the smallest number without
  /// files of another writer. 0, or a negative errno: then it is not a writer. May be called again
  /// when the folder was lost.
  /// Requires: the folder exists, or the result is -ENOENT.
  int claim();

  /// A new name; empty if this is not a writer.
  std::string next();

  /// Stops being a writer. Removes the lock file, unless `keep_lock`: a temporary file is still
  /// there, and must be reclaimed by its lock.
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
