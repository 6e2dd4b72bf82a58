#pragma once

/// The offloading manager: which keys have a slot of CPU memory, which of them can be read, and
/// what is evicted when something new is stored. This file states the rules of each operation once;
/// `reference/` and `optimized/` implement them independently.
///
/// Source: vLLM v0.19.0 v1/kv_offload/cpu/manager.py, reuse_manager.py; v0.23.0
/// v1/kv_offload/cpu/manager.py where a rule says so.
///
/// Common to all operations: as contract/eviction/cache_policy.h.

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "contract/core/rules.h"
#include "contract/core/status.h"
#include "contract/core/words.h"
#include "contract/eviction/cache_policy.h"

namespace kvfence {

struct OffloadingManagerConfig {
  CachePolicyConfig cache;  ///< capacity is the number of slots
  bool enable_events = false;
  std::uint32_t store_threshold = 0;  ///< lookups before a block may be stored; below 2: no filter
  std::uint32_t max_tracker_size = 64'000;  ///< keys whose lookups are counted
  Rules rules;
  friend bool operator==(const OffloadingManagerConfig&, const OffloadingManagerConfig&) = default;
};

/// Returns what is wrong with a configuration, or nothing if a manager can be built from it: the
/// capacity and, with a filter, max_tracker_size are positive.
std::optional<std::string> check_config(const OffloadingManagerConfig& config);

enum class LookupResult : std::uint8_t {
  kMiss,
  kPending,  ///< being written: ask again
  kHit,
};

constexpr auto words_of(LookupResult) { return words({"miss", "pending", "hit"}); }

/// Blocks that were stored, or removed to make room.
struct OffloadingEvent {
  std::vector<OffloadKey> keys;
  bool removed = false;
  friend bool operator==(const OffloadingEvent&, const OffloadingEvent&) = default;
};

/// What prepare_store decided. Lists of keys are views of the caller's for keys_to_store.
struct PrepareStoreOutput {
  std::vector<OffloadKeyView> keys_to_store;  ///< those of the call that have to be written
  std::vector<SlotId> slots;                  ///< one per key to store
  std::vector<EvictedBlock> evicted;          ///< in order of eviction
};

/// OffloadingManager (CPUOffloadingManager, with FilterReusedOffloadingManager around it where
/// store_threshold is 2 or more).
///
/// lookup(keys, num_hits)
///     How many leading keys are held and ready.
///     The filter counts every key of the list: a counted key becomes the newest and one more; a
///     new one drops the oldest if the tracker is full, and has count 1.
///     Errors: kNotInProfile with Rules::lookup_by_key
///
/// lookup_key(key, result)
///     kMiss: not held. kPending: not ready. kHit. The filter counts the key, as above.
///     Errors: kNotInProfile without Rules::lookup_by_key
///
/// touch(keys)
///     The policy's.
///
/// prepare_load(keys, slots)
///     Each is acquired; slots in the order of the keys. A key may occur twice.
///     Errors: kUnknownKey; kNotReady
///
/// complete_load(keys)
///     Each is released.
///     Errors: kUnknownKey; kNotReading, if a key is released more often than it is held
///
/// prepare_store(keys, stored, out)
///     The filter drops keys that were counted fewer than store_threshold times. Of the rest, those
///     that are not held at all are to be stored. If slots are missing, so many blocks are evicted,
///     protected are all keys that passed the filter; stored is false, and nothing has changed, if
///     they cannot go. Evicted slots become free in order of eviction, with one removed event. Then
///     each key gets a slot: never used ones first, ascending; then free ones, the last freed
///     first. Nothing to store: stored, with empty lists.
///     Errors: kListedTwice, if a key that passed the filter and is not held occurs twice (upstream
///     would lose a slot)
///
/// complete_store(keys, success)
///     Success: those not ready become ready, with one stored event that lists them in the order of
///     the keys. Failure: those not ready are removed and their slots freed, in the order of the
///     keys. Others are passed over. A key may occur twice.
///
/// reset_cache()
///     Nothing is held, every slot counts as never used; counts and events stay.
///     Errors: kNotInProfile without Rules::offload_reset
///
/// take_events(out)
///     Replaces out by the events since the last call, oldest first.
///
/// num_free_slots(): never used, or freed. policy(): for an observer.
template <class M>
concept OffloadingManager = std::copyable<M> &&
    std::constructible_from<M, const OffloadingManagerConfig&> &&
    requires(M manager, const M& const_manager, OffloadKeyView key,
             std::span<const OffloadKeyView> keys, std::uint32_t& num_hits, LookupResult& result,
             std::vector<SlotId>& slots, bool& stored, bool success, PrepareStoreOutput& out,
             std::vector<OffloadingEvent>& events) {
  { manager.lookup(keys, num_hits) } -> std::same_as<ErrorCode>;
  { manager.lookup_key(key, result) } -> std::same_as<ErrorCode>;
  { manager.touch(keys) } -> std::same_as<void>;
  { manager.prepare_load(keys, slots) } -> std::same_as<ErrorCode>;
  { manager.complete_load(keys) } -> std::same_as<ErrorCode>;
  { manager.prepare_store(keys, stored, out) } -> std::same_as<ErrorCode>;
  { manager.complete_store(keys, success) } -> std::same_as<void>;
  { manager.reset_cache() } -> std::same_as<ErrorCode>;
  { manager.take_events(events) } -> std::same_as<void>;
  { const_manager.num_free_slots() } -> std::same_as<std::uint32_t>;
  { const_manager.config() } -> std::same_as<const OffloadingManagerConfig&>;
  const_manager.policy();
};

}  // namespace kvfence
