#pragma once

/// Draws configurations and commands for engines with a synchronous connector: requests that share
/// prefixes on a small block pool, so that they are preempted and resumed; other engines that
/// write, lose and damage files of the same prompts, whole ones and parts; file operations that
/// fail; now and then a command that no engine sends.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "contract/engine/engine_target.h"
#include "properties/core/choices.h"
#include "properties/core/swarm.h"
#include "properties/engine/request_draws.h"

namespace kvfence::engine::files {

class Generator {
 public:
  /// A valid configuration of 5 to 20 GPU blocks, 1 to 3 ranks of 1 or 2 layers, of either
  /// connector and profile. Several groups: DecodeBenchConnector, and nobody reads the GPU's cache.
  static Config draw_config(Choices& choices);

  /// Draws the habits of this episode: which actions are frequent, how many requests live at once,
  /// how long they are, and what happens to files.
  Generator(const Config& config, Choices& choices);

  /// The next command, given what was answered to the one before. The caller runs every command
  /// that is drawn, and the world has taken it in. An observation without the state leaves the
  /// picture of requests as it was.
  Command next(Choices& choices, const Observation& now, const World& world);

 private:
  /// What an engine, a client, an operator or another engine does next.
  enum class Action : std::uint8_t {
    kStep,
    kAdd,
    kFinish,
    kFinishAll,
    kPause,
    kReset,
    kWriteEntry,
    kRemoveEntry,
    kDamageFile,
    kFault,
  };
  static constexpr std::size_t kNumActions = static_cast<std::size_t>(Action::kFault) + 1;

  using Tokens = std::vector<TokenId>;

  void take_in(const Observation& now);
  void take_in_update(const Observation& now);
  Command draw(Choices& choices, const World& world);
  Command step(Choices& choices) const;
  Command add(Choices& choices, const World& world);

  // Files.
  Tokens whole_blocks(const Tokens& tokens, std::size_t num_tokens) const;
  /// Tokens whose folder may be there, or asked for.
  Tokens draw_tokens(Choices& choices) const;
  WriteEntry write(Choices& choices, Tokens tokens) const;
  Command damage(Choices& choices) const;
  /// What is to be done about a file that ended an engine.
  Command repair(Choices& choices);
  std::uint32_t num_layers() const { return config_.ranks * num_layers_of_rank_; }

  /// Bends one argument, or the order of things, so that a refusal or an unusual call comes out.
  Command bent(Choices& choices, Command command) const;

  Config config_;
  bool keeps_files_ = true;
  std::uint32_t num_layers_of_rank_ = 1;
  Swarm<Action, kNumActions> swarm_;
  RequestHabits requests_;
  std::uint32_t live_max_ = 1;
  std::uint32_t burst_max_ = 1;     ///< requests that come together at most
  std::uint32_t idle_in_ = 0;       ///< one step in so many is not planned ahead; 0: each is
  std::uint32_t part_in_ = 6;       ///< one entry in so many is not written to its end
  std::uint32_t resumable_in_ = 2;  ///< one victim in so many finds what it will load
  std::uint32_t odd_in_ = 48;       ///< one command in so many is bent

  std::optional<Command> last_;
  std::vector<RequestState> known_;       ///< in the order of adding
  std::map<std::string, Tokens> tokens_;  ///< by name, outputs included
  std::vector<std::string> names_;        ///< all that were accepted
  std::vector<Tokens> entries_;           ///< that were written from outside
  std::deque<std::vector<ScheduledRequest>> in_flight_;
  std::deque<std::string> victims_;  ///< whose tokens another engine may write
  bool must_repair_ = false;
  std::string failed_folder_;
  PauseState pause_state_ = PauseState::kUnpaused;
  std::uint32_t burst_left_ = 0;
  std::uint32_t next_name_ = 0;
};

}  // namespace kvfence::engine::files
