#include "optimized/eviction/cache_policy.h"

#include <algorithm>
#include <cmath>

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

template <class Instrumentation>
BasicCachePolicy<Instrumentation>::BasicCachePolicy(const CachePolicyConfig& config,
                                                    Instrumentation instrumentation)
    : instrumentation_(instrumentation),
      config_(config),
      table_(num_keys_max(config), instrumentation),
      resident_(config.capacity, {PlaceOrder::kOrdered, PlaceOrder::kOrdered, PlaceOrder::kPlain},
                instrumentation),
      // A ghost list has a key more than it may for a moment.
      ghosts_(is_arc() ? 2 * std::size_t{config.capacity} + 1 : 0,
              {PlaceOrder::kOrdered, PlaceOrder::kOrdered}, instrumentation) {}

template <class Instrumentation>
bool BasicCachePolicy<Instrumentation>::get(OffloadKeyView key, BlockStatus& out) const {
  const Index index = find(key);
  if (index == kNone) return false;
  out = {.ref_cnt = ref_cnt(index), .slot = slot(index)};
  return true;
}

template <class Instrumentation>
ErrorCode BasicCachePolicy<Instrumentation>::insert(OffloadKeyView key, SlotId slot) {
  const typename Table::Search found = table_.search(key);
  if (found.entry != kNone && is_held(table_[found.entry])) return ErrorCode::kAlreadyStored;
  if (num_held_ >= config_.capacity) return ErrorCode::kNoFreeBlocks;
  admit(key, found, slot);
  return ErrorCode::kNone;
}

template <class Instrumentation>
auto BasicCachePolicy<Instrumentation>::insert_new(OffloadKeyView key, SlotId slot) -> Index {
  return admit(key, table_.search(key), slot);
}

/// What was found is a ghost, or nothing.
template <class Instrumentation>
auto BasicCachePolicy<Instrumentation>::admit(OffloadKeyView key,
                                              const typename Table::Search& found, SlotId slot)
    -> Index {
  Index index = found.entry;
  List list = List::kT1;
  if (index == kNone) {
    index = table_.insert(key, found);
  } else if (planted(PlantedCachePolicyBug::kGhostKeptOnInsert)) {
    keep_ghost(index);
  } else {
    ghosts_.erase(ghost_part(table_[index].list), table_[index].place);
    if (planted(PlantedCachePolicyBug::kGhostReturnsToT2)) list = List::kT2;
  }
  table_[index] = {.place = 0, .ref_cnt = kNotReady, .slot = slot, .list = list};
  resident_.append(kBusy, index, table_);
  ++num_held_;
  num_in_t1_ += list == List::kT1 ? 1 : 0;
  return index;
}

template <class Instrumentation>
ErrorCode BasicCachePolicy<Instrumentation>::remove(OffloadKeyView key) {
  const Index index = find(key);
  if (index == kNone) return ErrorCode::kUnknownKey;
  remove(index);
  return ErrorCode::kNone;
}

template <class Instrumentation>
void BasicCachePolicy<Instrumentation>::remove(Index index) {
  const Block& block = table_[index];
  resident_.erase(part_of(block), block.place);
  --num_held_;
  num_in_t1_ -= block.list == List::kT1 ? 1 : 0;
  if (is_arc() && planted(PlantedCachePolicyBug::kRemovedRemembered)) {
    remember(index, List::kB1);
  } else {
    table_.erase(index);
  }
}

template <class Instrumentation>
ErrorCode BasicCachePolicy<Instrumentation>::make_ready(OffloadKeyView key) {
  const Index index = find(key);
  if (index == kNone) return ErrorCode::kUnknownKey;
  if (ref_cnt(index) != kNotReady) return ErrorCode::kAlreadyReady;
  set_ref_cnt(index, 0);
  return ErrorCode::kNone;
}

template <class Instrumentation>
ErrorCode BasicCachePolicy<Instrumentation>::acquire(OffloadKeyView key) {
  const Index index = find(key);
  if (index == kNone) return ErrorCode::kUnknownKey;
  if (ref_cnt(index) == kNotReady) return ErrorCode::kNotReady;
  set_ref_cnt(index, ref_cnt(index) + 1);
  return ErrorCode::kNone;
}

template <class Instrumentation>
ErrorCode BasicCachePolicy<Instrumentation>::release(OffloadKeyView key) {
  const Index index = find(key);
  if (index == kNone) return ErrorCode::kUnknownKey;
  if (ref_cnt(index) == kNotReady) return ErrorCode::kNotReady;
  if (ref_cnt(index) == 0) return ErrorCode::kNotReading;
  set_ref_cnt(index, ref_cnt(index) - 1);
  return ErrorCode::kNone;
}

template <class Instrumentation>
void BasicCachePolicy<Instrumentation>::set_ref_cnt(Index index, std::int32_t ref_cnt) {
  Block& block = table_[index];
  const std::size_t part = part_of(block);
  const bool was_being_read = block.ref_cnt > 0;
  block.ref_cnt = ref_cnt;
  if (part_of(block) == part) return;
  resident_.change_list(part, part_of(block), block.place);
  if (planted(PlantedCachePolicyBug::kReleasedToNewest) && was_being_read) {
    move_to_end(index, block.list);
  }
}

template <class Instrumentation>
void BasicCachePolicy<Instrumentation>::touch(std::span<const OffloadKeyView> keys) {
  if (planted(PlantedCachePolicyBug::kTouchInForwardOrder)) {
    for (OffloadKeyView key : keys) touch(key);
    return;
  }
  for (std::size_t i = keys.size(); i > 0; --i) {
    if (i > kKeysAhead) prefetch(keys[i - 1 - kKeysAhead]);
    if (i > kKeysAhead / 2) prefetch_entry(keys[i - 1 - kKeysAhead / 2]);
    touch(keys[i - 1]);
  }
}

template <class Instrumentation>
void BasicCachePolicy<Instrumentation>::touch(OffloadKeyView key) {
  const Index index = table_.find(key);
  if (index == kNone) return;
  const Block& block = table_[index];
  switch (block.list) {
    case List::kT1: {
      const bool is_ready = block.ref_cnt != kNotReady;
      if (!is_ready && planted(PlantedCachePolicyBug::kTouchLosesNotReady)) return remove(index);
      const bool is_promoted = is_ready || planted(PlantedCachePolicyBug::kNotReadyPromoted);
      return move_to_end(index, is_arc() && is_promoted ? List::kT2 : List::kT1);
    }
    case List::kT2:
      return move_to_end(index, List::kT2);
    case List::kB1:
    case List::kB2:
      adapt_target(block.list);
      if (planted(PlantedCachePolicyBug::kGhostHitNotMoved)) return;
      ghosts_.erase(ghost_part(block.list), block.place);
      ghosts_.append(ghost_part(block.list), index, table_);
  }
}

template <class Instrumentation>
void BasicCachePolicy<Instrumentation>::move_to_end(Index index, List list) {
  Block& block = table_[index];
  resident_.erase(part_of(block), block.place);
  num_in_t1_ -= block.list != list ? 1 : 0;
  block.list = list;
  resident_.append(part_of(block), index, table_);
}

template <class Instrumentation>
void BasicCachePolicy<Instrumentation>::adapt_target(List ghost_list) {
  const bool is_b1 = ghost_list == List::kB1;
  const double here = ghosts_.size(ghost_part(ghost_list));
  const double there = ghosts_.size(ghost_part(is_b1 ? List::kB2 : List::kB1));
  double quotient = there / here;
  if (planted(PlantedCachePolicyBug::kQuotientOfIntegers)) quotient = std::floor(quotient);
  const double step = std::max(1.0, quotient);
  target_t1_size_ += is_b1 ? step : -step;
  const double capacity = config_.capacity;
  if (target_t1_size_ > capacity && !planted(PlantedCachePolicyBug::kTargetNotCapped)) {
    target_t1_size_ = capacity;
  }
  if (target_t1_size_ < 0 && !planted(PlantedCachePolicyBug::kTargetBelowZero)) {
    target_t1_size_ = 0;
  }
}

template <class Instrumentation>
bool BasicCachePolicy<Instrumentation>::evict(std::uint32_t num_blocks,
                                              std::span<const OffloadKeyView> protected_keys,
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

template <class Instrumentation>
bool BasicCachePolicy<Instrumentation>::evict(std::uint32_t num_blocks,
                                              std::span<const Index> protected_blocks) {
  victims_.clear();
  if (num_blocks == 0) return true;
  if (planted(PlantedCachePolicyBug::kProtectedIgnored)) protected_blocks = {};
  if constexpr (Instrumentation::kPlants) expose_busy_blocks();
  if (!protected_blocks.empty()) count_as_busy(protected_blocks, true);
  const bool can_go = choose(num_blocks);
  if (!protected_blocks.empty()) count_as_busy(protected_blocks, false);
  if constexpr (Instrumentation::kPlants) hide_busy_blocks();
  return can_go;
}

template <class Instrumentation>
void BasicCachePolicy<Instrumentation>::count_as_busy(std::span<const Index> blocks, bool is_busy) {
  for (Index index : blocks) {
    const Block& block = table_[index];
    if (block.ref_cnt != 0) continue;
    const std::size_t from = is_busy ? idle(block.list) : kBusy;
    resident_.change_list(from, from == kBusy ? idle(block.list) : kBusy, block.place);
  }
}

/// Choosing needs no look at a block. T1 gives as long as it has idle ones and is not below the
/// target, T2 the rest: once T1 is below, it stays there.
template <class Instrumentation>
bool BasicCachePolicy<Instrumentation>::choose(std::uint32_t num_blocks) {
  using Bug = PlantedCachePolicyBug;
  const auto target = static_cast<std::int64_t>(
      planted(Bug::kTargetNotFloored) ? std::ceil(target_t1_size_) : target_t1_size_);
  std::int64_t above_target = std::max<std::int64_t>(num_in_t1_ - target + 1, 0);
  if (above_target > 0 && planted(Bug::kChosenNotCounted)) above_target = num_blocks;
  const std::uint32_t num_idle_t1 = resident_.size(idle(List::kT1));
  const auto from_t1 = static_cast<std::uint32_t>(
      std::min<std::int64_t>(std::min(num_blocks, num_idle_t1), above_target));
  const std::uint32_t from_t2 = std::min(num_blocks - from_t1, resident_.size(idle(List::kT2)));
  const std::uint32_t num_left = num_blocks - from_t1 - from_t2;
  const bool may_fall_back = !config_.arc_refuses_with_idle_t1 || planted(Bug::kArcFallsBackToT1);
  const bool can_go = num_left == 0 || (may_fall_back && num_left <= num_idle_t1 - from_t1);
  if (!can_go && !planted(Bug::kEvictNotAtomic)) return false;

  let_go(List::kT1, from_t1);
  let_go(List::kT2, from_t2);
  if (can_go) let_go(List::kT1, num_left);
  return can_go;
}

template <class Instrumentation>
void BasicCachePolicy<Instrumentation>::let_go(List list, std::uint32_t num_blocks) {
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

template <class Instrumentation>
void BasicCachePolicy<Instrumentation>::remember(Index index, List ghost_list) {
  const std::size_t part = ghost_part(ghost_list);
  table_[index].list = ghost_list;
  ghosts_.append(part, index, table_);
  if (ghosts_.size(part) <= config_.capacity) return;
  if (planted(PlantedCachePolicyBug::kGhostTrimmedAtNewestEnd)) {
    ghosts_.erase(part, table_[index].place);
    table_.erase(index);
  } else {
    table_.erase(ghosts_.pop_first(part, table_));
  }
}

template <class Instrumentation>
void BasicCachePolicy<Instrumentation>::clear() {
  num_held_ = 0;
  num_in_t1_ = 0;
  table_.clear();
  resident_.clear();
  ghosts_.clear();
  if (!planted(PlantedCachePolicyBug::kClearKeepsTarget)) target_t1_size_ = 0;
}

template <class Instrumentation>
void BasicCachePolicy<Instrumentation>::lists(PolicyLists& out) const {
  const auto list_blocks = [this](List list, std::vector<PolicyEntry>& entries) {
    entries.clear();
    for_each_block(list, [&](Index index) {
      entries.push_back({OffloadKey(key_of(index)), {ref_cnt(index), slot(index)}});
    });
  };
  const auto list_ghosts = [this](List list, std::vector<OffloadKey>& keys) {
    keys.clear();
    for_each_ghost(list, [&](Index index) { keys.emplace_back(key_of(index)); });
  };
  list_blocks(List::kT1, out.t1);
  list_blocks(List::kT2, out.t2);
  list_ghosts(List::kB1, out.b1);
  list_ghosts(List::kB2, out.b2);
  out.target_t1_size = target_t1_size_;
}

/// The order within a list is state, that between T1 and T2 is not: no decision compares them.
template <class Instrumentation>
void BasicCachePolicy<Instrumentation>::add_to(StateHash& hash) const {
  hash.add(num_held_);
  hash.add(num_in_t1_);
  for (List list : {List::kT1, List::kT2}) {
    for_each_block(list, [&](Index index) {
      add_key_to(hash, index);
      hash.add(ref_cnt(index));
      hash.add(slot(index));
    });
  }
  for (List list : {List::kB1, List::kB2}) {
    hash.add(ghosts_.size(ghost_part(list)));
    for_each_ghost(list, [&](Index index) { add_key_to(hash, index); });
  }
  hash.add(target_t1_size_);
}

template <class Instrumentation>
void BasicCachePolicy<Instrumentation>::add_key_to(StateHash& hash, Index index) const {
  hash.add(key_of(index));
  // Where a key stands twice, which one is found first decides.
  if constexpr (Instrumentation::kPlants) hash.add(table_.num_copies_before(index));
}

/// Oldest first.
template <class Instrumentation>
template <class Visit>
void BasicCachePolicy<Instrumentation>::for_each_block(List list, Visit visit) const {
  for (Place place = 0;; ++place) {
    place = std::min(resident_.next(idle(list), place), resident_.next(kBusy, place));
    if (place == resident_.kNone) return;
    const Index index = resident_.member_at(place);
    if (table_[index].list == list) visit(index);
  }
}

/// Oldest first.
template <class Instrumentation>
template <class Visit>
void BasicCachePolicy<Instrumentation>::for_each_ghost(List list, Visit visit) const {
  for (Place place = 0;; ++place) {
    place = ghosts_.next(ghost_part(list), place);
    if (place == ghosts_.kNone) return;
    visit(ghosts_.member_at(place));
  }
}

/// The planted bug ghost_kept_on_insert: another entry takes over what stands in the ghost list.
template <class Instrumentation>
void BasicCachePolicy<Instrumentation>::keep_ghost(Index index) {
  const Index ghost = table_.insert_copy(index);
  table_[ghost] = table_[index];
  ghosts_.replace_member(table_[ghost].place, ghost);
}

/// The planted bugs of evict that take busy blocks: those count as idle while it chooses.
template <class Instrumentation>
void BasicCachePolicy<Instrumentation>::expose_busy_blocks() {
  for (Place place = resident_.first(kBusy); place != resident_.kNone;
       place = resident_.next(kBusy, place + 1)) {
    const Block& block = table_[resident_.member_at(place)];
    if (planted(block.ref_cnt > 0 ? PlantedCachePolicyBug::kBlockBeingReadEvicted
                                  : PlantedCachePolicyBug::kBlockBeingWrittenEvicted)) {
      resident_.change_list(kBusy, idle(block.list), place);
    }
  }
}

template <class Instrumentation>
void BasicCachePolicy<Instrumentation>::hide_busy_blocks() {
  for (List list : {List::kT1, List::kT2}) {
    for (Place place = resident_.first(idle(list)); place != resident_.kNone;
         place = resident_.next(idle(list), place + 1)) {
      if (ref_cnt(resident_.member_at(place)) == 0) continue;
      resident_.change_list(idle(list), kBusy, place);
    }
  }
}

template class BasicCachePolicy<NoInstrumentation>;
template class BasicCachePolicy<CountingInstrumentation>;
template class BasicCachePolicy<PlantedInstrumentation>;

}  // namespace kvfence::optimized
