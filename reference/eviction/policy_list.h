#pragma once

/// What the lists of a cache policy are made of: vectors, oldest first, that are scanned for a key.

#include <algorithm>
#include <span>
#include <vector>

#include "contract/eviction/cache_policy.h"

namespace kvfence::reference {

inline OffloadKeyView key_of(const PolicyEntry& entry) { return entry.key; }
inline OffloadKeyView key_of(const OffloadKey& ghost) { return ghost; }

/// The place of the key in a list of blocks or of ghosts; its end if it is not there.
template <class List>
auto find_key(List& list, OffloadKeyView key) {
  return std::find_if(list.begin(), list.end(),
                      [key](const auto& element) { return key_of(element) == key; });
}

/// Makes what stands at `place` the newest; all others keep their order.
template <class List>
void move_to_end(List& list, typename List::iterator place) {
  std::rotate(place, place + 1, list.end());
}

/// The oldest block that may go: idle, and not protected. The list's end if there is none.
inline auto find_victim(const std::vector<PolicyEntry>& blocks,
                        std::span<const OffloadKeyView> protected_keys) {
  return std::find_if(blocks.begin(), blocks.end(), [&](const PolicyEntry& block) {
    return block.status.ref_cnt == 0 && std::find(protected_keys.begin(), protected_keys.end(),
                                                  block.key) == protected_keys.end();
  });
}

}  // namespace kvfence::reference
