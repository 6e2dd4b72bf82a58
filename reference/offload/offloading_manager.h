#pragma once

/// The offloading manager: the executable specification. Each function checks everything first and
/// then acts, so that a refusal changes nothing. The rules of each function, and its errors in
/// order, are in contract/offload/offloading_manager.h.
/// Source: vLLM v0.19.0 v1/kv_offload/cpu/manager.py CPUOffloadingManager and
/// v1/kv_offload/reuse_manager.py FilterReusedOffloadingManager; v0.23.0
/// v1/kv_offload/cpu/manager.py, which has both.

#include <cstdint>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/offload/offloading_manager.h"
#include "reference/eviction/cache_policy.h"

namespace kvfence::reference {

class OffloadingManager {
 public:
  /// Requires: check_config(config) finds nothing wrong
  explicit OffloadingManager(const OffloadingManagerConfig& config);

  ErrorCode lookup(std::span<const OffloadKeyView> keys, std::uint32_t& num_hits);
  ErrorCode lookup_key(OffloadKeyView key, LookupResult& result);
  void touch(std::span<const OffloadKeyView> keys);
  ErrorCode prepare_load(std::span<const OffloadKeyView> keys, std::vector<SlotId>& slots);
  ErrorCode complete_load(std::span<const OffloadKeyView> keys);
  ErrorCode prepare_store(std::span<const OffloadKeyView> keys, bool& stored,
                          PrepareStoreOutput& out);
  void complete_store(std::span<const OffloadKeyView> keys, bool success);
  ErrorCode reset_cache();
  void take_events(std::vector<OffloadingEvent>& out);

  std::uint32_t num_free_slots() const;
  const OffloadingManagerConfig& config() const { return config_; }
  const CachePolicy& policy() const { return policy_; }

  /// Takes in the whole state in canonical form: what decides later answers, not the history that
  /// led to it. Lookups beyond the threshold are history. The configuration, which never changes,
  /// stays out.
  void add_to(StateHash& hash) const;

 private:
  /// How often a key was looked up since it entered the tracker.
  struct Count {
    OffloadKey key;
    std::uint32_t num_lookups = 0;
  };

  void count(OffloadKeyView key);
  bool passes_filter(OffloadKeyView key) const;
  bool is_held(OffloadKeyView key) const;
  bool is_not_ready(OffloadKeyView key) const;
  SlotId take_slot();

  OffloadingManagerConfig config_;
  CachePolicy policy_;
  std::uint32_t num_used_slots_ = 0;  ///< slots below were given out at some time
  std::vector<SlotId> free_slots_;    ///< of these, what was freed; the last freed is at the end
  std::vector<Count> counts_;         ///< the tracker, oldest first
  std::vector<OffloadingEvent> events_;
};

}  // namespace kvfence::reference

static_assert(kvfence::OffloadingManager<kvfence::reference::OffloadingManager>);
