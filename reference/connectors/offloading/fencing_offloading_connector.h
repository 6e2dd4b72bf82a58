#pragma once

/// The scheduler's half that gives blocks back at once and has a transfer awaited before a block
/// that it touches is used again. The rules of each function stand in
/// contract/connectors/offloading/offloading_connector.h under "fence".
/// Source: vLLM v0.23.0 distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py
/// OffloadingConnectorScheduler.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "contract/core/state_digest.h"
#include "reference/connectors/offloading/offloading_connector.h"

namespace kvfence::reference {

class FencingOffloadingConnector final : public OffloadingConnectorBase {
 public:
  using OffloadingConnectorBase::OffloadingConnectorBase;

  std::unique_ptr<KVConnector> clone() const override;
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
  bool reset_cache() override;
  void add_to(StateHash& hash) const override {
    OffloadingConnectorBase::add_to(hash);
    hash.add_all(requests_, num_jobs_, first_job_since_reset_, jobs_, loads_, jobs_to_flush_,
                 allocated_blocks_);
  }

 private:
  struct GroupState {
    std::vector<BlockId> block_ids;       ///< as the steps told them; 0: not there any more
    std::uint32_t next_stored_block = 0;  ///< the cursor, in offloaded blocks
    void add_to(StateHash& hash) const { hash.add_all(block_ids, next_stored_block); }
  };

  struct RequestState {
    std::optional<std::uint32_t> max_offload_tokens;
    bool request_level = false;           ///< what is loaded is stored again
    std::uint32_t num_local_tokens = 0;   ///< of the last lookup
    std::uint32_t num_cached_tokens = 0;  ///< of the last lookup: local and found
    bool is_finished = false;
    std::vector<GroupState> groups;
    void add_to(StateHash& hash) const {
      hash.add_all(max_offload_tokens, request_level, num_local_tokens, num_cached_tokens,
                   is_finished, groups);
    }
  };

  struct Job {
    std::string request;
    bool is_store = false;
    std::uint32_t num_pending_workers = 0;
    bool has_failed = false;
    std::vector<OffloadKey> keys;                ///< in the order of planning
    std::vector<BlockId> windowed_blocks;        ///< stores: sources in windowed groups
    std::vector<BlockId> full_attention_blocks;  ///< stores: sources in the other groups
    void add_to(StateHash& hash) const {
      hash.add_all(request, is_store, num_pending_workers, has_failed, keys, windowed_blocks,
                   full_attention_blocks);
    }
  };

  // Groups.
  std::optional<std::uint32_t> window_in_blocks(std::size_t group) const;
  std::optional<std::uint32_t> alignment_in_blocks(std::size_t group) const;
  std::vector<std::size_t> windowed_groups() const;
  std::vector<std::size_t> lookup_groups() const;

  // Lookups. Each answers nothing for "ask again".
  std::optional<std::uint32_t> maximal_prefix_lookup(std::span<const OffloadKey> keys,
                                                     const RequestContext& context);
  std::optional<std::uint32_t> sliding_window_lookup(std::span<const OffloadKey> keys,
                                                     std::uint32_t window,
                                                     const RequestContext& context);
  std::optional<std::uint32_t> lookup(const ConnectorRequest& request,
                                      std::uint32_t num_computed_tokens);
  bool is_being_loaded(OffloadKeyView key) const;
  void touch(const ConnectorRequest& request, const RequestState& state);

  // Requests and jobs.
  RequestState& known(std::string_view id);
  bool has_jobs(std::string_view id) const;
  bool is_loading(std::string_view id) const;
  bool watches_allocated_block(const Job& job) const;
  void forget_finished_requests();

  // build_connector_meta
  void update_block_ids(const ConnectorHost& host, const SchedulerOutput& output);
  void add_jobs_to_flush(const ConnectorHost& host, const SchedulerOutput& output);
  std::uint32_t num_offloadable_tokens(const ConnectorRequest& request, const RequestState& state,
                                       const SchedulerOutput& output) const;
  bool is_whole(std::size_t group, std::span<const BlockId> gpu_blocks) const;
  std::vector<OffloadKey> keys_to_offer(const ConnectorRequest& request, const RequestState& state,
                                        std::uint32_t num_tokens) const;
  void plan_store(const ConnectorRequest& request, std::uint32_t num_tokens,
                  std::vector<TransferJob>& stores);
  void set_cursors(RequestState& state, std::uint32_t num_tokens) const;

  std::map<std::string, RequestState, std::less<>> requests_;  ///< by id; finished ones with jobs
  JobId num_jobs_ = 0;                                         ///< numbered so far
  JobId first_job_since_reset_ = 0;
  std::map<JobId, Job> jobs_;  ///< under way

  // Since the last metadata.
  std::vector<TransferJob> loads_;
  std::set<JobId> jobs_to_flush_;
  std::set<BlockId> allocated_blocks_;
};

}  // namespace kvfence::reference
