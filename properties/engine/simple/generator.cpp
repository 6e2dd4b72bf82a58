#include "properties/engine/simple/generator.h"

#include <utility>

#include "contract/core/check.h"
#include "properties/kv_cache/generator.h"
#include "properties/kv_cache/group_draws.h"

namespace kvfence::engine::simple {
namespace {

bool is_valid(const Config& config) {
  return static_cast<bool>(EngineTarget::prepare(config, {}, {}));
}

/// A window of one token needs nothing from before, and upstream loads it into the null block.
KVCacheSpec sliding(Choices& choices, std::uint32_t block_size) {
  return window_of(2 + choices.below(3 * block_size), block_size);
}

void draw_groups(Choices& choices, Config& config) {
  const std::uint32_t small = config.hash_block_size;
  const std::uint32_t large = small * (choices.once_in(2) ? 2 : 1);
  kv_cache::GroupList& groups = config.groups;
  groups = {full(small)};
  switch (choices.below(10)) {
    case 0:
      groups = {full(large), sliding(choices, small)};
      break;
    case 1:
      groups = {sliding(choices, small), full(small)};
      break;
    case 2:
      groups = {full(large), mamba(small)};
      break;
    case 3:
      groups = {full(large), sliding(choices, small), mamba(small)};
      break;
    case 4:
      groups = {full(large)};
      break;
    default:
      break;
  }
  if (!is_valid(config)) groups.front() = full(small);
  if (!is_valid(config)) groups = {full(small)};
}

/// The profile's rules, or now and then a mixture.
void draw_rules(Choices& choices, Record& record) {
  for (auto* rule :
       {&record.simple_offload_pins_hits, &record.simple_offload_skips_stores_under_way,
        &record.simple_offload_skips_unhashed_blocks, &record.simple_offload_aligns_stores}) {
    if (choices.once_in(12)) *rule = choices.once_in(2);
  }
}

/// How much an episode may favour each action.
constexpr std::array<std::uint32_t, 6> kUsualWeights = {
    160,  // kStep
    24,   // kAdd
    8,    // kFinish
    1,    // kFinishAll
    2,    // kPause
    12,   // kReset
};

}  // namespace

Config Generator::draw_config(Choices& choices) {
  Config config;
  make_assembly(Assembly::kSimple, config);
  Record& record = config.edit_connector<Record>();
  static_cast<kv_cache::Config&>(config) = kv_cache::Generator::draw_config(choices);
  config.num_gpu_blocks = 5 + choices.below(16);
  config.profile = choices.once_in(2) ? "v0.23" : "v0.19";
  config.enable_caching = true;
  // A request of one token that is loaded whole has nothing left to compute.
  config.hash_block_size = 2 + config.hash_block_size % 3;
  config.max_num_batched_tokens = 1 + choices.below(choices.once_in(3) ? 8 : 48);
  config.retention_interval.reset();
  config.use_eagle = false;
  config.eagle_groups.clear();
  config.groups = {full(config.hash_block_size)};
  config.ranks = 1 + choices.below(3);
  record.num_cpu_blocks = choices.once_in(3) ? 1 + choices.below(4) : 4 + choices.below(9);
  record.lazy_offload = choices.once_in(2);
  config.async_scheduling = choices.once_in(2);
  config.max_concurrent_batches = choices.once_in(2) ? 2 : 1;
  config.policy = choices.once_in(2) ? "priority" : "fcfs";
  config.max_num_seqs = choices.once_in(6) ? 1 : 2 + choices.below(4);
  if (choices.once_in(4)) config.long_prefill_token_threshold = 1 + choices.below(6);
  draw_rules(choices, record);
  draw_groups(choices, config);
  return config;
}

Generator::Generator(const Config& config, Choices& choices)
    : config_(config), swarm_(kUsualWeights, kMildHabits, choices) {
  // Without these nothing else happens.
  for (Action action : {Action::kStep, Action::kAdd}) swarm_.raise(action, 2);
  requests_ = draw_request_habits(config, choices);
  live_max_ = 2 + choices.below(6);
  burst_max_ = 1 + choices.below(3);
  idle_in_ = choices.once_in(2) ? 4 : 0;
  part_in_ = choices.once_in(2) ? 2 : 8;
  odd_in_ = choices.once_in(4) ? 12 : 64;
  draw_lateness(choices);
}

/// Eager, usual, lazy; all ranks alike, each its own way, or one behind the others.
void Generator::draw_lateness(Choices& choices) {
  constexpr std::array<std::uint32_t, 4> kLate = {1, 3, 6, 30};
  const auto draw_one = [&] {
    Lateness lateness;
    lateness.load_in = pick(choices, kLate);
    lateness.store_in = pick(choices, kLate);
    return lateness;
  };
  late_.assign(config_.ranks, draw_one());
  if (choices.once_in(2)) return;
  if (choices.once_in(2)) {
    for (Lateness& lateness : late_) lateness = draw_one();
  } else {
    late_.assign(config_.ranks, {});
    late_[choices.below(config_.ranks)] = {30, 30};
  }
}

Command Generator::next(Choices& choices, const Observation& now, const World& world) {
  take_in(now);
  Command command = draw(choices, world);
  if (choices.once_in(odd_in_)) command = bent(choices, std::move(command));
  // With several groups nothing else is taken, but now and then that is asked for.
  if (auto* added = std::get_if<AddRequest>(&command); added && config_.groups.size() > 1) {
    added->skip_reading_prefix_cache |= !choices.once_in(64);
  }
  last_ = command;
  return command;
}

void Generator::take_in(const Observation& now) {
  if (last_ && now.error == ErrorCode::kNone) {
    if (const auto* added = std::get_if<AddRequest>(&*last_)) {
      names_.push_back(added->id);
    } else if (const auto* paused = std::get_if<SetPauseState>(&*last_)) {
      pause_state_ = paused->state;
    } else if (std::holds_alternative<Schedule>(*last_)) {
      in_flight_.emplace_back();
      if (now.scheduled.has_value()) in_flight_.back() = *now.scheduled;
    } else if (std::holds_alternative<Update>(*last_) && !in_flight_.empty()) {
      in_flight_.pop_front();
    }
  }
  if (now.requests.has_value()) known_ = *now.requests;
  if (now.copies.has_value()) copies_ = *now.copies;
}

Command Generator::draw(Choices& choices, const World& world) {
  if (burst_left_ > 0) {
    --burst_left_;
    return add(choices, world);
  }
  if (auto command = copy(choices)) return *command;
  if (pause_state_ != PauseState::kUnpaused && choices.once_in(4)) return SetPauseState{};

  const std::uint32_t num_live = num_unfinished_of(known_);
  Action action = swarm_.draw(choices);
  if (num_live == 0 && choices.once_in(2)) action = Action::kAdd;
  switch (action) {
    case Action::kStep:
      return step(choices);
    case Action::kAdd:
      if (num_live >= live_max_) return step(choices);
      burst_left_ = choices.below(burst_max_);
      return add(choices, world);
    case Action::kFinish:
      if (known_.empty()) return step(choices);
      return draw_finish(known_, choices);
    case Action::kFinishAll:
      return FinishAllRequests{};
    case Action::kPause:
      return SetPauseState{choices.once_in(2) ? PauseState::kPausedAll : PauseState::kPausedNew};
    case Action::kReset:
      return ResetPrefixCache{.reset_connector = choices.once_in(6)};
  }
  KVFENCE_CHECK(false, "an action outside its enumeration");
}

std::optional<Command> Generator::copy(Choices& choices) const {
  // One try a rank and direction, at its oldest copy.
  std::vector<std::array<bool, 2>> tried(late_.size(), {false, false});
  for (const Copy& copy : copies_) {
    if (copy.progress == TransferProgress::kFinished || copy.rank >= late_.size()) continue;
    if (std::exchange(tried[copy.rank][copy.store ? 1 : 0], true)) continue;
    const Lateness& lateness = late_[copy.rank];
    if (!choices.once_in(copy.store ? lateness.store_in : lateness.load_in)) continue;
    AdvanceCopy command;
    command.rank = copy.rank;
    command.store = copy.store;
    const bool is_fresh = copy.progress == TransferProgress::kSubmitted;
    if (is_fresh && choices.once_in(part_in_)) command.progress = TransferProgress::kPart;
    return command;
  }
  return std::nullopt;
}

/// Plans ahead as far as the configuration goes, mostly.
Command Generator::step(Choices& choices) const {
  if (in_flight_.empty()) return Schedule{};
  const bool has_room = in_flight_.size() < config_.max_concurrent_batches;
  if (has_room && (idle_in_ == 0 || !choices.once_in(idle_in_))) return Schedule{};
  return draw_update<Update>(in_flight_, requests_, choices);
}

Command Generator::add(Choices& choices, const World& world) {
  while (world.find("r" + std::to_string(next_name_))) ++next_name_;
  return draw_request<AddRequest>("r" + std::to_string(next_name_++), requests_, config_,
                                  arrival_time_, choices);
}

// ---- What no engine sends ----

Command Generator::bent(Choices& choices, Command command) const {
  // A step too many, or one that nobody planned.
  const bool is_step =
      std::holds_alternative<Schedule>(command) || std::holds_alternative<Update>(command);
  if (is_step && choices.once_in(3)) {
    if (!in_flight_.empty() && choices.once_in(2)) return Schedule{};
    return draw_update<Update>(in_flight_, requests_, choices);
  }
  if (choices.once_in(6)) {
    AdvanceCopy advance;
    advance.rank = choices.below(config_.ranks + 1);
    advance.store = choices.once_in(2);
    advance.progress = static_cast<TransferProgress>(choices.below(4));
    return advance;
  }
  bend_member<AddRequest>(
      command, requests_.unit, config_.max_model_len,
      [&] { return draw_name(known_, names_, choices); }, choices);
  return command;
}

}  // namespace kvfence::engine::simple
