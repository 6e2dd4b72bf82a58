#pragma once

/// The file system calls of the file tier and of the synchronous connectors' storage: one function
/// per system call, so that a plan can make any of them fail.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvfence::optimized {

/// An open file.
using FileHandle = int;

/// Results are 0 or more, or a negative errno. No call is retried. Safe to call from several
/// threads. Paths are absolute or relative to the process's folder.
class FileOperations {
 public:
  virtual ~FileOperations() = default;

  /// Makes one folder; its parent must exist.
  virtual int make_folder(const std::string& path) = 0;
  /// Replaces names by those in the folder.
  virtual int list(const std::string& folder, std::vector<std::string>& names) = 0;
  /// A new file to write; -EEXIST if the name exists.
  virtual FileHandle create(const std::string& path) = 0;
  /// A file to read.
  virtual FileHandle open(const std::string& path) = 0;
  /// A lock file, created if it does not exist.
  virtual FileHandle open_lock(const std::string& path) = 0;
  /// Locks the file for this handle, until the handle is closed or the process ends; -EWOULDBLOCK
  /// if another handle has the lock.
  virtual int try_lock(FileHandle file) = 0;
  /// How many names the file has; 0 once it is removed.
  virtual int num_links(FileHandle file) = 0;
  /// Bytes of a regular file; -EINVAL if it is something else.
  virtual std::int64_t size_of(const std::string& path) = 0;
  virtual std::int64_t size(FileHandle file) = 0;
  /// Reads on from the end of the last read. How many bytes were read, 0 at the end of the file.
  virtual std::int64_t read(FileHandle file, std::span<std::byte> bytes) = 0;
  /// How many bytes were written.
  virtual std::int64_t write(FileHandle file, std::span<const std::byte> bytes) = 0;
  /// Writes the file's bytes to the disk.
  virtual int sync_data(FileHandle file) = 0;
  /// Closes the handle, whatever the result.
  virtual int close(FileHandle file) = 0;
  /// Renames atomically, and replaces a file that has the new name.
  virtual int rename(const std::string& from, const std::string& to) = 0;
  virtual int remove(const std::string& path) = 0;
};

// These retry after an interrupting signal, and go on after a call that moved a part of the bytes.

FileHandle create_file(FileOperations& files, const std::string& path);
FileHandle open_file(FileOperations& files, const std::string& path);
/// Locks a lock file that still has its name. -EWOULDBLOCK: another handle has the lock; -ESTALE:
/// the file was removed meanwhile.
FileHandle take_lock(FileOperations& files, const std::string& path);
/// Writes all bytes; returns whether it could.
bool write_all(FileOperations& files, FileHandle file, std::span<const std::byte> bytes);
/// How many bytes came before the end of the file, or a negative errno. Also calls the file system
/// for 0 bytes, which may fail.
std::int64_t read_all(FileOperations& files, FileHandle file, std::span<std::byte> bytes);

}  // namespace kvfence::optimized
