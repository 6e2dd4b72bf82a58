#pragma once

/// What the replays share: where their commands go (to two implementations in lockstep, or to one
/// alone, for the figures), how far they are, and what traffic finds wrong.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "contract/core/implementation.h"
#include "contract/core/scenario.h"
#include "properties/core/checks.h"
#include "properties/core/divergence.h"
#include "properties/core/lockstep.h"

namespace kvfence {

/// Called with the number of requests that are done, and of all, after each or after every step;
/// never to be slow.
using ReplayProgress = std::function<void(std::size_t done, std::size_t total)>;

/// An answer that nobody may give to well-formed traffic. In lockstep the rules are there before.
Divergence traffic_divergence(std::size_t step, std::string field, std::string expected,
                              std::string actual, std::string message);

/// What is wrong with an option, which has no place in a file.
inline InputError option_error(std::string found, std::string expected) {
  return {{}, {}, std::move(found), std::move(expected)};
}

class ReplaySides {
 public:
  /// actual: null if `expected` runs alone; then its state is never asked for, and of the checks
  /// only the target counts.
  /// state_every: LockstepOptions.
  ReplaySides(const Checks& checks, Implementation& expected, Implementation* actual,
              std::uint32_t state_every);

  /// From now on the first `num_commands` commands are kept, to report a divergence as a scenario.
  void keep_commands(std::size_t num_commands) { num_kept_ = num_commands; }

  std::optional<Divergence> start(const Setup& setup);
  std::optional<Divergence> step(const Command& command, bool want_state = false);
  std::optional<Divergence> finish();

  /// What the expected side answered to the last command; default numbers before the first one.
  const Observation& seen() const { return lockstep_ ? lockstep_->last_expected() : seen_; }
  std::size_t num_commands() const { return num_commands_; }
  /// What was kept.
  const Scenario& scenario() const { return scenario_; }

 private:
  std::optional<Divergence> alone_failed(const std::optional<ImplementationFailure>& failure) const;

  Implementation& expected_;
  std::optional<Lockstep> lockstep_;
  std::unique_ptr<World> world_;  ///< of one that runs alone, as is what it showed last
  Observation seen_;
  Scenario scenario_;
  std::size_t num_kept_ = 0;
  std::size_t num_commands_ = 0;
};

}  // namespace kvfence
