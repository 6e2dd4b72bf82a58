#pragma once

/// Shared by the replays: their sides (two implementations in lockstep, or one alone for the
/// figures), their progress, and the failures that traffic finds.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "contract/core/implementation.h"
#include "contract/core/scenario.h"
#include "contract/pool/kv_events.h"
#include "properties/core/checks.h"
#include "properties/core/divergence.h"
#include "properties/core/lockstep.h"

namespace kvfence {

/// Called with the number of requests that are done, and of all, after each request or step. Must
/// be fast.
using ReplayProgress = std::function<void(std::size_t done, std::size_t total)>;

/// The receiver of the KV events that a replay collects.
struct EventsTap {
  /// time_us: of the trace, in microseconds since its start. keys: of the blocks right now, by
  /// block id. False: the replay is over.
  using Take = std::function<bool(std::uint64_t time_us, const std::vector<KVCacheEvent>& events,
                                  const std::vector<BlockHash>& keys)>;
  Take take;  ///< empty: no receiver
  /// False: keys are empty, since reading them costs the whole pool each time.
  bool wants_keys = false;
};

/// An error of an option, which has no position in a file.
inline InputError option_error(std::string found, std::string expected) {
  return {{}, {}, std::move(found), std::move(expected)};
}

/// The n-th request, from 0, and back.
inline std::string request_name(std::size_t number) { return "r" + std::to_string(number); }
inline std::size_t request_number(const std::string& name) { return std::stoul(name.substr(1)); }

/// How a replay ended.
struct ReplayEnd {
  std::size_t commands = 0;
  std::optional<Divergence> divergence;
  /// All commands up to and including the one that diverged; present if and only if the divergence
  /// is and they were kept.
  std::optional<Scenario> scenario;
};

/// A replay is over at its first divergence.
class ReplaySides {
 public:
  /// actual: null if `expected` runs alone; then of the checks only the target counts.
  /// state_every: LockstepOptions.
  /// promise: the report on a refusal: "the traffic asks only for what a pool has to grant".
  ReplaySides(const Checks& checks, Implementation& expected, Implementation* actual,
              std::uint32_t state_every, std::string promise);

  /// From now on commands are kept, to report a divergence as a scenario.
  void keep_commands() { keeps_commands_ = true; }

  void start(const Setup& setup);
  /// Sends one command; false: the replay is over. may_refuse: errors that are answers.
  bool send(const Command& command, bool want_state = false,
            std::initializer_list<ErrorCode> may_refuse = {});

  /// Reports an answer that well-formed traffic must not get; in lockstep the rules find it before.
  /// False: the replay is over.
  bool diverge(std::string field, std::string expected, std::string actual, std::string message);
  /// The same for an answer that breaks the promise.
  bool refuse(std::string field, std::string expected, std::string actual);

  bool is_over() const { return divergence_.has_value(); }
  ReplayEnd end() const;

  /// What the expected side answered to the last command; default numbers before the first one.
  const Observation& seen() const { return lockstep_ ? lockstep_->last_expected() : seen_; }

 private:
  void take_failure(const std::optional<ImplementationFailure>& failure);

  Implementation& expected_;
  std::string promise_;
  std::optional<Lockstep> lockstep_;
  std::unique_ptr<World> world_;  ///< of one that runs alone, as is what it showed last
  Observation seen_;
  Scenario scenario_;
  bool keeps_commands_ = false;
  std::size_t num_commands_ = 0;
  std::optional<Divergence> divergence_;
};

}  // namespace kvfence
