#include "scenarios/command/contained_run.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <new>
#include <system_error>

#include "contract/core/sanitized.h"
#include "properties/report/number_text.h"
#include "scenarios/protocol/child_process.h"

/// Of mimalloc, where it is linked: it calls no handler of `new`.
extern "C" [[gnu::weak]] void mi_register_error(void (*handler)(int error, void* argument),
                                                void* argument);

namespace kvfence {
namespace {

// The first byte of a message.
constexpr char kAnswer = 'A';
constexpr char kException = 'E';

/// Wall time for one command, per second of its limit of CPU time.
constexpr double kSleepFactor = 6;
constexpr std::chrono::milliseconds kPollInterval{50};

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

/// Of a handler, which takes no argument.
std::atomic<bool>* out_of_memory_flag = nullptr;

[[noreturn]] void on_out_of_memory() {
  *out_of_memory_flag = true;
  ::_exit(1);
}

/// The private writable memory of this process, touched or not; 0 if the system does not report it.
std::uint64_t data_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t pages = 0;
  for (int field = 0; field < 6; ++field) statm >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

double cpu_seconds_of(pid_t process) {
  clockid_t clock{};
  timespec time{};
  if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

void ContainedRun::Unmap::operator()(Shared* shared) const { ::munmap(shared, sizeof(Shared)); }

ContainedRun::ContainedRun(const Work& work, ContainedLimits limits) : limits_(limits) {
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("mmap");
  shared_.reset(::new (memory) Shared);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("pipe2");
  // The other process must not write what is still in a buffer here.
  std::fflush(nullptr);
  process_ = ::fork();
  if (process_ < 0) {
    ::close(ends[0]);
    ::close(ends[1]);
    fail("fork");
  }
  if (process_ == 0) {
    ::close(ends[0]);
    run(work, ends[1]);
  }
  ::close(ends[1]);
  pipe_ = ends[0];
}

ContainedRun::~ContainedRun() {
  if (!has_ended_) {
    ::kill(process_, SIGKILL);
    while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) continue;
  }
  if (pipe_ >= 0) ::close(pipe_);
}

void ContainedRun::run(const Work& work, int pipe) const {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // A terminal interrupts both processes: the first one decides what becomes of this one.
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_IGN);
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  if (limits_.memory_bytes > 0 && !kIsSanitized) {
    // Not the address space, since the virtual device reserves more than it uses.
    const std::uint64_t bytes = data_bytes() + limits_.memory_bytes;
    const rlimit memory{bytes, bytes};
    ::setrlimit(RLIMIT_DATA, &memory);
    out_of_memory_flag = &shared_->is_out_of_memory;
    std::set_new_handler(on_out_of_memory);
    if (mi_register_error != nullptr) {
      const auto on_error = [](int error, void*) {
        if (error == ENOMEM) on_out_of_memory();
      };
      mi_register_error(on_error, nullptr);
    }
  }
  if (limits_.is_quiet) {
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0) ::dup2(nowhere, STDERR_FILENO);
  }
  std::string message;
  try {
    message = kAnswer + work(shared_->position);
  } catch (const std::exception& error) {
    message = std::string(1, kException) + error.what();
  }
  std::fflush(nullptr);
  ::_exit(write_all(pipe, message) ? 0 : 1);
}

bool ContainedRun::wait_for(std::chrono::milliseconds time) {
  if (has_ended_) return true;
  for (std::chrono::milliseconds waited{0}; waited < time; waited += kPollInterval) {
    pollfd readable{pipe_, POLLIN, 0};
    const int num_ready = ::poll(&readable, 1, static_cast<int>(kPollInterval.count()));
    if (num_ready <= 0) {
      if (!is_stuck()) continue;
      ::kill(process_, SIGKILL);
      how_it_ended_ = "did not end a command within " + number_text(limits_.seconds_per_command) +
                      " s of CPU time";
      end();
      return true;
    }
    std::array<char, 1 << 16> chunk;
    const ssize_t num_read = ::read(pipe_, chunk.data(), chunk.size());
    if (num_read < 0) continue;
    received_.append(chunk.data(), static_cast<std::size_t>(num_read));
    if (num_read > 0) continue;
    end();
    return true;
  }
  return false;
}

bool ContainedRun::is_stuck() {
  if (limits_.seconds_per_command <= 0) return false;
  const std::uint64_t ticks = position().ticks.load(std::memory_order_relaxed);
  const double cpu_seconds = cpu_seconds_of(process_);
  if (ticks != ticks_ || num_waits_ == 0) {
    ticks_ = ticks;
    cpu_seconds_at_start_ = cpu_seconds;
    num_waits_ = 0;
  }
  ++num_waits_;
  // Counted in waits: while this process is stopped, the other one may be stopped as well.
  const double seconds =
      1e-3 * static_cast<double>(num_waits_) * static_cast<double>(kPollInterval.count());
  return cpu_seconds - cpu_seconds_at_start_ > limits_.seconds_per_command ||
         seconds > kSleepFactor * limits_.seconds_per_command;
}

void ContainedRun::end() {
  int status = 0;
  while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) continue;
  has_ended_ = true;
  if (!how_it_ended_.empty()) return;
  const bool is_complete = WIFEXITED(status) && WEXITSTATUS(status) == 0 && !received_.empty();
  if (is_complete && received_.front() == kAnswer) {
    answer_ = received_.substr(1);
  } else if (is_complete && received_.front() == kException) {
    how_it_ended_ = "threw an exception: " + received_.substr(1);
  } else if (shared_->is_out_of_memory) {
    how_it_ended_ = "ran out of memory (" + std::to_string(limits_.memory_bytes >> 20) + " MiB)";
  } else if (WIFSIGNALED(status)) {
    how_it_ended_ = ChildEnd{ChildEnd::Kind::kKilled, WTERMSIG(status)}.to_text();
  } else {
    how_it_ended_ = ChildEnd{ChildEnd::Kind::kExited, WEXITSTATUS(status)}.to_text();
  }
}

}  // namespace kvfence
