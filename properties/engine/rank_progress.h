#pragma once

/// The progress of an engine's ranks through the steps in flight. Each rank takes them in order,
/// and polls one before it executes the next. One rank may be ahead of another.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/engine/engine_target.h"

namespace kvfence::engine {

class RankProgress {
 public:
  explicit RankProgress(std::uint32_t num_ranks = 0) : ranks_(num_ranks) {}

  // The ranks that a command goes to, ascending: the rank that it names, or the ranks that have
  // done least. None: it is refused. Requires: the named rank exists.
  std::vector<std::uint32_t> executing(std::optional<std::uint32_t> rank,
                                       std::size_t num_planned) const {
    return whose(&Done::num_executed, rank, [num_planned](const Done& done) {
      return done.num_executed < num_planned && done.num_polled == done.num_executed;
    });
  }
  std::vector<std::uint32_t> polling(std::optional<std::uint32_t> rank) const {
    return whose(&Done::num_polled, rank,
                 [](const Done& done) { return done.num_polled < done.num_executed; });
  }

  void execute(const std::vector<std::uint32_t>& whose) {
    for (const std::uint32_t rank : whose) ++ranks_[rank].num_executed;
  }
  void poll(const std::vector<std::uint32_t>& whose) {
    for (const std::uint32_t rank : whose) ++ranks_[rank].num_polled;
  }
  /// The oldest step came back. Requires: all ranks have polled it.
  void update() {
    for (Done& done : ranks_) {
      --done.num_executed;
      --done.num_polled;
    }
  }

  /// Takes in an accepted command to the engine.
  void take_in(const Command& command, const Observation& answer) {
    if (has_ended(answer) || std::holds_alternative<Drain>(command)) {
      std::ranges::fill(ranks_, Done());
    } else if (const auto* to_execute = std::get_if<Execute>(&command)) {
      execute(executing(to_execute->rank, SIZE_MAX));
    } else if (const auto* to_poll = std::get_if<Poll>(&command)) {
      poll(polling(to_poll->rank));
    } else if (std::holds_alternative<Update>(command)) {
      update();
    }
  }

  std::uint32_t num_executed(std::uint32_t rank) const { return ranks_[rank].num_executed; }
  std::uint32_t num_polled(std::uint32_t rank) const { return ranks_[rank].num_polled; }
  std::uint32_t num_executed_by_one() const {
    return std::ranges::max(ranks_, {}, &Done::num_executed).num_executed;
  }
  std::uint32_t num_executed_by_all() const {
    return std::ranges::min(ranks_, {}, &Done::num_executed).num_executed;
  }
  /// Whether a rank has executed a step while another has not executed the step before it.
  bool is_one_ahead() const { return num_executed_by_one() > num_executed_by_all() + 1; }
  std::uint32_t num_polled_by_all() const {
    return std::ranges::min(ranks_, {}, &Done::num_polled).num_polled;
  }

  void add_to(StateHash& hash) const { hash.add(ranks_); }

 private:
  /// Of the steps in flight.
  struct Done {
    std::uint32_t num_executed = 0;
    std::uint32_t num_polled = 0;
  };

  std::vector<std::uint32_t> whose(std::uint32_t Done::*num_done, std::optional<std::uint32_t> rank,
                                   auto can) const {
    const std::uint32_t least =
        ranks_.empty() ? 0 : std::ranges::min(ranks_, {}, num_done).*num_done;
    std::vector<std::uint32_t> found;
    for (std::uint32_t each = 0; each < ranks_.size(); ++each) {
      if (rank ? each != *rank : ranks_[each].*num_done != least) continue;
      if (!can(ranks_[each])) return {};
      found.push_back(each);
    }
    return found;
  }

  std::vector<Done> ranks_;
};

}  // namespace kvfence::engine
