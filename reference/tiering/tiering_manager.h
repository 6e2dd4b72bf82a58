#pragma once

/// Several tiers of offloaded blocks: the executable specification. Each function checks everything
/// first, after the poll, and then acts, so that a refusal changes nothing. The rules of each
/// function, and its errors in order, are in contract/tiering/tiering_manager.h.
/// Source: vLLM v0.23.0 v1/kv_offload/tiering/manager.py TieringOffloadingManager.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/tiering/tiering_manager.h"
#include "reference/offload/offloading_manager.h"

namespace kvfence::reference {

class TieringOffloadingManager final : public TieringView {
 public:
  /// Requires: check_tiering_config(primary) finds nothing wrong
  TieringOffloadingManager(const OffloadingManagerConfig& primary,
                           std::vector<SecondaryTierHandle> tiers);

  LookupResult lookup(OffloadKeyView key, const RequestContext& request);
  void touch(std::span<const OffloadKeyView> keys, const RequestContext& request);
  ErrorCode prepare_load(std::span<const OffloadKeyView> keys, std::vector<SlotId>& slots);
  ErrorCode complete_load(std::span<const OffloadKeyView> keys);
  ErrorCode prepare_store(std::span<const OffloadKeyView> keys, const RequestContext& request,
                          bool& stored, PrepareStoreOutput& out);
  ErrorCode complete_store(std::span<const OffloadKeyView> keys, const RequestContext& request,
                           bool success);
  OffloadPolicy on_new_request(const RequestContext& request);
  void on_request_finished(const RequestContext& request);
  void on_schedule_end();
  void reset_cache() {}
  void take_events(std::vector<OffloadingEvent>& out) { primary_.take_events(out); }

  const OffloadingManager& primary() const { return primary_; }
  std::span<SecondaryTierHandle> tiers() override { return tiers_; }
  std::uint32_t num_jobs() const override { return static_cast<std::uint32_t>(jobs_.size()); }
  std::uint32_t num_pending() const override {
    return static_cast<std::uint32_t>(promotions_.size());
  }
  void jobs(std::vector<TierTransferState>& out) const override { out = jobs_; }
  void pending(std::vector<TierTransferState>& out) const override;

  void add_to(StateHash& hash) const {
    hash.add_all(primary_, tiers_, next_job_id_, jobs_, promotions_, request_level_, has_polled_);
  }

 private:
  /// A block that waits for the end of the step.
  struct Promotion {
    std::uint32_t tier = 0;
    std::string req_id;
    OffloadKey key;
    SlotId slot = 0;
  };

  /// A tier that wants a request at request level.
  struct RequestLevel {
    std::string req_id;
    std::uint32_t tier = 0;
  };

  void poll();
  void end_job(std::uint32_t tier, const JobResult& result);
  bool initiate_promotion(std::uint32_t tier, OffloadKeyView key, const RequestContext& request);
  void cascade(std::uint32_t tier, std::span<const OffloadKeyView> keys,
               const RequestContext& request);
  void submit_promotions();
  bool is_request_level(std::uint32_t tier, std::string_view req_id) const;
  bool is_promoted(OffloadKeyView key) const;
  std::int32_t num_loads_of(OffloadKeyView key) const;
  std::uint32_t num_tiers() const { return static_cast<std::uint32_t>(tiers_.size()); }

  OffloadingManager primary_;
  std::vector<SecondaryTierHandle> tiers_;
  TierJobId next_job_id_ = 0;
  std::vector<TierTransferState> jobs_;  ///< under way, by number
  std::vector<Promotion> promotions_;    ///< queued, in the order of the lookups
  std::vector<RequestLevel> request_level_;
  bool has_polled_ = false;  ///< in this step
};

}  // namespace kvfence::reference

static_assert(kvfence::TieringOffloadingManager<kvfence::reference::TieringOffloadingManager>);
