#include "scenarios/audit/mirror.h"

#include <xxhash.h>

#include <algorithm>

namespace kvfence::audit {

HashId id_of(std::string_view hash_bytes) {
  return XXH3_64bits(hash_bytes.data(), hash_bytes.size());
}

std::size_t BlockTable::slot_of(HashId id) const {
  std::size_t slot = id & mask();
  while (slots_[slot] != kNone && blocks_[slots_[slot]].id != id) slot = (slot + 1) & mask();
  return slot;
}

MirrorBlock* BlockTable::find(HashId id) {
  if (slots_.empty()) return nullptr;
  const std::uint32_t number = slots_[slot_of(id)];
  return number == kNone ? nullptr : &blocks_[number];
}

MirrorBlock& BlockTable::at(HashId id) {
  if (2 * (blocks_.size() + 1) > slots_.size()) grow();
  std::uint32_t& number = slots_[slot_of(id)];
  if (number != kNone) return blocks_[number];
  number = static_cast<std::uint32_t>(blocks_.size());
  // By a quarter: doubling could waste as much memory as is used.
  if (blocks_.size() == blocks_.capacity()) blocks_.reserve(blocks_.size() * 5 / 4 + 16);
  MirrorBlock& block = blocks_.emplace_back();
  block.id = id;
  if (!digests_.empty()) digests_.emplace_back();
  return block;
}

void BlockTable::erase(HashId id) {
  std::size_t hole = slot_of(id);
  const std::uint32_t number = slots_[hole];
  // The rest of the cluster moves up, so that no probe ends too early.
  for (std::size_t slot = (hole + 1) & mask(); slots_[slot] != kNone; slot = (slot + 1) & mask()) {
    const std::size_t distance_to_home = (slot - (blocks_[slots_[slot]].id & mask())) & mask();
    if (distance_to_home < ((slot - hole) & mask())) continue;
    slots_[hole] = slots_[slot];
    hole = slot;
  }
  slots_[hole] = kNone;
  if (number + 1 != blocks_.size()) {
    slots_[slot_of(blocks_.back().id)] = number;
    blocks_[number] = blocks_.back();
    if (!digests_.empty()) digests_[number] = digests_.back();
  }
  blocks_.pop_back();
  if (!digests_.empty()) digests_.pop_back();
}

void BlockTable::clear() {
  std::fill(slots_.begin(), slots_.end(), kNone);
  blocks_.clear();
  digests_.clear();
}

void BlockTable::grow() {
  slots_.assign(std::max<std::size_t>(16, 2 * slots_.size()), kNone);
  for (std::uint32_t number = 0; number < blocks_.size(); ++number) {
    slots_[slot_of(blocks_[number].id)] = number;
  }
}

std::size_t BlockTable::memory_bytes() const {
  return slots_.capacity() * sizeof(std::uint32_t) + blocks_.capacity() * sizeof(MirrorBlock) +
         digests_.capacity() * sizeof(Digest);
}

void BlockTable::keep_digest(HashId id, std::string_view digest) {
  MirrorBlock* const block = find(id);
  if (block == nullptr) return;
  digests_.resize(blocks_.size());
  digest_bytes_ = digest.size();
  std::copy(digest.begin(), digest.end(),
            digests_[static_cast<std::size_t>(block - blocks_.data())].begin());
}

std::string_view BlockTable::digest_of(HashId id) const {
  if (digests_.empty() || slots_.empty()) return {};
  const std::uint32_t number = slots_[slot_of(id)];
  if (number == kNone || digests_[number] == Digest{}) return {};
  return {digests_[number].data(), digest_bytes_};
}

}  // namespace kvfence::audit
