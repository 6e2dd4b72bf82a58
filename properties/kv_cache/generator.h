#pragma once

/// Draws configurations and commands for the kv_cache target: small pools, every coordinator and
/// kind of group, requests that share prefixes and go through their lives as under a scheduler, and
/// now and then a command that no scheduler sends.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "contract/kv_cache/kv_cache_target.h"
#include "properties/core/choices.h"
#include "properties/core/swarm.h"

namespace kvfence::kv_cache {

/// Tokens: the least common multiple of the groups' block sizes.
std::uint32_t common_block_size(const Config& config);

/// Tokens of one request that fill the pool, about.
std::uint32_t capacity_of(const Config& config);

class Generator {
 public:
  /// A valid configuration: 4 to 24 blocks, block sizes from 1 to 4 tokens and their small
  /// multiples, one to three groups, every profile.
  static Config draw_config(Choices& choices);

  /// Draws the habits of this episode: which actions are frequent, how large chunks are, how many
  /// requests live at once.
  Generator(const Config& config, Choices& choices);

  /// The next command, given what a manager answered to the one before and which requests there
  /// are. The caller runs every command that is drawn, and the world has taken it in.
  Command next(Choices& choices, const Observation& now, const World& world);

 private:
  /// What may come next in the life of a request, or of the cache as a whole.
  enum class Action : std::uint8_t {
    kDeclare,
    kAdmit,
    kRun,
    kFinish,
    kPreempt,
    kStepStarts,
    kLookUp,
    kRemoveSkipped,
    kCacheBlocks,
    kEvict,
    kReset,
    kCommonPrefix,
    kTakeNewBlocks,
    kTakeEvents,
    kTakeStats,
    kCanFit,
  };
  static constexpr std::size_t kNumActions = static_cast<std::size_t>(Action::kCanFit) + 1;

  /// Where a request stands, as far as the answers show. By index of declaration.
  struct Progress {
    bool is_allocated = false;
    bool is_finished = false;
    bool is_loading = false;  ///< external tokens are under way; nothing of it is cached yet
    bool was_preempted = false;
    std::uint32_t num_computed_tokens = 0;
    std::uint32_t num_scheduled_tokens = 0;  ///< slots for them were given; computed by next time
  };

  void take_in_answer(const Observation& now, const World& world);
  void take_in(const AllocateSlots& command, const Observation& now, const World& world);
  void list_requests(const World& world);

  Command draw(Choices& choices, const Observation& now, const World& world);
  bool is_idle(Action action, const Observation& now) const;

  Command declare(Choices& choices, const World& world);
  Command admit(Choices& choices, const World& world, RequestIndex index, std::uint32_t num_hit);
  Command run(Choices& choices, const World& world, RequestIndex index);
  Command free(const World& world, RequestIndex index, bool is_finished);
  Command evict(Choices& choices, const Observation& now) const;
  Command can_fit(Choices& choices, const World& world, RequestIndex index) const;

  /// Bends one argument, so that a refusal or an unusual call comes out.
  void perturb(Choices& choices, const World& world, Command& command);

  std::uint32_t num_tokens(const World& world, RequestIndex index) const;
  std::uint32_t draw_chunk(Choices& choices, std::uint32_t remaining) const;

  Config config_;
  Rules rules_;
  bool has_cross_ = false;
  std::uint32_t unit_ = 1;  ///< tokens: the groups' common block size
  Swarm<Action, kNumActions> swarm_;
  std::uint32_t live_max_ = 1;
  std::uint32_t chunk_max_ = 1;    ///< tokens that one allocation asks for at most
  std::uint32_t num_drafts_ = 0;   ///< speculative tokens of a decoding request at most
  std::uint32_t odd_in_ = 32;      ///< one command in so many is bent
  std::uint32_t external_in_ = 8;  ///< one admission in so many brings external tokens

  std::vector<Progress> progress_;
  std::vector<RequestIndex> waiting_;  ///< declared and not allocated
  std::vector<RequestIndex> running_;
  std::optional<Command> last_;
  std::optional<RequestIndex> looked_up_;  ///< by the last command but for passive ones
  std::uint32_t num_hit_tokens_ = 0;
  bool starved_ = false;                 ///< the last allocation found too few free blocks
  std::optional<RequestIndex> refused_;  ///< an allocation that was refused
  std::uint32_t next_name_ = 0;
};

}  // namespace kvfence::kv_cache
