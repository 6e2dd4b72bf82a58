#pragma once

/// Drafts of the steps in flight of an engine that is alone, for goals.

#include <algorithm>
#include <deque>
#include <utility>
#include <variant>
#include <vector>

#include "contract/engine/engine_target.h"

namespace kvfence::engine {

class DraftsInFlight {
 public:
  /// Takes an accepted command in. Whether it brings a step back in which a draft was rejected.
  bool rejects(const Command& command, const Observation& answer) {
    if (has_ended(answer)) steps_.clear();
    if (answer.scheduled.has_value()) steps_.push_back(*answer.scheduled);
    if (!std::holds_alternative<Update>(command) || steps_.empty()) return false;
    const std::vector<ScheduledRequest> step = std::move(steps_.front());
    steps_.pop_front();
    return std::ranges::any_of(*answer.outputs, [&](const RequestOutput& output) {
      const auto planned = std::ranges::find(step, output.request, &ScheduledRequest::request);
      return planned != step.end() && !output.tokens.empty() &&
             output.tokens.size() <= planned->spec_tokens.size() && !is_finished(output.status);
    });
  }

 private:
  std::deque<std::vector<ScheduledRequest>> steps_;
};

}  // namespace kvfence::engine
