#pragma once

/// KeyedHash: a 64-bit hash of a key under a secret, for tables with keys that strangers choose.
///
/// It takes 16 bytes at a time, mixes each half with a secret word, and folds the halves of their
/// 128-bit product together, as wyhash does with public words. Every byte of the key counts. A
/// stranger can choose all of them with xxhash_cbor, and keys that differ only in ignored bytes
/// would collide under any secret.
///
/// It resists keys that were chosen without the secret: the only known way to find two that collide
/// is to try, which needs the table. It does not resist an attacker who knows the secret (a half
/// that equals `first` makes the product 0), or who learns of it by timing single lookups. This is
/// no proof and no cryptographic hash; SipHash, at several times the cost, would be the next step.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "contract/core/table_secret.h"

namespace kvfence::optimized {

class KeyedHash {
 public:
  explicit KeyedHash(const TableSecret& secret) : secret_(secret) {}

  /// Cost: one multiplication per 16 bytes, and one more.
  [[gnu::always_inline]] std::uint64_t operator()(std::string_view key) const {
    if (key.size() < kStepBytes) [[unlikely]]
      return of_short(key);
    std::uint64_t hash = secret_.second;
    const char* const last = key.data() + key.size() - kStepBytes;
    for (const char* at = key.data(); at < last; at += kStepBytes) hash = step(at, hash);
    return finish(step(last, hash), key.size());  // may overlap the step before
  }

 private:
  static constexpr std::size_t kStepBytes = 16;

  static std::uint64_t fold(std::uint64_t left, std::uint64_t right) {
    __extension__ using Product = unsigned __int128;
    const Product product = Product{left} * right;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }

  std::uint64_t step(const char* bytes, std::uint64_t hash) const {
    std::uint64_t halves[2];
    std::memcpy(halves, bytes, sizeof(halves));
    return fold(halves[0] ^ secret_.first, halves[1] ^ hash);
  }

  /// After one product, consecutive keys are still evenly spaced, which makes clusters. Keys of
  /// different lengths may end in equal steps.
  std::uint64_t finish(std::uint64_t hash, std::size_t size) const {
    return fold(hash ^ secret_.second, size ^ secret_.first);
  }

  /// Out of line: no digest is that short.
  [[gnu::noinline]] std::uint64_t of_short(std::string_view key) const {
    char padded[kStepBytes] = {};
    key.copy(padded, key.size());
    return finish(step(padded, secret_.second), key.size());
  }

  TableSecret secret_;
};

}  // namespace kvfence::optimized
