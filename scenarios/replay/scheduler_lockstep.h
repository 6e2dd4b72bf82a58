#pragma once

/// Two schedulers in lockstep behind a replay of traffic: what the replay asks for goes to both as
/// commands of an engine without a connector, and what the expected side showed comes back.
/// Equality and rules are the lockstep's; events and the connector's statistics are compared there
/// and not handed on.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "contract/core/implementation.h"
#include "contract/engine/engine_target.h"
#include "properties/core/lockstep.h"
#include "scenarios/replay/scheduler_side.h"

namespace kvfence {

class SchedulersInLockstep final : public SchedulerSide {
 public:
  /// Requires: implementations of target `engine`; a configuration that is valid, of assembly
  /// `scheduler`.
  /// state_every: LockstepOptions.
  SchedulersInLockstep(std::unique_ptr<Implementation> expected,
                       std::unique_ptr<Implementation> actual, const engine::Config& config,
                       std::uint32_t state_every);

  ErrorCode add_request(const NewRequest& request, RequestIndex& out) override;
  ErrorCode schedule(SchedulerOutput& out) override;
  ErrorCode update_from_output(const SchedulerOutput& step, const ModelRunnerOutput& result,
                               EngineCoreOutputs& out) override;
  ErrorCode update_draft_token_ids(RequestIndex request, std::span<const TokenId> tokens) override;
  SchedulerNumbers numbers() override;
  /// Its step counts the calls of schedule, from 1.
  const std::optional<Divergence>& divergence() const override { return divergence_; }

 private:
  /// What both sides answer to a command.
  ErrorCode step(engine::Command command);
  const engine::SchedulerObservation& seen() const {
    return lockstep_.last_expected().numbers.as<engine::Observation>();
  }
  RequestIndex index_of(const std::string& name) const { return index_of_.at(name); }

  std::unique_ptr<Implementation> expected_;
  std::unique_ptr<Implementation> actual_;
  Lockstep lockstep_;
  std::uint32_t num_gpu_blocks_;
  std::uint64_t num_steps_ = 0;
  /// Requests have indices here in the order in which they were added.
  std::vector<std::string> names_;
  std::unordered_map<std::string, RequestIndex> index_of_;
  std::optional<Divergence> divergence_;
};

}  // namespace kvfence
