#pragma once

/// Scheduler: the scheduler that an engine embeds. The rules of every operation are in
/// contract/scheduler/scheduler.h.
///
/// A step is O(requests that it schedules, admits, preempts and ends). It does not look at requests
/// that wait for something, and a decode token inside a block does not call the KV cache. Not
/// thread-safe.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/connectors/kv_connector.h"
#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/core/types.h"
#include "contract/pool/observe_blocks.h"
#include "contract/scheduler/scheduler.h"
#include "optimized/scheduler/scheduler_state.h"

namespace kvfence::optimized {

class Scheduler final : public kvfence::Scheduler {
 public:
  /// Requires: check_config(config, has a connector) finds nothing.
  Scheduler(const SchedulerConfig& config, KVConnectorHandle connector)
      : state_(config, std::move(connector)) {}

  ErrorCode add_request(const NewRequest& new_request, RequestIndex& out) override;
  ErrorCode schedule(SchedulerOutput& out) override;
  ErrorCode update_from_output(const SchedulerOutput& scheduler_output,
                               const ModelRunnerOutput& model_runner_output,
                               EngineCoreOutputs& out) override;
  ErrorCode update_draft_token_ids(RequestIndex request, std::span<const TokenId> tokens) override;
  void grammar_compiled(RequestIndex request) override;
  void finish_requests(std::span<const RequestIndex> requests, RequestStatus status) override;
  void finish_all_requests(RequestStatus status) override;

  void set_pause_state(PauseState pause_state) override { state_.pause_state = pause_state; }
  PauseState pause_state() const override { return state_.pause_state; }
  bool reset_prefix_cache(bool reset_running_requests, bool reset_connector) override;

  std::optional<RequestIndex> find_request(std::string_view id) const override {
    return state_.find(id);
  }
  RequestView view(RequestIndex request) const override;

  void requests(std::vector<RequestIndex>& out) const override { state_.requests.copy_to(out); }
  void running(std::vector<RequestIndex>& out) const override { state_.running.copy_to(out); }
  void waiting(std::vector<RequestIndex>& out) const override;
  void skipped_waiting(std::vector<RequestIndex>& out) const override;
  std::uint32_t get_num_unfinished_requests() const override;
  bool has_finished_requests() const override;

  const SchedulerConfig& config() const override { return state_.config; }
  KVConnector* connector() override { return state_.connector.get(); }
  const KVCacheManager& kv_cache_manager() const { return state_.kv_cache_manager; }

  BlockCounts block_counts() const override {
    return kv_cache_manager().block_pool().block_counts();
  }
  void observe_blocks(ShownBlocks& out) const override {
    kvfence::observe_blocks(kv_cache_manager().block_pool(), out);
  }
  void get_block_ids(RequestIndex request, BlocksByGroup& out) const override {
    kv_cache_manager().get_block_ids(request, out);
  }

  void add_to(StateHash& hash) const override { hash.add(state_); }

 private:
  bool reset_connector_cache();

  SchedulerState state_;
};

}  // namespace kvfence::optimized
