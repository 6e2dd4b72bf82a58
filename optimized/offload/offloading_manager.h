#pragma once

/// OffloadingManager: manages the slots of offloaded blocks with a CachePolicy.
///
/// A call looks each key up once. A counter gives out slots that were never used, a stack holds
/// freed ones. The rules of every operation are in contract/offload/offloading_manager.h. Not
/// thread-safe.

#include <cstdint>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/offload/offloading_manager.h"
#include "optimized/base/repeat_finder.h"
#include "optimized/eviction/cache_policy.h"
#include "optimized/offload/offloading_event_log.h"
#include "optimized/offload/reuse_tracker.h"

namespace kvfence::optimized {

class OffloadingManager {
 public:
  /// Requires: check_config(config) finds nothing wrong; capacity <= 2^28.
  /// Cost: O(capacity + max_tracker_size). Later allocations: lists as long as the longest call and
  /// the events between two take_events, which keep their capacity; keys beyond 42 bytes; and what
  /// the caller takes over.
  explicit OffloadingManager(const OffloadingManagerConfig& config);

  ErrorCode lookup(std::span<const OffloadKeyView> keys, std::uint32_t& num_hits);
  ErrorCode lookup_key(OffloadKeyView key, LookupResult& result);
  void touch(std::span<const OffloadKeyView> keys) { policy_.touch(keys); }
  ErrorCode prepare_load(std::span<const OffloadKeyView> keys, std::vector<SlotId>& slots);
  ErrorCode complete_load(std::span<const OffloadKeyView> keys);

  /// Cost: O(keys), however much is being read or written.
  ErrorCode prepare_store(std::span<const OffloadKeyView> keys, bool& stored,
                          PrepareStoreOutput& out);

  void complete_store(std::span<const OffloadKeyView> keys, bool success);

  /// Cost: O(capacity).
  ErrorCode reset_cache();

  void take_events(std::vector<OffloadingEvent>& out) { events_.take(out); }

  std::uint32_t num_free_slots() const {
    return config_.cache.capacity - num_slots_used_ +
           static_cast<std::uint32_t>(freed_slots_.size());
  }
  const OffloadingManagerConfig& config() const { return config_; }
  const CachePolicy& policy() const { return policy_; }

  /// Adds the state in canonical form: all that decides later answers, but not history (lookups
  /// beyond the threshold, the lists of the last call). The configuration, which never changes,
  /// stays out.
  /// Cost: O(capacity + max_tracker_size); no allocation.
  void add_to(StateHash& hash) const;

 private:
  using Index = CachePolicy::Index;

  bool has_filter() const { return config_.store_threshold >= 2; }
  bool passes_filter(OffloadKeyView key) const;
  bool is_hit(Index index) const;
  ErrorCode find_all(std::span<const OffloadKeyView> keys);
  void sort_out(std::span<const OffloadKeyView> keys, std::vector<OffloadKeyView>& keys_to_store);
  bool make_room(std::uint32_t num_slots, std::vector<EvictedBlock>& evicted);
  void free_victims(std::vector<EvictedBlock>& evicted);
  SlotId take_slot();

  OffloadingManagerConfig config_;
  CachePolicy policy_;
  ReuseTracker tracker_;
  std::uint32_t num_slots_used_ = 0;  ///< slots from this one on were never used
  std::vector<SlotId> freed_slots_;   ///< the last one is taken first
  std::vector<Index> blocks_;         ///< those of the call that runs
  RepeatFinder repeat_finder_;
  OffloadingEventLog events_;
};

static_assert(kvfence::OffloadingManager<OffloadingManager>);

}  // namespace kvfence::optimized
