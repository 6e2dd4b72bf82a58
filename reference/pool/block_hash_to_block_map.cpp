#include "reference/pool/block_hash_to_block_map.h"

#include <algorithm>

#include "contract/core/check.h"

namespace kvfence::reference {

BlockHashToBlockMap::BlockHashToBlockMap(std::uint32_t num_blocks, std::size_t key_bytes_max)
    : key_bytes_max_(key_bytes_max),
      keys_(num_blocks * key_bytes_max, '\0'),
      key_sizes_(num_blocks, 0) {}

// The first inserted block of those that carry the key.
// Source: vLLM v0.19.0 v1/core/block_pool.py BlockHashToBlockMap.get_one_block
std::optional<BlockId> BlockHashToBlockMap::get_one_block(std::string_view key) const {
  for (const BlockId block : entries_) {
    if (key_of(block) == key) return block;
  }
  return std::nullopt;
}

// The block joins after the last one of its key: content duplicates are kept, never merged.
// Source: vLLM v0.19.0 v1/core/block_pool.py BlockHashToBlockMap.insert
void BlockHashToBlockMap::insert(std::string_view key, BlockId block) {
  KVFENCE_CHECK(!key.empty(), "the empty key stands for no key");
  KVFENCE_CHECK(key.size() <= key_bytes_max_, "a key is longer than the map was built for");
  KVFENCE_CHECK(key_of(block).empty(), "a block with a key gets another one");

  auto place = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (key_of(*entry) == key) place = entry + 1;
  }
  entries_.insert(place, block);
  key.copy(&keys_[block * key_bytes_max_], key.size());
  key_sizes_[block] = key.size();
}

// Only this very block is taken out; the duplicates of its key stay.
// Source: vLLM v0.19.0 v1/core/block_pool.py BlockHashToBlockMap.pop
void BlockHashToBlockMap::pop(BlockId block) {
  KVFENCE_CHECK(std::erase(entries_, block) == 1, "a block without a key leaves the map");
  key_sizes_[block] = 0;
}

// Source: vLLM v0.19.0 v1/core/block_pool.py BlockPool.reset_prefix_cache (takes a fresh map)
void BlockHashToBlockMap::clear() {
  entries_.clear();
  key_sizes_.assign(key_sizes_.size(), 0);
}

// Keys, not blocks: equal keys are adjacent, so a key is counted at its first entry.
// Source: vLLM v0.19.0 v1/core/block_pool.py BlockHashToBlockMap.__len__
std::uint32_t BlockHashToBlockMap::size() const {
  std::uint32_t num_keys = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (i == 0 || key_of(entries_[i - 1]) != key_of(entries_[i])) ++num_keys;
  }
  return num_keys;
}

// Source: ours
void BlockHashToBlockMap::add_to(StateHash& hash) const {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const std::string_view key = key_of(*entry);
    StateHash of_key;
    of_key.add(key);
    for (; entry != entries_.end() && key_of(*entry) == key; ++entry) of_key.add(*entry);
    hash.add_unordered(of_key);
  }
}

std::string_view BlockHashToBlockMap::key_of(BlockId block) const {
  return {keys_.data() + block * key_bytes_max_, key_sizes_[block]};
}

}  // namespace kvfence::reference
