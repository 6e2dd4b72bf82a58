#pragma once

/// Draws engines with an OffloadingConnector over scripted copies, and their commands: GPU blocks
/// that run out all the time, few slots of CPU memory, tiers below them in a share of the episodes,
/// requests that share prefixes, copy engines and tiers that are eager, lazy or uneven, aborts and
/// resets while copies are under way, and now and then a command that no engine sends.

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

namespace kvfence::engine::offloading {

class Generator {
 public:
  /// A valid configuration of 5 to 20 GPU blocks and 1 to 12 slots. Groups, block sizes and
  /// failures are those with which upstream does not trip over its own assertions: windowed groups
  /// have one block size, which divides that of the others; with several groups nobody reads the
  /// GPU's cache.
  static Config draw_config(Choices& choices);

  /// Draws the habits of this episode: which actions are frequent, how many requests live at once,
  /// how long they are, and how each rank's copy engine works.
  Generator(const Config& config, Choices& choices);

  /// The next command, given what was answered to the one before. The caller runs every command
  /// that is drawn, and the world has taken it in. An observation without the state leaves the
  /// picture of requests and transfers as it was.
  Command next(Choices& choices, const Observation& now, const World& world);

 private:
  /// What an engine, a client or an operator does next.
  enum class Action : std::uint8_t {
    kStep,
    kAdd,
    kFinish,
    kFinishAll,
    kPause,
    kReset,
    kReportAgain,
    kTier,
  };
  static constexpr std::size_t kNumActions = static_cast<std::size_t>(Action::kTier) + 1;

  void take_in(const Observation& now);
  Command draw(Choices& choices, const World& world);
  Command step(Choices& choices) const;
  Command add(Choices& choices, const World& world);
  /// What a copy engine does now, if anything.
  std::optional<Command> copy(Choices& choices) const;
  bool may_fail(const EngineTransfer& transfer) const;
  /// A job of a tier that is over now, if any is.
  std::optional<Command> end_tier_job(Choices& choices, const World& world);
  /// What goes wrong in the files of a tier before it is over, if anything does.
  std::optional<Command> spoil(Choices& choices, const TierTransfer& job, const World& world) const;
  /// What happens to the blocks of a request in a tier, if it has any.
  std::optional<Command> change_tier(Choices& choices, const std::string& request,
                                     const World& world) const;

  /// Bends one argument, or the order of things, so that a refusal or an unusual call comes out.
  Command bent(Choices& choices, Command command) const;

  Config config_;
  Record record_;  ///< of the connector
  Swarm<Action, kNumActions> swarm_;
  RequestHabits requests_;
  std::uint32_t live_max_ = 1;
  std::uint32_t burst_max_ = 1;         ///< requests that come together at most
  std::uint32_t idle_in_ = 0;           ///< one step in so many is not planned ahead; 0: each is
  std::uint32_t part_in_ = 4;           ///< one advance in so many does not reach the end
  std::uint32_t fail_in_ = 6;           ///< one end in so many is a failure, where there may be any
  std::uint32_t odd_in_ = 48;           ///< one command in so many is bent
  std::vector<std::uint32_t> late_in_;  ///< by rank: a copy goes on in one command of so many
  OffloadingSpec spec_;
  std::uint32_t tier_late_in_ = 1;  ///< a tier's job is over in one command of so many
  std::uint32_t tier_fail_in_ = 8;  ///< one of so many has failed
  std::uint32_t spoiled_in_ = 6;    ///< of one job of a file tier in so many something goes wrong
  std::uint32_t found_in_ = 4;      ///< of one new request in so many a tier has blocks already

  std::optional<Command> last_;
  std::vector<RequestState> known_;  ///< in the order of adding
  std::vector<EngineTransfer> transfers_;
  std::vector<EngineTransfer> reported_;  ///< lately
  std::vector<TierTransfer> tier_jobs_;
  std::vector<std::uint32_t> ended_tier_jobs_;  ///< lately; not polled yet
  std::vector<std::string> names_;              ///< all that were accepted
  std::deque<std::vector<ScheduledRequest>> in_flight_;
  PauseState pause_state_ = PauseState::kUnpaused;
  std::uint32_t burst_left_ = 0;
  std::uint32_t arrival_time_ = 0;
  std::uint32_t next_name_ = 0;
};

}  // namespace kvfence::engine::offloading
