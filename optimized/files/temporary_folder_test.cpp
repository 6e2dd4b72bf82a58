// Goal: a temporary folder belongs to one owner, and is removed with it. Method: several at a time;
// a child process that is killed while it has one.

#include "optimized/files/temporary_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

namespace kvfence::optimized {
namespace {

TEST(TemporaryFolder, EachIsNewAndEmptyAndRemovedWithWhatIsInIt) {
  std::string path;
  {
    const TemporaryFolder one("folder_test");
    const TemporaryFolder other("folder_test");
    path = one.path();
    EXPECT_NE(path, other.path());
    EXPECT_TRUE(std::filesystem::is_empty(path));
    std::filesystem::create_directory(path + "/inner");
    std::ofstream(path + "/inner/file").put('x');
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".lock"));
  EXPECT_EQ(TemporaryFolder("folder_test").path(), path) << "its name is free again";
}

TEST(TemporaryFolder, AFolderOfADeadProcessIsRemoved) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const TemporaryFolder folder("folder_kill_test");
    std::ofstream(folder.path() + "/left").put('x');
    const char done = 'x';
    while (write(ready[1], &done, 1) != 1) {
    }
    for (;;) pause();
  }
  char done = 0;
  ASSERT_EQ(read(ready[0], &done, 1), 1);
  std::string of_child;
  {
    const TemporaryFolder beside("folder_kill_test");
    of_child = beside.path();
    EXPECT_TRUE(std::filesystem::is_empty(beside.path())) << "the child is alive";
  }
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  close(ready[0]);
  close(ready[1]);
  const TemporaryFolder next("folder_kill_test");
  EXPECT_NE(next.path(), of_child) << "that of the dead child is the first free one";
  EXPECT_TRUE(std::filesystem::is_empty(next.path()));
}

}  // namespace
}  // namespace kvfence::optimized
