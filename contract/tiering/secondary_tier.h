#pragma once

/// A tier below the CPU cache: it keeps copies of offloaded blocks, and moves them to and from
/// slots of the primary tier in jobs, at its own pace. A tier never sees the GPU: a block goes
/// GPU -> slot -> tier, and comes back the same way.
///
/// Source: vLLM v0.23.0 v1/kv_offload/tiering/base.py (SecondaryTierManager), base.py
/// (RequestOffloadingContext, ReqContext).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/cloned.h"
#include "contract/core/state_digest.h"
#include "contract/eviction/cache_policy.h"
#include "contract/offload/offloading_manager.h"

namespace kvfence {

/// A transfer between the primary tier and one secondary tier. The manager numbers its jobs 0, 1,
/// ... over all of its tiers.
using TierJobId = std::uint64_t;

/// The request on whose behalf a tier is asked. Valid during the call.
struct RequestContext {
  std::string_view req_id;
};

/// Which blocks of a request a tier wants.
enum class OffloadPolicy : std::uint8_t {
  kBlockLevel,    ///< those that were newly stored in the primary tier
  kRequestLevel,  ///< those that the primary tier already held, too
};

/// The memory of the primary tier, as a tier reaches it: num_slots slots of slot_bytes bytes each,
/// back to back. A block fills its slot, so slot_bytes is the block size of the tier, too.
/// The builder of the tiers owns the memory and keeps it in place until each tier was shut down or
/// destroyed. A tier that moves no bytes may be given an empty view.
struct PrimaryKvView {
  std::byte* base = nullptr;
  std::size_t slot_bytes = 0;  ///< also the distance from one slot to the next
  std::uint32_t num_slots = 0;

  /// The bytes of a slot. slot < num_slots.
  std::span<std::byte> slot(SlotId slot) const {
    KVFENCE_CHECK(slot < num_slots, "no such slot of the primary tier");
    return {base + slot * slot_bytes, slot_bytes};
  }
};

/// A job to submit: keys[i] is in slots[i] (store), or will be (load). Views of the caller's, valid
/// during the call: a tier copies what it needs later. The slots themselves belong to the tier
/// until it has reported the job: during a store nobody writes them, during a load nobody else
/// touches them.
struct TierJob {
  TierJobId job_id = 0;
  std::span<const OffloadKeyView> keys;
  std::span<const SlotId> slots;  ///< as many as keys
  RequestContext request;
};

/// A job that is over.
struct JobResult {
  TierJobId job_id = 0;
  bool success = false;  ///< every block of the job was moved; of a failed job, any subset was
  friend bool operator==(const JobResult&, const JobResult&) = default;
};

/// SecondaryTier.
///
/// Every member is called from one thread, the scheduler's, and only shutdown waits for transfers.
/// A submission cannot be refused: the result of a transfer says what went wrong.
///
/// lookup(key, request) -> what the tier knows of the block
///     kHit: it can be loaded. kMiss: it is not here. kPending: ask again later. A hit is no
///     promise: the load may fail, and a later lookup then has to say so, or the block would be
///     promoted for ever.
///
/// submit_store(job)
///     Copies the slots of the primary tier into this tier, some time. Blocks that are here already
///     may be passed over; they count as moved.
///
/// submit_load(job)
///     Copies blocks of this tier into the slots, some time. They get the bytes that were stored
///     under the key, complete, or the job fails. After a failed load, the bytes of its slots are
///     anything.
///
/// get_finished_jobs(out)
///     Appends the jobs that came to an end since the last call, in the order in which they did.
///     Each job that was submitted is reported once, never before its submission returned. A job
///     without keys succeeds.
///
/// touch(keys, request)
///     The blocks were used; a tier that evicts may want to know. Keys that are not here are passed
///     over.
///
/// on_new_request(request) -> what the tier wants of it
///
/// on_request_finished(request)
///     Once per request. Promotions that were queued and stores that end later still name it.
///
/// on_schedule_end()
///     Once per step, after the step's jobs were submitted.
///
/// shutdown()
///     Returns when no transfer touches a slot any more. Transfers that have not begun do not begin
///     and fail; get_finished_jobs reports what is left, and may be called as before. Nothing else
///     is called afterwards, but shutdown, which then does nothing.
///     (Upstream's file tier forgets the jobs that had not begun, and a job without keys.)
///
/// A tier that takes no interest in requests, steps or use leaves those calls out.
class SecondaryTier {
 public:
  SecondaryTier() = default;
  virtual ~SecondaryTier() = default;

  /// Aborts if the tier cannot be copied (one with threads), so a manager with such a tier has to
  /// be moved.
  virtual std::unique_ptr<SecondaryTier> clone() const {
    check_failed(__FILE__, __LINE__, "clone", "this tier cannot be copied");
  }
  virtual LookupResult lookup(OffloadKeyView key, const RequestContext& request) = 0;
  virtual void submit_store(const TierJob& job) = 0;
  virtual void submit_load(const TierJob& job) = 0;
  virtual void get_finished_jobs(std::vector<JobResult>& out) = 0;
  virtual void touch(std::span<const OffloadKeyView> /*keys*/, const RequestContext& /*request*/) {}
  virtual OffloadPolicy on_new_request(const RequestContext& /*request*/) {
    return OffloadPolicy::kBlockLevel;
  }
  virtual void on_request_finished(const RequestContext& /*request*/) {}
  virtual void on_schedule_end() {}
  virtual void shutdown() {}
  virtual void add_to(StateHash& hash) const { hash.add_unknown(); }

 protected:
  SecondaryTier(const SecondaryTier&) = default;
  SecondaryTier& operator=(const SecondaryTier&) = default;
};

/// A tier that is copied with its owner.
using SecondaryTierHandle = Cloned<SecondaryTier>;

}  // namespace kvfence
