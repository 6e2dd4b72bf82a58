#pragma once

/// The drafts of an engine's steps in flight, for goals.

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "contract/engine/engine_target.h"

namespace kvfence::engine {

class DraftsInFlight {
 public:
  explicit DraftsInFlight(EngineRole role = EngineRole::kProducer) : role_(role) {}

  /// Takes in an accepted command. Returns: whether it completes a step of this engine in which a
  /// draft was rejected.
  bool rejects(const Command& command, const Observation& answer) {
    const auto* const drained = std::get_if<Drain>(&command);
    if (has_ended(answer) || (drained && drained->engine == role_)) steps_.clear();
    const EngineObservation& shown = answer.of(role_);
    if (shown.scheduled.has_value()) {
      std::vector<Drafts>& step = steps_.emplace_back();
      for (const ScheduledRequest& planned : *shown.scheduled) {
        if (!planned.spec_tokens.empty()) {
          step.push_back({planned.request, planned.spec_tokens.size()});
        }
      }
    }
    const auto* const update = std::get_if<Update>(&command);
    if (!update || update->engine != role_ || steps_.empty()) return false;
    const std::vector<Drafts> step = std::move(steps_.front());
    steps_.pop_front();
    return std::ranges::any_of(step, [&](const Drafts& drafts) {
      const auto output =
          std::ranges::find(*shown.outputs, drafts.request, &RequestOutput::request);
      return output != shown.outputs->end() && !output->tokens.empty() &&
             output->tokens.size() <= drafts.count && !is_finished(output->status);
    });
  }

 private:
  struct Drafts {
    std::string request;
    std::size_t count = 0;
  };

  EngineRole role_;
  std::deque<std::vector<Drafts>> steps_;
};

}  // namespace kvfence::engine
