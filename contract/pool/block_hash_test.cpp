// Goal: block hashes are byte for byte those of vLLM.
// Method: recompute every case of golden/block_hash_golden.txt, which upstream's own functions
// wrote; compare the CBOR writer with an independent encoder; check both digests against published
// values.
//
// A change of the golden file is right only when a pinned release hashes differently.

#include "contract/pool/block_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "contract/pool/cbor.h"
#include "contract/pool/request.h"

namespace kvfence {
namespace {

using nlohmann::json;

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text.push_back(kDigits[value >> 4]);
    text.push_back(kDigits[value & 0xF]);
  }
  return text;
}

std::string from_hex(const std::string& text) {
  std::string bytes;
  for (std::size_t at = 0; at + 1 < text.size(); at += 2) {
    bytes.push_back(static_cast<char>(std::stoi(text.substr(at, 2), nullptr, 16)));
  }
  return bytes;
}

HashAlgorithm algorithm_of(const json& golden) {
  return from_text<HashAlgorithm>(golden.at("algorithm").get<std::string>()).value();
}

RequestSpec spec_of(const json& golden) {
  RequestSpec spec;
  golden.at("prompt").get_to(spec.tokens);
  if (const json& lora = golden.at("lora"); !lora.is_null()) {
    spec.lora = LoraRequest{lora.at("name").get<std::string>(), lora.at("id").get<std::uint32_t>()};
  }
  if (const json& salt = golden.at("cache_salt"); !salt.is_null()) {
    spec.cache_salt = salt.get<std::string>();
  }
  for (const json& feature : golden.at("mm_features")) {
    spec.mm_features.push_back({feature.at(0).get<std::string>(),
                                feature.at(1).get<std::uint32_t>(),
                                feature.at(2).get<std::uint32_t>()});
  }
  return spec;
}

ExtraKeys extra_keys_of(const json& golden) {
  ExtraKeys keys;
  if (golden.is_null()) return keys;
  for (const json& key : golden) {
    if (key.is_string()) {
      keys.emplace_back(key.get<std::string>());
    } else {
      keys.emplace_back(MmExtraKey{key.at(0).get<std::string>(), key.at(1).get<std::int64_t>()});
    }
  }
  return keys;
}

std::vector<std::string> hex_of(const BlockHashListView& hashes) {
  std::vector<std::string> text;
  for (std::size_t index = 0; index < hashes.size(); ++index) text.push_back(to_hex(hashes[index]));
  return text;
}

void check_none_hash(const json& golden) {
  EXPECT_EQ(to_hex(none_hash(algorithm_of(golden), golden.at("seed").get<std::string>())),
            golden.at("hash"));
}

void check_block(const json& golden) {
  const auto tokens = golden.at("tokens").get<std::vector<TokenId>>();
  EXPECT_EQ(to_hex(hash_block_tokens(algorithm_of(golden), from_hex(golden.at("parent")), tokens,
                                     extra_keys_of(golden.at("extra_keys")))),
            golden.at("hash"));
}

void check_extra_keys(const json& golden) {
  const ExtraKeysAndCursor actual = generate_block_hash_extra_keys(
      spec_of(golden), golden.at("start").get<std::size_t>(), golden.at("end").get<std::size_t>(),
      golden.at("mm_cursor").get<std::int64_t>());
  EXPECT_EQ(actual.keys, extra_keys_of(golden.at("extra_keys")));
  EXPECT_EQ(actual.mm_cursor, golden.at("next_mm_cursor").get<std::int64_t>());
}

void check_request(const json& golden) {
  const auto hash_block_size = golden.at("hash_block_size").get<std::uint32_t>();
  Request request(spec_of(golden),
                  {algorithm_of(golden), golden.at("seed").get<std::string>(), hash_block_size});
  std::vector<std::size_t> num_hashes = {request.num_hashes()};
  for (const json& tokens : golden.at("appended")) {
    request.append_output_token_ids(tokens.get<std::vector<TokenId>>());
    num_hashes.push_back(request.num_hashes());
  }
  EXPECT_EQ(json(num_hashes), golden.at("num_hashes"));
  EXPECT_EQ(json(hex_of(request.block_hashes(hash_block_size))), golden.at("hashes"));
  EXPECT_EQ(json(hex_of(request.block_hashes(2 * hash_block_size))), golden.at("merged_by_2"));
  EXPECT_EQ(json(hex_of(request.block_hashes(4 * hash_block_size))), golden.at("merged_by_4"));
}

void check_packed(const json& golden) {
  const std::string hash = from_hex(golden.at("hash"));
  const auto group_id = golden.at("group_id").get<GroupId>();
  const std::string key = make_block_hash_with_group_id(hash, group_id);
  EXPECT_EQ(to_hex(key), golden.at("key"));
  EXPECT_EQ(get_block_hash(key), hash);
  EXPECT_EQ(get_group_id(key), group_id);
}

TEST(BlockHashGolden, EveryValueOfUpstreamIsRecomputed) {
  const std::map<std::string, void (*)(const json&)> checks = {
      {"none_hash", check_none_hash}, {"block", check_block},   {"extra_keys", check_extra_keys},
      {"request", check_request},     {"packed", check_packed},
  };
  std::ifstream file(KVFENCE_GOLDEN_DIR "/block_hash_golden.txt");
  ASSERT_TRUE(file) << "no golden file in " KVFENCE_GOLDEN_DIR;

  // The header states what the file holds, so that a truncated file cannot pass.
  std::map<std::string, int> num_stated;
  std::map<std::string, int> num_read;
  std::string line;
  for (int line_number = 1; std::getline(file, line); ++line_number) {
    SCOPED_TRACE("block_hash_golden.txt:" + std::to_string(line_number));
    if (line.rfind("# cases: ", 0) == 0) {
      std::istringstream stated(line.substr(9));
      std::string kind;
      int num_cases = 0;
      while (stated >> kind >> num_cases) num_stated[kind] = num_cases;
    }
    if (line.empty() || line[0] == '#') continue;
    const json golden = json::parse(line);
    const auto kind = golden.at("kind").get<std::string>();
    ASSERT_EQ(checks.count(kind), 1U) << kind;
    checks.at(kind)(golden);
    ++num_read[kind];
  }
  EXPECT_EQ(num_read, num_stated);
  EXPECT_EQ(num_read.size(), checks.size()) << "a kind of case is missing";
}

void write_value(CborWriter& writer, const json& value) {
  if (value.is_array()) {
    writer.write_array_head(value.size());
    for (const json& item : value) write_value(writer, item);
  } else if (value.is_string()) {
    writer.write_text(value.get_ref<const std::string&>());
  } else if (value.is_binary()) {
    const auto& bytes = value.get_binary();
    writer.write_bytes(std::string(bytes.begin(), bytes.end()));
  } else if (value.is_number_unsigned()) {
    writer.write_unsigned(value.get<std::uint64_t>());
  } else if (value.is_number_integer()) {
    writer.write_integer(value.get<std::int64_t>());
  } else {
    ASSERT_TRUE(value.is_null());
    writer.write_null();
  }
}

std::string expected_encoding(const json& value) {
  const std::vector<std::uint8_t> bytes = json::to_cbor(value);
  return {bytes.begin(), bytes.end()};
}

json random_value(std::mt19937_64& random, int depth) {
  const auto below = [&random](std::uint64_t bound) { return random() % bound; };
  // Lengths around the inline and one-byte heads, and some that need two bytes.
  const std::size_t length = std::vector<std::size_t>{0, 1, 23, 24, 40, 255, 256, 700}[below(8)];
  switch (below(depth > 0 ? 7 : 5)) {
    case 0:
      return nullptr;
    case 1:
      return random() >> below(64);
    case 2: {
      // Any bit length, either sign; also as the signed type, which must pick the head by value.
      const auto magnitude = static_cast<std::int64_t>(random() >> (1 + below(63)));
      return below(2) == 0 ? magnitude : -1 - magnitude;
    }
    case 3: {
      std::string text(length, '\0');
      for (char& letter : text) letter = static_cast<char>('a' + below(26));
      return text;
    }
    case 4: {
      std::vector<std::uint8_t> bytes(length);
      for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(below(256));
      return json::binary(std::move(bytes));
    }
    default: {
      json items = json::array();
      const std::size_t num_items = std::min<std::size_t>(length, 30);
      for (std::size_t index = 0; index < num_items; ++index) {
        items.push_back(random_value(random, depth - 1));
      }
      return items;
    }
  }
}

TEST(CborWriter, EncodesLikeAnIndependentEncoder) {
  std::mt19937_64 random(20240601);
  CborWriter reused;
  for (int round = 0; round < 200; ++round) {
    const json value = random_value(random, 3);
    CborWriter fresh;
    write_value(fresh, value);
    ASSERT_EQ(to_hex(fresh.encoded()), to_hex(expected_encoding(value))) << round;
    reused.clear();
    write_value(reused, value);
    ASSERT_EQ(reused.encoded(), fresh.encoded()) << round;
  }
}

TEST(CborWriter, HeadsAreShortestAtEveryWidthBoundary) {
  for (int bits : {0, 4, 5, 8, 16, 32, 63}) {
    for (std::int64_t delta = -10; delta <= 10; ++delta) {
      const std::uint64_t value = (std::uint64_t{1} << bits) + static_cast<std::uint64_t>(delta);
      CborWriter writer;
      writer.write_unsigned(value);
      EXPECT_EQ(to_hex(writer.encoded()), to_hex(expected_encoding(json(value)))) << value;
      const auto as_signed = static_cast<std::int64_t>(value);
      writer.clear();
      writer.write_integer(as_signed);
      EXPECT_EQ(to_hex(writer.encoded()), to_hex(expected_encoding(json(as_signed)))) << as_signed;
    }
  }
}

TEST(CborWriter, LengthsTakeTheSameHeads) {
  for (std::size_t length : {std::size_t{65535}, std::size_t{65536}}) {
    const std::vector<json> values = {json(std::string(length, 'x')),
                                      json::binary(std::vector<std::uint8_t>(length, 7)),
                                      json(std::vector<json>(length))};
    for (const json& value : values) {
      CborWriter writer;
      write_value(writer, value);
      EXPECT_EQ(writer.encoded(), expected_encoding(value)) << value.type_name() << ' ' << length;
    }
  }
}

TEST(CborWriter, KeepsWhatWasWrittenWhenItOutgrowsItsStorage) {
  // Every length at which the last item may straddle the end of the inline storage.
  for (std::size_t num_items = 200; num_items < 320; ++num_items) {
    json items = json::array();
    for (std::size_t index = 0; index < num_items; ++index)
      items.push_back(std::uint64_t{index % 24});
    items.push_back("tail of more than a head");
    CborWriter writer;
    write_value(writer, items);
    ASSERT_EQ(writer.encoded(), expected_encoding(items)) << num_items;
  }
}

TEST(Digest, Sha256OfPublishedMessages) {
  // Source: FIPS 180-4 example (one block) and the empty message.
  EXPECT_EQ(to_hex(digest(HashAlgorithm::kSha256Cbor, "abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(digest(HashAlgorithm::kSha256Cbor, "")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Digest, Xxh3IsBigEndian) {
  // Source: the xxHash specification's XXH3-128 of the empty input, seed 0, in canonical form.
  EXPECT_EQ(to_hex(digest(HashAlgorithm::kXxhashCbor, "")), "99aa06d3014798d86001c324468d497f");
}

TEST(HashAlgorithm, NamesReadBackAndSizesAreTrue) {
  EXPECT_EQ(to_text(HashAlgorithm::kSha256Cbor), "sha256_cbor");
  EXPECT_EQ(to_text(HashAlgorithm::kXxhashCbor), "xxhash_cbor");
  EXPECT_EQ(hash_bytes(HashAlgorithm::kSha256Cbor), 32U);
  EXPECT_EQ(hash_bytes(HashAlgorithm::kXxhashCbor), 16U);
  for (HashAlgorithm algorithm : {HashAlgorithm::kSha256Cbor, HashAlgorithm::kXxhashCbor}) {
    EXPECT_EQ(from_text<HashAlgorithm>(to_text(algorithm)), algorithm);
    EXPECT_EQ(digest(algorithm, "x").size(), hash_bytes(algorithm));
    EXPECT_EQ(none_hash(algorithm, "0").size(), hash_bytes(algorithm));
  }
  // Upstream's pickle-based algorithms are not ours.
  for (std::string_view text : {"", "sha256", "xxhash", "SHA256_CBOR"}) {
    EXPECT_EQ(from_text<HashAlgorithm>(text), std::nullopt) << text;
  }
}

TEST(PackedKey, EveryGroupIdComesBack) {
  const std::string hash("\x00\xff hash", 7);
  for (GroupId group_id : {GroupId{0}, GroupId{1}, GroupId{0x80}, GroupId{0x01020304},
                           GroupId{0x80000000}, std::numeric_limits<GroupId>::max()}) {
    const std::string key = make_block_hash_with_group_id(hash, group_id);
    EXPECT_EQ(key.size(), hash.size() + kGroupIdBytes);
    EXPECT_EQ(get_block_hash(key), hash);
    EXPECT_EQ(get_group_id(key), group_id);
  }
  EXPECT_EQ(make_block_hash_with_group_id("h", 0x01020304), "h\x01\x02\x03\x04");
  EXPECT_EQ(get_block_hash(make_block_hash_with_group_id("", 7)), "");
}

TEST(PackedKeyDeathTest, TooShortIsAPreconditionBroken) {
  EXPECT_DEATH(get_group_id("abc"), "group id");
  EXPECT_DEATH(get_block_hash("abc"), "group id");
}

TEST(BlockHashListView, WholeBlocksOnly) {
  const std::string bytes = "aabbccddeeff";
  EXPECT_EQ(BlockHashListView({}, 2, 1).size(), 0U);
  const BlockHashListView fine(bytes, 2, 1);
  ASSERT_EQ(fine.size(), 6U);
  EXPECT_EQ(fine[0], "aa");
  EXPECT_EQ(fine[5], "ff");
  const BlockHashListView by_4(bytes, 2, 4);
  ASSERT_EQ(by_4.size(), 1U);
  EXPECT_EQ(by_4[0], "aabbccdd");
  EXPECT_EQ(BlockHashListView(bytes, 2, 6).size(), 1U);
  EXPECT_EQ(BlockHashListView(bytes, 2, 7).size(), 0U);
}

}  // namespace
}  // namespace kvfence
