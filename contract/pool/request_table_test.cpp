/// Goal: a hash is spelled by the shortest symbol that stands for it, and the symbol leads back.
/// Method: two requests, written by hand, that share their first block.

#include "contract/pool/request_table.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace kvfence {
namespace {

class RequestTableTest : public testing::Test {
 protected:
  RequestTableTest() : table_(config()) {
    declare("A", {1, 2, 3, 4, 5});
    declare("B", {1, 2, 6, 7, 8, 9});
  }

  static HashConfig config() {
    HashConfig config;
    config.hash_block_size = 2;
    return config;
  }

  void declare(const std::string& name, std::vector<TokenId> tokens) {
    RequestSpec spec;
    spec.tokens = std::move(tokens);
    table_.declare(name, std::move(spec));
  }

  /// The symbol of what a symbol stands for.
  std::string back(const std::string& symbol) const {
    const auto bytes = table_.resolve(symbol);
    return bytes ? table_.symbol_of(*bytes).value_or("none") : "nothing";
  }

  RequestTable table_;
};

TEST_F(RequestTableTest, ASymbolLeadsToAHashAndBack) {
  for (const char* const symbol : {"A:0", "A:1", "B:1", "B:2", "A:0/0", "B:2/3", "B:0*2/1"}) {
    EXPECT_EQ(back(symbol), symbol);
  }
  EXPECT_EQ(back("B:0"), "A:0") << "the first block of both, named by the first request";
}

TEST_F(RequestTableTest, WhatIsNotThereHasNone) {
  for (const char* const symbol : {"A:2", "A:1*2", "C:0", "A", "A:", "A:0*0", "A:x"}) {
    EXPECT_EQ(back(symbol), "nothing") << symbol;
  }
  declare("A:x", {1, 2});
  EXPECT_EQ(back("A:x"), "nothing") << "a name is no symbol";
  const std::string hash = *table_.resolve("A:0");
  EXPECT_EQ(table_.symbol_of(std::string(hash.size(), '\1')), std::nullopt);
  EXPECT_EQ(table_.symbol_of(hash.substr(1)), std::nullopt) << "no whole hash";
  EXPECT_EQ(table_.symbol_of(""), std::nullopt);
}

}  // namespace
}  // namespace kvfence
