#include "properties/engine/files/generator.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "contract/core/check.h"
#include "properties/kv_cache/generator.h"
#include "properties/kv_cache/group_draws.h"

namespace kvfence::engine::files {
namespace {

bool is_valid(const Config& config) {
  return static_cast<bool>(EngineTarget::prepare(config, {}, {}));
}

/// Of a DecodeBenchConnector.
void draw_groups(Choices& choices, Config& config) {
  const std::uint32_t size = config.hash_block_size;
  kv_cache::GroupList& groups = config.groups;
  switch (choices.below(6)) {
    case 0:
      groups = {draw_window(choices, size)};
      break;
    case 1:
      groups = {full(size), draw_window(choices, size)};
      break;
    case 2:
      groups = {draw_window(choices, size), full(size)};
      break;
    default:
      break;
  }
  if (!is_valid(config)) groups = {full(size)};
}

std::uint32_t num_layers_of_rank(const Config& config) {
  const auto* const example = config.connector<ExampleRecord>();
  return example ? example->num_layers : config.connector<DecodeBenchRecord>()->num_layers;
}

/// What requests do not have here.
constexpr std::string_view kNeverBent[] = {"priority", "arrival_time", "cache_salt"};
constexpr BentMembers kBentMembers{.never = kNeverBent};

/// How much an episode may favour each action.
constexpr std::array<std::uint32_t, 10> kUsualWeights = {
    160,  // kStep
    28,   // kAdd
    6,    // kFinish
    1,    // kFinishAll
    2,    // kPause
    8,    // kReset
    8,    // kWriteEntry
    4,    // kRemoveEntry
    2,    // kDamageFile
    2,    // kFault
};

}  // namespace

Config Generator::draw_config(Choices& choices) {
  Config config;
  make_assembly(Assembly::kSynchronous, config);
  static_cast<kv_cache::Config&>(config) = kv_cache::Generator::draw_config(choices);
  config.num_gpu_blocks = 5 + choices.below(16);
  config.profile = choices.once_in(2) ? "v0.23" : "v0.19";
  config.enable_caching = !choices.once_in(3);
  config.hash_block_size = 1 + config.hash_block_size % 4;
  config.max_num_batched_tokens = 1 + choices.below(choices.once_in(3) ? 8 : 48);
  config.retention_interval.reset();
  config.use_eagle = false;
  config.eagle_groups.clear();
  config.groups = {full(config.hash_block_size)};
  const bool is_decode_bench = choices.once_in(3);
  config.ranks = choices.once_in(2) ? 1 + choices.below(3) : 1;
  const std::uint32_t num_layers = 1 + choices.below(2);
  config.max_concurrent_batches = choices.once_in(2) ? 2 : 1;
  config.max_num_seqs = choices.once_in(6) ? 1 : 2 + choices.below(4);
  if (choices.once_in(4)) config.long_prefill_token_threshold = 1 + choices.below(6);
  std::optional<bool> decode_bench_hma;
  if (choices.once_in(12)) decode_bench_hma = choices.once_in(2);
  if (is_decode_bench) {
    config.connectors->front() = DecodeBenchRecord{num_layers, decode_bench_hma};
    draw_groups(choices, config);
  } else {
    config.connectors->front() = ExampleRecord{num_layers};
  }
  return config;
}

Generator::Generator(const Config& config, Choices& choices)
    : config_(config),
      keeps_files_(config.connector<ExampleRecord>() != nullptr),
      num_layers_of_rank_(num_layers_of_rank(config)),
      swarm_(kUsualWeights, kMildHabits, choices) {
  // Without these nothing else happens.
  for (Action action : {Action::kStep, Action::kAdd}) swarm_.raise(action, 2);
  requests_ = draw_request_habits(config, choices);
  live_max_ = 2 + choices.below(6);
  burst_max_ = 1 + choices.below(3);
  idle_in_ = choices.once_in(2) ? 4 : 0;
  part_in_ = choices.once_in(3) ? 2 : 12;
  resumable_in_ = choices.once_in(3) ? 8 : 1;
  odd_in_ = choices.once_in(4) ? 12 : 64;
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
      tokens_[added->id] = added->tokens;
    } else if (const auto* paused = std::get_if<SetPauseState>(&*last_)) {
      pause_state_ = paused->state;
    } else if (const auto* entry = std::get_if<WriteEntry>(&*last_)) {
      entries_.push_back(entry->tokens);
    } else if (std::holds_alternative<Schedule>(*last_)) {
      in_flight_.emplace_back();
      if (now.scheduled.has_value()) in_flight_.back() = *now.scheduled;
      if (now.preempted.has_value()) {
        victims_.insert(victims_.end(), now.preempted->begin(), now.preempted->end());
      }
    } else if (std::holds_alternative<Update>(*last_)) {
      take_in_update(now);
    }
  }
  if (now.requests.has_value()) known_ = *now.requests;
}

void Generator::take_in_update(const Observation& now) {
  if (!in_flight_.empty()) in_flight_.pop_front();
  if (now.outputs.has_value()) {
    for (const RequestOutput& output : *now.outputs) {
      Tokens& tokens = tokens_[output.request];
      tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
    }
  }
  if (!now.failed.has_value() || now.failed->empty()) return;
  in_flight_.clear();
  victims_.clear();
  known_.clear();
  pause_state_ = PauseState::kUnpaused;
  must_repair_ = true;
  failed_folder_ = now.failed->front().folder;
}

Command Generator::draw(Choices& choices, const World& world) {
  if (burst_left_ > 0) {
    --burst_left_;
    return add(choices, world);
  }
  if (must_repair_) return repair(choices);
  if (!victims_.empty()) {
    const Tokens& tokens = tokens_[victims_.front()];
    victims_.pop_front();
    if (keeps_files_ && choices.once_in(resumable_in_)) {
      return write(choices, whole_blocks(tokens, std::max<std::size_t>(tokens.size(), 1) - 1));
    }
  }
  if (pause_state_ != PauseState::kUnpaused && choices.once_in(4)) return SetPauseState{};

  const std::uint32_t num_live = num_unfinished_of(known_);
  Action action = swarm_.draw(choices);
  if (num_live == 0 && choices.once_in(2)) action = Action::kAdd;
  if (!keeps_files_ && action >= Action::kWriteEntry && !choices.once_in(16)) {
    action = Action::kStep;
  }
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
    case Action::kWriteEntry:
      return write(choices, draw_tokens(choices));
    case Action::kRemoveEntry:
      return RemoveEntry{draw_tokens(choices)};
    case Action::kDamageFile:
      return damage(choices);
    case Action::kFault:
      return FailNextFile{choices.below(num_layers()), pick(choices, kStorageOperations)};
  }
  KVFENCE_CHECK(false, "an action outside its enumeration");
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
  AddRequest command;
  std::uint32_t arrival_time = 0;
  // Priorities, times and salts are drawn and left out.
  const auto drawn = draw_request<AddRequest>("r" + std::to_string(next_name_++), requests_,
                                              config_, arrival_time, choices);
  command.id = drawn.id;
  command.tokens = drawn.tokens;
  command.max_tokens = drawn.max_tokens;
  command.skip_reading_prefix_cache = drawn.skip_reading_prefix_cache;
  return command;
}

// ---- Files ----

Generator::Tokens Generator::whole_blocks(const Tokens& tokens, std::size_t num_tokens) const {
  const std::size_t size = config_.hash_block_size;
  const std::size_t num_whole = std::min(num_tokens, tokens.size()) / size * size;
  return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(num_whole)};
}

/// What a prompt is kept as, what its lookup asks for, what was written, or any leading blocks.
Generator::Tokens Generator::draw_tokens(Choices& choices) const {
  if (!entries_.empty() && choices.once_in(3)) return pick(choices, entries_);
  if (names_.empty()) return {};
  const std::size_t num_recent = std::min<std::size_t>(names_.size(), 6);
  const std::size_t back = choices.below(static_cast<std::uint32_t>(num_recent));
  const Tokens& tokens = tokens_.at(names_[names_.size() - 1 - back]);
  const std::size_t num_but_one = tokens.size() - 1;
  switch (choices.below(3)) {
    case 0:
      return whole_blocks(tokens, num_but_one);
    case 1:
      return whole_blocks(tokens, std::max<std::size_t>(num_but_one, 1) - 1);
    default:
      return whole_blocks(tokens, choices.below(static_cast<std::uint32_t>(tokens.size()) + 1));
  }
}

WriteEntry Generator::write(Choices& choices, Tokens tokens) const {
  WriteEntry command;
  command.tokens = std::move(tokens);
  command.num_files = choices.once_in(part_in_) ? choices.below(num_layers()) : num_layers();
  return command;
}

Command Generator::damage(Choices& choices) const {
  const Tokens tokens = draw_tokens(choices);
  const std::uint32_t layer = choices.below(num_layers());
  if (choices.once_in(2)) return RemoveFile{tokens, layer};
  return TruncateFile{tokens, layer};
}

/// The folder goes, mostly, or is written anew; else it ends the next engine, too.
Command Generator::repair(Choices& choices) {
  must_repair_ = false;
  std::vector<Tokens> named = entries_;
  for (const auto& [name, tokens] : tokens_) {
    for (std::size_t end = 0; end <= tokens.size(); end += config_.hash_block_size) {
      named.push_back(whole_blocks(tokens, end));
    }
  }
  const auto found = std::find_if(named.begin(), named.end(), [&](const Tokens& tokens) {
    return folder_name(tokens) == failed_folder_;
  });
  if (found == named.end() || choices.once_in(6)) return Schedule{};
  if (choices.once_in(3)) return write(choices, *found);
  return RemoveEntry{*found};
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
    WriteEntry entry = write(choices, draw_tokens(choices));
    if (choices.once_in(2)) {
      entry.num_files += 1;
    } else {
      entry.tokens.push_back(0);
    }
    return entry;
  }
  bend_member<AddRequest>(
      command, requests_.unit, config_.max_model_len,
      [&] { return draw_name(known_, names_, choices); }, choices, kBentMembers);
  return command;
}

}  // namespace kvfence::engine::files
