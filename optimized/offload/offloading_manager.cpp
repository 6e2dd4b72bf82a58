#include "optimized/offload/offloading_manager.h"

#include <algorithm>
#include <cstddef>

namespace kvfence::optimized {
namespace {

/// A lookup of a batch is announced so many keys ahead.
constexpr std::size_t kKeysAhead = 8;

}  // namespace

template <class Instrumentation>
BasicOffloadingManager<Instrumentation>::BasicOffloadingManager(
    const OffloadingManagerConfig& config, Instrumentation instrumentation)
    : instrumentation_(instrumentation),
      config_(config),
      policy_(config.cache, instrumentation),
      tracker_(has_filter() ? config.max_tracker_size : 0, instrumentation) {
  freed_slots_.reserve(config.cache.capacity);
}

template <class Instrumentation>
ErrorCode BasicOffloadingManager<Instrumentation>::lookup(std::span<const OffloadKeyView> keys,
                                                          std::uint32_t& num_hits) {
  if (config_.rules.lookup_by_key) return ErrorCode::kNotInProfile;
  num_hits = 0;
  for (std::size_t i = 0; i < keys.size() && is_hit(policy_.find(keys[i])); ++i) {
    policy_.prefetch_ahead(keys, i);
    ++num_hits;
  }
  if (!has_filter()) return ErrorCode::kNone;
  if (planted(PlantedOffloadingBug::kLookupCountsUntilMiss)) {
    keys = keys.first(std::min<std::size_t>(keys.size(), num_hits + 1));
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i + kKeysAhead < keys.size()) tracker_.prefetch(keys[i + kKeysAhead]);
    tracker_.count(keys[i]);
  }
  return ErrorCode::kNone;
}

template <class Instrumentation>
ErrorCode BasicOffloadingManager<Instrumentation>::lookup_key(OffloadKeyView key,
                                                              LookupResult& result) {
  if (!config_.rules.lookup_by_key) return ErrorCode::kNotInProfile;
  if (has_filter()) tracker_.count(key);
  const Index index = policy_.find(key);
  if (index == Policy::kNone) {
    result = LookupResult::kMiss;
  } else if (is_hit(index)) {
    result = LookupResult::kHit;
  } else {
    result = planted(PlantedOffloadingBug::kPendingIsMiss) ? LookupResult::kMiss
                                                           : LookupResult::kPending;
  }
  return ErrorCode::kNone;
}

template <class Instrumentation>
bool BasicOffloadingManager<Instrumentation>::is_hit(Index index) const {
  return index != Policy::kNone && (policy_.ref_cnt(index) != kNotReady ||
                                    planted(PlantedOffloadingBug::kNotReadyCountedAsHit));
}

/// Fills blocks_.
template <class Instrumentation>
ErrorCode BasicOffloadingManager<Instrumentation>::find_all(std::span<const OffloadKeyView> keys) {
  blocks_.clear();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    policy_.prefetch_ahead(keys, i);
    const Index index = policy_.find(keys[i]);
    if (index == Policy::kNone) return ErrorCode::kUnknownKey;
    blocks_.push_back(index);
  }
  return ErrorCode::kNone;
}

template <class Instrumentation>
ErrorCode BasicOffloadingManager<Instrumentation>::prepare_load(
    std::span<const OffloadKeyView> keys, std::vector<SlotId>& slots) {
  const ErrorCode code = find_all(keys);
  if (code != ErrorCode::kNone) return code;
  for (Index index : blocks_) {
    if (policy_.ref_cnt(index) == kNotReady) return ErrorCode::kNotReady;
  }
  slots.clear();
  Index last = Policy::kNone;
  for (Index index : blocks_) {
    slots.push_back(policy_.slot(index));
    const bool is_repeat = index == last;
    last = index;
    if (is_repeat && planted(PlantedOffloadingBug::kRepeatedLoadCountedOnce)) continue;
    policy_.set_ref_cnt(index, policy_.ref_cnt(index) + 1);
  }
  return ErrorCode::kNone;
}

template <class Instrumentation>
ErrorCode BasicOffloadingManager<Instrumentation>::complete_load(
    std::span<const OffloadKeyView> keys) {
  const ErrorCode code = find_all(keys);
  if (code != ErrorCode::kNone) return code;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const std::int32_t ref_cnt = policy_.ref_cnt(blocks_[i]);
    if (ref_cnt > 0) {
      if (planted(PlantedOffloadingBug::kLoadNotReleased) && i + 1 == blocks_.size()) break;
      policy_.set_ref_cnt(blocks_[i], ref_cnt - 1);
      continue;
    }
    for (Index index : std::span(blocks_).first(i)) {
      policy_.set_ref_cnt(index, policy_.ref_cnt(index) + 1);
    }
    return ErrorCode::kNotReading;
  }
  return ErrorCode::kNone;
}

template <class Instrumentation>
bool BasicOffloadingManager<Instrumentation>::passes_filter(OffloadKeyView key) const {
  if (!has_filter()) return true;
  const std::uint32_t count = tracker_.count_of(key);
  if (planted(PlantedOffloadingBug::kThresholdOffByOne)) return count > config_.store_threshold;
  return count >= config_.store_threshold;
}

/// What passes the filter goes to blocks_ if it is held, to keys_to_store if not.
template <class Instrumentation>
void BasicOffloadingManager<Instrumentation>::sort_out(std::span<const OffloadKeyView> keys,
                                                       std::vector<OffloadKeyView>& keys_to_store) {
  blocks_.clear();
  keys_to_store.clear();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    policy_.prefetch_ahead(keys, i);
    if (!passes_filter(keys[i])) continue;
    const Index index = policy_.find(keys[i]);
    if (index == Policy::kNone) {
      keys_to_store.push_back(keys[i]);
    } else {
      blocks_.push_back(index);
    }
  }
}

template <class Instrumentation>
ErrorCode BasicOffloadingManager<Instrumentation>::prepare_store(
    std::span<const OffloadKeyView> keys, bool& stored, PrepareStoreOutput& out) {
  sort_out(keys, out.keys_to_store);
  out.slots.clear();
  out.evicted.clear();
  if (repeat_finder_.has_repeat(out.keys_to_store) &&
      !planted(PlantedOffloadingBug::kRepeatedKeyTakesTwoSlots)) {
    return ErrorCode::kListedTwice;
  }
  stored = make_room(static_cast<std::uint32_t>(out.keys_to_store.size()), out.evicted);
  if (!stored) {
    out.keys_to_store.clear();
    return ErrorCode::kNone;
  }
  for (OffloadKeyView key : out.keys_to_store) {
    out.slots.push_back(take_slot());
    if constexpr (Instrumentation::kPlants) {
      // Where slots are free that are not, and where a key is held by now.
      if (policy_.size() == config_.cache.capacity) continue;
      if (const Index index = policy_.find(key); index != Policy::kNone) policy_.remove(index);
    }
    policy_.insert_new(key, out.slots.back());
  }
  if (planted(PlantedOffloadingBug::kStoredEventBeforeWritten)) log_stored(out.keys_to_store);
  return ErrorCode::kNone;
}

/// So many slots are free afterwards; if not, nothing has changed. Protected is blocks_.
template <class Instrumentation>
bool BasicOffloadingManager<Instrumentation>::make_room(std::uint32_t num_slots,
                                                        std::vector<EvictedBlock>& evicted) {
  if (num_slots <= num_free_slots()) return true;
  std::span<const Index> protected_blocks = blocks_;
  if (planted(PlantedOffloadingBug::kOnlyNewKeysProtected)) protected_blocks = {};
  const std::uint32_t num_missing = num_slots - num_free_slots();
  if (policy_.evict(num_missing, protected_blocks)) {
    free_victims(evicted);
    return true;
  }
  if (planted(PlantedOffloadingBug::kRefusedStoreEvicts)) {
    while (policy_.evict(1, protected_blocks)) free_victims(evicted);
  }
  return false;
}

template <class Instrumentation>
void BasicOffloadingManager<Instrumentation>::free_victims(std::vector<EvictedBlock>& evicted) {
  events_.begin(/*removed=*/true);
  for (Index index : policy_.victims()) {
    const SlotId slot = policy_.slot(index);
    evicted.push_back({OffloadKey(policy_.key_of(index)), slot});
    freed_slots_.push_back(slot);
    if (planted(PlantedOffloadingBug::kEvictedSlotFreedTwice)) freed_slots_.push_back(slot);
    if (!config_.enable_events || planted(PlantedOffloadingBug::kRemovedEventMissing)) continue;
    events_.add(policy_.key_of(index));
  }
}

template <class Instrumentation>
SlotId BasicOffloadingManager<Instrumentation>::take_slot() {
  const bool freed_first =
      planted(PlantedOffloadingBug::kFreedSlotsBeforeFresh) && !freed_slots_.empty();
  if (num_slots_used_ < config_.cache.capacity && !freed_first) return num_slots_used_++;
  const auto place = planted(PlantedOffloadingBug::kFreedSlotsOldestFirst) ? freed_slots_.begin()
                                                                           : freed_slots_.end() - 1;
  const SlotId slot = *place;
  freed_slots_.erase(place);
  return slot;
}

template <class Instrumentation>
void BasicOffloadingManager<Instrumentation>::complete_store(std::span<const OffloadKeyView> keys,
                                                             bool success) {
  using Bug = PlantedOffloadingBug;
  events_.begin(/*removed=*/false);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    policy_.prefetch_ahead(keys, i);
    const Index index = policy_.find(keys[i]);
    if (index == Policy::kNone) continue;
    const std::int32_t ref_cnt = policy_.ref_cnt(index);
    if (success) {
      if (ref_cnt == kNotReady) policy_.set_ref_cnt(index, 0);
      if (!config_.enable_events || planted(Bug::kStoredEventBeforeWritten)) continue;
      if (ref_cnt != kNotReady && !planted(Bug::kStoredEventListsAllKeys)) continue;
      events_.add(keys[i]);
      continue;
    }
    if (planted(Bug::kFailedStoreKeepsBlock)) continue;
    if (ref_cnt != kNotReady && (ref_cnt > 0 || !planted(Bug::kFailedStoreDropsReady))) continue;
    if (!planted(Bug::kFailedStoreLeaksSlot)) freed_slots_.push_back(policy_.slot(index));
    policy_.remove(index);
  }
}

template <class Instrumentation>
void BasicOffloadingManager<Instrumentation>::log_stored(std::span<const OffloadKeyView> keys) {
  if (!config_.enable_events) return;
  events_.begin(/*removed=*/false);
  for (OffloadKeyView key : keys) events_.add(key);
}

template <class Instrumentation>
ErrorCode BasicOffloadingManager<Instrumentation>::reset_cache() {
  if (!config_.rules.offload_reset) return ErrorCode::kNotInProfile;
  policy_.clear();
  freed_slots_.clear();
  if (!planted(PlantedOffloadingBug::kResetKeepsSlots)) num_slots_used_ = 0;
  if (planted(PlantedOffloadingBug::kResetDropsCounts)) tracker_.clear();
  return ErrorCode::kNone;
}

template <class Instrumentation>
void BasicOffloadingManager<Instrumentation>::add_to(StateHash& hash) const {
  const bool asks_for_one_more = planted(PlantedOffloadingBug::kThresholdOffByOne);
  hash.add(policy_);
  tracker_.add_to(hash, std::uint64_t{config_.store_threshold} + (asks_for_one_more ? 1U : 0U));
  hash.add(num_slots_used_);
  hash.add(freed_slots_);
  hash.add(events_);
}

template class BasicOffloadingManager<NoInstrumentation>;
template class BasicOffloadingManager<CountingInstrumentation>;
template class BasicOffloadingManager<PlantedInstrumentation>;

}  // namespace kvfence::optimized
