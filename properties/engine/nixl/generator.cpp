#include "properties/engine/nixl/generator.h"

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <utility>

#include "contract/core/check.h"
#include "properties/engine/request_draws.h"
#include "properties/kv_cache/generator.h"

namespace kvfence::engine::nixl {
namespace {

/// Of what happened lately, so many are remembered.
constexpr std::size_t kLatelyMax = 4;

template <class T>
void remember(std::vector<T>& list, T element) {
  list.push_back(std::move(element));
  if (list.size() > kLatelyMax) list.erase(list.begin());
}

bool is_valid(const Config& config) {
  return static_cast<bool>(EngineTarget::prepare(config, {}, {}));
}

bool has_ended(const ReadState& read) {
  return read.progress == TransferProgress::kFinished || read.progress == TransferProgress::kFailed;
}

std::uint32_t num_blocks_of(const Config& config, EngineRole role) {
  const bool is_smaller = role == EngineRole::kConsumer && config.consumer_num_gpu_blocks > 0;
  return is_smaller ? config.consumer_num_gpu_blocks : config.num_gpu_blocks;
}

/// Tokens of one request that fill the smaller pool, about.
std::uint32_t capacity_of(const Config& config) {
  const std::uint32_t num_blocks = std::min(num_blocks_of(config, EngineRole::kProducer),
                                            num_blocks_of(config, EngineRole::kConsumer));
  const std::uint32_t capacity = (num_blocks - 1) * config.groups.front().block_size;
  return std::max(2U, std::min(capacity, config.max_model_len - 1));
}

/// Eager, usual, lazy; all alike, each its own way, or one behind the others.
std::vector<std::uint32_t> draw_lateness(std::uint32_t num_ranks, Choices& choices) {
  constexpr std::array<std::uint32_t, 4> kLate = {1, 3, 6, 30};
  std::vector<std::uint32_t> late_in(num_ranks, kLate[choices.below(kLate.size())]);
  if (choices.once_in(2)) return late_in;
  if (choices.once_in(2)) {
    for (std::uint32_t& each : late_in) each = kLate[choices.below(kLate.size())];
  } else {
    late_in.assign(num_ranks, 1);
    late_in[choices.below(num_ranks)] = 30;
  }
  return late_in;
}

/// How much an episode may favour each action.
constexpr std::array<std::uint32_t, 12> kUsualWeights = {
    80,  // kStepProducer
    80,  // kStepConsumer
    20,  // kAdd
    8,   // kAddLocal
    24,  // kHandOver
    3,   // kHandOverAgain
    8,   // kFinish
    1,   // kFinishAll
    2,   // kPause
    6,   // kReset
    4,   // kRepeatNotice
    12,  // kClock
};

// Of what a pair knows: which members are bent, and in which order one of them is chosen.
constexpr std::string_view kAlsoBent[] = {"engine", "do_remote_decode", "stop_tokens"};
constexpr std::string_view kBentFirst[] = {"engine", "request", "id", "tokens", "do_remote_decode"};
constexpr BentMembers kBentMembers{.also = kAlsoBent, .first = kBentFirst};

}  // namespace

Config Generator::draw_config(Choices& choices) {
  Config config;
  make_assembly(Assembly::kPrefillDecode, config);
  static_cast<kv_cache::Config&>(config) = kv_cache::Generator::draw_config(choices);
  config.num_gpu_blocks = 5 + choices.below(16);
  config.consumer_num_gpu_blocks = choices.once_in(2) ? 5 + choices.below(16) : 0;
  config.profile = choices.once_in(2) ? "v0.23" : "v0.19";
  config.hash_block_size = 1 + config.hash_block_size % 4;
  const std::uint32_t budget_max = choices.once_in(3) ? 8 : 48;
  config.max_num_batched_tokens = 1 + choices.below(budget_max);
  config.retention_interval.reset();
  config.use_eagle = false;
  config.eagle_groups.clear();
  config.groups = {{.kind = KVCacheSpecKind::kFullAttention, .block_size = config.hash_block_size}};
  config.async_scheduling = choices.once_in(2);
  config.max_concurrent_batches = choices.once_in(2) ? 2 : 1;
  config.policy = choices.once_in(2) ? "priority" : "fcfs";
  config.max_num_seqs = choices.once_in(4) ? 1 : 2 + choices.below(4);
  if (choices.once_in(4)) config.long_prefill_token_threshold = 1 + choices.below(6);
  config.kv_load_failure_policy = choices.once_in(2) ? "recompute" : "fail";
  const std::uint32_t fewer = 1 + choices.below(2);
  const std::uint32_t ratio = 1 + choices.below(2);
  config.ranks = fewer;
  config.consumer_ranks = fewer;
  (choices.once_in(2) ? config.ranks : config.consumer_ranks) *= ratio;
  auto& record = config.edit_connector<Record>();
  constexpr std::array<Seconds, 4> kDeadlines = {0, 5, 12, 30};
  record.deadline = kDeadlines[choices.below(kDeadlines.size())];
  record.transport_may_fail = choices.once_in(2);
  if (!is_valid(config)) config.enable_caching = true;
  return config;
}

Generator::Generator(const Config& config, Choices& choices)
    : config_(config),
      record_(*config.connector<Record>()),
      swarm_(kUsualWeights, kMildHabits, choices) {
  static_assert(kUsualWeights.size() == kNumActions);
  // Without these nothing else happens.
  for (const Action action :
       {Action::kStepProducer, Action::kStepConsumer, Action::kAdd, Action::kHandOver}) {
    swarm_.raise(action, 2);
  }
  // Two or more fill the pool together, and few do so alone.
  const std::uint32_t capacity = capacity_of(config);
  prompt_max_ = std::max(1U, capacity / (1 + choices.below(3)));
  live_max_ = 2 + choices.below(6);
  output_max_ = choices.once_in(3) ? 3 : 1 + capacity / (1 + choices.below(3));
  vary_in_ = choices.once_in(3) ? 3 : 12;
  decode_in_ = choices.once_in(3) ? 2 : 8;
  idle_in_ = choices.once_in(2) ? 4 : 0;
  part_in_ = choices.once_in(2) ? 2 : 8;
  fail_in_ = choices.once_in(2) ? 3 : 10;
  odd_in_ = choices.once_in(4) ? 12 : 64;
  read_late_in_ = draw_lateness(config.consumer_ranks, choices);
  notice_late_in_ = draw_lateness(config.ranks, choices);
}

Command Generator::next(Choices& choices, const Observation& now, const World& world) {
  take_in(now);
  Command command = draw(choices, world);
  if (choices.once_in(odd_in_)) command = bent(choices, std::move(command));
  last_ = command;
  return command;
}

void Generator::take_in(const Observation& now) {
  if (last_ && now.error == ErrorCode::kNone) take_in_answer(now);
  for (const EngineRole role : kEngineRoles) {
    const SchedulerObservation& shown = now.of(role);
    if (shown.requests.has_value()) engine_of(role).known = *shown.requests;
  }
  if (now.reads.has_value()) reads_ = *now.reads;
  if (now.notices.has_value()) notices_ = *now.notices;
}

void Generator::take_in_answer(const Observation& now) {
  if (const auto* added = std::get_if<AddRequest>(&*last_)) {
    names_.push_back(added->id);
  } else if (const auto* handed_over = std::get_if<HandOver>(&*last_)) {
    names_.push_back(handed_over->id);
    std::erase(prefills_, handed_over->request);
    remember(handed_over_, handed_over->request);
  } else if (const auto* paused = std::get_if<SetPauseState>(&*last_)) {
    engine_of(paused->engine).pause_state = paused->state;
  } else if (const auto* delivered = std::get_if<DeliverNotice>(&*last_)) {
    remember(delivered_, delivered->notice);
  } else if (const auto* planned = std::get_if<Schedule>(&*last_)) {
    const auto& scheduled = now.of(planned->engine).scheduled;
    auto& in_flight = engine_of(planned->engine).in_flight;
    in_flight.emplace_back();
    if (scheduled.has_value()) in_flight.back() = *scheduled;
  } else if (const auto* updated = std::get_if<Update>(&*last_)) {
    auto& in_flight = engine_of(updated->engine).in_flight;
    if (!in_flight.empty()) in_flight.pop_front();
    if (!now.finished_prefills.has_value()) return;
    for (const FinishedPrefill& prefill : *now.finished_prefills) {
      prefills_.push_back(prefill.request);
    }
  }
}

std::size_t Generator::num_live(EngineRole role) const {
  return num_unfinished_of(engine_of(role).known);
}

Command Generator::draw(Choices& choices, const World& world) {
  if (auto command = carry(choices)) return *command;
  for (const EngineRole role : kEngineRoles) {
    const bool is_paused = engine_of(role).pause_state != PauseState::kUnpaused;
    if (is_paused && choices.once_in(4)) return SetPauseState{.engine = role};
  }
  Action action = swarm_.draw(choices);
  if (num_live(EngineRole::kProducer) == 0 && choices.once_in(3)) action = Action::kAdd;
  switch (action) {
    case Action::kStepProducer:
      return step(EngineRole::kProducer, choices);
    case Action::kStepConsumer:
      return step(EngineRole::kConsumer, choices);
    case Action::kAdd:
      if (num_live(EngineRole::kProducer) >= live_max_) break;
      return add(EngineRole::kProducer, choices, world);
    case Action::kAddLocal:
      if (num_live(EngineRole::kConsumer) >= live_max_) break;
      return add(EngineRole::kConsumer, choices, world);
    case Action::kHandOver:
      if (prefills_.empty()) return hand_over_early(choices, world);
      return hand_over(pick(choices, prefills_), choices, world);
    case Action::kHandOverAgain:
      if (handed_over_.empty()) break;
      return hand_over(pick(choices, handed_over_), choices, world);
    case Action::kFinish:
      return finish(choices);
    case Action::kFinishAll: {
      FinishAllRequests command;
      command.engine = any_engine(choices);
      return command;
    }
    case Action::kPause: {
      SetPauseState command;
      command.engine = any_engine(choices);
      command.state = choices.once_in(2) ? PauseState::kPausedAll : PauseState::kPausedNew;
      return command;
    }
    case Action::kReset: {
      ResetPrefixCache command;
      command.engine = any_engine(choices);
      command.reset_connector = choices.once_in(3);
      return command;
    }
    case Action::kRepeatNotice:
      if (delivered_.empty() || !record_.transport_may_fail) break;
      return RepeatNotice{pick(choices, delivered_)};
    case Action::kClock:
      return advance_clock(choices);
  }
  return step(any_engine(choices), choices);
}

EngineRole Generator::any_engine(Choices& choices) const {
  return choices.once_in(2) ? EngineRole::kConsumer : EngineRole::kProducer;
}

std::optional<Command> Generator::carry(Choices& choices) const {
  for (const ReadState& read : reads_) {
    if (has_ended(read) || read.rank >= read_late_in_.size()) continue;
    if (!choices.once_in(read_late_in_[read.rank])) continue;
    AdvanceRead command{read.read, TransferProgress::kFinished};
    const bool is_fresh = read.progress == TransferProgress::kSubmitted;
    if (is_fresh && choices.once_in(part_in_)) {
      command.progress = TransferProgress::kPart;
    } else if (record_.transport_may_fail && choices.once_in(fail_in_)) {
      command.progress = TransferProgress::kFailed;
    }
    return command;
  }
  for (const NoticeState& notice : notices_) {
    if (notice.delivered || notice.remote_rank >= notice_late_in_.size()) continue;
    if (!choices.once_in(notice_late_in_[notice.remote_rank])) continue;
    if (record_.transport_may_fail && choices.once_in(fail_in_)) return LoseNotice{notice.notice};
    return DeliverNotice{notice.notice};
  }
  return std::nullopt;
}

/// Plans ahead as far as the configuration goes, mostly.
Command Generator::step(EngineRole role, Choices& choices) const {
  Schedule planned;
  planned.engine = role;
  const std::size_t num_in_flight = engine_of(role).in_flight.size();
  if (num_in_flight == 0) return planned;
  const bool has_room = num_in_flight < config_.max_concurrent_batches;
  if (has_room && (idle_in_ == 0 || !choices.once_in(idle_in_))) return planned;
  return update(role, choices);
}

Update Generator::update(EngineRole role, Choices& choices) const {
  Update command;
  command.engine = role;
  command.token = choices.once_in(vary_in_) ? 1 : 0;
  if (engine_of(role).in_flight.empty()) return command;
  for (const ScheduledRequest& scheduled : engine_of(role).in_flight.front()) {
    if (!scheduled.samples || !choices.once_in(6)) continue;
    command.samples.push_back({scheduled.request, {choices.below(2)}});
  }
  return command;
}

std::string Generator::new_name(const World& world) {
  while (world.find("r" + std::to_string(next_name_))) ++next_name_;
  return "r" + std::to_string(next_name_++);
}

/// Prompts of blocks that repeat one of two tokens, so that prefixes are shared all the time.
Command Generator::add(EngineRole role, Choices& choices, const World& world) {
  AddRequest command;
  command.engine = role;
  command.id = new_name(world);
  const std::uint32_t length_max = choices.once_in(16) ? config_.max_model_len - 1 : prompt_max_;
  const std::uint32_t length =
      1 + (choices.once_in(3) ? skewed(choices, length_max) : choices.below(length_max));
  while (command.tokens.size() < length) {
    const TokenId token = choices.once_in(vary_in_) ? 1U : 0U;
    command.tokens.insert(command.tokens.end(), config_.hash_block_size, token);
  }
  command.tokens.resize(length);
  const bool is_local = role == EngineRole::kConsumer || choices.once_in(8);
  command.do_remote_decode = !is_local;
  const bool decodes = is_local || choices.once_in(decode_in_);
  command.max_tokens = decodes ? 1 + choices.below(output_max_) : 1;
  if (choices.once_in(8)) command.stop_tokens = {1};
  if (config_.policy == "priority") command.priority = choices.below(3);
  arrival_time_ += choices.below(2);
  command.arrival_time = arrival_time_;
  if (choices.once_in(16)) command.cache_salt = "salt";
  command.skip_reading_prefix_cache = choices.once_in(16);
  return command;
}

Command Generator::hand_over(std::string request, Choices& choices, const World& world) {
  HandOver command;
  command.request = std::move(request);
  command.id = new_name(world);
  command.max_tokens = 1 + choices.below(output_max_);
  if (config_.policy == "priority") command.priority = choices.below(3);
  arrival_time_ += choices.below(2);
  command.arrival_time = arrival_time_;
  return command;
}

/// One that the producer has not told of, now and then.
Command Generator::hand_over_early(Choices& choices, const World& world) {
  const std::vector<RequestState>& known = engine_of(EngineRole::kProducer).known;
  if (known.empty() || !choices.once_in(12)) return step(any_engine(choices), choices);
  return hand_over(pick(choices, known).id, choices, world);
}

Command Generator::finish(Choices& choices) const {
  FinishRequests command;
  command.engine = any_engine(choices);
  const std::vector<RequestState>& known = engine_of(command.engine).known;
  if (known.empty()) return step(command.engine, choices);
  for (std::uint32_t count = 1 + skewed(choices, 3); count > 0; --count) {
    command.requests.push_back(pick(choices, known).id);
  }
  if (choices.once_in(8)) command.status = RequestStatus::kFinishedError;
  return command;
}

/// A little, a heartbeat's interval, a renewal, or a whole deadline.
Command Generator::advance_clock(Choices& choices) const {
  const std::array<Seconds, 5> spans = {1, 1 + record_.deadline / 6, 1 + record_.deadline / 3,
                                        record_.deadline * 2 / 3, record_.deadline};
  return AdvanceClock{spans[choices.below(spans.size())]};
}

// ---- What no engine sends ----

std::string Generator::any_name(Choices& choices) const {
  if (names_.empty() || choices.once_in(6)) return "nobody";
  // Those that are there more often than those that are gone.
  const std::vector<RequestState>& known = engine_of(any_engine(choices)).known;
  if (!known.empty() && !choices.once_in(3)) return pick(choices, known).id;
  return pick(choices, names_);
}

Command Generator::bent(Choices& choices, Command command) const {
  // A step too many, or one that nobody planned.
  const bool is_step =
      std::holds_alternative<Schedule>(command) || std::holds_alternative<Update>(command);
  if (is_step && choices.once_in(3)) {
    const EngineRole role = any_engine(choices);
    if (engine_of(role).in_flight.empty() || !choices.once_in(2)) return update(role, choices);
    Schedule planned;
    planned.engine = role;
    return planned;
  }
  if (choices.once_in(6)) {
    switch (choices.below(5)) {
      case 0:
        return LoseNotice{notices_.empty() ? 7 : pick(choices, notices_).notice};
      case 1:
        return RepeatNotice{delivered_.empty() ? 7 : pick(choices, delivered_)};
      case 2:
        return DeliverNotice{choices.below(16)};
      case 3:
        return AdvanceClock{kSecondsMax - choices.below(2)};
      default:
        break;
    }
    AdvanceRead advance;
    advance.read = reads_.empty() ? choices.below(8) : pick(choices, reads_).read;
    advance.progress = static_cast<TransferProgress>(choices.below(4));
    return advance;
  }
  std::size_t num_members = 0;
  for_each_bent_member(command, kBentMembers, [&](auto&, Domain) { ++num_members; });
  const std::size_t chosen = choices.below(static_cast<std::uint32_t>(num_members));
  const bool is_new =
      std::holds_alternative<AddRequest>(command) || std::holds_alternative<HandOver>(command);
  std::size_t at = 0;
  for_each_bent_member(command, kBentMembers, [&](auto& member, Domain) {
    if (at++ != chosen) return;
    using Member = std::remove_cvref_t<decltype(member)>;
    if constexpr (std::is_same_v<Member, bool>) {
      member = !member;
    } else if constexpr (std::is_same_v<Member, std::uint32_t>) {
      if (member > 0 && choices.once_in(2)) {
        member = choices.below(member);
      } else {
        member += 1 + choices.below(8);
      }
    } else if constexpr (std::is_same_v<Member, std::string>) {
      const std::string name = any_name(choices);
      // A name that nobody has would be a name like any other for a new request.
      if (!is_new || name != "nobody") member = name;
    } else if constexpr (std::is_same_v<Member, std::vector<std::uint32_t>>) {
      if (choices.once_in(2)) {
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
    } else if constexpr (std::is_same_v<Member, EngineRole>) {
      member = any_engine(choices);
    }
  });
  return command;
}

}  // namespace kvfence::engine::nixl
