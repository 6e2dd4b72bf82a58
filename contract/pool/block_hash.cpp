#include "contract/pool/block_hash.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include <cstring>
#include <memory>

#include "contract/core/check.h"
#include "contract/core/line.h"
#include "contract/pool/cbor.h"

namespace kvfence {
namespace {

constexpr std::size_t kSha256Bytes = 32;
constexpr std::size_t kXxhashBytes = sizeof(XXH128_canonical_t);
static_assert(kSha256Bytes <= kHashBytesMax && kXxhashBytes <= kHashBytesMax);

void sha256(std::string_view encoded, char* out) {
  // Looking the algorithm up by name costs more than hashing a block, so it is looked up once.
  static const EVP_MD* const kSha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  KVFENCE_CHECK(kSha256 != nullptr, "this OpenSSL has no SHA-256");
  // Making a context costs as much as hashing a short block.
  thread_local const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(
      EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  const bool is_done =
      EVP_DigestInit_ex2(context.get(), kSha256, nullptr) == 1 &&
      EVP_DigestUpdate(context.get(), encoded.data(), encoded.size()) == 1 &&
      EVP_DigestFinal_ex(context.get(), reinterpret_cast<unsigned char*>(out), nullptr) == 1;
  KVFENCE_CHECK(is_done, "SHA-256 failed");
}

void xxh3_128(std::string_view encoded, char* out) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(encoded.data(), encoded.size()));
  std::memcpy(out, canonical.digest, kXxhashBytes);
}

}  // namespace

std::size_t hash_bytes(HashAlgorithm algorithm) {
  return algorithm == HashAlgorithm::kSha256Cbor ? kSha256Bytes : kXxhashBytes;
}

BlockHash none_hash(HashAlgorithm algorithm, std::string_view seed) {
  CborWriter writer;
  writer.write_text(seed);
  return digest(algorithm, writer.encoded());
}

BlockHash digest(HashAlgorithm algorithm, std::string_view encoded) {
  BlockHash hash(hash_bytes(algorithm), '\0');
  digest_to(algorithm, encoded, hash.data());
  return hash;
}

void digest_to(HashAlgorithm algorithm, std::string_view encoded, char* out) {
  if (algorithm == HashAlgorithm::kSha256Cbor) {
    sha256(encoded, out);
  } else {
    xxh3_128(encoded, out);
  }
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

Value to_value(const BlockHash& member) { return Value::Variant(Bytes{member}); }

bool from_value(const Value& value, BlockHash& member, std::string& expected) {
  const auto* const bytes = value.get_if<Bytes>();
  if (bytes) {
    member = bytes->data;
  } else {
    expected = "bytes such as 0x01";
  }
  return bytes != nullptr;
}

}  // namespace kvfence
