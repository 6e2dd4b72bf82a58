#include "optimized/files/posix_file_operations.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>

namespace kvfence::optimized {
namespace {

constexpr mode_t kFileMode = 0644;
constexpr mode_t kFolderMode = 0755;

template <class Answer>
Answer answer(Answer from_system) {
  return from_system < 0 ? static_cast<Answer>(-errno) : from_system;
}

std::int64_t regular_size(const struct stat& file) {
  return S_ISREG(file.st_mode) ? static_cast<std::int64_t>(file.st_size) : -EINVAL;
}

}  // namespace

int PosixFileOperations::make_folder(const std::string& path) {
  return answer(::mkdir(path.c_str(), kFolderMode));
}

int PosixFileOperations::list(const std::string& folder, std::vector<std::string>& names) {
  names.clear();
  DIR* const stream = ::opendir(folder.c_str());
  if (stream == nullptr) return -errno;
  int error = 0;
  while (true) {
    errno = 0;
    const dirent* const entry = ::readdir(stream);
    if (entry == nullptr) {
      error = errno;
      break;
    }
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(stream);
  return -error;
}

FileHandle PosixFileOperations::create(const std::string& path) {
  return answer(::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, kFileMode));
}

FileHandle PosixFileOperations::open(const std::string& path) {
  // No effect on a regular file; without it, opening a pipe of that name would wait for a writer.
  return answer(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
}

FileHandle PosixFileOperations::open_lock(const std::string& path) {
  return answer(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, kFileMode));
}

int PosixFileOperations::try_lock(FileHandle file) {
  return answer(::flock(file, LOCK_EX | LOCK_NB));
}

int PosixFileOperations::num_links(FileHandle file) {
  struct stat status = {};
  if (::fstat(file, &status) < 0) return -errno;
  return static_cast<int>(status.st_nlink);
}

std::int64_t PosixFileOperations::size_of(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) < 0 ? -errno : regular_size(status);
}

std::int64_t PosixFileOperations::size(FileHandle file) {
  struct stat status = {};
  return ::fstat(file, &status) < 0 ? -errno : regular_size(status);
}

std::int64_t PosixFileOperations::read(FileHandle file, std::span<std::byte> bytes) {
  return answer(::read(file, bytes.data(), bytes.size()));
}

std::int64_t PosixFileOperations::write(FileHandle file, std::span<const std::byte> bytes) {
  return answer(::write(file, bytes.data(), bytes.size()));
}

int PosixFileOperations::sync_data(FileHandle file) { return answer(::fdatasync(file)); }

int PosixFileOperations::close(FileHandle file) { return answer(::close(file)); }

int PosixFileOperations::rename(const std::string& from, const std::string& to) {
  return answer(::rename(from.c_str(), to.c_str()));
}

int PosixFileOperations::remove(const std::string& path) { return answer(::unlink(path.c_str())); }

}  // namespace kvfence::optimized
