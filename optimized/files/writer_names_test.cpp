#include "optimized/files/writer_names.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "optimized/files/faulty_file_operations.h"
#include "optimized/files/posix_file_operations.h"
#include "optimized/files/test_folder.h"

namespace kvfence::optimized {
namespace {

namespace fs = std::filesystem;

class WriterNamesTest : public ::testing::Test {
 protected:
  WriterNamesTest() : folder_("writer_names"), files_(posix_) {}

  std::string in_folder(const std::string& name) const { return folder_.path() + "/" + name; }
  void make(const std::string& name) { std::ofstream(in_folder(name)).put('x'); }
  bool has(const std::string& name) const { return fs::exists(in_folder(name)); }

  TestFolder folder_;
  PosixFileOperations posix_;
  FaultyFileOperations files_;
};

TEST_F(WriterNamesTest, NamesAreNeverGivenTwice) {
  WriterNames one(posix_, folder_.path());
  WriterNames other(posix_, folder_.path());
  EXPECT_EQ(one.next(), "") << "no writer yet";
  ASSERT_EQ(one.claim(), 0);
  ASSERT_EQ(other.claim(), 0);
  EXPECT_EQ(one.next(), in_folder("0.0.tmp"));
  EXPECT_EQ(one.next(), in_folder("0.1.tmp"));
  EXPECT_EQ(other.next(), in_folder("1.0.tmp"));
  one.release();
  EXPECT_EQ(one.next(), "");
  EXPECT_FALSE(has("0.lock"));
  EXPECT_TRUE(has("1.lock"));
  ASSERT_EQ(one.claim(), 0);
  EXPECT_EQ(one.next(), in_folder("0.2.tmp")) << "the number is free, the count goes on";
}

TEST_F(WriterNamesTest, ReclaimsOnlyTheFilesOfDeadWriters) {
  WriterNames living(posix_, folder_.path());
  ASSERT_EQ(living.claim(), 0);
  for (const char* name : {"0.0.tmp", "3.lock", "3.0.tmp", "3.12.tmp", "4.0.tmp", "33.0.tmp",
                           "x.tmp", "3", "3.txt", "99999.0.tmp", "-1.0.tmp"}) {
    make(name);
  }
  WriterNames next(posix_, folder_.path());
  ASSERT_EQ(next.claim(), 0);
  EXPECT_TRUE(has("0.0.tmp")) << "its writer is alive";
  for (const char* name : {"3.lock", "3.0.tmp", "3.12.tmp", "4.0.tmp", "4.lock", "33.0.tmp"}) {
    EXPECT_FALSE(has(name)) << name;
  }
  for (const char* name : {"x.tmp", "3", "3.txt", "99999.0.tmp", "-1.0.tmp"}) {
    EXPECT_TRUE(has(name)) << name << " is nothing of ours";
  }
}

// Between opening the lock file and locking it, a second writer reclaims the number, and a third
// one takes it. The lock on a file that has lost its name does not give the number.
TEST_F(WriterNamesTest, ALockOnARemovedFileIsNoLock) {
  make("0.lock");
  WriterNames third(posix_, folder_.path());
  int num_locks = 0;
  files_.watch([&](FileOperation operation) {
    if (operation != FileOperation::kLock || ++num_locks != 2) return;
    fs::remove(in_folder("0.lock"));
    EXPECT_EQ(third.claim(), 0);
    make("0.0.tmp");
  });
  WriterNames writer(files_, folder_.path());
  ASSERT_EQ(writer.claim(), 0);
  EXPECT_TRUE(has("0.0.tmp")) << "the file of the third one";
  EXPECT_EQ(writer.next(), in_folder("1.0.tmp"));
}

TEST_F(WriterNamesTest, SaysWhyItIsNoWriter) {
  WriterNames nowhere(posix_, in_folder("missing"));
  EXPECT_EQ(nowhere.claim(), -ENOENT);
  files_.begin(FaultPlan({{FileOperation::kLock, 0, EROFS, 0}}));
  WriterNames writer(files_, folder_.path());
  EXPECT_EQ(writer.claim(), -EROFS);
  EXPECT_EQ(writer.next(), "");
  EXPECT_EQ(writer.claim(), 0) << "it may try again";
}

}  // namespace
}  // namespace kvfence::optimized
