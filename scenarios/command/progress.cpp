#include "scenarios/command/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "properties/core/number_text.h"

namespace kvfence {
namespace {

constexpr std::chrono::milliseconds kSilentAtFirst{2000};
constexpr std::chrono::milliseconds kTerminalPeriod{200};
constexpr std::chrono::milliseconds kLogPeriod{10000};

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::max(0.0, seconds) + 0.5);
  if (whole < 60) return std::to_string(whole) + " s";
  std::string text = std::to_string(whole / 60) + " min";
  if (whole < 600) text += " " + std::to_string(whole % 60) + " s";
  return text;
}

}  // namespace

Progress::Progress(std::string_view what, bool quiet)
    : what_(what),
      quiet_(quiet),
      is_terminal_(::isatty(STDERR_FILENO) == 1),
      next_(start_ + (is_terminal_ ? kSilentAtFirst : kLogPeriod)) {}

Progress::~Progress() { clear(); }

void Progress::show(std::uint64_t done, std::uint64_t total, double seconds_max) {
  const Clock::time_point now = Clock::now();
  if (quiet_ || now < next_) return;
  next_ = now + (is_terminal_ ? kTerminalPeriod : kLogPeriod);
  const double elapsed = seconds();
  const double rate = static_cast<double>(done) / elapsed;
  std::string line = with_thousands(done);
  if (total > 0) line += " of " + with_thousands(total);
  line += " " + what_ + ", " + with_thousands(static_cast<std::uint64_t>(rate)) + " a second";
  double left = -1;
  if (total > 0 && rate > 0) left = static_cast<double>(total - std::min(done, total)) / rate;
  if (seconds_max > 0) {
    const double by_time = seconds_max - elapsed;
    left = left < 0 ? by_time : std::min(left, by_time);
  }
  if (left >= 0) line += ", " + duration_text(left) + " left";
  if (is_terminal_) {
    std::fprintf(stderr, "\r\033[K%s", line.c_str());
    line_is_shown_ = true;
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  std::fflush(stderr);
}

void Progress::clear() {
  if (!line_is_shown_) return;
  std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
  line_is_shown_ = false;
}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

}  // namespace kvfence
