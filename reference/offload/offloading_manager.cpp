#include "reference/offload/offloading_manager.h"

#include <algorithm>
#include <utility>

#include "contract/core/check.h"

namespace kvfence::reference {

OffloadingManager::OffloadingManager(const OffloadingManagerConfig& config)
    : config_(config), policy_(config.cache) {
  KVFENCE_CHECK(!check_config(config), "no manager can be built from this configuration");
}

// Every key is counted, also those after the first miss.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/manager.py lookup; v1/kv_offload/reuse_manager.py lookup
ErrorCode OffloadingManager::lookup(std::span<const OffloadKeyView> keys, std::uint32_t& num_hits) {
  if (config_.rules.lookup_by_key) return ErrorCode::kNotInProfile;
  for (const OffloadKeyView key : keys) count(key);
  const auto miss = std::ranges::find_if(
      keys, [&](OffloadKeyView key) { return !is_held(key) || is_not_ready(key); });
  num_hits = static_cast<std::uint32_t>(miss - keys.begin());
  return ErrorCode::kNone;
}

// Source: vLLM v0.23.0 v1/kv_offload/cpu/manager.py lookup
ErrorCode OffloadingManager::lookup_key(OffloadKeyView key, LookupResult& result) {
  if (!config_.rules.lookup_by_key) return ErrorCode::kNotInProfile;
  count(key);
  result = !is_held(key)       ? LookupResult::kMiss
           : is_not_ready(key) ? LookupResult::kPending
                               : LookupResult::kHit;
  return ErrorCode::kNone;
}

// Source: vLLM v0.19.0 v1/kv_offload/cpu/manager.py touch
void OffloadingManager::touch(std::span<const OffloadKeyView> keys) { policy_.touch(keys); }

// Source: vLLM v0.19.0 v1/kv_offload/cpu/manager.py prepare_load
ErrorCode OffloadingManager::prepare_load(std::span<const OffloadKeyView> keys,
                                          std::vector<SlotId>& slots) {
  const auto is_missing = [&](OffloadKeyView key) { return !is_held(key); };
  if (std::any_of(keys.begin(), keys.end(), is_missing)) return ErrorCode::kUnknownKey;
  const auto is_pending = [&](OffloadKeyView key) { return is_not_ready(key); };
  if (std::any_of(keys.begin(), keys.end(), is_pending)) return ErrorCode::kNotReady;

  slots.clear();
  for (const OffloadKeyView key : keys) {
    policy_.acquire(key);
    BlockStatus status;
    policy_.get(key, status);
    slots.push_back(status.slot);
  }
  return ErrorCode::kNone;
}

// Upstream asserts in the middle of the list, with the keys before released.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/manager.py complete_load
ErrorCode OffloadingManager::complete_load(std::span<const OffloadKeyView> keys) {
  const auto is_missing = [&](OffloadKeyView key) { return !is_held(key); };
  if (std::any_of(keys.begin(), keys.end(), is_missing)) return ErrorCode::kUnknownKey;
  for (const OffloadKeyView key : keys) {
    BlockStatus status;
    policy_.get(key, status);
    if (std::count(keys.begin(), keys.end(), key) > status.ref_cnt) return ErrorCode::kNotReading;
  }

  for (const OffloadKeyView key : keys) policy_.release(key);
  return ErrorCode::kNone;
}

// The victims' slots are freed and reported before the new blocks take theirs.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/manager.py prepare_store; v1/kv_offload/reuse_manager.py
// prepare_store. kListedTwice: ours
ErrorCode OffloadingManager::prepare_store(std::span<const OffloadKeyView> keys, bool& stored,
                                           PrepareStoreOutput& out) {
  std::vector<OffloadKeyView> passed(keys.begin(), keys.end());
  std::erase_if(passed, [&](OffloadKeyView key) { return !passes_filter(key); });
  std::vector<OffloadKeyView> to_store = passed;
  std::erase_if(to_store, [&](OffloadKeyView key) { return is_held(key); });
  for (const OffloadKeyView key : to_store) {
    if (std::count(to_store.begin(), to_store.end(), key) > 1) return ErrorCode::kListedTwice;
  }

  out = PrepareStoreOutput{};
  stored = true;
  if (to_store.size() > num_free_slots()) {
    const auto num_missing = static_cast<std::uint32_t>(to_store.size() - num_free_slots());
    stored = policy_.evict(num_missing, passed, out.evicted);
    if (!stored) return ErrorCode::kNone;
    OffloadingEvent event{{}, /*removed=*/true};
    for (const EvictedBlock& block : out.evicted) {
      free_slots_.push_back(block.slot);
      event.keys.push_back(block.key);
    }
    if (config_.enable_events) events_.push_back(std::move(event));
  }

  out.keys_to_store = to_store;
  for (const OffloadKeyView key : to_store) {
    out.slots.push_back(take_slot());
    must(policy_.insert(key, out.slots.back()), "a block that was not held was refused");
  }
  return ErrorCode::kNone;
}

// A key that occurs twice is ready, or gone, the second time.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/manager.py complete_store
void OffloadingManager::complete_store(std::span<const OffloadKeyView> keys, bool success) {
  OffloadingEvent event;
  for (const OffloadKeyView key : keys) {
    if (!is_not_ready(key)) continue;
    if (success) {
      policy_.make_ready(key);
      event.keys.emplace_back(key);
    } else {
      BlockStatus status;
      policy_.get(key, status);
      policy_.remove(key);
      free_slots_.push_back(status.slot);
    }
  }
  if (config_.enable_events && !event.keys.empty()) events_.push_back(std::move(event));
}

// Counts and events stay, and nothing is reported.
// Source: vLLM v0.23.0 v1/kv_offload/cpu/manager.py reset_cache
ErrorCode OffloadingManager::reset_cache() {
  if (!config_.rules.offload_reset) return ErrorCode::kNotInProfile;
  policy_.clear();
  free_slots_.clear();
  num_used_slots_ = 0;
  return ErrorCode::kNone;
}

// Source: vLLM v0.19.0 v1/kv_offload/cpu/manager.py take_events
void OffloadingManager::take_events(std::vector<OffloadingEvent>& out) {
  out = std::move(events_);
  events_.clear();
}

// Source: vLLM v0.19.0 v1/kv_offload/cpu/manager.py _get_num_free_blocks
std::uint32_t OffloadingManager::num_free_slots() const {
  return config_.cache.capacity - num_used_slots_ + static_cast<std::uint32_t>(free_slots_.size());
}

void OffloadingManager::add_to(StateHash& hash) const {
  hash.add_kept(policy_, free_slots_);
  hash.add_all(num_used_slots_, counts_.size());
  for (const Count& counted : counts_) {
    hash.add_all(counted.key, std::min(counted.num_lookups, config_.store_threshold));
  }
  hash.add(events_);
}

// A counted key becomes the newest and one more; a new one drops the oldest if the tracker is full.
// Source: vLLM v0.19.0 v1/kv_offload/reuse_manager.py lookup
void OffloadingManager::count(OffloadKeyView key) {
  if (config_.store_threshold < 2) return;
  Count counted{OffloadKey(key), 0};
  const auto found = std::ranges::find(counts_, key, &Count::key);
  if (found != counts_.end()) {
    counted = *found;
    counts_.erase(found);
  } else if (counts_.size() >= config_.max_tracker_size) {
    counts_.erase(counts_.begin());
  }
  ++counted.num_lookups;
  counts_.push_back(std::move(counted));
}

// Source: vLLM v0.19.0 v1/kv_offload/reuse_manager.py prepare_store
bool OffloadingManager::passes_filter(OffloadKeyView key) const {
  if (config_.store_threshold < 2) return true;
  const auto found = std::ranges::find(counts_, key, &Count::key);
  return found != counts_.end() && found->num_lookups >= config_.store_threshold;
}

bool OffloadingManager::is_held(OffloadKeyView key) const {
  BlockStatus status;
  return policy_.get(key, status);
}

/// False also for a block that is not held.
bool OffloadingManager::is_not_ready(OffloadKeyView key) const {
  BlockStatus status;
  return policy_.get(key, status) && status.ref_cnt == kNotReady;
}

// Never used ones first, ascending; then the last freed first.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/manager.py _allocate_blocks
SlotId OffloadingManager::take_slot() {
  if (num_used_slots_ < config_.cache.capacity) return num_used_slots_++;
  KVFENCE_CHECK(!free_slots_.empty(), "no slot is free");
  const SlotId slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

}  // namespace kvfence::reference
