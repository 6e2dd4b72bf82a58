#pragma once

/// Drafts of the steps in flight of an engine that is alone, for goals.

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
  /// Takes an accepted command in. Whether it brings a step back in which a draft was rejected.
  bool rejects(const Command& command, const Observation& answer) {
    if (has_ended(answer)) steps_.clear();
    if (answer.scheduled.has_value()) {
      std::vector<Drafts>& step = steps_.emplace_back();
      for (const ScheduledRequest& planned : *answer.scheduled) {
        if (!planned.spec_tokens.empty()) {
          step.push_back({planned.request, planned.spec_tokens.size()});
        }
      }
    }
    if (!std::holds_alternative<Update>(command) || steps_.empty()) return false;
    const std::vector<Drafts> step = std::move(steps_.front());
    steps_.pop_front();
    return std::ranges::any_of(step, [&](const Drafts& drafts) {
      const auto output =
          std::ranges::find(*answer.outputs, drafts.request, &RequestOutput::request);
      return output != answer.outputs->end() && !output->tokens.empty() &&
             output->tokens.size() <= drafts.count && !is_finished(output->status);
    });
  }

 private:
  struct Drafts {
    std::string request;
    std::size_t count = 0;
  };

  std::deque<std::vector<Drafts>> steps_;
};

}  // namespace kvfence::engine
