#include "scenarios/audit/block_hasher.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "contract/core/hex.h"

namespace kvfence::audit {
namespace {

/// Golden values: hashlib, xxhash 4.1.0 and cbor2 6.3.0 on CPython 3.11.7, of
/// (bytes(range(32)), (1, 300, 70000, 4000000000), extra keys).
struct Golden {
  const char* name;
  HashedBlock block;
  std::array<const char*, 4> hashes;  ///< by HashFunction
};

using Key = EventExtraKey;
const std::vector<TokenId> kTokens = {1, 300, 70000, 4'000'000'000};
const std::vector<Key> kPlain = {{Key::Kind::kText, "lora", {}},
                                 {Key::Kind::kItem, "img", -5},
                                 {Key::Kind::kText, "salt", {}},
                                 {Key::Kind::kBytes, "dig", {}}};
const std::vector<Key> kTagged = {{Key::Kind::kItem, "imgA", 3},
                                  {Key::Kind::kItem, "imgB", -2},
                                  {Key::Kind::kText, "s", {}},
                                  {Key::Kind::kBytes, "dig", {}}};
const std::vector<Key> kSalt = {{Key::Kind::kText, "s", {}}};
const std::vector<TokenId> kTwoMore = {7, 70000};
const std::vector<TokenId> kOneMore = {7};

const std::vector<Golden>& goldens() {
  static const std::vector<Golden> kAll = {
      {"no extra keys",
       {kTokens},
       {"c060007aa556d6d7386c5d69704fbcb3da35d6e202843e5f4ccf485655d28d75",
        "fbcbfb5d84680d5eff2a479eceb34072c9a41bdd60ff0c90bb1461c2361452a7",
        "3f36b5a6c9f6fe9908e234774410fa06", "9164f1dfffdd823ac4ff719e1f8e93f1"}},
      {"plain extra keys",
       {kTokens, &kPlain, nullptr, true, false},
       {"4fc413c1c0ea9265d18ec7fc590412b27e1509c18851ed6d25964ee2af4bae9a",
        "10d69ee22a76e19e9678a6e9d95da802bc5678b7b4e7907d00660fa5bfc0b951",
        "62d6320a960c473d57ae88b4545135d0", "a1460140e14111e79cbe1cbf750d240a"}},
      {"tagged extra keys",
       {kTokens, &kTagged, nullptr, false, true},
       {"92d5f3646c835239dea7b5aa4a291e68b9da98c4588bd743563f3ea78a52e9ca",
        "bada047749c2869704de751893da87c926a9c72c90b4ebdf8920c706caa2ff81",
        "56c9bf621b9b40587740eb61b8dfb755", "4d1b550993e3378f65f2120971617b28"}},
      {"two tokens of lookahead",
       {kTokens, &kSalt, &kTwoMore, false, true},
       {"8b082cb74bf23b4c53613de1f47d774689445b6593bc67dd3599eb2b21d51c6c",
        "988739e9023097cd362abd61a81ea8e633c02f78d84ea9e3bf95a59fa467e7af",
        "2aa802bd67a411d7a672095deb525ec6", "2eafc829fb299e8b19267ae4478bff23"}},
      {"one token of lookahead",
       {kTokens, nullptr, &kOneMore, false, true},
       {"299d412104ceb84f58aaeba9723985bd00499658cf0ba0394217bb5f4c7f73ed",
        "489373a170951687856909ddf845b08914338b4f7a63996c91c76853cdaeca36",
        "7263a32c5d678dad41eb53050f21389d", "c91e554640ba9fb2378015080dc5c7f5"}}};
  return kAll;
}

TEST(BlockHasher, IsPythons) {
  std::string parent;
  for (char byte = 0; byte < 32; ++byte) parent += byte;
  BlockHasher hasher;
  for (const Golden& golden : goldens()) {
    for (std::size_t function = 0; function < golden.hashes.size(); ++function) {
      BlockHash hash;
      ASSERT_TRUE(hasher.hash(static_cast<HashFunction>(function), parent, golden.block, hash));
      EXPECT_EQ(to_hex(hash), golden.hashes[function]) << golden.name;
    }
  }
  EXPECT_EQ(to_hex(hasher.none_hash(HashFunction::kSha256, "vllm-none-hash")),
            "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198");
  EXPECT_EQ(to_hex(hasher.none_hash(HashFunction::kSha256Cbor, "vllm-none-hash")),
            "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0");
}

TEST(BlockHasher, FailsIfEventsLackTheInput) {
  BlockHasher hasher;
  BlockHash hash;
  const std::vector<Key> no_offset = {{Key::Kind::kItem, "img", {}}};
  EXPECT_FALSE(
      hasher.hash(HashFunction::kSha256Cbor, "", {kTokens, &kPlain, nullptr, true, true}, hash));
  EXPECT_FALSE(hasher.hash(HashFunction::kSha256, "", {kTokens, &no_offset}, hash));
  const std::vector<TokenId> many(40'000, 300);
  EXPECT_FALSE(hasher.hash(HashFunction::kSha256, "", {many}, hash));
  EXPECT_TRUE(hasher.hash(HashFunction::kSha256Cbor, "", {many}, hash));
}

}  // namespace
}  // namespace kvfence::audit
