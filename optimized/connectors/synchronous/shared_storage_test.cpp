// Goal: storage has a folder of its own, whatever else is in it, and removes it at the end. Method:
// find the folder by a name that only it contains. The rules are in properties/engine/files/.

#include "contract/connectors/synchronous/shared_storage.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "optimized/connectors/synchronous/synchronous_connector.h"
#include "optimized/files/temporary_folder.h"

namespace kvfence::optimized {
namespace {

namespace fs = std::filesystem;

const std::vector<KVSymbol> kAnySymbols = {11, 12, 13, 14};

/// The storage that contains a folder of this name, wherever it is.
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

/// A name that no other folder has.
std::string new_name() { return fs::path(TemporaryFolder("name").path()).filename().string(); }

TEST(FolderOfFiles, IsItsOwnAndGoesWithIt) {
  const std::string name = new_name();
  std::unique_ptr<StorageWorld> first = make_shared_storage();
  const std::unique_ptr<StorageWorld> second = make_shared_storage();
  EXPECT_TRUE(folder_with(name).empty());
  EXPECT_TRUE(first->save(name, 0, kAnySymbols));
  first->fail_next(1, FileOperation::kWrite);
  EXPECT_FALSE(first->save(name, 1, kAnySymbols));
  EXPECT_FALSE(second->folder_exists(name));
  const fs::path path = folder_with(name);
  ASSERT_FALSE(path.empty());

  first.reset();

  EXPECT_FALSE(fs::exists(path)) << "also after a failure";
}

TEST(FolderOfFiles, AWriteThatFailsLeavesHalfAFile) {
  const std::string name = new_name();
  const std::unique_ptr<StorageWorld> storage = make_shared_storage();
  EXPECT_TRUE(storage->save(name, 0, kAnySymbols));
  const fs::path path = folder_with(name) / name / layer_file_name(0);
  const std::uintmax_t whole_bytes = fs::file_size(path);
  storage->fail_next(0, FileOperation::kWrite);
  EXPECT_FALSE(storage->save(name, 0, kAnySymbols));
  EXPECT_EQ(fs::file_size(path), whole_bytes / 2);
}

TEST(FolderOfFiles, AnEmptyFileIsReadToo) {
  const std::string name = new_name();
  const std::unique_ptr<StorageWorld> storage = make_shared_storage();
  EXPECT_TRUE(storage->save(name, 0, kAnySymbols));
  for (int i = 0; i < 12; ++i) EXPECT_TRUE(storage->truncate_file(name, 0));
  EXPECT_EQ(fs::file_size(folder_with(name) / name / layer_file_name(0)), 0U);
  std::vector<KVSymbol> symbols(kAnySymbols.size());
  EXPECT_FALSE(storage->load(name, 0, symbols));
  storage->fail_next(0, FileOperation::kRead);
  EXPECT_FALSE(storage->load(name, 0, symbols));
  EXPECT_TRUE(storage->save(name, 0, kAnySymbols));
  EXPECT_TRUE(storage->load(name, 0, symbols)) << "what was planned has happened";
}

TEST(FolderOfFiles, PassesOverFilesOfOtherNames) {
  const std::string name = new_name();
  const std::unique_ptr<StorageWorld> storage = make_shared_storage();
  storage->make_folder(name);
  for (const char* other :
       {"README", "model.layers.01.self_attn.attn.safetensors", "model.layers."}) {
    std::ofstream(folder_with(name) / name / other) << "x";
  }
  std::vector<StoredFile> files;
  storage->files(files);
  EXPECT_TRUE(files.empty());
  EXPECT_TRUE(storage->remove_folder(name)) << "they go with the folder";
}

}  // namespace
}  // namespace kvfence::optimized
