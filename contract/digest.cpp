#include "contract/digest.h"

#include "contract/block_hash.h"
#include "contract/hex.h"

namespace kvfence {

std::string sha256_hex(std::string_view bytes) {
  return to_hex(digest(HashAlgorithm::kSha256Cbor, bytes));
}

Xxh3Digest xxh3_128(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Xxh3Digest result;
  digest_to(HashAlgorithm::kXxhashCbor, text, reinterpret_cast<char*>(result.data()));
  return result;
}

}  // namespace kvfence
