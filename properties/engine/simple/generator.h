#pragma once

/// Draws configurations and commands for engines with a SimpleCPUOffloadConnector: two small block
/// pools that run out all the time, requests that share prefixes, copy engines that are eager, lazy
/// or uneven between the ranks and directions, aborts and resets while copies are under way, and
/// now and then a command that no engine sends.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "contract/engine/engine_target.h"
#include "properties/core/choices.h"
#include "properties/core/swarm.h"
#include "properties/engine/request_draws.h"

namespace kvfence::engine::simple {

class Generator {
 public:
  /// A valid configuration of 5 to 20 GPU blocks and 1 to 12 CPU blocks, eager or lazy, with each
  /// profile's rules and mixtures of them. With several groups nobody reads the GPU's cache.
  static Config draw_config(Choices& choices);

  /// Draws the habits of this episode: which actions are frequent, how many requests live at once,
  /// how long they are, and how each rank's copy engine works.
  Generator(const Config& config, Choices& choices);

  /// The next command, given what was answered to the one before. The caller runs every command
  /// that is drawn, and the world has taken it in. An observation without the state leaves the
  /// picture of requests and copies as it was.
  Command next(Choices& choices, const Observation& now, const World& world);

 private:
  /// What an engine, a client or an operator does next.
  enum class Action : std::uint8_t { kStep, kAdd, kFinish, kFinishAll, kPause, kReset };
  static constexpr std::size_t kNumActions = static_cast<std::size_t>(Action::kReset) + 1;

  /// Of a rank's engine: a copy goes on in one command of so many.
  struct Lateness {
    std::uint32_t load_in = 1;
    std::uint32_t store_in = 1;
  };

  void draw_lateness(Choices& choices);
  void take_in(const Observation& now);
  Command draw(Choices& choices, const World& world);
  Command step(Choices& choices) const;
  Command add(Choices& choices, const World& world);
  /// What a copy engine does now, if anything.
  std::optional<Command> copy(Choices& choices) const;

  /// Bends one argument, or the order of things, so that a refusal or an unusual call comes out.
  Command bent(Choices& choices, Command command) const;

  Config config_;
  Swarm<Action, kNumActions> swarm_;
  RequestHabits requests_;
  std::uint32_t live_max_ = 1;
  std::uint32_t burst_max_ = 1;  ///< requests that come together at most
  std::uint32_t idle_in_ = 0;    ///< one step in so many is not planned ahead; 0: each is
  std::uint32_t part_in_ = 4;    ///< one advance in so many does not reach the end
  std::uint32_t odd_in_ = 48;    ///< one command in so many is bent
  std::vector<Lateness> late_;   ///< by rank

  std::optional<Command> last_;
  std::vector<RequestState> known_;  ///< in the order of adding
  std::vector<Copy> copies_;
  std::vector<std::string> names_;  ///< all that were accepted
  std::deque<std::vector<ScheduledRequest>> in_flight_;
  PauseState pause_state_ = PauseState::kUnpaused;
  std::uint32_t burst_left_ = 0;
  std::uint32_t arrival_time_ = 0;
  std::uint32_t next_name_ = 0;
};

}  // namespace kvfence::engine::simple
