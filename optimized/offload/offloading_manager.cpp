#include "optimized/offload/offloading_manager.h"

#include <cstddef>

namespace kvfence::optimized {
namespace {

/// How many keys ahead a lookup of a batch prefetches.
constexpr std::size_t kKeysAhead = 8;

}  // namespace

OffloadingManager::OffloadingManager(const OffloadingManagerConfig& config)
    : config_(config),
      policy_(config.cache),
      tracker_(has_filter() ? config.max_tracker_size : 0, config.cache.table_secret),
      repeat_finder_(config.cache.table_secret) {
  freed_slots_.reserve(config.cache.capacity);
}

ErrorCode OffloadingManager::lookup(std::span<const OffloadKeyView> keys, std::uint32_t& num_hits) {
  if (config_.rules.lookup_by_key) return ErrorCode::kNotInProfile;
  num_hits = 0;
  for (std::size_t i = 0; i < keys.size() && is_hit(policy_.find(keys[i])); ++i) {
    policy_.prefetch_ahead(keys, i);
    ++num_hits;
  }
  if (!has_filter()) return ErrorCode::kNone;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i + kKeysAhead < keys.size()) tracker_.prefetch(keys[i + kKeysAhead]);
    tracker_.count(keys[i]);
  }
  return ErrorCode::kNone;
}

ErrorCode OffloadingManager::lookup_key(OffloadKeyView key, LookupResult& result) {
  if (!config_.rules.lookup_by_key) return ErrorCode::kNotInProfile;
  if (has_filter()) tracker_.count(key);
  const Index index = policy_.find(key);
  if (index == CachePolicy::kNone) {
    result = LookupResult::kMiss;
  } else if (is_hit(index)) {
    result = LookupResult::kHit;
  } else {
    result = LookupResult::kPending;
  }
  return ErrorCode::kNone;
}

bool OffloadingManager::is_hit(Index index) const {
  return index != CachePolicy::kNone && policy_.ref_cnt(index) != kNotReady;
}

/// Fills blocks_.
ErrorCode OffloadingManager::find_all(std::span<const OffloadKeyView> keys) {
  blocks_.clear();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    policy_.prefetch_ahead(keys, i);
    const Index index = policy_.find(keys[i]);
    if (index == CachePolicy::kNone) return ErrorCode::kUnknownKey;
    blocks_.push_back(index);
  }
  return ErrorCode::kNone;
}

ErrorCode OffloadingManager::prepare_load(std::span<const OffloadKeyView> keys,
                                          std::vector<SlotId>& slots) {
  const ErrorCode code = find_all(keys);
  if (code != ErrorCode::kNone) return code;
  for (Index index : blocks_) {
    if (policy_.ref_cnt(index) == kNotReady) return ErrorCode::kNotReady;
  }
  slots.clear();
  for (Index index : blocks_) {
    slots.push_back(policy_.slot(index));
    policy_.set_ref_cnt(index, policy_.ref_cnt(index) + 1);
  }
  return ErrorCode::kNone;
}

ErrorCode OffloadingManager::complete_load(std::span<const OffloadKeyView> keys) {
  const ErrorCode code = find_all(keys);
  if (code != ErrorCode::kNone) return code;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const std::int32_t ref_cnt = policy_.ref_cnt(blocks_[i]);
    if (ref_cnt > 0) {
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

bool OffloadingManager::passes_filter(OffloadKeyView key) const {
  return !has_filter() || tracker_.count_of(key) >= config_.store_threshold;
}

/// Keys that pass the filter go to blocks_ if they are held, else to keys_to_store.
void OffloadingManager::sort_out(std::span<const OffloadKeyView> keys,
                                 std::vector<OffloadKeyView>& keys_to_store) {
  blocks_.clear();
  keys_to_store.clear();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    policy_.prefetch_ahead(keys, i);
    if (!passes_filter(keys[i])) continue;
    const Index index = policy_.find(keys[i]);
    if (index == CachePolicy::kNone) {
      keys_to_store.push_back(keys[i]);
    } else {
      blocks_.push_back(index);
    }
  }
}

ErrorCode OffloadingManager::prepare_store(std::span<const OffloadKeyView> keys, bool& stored,
                                           PrepareStoreOutput& out) {
  sort_out(keys, out.keys_to_store);
  out.slots.clear();
  out.evicted.clear();
  if (repeat_finder_.has_repeat(out.keys_to_store)) return ErrorCode::kListedTwice;
  stored = make_room(static_cast<std::uint32_t>(out.keys_to_store.size()), out.evicted);
  if (!stored) {
    out.keys_to_store.clear();
    return ErrorCode::kNone;
  }
  for (OffloadKeyView key : out.keys_to_store) {
    out.slots.push_back(take_slot());
    policy_.insert_new(key, out.slots.back());
  }
  return ErrorCode::kNone;
}

/// Makes that many slots free; if it cannot, changes nothing. Protects blocks_.
bool OffloadingManager::make_room(std::uint32_t num_slots, std::vector<EvictedBlock>& evicted) {
  if (num_slots <= num_free_slots()) return true;
  if (!policy_.evict(num_slots - num_free_slots(), blocks_)) return false;
  free_victims(evicted);
  return true;
}

void OffloadingManager::free_victims(std::vector<EvictedBlock>& evicted) {
  events_.begin(/*removed=*/true);
  for (Index index : policy_.victims()) {
    const SlotId slot = policy_.slot(index);
    evicted.push_back({OffloadKey(policy_.key_of(index)), slot});
    freed_slots_.push_back(slot);
    if (config_.enable_events) events_.add(policy_.key_of(index));
  }
}

SlotId OffloadingManager::take_slot() {
  if (num_slots_used_ < config_.cache.capacity) return num_slots_used_++;
  const SlotId slot = freed_slots_.back();
  freed_slots_.pop_back();
  return slot;
}

void OffloadingManager::complete_store(std::span<const OffloadKeyView> keys, bool success) {
  events_.begin(/*removed=*/false);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    policy_.prefetch_ahead(keys, i);
    const Index index = policy_.find(keys[i]);
    if (index == CachePolicy::kNone || policy_.ref_cnt(index) != kNotReady) continue;
    if (success) {
      policy_.set_ref_cnt(index, 0);
      if (config_.enable_events) events_.add(keys[i]);
    } else {
      freed_slots_.push_back(policy_.slot(index));
      policy_.remove(index);
    }
  }
}

ErrorCode OffloadingManager::reset_cache() {
  if (!config_.rules.offload_reset) return ErrorCode::kNotInProfile;
  policy_.clear();
  freed_slots_.clear();
  num_slots_used_ = 0;
  return ErrorCode::kNone;
}

void OffloadingManager::add_to(StateHash& hash) const {
  hash.add_kept(policy_);
  tracker_.add_to(hash, config_.store_threshold);
  hash.add(num_slots_used_);
  hash.add_kept(freed_slots_);
  hash.add(events_);
}

}  // namespace kvfence::optimized
