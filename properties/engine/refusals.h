#pragma once

/// What the rules of all assemblies of target engine expect alike: what is refused since the
/// assembly lacks it, and what an engine refuses of its own commands. They follow
/// properties/engine/driver.h, in its order.

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "contract/core/status.h"
#include "contract/engine/engine_target.h"

namespace kvfence::detail {

/// The refusal of what is not there: an engine, a rank, a connector, a device, tiers, drafts; and
/// of the name of nobody in what drafts, grammars, scripts and reports are for. kUnknownRequest or
/// kNotInConfig; nothing: the command is not refused for that. A request that is added is looked at
/// if its name is new. Which tiers and files there are, and which copies, the rooms know.
std::optional<ErrorCode> refusal_of_foreign(const engine::Command& command,
                                            const EngineSetup& setup, const engine::World& world);

/// kAlreadyDeclared, kNotInConfig (of what the assembly lacks), kNoTokens, kBadRange or
/// kBeyondModelLength, in this order; or kNone.
ErrorCode refusal_of_request(const engine::AddRequest& added, const EngineSetup& setup,
                             const engine::World& world);

/// What an engine has planned and not taken in.
struct InFlight {
  std::size_t num_steps = 0;
  const std::vector<engine::ScheduledRequest>* oldest = nullptr;  ///< null without steps
};

/// steps: oldest first, each with `scheduled`.
template <class Steps>
InFlight in_flight_of(const Steps& steps) {
  return {steps.size(), steps.empty() ? nullptr : &steps.front().scheduled};
}

/// Under a connector with workers, of every command: what refusal_of_foreign says; then, of a
/// request, a plan, an update and an end from outside, what the engine itself refuses, or kNone.
/// Nothing of any other command: a connector may refuse it. in_flight: by EngineRole.
std::optional<ErrorCode> refusal_of_engine(const engine::Command& command, const EngineSetup& setup,
                                           const engine::World& world,
                                           std::span<const InFlight> in_flight);

}  // namespace kvfence::detail
