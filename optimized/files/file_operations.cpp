#include "optimized/files/file_operations.h"

#include <algorithm>
#include <cerrno>

namespace kvfence::optimized {

FileHandle create_file(FileOperations& files, const std::string& path) {
  FileHandle file = -EINTR;
  while (file == -EINTR) file = files.create(path);
  return file;
}

FileHandle open_file(FileOperations& files, const std::string& path) {
  FileHandle file = -EINTR;
  while (file == -EINTR) file = files.open(path);
  return file;
}

FileHandle take_lock(FileOperations& files, const std::string& path) {
  const FileHandle file = files.open_lock(path);
  if (file < 0) return file;
  int error = files.try_lock(file);
  if (error >= 0) {
    const int num_links = files.num_links(file);
    error = num_links == 0 ? -ESTALE : std::min(num_links, 0);
  }
  if (error >= 0) return file;
  files.close(file);
  return error;
}

bool write_all(FileOperations& files, FileHandle file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::int64_t num_written = files.write(file, bytes);
    if (num_written == -EINTR) continue;
    if (num_written <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(num_written));
  }
  return true;
}

std::int64_t read_all(FileOperations& files, FileHandle file, std::span<std::byte> bytes) {
  std::int64_t total = 0;
  for (bool goes_on = true; goes_on;) {
    const std::int64_t num_read = files.read(file, bytes);
    if (num_read == -EINTR) continue;
    if (num_read < 0) return num_read;
    total += num_read;
    bytes = bytes.subspan(static_cast<std::size_t>(num_read));
    goes_on = num_read > 0 && !bytes.empty();
  }
  return total;
}

}  // namespace kvfence::optimized
