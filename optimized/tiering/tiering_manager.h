#pragma once

/// TieringOffloadingManager: jobs and queued promotions around an OffloadingManager.
///
/// A block that a transfer holds stays in its place, so a job names its blocks by their place in
/// the primary tier and keeps no keys. A record per slot says which uses of the block a caller may
/// still end. Jobs and promotions reuse the storage of former ones. The rules of every operation
/// are in contract/tiering/tiering_manager.h. Not thread-safe.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/tiering/tiering_manager.h"
#include "optimized/base/request_ids.h"
#include "optimized/base/slots.h"
#include "optimized/offload/offloading_manager.h"

namespace kvfence::optimized {

class TieringOffloadingManager final : public TieringView {
 public:
  /// Requires: check_tiering_config(primary) finds nothing wrong; capacity <= 2^28.
  /// Cost: O(capacity). Later allocations: lists as long as the longest call and jobs for the most
  /// under way at once, which keep their capacity; names of requests beyond a string's own storage;
  /// keys that a promotion evicts; and what the caller takes over.
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
  std::uint32_t num_jobs() const override { return jobs_.size(); }
  std::uint32_t num_pending() const override { return num_pending_; }

  /// Cost: O(keys of all jobs); for an observer.
  void jobs(std::vector<TierTransferState>& out) const override;
  /// Cost: O(queued keys); for an observer.
  void pending(std::vector<TierTransferState>& out) const override;

  void add_to(StateHash& hash) const;

 private:
  using Index = CachePolicy::Index;

  struct Job {
    std::uint32_t tier = 0;
    bool is_promotion = false;
    std::string req_id;
    std::vector<Index> blocks;
  };

  /// Promotions of one request from one tier.
  struct Group {
    std::string req_id;
    std::vector<Index> blocks;
  };

  /// The promotions queued for a tier. Groups beyond num_groups are storage.
  struct Queue {
    RequestIds ids;
    std::vector<Group> groups;
    std::uint32_t num_groups = 0;
  };

  /// A request that some tiers want at request level; free entries are storage.
  struct RequestLevel {
    std::string id;
    std::vector<std::uint32_t> tiers;  ///< ascending; none if the entry is free
  };

  /// The uses that hold the block in a slot, beside cascades.
  struct SlotUse {
    std::uint32_t num_loads = 0;
    bool is_promoted = false;  ///< queued or under way
  };

  const CachePolicy& policy() const { return primary_.policy(); }
  SlotUse& use_of(Index block) { return uses_[policy().slot(block)]; }

  void poll();
  void end_job(std::uint32_t tier, const JobResult& result);
  void end_promotion(const Job& job, bool success);
  LookupResult ask_tiers(OffloadKeyView key, const RequestContext& request);
  bool initiate_promotion(std::uint32_t tier, OffloadKeyView key, const RequestContext& request);
  Group& group_of(std::uint32_t tier, std::string_view req_id);
  void cascade(std::uint32_t tier, std::span<const OffloadKeyView> keys,
               const RequestContext& request);
  void cascade_held(std::span<const OffloadKeyView> keys, const RequestContext& request,
                    const RequestLevel& wanted);
  void submit_promotions();
  void submit_group(std::uint32_t tier, Group& group);
  std::span<const OffloadKeyView> views_of(std::span<const Index> blocks);
  void add_request_level(std::string_view req_id, std::uint32_t tier);
  void forget_request_level(std::string_view req_id);
  TierTransferState shown(std::optional<TierJobId> id, std::uint32_t tier, bool is_promotion,
                          const std::string& req_id, std::span<const Index> blocks) const;

  OffloadingManager primary_;
  std::vector<SecondaryTierHandle> tiers_;
  TierJobId next_job_id_ = 0;
  NumberedSlots<TierJobId, Job> jobs_;
  std::vector<Queue> queues_;               ///< [tier]
  std::vector<std::uint32_t> queue_order_;  ///< tiers that have groups, by their first
  std::uint32_t num_pending_ = 0;
  NamedSlots<RequestLevel> request_levels_;
  std::vector<SlotUse> uses_;  ///< [slot]
  bool has_polled_ = false;    ///< in this step

  // Of the call that runs.
  std::vector<JobResult> results_;
  std::vector<OffloadKeyView> views_;
  std::vector<OffloadKeyView> ready_;
  std::vector<SlotId> slots_;
  PrepareStoreOutput promoted_;
};

static_assert(kvfence::TieringOffloadingManager<TieringOffloadingManager>);

}  // namespace kvfence::optimized
