#pragma once

/// A progress line on stderr for whatever takes longer than two seconds: done of total, rate, time
/// left. On a terminal the line is rewritten; elsewhere a new line comes every ten seconds.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvfence {

class Progress {
 public:
  /// what: "commands", "requests". A quiet one keeps time and prints nothing.
  Progress(std::string_view what, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Cheap enough to be called thousands of times a second. Either bound may be 0: unknown.
  void show(std::uint64_t done, std::uint64_t total, double seconds_max = 0);

  /// Calls it, and always says to go on.
  auto callback() {
    return [this](std::uint64_t done, std::uint64_t total) {
      show(done, total);
      return true;
    };
  }

  /// Wipes the line, so that a result can be printed.
  void clear();

  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  bool quiet_;
  bool is_terminal_;
  bool line_is_shown_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_;
};

}  // namespace kvfence
