#include "scenarios/protocol/child_process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>

namespace kvfence {
namespace {

using Kind = ChildEnd::Kind;
using std::chrono::milliseconds;

constexpr milliseconds kLong{30'000};  // never waited for in full
constexpr milliseconds kShort{100};

ChildProcessOptions quiet(milliseconds grace = kLong) {
  return {.grace = grace, .pass_on_stderr = false};
}

// The end of a child that has no further line.
std::string end_of(ChildProcess& child, milliseconds timeout = kLong) {
  EXPECT_FALSE(child.read_line(timeout).has_value());
  return child.end() ? child.end()->to_text() : "no end";
}

TEST(ChildProcess, LinesGoBothWays) {
  ChildProcess child("cat", quiet());
  child.send("one\ntw");
  EXPECT_EQ(child.read_line(kLong), "one");
  EXPECT_FALSE(child.has_line());
  child.send("o\n\nthree\n");
  EXPECT_EQ(child.read_line(kLong), "two");
  EXPECT_EQ(child.read_line(kLong), "");
  EXPECT_EQ(child.read_line(kLong), "three");
  EXPECT_FALSE(child.end().has_value());
}

// The data exceeds both pipes by far; a side that only writes would wait forever.
TEST(ChildProcess, MoreThanThePipesHoldPassesThrough) {
  ChildProcess child("cat", quiet());
  const std::string line(1000, 'x');
  constexpr int kNumLines = 5000;
  for (int count = 0; count < kNumLines; ++count) child.send(line + "\n");
  for (int count = 0; count < kNumLines; ++count) ASSERT_EQ(child.read_line(kLong), line);
}

TEST(ChildProcess, StderrIsReadWhileALineIsAwaited) {
  ChildProcess child("head -c 300000 /dev/zero >&2; echo done", quiet());
  EXPECT_EQ(child.read_line(kLong), "done");
}

TEST(ChildProcess, ExitStatusIsReportedAfterTheLastLine) {
  ChildProcess child("echo last; exit 3", quiet());
  EXPECT_EQ(child.read_line(kLong), "last");
  EXPECT_EQ(end_of(child), "exited with status 3");
  EXPECT_EQ(child.end()->kind, Kind::kExited);
}

TEST(ChildProcess, SignalIsReported) {
  ChildProcess child("kill -9 $$", quiet());
  EXPECT_EQ(end_of(child), "was killed by signal 9 (Killed)");
  EXPECT_EQ(child.end()->kind, Kind::kKilled);
}

TEST(ChildProcess, CommandThatIsNotThereExitsWith127) {
  ChildProcess child("kvfence-no-such-command", quiet());
  EXPECT_EQ(end_of(child), "exited with status 127");
  ASSERT_EQ(child.stderr_lines().size(), 1U);
  EXPECT_NE(child.stderr_lines()[0].find("kvfence-no-such-command"), std::string::npos);
}

TEST(ChildProcess, SilenceIsReported) {
  ChildProcess child("cat >/dev/null", quiet());
  child.send("anyone?\n");
  EXPECT_EQ(end_of(child, kShort), "timed out after 100 ms");
}

TEST(ChildProcess, AnExitIsReportedAlsoIfAnotherProcessHoldsTheOutput) {
  ChildProcess child("sleep 60 & exit 3", quiet(kShort));
  EXPECT_EQ(end_of(child, kShort),
            "exited with status 3 (a process that it left holds its output open)");
  EXPECT_EQ(child.end()->kind, Kind::kExited);
}

TEST(ChildProcess, ClosedOutputIsNotAnExit) {
  ChildProcess child("exec >&-; cat >/dev/null", quiet(kShort));
  EXPECT_EQ(end_of(child), "closed its output");
}

TEST(ChildProcess, HugeLineIsRefused) {
  ChildProcess child("yes | tr -d '\\n'", quiet(kShort));
  EXPECT_FALSE(child.read_line(kLong).has_value());
  ASSERT_TRUE(child.end().has_value());
  EXPECT_EQ(child.end()->kind, Kind::kLineTooLong);
}

TEST(ChildProcess, WritingToADeadChildIsHarmless) {
  ChildProcess child("exit 0", quiet());
  EXPECT_EQ(end_of(child), "exited with status 0");
  child.send("anyone?\n");
  child.send("anyone?\n");
  EXPECT_EQ(end_of(child), "exited with status 0");
}

TEST(ChildProcess, TheLastLinesOfStderrAreKept) {
  ChildProcess child("seq 1 25 >&2; printf partial >&2", quiet());
  EXPECT_EQ(end_of(child), "exited with status 0");
  ASSERT_EQ(child.stderr_lines().size(), ChildProcess::kStderrLinesKept);
  EXPECT_EQ(child.stderr_lines().front(), "7");
  EXPECT_EQ(child.stderr_lines().back(), "partial");
}

TEST(ChildProcess, StderrIsPassedOn) {
  testing::internal::CaptureStderr();
  {
    ChildProcess child("echo to the user >&2", {.grace = kLong, .pass_on_stderr = true});
    end_of(child);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "to the user\n");
}

// No process of the group survives: neither a shell that ignores TERM, nor what it started. While
// they run, they hold an end of our pipe.
TEST(ChildProcess, TheWholeGroupEndsWithIt) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  {
    ChildProcess child("trap '' TERM; sleep 1000 & echo up; while :; do sleep 1000; done",
                       quiet(kShort));
    ASSERT_EQ(child.read_line(kLong), "up");
    ::close(ends[1]);
    pollfd polled{ends[0], POLLIN, 0};
    ASSERT_EQ(::poll(&polled, 1, 0), 0) << "the child does not hold the pipe";
  }
  pollfd polled{ends[0], POLLIN, 0};
  EXPECT_EQ(::poll(&polled, 1, static_cast<int>(kLong.count())), 1);
  EXPECT_NE(polled.revents & POLLHUP, 0);
  ::close(ends[0]);
}

// No zombie either: there is no child left to wait for.
TEST(ChildProcess, IsReaped) {
  {
    ChildProcess child("exit 0", quiet());
    end_of(child);
  }
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(ChildProcess, AChildThatEndsWithItsInputIsNotKilled) {
  testing::internal::CaptureStderr();
  { ChildProcess child("cat >/dev/null; echo bye >&2", {.grace = kLong, .pass_on_stderr = true}); }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "bye\n");
}

}  // namespace
}  // namespace kvfence
