#include "optimized/eviction/cache_policy.h"

#include <algorithm>

#include "contract/core/check.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kCapacityMax = std::uint32_t{1} << 28;

std::size_t num_keys_max(const CachePolicyConfig& config) {
  KVFENCE_CHECK(config.capacity <= kCapacityMax, "places are 32 bits, four for each block");
  const std::size_t capacity = config.capacity;
  return config.policy == EvictionPolicy::kARC ? 3 * capacity : capacity;
}

}  // namespace

CachePolicy::CachePolicy(const CachePolicyConfig& config)
    : config_(config),
      table_(num_keys_max(config), config.table_secret),
      resident_(config.capacity, {PlaceOrder::kOrdered, PlaceOrder::kOrdered, PlaceOrder::kPlain}),
      // A ghost list exceeds its limit by one key for a moment.
      ghosts_(is_arc() ? 2 * std::size_t{config.capacity} + 1 : 0,
              {PlaceOrder::kOrdered, PlaceOrder::kOrdered}) {}

bool CachePolicy::get(OffloadKeyView key, BlockStatus& out) const {
  const Index index = find(key);
  if (index == kNone) return false;
  out = {.ref_cnt = ref_cnt(index), .slot = slot(index)};
  return true;
}

ErrorCode CachePolicy::insert(OffloadKeyView key, SlotId slot) {
  const Table::Search found = table_.search(key);
  if (found.entry != kNone && is_held(table_[found.entry])) return ErrorCode::kAlreadyStored;
  if (num_held_ >= config_.capacity) return ErrorCode::kNoFreeBlocks;
  admit(key, found, slot);
  return ErrorCode::kNone;
}

auto CachePolicy::insert_new(OffloadKeyView key, SlotId slot) -> Index {
  return admit(key, table_.search(key), slot);
}

/// `found` is a ghost or nothing.
auto CachePolicy::admit(OffloadKeyView key, const Table::Search& found, SlotId slot) -> Index {
  Index index = found.entry;
  if (index == kNone) {
    index = table_.insert(key, found);
  } else {
    ghosts_.erase(ghost_part(table_[index].list), table_[index].place);
  }
  table_[index] = {.place = 0, .ref_cnt = kNotReady, .slot = slot, .list = List::kT1};
  resident_.append(kBusy, index, table_);
  ++num_held_;
  ++num_in_t1_;
  return index;
}

ErrorCode CachePolicy::remove(OffloadKeyView key) {
  const Index index = find(key);
  if (index == kNone) return ErrorCode::kUnknownKey;
  remove(index);
  return ErrorCode::kNone;
}

void CachePolicy::remove(Index index) {
  const Block& block = table_[index];
  resident_.erase(part_of(block), block.place);
  --num_held_;
  num_in_t1_ -= block.list == List::kT1 ? 1 : 0;
  table_.erase(index);
}

ErrorCode CachePolicy::make_ready(OffloadKeyView key) {
  const Index index = find(key);
  if (index == kNone) return ErrorCode::kUnknownKey;
  if (ref_cnt(index) != kNotReady) return ErrorCode::kAlreadyReady;
  set_ref_cnt(index, 0);
  return ErrorCode::kNone;
}

ErrorCode CachePolicy::acquire(OffloadKeyView key) {
  const Index index = find(key);
  if (index == kNone) return ErrorCode::kUnknownKey;
  if (ref_cnt(index) == kNotReady) return ErrorCode::kNotReady;
  set_ref_cnt(index, ref_cnt(index) + 1);
  return ErrorCode::kNone;
}

ErrorCode CachePolicy::release(OffloadKeyView key) {
  const Index index = find(key);
  if (index == kNone) return ErrorCode::kUnknownKey;
  if (ref_cnt(index) == kNotReady) return ErrorCode::kNotReady;
  if (ref_cnt(index) == 0) return ErrorCode::kNotReading;
  set_ref_cnt(index, ref_cnt(index) - 1);
  return ErrorCode::kNone;
}

void CachePolicy::set_ref_cnt(Index index, std::int32_t ref_cnt) {
  Block& block = table_[index];
  const std::size_t part = part_of(block);
  block.ref_cnt = ref_cnt;
  if (part_of(block) != part) resident_.change_list(part, part_of(block), block.place);
}

void CachePolicy::touch(std::span<const OffloadKeyView> keys) {
  for (std::size_t i = keys.size(); i > 0; --i) {
    if (i > kKeysAhead) table_.prefetch(keys[i - 1 - kKeysAhead]);
    if (i > kKeysAhead / 2) table_.prefetch_entry(keys[i - 1 - kKeysAhead / 2]);
    touch(keys[i - 1]);
  }
}

void CachePolicy::touch(OffloadKeyView key) {
  const Index index = table_.find(key);
  if (index == kNone) return;
  const Block& block = table_[index];
  switch (block.list) {
    case List::kT1:
      return move_to_end(index, is_arc() && block.ref_cnt != kNotReady ? List::kT2 : List::kT1);
    case List::kT2:
      return move_to_end(index, List::kT2);
    case List::kB1:
    case List::kB2:
      adapt_target(block.list);
      ghosts_.erase(ghost_part(block.list), block.place);
      ghosts_.append(ghost_part(block.list), index, table_);
  }
}

void CachePolicy::move_to_end(Index index, List list) {
  Block& block = table_[index];
  resident_.erase(part_of(block), block.place);
  num_in_t1_ -= block.list != list ? 1 : 0;
  block.list = list;
  resident_.append(part_of(block), index, table_);
}

void CachePolicy::adapt_target(List ghost_list) {
  const bool is_b1 = ghost_list == List::kB1;
  const double here = ghosts_.size(ghost_part(ghost_list));
  const double there = ghosts_.size(ghost_part(is_b1 ? List::kB2 : List::kB1));
  const double step = std::max(1.0, there / here);
  const double capacity = config_.capacity;
  target_t1_size_ = std::clamp(target_t1_size_ + (is_b1 ? step : -step), 0.0, capacity);
}

bool CachePolicy::evict(std::uint32_t num_blocks, std::span<const OffloadKeyView> protected_keys,
                        std::vector<EvictedBlock>& out) {
  protected_.clear();
  for (std::size_t i = 0; i < protected_keys.size(); ++i) {
    prefetch_ahead(protected_keys, i);
    const Index index = find(protected_keys[i]);
    if (index != kNone) protected_.push_back(index);
  }
  if (!evict(num_blocks, protected_)) return false;
  for (Index index : victims_) {
    EvictedBlock& block = out.emplace_back();
    block.key = key_of(index);
    block.slot = slot(index);
  }
  return true;
}

bool CachePolicy::evict(std::uint32_t num_blocks, std::span<const Index> protected_blocks) {
  victims_.clear();
  if (num_blocks == 0) return true;
  if (!protected_blocks.empty()) count_as_busy(protected_blocks, true);
  const bool can_go = choose(num_blocks);
  if (!protected_blocks.empty()) count_as_busy(protected_blocks, false);
  return can_go;
}

void CachePolicy::count_as_busy(std::span<const Index> blocks, bool is_busy) {
  for (Index index : blocks) {
    const Block& block = table_[index];
    if (block.ref_cnt != 0) continue;
    const std::size_t from = is_busy ? idle(block.list) : kBusy;
    resident_.change_list(from, from == kBusy ? idle(block.list) : kBusy, block.place);
  }
}

/// Chooses without a look at blocks. T1 gives blocks while it has idle ones and is not below the
/// target, and T2 gives the rest, since T1 stays below once it is.
bool CachePolicy::choose(std::uint32_t num_blocks) {
  const auto target = static_cast<std::int64_t>(target_t1_size_);
  const std::int64_t above_target = std::max<std::int64_t>(num_in_t1_ - target + 1, 0);
  const std::uint32_t num_idle_t1 = resident_.size(idle(List::kT1));
  const auto from_t1 = static_cast<std::uint32_t>(
      std::min<std::int64_t>(std::min(num_blocks, num_idle_t1), above_target));
  const std::uint32_t from_t2 = std::min(num_blocks - from_t1, resident_.size(idle(List::kT2)));
  const std::uint32_t num_left = num_blocks - from_t1 - from_t2;
  const bool can_go =
      num_left == 0 || (!config_.arc_refuses_with_idle_t1 && num_left <= num_idle_t1 - from_t1);
  if (!can_go) return false;

  let_go(List::kT1, from_t1);
  let_go(List::kT2, from_t2);
  let_go(List::kT1, num_left);
  return true;
}

void CachePolicy::let_go(List list, std::uint32_t num_blocks) {
  num_held_ -= num_blocks;
  num_in_t1_ -= list == List::kT1 ? num_blocks : 0;
  for (; num_blocks > 0; --num_blocks) {
    const Index index = resident_.pop_first(idle(list), table_);
    victims_.push_back(index);
    if (is_arc()) {
      remember(index, list == List::kT1 ? List::kB1 : List::kB2);
    } else {
      table_.erase(index);
    }
  }
}

void CachePolicy::remember(Index index, List ghost_list) {
  const std::size_t part = ghost_part(ghost_list);
  table_[index].list = ghost_list;
  ghosts_.append(part, index, table_);
  if (ghosts_.size(part) > config_.capacity) table_.erase(ghosts_.pop_first(part, table_));
}

void CachePolicy::clear() {
  num_held_ = 0;
  num_in_t1_ = 0;
  table_.clear();
  resident_.clear();
  ghosts_.clear();
  target_t1_size_ = 0;
}

void CachePolicy::lists(PolicyLists& out) const {
  // Reuses the storage of the former keys.
  const auto list_blocks = [this](List list, std::vector<PolicyEntry>& entries) {
    std::size_t size = 0;
    for_each_block(list, [&](Index index) {
      if (size == entries.size()) entries.emplace_back();
      PolicyEntry& entry = entries[size++];
      entry.key = key_of(index);
      entry.status = {ref_cnt(index), slot(index)};
    });
    entries.resize(size);
  };
  const auto list_ghosts = [this](List list, std::vector<OffloadKey>& keys) {
    std::size_t size = 0;
    for_each_ghost(list, [&](Index index) {
      if (size == keys.size()) keys.emplace_back();
      keys[size++] = key_of(index);
    });
    keys.resize(size);
  };
  list_blocks(List::kT1, out.t1);
  list_blocks(List::kT2, out.t2);
  list_ghosts(List::kB1, out.b1);
  list_ghosts(List::kB2, out.b2);
  out.target_t1_size = target_t1_size_;
}

/// The order within a list is state. The order between T1 and T2 is not, since no decision depends
/// on it.
void CachePolicy::add_to(StateHash& hash) const {
  hash.add_all(num_held_, num_in_t1_);
  for (List list : {List::kT1, List::kT2}) {
    for_each_block(
        list, [&](Index index) { hash.add_entry(key_of(index), ref_cnt(index), slot(index)); });
  }
  for (List list : {List::kB1, List::kB2}) {
    hash.add(ghosts_.size(ghost_part(list)));
    for_each_ghost(list, [&](Index index) { hash.add_entry(key_of(index)); });
  }
  hash.add(target_t1_size_);
}

/// Oldest first.
template <class Visit>
void CachePolicy::for_each_block(List list, Visit visit) const {
  for (Place place = 0;; ++place) {
    place = std::min(resident_.next(idle(list), place), resident_.next(kBusy, place));
    if (place == resident_.kNone) return;
    const Index index = resident_.member_at(place);
    if (table_[index].list == list) visit(index);
  }
}

/// Oldest first.
template <class Visit>
void CachePolicy::for_each_ghost(List list, Visit visit) const {
  for (Place place = 0;; ++place) {
    place = ghosts_.next(ghost_part(list), place);
    if (place == ghosts_.kNone) return;
    visit(ghosts_.member_at(place));
  }
}

}  // namespace kvfence::optimized
