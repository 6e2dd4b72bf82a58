#include "contract/digest.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include "contract/check.h"

namespace kvfence {

std::string sha256_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::array<unsigned char, 32> digest;
  const int done =
      EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  KVFENCE_CHECK(done == 1, "this OpenSSL has no SHA-256");
  std::string hex;
  hex.reserve(2 * digest.size());
  for (unsigned char byte : digest) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

Xxh3Digest xxh3_128(std::span<const std::byte> bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  Xxh3Digest digest;
  static_assert(sizeof(canonical.digest) == sizeof(digest));
  for (std::size_t i = 0; i < digest.size(); ++i) digest[i] = canonical.digest[i];
  return digest;
}

}  // namespace kvfence
