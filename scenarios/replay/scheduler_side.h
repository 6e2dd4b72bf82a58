#pragma once

/// A scheduler as a replay of traffic drives it, whatever its type: directly, without the line
/// language between.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/scheduler/scheduler.h"
#include "properties/core/divergence.h"

namespace kvfence {

/// What a scheduler holds between two operations; names instead of indices.
struct SchedulerState {
  struct OfRequest {
    std::string id;
    RequestStatus status = RequestStatus::kWaiting;
    std::uint32_t num_tokens = 0;
    std::uint32_t num_computed_tokens = 0;
    std::uint32_t num_output_placeholders = 0;
    std::uint32_t num_preemptions = 0;
    std::vector<TokenId> spec_token_ids;
    BlocksByGroup blocks;
    friend bool operator==(const OfRequest&, const OfRequest&) = default;
  };

  std::vector<std::string> running;
  std::vector<std::string> waiting;
  std::vector<std::string> skipped_waiting;
  std::vector<OfRequest> requests;
  std::vector<BlockId> free_queue;
  std::vector<std::uint32_t> ref_cnts;  ///< [num_gpu_blocks]
  std::vector<std::string> keys;        ///< [num_gpu_blocks]; empty for none
  friend bool operator==(const SchedulerState&, const SchedulerState&) = default;
};

/// What can be asked of it after every operation.
struct SchedulerNumbers {
  std::uint32_t num_running = 0;
  std::uint32_t num_unfinished = 0;
  bool has_finished = false;  ///< the next step has finished requests to report
  BlockCounts counts;
  friend bool operator==(const SchedulerNumbers&, const SchedulerNumbers&) = default;
};

/// The operations are those of contract/scheduler/scheduler.h. Steps come back in the order in which they
/// were planned.
class SchedulerSide {
 public:
  virtual ~SchedulerSide() = default;

  virtual ErrorCode add_request(const NewRequest& request, RequestIndex& out) = 0;
  virtual ErrorCode schedule(SchedulerOutput& out) = 0;
  virtual ErrorCode update_from_output(const SchedulerOutput& step, const ModelRunnerOutput& result,
                                       EngineCoreOutputs& out) = 0;
  virtual ErrorCode update_draft_token_ids(RequestIndex request,
                                           std::span<const TokenId> tokens) = 0;

  /// Cost: of the running requests.
  virtual SchedulerNumbers numbers() = 0;

  /// Overwrites out. Cost: of all blocks and requests.
  virtual void observe_state(SchedulerState& out) = 0;

  /// Where two schedulers behind this one parted; after that no operation is asked for.
  virtual const std::optional<Divergence>& divergence() const = 0;
};

/// One scheduler.
template <Scheduler SchedulerType>
class OneScheduler final : public SchedulerSide {
 public:
  explicit OneScheduler(SchedulerType scheduler) : scheduler_(std::move(scheduler)) {}

  ErrorCode add_request(const NewRequest& request, RequestIndex& out) override {
    return scheduler_.add_request(request, out);
  }
  ErrorCode schedule(SchedulerOutput& out) override { return scheduler_.schedule(out); }
  ErrorCode update_from_output(const SchedulerOutput& step, const ModelRunnerOutput& result,
                               EngineCoreOutputs& out) override {
    return scheduler_.update_from_output(step, result, out);
  }
  ErrorCode update_draft_token_ids(RequestIndex request, std::span<const TokenId> tokens) override {
    return scheduler_.update_draft_token_ids(request, tokens);
  }

  SchedulerNumbers numbers() override {
    scheduler_.running(indices_);
    return {static_cast<std::uint32_t>(indices_.size()), scheduler_.get_num_unfinished_requests(),
            scheduler_.has_finished_requests(),
            scheduler_.kv_cache_manager().block_pool().block_counts()};
  }

  void observe_state(SchedulerState& out) override {
    scheduler_.running(indices_);
    names_of(indices_, out.running);
    scheduler_.waiting(indices_);
    names_of(indices_, out.waiting);
    scheduler_.skipped_waiting(indices_);
    names_of(indices_, out.skipped_waiting);
    scheduler_.requests(indices_);
    out.requests.resize(indices_.size());
    for (std::size_t k = 0; k < indices_.size(); ++k) observe(indices_[k], out.requests[k]);
    const auto& pool = scheduler_.kv_cache_manager().block_pool();
    pool.get_all_free_blocks(out.free_queue);
    const std::uint32_t num_blocks = pool.config().num_gpu_blocks;
    out.ref_cnts.resize(num_blocks);
    out.keys.resize(num_blocks);
    for (BlockId block = 0; block < num_blocks; ++block) {
      out.ref_cnts[block] = pool.ref_cnt(block);
      out.keys[block].assign(std::string_view(pool.block_key(block)));
    }
  }

  const std::optional<Divergence>& divergence() const override { return none_; }

 private:
  void names_of(std::span<const RequestIndex> indices, std::vector<std::string>& names) const {
    names.resize(indices.size());
    for (std::size_t k = 0; k < indices.size(); ++k) names[k] = scheduler_.view(indices[k]).id;
  }

  void observe(RequestIndex index, SchedulerState::OfRequest& out) const {
    const RequestView view = scheduler_.view(index);
    out.id = view.id;
    out.status = view.status;
    out.num_tokens = static_cast<std::uint32_t>(view.request.all_token_ids().size());
    out.num_computed_tokens = view.num_computed_tokens;
    out.num_output_placeholders = view.num_output_placeholders;
    out.num_preemptions = view.num_preemptions;
    out.spec_token_ids.assign(view.spec_token_ids.begin(), view.spec_token_ids.end());
    scheduler_.kv_cache_manager().get_block_ids(index, out.blocks);
  }

  SchedulerType scheduler_;
  std::vector<RequestIndex> indices_;
  std::optional<Divergence> none_;
};

}  // namespace kvfence
