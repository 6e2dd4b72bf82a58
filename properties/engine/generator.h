#pragma once

/// The generator of engine commands for every assembly. Clients add requests that share prefixes
/// and abort them. One engine, or a pair, runs steps ahead, pauses and resets. Now and then comes a
/// command that no engine sends.
///
/// A connector's own commands come from the draws of its facet, in the connector's folder:
///   - draw_config: records and settings that make it busy, on top of draw_small_engine;
///   - a class derived from Draws that draws its own habits in its constructor and overrides what
///     it needs: most often `next`, what its environment does by itself (copies come further, files
///     change), and `bent`, those commands out of turn. Where several connectors are combined, each
///     has its draws, which are asked in turn.
/// simple/generator.cpp is a small example.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/engine/engine_target.h"
#include "properties/core/typed_checks.h"
#include "properties/draws/choices.h"
#include "properties/draws/swarm.h"
#include "properties/pool/request_draws.h"

namespace kvfence::engine {

// ---- Configurations ----

bool is_accepted(const Config& config);

/// Of 5 to 20 GPU blocks of 1 to 4 tokens, now and then more, one group of full attention, every
/// setting of the scheduler that goes with connectors.
Config draw_small_engine(Assembly assembly, Choices& choices);

/// One group per letter of one of the shapes: `f` full attention, `F` the same with larger blocks
/// in every second case, `w` a window of up to three blocks, `n` of one, `t` of two, `m` mamba, `a`
/// mamba in align mode where that goes with a connector. Now and then a shape is repeated, to six
/// groups and more, or blocks are larger. Draws a retention interval for windows, which make_valid
/// removes where there are none. Draws external_blocks_after_hits for several groups: without it no
/// request reads the GPU's cache.
void draw_groups(std::span<const std::string_view> shapes, Choices& choices, Config& config);
/// Raises the budget and the threshold by a block of each Mamba group in align mode, which needs
/// whole blocks in every step.
void let_states_end_blocks(Config& config);

/// Draws whether there are drafts, how many, and whether a draft model makes them. Without
/// async_scheduling they come one step late: then one step is in flight.
void draw_drafts(Choices& choices, Config& config);
/// Draws eagle now and then, and then drafts as above.
void draw_eagle_and_drafts(Choices& choices, Config& config);
/// The configuration with eagle and drafts as above, valid as below.
Config completed(Config config, Choices& choices);

/// Makes a configuration valid: removes drafts, turns caching on, or reduces the groups to one, as
/// needed. Where requests still may not read the GPU's cache, removes external_blocks_after_hits.
/// Requires: these changes suffice.
void make_valid(Config& config);

/// The number of ranks of that engine.
inline std::uint32_t num_ranks_of(const Config& config, EngineRole role) {
  return role == EngineRole::kProducer ? config.ranks : config.consumer_ranks;
}

/// By rank: its work progresses in one command of so many. Ranks are eager, usual or lazy: all
/// alike, each at its own pace, or one slower than the others.
std::vector<std::uint32_t> draw_lateness(std::uint32_t num_ranks, Choices& choices);

// ---- Episodes ----

/// What a scripted connector answers about a request of so many tokens. Hits, requests to be asked
/// again and held blocks each come once in so many.
void draw_script(std::uint32_t num_tokens, std::uint32_t hit_in, std::uint32_t again_in,
                 std::uint32_t hold_in, Choices& choices, ConnectorScript& script);

/// What an engine, a client or an operator does with any connector.
enum class Action : std::uint8_t { kStep, kAdd, kFinish, kFinishAll, kPause, kReset };
inline constexpr std::size_t kNumActions = static_cast<std::size_t>(Action::kReset) + 1;

/// The habits of an episode.
struct Habits {
  /// How often each action comes, relative to the others.
  std::array<std::uint32_t, kNumActions> weights = {160, 24, 8, 1, 2, 10};

  std::uint32_t unit = 1;        ///< tokens: the groups' common block size
  std::uint32_t prompt_max = 1;  ///< tokens; leaves room for other requests
  std::uint32_t output_max = 1;
  std::uint32_t vary_in = 6;           ///< one block in so many differs from the shared prefix
  std::uint32_t skip_in = 16;          ///< one request in so many does not read the GPU's cache
  std::uint32_t live_max = 1;          ///< unfinished requests of an engine at most
  std::uint32_t burst_max = 1;         ///< requests that come together at most
  std::uint32_t idle_in = 0;           ///< one step in so many is not planned ahead; 0: each is
  std::uint32_t odd_in = 48;           ///< one command in so many is bent
  std::uint32_t consumer_eighths = 4;  ///< the consumer's share of a pair's commands
};

/// What observations show of an engine.
struct EnginePicture {
  std::vector<RequestState> known;                      ///< in the order of adding
  std::deque<std::vector<ScheduledRequest>> in_flight;  ///< planned steps, oldest first
  PauseState pause_state = PauseState::kUnpaused;

  /// Unfinished requests.
  std::uint32_t num_live() const;
};

/// What is known when a command is drawn. An observation without the state does not change the
/// requests.
struct Picture {
  Picture(const Config& of_config, const Habits& of_episode, Choices& choices)
      : config(of_config), habits(of_episode), tokens(choices) {}

  const Config config;
  Habits habits;
  const TokenDraws tokens;
  std::array<EnginePicture, 2> engines;  ///< by EngineRole
  std::vector<std::string> names;        ///< of all accepted requests of both engines
  std::optional<Command> last;           ///< the command before
  const World* world = nullptr;
  std::uint32_t next_name = 0;
  std::uint32_t arrival_time = 0;
  bool is_in_tail = false;

  EnginePicture& of(EngineRole role) { return engines[static_cast<std::size_t>(role)]; }
  const EnginePicture& of(EngineRole role) const { return engines[static_cast<std::size_t>(role)]; }
  /// The only engine, or the producer.
  const EnginePicture& engine() const { return engines.front(); }
  EngineRole draw_engine(Choices& choices) const;
  /// True once in `late_in` commands; always in a tail.
  bool comes(std::uint32_t late_in, Choices& choices) const {
    return is_in_tail || choices.once_in(late_in);
  }
  /// No engine has requests, or they have all come to an end and are held.
  bool are_gone() const { return engines[0].known.empty() && engines[1].known.empty(); }
  bool have_ended() const { return engines[0].num_live() + engines[1].num_live() == 0; }

  std::string new_name();
  /// One of the last six names. Requires: there are some.
  const std::string& draw_recent_name(Choices& choices) const;
  /// "nobody", or a request's name; requests that exist more often than those that are gone.
  std::string draw_name(Choices& choices) const;
  /// Null, or the command before if it is of that type and was accepted.
  template <class Accepted>
  const Accepted* accepted(const Observation& now) const {
    return last && now.error == ErrorCode::kNone ? std::get_if<Accepted>(&*last) : nullptr;
  }
};

/// What one facet draws. In a pair whose engines have a facet each, for one engine. Every method is
/// optional.
class Draws {
 public:
  Draws() = default;
  Draws(const Draws&) = delete;
  Draws& operator=(const Draws&) = delete;
  virtual ~Draws() = default;

  /// Changes the habits before the episode begins.
  virtual void adjust(Habits& /*habits*/, Choices& /*choices*/) const {}
  /// The weights of its own actions, added to Habits::weights.
  virtual std::span<const std::uint32_t> weights() const { return {}; }
  /// Whether it uses that command member. Asked about members that only some assemblies use.
  virtual bool bends(std::string_view /*member*/) const { return false; }

  /// Takes in the answer to the last command; the picture already has it.
  virtual void take_in(const Picture& /*picture*/, const Observation& /*now*/) {}

  /// A command that goes before all others, if any. In a tail every choice is 0: work under way
  /// progresses, and nothing fails.
  virtual std::optional<Command> next(Picture& /*picture*/, Choices& /*choices*/) { return {}; }
  /// One of the actions of weights(), by place; nothing: a step is taken instead.
  virtual std::optional<Command> act(std::size_t /*place*/, Picture& /*picture*/,
                                     Choices& /*choices*/) {
    return {};
  }
  /// The next command of a step that needs more than `schedule` and `update`.
  virtual std::optional<Command> step(EngineRole /*role*/, const Picture& /*picture*/,
                                      Choices& /*choices*/) const {
    return {};
  }
  /// A command out of turn, in place of a bent one.
  virtual std::optional<Command> bent(Picture& /*picture*/, Choices& /*choices*/) { return {}; }

  // Adds the facet's members to commands of the generator.
  virtual void add_to(AddRequest& /*command*/, const Picture& /*picture*/, Choices& /*choices*/) {}
  virtual void add_to(Update& /*command*/, const Picture& /*picture*/, Choices& /*choices*/) {}
  virtual void add_to(ResetPrefixCache& /*command*/, const Picture& /*picture*/,
                      Choices& /*choices*/) {}
};

using DrawsList = std::vector<std::unique_ptr<Draws>>;

/// Draws drafts for requests that have sampled, and how many are accepted. Requires: the
/// configuration has drafts.
std::unique_ptr<Draws> make_draft_draws(const Config& config);

/// Draws the habits of an episode: which actions are frequent, how many requests live at once, how
/// long they are. draws: have drawn their own habits.
std::unique_ptr<GeneratorFor<EngineTarget>> make_generator(const Config& config, Choices& choices,
                                                           DrawsList draws);

}  // namespace kvfence::engine
