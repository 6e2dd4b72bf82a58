/// Draws for engines with a SimpleCPUOffloadConnector: two small block pools that often run out,
/// and copy engines that are eager, lazy or uneven between the ranks and directions.

#include "properties/engine/rooms.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "properties/core/left_out.h"
#include "properties/kv_cache/group_draws.h"

namespace kvfence::engine::simple {
namespace {

constexpr std::string_view kShapes[] = {"Fw", "wf", "Fm", "Fwm", "Fa", "F",
                                        "f",  "f",  "f",  "f",   "f"};

const LeftOut kWindowOfOne(LeftOut::By::kGenerator, "engine.simple: a window of one token",
                           "it needs nothing from before, and upstream, under v0.19 or with eagle, "
                           "loads it into the null block",
                           "engine/simple/left_out/a_window_of_one_token.kvs");

/// Draws the profile's rules, or now and then a mixture.
void draw_rules(Choices& choices, Record& record) {
  for (auto* rule :
       {&record.simple_offload_pins_hits, &record.simple_offload_skips_stores_under_way,
        &record.simple_offload_skips_unhashed_blocks, &record.simple_offload_aligns_stores}) {
    if (choices.once_in(12)) *rule = choices.once_in(2);
  }
}

class CopyDraws final : public Draws {
 public:
  CopyDraws(const Config& config, Choices& choices, EngineRole role)
      : role_(role),
        num_ranks_(num_ranks_of(config, role)),
        part_in_(choices.once_in(2) ? 2 : 8),
        late_in_{draw_lateness(num_ranks_, choices), draw_lateness(num_ranks_, choices)} {}

  void take_in(const Picture& /*picture*/, const Observation& now) override {
    if (now.of(role_).copies.has_value()) copies_ = *now.of(role_).copies;
  }

  /// Tries once per rank and direction to advance the oldest copy.
  std::optional<Command> next(Picture& picture, Choices& choices) override {
    std::array<std::vector<bool>, 2> tried;
    tried.fill(std::vector<bool>(num_ranks_));
    for (const Copy& copy : copies_) {
      if (copy.progress == TransferProgress::kFinished || copy.rank >= num_ranks_) continue;
      const std::size_t direction = copy.store ? 1 : 0;
      if (tried[direction][copy.rank]) continue;
      tried[direction][copy.rank] = true;
      if (!picture.comes(late_in_[direction][copy.rank], choices)) continue;
      AdvanceCopy command{role_, copy.rank, copy.store};
      const bool is_fresh = copy.progress == TransferProgress::kSubmitted;
      if (is_fresh && choices.once_in(part_in_)) command.progress = TransferProgress::kPart;
      return command;
    }
    return std::nullopt;
  }

  std::optional<Command> bent(Picture& /*picture*/, Choices& choices) override {
    if (!choices.once_in(6)) return std::nullopt;
    return AdvanceCopy{role_, choices.below(num_ranks_ + 1), choices.once_in(2),
                       static_cast<TransferProgress>(choices.below(4))};
  }

 private:
  EngineRole role_;
  std::uint32_t num_ranks_;
  std::uint32_t part_in_;  ///< one advance in so many does not reach the end
  std::array<std::vector<std::uint32_t>, 2> late_in_;  ///< of loads and stores
  std::vector<Copy> copies_;
};

}  // namespace

std::unique_ptr<Draws> make_draws(const Config& config, Choices& choices, EngineRole role) {
  return std::make_unique<CopyDraws>(config, choices, role);
}

Config draw_config(Choices& choices) {
  Config config = draw_small_engine(Assembly::kSimple, choices);
  Record& record = config.edit_connector<Record>();
  config.enable_caching = true;
  config.ranks = 1 + choices.below(3);
  record.num_cpu_blocks = choices.once_in(3) ? 1 + choices.below(4) : 4 + choices.below(9);
  record.lazy_offload = choices.once_in(2);
  draw_rules(choices, record);
  draw_groups(kShapes, choices, config);
  for (KVCacheSpec& spec : config.groups) {
    if (kWindowOfOne(spec.sliding_window == 1)) spec.sliding_window = 2;
  }
  if (!is_accepted(config)) config.groups.front() = full(config.hash_block_size);
  return completed(std::move(config), choices);
}

}  // namespace kvfence::engine::simple
