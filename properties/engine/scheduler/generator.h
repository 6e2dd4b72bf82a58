#pragma once

/// Draws configurations and commands for a scheduler alone or under the scripted connector: tiny
/// pools that run out all the time, an engine that plans and takes back steps, clients that add and
/// abort, a connector whose loads come late or fail, and now and then a command that no engine
/// sends.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "contract/engine/engine_target.h"
#include "properties/core/choices.h"
#include "properties/core/swarm.h"

namespace kvfence::engine::scheduler {

class Generator {
 public:
  /// A valid configuration of Assembly::kScheduler: 5 to 24 blocks, the groups that
  /// kv_cache::Generator draws and often a single one of full attention, every setting of the
  /// scheduler.
  static Config draw_config(Choices& choices);

  /// Draws the habits of this episode: which actions are frequent, how many requests live at once,
  /// how long they run, how late loads are.
  Generator(const Config& config, Choices& choices);

  /// The next command, given what a scheduler answered to the one before. The caller runs every
  /// command that is drawn, and the world has taken it in. An observation without the state leaves
  /// the picture of the requests as it was.
  Command next(Choices& choices, const Observation& now, const World& world);

 private:
  /// What an engine, a client or an operator does next.
  enum class Action : std::uint8_t {
    kStep,
    kAdd,
    kFinish,
    kFinishAll,
    kCompileGrammar,
    kPause,
    kReset,
    kScript,
    kPlay,  ///< drafts out of turn
  };
  static constexpr std::size_t kNumActions = static_cast<std::size_t>(Action::kPlay) + 1;

  /// A request that is there.
  struct Known {
    RequestState state;
    bool is_reported = false;  ///< loading, and the load was reported finished
    bool awaits_load = false;  ///< finished while it was loading
  };

  /// A planned step that has not come back.
  struct PlannedStep {
    std::vector<ScheduledRequest> scheduled;
    std::vector<std::string> loaded;  ///< those of them whose tokens the connector loads in it
  };

  void take_in_answer(const Observation& now);
  void take_in_step(const Observation& now);
  void take_in_update(const Update& update);
  void take_in_state(const Observation& now);
  const Known* find(const std::string& name) const;
  /// Null without blocks.
  const RequestBlocks* find_table(const std::string& name) const;

  Command draw(Choices& choices, const World& world);
  Command step(Choices& choices);
  Command add(Choices& choices, const World& world);
  Command finish(Choices& choices) const;
  Command reset(Choices& choices) const;
  template <class S>
  void draw_script(Choices& choices, std::uint32_t num_tokens, S& command) const;

  Update update(Choices& choices) const;
  void draw_samples(Choices& choices, const PlannedStep& step, Update& update) const;
  void draw_reports(Choices& choices, Update& update) const;
  void draw_invalid_blocks(Choices& choices, const PlannedStep& step, Update& update) const;
  void add_invalid_block(Choices& choices, const RequestBlocks& table, Update& update) const;
  UpdateDraftTokenIds drafts(Choices& choices, const std::string& name) const;
  TokenId draw_token(Choices& choices) const;

  /// Bends one argument, or the order of things, so that a refusal or an unusual call comes out.
  Command bent(Choices& choices, Command command) const;
  std::string any_name(Choices& choices) const;

  Config config_;
  std::uint32_t unit_ = 1;        ///< tokens: the groups' common block size
  std::uint32_t prompt_max_ = 1;  ///< tokens that leave room for others
  Swarm<Action, kNumActions> swarm_;
  std::uint32_t live_max_ = 1;
  std::uint32_t burst_max_ = 1;  ///< requests that come together at most
  std::uint32_t output_max_ = 1;
  std::uint32_t stop_in_ = 16;     ///< one sampled token in so many may stop a request
  std::uint32_t external_in_ = 2;  ///< one request in so many is known to the connector
  std::uint32_t hold_in_ = 4;      ///< one request in so many leaves its blocks held
  std::uint32_t idle_in_ = 0;      ///< one step in so many is not planned ahead; 0: each is
  std::uint32_t late_in_ = 2;      ///< a report that is due comes once in so many updates
  std::uint32_t fail_in_ = 12;     ///< one step with loads in so many has invalid blocks
  std::uint32_t odd_in_ = 48;      ///< one command in so many is bent

  bool is_last_first_ = false;  ///< who comes later is more urgent

  std::optional<Command> last_;
  std::vector<Known> known_;  ///< in the order of adding
  std::vector<RequestBlocks> tables_;
  std::vector<std::string> names_;  ///< all that were accepted
  std::deque<PlannedStep> in_flight_;
  std::vector<std::string> to_draft_;  ///< who sampled in the last update, and has no drafts yet
  bool update_was_refused_ = false;
  PauseState pause_state_ = PauseState::kUnpaused;
  std::uint32_t burst_left_ = 0;
  std::uint32_t arrival_time_ = 0;
  std::uint32_t next_name_ = 0;
};

}  // namespace kvfence::engine::scheduler
