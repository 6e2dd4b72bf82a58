#include "properties/engine/scheduler/generator.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>
#include <utility>

#include "contract/core/check.h"
#include "properties/core/invariant_values.h"
#include "properties/engine/request_draws.h"
#include "properties/kv_cache/arithmetic.h"
#include "properties/kv_cache/generator.h"

namespace kvfence::engine::scheduler {
namespace {

using detail::contains;

constexpr std::uint32_t kHuge = 0xFFFF'FFFF;  // where sums and products wrap around
constexpr TokenId kEosToken = 2;
constexpr TokenId kStopToken = 3;

/// Everything, but for what needs a connector with workers, or a second engine.
constexpr std::string_view kAlsoBent[] = {
    "external_tokens",  "load_async",     "ask_again",       "hold_blocks",
    "grammar",          "min_tokens",     "eos_token",       "stop_tokens",
    "lora_name",        "lora_id",        "accepted",        "finished_recving",
    "finished_sending", "invalid_blocks", "connector_fails", "reset_running_requests",
};
constexpr BentMembers kBentMembers{.also = kAlsoBent};

bool is_valid(const Config& config) {
  return static_cast<bool>(EngineTarget::prepare(config, {}, {}));
}

kv_cache::GroupList full_attention(std::uint32_t block_size) {
  return {KVCacheSpec{.kind = KVCacheSpecKind::kFullAttention, .block_size = block_size}};
}

bool is_cross(const KVCacheSpec& spec) { return spec.kind == KVCacheSpecKind::kCrossAttention; }

void draw_cache(Choices& choices, Config& config) {
  static_cast<kv_cache::Config&>(config) = kv_cache::Generator::draw_config(choices);
  config.num_gpu_blocks = 5 + choices.below(20);
  config.profile = choices.once_in(3) ? "v0.23" : "v0.19";
  config.max_num_batched_tokens = 1 + choices.below(choices.once_in(3) ? 8 : 48);
  const bool has_cross = std::any_of(config.groups.begin(), config.groups.end(), is_cross);
  if (has_cross || choices.once_in(2)) {
    config.groups = full_attention(config.hash_block_size);
    config.retention_interval.reset();
    config.eagle_groups.clear();
  }
}

void draw_speculation(Choices& choices, Config& config) {
  config.async_scheduling = choices.once_in(2);
  config.max_concurrent_batches = choices.once_in(3) ? 1 : 2;
  if (config.use_eagle || choices.once_in(3)) {
    config.num_speculative_tokens = 1 + choices.below(3);
    config.draft_model = !config.use_eagle && choices.once_in(2);
  }
  // Drafts that are not there yet cannot be planned with.
  if (config.num_speculative_tokens > 0 && !config.async_scheduling) {
    config.max_concurrent_batches = 1;
  }
}

/// What goes with everything: a pool for one kind of blocks.
void make_plain(Config& config) {
  config.groups = full_attention(config.hash_block_size);
  config.retention_interval.reset();
  config.use_eagle = false;
  config.eagle_groups.clear();
  config.enable_caching = true;
}

/// How much an episode may favour each action.
constexpr std::array<std::uint32_t, 9> kUsualWeights = {
    160,  // kStep
    24,   // kAdd
    6,    // kFinish
    1,    // kFinishAll
    6,    // kCompileGrammar
    3,    // kPause
    3,    // kReset
    3,    // kScript
    4,    // kPlay
};

}  // namespace

Config Generator::draw_config(Choices& choices) {
  Config config;
  make_assembly(Assembly::kScheduler, config);
  draw_cache(choices, config);
  draw_speculation(choices, config);
  config.policy = choices.once_in(2) ? "priority" : "fcfs";
  config.max_num_seqs = choices.once_in(6) ? 1 : 2 + choices.below(4);
  if (choices.once_in(4)) config.max_num_scheduled_tokens = 1 + choices.below(24);
  if (choices.once_in(2)) config.long_prefill_token_threshold = 1 + choices.below(6);
  config.enable_chunked_prefill = !choices.once_in(4);
  config.scheduler_reserve_full_isl = !choices.once_in(2);
  config.kv_load_failure_policy = choices.once_in(2) ? "recompute" : "fail";
  const bool has_connector =
      choices.once_in(2) &&
      std::none_of(config.groups.begin(), config.groups.end(), kv_cache::is_mamba_align);
  if (has_connector) config.connectors->emplace_back(ScriptedRecord());
  // Mamba align wants whole blocks in every step.
  for (const KVCacheSpec& spec : config.groups) {
    if (!kv_cache::is_mamba_align(spec)) continue;
    config.max_num_scheduled_tokens = 0;
    config.max_num_batched_tokens += spec.block_size;
    if (config.long_prefill_token_threshold > 0) {
      config.long_prefill_token_threshold += spec.block_size;
    }
  }
  // Not every profile takes a retention interval or eagle by group, nor every kind eagle.
  if (!is_valid(config)) config.retention_interval.reset();
  if (!is_valid(config)) config.eagle_groups.clear();
  if (!is_valid(config)) config.use_eagle = false;
  if (!is_valid(config)) make_plain(config);
  return config;
}

Generator::Generator(const Config& config, Choices& choices)
    : config_(config),
      unit_(kv_cache::common_block_size(config)),
      swarm_(kUsualWeights, kMildHabits, choices) {
  // Without these nothing else happens.
  for (Action action : {Action::kStep, Action::kAdd}) swarm_.raise(action, 2);
  // Two or more fill the pool together, and few do so alone.
  const std::uint32_t capacity = kv_cache::capacity_of(config);
  prompt_max_ = std::max(1U, capacity / (2 + choices.below(6)));
  live_max_ = 3 + choices.below(7);
  burst_max_ = 1 + choices.below(4);
  output_max_ = choices.once_in(3) ? 4 : 1 + capacity / (1 + choices.below(2));
  stop_in_ = choices.once_in(3) ? 4 : 24;
  external_in_ = choices.once_in(4) ? 6 : 2;
  hold_in_ = choices.once_in(3) ? 2 : 6;
  idle_in_ = choices.once_in(2) ? 4 : 0;
  late_in_ = 1 + choices.below(4);
  fail_in_ = choices.once_in(3) ? 2 : 8;
  odd_in_ = choices.once_in(3) ? 12 : 64;
  is_last_first_ = choices.once_in(2);
}

Command Generator::next(Choices& choices, const Observation& now, const World& world) {
  take_in_answer(now);
  Command command = draw(choices, world);
  if (choices.once_in(odd_in_)) command = bent(choices, std::move(command));
  last_ = command;
  return command;
}

// ---- What was answered ----

void Generator::take_in_answer(const Observation& now) {
  update_was_refused_ = false;
  if (last_ && now.error != ErrorCode::kNone) {
    update_was_refused_ = std::holds_alternative<Update>(*last_);
  } else if (last_) {
    if (const auto* added = std::get_if<AddRequest>(&*last_)) {
      names_.push_back(added->id);
    } else if (const auto* updated = std::get_if<Update>(&*last_)) {
      take_in_update(*updated);
    } else if (const auto* paused = std::get_if<SetPauseState>(&*last_)) {
      pause_state_ = paused->state;
    } else if (std::holds_alternative<Schedule>(*last_)) {
      take_in_step(now);
    }
  }
  if (now.requests.has_value() && now.tables.has_value()) take_in_state(now);
}

void Generator::take_in_step(const Observation& now) {
  PlannedStep& step = in_flight_.emplace_back();
  if (!now.scheduled.has_value()) return;
  step.scheduled = *now.scheduled;
  if (!now.connector_calls.has_value()) return;
  for (const ConnectorCallRecord& call : *now.connector_calls) {
    if (call.method != "update_state_after_alloc" || call.num_tokens == 0) continue;
    const bool is_scheduled =
        std::any_of(step.scheduled.begin(), step.scheduled.end(),
                    [&](const ScheduledRequest& each) { return each.request == call.request; });
    if (is_scheduled) step.loaded.push_back(call.request);
  }
}

void Generator::take_in_update(const Update& update) {
  for (Known& known : known_) {
    if (contains(update.finished_recving, known.state.id)) known.is_reported = true;
  }
  to_draft_.clear();
  if (in_flight_.empty()) return;
  for (const ScheduledRequest& scheduled : in_flight_.front().scheduled) {
    if (scheduled.samples) to_draft_.push_back(scheduled.request);
  }
  in_flight_.pop_front();
}

void Generator::take_in_state(const Observation& now) {
  std::vector<Known> known;
  tables_ = *now.tables;
  for (const RequestState& state : *now.requests) {
    Known& request = known.emplace_back();
    request.state = state;
    const Known* before = find(state.id);
    if (!before) continue;
    const bool was_loading =
        before->state.status == RequestStatus::kWaitingForRemoteKVs && !before->is_reported;
    request.is_reported =
        state.status == RequestStatus::kWaitingForRemoteKVs && before->is_reported;
    request.awaits_load = is_finished(state.status) && (before->awaits_load || was_loading);
  }
  known_ = std::move(known);
}

const Generator::Known* Generator::find(const std::string& name) const {
  const auto at = std::find_if(known_.begin(), known_.end(),
                               [&](const Known& known) { return known.state.id == name; });
  return at == known_.end() ? nullptr : &*at;
}

const RequestBlocks* Generator::find_table(const std::string& name) const {
  const auto at = std::find_if(tables_.begin(), tables_.end(),
                               [&](const RequestBlocks& table) { return table.request == name; });
  return at == tables_.end() ? nullptr : &*at;
}

// ---- What comes next ----

Command Generator::draw(Choices& choices, const World& world) {
  if (burst_left_ > 0) {
    --burst_left_;
    return add(choices, world);
  }
  if (config_.num_speculative_tokens > 0 && !config_.async_scheduling && !to_draft_.empty()) {
    const std::string name = to_draft_.back();
    to_draft_.pop_back();
    if (!choices.once_in(6)) return drafts(choices, name);
  }
  if (pause_state_ != PauseState::kUnpaused && choices.once_in(6)) return SetPauseState{};

  const auto num_live = static_cast<std::uint32_t>(
      std::count_if(known_.begin(), known_.end(),
                    [](const Known& known) { return !is_finished(known.state.status); }));
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
      return finish(choices);
    case Action::kFinishAll:
      return FinishAllRequests{choices.once_in(6) ? RequestStatus::kFinishedError
                                                  : RequestStatus::kFinishedAborted};
    case Action::kCompileGrammar:
      for (const Known& known : known_) {
        const bool waits = known.state.status == RequestStatus::kWaitingForGrammar;
        if (waits && !choices.once_in(3)) return GrammarCompiled{known.state.id};
      }
      return step(choices);
    case Action::kPause:
      return SetPauseState{choices.once_in(2) ? PauseState::kPausedAll : PauseState::kPausedNew};
    case Action::kReset:
      return reset(choices);
    case Action::kScript: {
      if (!config_.has_connector() || known_.empty()) return step(choices);
      const RequestState& state = pick(choices, known_).state;
      ScriptConnector command;
      command.request = state.id;
      draw_script(choices, state.num_tokens, command);
      return command;
    }
    case Action::kPlay:
      if (known_.empty() || config_.num_speculative_tokens == 0 || config_.async_scheduling) {
        return step(choices);
      }
      return drafts(choices, pick(choices, known_).state.id);
  }
  KVFENCE_CHECK(false, "an action outside its enumeration");
}

/// Plans ahead as far as the configuration goes, mostly.
Command Generator::step(Choices& choices) {
  if (in_flight_.empty()) return Schedule{};
  const bool has_room = in_flight_.size() < config_.max_concurrent_batches;
  if (has_room && (idle_in_ == 0 || !choices.once_in(idle_in_))) return Schedule{};
  return update(choices);
}

/// Prompts of blocks that repeat one of two tokens, so that prefixes are shared all the time.
Command Generator::add(Choices& choices, const World& world) {
  AddRequest command;
  while (world.find("r" + std::to_string(next_name_))) ++next_name_;
  command.id = "r" + std::to_string(next_name_++);
  const std::uint32_t length_max = choices.once_in(16) ? config_.max_model_len - 1 : prompt_max_;
  const std::uint32_t length =
      1 + (choices.once_in(3) ? skewed(choices, length_max) : choices.below(length_max));
  while (command.tokens.size() < length) {
    command.tokens.insert(command.tokens.end(), unit_, choices.once_in(6) ? 1U : 0U);
  }
  command.tokens.resize(length);

  command.max_tokens = 1 + choices.below(output_max_);
  if (choices.once_in(32)) command.max_tokens = kHuge - choices.below(2);
  if (choices.once_in(4)) {
    const std::uint32_t room = std::min(command.max_tokens, config_.max_model_len - length);
    command.min_tokens = choices.below(room + 1);
  }
  if (!choices.once_in(4)) command.eos_token = kEosToken;
  if (choices.once_in(2)) command.stop_tokens.push_back(kStopToken);
  if (choices.once_in(16)) command.stop_tokens.push_back(kEosToken);

  if (is_last_first_) {
    command.priority = 9 - std::min(9U, next_name_ % 10);
  } else if (config_.policy == "priority" || choices.once_in(8)) {
    command.priority = choices.below(3);
  }
  arrival_time_ += choices.below(2);
  command.arrival_time = arrival_time_;
  if (choices.once_in(16)) {
    command.lora_name = "lora";
    command.lora_id = 1 + choices.below(2);
  }
  if (choices.once_in(16)) command.cache_salt = "salt";
  command.skip_reading_prefix_cache = choices.once_in(24);
  command.grammar = choices.once_in(8);
  if (config_.has_connector()) draw_script(choices, length, command);
  return command;
}

template <class S>
void Generator::draw_script(Choices& choices, std::uint32_t num_tokens, S& command) const {
  if (choices.once_in(external_in_)) {
    command.external_tokens = choices.once_in(3) ? num_tokens : 1 + choices.below(num_tokens + 2);
  }
  command.load_async = !choices.once_in(3);
  if (choices.once_in(6)) command.ask_again = 1 + choices.below(2);
  command.hold_blocks = choices.once_in(hold_in_);
}

Command Generator::finish(Choices& choices) const {
  FinishRequests command;
  for (std::uint32_t count = 1 + skewed(choices, 3); count > 0; --count) {
    command.requests.push_back(pick(choices, known_).state.id);
  }
  if (choices.once_in(6)) command.status = RequestStatus::kFinishedStopped;
  return command;
}

Command Generator::reset(Choices& choices) const {
  ResetPrefixCache command;
  command.reset_running_requests = choices.once_in(2);
  command.reset_connector = choices.once_in(3);
  command.connector_fails = command.reset_connector && choices.once_in(3);
  return command;
}

TokenId Generator::draw_token(Choices& choices) const {
  if (choices.once_in(stop_in_)) return choices.once_in(2) ? kStopToken : kEosToken;
  return choices.once_in(6) ? 1 : 0;
}

UpdateDraftTokenIds Generator::drafts(Choices& choices, const std::string& name) const {
  UpdateDraftTokenIds command{name, {}};
  const std::uint32_t most = config_.num_speculative_tokens;
  std::uint32_t count = choices.once_in(4) ? choices.below(most + 1) : most;
  for (; count > 0; --count) command.tokens.push_back(draw_token(choices));
  return command;
}

// ---- What comes back ----

Update Generator::update(Choices& choices) const {
  Update command;
  command.token = draw_token(choices);
  if (config_.num_speculative_tokens > 0) {
    command.accepted = choices.below(config_.num_speculative_tokens + 1);
  }
  if (in_flight_.empty()) return command;
  draw_samples(choices, in_flight_.front(), command);
  if (!config_.has_connector() || update_was_refused_) return command;
  draw_reports(choices, command);
  draw_invalid_blocks(choices, in_flight_.front(), command);
  return command;
}

/// Some sample something of their own.
void Generator::draw_samples(Choices& choices, const PlannedStep& step, Update& update) const {
  for (const ScheduledRequest& scheduled : step.scheduled) {
    if (!scheduled.samples || !choices.once_in(4)) continue;
    const auto num_drafts = static_cast<std::uint32_t>(scheduled.spec_tokens.size());
    Sample sample{scheduled.request, {}};
    std::uint32_t count = 1 + choices.below(num_drafts + 1);
    for (; count > 0; --count) sample.tokens.push_back(draw_token(choices));
    update.samples.push_back(std::move(sample));
  }
}

/// Reports of loads and transfers that are due, each as late as it likes.
void Generator::draw_reports(Choices& choices, Update& update) const {
  for (const Known& known : known_) {
    const bool loads =
        known.state.status == RequestStatus::kWaitingForRemoteKVs && !known.is_reported;
    const bool is_held = is_finished(known.state.status);
    if ((!loads && !is_held) || choices.below(late_in_) != 0) continue;
    (loads || known.awaits_load ? update.finished_recving : update.finished_sending)
        .push_back(known.state.id);
  }
}

void Generator::draw_invalid_blocks(Choices& choices, const PlannedStep& step,
                                    Update& update) const {
  if (config_.groups.size() > 1) return;
  std::vector<const RequestBlocks*> loading;
  std::vector<const RequestBlocks*> running;
  for (const Known& known : known_) {
    const RequestBlocks* table = find_table(known.state.id);
    if (!table) continue;
    const bool loads =
        known.state.status == RequestStatus::kWaitingForRemoteKVs && !known.is_reported;
    if (loads || contains(step.loaded, known.state.id)) loading.push_back(table);
    if (known.state.status == RequestStatus::kRunning) running.push_back(table);
  }
  if (!loading.empty() && choices.once_in(fail_in_)) {
    for (std::uint32_t count = 1 + skewed(choices, 3); count > 0; --count) {
      add_invalid_block(choices, *pick(choices, loading), update);
    }
  }
  if (!running.empty() && choices.once_in(24)) {
    add_invalid_block(choices, *pick(choices, running), update);
  }
}

void Generator::add_invalid_block(Choices& choices, const RequestBlocks& table,
                                  Update& update) const {
  const std::vector<BlockId>& blocks = table.blocks.front();
  if (blocks.empty()) return;
  const BlockId block = pick(choices, blocks);
  if (block != kNullBlockId && !contains(update.invalid_blocks, block)) {
    update.invalid_blocks.push_back(block);
  }
}

// ---- What no engine sends ----

std::string Generator::any_name(Choices& choices) const {
  if (names_.empty() || choices.once_in(6)) return "nobody";
  // Those that are there more often than those that are gone.
  if (!known_.empty() && !choices.once_in(3)) return pick(choices, known_).state.id;
  return pick(choices, names_);
}

Command Generator::bent(Choices& choices, Command command) const {
  // A step too many, or one that nobody planned.
  const bool is_step =
      std::holds_alternative<Schedule>(command) || std::holds_alternative<Update>(command);
  if (is_step && choices.once_in(3)) {
    if (!in_flight_.empty() && choices.once_in(2)) return Schedule{};
    return update(choices);
  }
  std::size_t num_members = 0;
  for_each_bent_member(command, kBentMembers, [&](auto&, Domain) { ++num_members; });
  if (num_members == 0) return command;
  const std::size_t chosen = choices.below(static_cast<std::uint32_t>(num_members));
  const bool may_be_huge = std::holds_alternative<AddRequest>(command);
  std::size_t at = 0;
  for_each_bent_member(command, kBentMembers, [&](auto& member, Domain domain) {
    if (at++ != chosen) return;
    using Member = std::remove_cvref_t<decltype(member)>;
    if constexpr (std::is_same_v<Member, bool>) {
      member = !member;
    } else if constexpr (std::is_same_v<Member, std::uint32_t>) {
      if (member > 0 && choices.once_in(2)) {
        member = choices.below(member);
      } else if (may_be_huge && choices.once_in(4)) {
        member = kHuge - choices.below(2);
      } else {
        member += 1 + choices.below(2 * unit_);
      }
    } else if constexpr (std::is_same_v<Member, std::string>) {
      const std::string name = any_name(choices);
      // A name that nobody has would be a name like any other for a new request.
      if (!may_be_huge || name != "nobody") member = name;
    } else if constexpr (std::is_same_v<Member, std::vector<std::uint32_t>>) {
      if (domain == Domain::kBlocks) {
        member.push_back(choices.below(config_.num_gpu_blocks + 1));
        if (choices.once_in(3)) member.push_back(member.front());
      } else if (choices.once_in(2)) {
        member.clear();
      } else {
        member.insert(member.end(), config_.max_model_len, 0U);
      }
    } else if constexpr (std::is_same_v<Member, std::vector<std::string>>) {
      member.push_back(any_name(choices));
      if (choices.once_in(3)) member.push_back(member.front());
    } else if constexpr (std::is_same_v<Member, std::vector<Sample>>) {
      member.push_back({any_name(choices), {}});
      member.back().tokens.assign(choices.below(3), 0U);
      if (choices.once_in(3)) member.push_back(member.front());
    } else if constexpr (std::is_same_v<Member, RequestStatus>) {
      member = static_cast<RequestStatus>(
          choices.below(static_cast<std::uint32_t>(RequestStatus::kFinishedRepetition) + 1));
    } else if constexpr (std::is_same_v<Member, PauseState>) {
      member = static_cast<PauseState>(choices.below(3));
    }
  });
  return command;
}

}  // namespace kvfence::engine::scheduler
