// Goal: on real files storage has upstream's names, knows half a file, and leaves nothing behind,
// whatever fails. Method: a temporary folder, and a file system that is slow to answer. The rules
// of storage are in properties/engine/files/.

#include "optimized/connectors/synchronous/file_storage.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "optimized/connectors/synchronous/synchronous_connector.h"
#include "optimized/files/posix_file_operations.h"
#include "optimized/files/test_folder.h"

namespace kvfence::optimized {
namespace {

namespace fs = std::filesystem;

using Symbols = std::vector<KVSymbol>;

const std::string kFolder = "9f66c130786a1a05e4731f71a3c5f172";
const Symbols kSymbols = {11, 12, 13, 14};

class FileStorageTest : public testing::Test {
 protected:
  bool load(Symbols& symbols, std::uint32_t layer = 0) {
    symbols.assign(kSymbols.size(), 99);
    return storage_.load(kFolder, layer, symbols);
  }
  std::vector<StoredFile> files() const {
    std::vector<StoredFile> found;
    storage_.files(found);
    return found;
  }
  fs::path path_of(std::uint32_t layer) const {
    return fs::path(folder_.path()) / kFolder / layer_file_name(layer);
  }

  TestFolder folder_ = TestFolder("file_storage");
  PosixFileOperations posix_;
  FaultyFileOperations below_ = FaultyFileOperations(posix_);
  FileStorage storage_{folder_.path(), below_};
};

TEST_F(FileStorageTest, SavesUnderUpstreamsNamesAndLoadsThat) {
  EXPECT_TRUE(storage_.save(kFolder, 3, kSymbols));
  EXPECT_TRUE(storage_.folder_exists(kFolder));
  EXPECT_TRUE(fs::is_regular_file(path_of(3)));
  EXPECT_EQ(path_of(3).filename(), "model.layers.3.self_attn.attn.safetensors");
  Symbols symbols;
  EXPECT_TRUE(load(symbols, 3));
  EXPECT_EQ(symbols, kSymbols);
  EXPECT_EQ(files(), std::vector({StoredFile{kFolder, 3, true, kSymbols}}));
}

TEST_F(FileStorageTest, DoesNotLoadWhatIsNotWhole) {
  EXPECT_TRUE(storage_.save(kFolder, 0, kSymbols));
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    EXPECT_TRUE(storage_.truncate_file(kFolder, 0));
    Symbols symbols;
    EXPECT_FALSE(load(symbols));
    EXPECT_EQ(symbols, Symbols(4, 99));
    EXPECT_EQ(files(), std::vector({StoredFile{kFolder, 0, false, {}}}));
  }
  EXPECT_EQ(fs::file_size(path_of(0)), 0U);
}

TEST_F(FileStorageTest, PassesOverFilesOfOtherNames) {
  storage_.make_folder(kFolder);
  for (const char* name :
       {"README", "model.layers.01.self_attn.attn.safetensors", "model.layers."}) {
    std::ofstream(fs::path(folder_.path()) / kFolder / name) << "x";
  }
  EXPECT_TRUE(files().empty());
  EXPECT_TRUE(storage_.remove_folder(kFolder)) << "they go with the folder";
}

// ---- What is planned to fail ----

TEST_F(FileStorageTest, FailsToWriteAndLeavesHalfAFile) {
  EXPECT_TRUE(storage_.save(kFolder, 0, kSymbols));
  const std::uintmax_t whole_bytes = fs::file_size(path_of(0));
  storage_.fail_next(0, FileOperation::kWrite);
  EXPECT_FALSE(storage_.save(kFolder, 0, kSymbols));
  EXPECT_EQ(files(), std::vector({StoredFile{kFolder, 0, false, {}}}));
  EXPECT_EQ(fs::file_size(path_of(0)), whole_bytes / 2);
}

TEST_F(FileStorageTest, AnEmptyFileIsReadToo) {
  EXPECT_TRUE(storage_.save(kFolder, 0, kSymbols));
  fs::resize_file(path_of(0), 0);
  storage_.fail_next(0, FileOperation::kRead);
  Symbols symbols;
  EXPECT_FALSE(load(symbols));
  EXPECT_TRUE(storage_.save(kFolder, 0, kSymbols));
  EXPECT_TRUE(load(symbols)) << "what was planned has happened";
}

// ---- What a file system does on its own ----

TEST_F(FileStorageTest, GoesOnAfterShortAndInterruptedCalls) {
  below_.begin(FaultPlan({{FileOperation::kCreate, 0, EINTR, 0},
                          {FileOperation::kWrite, 0, EINTR, 0},
                          {FileOperation::kWrite, 1, 0, 3},
                          {FileOperation::kOpen, 0, EINTR, 0},
                          {FileOperation::kRead, 0, 0, 5},
                          {FileOperation::kRead, 1, EINTR, 0}}));
  EXPECT_TRUE(storage_.save(kFolder, 0, kSymbols));
  Symbols symbols;
  EXPECT_TRUE(load(symbols));
  EXPECT_EQ(symbols, kSymbols);
  EXPECT_EQ(below_.happened().size(), 6U);
}

TEST_F(FileStorageTest, AFullDiskFailsTheSave) {
  below_.begin(FaultPlan({{FileOperation::kWrite, 0, ENOSPC, 0}}));
  EXPECT_FALSE(storage_.save(kFolder, 0, kSymbols));
  below_.begin(FaultPlan({{FileOperation::kClose, 0, EIO, 0}}));
  EXPECT_FALSE(storage_.save(kFolder, 0, kSymbols));
  below_.begin(FaultPlan({{FileOperation::kRemove, 0, EACCES, 0}}));
  EXPECT_FALSE(storage_.save(kFolder, 0, kSymbols));
}

TEST_F(FileStorageTest, ClosesWhatItOpens) {
  const auto num_open = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto before = num_open();
  for (const FileOperation operation : kStorageOperations) {
    Symbols symbols;
    storage_.fail_next(0, operation);
    storage_.save(kFolder, 0, kSymbols);
    load(symbols);
    storage_.save(kFolder, 0, kSymbols);
    load(symbols);
    storage_.truncate_file(kFolder, 0);
    files();
  }
  EXPECT_EQ(num_open(), before);
}

// ---- The folder of its own ----

/// The storage that has a folder of this name, wherever it lies.
fs::path folder_with(const std::string& name) {
  const fs::path parent = fs::path(TemporaryFolder("parent").path()).parent_path();
  for (const auto& entry : fs::directory_iterator(parent)) {
    std::error_code ignored;
    if (entry.path().filename().string().starts_with("kvfence_storage_") &&
        fs::exists(entry.path() / name, ignored)) {
      return entry.path();
    }
  }
  return {};
}

TEST(MakeSharedStorage, HasFoldersOfItsOwnWhichGoWithIt) {
  const TemporaryFolder only_here("name");
  const std::string name = fs::path(only_here.path()).filename().string();
  std::unique_ptr<SharedStorage> first = make_shared_storage();
  const std::unique_ptr<SharedStorage> second = make_shared_storage();
  EXPECT_TRUE(folder_with(name).empty());
  EXPECT_TRUE(first->save(name, 0, kSymbols));
  first->fail_next(1, FileOperation::kWrite);
  EXPECT_FALSE(first->save(name, 1, kSymbols));
  EXPECT_FALSE(second->folder_exists(name));
  const fs::path path = folder_with(name);
  ASSERT_FALSE(path.empty());

  first.reset();

  EXPECT_FALSE(fs::exists(path)) << "also after a failure";
}

}  // namespace
}  // namespace kvfence::optimized
