#pragma once

/// Finds rounds of steps: a scheduler that computes and returns to an earlier state.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/engine/engine_target.h"

namespace kvfence::engine {

/// Whether only running requests hold blocks. Blocks that are held for a copy or a finished request
/// are released later, which ends a round. Those of a request that has loaded and waits for a seat
/// are not, in upstream either
/// (scenarios/cases/engine/scheduler/preemption/rounds_beside_a_loaded_request.kvs).
bool only_running_hold_blocks(const SchedulerObservation& shown, std::uint32_t num_base_blocks);

/// Remembers the state of the requests after each step. Any other event forgets them: a command
/// that is not a step, a copy that ended or failed. A step advances the requests by what it
/// computes, so no state comes again unless a preemption has undone that.
class StepRounds {
 public:
  struct Round {
    std::size_t num_steps = 0;
    std::vector<std::string> preempted;  ///< during these steps, in order
  };

  /// After an accepted command. num_base_blocks: null blocks and sinks, which come first.
  /// Cost: linear in the requests and the remembered steps. Returns: the round that this step
  /// closes; null if none. It is valid until the next call.
  const Round* take(const Command& command, const SchedulerObservation& shown,
                    std::uint32_t num_base_blocks);
  void forget() { met_.clear(); }

 private:
  struct Met {
    StateDigest requests;
    std::vector<std::string> preempted;  ///< by that step
  };
  std::vector<Met> met_;  ///< oldest first
  Round round_;
};

}  // namespace kvfence::engine
