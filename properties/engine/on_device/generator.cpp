/// Draws for engines over devices: ranks and streams that are eager or lazy, failing transfers, and
/// steps that are executed and polled in any order.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "properties/engine/rank_progress.h"
#include "properties/engine/shown_requests.h"
#include "properties/kv_cache/group_draws.h"

namespace kvfence::engine::on_device {
namespace {

constexpr std::string_view kShapes[] = {"Fw", "Ff", "wfw", "w", "f", "f", "f", "f", "f"};
constexpr std::string_view kShapesAlone[] = {"Fw", "wfw", "w", "f", "f", "f"};
/// The simple connector needs full attention, and a window longer than one token.
constexpr std::string_view kShapesOfSimple[] = {"Ft", "tf", "f", "f", "f", "f"};
constexpr std::array<std::string_view, 3> kStreams = {"compute", "store", "load"};
constexpr std::array<std::string_view, 5> kFaults = {"copy", "wait", "record", "partial", "late"};

enum class Action : std::uint8_t { kDrain, kFailNext };
constexpr std::uint32_t kWeights[] = {1, 4};
constexpr std::array<std::uint32_t, 4> kApartIn = {0, 2, 4, 8};

class DeviceDraws final : public Draws {
 public:
  DeviceDraws(const Config& config, Choices& choices, EngineRole role)
      : config_(config),
        role_(role),
        can_fail_(config.connector<offloading::Record>() && !config.connector<simple::Record>()),
        progress_(config.ranks) {
    if (const auto* record = config.connector<offloading::Record>()) record_ = *record;
    // Eager, usual, lazy. Only updates advance the laziest compute stream.
    constexpr std::array<std::uint32_t, 4> kLate = {1, 3, 6, 30};
    Lateness usual;
    for (std::uint32_t& late_in : usual) late_in = pick(choices, kLate);
    late_in_.resize(config.ranks, usual);
    // Mostly one rank is late with everything: its transfers last many steps.
    if (!choices.once_in(3)) late_in_[choices.below(config.ranks)] = {6, 30, 30};
    if (config.ranks > 1) apart_in_ = pick(choices, kApartIn);
  }

  void adjust(Habits& habits, Choices& choices) const override {
    habits.weights[static_cast<std::size_t>(engine::Action::kStep)] = 200;
    // Requests that do not read the GPU's cache load.
    if (choices.once_in(can_fail_ ? 3 : 2)) habits.skip_in = 2;
    // Long prompts with one prefix: now and then the GPU has kept a part of what a slot holds.
    if (record_ && record_->block_size_factor > 1 && choices.once_in(2)) {
      habits.vary_in = 24;
      habits.prompt_max = kv_cache::capacity_of(config_);
      habits.output_max = 3;
      habits.skip_in = 64;
    }
  }

  std::span<const std::uint32_t> weights() const override {
    return std::span(kWeights).first(can_fail_ ? 2 : 1);
  }
  bool bends(std::string_view member) const override {
    return record_ && member == "max_offload_tokens";
  }

  void take_in(const Picture& picture, const Observation& now) override {
    num_transfers_ = now.of(role_).num_transfers.or_empty();
    const bool is_taken = picture.last && now.error == ErrorCode::kNone;
    if (is_taken && (role_of(*picture.last) == role_ || has_ended(now))) {
      progress_.take_in(*picture.last, now);
    }
  }

  /// Tries each stream half the time, so that an eager one leaves room for other commands.
  std::optional<Command> next(Picture& picture, Choices& choices) override {
    if (picture.is_in_tail) return advance_in_turn();
    for (std::size_t stream = 0; stream < kStreams.size(); ++stream) {
      const bool has_work = stream == 0 ? progress_.num_executed_by_one() > 0 : num_transfers_ > 0;
      if (!has_work || choices.once_in(2)) continue;
      const std::uint32_t rank = choices.below(config_.ranks);
      if (!choices.once_in(late_in_[rank][stream])) continue;
      return Advance{role_, std::string(kStreams[stream]), rank};
    }
    return std::nullopt;
  }

  std::optional<Command> act(std::size_t place, Picture& /*picture*/, Choices& choices) override {
    if (static_cast<Action>(place) == Action::kDrain) return Drain{role_};
    // Mostly on a stream that can fail.
    const bool loads_may = config_.groups.size() == 1 && config_.groups.front().is_full_attention();
    const bool stores_may = config_.profile != Profile::kV019;
    bool is_store = choices.once_in(2);
    if (loads_may != stores_may && !choices.once_in(16)) is_store = stores_may;
    const std::uint32_t rank = choices.below(config_.ranks);
    return FailNext{role_, is_store ? "store" : "load", rank, std::string(pick(choices, kFaults))};
  }

  /// Advances each stream of each rank that has work, with a step after each.
  std::optional<Command> advance_in_turn() {
    const auto num_streams = static_cast<std::uint32_t>(kStreams.size());
    is_advanced_ = !is_advanced_ && (progress_.num_executed_by_one() > 0 || num_transfers_ > 0);
    if (!is_advanced_) return std::nullopt;
    std::uint32_t stream = num_turns_++ % num_streams;
    if (num_transfers_ == 0) stream = 0;
    return Advance{role_, std::string(kStreams[stream]), num_turns_ / num_streams % config_.ranks};
  }

  /// Takes execute, poll and schedule in any possible order.
  std::optional<Command> step(EngineRole role, const Picture& picture,
                              Choices& choices) const override {
    if (role != role_) return std::nullopt;
    const std::size_t num_planned = picture.of(role_).in_flight.size();
    if (apart_in_ > 0 && !picture.is_in_tail && choices.once_in(apart_in_)) {
      const std::uint32_t rank = choices.below(config_.ranks);
      if (!progress_.polling(rank).empty()) return Poll{role_, rank};
      if (!progress_.executing(rank, num_planned).empty()) return Execute{role_, rank};
    }
    if (!progress_.polling(std::nullopt).empty()) return Poll{role_};
    if (num_planned == 0) return Schedule{role_};
    const bool has_room = num_planned < config_.max_concurrent_batches;
    const std::uint32_t idle_in = picture.habits.idle_in;
    const bool is_executed = progress_.num_executed_by_one() > 0;
    if (has_room && is_executed && (idle_in == 0 || !choices.once_in(idle_in))) {
      return Schedule{role_};
    }
    if (has_room && choices.once_in(4)) return Schedule{role_};
    const bool can_execute = !progress_.executing(std::nullopt, num_planned).empty();
    if (can_execute && (progress_.num_polled_by_all() == 0 || !choices.once_in(3))) {
      return Execute{role_};
    }
    Update update;
    update.engine = role_;
    return update;
  }

  std::optional<Command> bent(Picture& /*picture*/, Choices& choices) override {
    switch (choices.below(8)) {
      case 0:
        return Execute{role_, rank_or_none(choices)};
      case 1:
        return Poll{role_, rank_or_none(choices)};
      case 2:
        return Advance{role_, "copy", 0};
      case 3:
        return Advance{role_, "store", choices.below(config_.ranks + 1)};
      case 4: {
        const std::string stream = choices.once_in(2) ? "load" : "compute";
        const std::uint32_t rank = choices.below(config_.ranks + 1);
        return FailNext{role_, stream, rank, choices.once_in(2) ? "copy" : "sticky"};
      }
      default:
        return std::nullopt;
    }
  }

  void add_to(AddRequest& command, const Picture& /*picture*/, Choices& choices) override {
    const auto length = static_cast<std::uint32_t>(command.tokens.size());
    if (record_ && choices.once_in(12)) command.max_offload_tokens = choices.below(length + 2);
  }
  /// The model samples, not the command.
  void add_to(Update& command, const Picture& /*picture*/, Choices& /*choices*/) override {
    const EngineRole engine = command.engine;
    command = {};
    command.engine = engine;
  }

 private:
  std::optional<std::uint32_t> rank_or_none(Choices& choices) const {
    if (choices.once_in(2)) return std::nullopt;
    return choices.below(config_.ranks + 1);
  }

  const Config config_;
  const EngineRole role_;
  std::optional<offloading::Record> record_;
  bool can_fail_;
  using Lateness = std::array<std::uint32_t, kStreams.size()>;

  std::vector<Lateness> late_in_;  ///< by rank and stream
  std::uint32_t apart_in_ = 0;  ///< a rank executes or polls alone in one step of so many; 0: never
  RankProgress progress_;
  std::uint32_t num_transfers_ = 0;
  bool is_advanced_ = false;     ///< the last command of the tail was an advance
  std::uint32_t num_turns_ = 0;  ///< of streams, in the tail
};

}  // namespace

std::unique_ptr<Draws> make_draws(const Config& config, Choices& choices, EngineRole role) {
  return std::make_unique<DeviceDraws>(config, choices, role);
}

namespace {

void draw_ranks(Choices& choices, Config& config) {
  config.ranks = choices.once_in(3) ? 2 + choices.below(2) : 1;
  config.tokens_only = choices.once_in(8);
  // Not priority: there a step may take a victim that it has served, whose blocks then are found
  // with tokens that nobody has computed. So it is upstream, and the tokens show it
  // (rules_test.cpp).
  config.policy = SchedulingPolicy::kFCFS;
}

void draw_record(Choices& choices, offloading::Record& record) {
  record.num_cpu_blocks = choices.once_in(4) ? 1 + choices.below(4) : 4 + choices.below(12);
  record.block_size_factor = choices.once_in(2) ? 2 + choices.below(2) : 1;
  record.eviction_policy = choices.once_in(2) ? EvictionPolicy::kARC : EvictionPolicy::kLRU;
  record.offload_prompt_only = choices.once_in(3);
  record.request_level_policy = choices.once_in(4);
  if (choices.once_in(8)) record.store_threshold = 1 + choices.below(3);
  if (choices.once_in(8)) record.max_tracker_size = 1 + choices.below(12);
}

simple::Record draw_simple(Choices& choices) {
  simple::Record record;
  record.num_cpu_blocks = choices.once_in(3) ? 2 + choices.below(3) : 4 + choices.below(9);
  record.lazy_offload = choices.once_in(3);
  return record;
}

/// A pair over NIXL, mostly with the OffloadingConnector beside it.
Config draw_pair(Config config, Choices& choices) {
  const nixl::Record nixl = nixl::draw_pair(choices, config);
  config.consumer_ranks = config.ranks = 1 + choices.below(2);
  config.enable_caching = !choices.once_in(8);
  // With another step under way upstream may read into blocks that its forward still writes.
  config.max_concurrent_batches = 1;
  if (choices.once_in(3)) {
    config.connectors = ConnectorList{nixl};
  } else {
    // Stores are under way, and their blocks soon somebody else's.
    if (!choices.once_in(4)) config.profile = Profile::kV023;
    if (!choices.once_in(4)) {
      config.num_gpu_blocks = 4 + choices.below(4);
      config.consumer_num_gpu_blocks = 0;
    }
    offloading::Record offloading;
    draw_record(choices, offloading);
    MultiRecord multi{{nixl, offloading}};
    if (choices.once_in(6)) multi.children.emplace_back(draw_simple(choices));
    if (choices.once_in(2)) std::swap(multi.children.front(), multi.children.back());
    if (config.profile != Profile::kV019) multi.multi_connector_shares_blocks = true;
    config.connectors = ConnectorList{multi};
  }
  return completed(std::move(config), choices);
}

}  // namespace

Config draw_config(Choices& choices) {
  Config config = draw_small_engine(Assembly::kOffloadingOnDevice, choices);
  if (config.profile != Profile::kV019) draw_groups(kShapes, choices, config);
  draw_ranks(choices, config);
  draw_record(choices, config.edit_connector<offloading::Record>());
  return completed(std::move(config), choices);
}

Config draw_config_of_others(Choices& choices) {
  Config config = draw_small_engine(Assembly::kOnDevice, choices);
  draw_ranks(choices, config);
  if (choices.once_in(2)) return draw_pair(std::move(config), choices);
  const std::uint32_t kind = choices.below(5);
  if (kind == 0) {
    draw_groups(kShapesAlone, choices, config);
    config.connectors->clear();
    return completed(std::move(config), choices);
  }
  // Two children show more where stores are not held.
  if (kind > 1 && choices.once_in(2)) config.profile = Profile::kV023;
  config.enable_caching = true;
  auto& simple = config.edit_connector<simple::Record>();
  simple = draw_simple(choices);
  if (kind == 1) {
    draw_groups(kShapesOfSimple, choices, config);
    config.connectors = ConnectorList{simple};
  } else {
    if (config.profile != Profile::kV019) draw_groups(kShapesOfSimple, choices, config);
    draw_record(choices, config.edit_connector<offloading::Record>());
    auto& multi = config.edit_connector<MultiRecord>();
    if (choices.once_in(2)) std::swap(multi.children.front(), multi.children.back());
    // Other requests soon get the blocks.
    if (!choices.once_in(4)) config.num_gpu_blocks = 5 + choices.below(4);
    // Without the rule a store of one child reads blocks into which the other one loads
    // (cases/engine/on_device/races/).
    if (config.profile != Profile::kV019) multi.multi_connector_shares_blocks = true;
  }
  return completed(std::move(config), choices);
}

}  // namespace kvfence::engine::on_device
