/// Draws configurations and commands for target eviction: tiny capacities, hot keys, swarm weights,
/// and arguments that mostly fit the state that the policy shows.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "contract/eviction/eviction_target.h"
#include "properties/draws/choices.h"
#include "properties/draws/swarm.h"
#include "properties/eviction/keys.h"
#include "properties/targets/rooms.h"

namespace kvfence::eviction {
namespace {

constexpr std::uint32_t kHuge = 0xFFFF'FFFF;  // where sums and products wrap around

/// The usual weight of each command.
constexpr VerbSwarm<Command>::UsualWeights kWeights = {{
    {Get::kVerb, 3},
    {Insert::kVerb, 14},
    {Remove::kVerb, 2},
    {MakeReady::kVerb, 14},
    {Acquire::kVerb, 5},
    {Release::kVerb, 5},
    {Touch::kVerb, 14},
    {Evict::kVerb, 10},
    {Clear::kVerb, 0},
}};
/// Clear is drawn once in so many commands: rarely, so that slowly built states are not lost.
constexpr std::uint32_t kClearOnceIn = 256;
/// Runs in which only one key is touched, so that all others grow cold, begin once in so many
/// commands: so many commands, each with up to so many touches.
constexpr std::uint32_t kHotOnceIn = 256;
constexpr std::uint32_t kHotCommands = 32;
constexpr std::uint32_t kHotTouchesMax = 8;

class Generator final : public GeneratorFor<EvictionTarget> {
 public:
  /// Draws the weights of this episode.
  Generator(const Config& config, Choices& choices)
      : capacity_(config.capacity), swarm_(kWeights, kWildHabits, choices), keys_(config.capacity) {
    // Without blocks that are ready nothing else happens.
    swarm_.raise({Insert::kVerb, MakeReady::kVerb});
  }

  /// The next command, given what a policy shows.
  Command next(Choices& choices, const Observation& now, const World& /*world*/) override {
    keys_.see(now);
    if (choices.once_in(kClearOnceIn)) return Clear{};
    if (hot_left_ == 0 && choices.once_in(kHotOnceIn)) hot_left_ = kHotCommands;
    if (hot_left_ > 0 && !choices.once_in(16)) return touch_hot_key(choices);
    const auto is_without_work = [this](std::string_view verb) { return is_idle(verb); };
    return draw(choices, swarm_.draw_unless(is_without_work, choices));
  }

  std::optional<Command> next_of_tail(const Observation& now, const World& /*world*/) override {
    keys_.see(now);
    if (!keys_.reading().empty()) return Release{keys_.reading().front()};
    if (!keys_.writing().empty()) return MakeReady{keys_.writing().front()};
    is_cleared_ = !is_cleared_;
    if (is_cleared_) return Clear{};
    return std::nullopt;
  }

 private:
  /// Whether the command would have nothing to work on.
  bool is_idle(std::string_view verb) const {
    if (verb == Insert::kVerb) return keys_.held().size() >= capacity_;
    if (verb == MakeReady::kVerb) return keys_.writing().empty();
    if (verb == Acquire::kVerb || verb == Evict::kVerb) return keys_.ready().empty();
    if (verb == Release::kVerb) return keys_.reading().empty();
    return keys_.held().empty() && verb != Touch::kVerb;
  }

  Command draw(Choices& choices, std::string_view verb) {
    if (verb == Get::kVerb) return Get{keys_.any(choices)};
    if (verb == Insert::kVerb) return Insert{keys_.absent(choices), choices.below(capacity_ + 1)};
    if (verb == Remove::kVerb) return Remove{keys_.one_of(keys_.held(), choices)};
    if (verb == MakeReady::kVerb) return MakeReady{keys_.one_of(keys_.writing(), choices)};
    if (verb == Acquire::kVerb) return Acquire{keys_.one_of(keys_.ready(), choices)};
    if (verb == Release::kVerb) return Release{keys_.one_of(keys_.reading(), choices)};
    if (verb == Touch::kVerb) {
      const bool ghosts = !keys_.ghosts().empty() && choices.once_in(2);
      return Touch{keys_.some_of(ghosts ? keys_.ghosts() : keys_.held(), 4, choices)};
    }
    Evict command;
    const auto num_ready = static_cast<std::uint32_t>(keys_.ready().size());
    command.num_blocks = choices.once_in(16) ? choices.below(capacity_ + 2)
                                             : 1 + skewed(choices, std::max(num_ready, 1u));
    if (choices.once_in(512)) command.num_blocks = kHuge;
    if (choices.once_in(2)) command.protected_keys = keys_.some_of(keys_.held(), 3, choices);
    return command;
  }

  /// The key that was held for the shortest time.
  Touch touch_hot_key(Choices& choices) {
    --hot_left_;
    const std::uint32_t key = keys_.held().empty() ? 0 : keys_.held().back();
    return {std::vector<std::uint32_t>(1 + choices.below(kHotTouchesMax), key)};
  }

  std::uint32_t capacity_;
  VerbSwarm<Command> swarm_;
  DrawnKeys keys_;
  std::uint32_t hot_left_ = 0;  ///< commands
  bool is_cleared_ = false;     ///< the last command of a tail
};

}  // namespace

Config draw_config(Choices& choices) {
  Config config;
  config.policy = choices.once_in(3) ? EvictionPolicy::kLRU : EvictionPolicy::kARC;
  config.capacity = 1 + choices.below(choices.once_in(4) ? 3 : 10);
  config.profile = choices.once_in(2) ? Profile::kV023 : Profile::kV019;
  return config;
}

GeneratorSuite<EvictionTarget> generators() { return generator_suite<Generator>(draw_config); }

}  // namespace kvfence::eviction
