#include "scenarios/protocol/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "contract/core/limits.h"

extern char** environ;

namespace kvfence {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 16;
constexpr std::size_t kStderrLineBytesMax = 4096;

/// Keeps a write to a pipe without a reader from killing this process: blocks SIGPIPE on this
/// thread during its lifetime, and discards it if it was raised meanwhile. Other signal settings of
/// the process do not change.
class SigpipeHeld {
 public:
  SigpipeHeld() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~SigpipeHeld() {
    if (!was_pending_) {
      const timespec at_once{};
      while (sigtimedwait(&sigpipe_, nullptr, &at_once) == -1 && errno == EINTR) continue;
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SigpipeHeld(const SigpipeHeld&) = delete;
  SigpipeHeld& operator=(const SigpipeHeld&) = delete;

 private:
  sigset_t sigpipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

/// One read. Returns the bytes read; 0 at the end of the stream; -1 if nothing is available now.
ssize_t read_once(int descriptor, char* buffer, std::size_t num_bytes) {
  while (true) {
    const ssize_t num_read = ::read(descriptor, buffer, num_bytes);
    if (num_read >= 0) return num_read;
    if (errno == EINTR) continue;
    return errno == EAGAIN ? -1 : 0;
  }
}

}  // namespace

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t num_written = ::write(descriptor, text.data(), text.size());
    if (num_written < 0 && errno == EINTR) continue;
    if (num_written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(num_written));
  }
  return true;
}

std::string ChildEnd::to_text() const {
  if (output_is_held) {
    return ChildEnd{kind, number}.to_text() + " (a process that it left holds its output open)";
  }
  switch (kind) {
    case Kind::kNotStarted:
      return std::string("could not be started (") + std::strerror(number) + ")";
    case Kind::kExited:
      return "exited with status " + std::to_string(number);
    case Kind::kKilled:
      return "was killed by signal " + std::to_string(number) + " (" + ::strsignal(number) + ")";
    case Kind::kClosedOutput:
      return "closed its output";
    case Kind::kTimedOut:
      return "timed out after " + std::to_string(number) + " ms";
    case Kind::kLineTooLong:
      return "wrote a line of more than " + std::to_string(limits::kLineBytesMax) + " bytes";
  }
  return "";
}

ChildProcess::Descriptor& ChildProcess::Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

void ChildProcess::Descriptor::close() {
  if (number_ >= 0) ::close(std::exchange(number_, -1));
}

ChildProcess::ChildProcess(const std::string& command, ChildProcessOptions options)
    : options_(options) {
  if (const int error = start(command)) end_ = {ChildEnd::Kind::kNotStarted, error};
}

int ChildProcess::start(const std::string& command) {
  struct Pipe {
    Descriptor read_end;
    Descriptor write_end;
  };
  std::array<Pipe, 3> pipes;
  for (Pipe& pipe : pipes) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return errno;
    pipe.read_end = Descriptor(ends[0]);
    pipe.write_end = Descriptor(ends[1]);
  }
  stdin_ = std::move(pipes[0].write_end);
  stdout_ = std::move(pipes[1].read_end);
  stderr_ = std::move(pipes[2].read_end);
  for (const Descriptor* ours : {&stdin_, &stdout_, &stderr_}) {
    if (::fcntl(ours->get(), F_SETFL, O_NONBLOCK) != 0) return errno;
  }

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipes[0].read_end.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, pipes[1].write_end.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, pipes[2].write_end.get(), STDERR_FILENO);

  // The child starts with a shell's usual signal settings, whatever is blocked here.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) sigaddset(&signals, signal);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  std::string shell = "sh";
  std::string option = "-c";
  std::string text = command;
  char* const arguments[] = {shell.data(), option.data(), text.data(), nullptr};
  const int error = ::posix_spawn(&process_, "/bin/sh", &actions, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error) process_ = -1;
  return error;
}

ChildProcess::~ChildProcess() {
  if (process_ < 0) return;
  stdin_.close();
  // A child that is blocked writing unwanted answers gets an error instead.
  stdout_.close();
  if (!wait_for_exit(options_.grace)) {
    ::kill(-process_, SIGTERM);
    wait_for_exit(options_.grace);
  }
  // Also if the shell has exited, for the processes that it left in its group. Until the shell is
  // reaped, the number of the group cannot be reused.
  ::kill(-process_, SIGKILL);
  while (::waitpid(process_, nullptr, 0) == -1 && errno == EINTR) continue;
  drain_stderr();
}

void ChildProcess::send(std::string_view text) {
  outgoing_ += text;
  write_some();
}

void ChildProcess::write_some() {
  if (outgoing_.empty()) return;
  const SigpipeHeld sigpipe_held;
  std::size_t num_written = 0;
  while (stdin_.is_open() && num_written < outgoing_.size()) {
    const ssize_t num_bytes =
        ::write(stdin_.get(), outgoing_.data() + num_written, outgoing_.size() - num_written);
    if (num_bytes >= 0) {
      num_written += static_cast<std::size_t>(num_bytes);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      stdin_.close();  // no reader; the answers so far can still be read
    }
  }
  outgoing_.erase(0, stdin_.is_open() ? num_written : outgoing_.size());
}

std::optional<std::string_view> ChildProcess::read_line(std::chrono::milliseconds timeout) {
  if (end_ && end_->kind == ChildEnd::Kind::kNotStarted) return std::nullopt;
  const Clock::time_point deadline = Clock::now() + timeout;
  while (!has_line()) {
    if (end_) return std::nullopt;
    if (incoming_.size() - line_begin_ > limits::kLineBytesMax) {
      end_ = {ChildEnd::Kind::kLineTooLong, 0};
      return std::nullopt;
    }
    if (!stdout_.is_open()) {
      end_ = end_of_output();
      return std::nullopt;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      end_ = end_of_wait(timeout);
      return std::nullopt;
    }
    poll_all(left);
  }
  const std::string_view line =
      std::string_view(incoming_).substr(line_begin_, num_searched_ - line_begin_);
  line_begin_ = ++num_searched_;
  return line;
}

bool ChildProcess::has_line() {
  const std::size_t newline = incoming_.find('\n', num_searched_);
  num_searched_ = std::min(newline, incoming_.size());
  return newline != std::string::npos;
}

void ChildProcess::poll_all(std::chrono::milliseconds timeout) {
  constexpr int kPollMsMax = 1 << 20;
  const bool writes = stdin_.is_open() && !outgoing_.empty();
  // poll() ignores negative descriptors.
  std::array<pollfd, 3> polled{{{stdout_.get(), POLLIN, 0},
                                {stderr_.get(), POLLIN, 0},
                                {writes ? stdin_.get() : -1, POLLOUT, 0}}};
  const auto wait_ms = std::min<std::int64_t>(timeout.count(), kPollMsMax);
  ::poll(polled.data(), polled.size(), static_cast<int>(wait_ms));
  if (polled[0].revents != 0) read_some();
  if (polled[1].revents != 0) drain_stderr();
  if (polled[2].revents != 0) write_some();
}

void ChildProcess::read_some() {
  chunk_.resize(kReadBytes);
  const ssize_t num_read = read_once(stdout_.get(), chunk_.data(), chunk_.size());
  if (num_read == 0) stdout_.close();
  if (num_read <= 0) return;
  incoming_.erase(0, line_begin_);
  num_searched_ -= std::exchange(line_begin_, 0);
  incoming_.append(chunk_, 0, static_cast<std::size_t>(num_read));
}

void ChildProcess::drain_stderr() {
  std::array<char, 4096> buffer;
  while (stderr_.is_open()) {
    const ssize_t num_read = read_once(stderr_.get(), buffer.data(), buffer.size());
    if (num_read < 0) return;
    if (num_read == 0) {
      stderr_.close();
      if (!stderr_partial_.empty()) keep_stderr("\n");
      return;
    }
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(num_read));
    if (options_.pass_on_stderr) {
      // Best effort: a failed write to stderr is no reason to stop.
      if (::write(STDERR_FILENO, bytes.data(), bytes.size()) < 0) continue;
    }
    keep_stderr(bytes);
  }
}

void ChildProcess::keep_stderr(std::string_view bytes) {
  for (const char byte : bytes) {
    if (byte != '\n') {
      if (stderr_partial_.size() < kStderrLineBytesMax) stderr_partial_ += byte;
      continue;
    }
    if (stderr_lines_.size() == kStderrLinesKept) stderr_lines_.pop_front();
    stderr_lines_.push_back(std::move(stderr_partial_));
    stderr_partial_.clear();
  }
}

siginfo_t ChildProcess::exit_info() const {
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT);
  return info;
}

bool ChildProcess::wait_for_exit(std::chrono::milliseconds timeout) {
  // There is no portable way to wait for a process with a time limit; its stderr closes when it
  // exits, which ends most waits at once, and for the rest waitpid is polled.
  constexpr std::chrono::milliseconds kStep{2};
  const Clock::time_point deadline = Clock::now() + timeout;
  while (exit_info().si_pid != process_) {
    if (Clock::now() >= deadline) return false;
    pollfd polled{stderr_.get(), POLLIN, 0};
    ::poll(&polled, 1, kStep.count());
    drain_stderr();
  }
  return true;
}

ChildEnd ChildProcess::end_of_output() {
  const bool exited = wait_for_exit(options_.grace);
  drain_stderr();
  return exited ? how_it_exited() : ChildEnd{ChildEnd::Kind::kClosedOutput, 0};
}

ChildEnd ChildProcess::end_of_wait(std::chrono::milliseconds waited) {
  if (exit_info().si_pid != process_) {
    return {ChildEnd::Kind::kTimedOut, static_cast<int>(waited.count())};
  }
  drain_stderr();
  ChildEnd end = how_it_exited();
  end.output_is_held = true;
  return end;
}

ChildEnd ChildProcess::how_it_exited() const {
  const siginfo_t info = exit_info();
  return {info.si_code == CLD_EXITED ? ChildEnd::Kind::kExited : ChildEnd::Kind::kKilled,
          info.si_status};
}

}  // namespace kvfence
