#include "scenarios/command/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "properties/report/number_text.h"

namespace kvfence {
namespace {

constexpr std::chrono::milliseconds kSilentAtFirst{2000};
constexpr std::chrono::milliseconds kTerminalPeriod{200};
constexpr StatusLine::Clock::duration kLogPeriod = std::chrono::seconds(10);

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::max(0.0, seconds) + 0.5);
  if (whole < 60) return std::to_string(whole) + " s";
  std::string text = std::to_string(whole / 60) + " min";
  if (whole < 600) text += " " + std::to_string(whole % 60) + " s";
  return text;
}

}  // namespace

StatusLine::StatusLine(bool quiet, Clock::duration silent_at_first, Clock::duration period)
    : quiet_(quiet),
      is_terminal_(::isatty(STDERR_FILENO) == 1),
      period_(is_terminal_ ? period : kLogPeriod),
      next_(Clock::now() + (is_terminal_ ? silent_at_first : kLogPeriod)) {}

StatusLine::~StatusLine() { clear(); }

void StatusLine::show(const std::string& line) {
  next_ = Clock::now() + period_;
  std::fprintf(stderr, is_terminal_ ? "\r\033[K%s" : "%s\n", line.c_str());
  std::fflush(stderr);
  is_shown_ = is_terminal_;
}

void StatusLine::clear() {
  if (!is_shown_) return;
  std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
  is_shown_ = false;
}

Progress::Progress(std::string_view what, bool quiet)
    : what_(what), line_(quiet, kSilentAtFirst, kTerminalPeriod) {}

void Progress::show(std::uint64_t done, std::uint64_t total, double seconds_max) {
  if (!line_.is_due()) return;
  const double elapsed = seconds();
  const double rate = static_cast<double>(done) / elapsed;
  std::string line = with_thousands(done);
  if (total > 0) line += " of " + with_thousands(total);
  line += " " + what_ + ", " + with_thousands(static_cast<std::uint64_t>(rate)) + " per second";
  double left = -1;
  if (total > 0 && rate > 0) left = static_cast<double>(total - std::min(done, total)) / rate;
  if (seconds_max > 0) {
    const double by_time = seconds_max - elapsed;
    left = left < 0 ? by_time : std::min(left, by_time);
  }
  if (left >= 0) line += ", " + duration_text(left) + " left";
  line_.show(line);
}

double Progress::seconds() const {
  return std::chrono::duration<double>(StatusLine::Clock::now() - start_).count();
}

}  // namespace kvfence
