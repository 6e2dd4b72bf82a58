#pragma once

/// A folder that does not outlive whoever made it, however that ends.

#include <string>

#include "optimized/files/posix_file_operations.h"

namespace kvfence::optimized {

/// A new, empty folder of a process, removed at the end with all that is in it. Beside it lies a
/// file of its name with ".lock", locked for as long as the folder is in use; the system drops the
/// lock with the process, so what a process that died left is removed when the next folder of this
/// kind is made. It lies in TMPDIR where that is set; else in memory where the system has that;
/// else among the temporary files.
class TemporaryFolder {
 public:
  /// kind: what its name begins with. Throws std::filesystem::filesystem_error, or
  /// std::system_error with the path, if there is no place for a folder.
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
