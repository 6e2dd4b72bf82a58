#include "contract/block_hash.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include <array>

#include "contract/cbor.h"
#include "contract/check.h"

namespace kvfence {
namespace {

constexpr std::size_t kSha256Bytes = 32;
constexpr std::size_t kXxhashBytes = sizeof(XXH128_canonical_t);

constexpr std::array<HashAlgorithm, 2> kAlgorithms = {HashAlgorithm::kSha256Cbor,
                                                      HashAlgorithm::kXxhashCbor};

BlockHash sha256(std::string_view encoded) {
  BlockHash hash(kSha256Bytes, '\0');
  // Looking the algorithm up by name costs more than hashing a block, so it is looked up once.
  static const EVP_MD* const kSha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  KVFENCE_CHECK(kSha256 != nullptr, "this OpenSSL has no SHA-256");
  const int done =
      EVP_Digest(encoded.data(), encoded.size(), reinterpret_cast<unsigned char*>(hash.data()),
                 nullptr, kSha256, nullptr);
  KVFENCE_CHECK(done == 1, "SHA-256 failed");
  return hash;
}

BlockHash xxh3_128(std::string_view encoded) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(encoded.data(), encoded.size()));
  return {reinterpret_cast<const char*>(canonical.digest), kXxhashBytes};
}

}  // namespace

std::string_view to_text(HashAlgorithm algorithm) {
  return algorithm == HashAlgorithm::kSha256Cbor ? "sha256_cbor" : "xxhash_cbor";
}

std::optional<HashAlgorithm> hash_algorithm_from_text(std::string_view text) {
  for (HashAlgorithm algorithm : kAlgorithms) {
    if (to_text(algorithm) == text) return algorithm;
  }
  return std::nullopt;
}

std::size_t hash_bytes(HashAlgorithm algorithm) {
  return algorithm == HashAlgorithm::kSha256Cbor ? kSha256Bytes : kXxhashBytes;
}

BlockHash none_hash(HashAlgorithm algorithm, std::string_view seed) {
  CborWriter writer;
  writer.write_text(seed);
  return digest(algorithm, writer.encoded());
}

BlockHash digest(HashAlgorithm algorithm, std::string_view encoded) {
  return algorithm == HashAlgorithm::kSha256Cbor ? sha256(encoded) : xxh3_128(encoded);
}

std::string make_block_hash_with_group_id(BlockHashView hash, GroupId group_id) {
  std::string key;
  key.reserve(hash.size() + kGroupIdBytes);
  key.append(hash);
  for (std::size_t byte = kGroupIdBytes; byte-- > 0;) {
    key.push_back(static_cast<char>(group_id >> (8 * byte)));
  }
  return key;
}

BlockHashView get_block_hash(std::string_view key) {
  KVFENCE_CHECK(key.size() >= kGroupIdBytes, "a packed key ends with a group id");
  return key.substr(0, key.size() - kGroupIdBytes);
}

GroupId get_group_id(std::string_view key) {
  KVFENCE_CHECK(key.size() >= kGroupIdBytes, "a packed key ends with a group id");
  GroupId group_id = 0;
  for (char byte : key.substr(key.size() - kGroupIdBytes)) {
    group_id = (group_id << 8) | static_cast<unsigned char>(byte);
  }
  return group_id;
}

}  // namespace kvfence
