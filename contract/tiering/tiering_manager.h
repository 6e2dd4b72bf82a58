#pragma once

/// The tiering manager, over several tiers of offloaded blocks: the primary one, which is an
/// OffloadingManager and the only one that the GPU reads and writes, and secondary ones below it in
/// a fixed order. Stored blocks go down to every tier (*cascade*); blocks that only a lower tier
/// has come up (*promotion*). This file states the rules of each operation once; `reference/` and
/// `optimized/` implement them independently.
///
/// Source: vLLM v0.23.0 v1/kv_offload/tiering/manager.py; absent in v0.19.0.
///
/// Common to all operations:
///   - As contract/offload/offloading_manager.h, whose words are used: *held* and *ready* refer
///     to the primary tier. A call on it is written primary.operation(...).
///   - A *job* is a transfer between the primary tier and one other. Jobs are numbered 0, 1, ... in
///     the order of their submission, over all tiers.
///   - *Poll*: once per step, at the first lookup, prepare_load, prepare_store or on_schedule_end
///     since the last on_schedule_end, each tier in order is asked for the jobs that are over, and
///     each of these is ended, in the order in which it is reported:
///       promotion  primary.complete_store(its keys, success)
///       cascade    primary.complete_load(its keys), whatever became of it
///     A result that names no job under way at this tier is passed over (upstream asserts, with
///     later results lost). The poll comes before anything else that the operation does, before a
///     refusal too: a refused operation leaves the state after the poll unchanged.
///   - A tier gets a request's name and forgets it at on_request_finished; jobs of it may still be
///     submitted afterwards, as upstream does.

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "contract/core/status.h"
#include "contract/offload/offloading_manager.h"
#include "contract/tiering/secondary_tier.h"

namespace kvfence {

/// Returns what is wrong with a configuration of the primary tier, or nothing if a manager can be
/// built above it: a primary tier can be built from it, the rule `tiering` holds, there is no
/// filter.
std::optional<std::string> check_tiering_config(const OffloadingManagerConfig& primary);

/// A job under way, or promotions of one tier and request that wait for the end of the step, for an
/// observer.
struct TierTransferState {
  std::optional<TierJobId> id;  ///< of a job
  std::uint32_t tier = 0;
  bool is_promotion = false;  ///< else a cascade
  std::string req_id;
  std::vector<OffloadKey> keys;
  std::vector<SlotId> slots;  ///< one per key
  friend bool operator==(const TierTransferState&, const TierTransferState&) = default;
};

/// What an observer reads of a TieringOffloadingManager, and how it reaches the tiers.
class TieringView {
 public:
  virtual std::span<SecondaryTierHandle> tiers() = 0;
  virtual std::uint32_t num_jobs() const = 0;
  virtual std::uint32_t num_pending() const = 0;
  virtual void jobs(std::vector<TierTransferState>& out) const = 0;
  virtual void pending(std::vector<TierTransferState>& out) const = 0;

 protected:
  ~TieringView() = default;
};

/// TieringOffloadingManager.
///
/// lookup(key, request) -> whether the block can be read
///     Polls. What primary.lookup_key says, unless that is kMiss. Then the tiers are asked in
///     order, up to the first kHit. There the block is promoted: primary.prepare_store({key}) gives
///     it a slot at once, so others may go for it, and the transfer is queued until the end of the
///     step; kPending. If nothing can go for it, the block cannot be had: kMiss, although it is in
///     a tier (asking again would not help). Without a hit: kPending if any tier said so, or kMiss.
///
/// touch(keys, request)
///     primary.touch, then that of each tier.
///
/// prepare_load(keys, slots)
///     Polls; primary.prepare_load.
///     Errors: the primary's
///
/// complete_load(keys)
///     primary.complete_load.
///     Errors: kUnknownKey; kNotReading, if a key is released more often than prepare_load has
///     acquired it and not yet released (upstream would take away what a cascade holds)
///
/// prepare_store(keys, request, stored, out)
///     Polls; primary.prepare_store. If that could be: each tier that wants the request at request
///     level gets, in order, a cascade of those keys that are not newly stored and ready, if there
///     are any; each such cascade acquires its blocks (primary.prepare_load). Those that are being
///     written are left out permanently (vllm#53062).
///     Errors: kListedTwice
///
/// complete_store(keys, request, success)
///     primary.complete_store. On success each tier in order gets a cascade of all the keys, which
///     acquires them; also of no keys.
///     Errors: kUnknownKey, if a key is not held and success (upstream asserts half way);
///             kNotReady, if a key is being promoted: its write is not the caller's to end
///
/// on_new_request(request) -> what any tier wants of it
///     Each tier in order is asked; kRequestLevel if one says so. A tier that said so once, gets
///     the request at request level until on_request_finished.
///
/// on_request_finished(request)
///     Each tier is notified; what they wanted of it is forgotten. Jobs and queued promotions of
///     the request continue.
///
/// on_schedule_end()
///     Polls, if the step has not yet; the next step begins. Then what is queued is submitted, one
///     load job for each tier and request: tiers in the order of their first promotion, in a tier
///     requests by theirs, in a request keys in the order of their lookups. Then on_schedule_end of
///     each tier.
///
/// reset_cache()
///     Nothing. Upstream's v0.23.0 has none; to reset the primary tier alone would let transfers
///     under way write into slots that are assigned again (vllm#44541).
///
/// take_events(out)
///     Those of the primary tier: promoted blocks are stored there, their victims removed.
///
/// primary(), tiers(): the parts. num_jobs(), jobs(out): jobs under way, by number.
/// num_pending(), pending(out): queued keys; in the order in which they will be submitted.
///
/// Cost of the optimized side: O(keys) of the call, of the jobs that end, and of what the call
/// queued or submits, besides what the tiers take; a lookup O(tiers).
template <class M>
concept TieringOffloadingManager = std::copyable<M> && std::derived_from<M, TieringView> &&
    std::constructible_from<M, const OffloadingManagerConfig&, std::vector<SecondaryTierHandle>> &&
    requires(M manager, const M& const_manager, OffloadKeyView key,
             std::span<const OffloadKeyView> keys, const RequestContext& request,
             std::vector<SlotId>& slots, bool& stored, bool success, PrepareStoreOutput& out,
             std::vector<OffloadingEvent>& events) {
  { manager.lookup(key, request) } -> std::same_as<LookupResult>;
  { manager.touch(keys, request) } -> std::same_as<void>;
  { manager.prepare_load(keys, slots) } -> std::same_as<ErrorCode>;
  { manager.complete_load(keys) } -> std::same_as<ErrorCode>;
  { manager.prepare_store(keys, request, stored, out) } -> std::same_as<ErrorCode>;
  { manager.complete_store(keys, request, success) } -> std::same_as<ErrorCode>;
  { manager.on_new_request(request) } -> std::same_as<OffloadPolicy>;
  { manager.on_request_finished(request) } -> std::same_as<void>;
  { manager.on_schedule_end() } -> std::same_as<void>;
  { manager.reset_cache() } -> std::same_as<void>;
  { manager.take_events(events) } -> std::same_as<void>;
  { const_manager.primary().num_free_slots() } -> std::same_as<std::uint32_t>;
  const_manager.primary().policy();
};

}  // namespace kvfence
