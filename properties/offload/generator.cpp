/// Draws configurations and commands for target offload: few slots, runs of keys as requests have
/// them, swarm weights, and arguments that mostly fit the state that the manager shows.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/offload/offload_target.h"
#include "properties/draws/choices.h"
#include "properties/draws/swarm.h"
#include "properties/eviction/keys.h"
#include "properties/targets/rooms.h"

namespace kvfence::offload {
namespace {

using Keys = std::vector<std::uint32_t>;

/// Recently looked up keys, some of which pass a filter.
constexpr std::size_t kLookedUpMax = 6;

/// The usual weight of each command.
constexpr VerbSwarm<Command>::UsualWeights kWeights = {{
    {Lookup::kVerb, 8},
    {LookupKey::kVerb, 8},
    {Touch::kVerb, 10},
    {PrepareLoad::kVerb, 6},
    {CompleteLoad::kVerb, 6},
    {PrepareStore::kVerb, 16},
    {CompleteStore::kVerb, 14},
    {ResetCache::kVerb, 0},
    {TakeEvents::kVerb, 5},
}};
/// A reset is drawn once in so many commands: rarely, so that slowly built states are not lost.
constexpr std::uint32_t kResetOnceIn = 256;

class Generator final : public GeneratorFor<OffloadTarget> {
 public:
  /// Draws the weights of this episode.
  Generator(const Config& config, Choices& choices)
      : rules_(make_offloading_manager_config(config)->rules),
        has_filter_(config.store_threshold >= 2),
        swarm_(kWeights, kWildHabits, choices),
        keys_(config.capacity) {
    // Nothing else happens without ready blocks, and a filter stores none without lookups.
    const std::string_view lookup = rules_.lookup_by_key ? LookupKey::kVerb : Lookup::kVerb;
    swarm_.set(rules_.lookup_by_key ? Lookup::kVerb : LookupKey::kVerb, 1);
    swarm_.raise({lookup, PrepareStore::kVerb, CompleteStore::kVerb}, 2);
    if (has_filter_) swarm_.set(lookup, 2 * swarm_.weight(lookup));
  }

  /// The next command, given what a manager shows.
  Command next(Choices& choices, const Observation& now, const World& /*world*/) override {
    keys_.see(now);
    if (choices.once_in(kResetOnceIn)) return ResetCache{};
    const auto is_without_work = [this](std::string_view verb) { return is_idle(verb); };
    return draw(choices, swarm_.draw_unless(is_without_work, choices));
  }

  std::optional<Command> next_of_tail(const Observation& now, const World& /*world*/) override {
    keys_.see(now);
    if (!keys_.reading().empty()) return CompleteLoad{keys_.reading()};
    if (!keys_.writing().empty()) return CompleteStore{keys_.writing(), true};
    return next_of({ResetCache{}, TakeEvents{}}, num_resets_);
  }

 private:
  /// Whether the command would have nothing to work on.
  bool is_idle(std::string_view verb) const {
    if (verb == PrepareLoad::kVerb) return keys_.ready().empty();
    if (verb == CompleteLoad::kVerb) return keys_.reading().empty();
    if (verb == CompleteStore::kVerb) return keys_.writing().empty();
    return verb == Touch::kVerb && keys_.held().empty();
  }

  Command draw(Choices& choices, std::string_view verb) {
    const auto look_up = [&](std::uint32_t key) {
      looked_up_.push_back(key);
      if (looked_up_.size() > kLookedUpMax) looked_up_.erase(looked_up_.begin());
      return key;
    };
    if (verb == Lookup::kVerb) {
      Keys keys = draw_run(choices);
      for (std::uint32_t key : keys) look_up(key);
      return Lookup{std::move(keys)};
    }
    if (verb == LookupKey::kVerb) {
      const bool again = !looked_up_.empty() && choices.once_in(2);
      return LookupKey{look_up(again ? keys_.one_of(looked_up_, choices) : keys_.any(choices))};
    }
    if (verb == Touch::kVerb) {
      const bool ghosts = !keys_.ghosts().empty() && choices.once_in(3);
      return Touch{keys_.some_of(ghosts ? keys_.ghosts() : keys_.held(), 4, choices)};
    }
    if (verb == PrepareLoad::kVerb) return PrepareLoad{keys_.some_of(keys_.ready(), 3, choices)};
    if (verb == CompleteLoad::kVerb)
      return CompleteLoad{keys_.some_of(keys_.reading(), 3, choices)};
    if (verb == PrepareStore::kVerb) return PrepareStore{draw_keys_to_store(choices)};
    if (verb == CompleteStore::kVerb) {
      const bool any = choices.once_in(8);
      return CompleteStore{keys_.some_of(any ? keys_.held() : keys_.writing(), 4, choices),
                           !choices.once_in(6)};
    }
    return TakeEvents{};
  }

  /// The keys of a request: consecutive ones.
  std::vector<std::uint32_t> draw_run(Choices& choices) const {
    std::uint32_t length = choices.once_in(32) ? 0 : 1 + skewed(choices, 5);
    // Longer than what a lookup prefetches ahead.
    if (length == 5) length = std::min(16U, keys_.num_keys());
    const std::uint32_t first = keys_.any(choices);
    Keys keys;
    for (std::uint32_t at = 0; at < length; ++at) keys.push_back((first + at) % keys_.num_keys());
    return keys;
  }

  std::vector<std::uint32_t> draw_keys_to_store(Choices& choices) const {
    Keys keys = draw_run(choices);
    if (has_filter_ && !looked_up_.empty() && !choices.once_in(4)) {
      keys = keys_.some_of(looked_up_, 4, choices);
    } else if (!keys_.held().empty() && choices.once_in(4)) {
      keys.push_back(keys_.one_of(keys_.held(), choices));
    }
    if (!keys.empty() && choices.once_in(32)) keys.push_back(keys.front());
    return keys;
  }

  Rules rules_;
  bool has_filter_;
  VerbSwarm<Command> swarm_;
  eviction::DrawnKeys keys_;
  std::vector<std::uint32_t> looked_up_;  ///< recently, oldest first
  std::size_t num_resets_ = 0;            ///< commands of a tail since nothing is under way
};

}  // namespace

Config draw_config(Choices& choices) {
  Config config;
  static_cast<eviction::Config&>(config) = eviction::draw_config(choices);
  config.enable_events = !choices.once_in(4);
  if (choices.once_in(3)) {
    config.store_threshold = choices.once_in(8) ? 1 : 2 + choices.below(2);
    config.max_tracker_size = 1 + choices.below(12);
  }
  return config;
}

GeneratorSuite<OffloadTarget> generators() { return generator_suite<Generator>(draw_config); }

}  // namespace kvfence::offload
