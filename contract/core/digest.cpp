#include "contract/core/digest.h"

#include <openssl/evp.h>

#include "contract/core/check.h"
#include "contract/core/hex.h"
#include "contract/pool/block_hash.h"

namespace kvfence {

std::string sha256_hex(std::string_view bytes) {
  return to_hex(digest(HashAlgorithm::kSha256Cbor, bytes));
}

std::string md5_hex(std::string_view bytes) {
  std::string digest(16, '\0');
  const int done =
      EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()),
                 nullptr, EVP_md5(), nullptr);
  KVFENCE_CHECK(done == 1, "MD5 failed");
  return to_hex(digest);
}

Xxh3Digest xxh3_128(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Xxh3Digest result;
  digest_to(HashAlgorithm::kXxhashCbor, text, reinterpret_cast<char*>(result.data()));
  return result;
}

}  // namespace kvfence
