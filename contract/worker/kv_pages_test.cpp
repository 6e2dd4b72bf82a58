/// Goal: pages come back as they were put in, compare by what counts of them, and read and print as
/// a list of records.
/// Method: a few pages, by hand.

#include "contract/worker/kv_pages.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "contract/core/line.h"

namespace kvfence::engine {
namespace {

const std::vector<KVPage> kPages = {{0, 3, {7, 8}}, {1, 0, {9}}, {1, 2, {}}};

TEST(KVPages, ComeBackInOrder) {
  const KVPages pages(kPages);
  EXPECT_EQ(pages.list(), kPages);
  EXPECT_EQ(pages.find(1, 0), kPages[1]);
  EXPECT_EQ(pages.find(0, 0), (KVPage{0, 0, {}}));
}

TEST(KVPages, CompareByWhatCounts) {
  KVPages pages(kPages);
  pages.clear();
  EXPECT_EQ(pages, KVPages{});
  EXPECT_EQ(pages.list(), std::vector<KVPage>{});
  pages.add(0, 3, 2)[1] = 8;  // the first symbol is what was there
  EXPECT_EQ(pages, KVPages({kPages[0]}));
  EXPECT_EQ(pages.find(1, 0), (KVPage{1, 0, {}})) << "gone, though its words may still be there";
  pages.add(1, 0, 1)[0] = 10;
  EXPECT_NE(pages, KVPages({kPages[0], kPages[1]}));
}

TEST(KVPages, AreAListOfRecords) {
  const Value value = to_value(KVPages(kPages));
  EXPECT_EQ(value, kvfence::to_value(kPages));
  KVPages read;
  std::string expected;
  EXPECT_TRUE(from_value(value, read, expected));
  EXPECT_EQ(read, KVPages(kPages));
}

TEST(KVPages, WhatIsNoListOfPagesIsRefusedAndNothingIsLost) {
  KVPages pages(kPages);
  std::string expected;
  EXPECT_FALSE(from_value(kvfence::to_value(true), pages, expected));
  EXPECT_NE(expected.find("(page rank=... number=... symbols=...)"), std::string::npos) << expected;
  EXPECT_EQ(pages, KVPages(kPages));
}

}  // namespace
}  // namespace kvfence::engine
