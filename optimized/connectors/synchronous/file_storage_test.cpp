// Goal: on real files storage uses upstream's names, detects half a file, and leaks no handle,
// whatever fails. Method: a temporary folder, and a file system in which calls fail, are cut short
// and interrupted. The rules of storage are in properties/engine/files/.

#include "optimized/connectors/synchronous/file_storage.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "optimized/files/faulty_file_operations.h"
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
}

TEST_F(FileStorageTest, DoesNotLoadWhatIsNotWhole) {
  EXPECT_TRUE(storage_.save(kFolder, 0, kSymbols));
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    fs::resize_file(path_of(0), fs::file_size(path_of(0)) / 2);
    Symbols symbols;
    EXPECT_FALSE(load(symbols));
    EXPECT_EQ(symbols, Symbols(4, 99));
  }
  EXPECT_EQ(fs::file_size(path_of(0)), 0U);
}

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

TEST_F(FileStorageTest, DoesNotLoadAFileOfUnknownSize) {
  EXPECT_TRUE(storage_.save(kFolder, 0, kSymbols));
  Symbols symbols;
  EXPECT_TRUE(load(symbols)) << "what it has read stays in its buffer";
  for (const int error : {EIO, ESTALE}) {
    below_.begin(FaultPlan({{FileOperation::kSize, 0, error, 0}}));
    EXPECT_FALSE(load(symbols));
    EXPECT_EQ(symbols, Symbols(4, 99));
  }
}

TEST_F(FileStorageTest, ClosesWhatItOpens) {
  const auto num_open = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto before = num_open();
  for (const FileOperation operation : kStorageOperations) {
    Symbols symbols;
    below_.begin(FaultPlan({{operation, 0, EIO, 0}}));
    storage_.save(kFolder, 0, kSymbols);
    load(symbols);
    storage_.save(kFolder, 0, kSymbols);
    load(symbols);
    EXPECT_EQ(below_.happened().size(), 1U);
  }
  EXPECT_EQ(num_open(), before);
}

}  // namespace
}  // namespace kvfence::optimized
