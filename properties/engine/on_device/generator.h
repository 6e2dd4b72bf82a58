#pragma once

/// Draws configurations and commands for engines with the OffloadingConnector over devices: GPU
/// blocks that run out all the time, few slots, requests that share prefixes, ranks and streams
/// that are eager or lazy, transfers that fail, steps that run ahead, aborts and resets while
/// copies are under way, and now and then a command that no engine sends.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/engine/engine_target.h"
#include "properties/core/choices.h"
#include "properties/core/swarm.h"
#include "properties/engine/request_draws.h"

namespace kvfence::engine::on_device {

class Generator {
 public:
  /// A valid configuration of 5 to 20 GPU blocks and 1 to 9 slots.
  static Config draw_config(Choices& choices);

  /// Draws the habits of this episode: which actions are frequent, how many requests live at once,
  /// how long they are, and how soon each stream runs.
  Generator(const Config& config, Choices& choices);

  /// The next command, given what was answered to the one before.
  Command next(Choices& choices, const Observation& now, const World& world);

 private:
  /// What an engine, a client or an operator does next.
  enum class Action : std::uint8_t { kStep, kAdd, kFinish, kFinishAll, kReset, kDrain, kFail };
  static constexpr std::size_t kNumActions = static_cast<std::size_t>(Action::kFail) + 1;

  void take_in(const Observation& now);
  Command draw(Choices& choices, const World& world);
  Command step(Choices& choices) const;
  Command add(Choices& choices, const World& world);
  Command fail(Choices& choices) const;
  Command bent(Choices& choices, Command command) const;

  Config config_;
  Swarm<Action, kNumActions> swarm_;
  RequestHabits requests_;
  std::uint32_t live_max_ = 1;
  std::uint32_t burst_max_ = 1;  ///< requests that come together at most
  std::uint32_t idle_in_ = 0;    ///< one step in so many is not planned ahead
  std::uint32_t odd_in_ = 48;    ///< one command in so many is bent
  /// By rank: a stream goes on in one command of so many.
  std::vector<std::array<std::uint32_t, 3>> late_in_;

  std::optional<Command> last_;
  std::vector<RequestState> known_;  ///< in the order of adding
  std::vector<std::string> names_;   ///< all that were accepted
  std::uint32_t num_planned_ = 0;    ///< steps, not taken in
  std::uint32_t num_executed_ = 0;   ///< of them
  std::uint32_t num_polled_ = 0;     ///< of those
  std::uint32_t num_transfers_ = 0;
  std::uint32_t burst_left_ = 0;
  std::uint32_t arrival_time_ = 0;
  std::uint32_t next_name_ = 0;
};

}  // namespace kvfence::engine::on_device
