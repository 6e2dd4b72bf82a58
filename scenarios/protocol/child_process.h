#pragma once

/// A shell command as a child process, with lines going both ways.

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kvfence {

/// Writes the whole text, whatever signals come. False: errno says why not.
bool write_all(int descriptor, std::string_view text);

struct ChildProcessOptions {
  /// Time for a child to end when asked, before it is killed, and for one that closed its output to
  /// exit, before it counts as running.
  std::chrono::milliseconds grace{500};
  bool pass_on_stderr = true;  ///< in addition to keeping its last lines
};

/// Why there is no further line.
struct ChildEnd {
  enum class Kind : std::uint8_t {
    kNotStarted,    ///< number: errno
    kExited,        ///< number: exit status
    kKilled,        ///< number: signal
    kClosedOutput,  ///< it still runs, without an output
    kTimedOut,      ///< number: milliseconds waited
    kLineTooLong,   ///< a line beyond limits::kLineBytesMax
  };
  Kind kind = Kind::kExited;
  int number = 0;
  /// It exited, and a process that it left holds its output open, but wrote nothing in time.
  bool output_is_held = false;

  /// "exited with status 3", "was killed by signal 9 (Killed)", ...
  std::string to_text() const;
};

/// Runs `/bin/sh -c command` in a process group of its own, with pipes for its standard streams.
///
/// No call blocks on a child that does not read: send() buffers what the pipe does not take, and
/// read_line() writes it while it waits. The exit of a child is data, never a signal.
class ChildProcess {
 public:
  explicit ChildProcess(const std::string& command, ChildProcessOptions options = {});

  /// Closes the child's input, waits for the grace period, then ends its whole process group: TERM,
  /// the grace period again, KILL. No process of the group remains.
  ~ChildProcess();

  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Queues text and writes as much of the queue as the pipe takes at once.
  void send(std::string_view text);

  /// The next line of output without its newline, valid until the next call; waits up to `timeout`
  /// for it. Nothing if there is none: end() says why, and no further line will come.
  std::optional<std::string_view> read_line(std::chrono::milliseconds timeout);

  /// Whether read_line() would return at once.
  bool has_line();

  /// Set once read_line() has returned nothing.
  const std::optional<ChildEnd>& end() const { return end_; }

  /// The last lines that the child wrote to its stderr, oldest first; at most kStderrLinesKept.
  const std::deque<std::string>& stderr_lines() const { return stderr_lines_; }

  static constexpr std::size_t kStderrLinesKept = 20;

 private:
  using Clock = std::chrono::steady_clock;

  /// A file descriptor that closes itself.
  class Descriptor {
   public:
    Descriptor() = default;
    explicit Descriptor(int number) : number_(number) {}
    Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept;
    ~Descriptor() { close(); }
    void close();
    int get() const { return number_; }
    bool is_open() const { return number_ >= 0; }

   private:
    int number_ = -1;
  };

  /// Returns an errno, 0 on success.
  int start(const std::string& command);
  void write_some();
  void read_some();
  void drain_stderr();
  void keep_stderr(std::string_view bytes);
  void poll_all(std::chrono::milliseconds timeout);
  /// How the child exited; its id is 0 before. It stays to be reaped, so that its id stays taken.
  siginfo_t exit_info() const;
  bool wait_for_exit(std::chrono::milliseconds timeout);
  ChildEnd end_of_output();
  ChildEnd end_of_wait(std::chrono::milliseconds waited);
  ChildEnd how_it_exited() const;

  ChildProcessOptions options_;
  pid_t process_ = -1;
  Descriptor stdin_;
  Descriptor stdout_;
  Descriptor stderr_;

  std::string outgoing_;  ///< not taken by the pipe yet
  std::string incoming_;
  std::size_t line_begin_ = 0;    ///< in incoming_: where the next line starts
  std::size_t num_searched_ = 0;  ///< bytes of incoming_ known to have no newline after line_begin_
  std::string chunk_;             ///< what one read fills
  std::string stderr_partial_;
  std::deque<std::string> stderr_lines_;
  std::optional<ChildEnd> end_;
};

}  // namespace kvfence
