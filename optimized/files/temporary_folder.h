#pragma once

/// A folder that does not outlive its process, however that ends.

#include <string>

#include "optimized/files/posix_file_operations.h"

namespace kvfence::optimized {

/// A new, empty folder of a process, removed at the end with its contents. A lock file, its name
/// with ".lock", lies beside it and is locked while the folder is in use. The system drops the lock
/// when the process ends, and the next folder of this kind removes the folders of ended processes.
/// The folder is in TMPDIR if that is set, else in memory if the system supports that, else among
/// the temporary files.
class TemporaryFolder {
 public:
  /// kind: the start of its name. Throws std::filesystem::filesystem_error, or std::system_error
  /// with the path, if there is no place for a folder.
  explicit TemporaryFolder(const std::string& kind);
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  const std::string& path() const { return path_; }

 private:
  PosixFileOperations files_;
  std::string path_;
  FileHandle lock_ = -1;
};

}  // namespace kvfence::optimized
