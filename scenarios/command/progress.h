#pragma once

/// Progress lines on stderr.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvfence {

/// On a terminal the line is rewritten; elsewhere a new one comes every ten seconds.
class StatusLine {
 public:
  using Clock = std::chrono::steady_clock;

  /// silent_at_first, period: on a terminal. A quiet one prints nothing.
  StatusLine(bool quiet, Clock::duration silent_at_first, Clock::duration period);
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  /// Whether it is time for the next line. Cost: one read of the clock.
  bool is_due() const { return !quiet_ && Clock::now() >= next_; }
  void show(const std::string& line);
  /// Wipes the line, so that a result can be printed.
  void clear();

 private:
  bool quiet_;
  bool is_terminal_;
  Clock::duration period_;
  bool is_shown_ = false;
  Clock::time_point next_;
};

/// For whatever takes longer than two seconds: done of total, rate, time left.
class Progress {
 public:
  /// what: "commands", "requests". A quiet one keeps time and prints nothing.
  Progress(std::string_view what, bool quiet);

  /// Cheap enough to be called thousands of times per second. Either bound may be 0: unknown.
  void show(std::uint64_t done, std::uint64_t total, double seconds_max = 0);

  /// Calls it, and always returns true.
  auto callback() {
    return [this](std::uint64_t done, std::uint64_t total) {
      show(done, total);
      return true;
    };
  }

  /// Wipes the line, so that a result can be printed.
  void clear() { line_.clear(); }

  double seconds() const;

 private:
  std::string what_;
  StatusLine::Clock::time_point start_ = StatusLine::Clock::now();
  StatusLine line_;
};

}  // namespace kvfence
