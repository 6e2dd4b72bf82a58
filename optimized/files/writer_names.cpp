#include "optimized/files/writer_names.h"

#include <cerrno>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "contract/tiering/file_tier.h"

namespace kvfence::optimized {
namespace {

/// The writer's number in "<number>.lock" or "<number>.<count>.tmp"; nothing for another name.
std::optional<std::uint32_t> number_of(std::string_view name) {
  std::uint32_t number = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data(), end, number);
  if (error != std::errc() || rest == end || *rest != '.' || number >= kWritersMax) {
    return std::nullopt;
  }
  if (!name.ends_with(".lock") && !name.ends_with(".tmp")) return std::nullopt;
  return number;
}

}  // namespace

int WriterNames::claim() {
  const std::lock_guard guard(mutex_);
  release_locked(/*keep_lock=*/true);
  std::vector<std::string> names;
  if (const int error = files_.list(folder_, names); error < 0) return error;
  std::set<std::uint32_t> numbers;
  for (const std::string& name : names) {
    if (const std::optional<std::uint32_t> number = number_of(name)) numbers.insert(*number);
  }
  std::erase_if(numbers, [this](std::uint32_t number) { return reclaim(number); });
  for (std::uint32_t number = 0; number < kWritersMax; ++number) {
    // Another writer may have used its names.
    if (numbers.contains(number)) continue;
    lock_ = take_lock(files_, lock_path(number));
    if (lock_ == -EWOULDBLOCK || lock_ == -ESTALE) continue;
    if (lock_ < 0) return lock_;
    is_writer_ = true;
    number_ = number;
    return 0;
  }
  return -EUSERS;
}

std::string WriterNames::next() {
  const std::lock_guard guard(mutex_);
  if (!is_writer_) return {};
  return folder_ + "/" + std::to_string(number_) + "." + std::to_string(count_++) + ".tmp";
}

void WriterNames::release(bool keep_lock) {
  const std::lock_guard guard(mutex_);
  release_locked(keep_lock);
}

void WriterNames::release_locked(bool keep_lock) {
  if (!is_writer_) return;
  if (!keep_lock) files_.remove(lock_path(number_));
  files_.close(lock_);
  is_writer_ = false;
}

/// Whether the number is free, without a file.
bool WriterNames::reclaim(std::uint32_t number) {
  const FileHandle lock = take_lock(files_, lock_path(number));
  if (lock < 0) return false;
  const bool removed = remove_temporary_files(number);
  files_.remove(lock_path(number));
  files_.close(lock);
  return removed;
}

bool WriterNames::remove_temporary_files(std::uint32_t number) {
  // Listed again under the lock: a writer may have made files between the last list and its end.
  std::vector<std::string> names;
  if (files_.list(folder_, names) < 0) return false;
  bool removed = true;
  for (const std::string& name : names) {
    if (number_of(name) != number || !name.ends_with(".tmp")) continue;
    removed = files_.remove(folder_ + "/" + name) == 0 && removed;
  }
  return removed;
}

std::string WriterNames::lock_path(std::uint32_t number) const {
  return folder_ + "/" + std::to_string(number) + ".lock";
}

}  // namespace kvfence::optimized
