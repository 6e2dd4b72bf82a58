#include "optimized/files/temporary_folder.h"

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>

namespace kvfence::optimized {
namespace {

constexpr const char* kLockEnding = ".lock";

std::filesystem::path parent_folder() {
  const std::filesystem::path memory = "/dev/shm";
  const bool in_memory = std::getenv("TMPDIR") == nullptr && std::filesystem::exists(memory);
  return in_memory ? memory : std::filesystem::temp_directory_path();
}

/// Removes a folder under its lock, and the lock file last: the holder of the lock of a lock file
/// that still has its name owns the folder.
void remove_locked(PosixFileOperations& files, const std::string& path, FileHandle lock) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
  files.remove(path + kLockEnding);
  files.close(lock);
}

void remove_what_the_dead_left(PosixFileOperations& files, const std::filesystem::path& parent,
                               const std::string& start) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(parent, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(start) || !name.ends_with(kLockEnding)) continue;
    const FileHandle lock = take_lock(files, entry.path().string());
    if (lock < 0) continue;
    remove_locked(files, (parent / entry.path().stem()).string(), lock);
  }
}

}  // namespace

TemporaryFolder::TemporaryFolder(const std::string& kind) {
  const std::filesystem::path parent = parent_folder();
  const std::string start = "kvfence_" + kind + "_";
  // Once per process and kind is enough: the process removes its own folders.
  static std::set<std::string> swept;
  if (swept.insert(start).second) remove_what_the_dead_left(files_, parent, start);
  for (std::uint32_t number = 0; lock_ < 0; ++number) {
    path_ = (parent / (start + std::to_string(number))).string();
    lock_ = take_lock(files_, path_ + kLockEnding);
    // Another process's, maybe another user's.
    const bool is_taken = lock_ == -EWOULDBLOCK || lock_ == -ESTALE ||
                          (lock_ == -EACCES && std::filesystem::exists(path_ + kLockEnding));
    if (lock_ < 0 && !is_taken) {
      throw std::system_error(-lock_, std::generic_category(), path_ + kLockEnding);
    }
  }
  // A process that has ended since left it.
  std::filesystem::remove_all(path_);
  std::filesystem::create_directory(path_);
}

TemporaryFolder::~TemporaryFolder() { remove_locked(files_, path_, lock_); }

}  // namespace kvfence::optimized
