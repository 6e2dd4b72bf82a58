#pragma once

/// The process's real file system.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "optimized/files/file_operations.h"

namespace kvfence::optimized {

/// Stateless. An executed program does not inherit handles (O_CLOEXEC). Locks are flock's, which
/// belong to the open file, so two tiers of one process exclude each other, too.
class PosixFileOperations : public FileOperations {
 public:
  int make_folder(const std::string& path) override;
  int list(const std::string& folder, std::vector<std::string>& names) override;
  FileHandle create(const std::string& path) override;
  FileHandle open(const std::string& path) override;
  FileHandle open_lock(const std::string& path) override;
  int try_lock(FileHandle file) override;
  int num_links(FileHandle file) override;
  std::int64_t size_of(const std::string& path) override;
  std::int64_t size(FileHandle file) override;
  std::int64_t read(FileHandle file, std::span<std::byte> bytes) override;
  std::int64_t write(FileHandle file, std::span<const std::byte> bytes) override;
  int sync_data(FileHandle file) override;
  int close(FileHandle file) override;
  int rename(const std::string& from, const std::string& to) override;
  int remove(const std::string& path) override;
};

}  // namespace kvfence::optimized
