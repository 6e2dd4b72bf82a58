#pragma once

/// Draws configurations and commands of two engines over NIXL, with clients and a router: pools
/// that run out all the time, a transport that is eager, lazy or uneven between the ranks, a clock
/// that reaches deadlines, aborts on either side at any time, and now and then a command that no
/// engine sends.

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

namespace kvfence::engine::nixl {

class Generator {
 public:
  /// A valid configuration of 5 to 20 blocks an engine, up to 4 ranks each, and small deadlines.
  static Config draw_config(Choices& choices);

  /// Draws the habits of this episode: which actions are frequent, how many requests live at once,
  /// how long they are, and how the transport works.
  Generator(const Config& config, Choices& choices);

  /// The next command, given what was answered to the one before. The caller runs every command
  /// that is drawn, and the world has taken it in. An observation without the state leaves the
  /// picture of requests and transport as it was.
  Command next(Choices& choices, const Observation& now, const World& world);

 private:
  /// What an engine, a client, the router or an operator does next.
  enum class Action : std::uint8_t {
    kStepProducer,
    kStepConsumer,
    kAdd,
    kAddLocal,
    kHandOver,
    kHandOverAgain,
    kFinish,
    kFinishAll,
    kPause,
    kReset,
    kRepeatNotice,
    kClock,
  };
  static constexpr std::size_t kNumActions = static_cast<std::size_t>(Action::kClock) + 1;

  struct Engine {
    std::vector<RequestState> known;  ///< in the order of adding
    std::deque<std::vector<ScheduledRequest>> in_flight;
    PauseState pause_state = PauseState::kUnpaused;
  };

  Engine& engine_of(EngineRole role) { return engines_[static_cast<std::size_t>(role)]; }
  const Engine& engine_of(EngineRole role) const {
    return engines_[static_cast<std::size_t>(role)];
  }

  void take_in(const Observation& now);
  void take_in_answer(const Observation& now);
  Command draw(Choices& choices, const World& world);
  Command step(EngineRole role, Choices& choices) const;
  Update update(EngineRole role, Choices& choices) const;
  Command add(EngineRole role, Choices& choices, const World& world);
  Command hand_over(std::string request, Choices& choices, const World& world);
  Command hand_over_early(Choices& choices, const World& world);
  Command finish(Choices& choices) const;
  Command advance_clock(Choices& choices) const;
  /// What the transport does now, if anything.
  std::optional<Command> carry(Choices& choices) const;

  /// Bends one argument, or the order of things, so that a refusal or an unusual call comes out.
  Command bent(Choices& choices, Command command) const;
  EngineRole any_engine(Choices& choices) const;
  std::string new_name(const World& world);
  std::string any_name(Choices& choices) const;
  std::size_t num_live(EngineRole role) const;

  Config config_;
  Record record_;
  Swarm<Action, kNumActions> swarm_;
  std::uint32_t prompt_max_ = 1;  ///< tokens that leave room for others
  std::uint32_t live_max_ = 1;    ///< of an engine
  std::uint32_t output_max_ = 1;
  std::uint32_t vary_in_ = 6;    ///< one block in so many differs from the shared prefix
  std::uint32_t decode_in_ = 8;  ///< one request in so many decodes at the producer
  std::uint32_t idle_in_ = 0;    ///< one step in so many is not planned ahead; 0: each is
  std::uint32_t part_in_ = 4;    ///< one advance in so many does not reach the end
  std::uint32_t fail_in_ =
      6;  ///< one end in so many is a failure or a loss, where there may be any
  std::uint32_t odd_in_ = 48;                  ///< one command in so many is bent
  std::vector<std::uint32_t> read_late_in_;    ///< by rank: a read goes on once in so many commands
  std::vector<std::uint32_t> notice_late_in_;  ///< by producer's rank: as long takes a notice

  std::optional<Command> last_;
  std::array<Engine, 2> engines_;
  std::vector<ReadState> reads_;
  std::vector<NoticeState> notices_;
  std::vector<NoticeId> delivered_;       ///< lately
  std::vector<std::string> prefills_;     ///< nobody has got them yet
  std::vector<std::string> handed_over_;  ///< lately
  std::vector<std::string> names_;        ///< all that were accepted
  std::uint32_t arrival_time_ = 0;
  std::uint32_t next_name_ = 0;
};

}  // namespace kvfence::engine::nixl
