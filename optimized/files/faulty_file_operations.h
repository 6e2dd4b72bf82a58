#pragma once

/// A file system with planned failures.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/tiering/file_fault.h"
#include "optimized/files/file_operations.h"

namespace kvfence::optimized {

/// Carries out a plan over another file system, which outlives it. An operation that fails by plan
/// is not carried out, except for close: the handle is closed. A plan stays until it is replaced.
class FaultyFileOperations : public FileOperations {
 public:
  explicit FaultyFileOperations(FileOperations& files) : files_(files) {}

  /// Begins the plan: calls count from 0.
  void begin(FaultPlan plan) {
    const std::lock_guard lock(mutex_);
    plan_ = std::move(plan);
    happened_.clear();
  }

  /// Calls `watcher` before each operation from now on, on the operation's thread: to count, to
  /// wait, to end the process. Requires: no other thread is in an operation.
  void watch(std::function<void(FileOperation)> watcher) { watcher_ = std::move(watcher); }

  /// The rest of the plan.
  void add_to(StateHash& hash) const {
    const std::lock_guard lock(mutex_);
    hash.add(plan_);
  }

  /// The failures since the plan began, in order.
  std::vector<FileFault> happened() const {
    const std::lock_guard lock(mutex_);
    return happened_;
  }

  int make_folder(const std::string& path) override {
    return attempt(FileOperation::kMakeFolder, [&] { return files_.make_folder(path); });
  }
  int list(const std::string& folder, std::vector<std::string>& names) override {
    return attempt(FileOperation::kList, [&] { return files_.list(folder, names); });
  }
  FileHandle create(const std::string& path) override {
    return attempt(FileOperation::kCreate, [&] { return files_.create(path); });
  }
  FileHandle open(const std::string& path) override {
    return attempt(FileOperation::kOpen, [&] { return files_.open(path); });
  }
  FileHandle open_lock(const std::string& path) override {
    return attempt(FileOperation::kLock, [&] { return files_.open_lock(path); });
  }
  int try_lock(FileHandle file) override {
    return attempt(FileOperation::kLock, [&] { return files_.try_lock(file); });
  }
  int num_links(FileHandle file) override {
    return attempt(FileOperation::kLock, [&] { return files_.num_links(file); });
  }
  std::int64_t size_of(const std::string& path) override {
    return attempt(FileOperation::kSize, [&] { return files_.size_of(path); });
  }
  std::int64_t size(FileHandle file) override {
    return attempt(FileOperation::kSize, [&] { return files_.size(file); });
  }
  std::int64_t read(FileHandle file, std::span<std::byte> bytes) override {
    const std::optional<FileFault> fault = next(FileOperation::kRead);
    if (fault && fault->error != 0) return -fault->error;
    return files_.read(file, fault ? at_most(bytes, *fault) : bytes);
  }
  std::int64_t write(FileHandle file, std::span<const std::byte> bytes) override {
    const std::optional<FileFault> fault = next(FileOperation::kWrite);
    if (fault && fault->error != 0) return -fault->error;
    return files_.write(file, fault ? at_most(bytes, *fault) : bytes);
  }
  int sync_data(FileHandle file) override {
    return attempt(FileOperation::kSync, [&] { return files_.sync_data(file); });
  }
  int close(FileHandle file) override {
    const std::optional<FileFault> fault = next(FileOperation::kClose);
    const int answer = files_.close(file);
    return fault ? -fault->error : answer;
  }
  int rename(const std::string& from, const std::string& to) override {
    return attempt(FileOperation::kRename, [&] { return files_.rename(from, to); });
  }
  int remove(const std::string& path) override {
    return attempt(FileOperation::kRemove, [&] { return files_.remove(path); });
  }

 private:
  template <class Call>
  std::invoke_result_t<Call> attempt(FileOperation operation, const Call& call) {
    const std::optional<FileFault> fault = next(operation);
    return fault ? -fault->error : call();
  }

  std::optional<FileFault> next(FileOperation operation) {
    if (watcher_) watcher_(operation);
    const std::lock_guard lock(mutex_);
    const FileFault* const fault = plan_.next(operation);
    if (fault == nullptr) return std::nullopt;
    happened_.push_back(*fault);
    return *fault;
  }

  template <class Byte>
  static std::span<Byte> at_most(std::span<Byte> bytes, const FileFault& fault) {
    return fault.num_bytes < bytes.size() ? bytes.first(fault.num_bytes) : bytes;
  }

  FileOperations& files_;
  std::function<void(FileOperation)> watcher_;
  mutable std::mutex mutex_;
  FaultPlan plan_;
  std::vector<FileFault> happened_;
};

}  // namespace kvfence::optimized
