#pragma once

/// OffloadedBlocks: the CPU side of a connector's scheduler half: the manager, which of its blocks
/// are being loaded, and its events as a connector tells them.

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/block_hash.h"
#include "contract/check.h"
#include "contract/kv_events.h"
#include "contract/offloading_connector.h"
#include "optimized/instrumentation.h"
#include "optimized/offloading_manager.h"

namespace kvfence::optimized {

template <class Instrumentation>
class BasicOffloadedBlocks {
 public:
  using Keys = std::span<const OffloadKeyView>;

  BasicOffloadedBlocks(const OffloadingSpec& spec, Instrumentation instrumentation)
      : instrumentation_(instrumentation),
        manager_(spec.manager, instrumentation),
        tracks_loading_(spec.kv_cache.pool.enable_caching) {}

  BasicOffloadingManager<Instrumentation>& manager() { return manager_; }
  const BasicOffloadingManager<Instrumentation>& manager() const { return manager_; }

  /// From now on the blocks are being loaded, with prefix caching. Requires: each is ready.
  void prepare_load(Keys keys, std::vector<SlotId>& slots) {
    const ErrorCode code = manager_.prepare_load(keys, slots);
    KVFENCE_CHECK(code == ErrorCode::kNone || Instrumentation::kPlants,
                  "a block to load is not there, or not ready");
    if (code != ErrorCode::kNone) slots.clear();
    set_loading(keys, true);
  }

  /// None of them is being loaded any more, even if another load has the block, too.
  void complete_load(Keys keys) {
    if (!instrumentation_.planted(PlantedConnectorBug::kLoadedKeysStayLoading)) {
      set_loading(keys, false);
    }
    const ErrorCode code = manager_.complete_load(keys);
    KVFENCE_CHECK(code == ErrorCode::kNone || Instrumentation::kPlants,
                  "a load ends that did not begin");
  }

  /// Whether the blocks can be stored; out as of the manager.
  bool prepare_store(Keys keys, PrepareStoreOutput& out) {
    bool is_stored = false;
    const ErrorCode code = manager_.prepare_store(keys, is_stored, out);
    KVFENCE_CHECK(code == ErrorCode::kNone || Instrumentation::kPlants, "a request repeats a key");
    return code == ErrorCode::kNone && is_stored;
  }

  bool is_any_loading() const { return num_loading_ > 0; }

  /// Cost: O(keys).
  bool is_any_loading(Keys keys) const {
    if (instrumentation_.planted(PlantedConnectorBug::kLoadingHitServed)) return false;
    for (OffloadKeyView key : keys) {
      const std::uint32_t index = manager_.policy().find(key);
      if (index < is_loading_.size() && is_loading_[index]) return true;
    }
    return false;
  }

  /// False if the manager cannot be reset.
  bool reset_cache() {
    if (manager_.reset_cache() != ErrorCode::kNone) return false;
    is_loading_.clear();
    num_loading_ = 0;
    return true;
  }

  /// Appends the manager's events. Cost: allocates what the events own.
  void take_events(std::uint32_t block_size, bool has_groups, std::vector<KVCacheEvent>& out) {
    if (!manager_.config().enable_events) return;
    const auto hash_of = [has_groups](OffloadKey& key) {
      if (has_groups) key.resize(key.size() - kGroupIdBytes);
      return std::move(key);
    };
    manager_.take_events(events_);
    for (OffloadingEvent& event : events_) {
      if (event.removed) {
        for (OffloadKey& key : event.keys) {
          BlockRemoved removed;
          removed.block_hash = hash_of(key);
          removed.medium = "CPU";
          out.emplace_back(std::move(removed));
        }
        continue;
      }
      BlockStored stored;
      stored.block_hashes.reserve(event.keys.size());
      for (OffloadKey& key : event.keys) stored.block_hashes.push_back(hash_of(key));
      stored.block_size = block_size;
      stored.medium = "CPU";
      out.emplace_back(std::move(stored));
    }
  }

 private:
  /// A block that is being loaded is acquired, so that its entry in the policy stays the same.
  void set_loading(Keys keys, bool loading) {
    if (!tracks_loading_) return;
    for (OffloadKeyView key : keys) {
      const std::uint32_t index = manager_.policy().find(key);
      if (index == BasicCachePolicy<Instrumentation>::kNone) continue;
      if (index >= is_loading_.size()) is_loading_.resize(index + 1);
      if (is_loading_[index] == loading) continue;
      is_loading_[index] = loading;
      loading ? ++num_loading_ : --num_loading_;
    }
  }

  [[no_unique_address]] Instrumentation instrumentation_;
  BasicOffloadingManager<Instrumentation> manager_;
  bool tracks_loading_;
  std::vector<bool> is_loading_;  ///< by entry of the policy
  std::uint32_t num_loading_ = 0;
  std::vector<OffloadingEvent> events_;
};

}  // namespace kvfence::optimized
