#pragma once

/// Runs work in a process of its own, a copy of this one, so that a crash, an endless loop or
/// unbounded memory ends only that process.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "properties/core/run_position.h"

namespace kvfence {

struct ContainedLimits {
  /// CPU time for one command, after which it counts as endless; 0: no limit. A process that waits
  /// without using CPU time has six times as much.
  double seconds_per_command = 10;
  /// Memory that it may take beyond what it begins with; 0: no limit. Not under a sanitizer.
  std::uint64_t memory_bytes = 0;
  bool is_quiet = false;  ///< what the process writes to stderr is dropped
};

class ContainedRun {
 public:
  /// Runs in the other process; writes where it is, and returns its answer.
  using Work = std::function<std::string(RunPosition& position)>;

  /// Starts. Requires: this process has no other thread. Throws std::system_error.
  ContainedRun(const Work& work, ContainedLimits limits);
  /// Ends the process if it still runs.
  ~ContainedRun();
  ContainedRun(const ContainedRun&) = delete;
  ContainedRun& operator=(const ContainedRun&) = delete;

  /// Waits at most that long. Returns whether it has ended.
  bool wait_for(std::chrono::milliseconds time);
  void wait() {
    while (!wait_for(std::chrono::milliseconds(100))) continue;
  }

  /// Nothing if the process ended without one: how_it_ended() says why. Requires: it has ended.
  const std::optional<std::string>& answer() const { return answer_; }
  /// "was killed by signal 11 (Segmentation fault)".
  const std::string& how_it_ended() const { return how_it_ended_; }

  /// Shared with the process.
  RunPosition& position() const { return shared_->position; }

 private:
  struct Shared {
    RunPosition position;
    std::atomic<bool> is_out_of_memory{false};
  };
  struct Unmap {
    void operator()(Shared* shared) const;
  };

  [[noreturn]] void run(const Work& work, int pipe) const;
  /// Whether the command under way has used up its time.
  bool is_stuck();
  void end();

  ContainedLimits limits_;
  std::unique_ptr<Shared, Unmap> shared_;
  pid_t process_ = -1;
  int pipe_ = -1;
  std::string received_;
  std::optional<std::string> answer_;
  std::string how_it_ended_;
  bool has_ended_ = false;

  // Of the command under way:
  std::uint64_t ticks_ = 0;
  double cpu_seconds_at_start_ = 0;
  std::uint64_t num_waits_ = 0;
};

}  // namespace kvfence
