#pragma once

/// What the file tier and the synchronous connectors' storage ask of the file system, and nothing
/// more: one function a system call, so that a plan can make any of them fail.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvfence::optimized {

/// An open file.
using FileHandle = int;

/// Answers are 0 or more, or a negative errno. Nothing is tried again here. Called from several
/// threads at a time. Paths are absolute or relative to the process's folder.
class FileOperations {
 public:
  virtual ~FileOperations() = default;

  /// One folder; the one that it is in has to be there.
  virtual int make_folder(const std::string& path) = 0;
  /// Replaces names by those in the folder.
  virtual int list(const std::string& folder, std::vector<std::string>& names) = 0;
  /// A new file to write; -EEXIST if there is something of that name.
  virtual FileHandle create(const std::string& path) = 0;
  /// A file to read.
  virtual FileHandle open(const std::string& path) = 0;
  /// A lock file, made if it is not there.
  virtual FileHandle open_lock(const std::string& path) = 0;
  /// Locks the file for whoever has this handle, until it is closed or the process is gone;
  /// -EWOULDBLOCK if another handle has the lock.
  virtual int try_lock(FileHandle file) = 0;
  /// How many names the file has; 0 once it is removed.
  virtual int num_links(FileHandle file) = 0;
  /// Bytes of a regular file; -EINVAL if it is something else.
  virtual std::int64_t size_of(const std::string& path) = 0;
  virtual std::int64_t size(FileHandle file) = 0;
  /// How many bytes were read, 0 at the end of the file; from where the last read ended.
  virtual std::int64_t read(FileHandle file, std::span<std::byte> bytes) = 0;
  /// How many bytes were written.
  virtual std::int64_t write(FileHandle file, std::span<const std::byte> bytes) = 0;
  /// The file's bytes reach the disk.
  virtual int sync_data(FileHandle file) = 0;
  /// The handle is gone, whatever the answer.
  virtual int close(FileHandle file) = 0;
  /// Atomically, in place of what has the new name.
  virtual int rename(const std::string& from, const std::string& to) = 0;
  virtual int remove(const std::string& path) = 0;
};

// These call again where a signal interrupted, and go on where a call moved a part of the bytes.

FileHandle create_file(FileOperations& files, const std::string& path);
FileHandle open_file(FileOperations& files, const std::string& path);
/// The lock of a lock file that still has its name. -EWOULDBLOCK: somebody has it; -ESTALE:
/// somebody removed the file meanwhile.
FileHandle take_lock(FileOperations& files, const std::string& path);
/// Whether all were written.
bool write_all(FileOperations& files, FileHandle file, std::span<const std::byte> bytes);
/// How many bytes came before the file ended, or a negative errno. No bytes are read as well: the
/// file system is called, and may fail.
std::int64_t read_all(FileOperations& files, FileHandle file, std::span<std::byte> bytes);

}  // namespace kvfence::optimized
