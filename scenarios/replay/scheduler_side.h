#pragma once

/// A scheduler as a replay of traffic drives it, whatever its type: one alone, called directly, so
/// that its time can be taken; or two in lockstep (scenarios/replay/scheduler_lockstep.h).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "contract/scheduler/scheduler.h"
#include "properties/core/divergence.h"

namespace kvfence {

/// What can be asked of it after every operation.
struct SchedulerNumbers {
  std::uint32_t num_running = 0;
  std::uint32_t num_unfinished = 0;
  bool has_finished = false;  ///< the next step has finished requests to report
  BlockCounts counts;
  friend bool operator==(const SchedulerNumbers&, const SchedulerNumbers&) = default;
};

/// The operations are those of contract/scheduler/scheduler.h. Steps come back in the order in
/// which they were planned.
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

  const std::optional<Divergence>& divergence() const override { return none_; }

 private:
  SchedulerType scheduler_;
  std::vector<RequestIndex> indices_;
  std::optional<Divergence> none_;
};

}  // namespace kvfence
