#pragma once

/// OffloadKeys: the keys of the offloaded blocks of one request in one group, back to back. Each
/// key is computed once, and appended when the request's hashes come.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "contract/core/state_digest.h"
#include "contract/core/types.h"
#include "contract/eviction/cache_policy.h"
#include "contract/pool/block_hash.h"
#include "contract/pool/request.h"

namespace kvfence::optimized {

/// How keys are made of a request's hashes.
struct OffloadKeyShape {
  std::size_t hash_bytes = 0;
  std::size_t hashes_per_key = 1;
  std::size_t hash_of_key = 0;   ///< the one that becomes the key
  std::optional<GroupId> group;  ///< packed after the hash

  std::size_t key_bytes() const { return hash_bytes + (group ? kGroupIdBytes : 0); }
};

class OffloadKeys {
 public:
  /// Keeps the storage.
  void clear() {
    bytes_.clear();
    size_ = 0;
  }

  /// Appends the keys of hashes that have come since. Cost: O(new keys).
  void update(const Request& request, const OffloadKeyShape& shape) {
    key_bytes_ = shape.key_bytes();
    const std::string_view hashes = request.hash_bytes();
    const std::size_t num_keys = hashes.size() / shape.hash_bytes / shape.hashes_per_key;
    for (; size_ < num_keys; ++size_) {
      const std::size_t hash = size_ * shape.hashes_per_key + shape.hash_of_key;
      bytes_.append(hashes.substr(hash * shape.hash_bytes, shape.hash_bytes));
      if (!shape.group) continue;
      for (int shift = 24; shift >= 0; shift -= 8) {
        bytes_.push_back(static_cast<char>(*shape.group >> shift));
      }
    }
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(size_); }

  /// Valid until the next update. Requires: index < size().
  OffloadKeyView operator[](std::size_t index) const {
    return std::string_view(bytes_).substr(index * key_bytes_, key_bytes_);
  }

  void add_to(StateHash& hash) const { hash.add(bytes_); }

 private:
  std::string bytes_;  ///< [size][key_bytes]
  std::size_t key_bytes_ = 0;
  std::size_t size_ = 0;
};

}  // namespace kvfence::optimized
