#include "properties/eviction_generator.h"

#include <algorithm>
#include <string_view>

namespace kvfence::eviction {
namespace {

constexpr std::uint32_t kHuge = 0xFFFF'FFFF;  // where sums and products wrap around

/// How much an episode may favour each command, by its place in the variant.
struct Weight {
  std::string_view verb;
  std::uint32_t usual;
};
constexpr std::array<Weight, std::variant_size_v<Command>> kWeights = {{
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
/// Clear comes once in so many commands: what takes long to build up is not to be lost at once.
constexpr std::uint32_t kClearOnceIn = 256;

template <class Alternative>
constexpr std::size_t index_of() {
  std::size_t index = 0;
  while (kWeights[index].verb != Alternative::kVerb) ++index;
  return index;
}

}  // namespace

Config Generator::draw_config(Choices& choices) {
  Config config;
  config.policy = choices.once_in(3) ? "lru" : "arc";
  config.capacity = 1 + choices.below(choices.once_in(4) ? 3 : 10);
  config.profile = choices.once_in(2) ? "v0.23" : "v0.19";
  return config;
}

Generator::Generator(const Config& config, Choices& choices)
    : capacity_(config.capacity), keys_(config.capacity) {
  for (std::size_t index = 0; index < weights_.size(); ++index) {
    constexpr std::array<std::uint32_t, 4> kSwarm = {4, 4, 1, 16};
    weights_[index] = kWeights[index].usual * kSwarm[choices.below(kSwarm.size())];
    if (choices.once_in(16)) weights_[index] = 0;
  }
  // Without blocks that are ready nothing else happens.
  for (std::size_t index : {index_of<Insert>(), index_of<MakeReady>()}) {
    weights_[index] = std::max(weights_[index], kWeights[index].usual);
  }
  for (std::uint32_t weight : weights_) weight_sum_ += weight;
}

bool Generator::is_idle(std::size_t chosen) const {
  const std::string_view verb = kWeights[chosen].verb;
  if (verb == Insert::kVerb) return keys_.held().size() >= capacity_;
  if (verb == MakeReady::kVerb) return keys_.writing().empty();
  if (verb == Acquire::kVerb || verb == Evict::kVerb) return keys_.ready().empty();
  if (verb == Release::kVerb) return keys_.reading().empty();
  return keys_.held().empty() && verb != Touch::kVerb;
}

Command Generator::next(Choices& choices, const Observation& now, const World&) {
  keys_.see(now);
  if (choices.once_in(kClearOnceIn)) return Clear{};
  const auto draw_verb = [&] {
    std::uint32_t ticket = choices.below(weight_sum_);
    std::size_t chosen = 0;
    while (ticket >= weights_[chosen]) ticket -= weights_[chosen++];
    return chosen;
  };
  std::size_t chosen = draw_verb();
  // One that finds nothing to work on is drawn again, mostly.
  for (int tries = 0; tries < 3 && is_idle(chosen) && !choices.once_in(16); ++tries) {
    chosen = draw_verb();
  }
  return draw(choices, chosen);
}

Command Generator::draw(Choices& choices, std::size_t chosen) {
  const std::string_view verb = kWeights[chosen].verb;
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

}  // namespace kvfence::eviction
