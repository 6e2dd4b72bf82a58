#pragma once

/// FencingConnectorScheduler: the scheduler's half of an offloading connector under
/// Rules::offload_fences_reuse. The rules stand in
/// contract/connectors/offloading/offloading_connector.h under "fence".
///
/// A step costs its requests, their new blocks and the jobs that it flushes. What watches a block,
/// and where a block stands in the tables of windowed groups, is found by the block's id.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/core/state_digest.h"
#include "contract/scheduler/scheduler.h"
#include "optimized/base/block_lists.h"
#include "optimized/base/job_map.h"
#include "optimized/connectors/offloading/offloaded_blocks.h"
#include "optimized/offload/offload_keys.h"

namespace kvfence::optimized {

class FencingConnectorScheduler final : public OffloadingConnectorScheduler {
 public:
  /// Requires: check_spec(spec) finds nothing, and the rule offload_fences_reuse; tiers only if
  /// spec.has_tiers.
  explicit FencingConnectorScheduler(const OffloadingSpec& spec,
                                     std::vector<SecondaryTierHandle> tiers = {});

  std::unique_ptr<KVConnector> clone() const override {
    return std::make_unique<FencingConnectorScheduler>(*this);
  }
  void on_new_request(const ConnectorRequest& request) override;
  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest& request,
                                           std::uint32_t num_local_tokens) override;
  void update_state_after_alloc(ConnectorHost& host, const ConnectorRequest& request,
                                const BlocksByGroup& blocks,
                                std::uint32_t num_external_tokens) override;
  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(
      ConnectorHost& host, const SchedulerOutput& output) override;
  void update_connector_output(ConnectorHost& host, const KVConnectorOutput& output) override;
  bool request_finished(ConnectorHost& host, const ConnectorRequest& request,
                        const BlocksByGroup& blocks) override;
  void take_events(std::vector<KVCacheEvent>& out) override {
    offloaded_.take_events(/*block_size=*/0, /*has_groups=*/true, out);
  }

  /// Cost: O(capacity + blocks + what is known).
  bool reset_cache() override;

  void policy_lists(PolicyLists& out) const override { offloaded_.cpu().policy().lists(out); }
  std::uint32_t num_free_slots() const override { return offloaded_.cpu().num_free_slots(); }
  std::span<SecondaryTierHandle> tiers() override {
    return offloaded_.tiering() ? offloaded_.tiering()->tiers() : std::span<SecondaryTierHandle>();
  }
  std::uint32_t num_tier_jobs() const override {
    return offloaded_.tiering() ? offloaded_.tiering()->num_jobs() : 0;
  }
  std::uint32_t num_pending_promotions() const override {
    return offloaded_.tiering() ? offloaded_.tiering()->num_pending() : 0;
  }
  void tier_jobs(std::vector<TierJobState>& out) const override {
    out.clear();
    if (offloaded_.tiering()) offloaded_.tiering()->jobs(out);
  }
  void pending_promotions(std::vector<PendingPromotionState>& out) const override {
    out.clear();
    if (offloaded_.tiering()) offloaded_.tiering()->pending(out);
  }

  void add_to(StateHash& hash) const override {
    hash.add_all(offloaded_, tracked_, free_slots_, slot_of_request_, jobs_, free_jobs_, first_job_,
                 last_job_, next_job_id_, watches_, places_, step_, allocated_);
    metadata_.add_to(hash);
  }

 private:
  static constexpr std::uint32_t kNone = 0xFFFF'FFFF;

  /// What is fixed of a group.
  struct Group {
    std::uint32_t block_size = 0;            ///< tokens of a GPU block
    std::uint32_t offloaded_block_size = 0;  ///< tokens
    std::uint32_t window = 0;                ///< offloaded blocks; 0: not windowed
    std::uint32_t alignment = 0;             ///< offloaded blocks a segment; 0: all are stored
    bool needs_last_alone = false;           ///< of an offloaded block: Mamba's state
    OffloadKeyShape key_shape;

    bool is_windowed() const { return window > 0; }
  };

  /// A request in one group.
  struct Table {
    OffloadKeys keys;
    std::vector<BlockId> block_ids;  ///< 0: not there, or allocated again
    std::uint32_t cursor = 0;        ///< the next offloaded block to store
    std::uint32_t num_hit_blocks = 0;
    void add_to(StateHash& hash) const { hash.add_all(keys, block_ids, cursor, num_hit_blocks); }
  };

  /// A known request, in a slot that another one takes over later.
  struct Tracked {
    std::string id;                      ///< for the tiers, also once its index is another one's
    std::vector<Table> tables;           ///< by group
    std::uint32_t num_local_tokens = 0;  ///< of the last lookup
    std::optional<std::uint32_t> max_offload_tokens;
    std::uint32_t first_job = kNone;
    bool is_request_level = false;  ///< a loaded prefix is stored again
    bool is_known = false;
    bool is_finished = false;

    void add_to(StateHash& hash) const {
      hash.add_all(id, tables, num_local_tokens, max_offload_tokens, first_job, is_request_level,
                   is_known, is_finished);
    }
  };

  struct KeyRef {
    GroupId group = 0;
    std::uint32_t index = 0;
    void add_to(StateHash& hash) const { hash.add_all(group, index); }
  };

  /// A job under way; in a list of all, in ascending order, and in one of its request.
  struct Job {
    JobId id = 0;
    std::uint32_t tracked = 0;
    std::uint32_t num_pending = 0;  ///< workers
    bool is_store = false;
    bool has_failed = false;
    std::uint64_t flushed_in = 0;  ///< the step
    std::uint32_t previous = kNone;
    std::uint32_t next = kNone;
    std::uint32_t previous_of_request = kNone;
    std::uint32_t next_of_request = kNone;
    std::vector<KeyRef> keys;
    std::vector<BlockId> unwatched;  ///< blocks to watch once the request is finished

    void add_to(StateHash& hash) const {
      hash.add_all(id, tracked, num_pending, is_store, has_failed, flushed_in, previous, next,
                   previous_of_request, next_of_request, keys, unwatched);
    }
  };

  /// A place in a table of a windowed group.
  struct Place {
    std::uint32_t tracked = 0;
    GroupId group = 0;
    std::uint32_t index = 0;
    void add_to(StateHash& hash) const { hash.add_all(tracked, group, index); }
  };

  std::uint32_t num_groups() const { return static_cast<std::uint32_t>(groups_.size()); }

  // Known requests
  std::uint32_t slot_of(RequestIndex request) const {
    return request < slot_of_request_.size() ? slot_of_request_[request] : kNone;
  }
  void forget(std::uint32_t slot);
  static void forget_block_ids(Tracked& tracked);
  void update_keys(Tracked& tracked, const Request& request);
  void set_cursors(Tracked& tracked, std::uint32_t num_tokens);
  bool is_whole(const Group& group, const Table& table, std::uint32_t index) const;
  static BlockId block_at(const Table& table, std::size_t index) {
    return index < table.block_ids.size() ? table.block_ids[index] : kNullBlockId;
  }

  // Lookup
  struct Hit {
    std::uint32_t num_blocks = 0;
    bool is_deferred = false;
  };
  std::optional<std::uint32_t> lookup(const Tracked& tracked, std::uint32_t num_tokens);
  Hit lookup_prefix(const OffloadKeys& keys, std::uint32_t begin, std::uint32_t end,
                    const RequestContext& context);
  Hit lookup_window(const OffloadKeys& keys, std::uint32_t begin, std::uint32_t end,
                    std::uint32_t window, const RequestContext& context);
  LookupResult lookup_key(OffloadKeyView key, const RequestContext& context);
  bool is_hit_being_loaded(const Tracked& tracked, std::uint32_t num_hit_tokens);
  void touch(const Tracked& tracked);

  // Jobs
  std::uint32_t add_job(std::uint32_t slot, bool is_store);
  void remove_job(std::uint32_t job);
  void view_keys(const Job& job);
  void complete(const Job& job);
  void watch(std::uint32_t job);

  // A step
  void note_allocated(BlockId block) {
    if (block != kNullBlockId) allocated_.push_back(block);
  }
  void note_new_blocks(const SchedulerOutput& output, std::uint32_t first_list);
  void zero_stale_ids();
  void append_block_ids(std::uint32_t slot, const SchedulerOutput& output,
                        std::uint32_t first_list);
  void update_requests(ConnectorHost& host, const SchedulerOutput& output);
  void flush(std::uint32_t job);
  void flush_jobs(const SchedulerOutput& output);
  std::uint32_t num_storable_tokens(const Tracked& tracked, const ConnectorRequest& request,
                                    std::uint32_t num_scheduled_tokens) const;
  void plan_store(std::uint32_t slot, const ConnectorRequest& request, std::uint32_t num_tokens);
  void gather_keys_to_store(const Tracked& tracked, std::uint32_t num_tokens);
  void add_store(std::uint32_t slot, const ConnectorRequest& request);

  std::vector<Group> groups_;
  std::vector<GroupId> lookup_order_;
  std::size_t num_full_groups_ = 0;  ///< the first ones in the order of lookup
  std::uint32_t block_size_factor_;
  std::uint32_t num_workers_;
  bool offload_prompt_only_;
  bool request_level_policy_;
  bool shares_blocks_;
  OffloadedBlocks offloaded_;

  std::vector<Tracked> tracked_;
  std::vector<std::uint32_t> free_slots_;
  std::vector<std::uint32_t> slot_of_request_;  ///< by RequestIndex; kNone once it is finished
  std::uint32_t num_known_ = 0;
  std::uint32_t num_unfinished_ = 0;  ///< of them

  std::vector<Job> jobs_;
  std::vector<std::uint32_t> free_jobs_;
  JobMap job_of_id_;
  std::uint32_t first_job_ = kNone;
  std::uint32_t last_job_ = kNone;
  JobId next_job_id_ = 0;

  BlockLists<JobId> watches_;  ///< those of jobs that are over drop out when the block is allocated
  BlockLists<Place> places_;   ///< where a block stands, or stood, in tables of windowed groups

  // Of the step under way.
  std::uint64_t step_ = 1;
  std::vector<BlockId> allocated_;
  OffloadingConnectorMetadata metadata_;
  std::shared_ptr<const OffloadingConnectorMetadata> nothing_to_tell_;

  // Storage of single calls, kept for the next one.
  std::vector<OffloadKeyView> views_;
  std::vector<OffloadKeyView> touched_;
  std::vector<KeyRef> refs_;
  PrepareStoreOutput prepared_;
};

}  // namespace kvfence::optimized
