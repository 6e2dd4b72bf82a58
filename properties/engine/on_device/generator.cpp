#include "properties/engine/on_device/generator.h"

#include <string_view>
#include <utility>

#include "contract/core/check.h"
#include "properties/kv_cache/generator.h"
#include "properties/kv_cache/group_draws.h"

namespace kvfence::engine::on_device {
namespace {

constexpr std::array<std::string_view, 3> kStreams = {"compute", "store", "load"};

/// How much an episode may favour each action.
constexpr std::array<std::uint32_t, 7> kUsualWeights = {
    200,  // kStep
    24,   // kAdd
    8,    // kFinish
    1,    // kFinishAll
    8,    // kReset
    1,    // kDrain
    4,    // kFail
};

/// The model samples: an update says nothing.
constexpr std::array<std::string_view, 1> kAlsoBent = {"max_offload_tokens"};
constexpr std::array<std::string_view, 2> kNeverBent = {"token", "samples"};
constexpr BentMembers kBentMembers{.also = kAlsoBent, .never = kNeverBent};

bool is_valid(const Config& config) {
  return static_cast<bool>(EngineTarget::prepare(config, {}, {}));
}

void draw_groups(Choices& choices, Config& config) {
  const std::uint32_t small = config.hash_block_size;
  const std::uint32_t large = small * (choices.once_in(2) ? 2 : 1);
  kv_cache::GroupList& groups = config.groups;
  groups = {full(small)};
  if (config.profile == "v0.19") return;
  switch (choices.below(8)) {
    case 0:
      groups = {full(large), draw_window(choices, small)};
      break;
    case 1:
      groups = {draw_window(choices, small), full(small), draw_window(choices, small)};
      break;
    case 2:
      groups = {draw_window(choices, small)};
      break;
    default:
      break;
  }
}

}  // namespace

Config Generator::draw_config(Choices& choices) {
  Config config;
  make_assembly(Assembly::kOffloadingOnDevice, config);
  auto& record = config.edit_connector<offloading::Record>();
  static_cast<kv_cache::Config&>(config) = kv_cache::Generator::draw_config(choices);
  config.num_gpu_blocks = 5 + choices.below(16);
  config.profile = choices.once_in(2) ? "v0.23" : "v0.19";
  // A request of one token that is loaded whole has nothing left to compute.
  config.hash_block_size = 2 + config.hash_block_size % 3;
  config.max_num_batched_tokens = 1 + choices.below(choices.once_in(3) ? 8 : 48);
  config.retention_interval.reset();
  config.use_eagle = false;
  config.eagle_groups.clear();
  draw_groups(choices, config);
  config.ranks = choices.once_in(3) ? 2 + choices.below(2) : 1;
  config.tokens_only = choices.once_in(8);
  config.kv_load_failure_policy = choices.once_in(3) ? "fail" : "recompute";
  record.num_cpu_blocks = choices.once_in(4) ? 1 + choices.below(4) : 4 + choices.below(12);
  record.block_size_factor = choices.once_in(2) ? 2 + choices.below(2) : 1;
  record.eviction_policy = choices.once_in(2) ? "arc" : "lru";
  record.offload_prompt_only = choices.once_in(3);
  record.request_level_policy = choices.once_in(4);
  config.async_scheduling = choices.once_in(2);
  config.max_concurrent_batches = choices.once_in(2) ? 2 : 1;
  // Not priority: there a step may take a victim that it has served, whose blocks then are found
  // with tokens that nobody has computed. So it is upstream, and the tokens show it
  // (rules_test.cpp).
  config.policy = "fcfs";
  config.max_num_seqs = choices.once_in(6) ? 1 : 2 + choices.below(4);
  if (choices.once_in(4)) config.long_prefill_token_threshold = 1 + choices.below(6);
  if (!is_valid(config)) config.enable_caching = true;
  if (!is_valid(config)) config.groups = {full(config.hash_block_size)};
  return config;
}

Generator::Generator(const Config& config, Choices& choices)
    : config_(config), swarm_(kUsualWeights, kMildHabits, choices) {
  // Without these nothing else happens.
  for (Action action : {Action::kStep, Action::kAdd}) swarm_.raise(action, 2);
  requests_ = draw_request_habits(config, choices);
  // Who does not read the GPU's cache, loads.
  if (choices.once_in(3)) requests_.skip_in = 2;
  // Long prompts with one prefix: now and then the GPU has kept a part of what a slot holds.
  if (config.connector<offloading::Record>()->block_size_factor > 1 && choices.once_in(2)) {
    requests_.vary_in = 24;
    requests_.prompt_max = kv_cache::capacity_of(config);
    requests_.output_max = 3;
    requests_.skip_in = 64;
  }
  live_max_ = 2 + choices.below(6);
  burst_max_ = 1 + choices.below(3);
  idle_in_ = choices.once_in(2) ? 4 : 0;
  odd_in_ = choices.once_in(4) ? 12 : 64;
  // Eager, usual, lazy; a compute stream that is as lazy as can be is driven by updates.
  constexpr std::array<std::uint32_t, 4> kLate = {1, 3, 6, 30};
  late_in_.resize(1);
  for (std::uint32_t& late_in : late_in_.front()) late_in = kLate[choices.below(kLate.size())];
  // The other ranks alike, or one of them behind the others.
  late_in_.resize(config.ranks, late_in_.front());
  if (!choices.once_in(3)) late_in_[choices.below(config.ranks)] = {6, 30, 30};
}

Command Generator::next(Choices& choices, const Observation& now, const World& world) {
  take_in(now);
  Command command = draw(choices, world);
  if (choices.once_in(odd_in_)) command = bent(choices, std::move(command));
  // With several groups nothing else is taken, but now and then that is asked for.
  if (auto* added = std::get_if<AddRequest>(&command)) {
    added->skip_reading_prefix_cache |= config_.groups.size() > 1 && !choices.once_in(64);
  }
  last_ = command;
  return command;
}

void Generator::take_in(const Observation& now) {
  // Before the first command nothing is there; what is not there may hold anything.
  num_planned_ = now.num_steps_in_flight.has_value() ? *now.num_steps_in_flight : 0;
  num_transfers_ = now.num_transfers.has_value() ? *now.num_transfers : 0;
  if (now.requests.has_value()) known_ = *now.requests;
  if (!last_ || now.error != ErrorCode::kNone) return;
  if (const auto* added = std::get_if<AddRequest>(&*last_)) names_.push_back(added->id);
  if (std::holds_alternative<Execute>(*last_)) ++num_executed_;
  if (std::holds_alternative<Poll>(*last_)) ++num_polled_;
  if (std::holds_alternative<Update>(*last_)) {
    --num_executed_;
    --num_polled_;
  }
  if (std::holds_alternative<Drain>(*last_)) {
    num_executed_ = 0;
    num_polled_ = 0;
  }
}

Command Generator::draw(Choices& choices, const World& world) {
  if (burst_left_ > 0) {
    --burst_left_;
    return add(choices, world);
  }
  for (std::size_t stream = 0; stream < kStreams.size(); ++stream) {
    // Half the time, so that an eager stream leaves room for something else.
    const bool has_work = stream == 0 ? num_executed_ > 0 : num_transfers_ > 0;
    if (!has_work || choices.once_in(2)) continue;
    const std::uint32_t rank = choices.below(config_.ranks);
    if (!choices.once_in(late_in_[rank][stream])) continue;
    return Advance{std::string(kStreams[stream]), rank};
  }
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
      return FinishAllRequests{RequestStatus::kFinishedAborted};
    case Action::kReset:
      return ResetPrefixCache{.reset_connector = choices.once_in(3)};
    case Action::kDrain:
      return Drain{};
    case Action::kFail:
      return fail(choices);
  }
  KVFENCE_CHECK(false, "an action outside its enumeration");
}

/// Plans ahead as far as the configuration goes, mostly, and does what can be done in any order.
Command Generator::step(Choices& choices) const {
  if (num_polled_ < num_executed_) return Poll{};
  const bool has_room = num_planned_ < config_.max_concurrent_batches;
  if (num_planned_ == 0) return Schedule{};
  if (has_room && num_executed_ > 0 && (idle_in_ == 0 || !choices.once_in(idle_in_))) {
    return Schedule{};
  }
  if (has_room && choices.once_in(4)) return Schedule{};
  if (num_executed_ < num_planned_ && (num_polled_ == 0 || !choices.once_in(3))) return Execute{};
  return Update{};
}

Command Generator::add(Choices& choices, const World& world) {
  while (world.find("r" + std::to_string(next_name_))) ++next_name_;
  AddRequest command = draw_request<AddRequest>("r" + std::to_string(next_name_++), requests_,
                                                config_, arrival_time_, choices);
  const auto length = static_cast<std::uint32_t>(command.tokens.size());
  if (choices.once_in(12)) command.max_offload_tokens = choices.below(length + 2);
  return command;
}

/// Mostly of a stream that may fail.
Command Generator::fail(Choices& choices) const {
  constexpr std::array<std::string_view, 3> kFaults = {"copy", "wait", "record"};
  const bool loads_may = config_.groups.size() == 1 && config_.groups.front().is_full_attention();
  const bool stores_may = config_.profile != "v0.19";
  bool is_store = choices.once_in(2);
  if (loads_may != stores_may && !choices.once_in(16)) is_store = stores_may;
  return FailNext{is_store ? "store" : "load", choices.below(config_.ranks),
                  std::string(kFaults[choices.below(kFaults.size())])};
}

Command Generator::bent(Choices& choices, Command command) const {
  switch (choices.below(10)) {
    case 0:
      return Schedule{};
    case 1:
      return Execute{};
    case 2:
      return Poll{};
    case 3:
      return Update{};
    case 4:
      return Advance{"copy"};
    case 5:
      return Advance{"store", choices.below(config_.ranks + 1)};
    case 6:
      return FailNext{choices.once_in(2) ? "load" : "compute", choices.below(config_.ranks + 1),
                      choices.once_in(2) ? "copy" : "late"};
    default:
      break;
  }
  bend_member<AddRequest>(
      command, requests_.unit, config_.max_model_len,
      [&] { return draw_name(known_, names_, choices); }, choices, kBentMembers);
  return command;
}

}  // namespace kvfence::engine::on_device
