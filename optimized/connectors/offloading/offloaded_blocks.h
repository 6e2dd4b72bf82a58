#pragma once

/// OffloadedBlocks: the CPU side of a connector's scheduler half. It has the manager, alone or
/// above secondary tiers, knows which blocks are being loaded, and converts events for the
/// connector.

#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/core/check.h"
#include "contract/core/state_digest.h"
#include "contract/pool/block_hash.h"
#include "contract/pool/kv_events.h"
#include "optimized/offload/offloading_manager.h"
#include "optimized/tiering/tiering_manager.h"

namespace kvfence::optimized {

class OffloadedBlocks {
 public:
  using Keys = std::span<const OffloadKeyView>;

  using CPUManager = OffloadingManager;
  using TieringManager = TieringOffloadingManager;

  OffloadedBlocks(const OffloadingSpec& spec, std::vector<SecondaryTierHandle> tiers)
      : manager_(make_manager(spec, std::move(tiers))),
        tracks_loading_(spec.kv_cache.pool.enable_caching) {}

  /// The CPU cache, also below a manager of tiers.
  const CPUManager& cpu() const {
    return tiering() ? tiering()->primary() : std::get<CPUManager>(manager_);
  }

  /// Null if the CPU cache is alone.
  TieringManager* tiering() { return std::get_if<TieringManager>(&manager_); }
  const TieringManager* tiering() const { return std::get_if<TieringManager>(&manager_); }

  /// Requires: the rules look up list by list, so that the CPU cache has no tiers.
  std::uint32_t lookup(Keys keys) {
    std::uint32_t num_hits = 0;
    const ErrorCode code = std::get<CPUManager>(manager_).lookup(keys, num_hits);
    KVFENCE_CHECK(code == ErrorCode::kNone, "a connector that holds looks up a list");
    return num_hits;
  }

  LookupResult lookup_key(OffloadKeyView key, const RequestContext& request) {
    if (tiering()) return tiering()->lookup(key, request);
    LookupResult result = LookupResult::kMiss;
    const ErrorCode code = std::get<CPUManager>(manager_).lookup_key(key, result);
    KVFENCE_CHECK(code == ErrorCode::kNone, "a connector that fences looks up key by key");
    return result;
  }

  void touch(Keys keys, const RequestContext& request) {
    tiering() ? tiering()->touch(keys, request) : std::get<CPUManager>(manager_).touch(keys);
  }

  void complete_store(Keys keys, const RequestContext& request, bool success) {
    if (!tiering()) return std::get<CPUManager>(manager_).complete_store(keys, success);
    const ErrorCode code = tiering()->complete_store(keys, request, success);
    KVFENCE_CHECK(code == ErrorCode::kNone, "a store ends that did not begin");
  }

  // Only a manager of tiers is notified of requests and steps.
  OffloadPolicy on_new_request(const RequestContext& request) {
    return tiering() ? tiering()->on_new_request(request) : OffloadPolicy::kBlockLevel;
  }
  void on_request_finished(const RequestContext& request) {
    if (tiering()) tiering()->on_request_finished(request);
  }
  void on_schedule_end() {
    if (tiering()) tiering()->on_schedule_end();
  }

  /// Marks the blocks as being loaded, with prefix caching. Requires: each is ready.
  void prepare_load(Keys keys, std::vector<SlotId>& slots) {
    const ErrorCode code =
        std::visit([&](auto& manager) { return manager.prepare_load(keys, slots); }, manager_);
    KVFENCE_CHECK(code == ErrorCode::kNone, "a block to load is not there, or not ready");
    set_loading(keys, true);
  }

  /// Marks the blocks as no longer being loaded, even if another load has the block, too.
  void complete_load(Keys keys) {
    set_loading(keys, false);
    const ErrorCode code =
        std::visit([&](auto& manager) { return manager.complete_load(keys); }, manager_);
    KVFENCE_CHECK(code == ErrorCode::kNone, "a load ends that did not begin");
  }

  /// Whether the blocks can be stored; out as for the manager's prepare_store.
  bool prepare_store(Keys keys, const RequestContext& request, PrepareStoreOutput& out) {
    bool is_stored = false;
    const ErrorCode code = tiering()
                               ? tiering()->prepare_store(keys, request, is_stored, out)
                               : std::get<CPUManager>(manager_).prepare_store(keys, is_stored, out);
    KVFENCE_CHECK(code == ErrorCode::kNone, "a request repeats a key");
    return is_stored;
  }

  bool is_any_loading() const { return num_loading_ > 0; }

  /// Cost: O(keys).
  bool is_any_loading(Keys keys) const {
    for (OffloadKeyView key : keys) {
      const std::uint32_t index = cpu().policy().find(key);
      if (index < is_loading_.size() && is_loading_[index]) return true;
    }
    return false;
  }

  /// False if the manager cannot be reset.
  bool reset_cache() {
    auto* const alone = std::get_if<CPUManager>(&manager_);
    if (!alone || alone->reset_cache() != ErrorCode::kNone) return false;
    is_loading_.clear();
    num_loading_ = 0;
    return true;
  }

  /// Appends the manager's events. Cost: allocates what the events own.
  void take_events(std::uint32_t block_size, bool has_groups, std::vector<KVCacheEvent>& out) {
    if (!cpu().config().enable_events) return;
    const auto hash_of = [has_groups](OffloadKey& key) {
      if (has_groups) key.resize(key.size() - kGroupIdBytes);
      return std::move(key);
    };
    std::visit([&](auto& manager) { manager.take_events(events_); }, manager_);
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

  void add_to(StateHash& hash) const {
    hash.add(manager_);
    hash.add_kept(is_loading_);
  }

 private:
  using Manager = std::variant<CPUManager, TieringManager>;

  static Manager make_manager(const OffloadingSpec& spec, std::vector<SecondaryTierHandle> tiers) {
    KVFENCE_CHECK(spec.has_tiers || tiers.empty(), "tiers below a CPU cache that stands alone");
    if (!spec.has_tiers) return CPUManager(spec.manager);
    return TieringManager(spec.manager, std::move(tiers));
  }

  /// A block that is being loaded is acquired, so its entry in the policy stays the same.
  void set_loading(Keys keys, bool loading) {
    if (!tracks_loading_) return;
    for (OffloadKeyView key : keys) {
      const std::uint32_t index = cpu().policy().find(key);
      if (index == CachePolicy::kNone) continue;
      if (index >= is_loading_.size()) is_loading_.resize(index + 1);
      if (is_loading_[index] == loading) continue;
      is_loading_[index] = loading;
      loading ? ++num_loading_ : --num_loading_;
    }
  }

  Manager manager_;
  bool tracks_loading_;
  std::vector<bool> is_loading_;  ///< by entry of the policy
  std::uint32_t num_loading_ = 0;
  std::vector<OffloadingEvent> events_;
};

}  // namespace kvfence::optimized
