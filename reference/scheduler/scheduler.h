#pragma once

/// The scheduler: the executable specification. Each function checks everything first and then
/// acts, so that a refusal changes nothing. The rules of each operation, and its errors in order,
/// are in contract/scheduler/scheduler.h. Source: vLLM v0.19.0 and v0.23.0
/// v1/core/sched/scheduler.py Scheduler, async_scheduler.py AsyncScheduler.
///
/// Three files code it: scheduler_schedule.cpp plans a step, scheduler_update.cpp takes what came
/// back for one, scheduler.cpp has the rest.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/pool/observe_blocks.h"
#include "contract/scheduler/scheduler.h"
#include "reference/kv_cache/kv_cache_manager.h"
#include "reference/scheduler/request_queue.h"
#include "reference/scheduler/scheduler_request.h"

namespace kvfence::reference {

class Scheduler final : public kvfence::Scheduler, private ConnectorHost, private GpuBlockPool {
 public:
  /// Requires: a configuration that check_config accepts.
  Scheduler(const SchedulerConfig& config, KVConnectorHandle connector);

  ErrorCode add_request(const NewRequest& new_request, RequestIndex& out) override;
  ErrorCode schedule(SchedulerOutput& out) override;
  ErrorCode update_from_output(const SchedulerOutput& scheduler_output,
                               const ModelRunnerOutput& model_runner_output,
                               EngineCoreOutputs& out) override;
  ErrorCode update_draft_token_ids(RequestIndex request, std::span<const TokenId> tokens) override;
  void grammar_compiled(RequestIndex request) override;
  void finish_requests(std::span<const RequestIndex> requests, RequestStatus status) override;
  void finish_all_requests(RequestStatus status) override;
  void set_pause_state(PauseState state) override { pause_state_ = state; }
  PauseState pause_state() const override { return pause_state_; }
  bool reset_prefix_cache(bool reset_running_requests, bool reset_connector) override;

  std::optional<RequestIndex> find_request(std::string_view id) const override;
  RequestView view(RequestIndex request) const override;
  void requests(std::vector<RequestIndex>& out) const override;
  void running(std::vector<RequestIndex>& out) const override { out = running_; }
  void waiting(std::vector<RequestIndex>& out) const override { out = waiting_.requests(); }
  void skipped_waiting(std::vector<RequestIndex>& out) const override {
    out = skipped_waiting_.requests();
  }
  std::uint32_t get_num_unfinished_requests() const override;
  bool has_finished_requests() const override;

  const SchedulerConfig& config() const override { return config_; }
  KVConnector* connector() override { return connector_.get(); }
  const KVCacheManager& kv_cache_manager() const { return kv_cache_manager_; }

  BlockCounts block_counts() const override {
    return kv_cache_manager().block_pool().block_counts();
  }
  void observe_blocks(ShownBlocks& out) const override {
    kvfence::observe_blocks(kv_cache_manager().block_pool(), out);
  }
  void get_block_ids(RequestIndex request, BlocksByGroup& out) const override {
    kv_cache_manager().get_block_ids(request, out);
  }

  void add_to(StateHash& hash) const override {
    hash.add_all(connector_, kv_cache_manager_, pause_state_, requests_, running_, waiting_,
                 skipped_waiting_, num_steps_, steps_in_flight_, prev_step_scheduled_, finished_,
                 connector_prefix_cache_stats_);
  }

 private:
  // ConnectorHost
  ConnectorRequest request(RequestIndex index) const override;
  bool is_cached(BlockId block) const override;
  std::uint32_t num_output_placeholders(RequestIndex index) const override;
  GpuBlockPool* gpu_block_pool() override { return this; }

  // GpuBlockPool
  std::string_view block_key(BlockId block) const override;
  void touch(std::span<const BlockId> blocks) override;
  void free_blocks(std::span<const BlockId> blocks) override;
  bool is_free(BlockId block) const override;
  std::optional<BlockId> next_free_block(std::optional<BlockId> block) const override;

  enum class Kind : std::uint8_t { kRunning, kNew, kResumed };

  /// A request that the step under way will have.
  struct Planned {
    RequestIndex request = 0;
    Kind kind = Kind::kRunning;
    std::uint32_t num_tokens = 0;
    BlocksByGroup blocks;  ///< new ones of a running request, else all
    std::vector<TokenId> spec_token_ids;
  };

  /// What schedule has decided so far.
  struct Plan {
    std::uint32_t token_budget = 0;
    std::vector<Planned> scheduled;
    std::vector<RequestIndex> preempted;
    std::optional<RequestIndex> ended_at;  ///< the request that did not get slots
  };

  enum class Admission : std::uint8_t { kScheduled, kSkipped, kEnds };

  // Requests.
  const SchedulerRequest* find(RequestIndex request) const;
  SchedulerRequest* find(RequestIndex request) {
    return const_cast<SchedulerRequest*>(std::as_const(*this).find(request));
  }
  const SchedulerRequest& get(RequestIndex request) const;
  SchedulerRequest& get(RequestIndex request) {
    return const_cast<SchedulerRequest&>(std::as_const(*this).get(request));
  }
  bool is_named(RequestIndex request) const;
  bool is_stale(const SchedulerRequest& request, std::uint64_t step) const {
    return step <= request.last_stale_step;
  }
  std::uint32_t num_tokens_in_flight(const SchedulerRequest& request) const;
  void preempt(SchedulerRequest& request);
  void finish(SchedulerRequest& request, RequestStatus status);
  void free_request(SchedulerRequest& request);
  bool reset_connector_cache();
  BlocksByGroup blocks_of(RequestIndex request) const;
  const Rules& rules() const { return config_.kv_cache.pool.rules; }

  // schedule
  void schedule_running(Plan& plan);
  std::uint32_t num_new_tokens_of_running(const SchedulerRequest& request,
                                          std::uint32_t token_budget) const;
  bool allocate_or_preempt(const SchedulerRequest& request, std::uint32_t num_new_tokens,
                           std::size_t& position, Plan& plan, BlocksByGroup& new_blocks);
  std::size_t victim_position() const;
  std::vector<TokenId> take_drafts(SchedulerRequest& request, std::uint32_t num_new_tokens) const;
  void schedule_waiting(Plan& plan);
  RequestQueue& select_waiting_queue();
  Admission try_admit(SchedulerRequest& request, Plan& plan);
  bool try_promote(SchedulerRequest& request);
  bool allocate_for_admission(const SchedulerRequest& request, const ComputedBlocks& hit,
                              std::uint32_t num_new_tokens, const MatchedTokens& external);
  std::uint32_t num_reserved_blocks() const;
  std::uint32_t mamba_block_aligned_split(const SchedulerRequest& request,
                                          std::uint32_t num_computed_tokens,
                                          std::uint32_t num_new_tokens) const;
  void make_output(const Plan& plan, SchedulerOutput& out);
  void advance(const SchedulerOutput& step);

  // update_from_output
  ErrorCode check_update(const SchedulerOutput& scheduler_output,
                         const ModelRunnerOutput& model_runner_output) const;
  ErrorCode check_connector_output(const KVConnectorOutput& report) const;
  std::vector<RequestIndex> handle_invalid_blocks(std::span<const BlockId> invalid_blocks);
  void take_sampled_tokens(const SchedulerOutput& step, const FlatLists<TokenId>& sampled_token_ids,
                           std::span<const RequestIndex> affected, EngineCoreOutputs& out);
  void update_from_kv_xfer_finished(const KVConnectorOutput& report);

  SchedulerConfig config_;
  KVConnectorHandle connector_;
  KVCacheManager kv_cache_manager_;
  PauseState pause_state_ = PauseState::kUnpaused;
  std::list<SchedulerRequest> requests_;  ///< those that are there, in the order of addition
  std::vector<RequestIndex> running_;
  RequestQueue waiting_;
  RequestQueue skipped_waiting_;
  std::uint64_t num_steps_ = 0;                    ///< planned so far
  std::deque<SchedulerOutput> steps_in_flight_;    ///< oldest first
  std::vector<RequestIndex> prev_step_scheduled_;  ///< what the step before had
  std::vector<RequestIndex> finished_;             ///< since the last step, in order
  PrefixCacheStats connector_prefix_cache_stats_;
};

/// As the manager reads it.
inline KVRequest kv_request(const SchedulerRequest& request) {
  return {.index = request.index,
          .request = request.request,
          .num_computed_tokens = request.num_computed_tokens,
          .num_prompt_tokens = request.num_prompt_tokens(),
          .skip_reading_prefix_cache = request.added.skip_reading_prefix_cache,
          .was_preempted = request.num_preemptions > 0};
}

/// As the connector sees it.
inline ConnectorRequest connector_request(const SchedulerRequest& request) {
  return {.index = request.index,
          .id = request.added.id,
          .request = request.request,
          .num_prompt_tokens = request.num_prompt_tokens(),
          .num_computed_tokens = request.num_computed_tokens,
          .params = request.added.kv_transfer_params,
          .status = request.status};
}

}  // namespace kvfence::reference
