#pragma once

/// The position of a run, in memory that a watcher in another process may share.

#include <atomic>
#include <cstdint>

namespace kvfence {

/// Which part works on a command: one side after the other, then the oracles.
enum class RunPhase : std::uint8_t { kExpected, kActual, kJudges };

struct RunPosition {
  // Written by the run.
  std::atomic<std::uint64_t> ticks{0};    ///< commands and starts so far, of all episodes and tries
  std::atomic<std::uint64_t> episode{0};  ///< under way
  std::atomic<std::uint64_t> step{0};     ///< of the episode: the command under way
  std::atomic<RunPhase> phase{RunPhase::kExpected};
  std::atomic<std::uint64_t> done{0};   ///< commands of a campaign, tries of the shrinker
  std::atomic<std::uint64_t> total{0};  ///< of them; 0: not known

  // Written by the watcher.
  std::atomic<std::uint64_t> last_episode{UINT64_MAX};  ///< none after it is to be begun
  std::atomic<bool> must_stop{false};  ///< between two answers, though the episode has not ended

  void begin_step(std::uint64_t command) {
    step.store(command, std::memory_order_relaxed);
    begin(RunPhase::kExpected);
    ticks.store(ticks.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void begin(RunPhase next) { phase.store(next, std::memory_order_relaxed); }
};

}  // namespace kvfence
