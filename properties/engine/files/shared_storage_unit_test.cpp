// Tests the storage that engines share, on both sides: one keeps symbols in memory, the other in
// files.

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "optimized/connectors/synchronous/synchronous_connector.h"
#include "properties/core/both_sides_test_support.h"
#include "reference/connectors/synchronous/shared_storage.h"

namespace kvfence {
namespace {

using Symbols = std::vector<KVSymbol>;
using Names = std::vector<std::string>;
using Files = std::vector<StoredFile>;

using Maker = BySide<decltype(&reference::make_shared_storage)>;
constexpr Maker kSides[] = {{"reference", reference::make_shared_storage},
                            {"optimized", optimized::make_shared_storage}};

class SharedStorageRules : public ::testing::TestWithParam<Maker> {
 protected:
  Names folders() const {
    Names names;
    storage.folders(names);
    return names;
  }
  Files files() const {
    Files files;
    storage.files(files);
    return files;
  }
  bool load(const std::string& folder, std::uint32_t layer, Symbols& blocks) {
    return storage.load(folder, layer, blocks);
  }

  std::unique_ptr<StorageWorld> kept = GetParam().make();
  StorageWorld& storage = *kept;
};
INSTANTIATE_TEST_SUITE_P(Files, SharedStorageRules, ::testing::ValuesIn(kSides), SideNames());

TEST_P(SharedStorageRules, WhatWasSavedIsLoaded) {
  EXPECT_FALSE(storage.folder_exists("a"));
  EXPECT_TRUE(storage.save("a", 1, Symbols{7, 8}));

  EXPECT_TRUE(storage.folder_exists("a"));
  Symbols blocks(2);
  EXPECT_TRUE(load("a", 1, blocks));
  EXPECT_EQ(blocks, Symbols({7, 8}));
  EXPECT_EQ(files(), Files({{"a", 1, true, {7, 8}}}));
}

TEST_P(SharedStorageRules, TheLastOneToSaveWins) {
  storage.save("a", 0, Symbols{7, 8});
  storage.save("a", 0, Symbols{9});

  EXPECT_EQ(files(), Files({{"a", 0, true, {9}}}));
}

TEST_P(SharedStorageRules, AFileMayHoldNothing) {
  EXPECT_TRUE(storage.save("a", 0, Symbols{}));

  Symbols none;
  EXPECT_TRUE(load("a", 0, none));
}

TEST_P(SharedStorageRules, LookingForAFileMakesItsFolder) {
  Symbols blocks = {5};

  EXPECT_FALSE(load("a", 0, blocks));

  EXPECT_EQ(blocks, Symbols({5}));
  EXPECT_EQ(folders(), Names({"a"}));
  EXPECT_EQ(files(), Files());
}

TEST_P(SharedStorageRules, WhatIsTooShortOrTooLongIsNotLoaded) {
  storage.save("a", 0, Symbols{7, 8});
  Symbols one = {5};
  Symbols three = {5, 5, 5};

  EXPECT_FALSE(load("a", 0, one));
  EXPECT_FALSE(load("a", 0, three));
}

TEST_P(SharedStorageRules, WhatLostItsEndIsNotLoaded) {
  storage.save("a", 0, Symbols{7});
  EXPECT_TRUE(storage.truncate_file("a", 0));
  Symbols blocks = {5};

  EXPECT_FALSE(load("a", 0, blocks));

  EXPECT_EQ(files(), Files({{"a", 0, false, {}}}));
  EXPECT_FALSE(storage.truncate_file("a", 1));
  EXPECT_FALSE(storage.truncate_file("b", 0));
}

TEST_P(SharedStorageRules, WhatIsRemovedIsGone) {
  storage.save("a", 0, Symbols{7});
  storage.save("a", 1, Symbols{8});

  EXPECT_TRUE(storage.remove_file("a", 0));
  EXPECT_FALSE(storage.remove_file("a", 0));
  EXPECT_FALSE(storage.remove_file("b", 0));
  EXPECT_EQ(files(), Files({{"a", 1, true, {8}}}));
  EXPECT_TRUE(storage.remove_folder("a"));
  EXPECT_FALSE(storage.remove_folder("a"));
  EXPECT_EQ(folders(), Names());
}

TEST_P(SharedStorageRules, OtherEnginesWriteToo) {
  storage.make_folder("b");
  storage.put_file("a", 2, Symbols{7});
  for (const FileOperation operation : kStorageOperations) storage.fail_next(2, operation);
  storage.put_file("a", 2, Symbols{8});
  storage.put_file("a", 10, Symbols{9});

  EXPECT_EQ(folders(), Names({"a", "b"}));
  EXPECT_EQ(files(), Files({{"a", 2, true, {8}}, {"a", 10, true, {9}}}))
      << "the fault was for another file";
  EXPECT_TRUE(storage.truncate_file("a", 2));
  EXPECT_TRUE(storage.remove_file("a", 2));
  EXPECT_TRUE(storage.remove_folder("a"));
}

TEST_P(SharedStorageRules, AFolderThatCannotBeMade) {
  storage.fail_next(0, FileOperation::kMakeFolder);
  EXPECT_FALSE(storage.save("a", 0, Symbols{7}));
  EXPECT_EQ(folders(), Names());
  storage.fail_next(0, FileOperation::kMakeFolder);
  Symbols blocks = {5};
  EXPECT_FALSE(load("a", 0, blocks));
  EXPECT_EQ(folders(), Names());
}

TEST_P(SharedStorageRules, AFileThatCannotBeCreated) {
  storage.save("a", 0, Symbols{7});
  storage.fail_next(0, FileOperation::kCreate);

  EXPECT_FALSE(storage.save("a", 0, Symbols{8}));

  EXPECT_EQ(folders(), Names({"a"}));
  EXPECT_EQ(files(), Files()) << "the old entry of that name is gone";
}

TEST_P(SharedStorageRules, AFileThatCannotBeWritten) {
  storage.fail_next(0, FileOperation::kWrite);

  EXPECT_FALSE(storage.save("a", 0, Symbols{8}));

  EXPECT_EQ(files(), Files({{"a", 0, false, {}}}));
}

TEST_P(SharedStorageRules, AFileThatCannotBeRead) {
  storage.save("a", 0, Symbols{7});
  Symbols blocks = {5};
  for (const FileOperation operation : {FileOperation::kOpen, FileOperation::kRead}) {
    storage.fail_next(0, operation);
    EXPECT_FALSE(load("a", 0, blocks));
    EXPECT_EQ(blocks, Symbols({5}));
    EXPECT_EQ(files(), Files({{"a", 0, true, {7}}}));
  }
  EXPECT_TRUE(load("a", 0, blocks)) << "each failed once";
}

TEST_P(SharedStorageRules, AFaultWaitsForItsLayerAndItsOperation) {
  storage.fail_next(1, FileOperation::kWrite);
  storage.fail_next(1, FileOperation::kWrite);

  EXPECT_TRUE(storage.save("a", 0, Symbols{7}));
  Symbols blocks(1);
  EXPECT_TRUE(load("a", 0, blocks));
  EXPECT_FALSE(storage.save("b", 1, Symbols{7}));
  EXPECT_TRUE(storage.save("b", 1, Symbols{7})) << "a repeated fail_next counts once";
}

TEST_P(SharedStorageRules, WhatFailsFirstLeavesLaterFaultsWaiting) {
  storage.fail_next(0, FileOperation::kRead);
  Symbols blocks(1);
  EXPECT_FALSE(load("a", 0, blocks)) << "it is not there";
  storage.save("a", 0, Symbols{7});

  EXPECT_FALSE(load("a", 0, blocks)) << "only now it is read";
  EXPECT_TRUE(load("a", 0, blocks));
}

}  // namespace
}  // namespace kvfence
