#include "scenarios/audit/mirror.h"

#include <xxhash.h>

#include <algorithm>

namespace kvfence::audit {
namespace {

/// Removed hashes that are remembered: as many as are held, within these bounds.
constexpr std::size_t kRemovedMin = 1024;
constexpr std::size_t kRemovedMax = 65'536;

}  // namespace

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

void Mirror::add(MirrorBlock& block, HashId parent, std::uint32_t block_size) {
  ++held;
  if (block_size == largest_block_size) ++held_largest;
  block.copies = 1;
  block.block_size = block_size;
  block.parent = parent;
  block.whole_until = broken_chains;
  if (MirrorBlock* const before = parent == 0 ? nullptr : blocks.find(parent)) ++before->children;
}

void Mirror::set_doubtful(MirrorBlock& block, bool is_doubtful) {
  if (block.is_doubtful == is_doubtful) return;
  block.is_doubtful = is_doubtful;
  is_doubtful ? ++doubtful : --doubtful;
  if (block.block_size == largest_block_size) is_doubtful ? --held_largest : ++held_largest;
}

void Mirror::add_copy(MirrorBlock& block) {
  ++block.copies;
  set_doubtful(block, false);
}

void Mirror::remove_copy(MirrorBlock& block, EventRef at, bool is_remembered, bool may_be_last) {
  if (--block.copies > 0) {
    if (may_be_last) set_doubtful(block, true);
    return;
  }
  set_doubtful(block, false);
  --held;
  if (block.block_size == largest_block_size) --held_largest;
  if (is_remembered) {
    removed.push_back({block.id, block.stored, at});
    const std::size_t kept = std::clamp<std::size_t>(held, kRemovedMin, kRemovedMax);
    while (removed.size() > kept) removed.pop_front();
  }
  MirrorBlock* const before = blocks.find(block.parent);
  if (before != nullptr && before->children > 0) --before->children;
  if (block.children > 0) ++broken_chains;
  if (!block.is_excused) blocks.erase(block.id);
}

void Mirror::forget() {
  blocks.clear();
  removed.clear();
  held = held_largest = doubtful = depth_max = 0;
}

void Mirror::clear(EventRef at) {
  cleared.clear();
  cleared.reserve(blocks.size());
  blocks.for_each([&](const MirrorBlock& block) {
    if (block.copies > 0) cleared.push_back({block.id, block.stored, at});
  });
  std::ranges::sort(cleared, {}, &GoneBlock::id);
  forget();
}

const GoneBlock* Mirror::find_removed(HashId id) const {
  const auto found = std::ranges::find(removed.rbegin(), removed.rend(), id, &GoneBlock::id);
  return found == removed.rend() ? nullptr : &*found;
}

const GoneBlock* Mirror::find_cleared(HashId id) const {
  const auto found = std::ranges::lower_bound(cleared, id, {}, &GoneBlock::id);
  return found == cleared.end() || found->id != id ? nullptr : &*found;
}

std::size_t Mirror::memory_bytes() const {
  return blocks.memory_bytes() + removed.size() * sizeof(GoneBlock) +
         cleared.capacity() * sizeof(GoneBlock);
}

}  // namespace kvfence::audit
