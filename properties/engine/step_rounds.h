#pragma once

/// Whether the steps of a scheduler go round: they compute, and come back to where they were.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/engine/engine_target.h"

namespace kvfence::engine {

/// Blocks that are held for a copy, or for a request that finished, are let go some day, which ends
/// the round. Those of a request that has loaded and waits for a seat are not, in upstream either
/// (scenarios/cases/engine/scheduler/preemption/rounds_beside_a_loaded_request.kvs).
bool only_running_hold_blocks(const SchedulerObservation& shown, std::uint32_t num_base_blocks);

/// Remembers what the requests were after each step since anything else happened: a command that is
/// no step, a copy that ended or failed. What a step computes leaves the requests further on, so
/// none of these states is met again, unless preemption has undone it.
class StepRounds {
 public:
  struct Round {
    std::size_t num_steps = 0;
    std::vector<std::string> preempted;  ///< during these, in order
  };

  /// After an accepted command. num_base_blocks: null blocks and sinks, which come first.
  /// Cost: linear in the requests, and in the steps that are remembered.
  /// Returns: the round that this step closes; null if none. It is valid until the next call.
  const Round* take(const Command& command, const SchedulerObservation& shown,
                    std::uint32_t num_base_blocks);
  void forget() { met_.clear(); }

 private:
  struct Met {
    StateDigest requests;
    std::vector<std::string> preempted;  ///< by the step
  };
  std::vector<Met> met_;  ///< oldest first
  Round round_;
};

}  // namespace kvfence::engine
