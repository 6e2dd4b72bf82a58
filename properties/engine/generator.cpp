#include "properties/engine/generator.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/lists.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "properties/core/left_out.h"
#include "properties/draws/choices.h"
#include "properties/kv_cache/arithmetic.h"
#include "properties/kv_cache/group_draws.h"
#include "properties/targets/rooms.h"

namespace kvfence::engine {
namespace {

/// For six groups and more.
constexpr std::uint32_t kManyGroupsOnceIn = 16;
/// One group in so many has larger blocks than its kind.
constexpr std::uint32_t kLargeBlocksOnceIn = 16;

const LeftOut kOneTokenLoaded(
    LeftOut::By::kGenerator,
    "engine, an OffloadingConnector: a prompt of one token over blocks of one token",
    "upstream computes a loaded prompt's last token again, so this one counts as not computed: it "
    "is looked up anew, and waits for ever",
    "engine/offloading/left_out/a_prompt_of_one_token.kvs");

/// The same for producer and consumer: two or more requests together fill the smaller GPU pool, and
/// few fill it alone.
Habits draw_habits(const Config& config, Choices& choices) {
  kv_cache::Config pool = config;
  if (config.consumer_num_gpu_blocks > 0) {
    pool.num_gpu_blocks = std::min(config.num_gpu_blocks, config.consumer_num_gpu_blocks);
  }
  const std::uint32_t capacity = kv_cache::capacity_of(pool);
  Habits habits;
  habits.unit = kv_cache::common_block_size(pool);
  habits.prompt_max = std::max(1U, capacity / (1 + choices.below(3)));
  habits.output_max = choices.once_in(3) ? 3 : 1 + capacity / (1 + choices.below(3));
  // Drafts show from a request's second decoding step on.
  if (config.num_speculative_tokens > 0) habits.output_max += 2 * config.num_speculative_tokens;
  habits.vary_in = choices.once_in(3) ? 3 : 12;
  habits.skip_in = choices.once_in(4) ? 2 : 16;
  habits.live_max = 2 + choices.below(6);
  habits.burst_max = 1 + choices.below(3);
  habits.idle_in = choices.once_in(2) ? 4 : 0;
  habits.odd_in = choices.once_in(4) ? 12 : 64;
  if (config.engines > 1 && choices.once_in(3))
    habits.consumer_eighths = choices.once_in(2) ? 7 : 1;
  return habits;
}

}  // namespace

// ---- Configurations ----

bool is_accepted(const Config& config) {
  return static_cast<bool>(EngineTarget::prepare(config, {}, {}));
}

Config draw_small_engine(Assembly assembly, Choices& choices) {
  Config config;
  make_assembly(assembly, config);
  static_cast<kv_cache::Config&>(config) = kv_cache::draw_config(choices);
  config.num_gpu_blocks = 5 + choices.below(16);
  config.profile = choices.once_in(2) ? Profile::kV023 : Profile::kV019;
  if (config.hash_block_size <= kSmallBlockMax) config.hash_block_size = 1 + choices.below(4);
  // Two tokens of a prompt, and one to sample (kOneTokenLoaded).
  config.max_model_len = std::max(3U, config.max_model_len);
  if (config.has_device()) config.hash_block_size = std::min(config.hash_block_size, 16U);
  config.groups = {full(config.hash_block_size)};
  config.retention_interval.reset();
  config.use_eagle = false;
  config.eagle_groups.clear();
  config.max_num_batched_tokens = 1 + choices.below(choices.once_in(3) ? 8 : 48);
  if (config.hash_block_size > kSmallBlockMax) {
    config.max_num_batched_tokens += 2 * config.hash_block_size;
  }
  config.max_num_seqs = choices.once_in(6) ? 1 : 2 + choices.below(4);
  if (choices.once_in(4)) config.long_prefill_token_threshold = 1 + choices.below(6);
  config.async_scheduling = choices.once_in(2);
  config.max_concurrent_batches = choices.once_in(2) ? 2 : 1;
  config.policy = choices.once_in(2) ? SchedulingPolicy::kPriority : SchedulingPolicy::kFCFS;
  config.kv_load_failure_policy =
      choices.once_in(2) ? KVLoadFailurePolicy::kRecompute : KVLoadFailurePolicy::kFail;
  config.enable_chunked_prefill = !choices.once_in(12);
  config.scheduler_reserve_full_isl = !choices.once_in(6);
  return config;
}

void draw_groups(std::span<const std::string_view> shapes, Choices& choices, Config& config) {
  const std::uint32_t small = config.hash_block_size;
  const std::string_view drawn = shapes[choices.below(static_cast<std::uint32_t>(shapes.size()))];
  std::string shape(drawn);
  if (drawn.size() > 1 && choices.once_in(kManyGroupsOnceIn)) {
    while (shape.size() < 6) shape += drawn;
    config.num_gpu_blocks *= 3;
  }
  const auto draw_group = [&](char kind) {
    const std::uint32_t size = small
                               << (choices.once_in(kLargeBlocksOnceIn) ? 1 + choices.below(2) : 0);
    switch (kind) {
      case 'F':
        return full(small << choices.below(choices.once_in(4) ? 4 : 2));
      case 'w':
        return draw_window(choices, size);
      case 'n':
        return window_of(1 + choices.below(size), size);
      case 't':
        return window_of(size + 1 + choices.below(size), size);
      case 'm':
        return mamba(size);
      case 'a':
        return rules_of(config.profile).mamba_align_loads ? draw_align(choices, small)
                                                          : mamba(small);
      default:
        return full(size);
    }
  };
  config.groups.clear();
  for (const char kind : shape) config.groups.push_back(draw_group(kind));
  const bool can_retain = rules_of(config.profile).sliding_window_mask;
  const bool has_window = shape.find_first_of("wnt") != std::string::npos;
  if (can_retain && has_window && choices.once_in(3)) {
    config.retention_interval = kv_cache::common_block_size(config) * choices.below(4);
  }
  if (config.groups.size() > 1) config.external_blocks_after_hits = !choices.once_in(4);
  let_states_end_blocks(config);
}

void let_states_end_blocks(Config& config) {
  for (const KVCacheSpec& spec : config.groups) {
    if (!kv_cache::is_mamba_align(spec)) continue;
    config.max_num_scheduled_tokens = 0;
    config.max_num_batched_tokens += spec.block_size;
    if (config.long_prefill_token_threshold > 0) {
      config.long_prefill_token_threshold += spec.block_size;
    }
  }
}

void make_valid(Config& config) {
  if (!is_accepted(config)) config.retention_interval.reset();
  if (!is_accepted(config)) config.eagle_groups.clear();
  if (!is_accepted(config)) {
    config.use_eagle = config.draft_model = false;
    config.num_speculative_tokens = 0;
  }
  if (!is_accepted(config)) config.enable_caching = true;
  if (!is_accepted(config)) config.groups = {full(config.hash_block_size)};
  if (config.external_blocks_after_hits.value_or(false) &&
      !EngineTarget::prepare(config, {}, {})->may_read_gpu_cache()) {
    config.external_blocks_after_hits = false;
  }
}

Config completed(Config config, Choices& choices) {
  draw_eagle_and_drafts(choices, config);
  make_valid(config);
  return config;
}

std::vector<std::uint32_t> draw_lateness(std::uint32_t num_ranks, Choices& choices) {
  constexpr std::array<std::uint32_t, 4> kLate = {1, 3, 6, 30};
  std::vector<std::uint32_t> late_in(num_ranks, pick(choices, kLate));
  if (choices.once_in(2)) return late_in;
  if (choices.once_in(2)) {
    for (std::uint32_t& each : late_in) each = pick(choices, kLate);
  } else {
    late_in.assign(num_ranks, 1);
    late_in[choices.below(num_ranks)] = 30;
  }
  return late_in;
}

void draw_script(std::uint32_t num_tokens, std::uint32_t hit_in, std::uint32_t again_in,
                 std::uint32_t hold_in, Choices& choices, ConnectorScript& script) {
  if (choices.once_in(hit_in)) {
    script.external_tokens = choices.once_in(3) ? num_tokens : 1 + choices.below(num_tokens + 2);
  }
  script.load_async = !choices.once_in(3);
  if (choices.once_in(again_in)) script.ask_again = 1 + choices.below(2);
  script.hold_blocks = choices.once_in(hold_in);
}

// ---- The picture: what the generator knows ----

std::uint32_t EnginePicture::num_live() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(
      known, [](const RequestState& state) { return !is_finished(state.status); }));
}

EngineRole Picture::draw_engine(Choices& choices) const {
  const bool is_consumer = config.engines > 1 && choices.below(8) < habits.consumer_eighths;
  return is_consumer ? EngineRole::kConsumer : EngineRole::kProducer;
}

std::string Picture::new_name() {
  while (world->find("r" + std::to_string(next_name))) ++next_name;
  return "r" + std::to_string(next_name++);
}

const std::string& Picture::draw_recent_name(Choices& choices) const {
  const auto num_recent = static_cast<std::uint32_t>(std::min<std::size_t>(names.size(), 6));
  return names[names.size() - 1 - choices.below(num_recent)];
}

std::string Picture::draw_name(Choices& choices) const {
  if (names.empty() || choices.once_in(6)) return "nobody";
  const std::vector<RequestState>& known = of(draw_engine(choices)).known;
  if (!known.empty() && !choices.once_in(3)) return pick(choices, known).id;
  return pick(choices, names);
}

namespace {

// ---- Commands that no engine sends: one member of a command gets another value ----

constexpr std::uint32_t kHuge = 0xFFFF'FFFF;  // makes sums and products wrap around

/// Members that only some assemblies use.
constexpr std::array<std::string_view, 24> kSeldomBent = {
    "external_tokens",  "load_async",
    "ask_again",        "hold_blocks",
    "grammar",          "min_tokens",
    "eos_token",        "stop_tokens",
    "lora_name",        "lora_id",
    "accepted",         "finished_recving",
    "finished_sending", "invalid_blocks",
    "connector_fails",  "reset_running_requests",
    "engine",           "max_offload_tokens",
    "do_remote_decode", "child",
    "params",           "reports",
    "failing_children", "silent_children",
};

std::vector<MemberRef> bent_members(Command& command,
                                    const std::function<bool(std::string_view)>& bends) {
  const DeclaredObject object = std::visit([](auto& typed) { return object_of(typed); }, command);
  std::vector<MemberRef> members;
  for (std::size_t index = 0; index < object.size(); ++index) {
    const std::string& name = object[index].declaration().name;
    const bool is_seldom = contains(kSeldomBent, name);
    if (!is_seldom || bends(name)) members.push_back(object[index]);
  }
  return members;
}

/// Any value of an enumeration.
template <class Enum>
Enum draw_enum(Enum last, Choices& choices) {
  return static_cast<Enum>(choices.below(static_cast<std::uint32_t>(last) + 1));
}

/// Bends one of the command's members that the assembly uses: any but those of kSeldomBent, and of
/// these any that `bends` accepts. any_name(): the name of a request, or "nobody". A new request is
/// not named "nobody", since that would be a valid name.
void bend_member(Command& command, const Config& config, std::uint32_t unit,
                 const std::function<bool(std::string_view)>& bends,
                 const std::function<std::string()>& any_name, Choices& choices) {
  const std::vector<MemberRef> members = bent_members(command, bends);
  if (members.empty()) return;
  const MemberRef& member = pick(choices, members);
  const bool is_new =
      std::holds_alternative<AddRequest>(command) || std::holds_alternative<HandOver>(command);
  if (auto* const flag = get_if<bool>(member)) {
    *flag = !*flag;
  } else if (auto* const number = get_if<std::uint32_t>(member)) {
    if (*number > 0 && choices.once_in(2)) {
      *number = choices.below(*number);
    } else if (is_new && choices.once_in(4)) {
      *number = choices.once_in(2) ? kHuge - choices.below(2) : kHuge / 2 + choices.below(2);
    } else {
      *number += 1 + choices.below(2 * unit);
    }
  } else if (auto* const text = get_if<std::string>(member)) {
    const std::string name = any_name();
    if (!is_new || name != "nobody") *text = name;
  } else if (auto* const numbers = get_if<std::vector<std::uint32_t>>(member)) {
    if (member.domain() == Domain::kBlocks) {
      numbers->push_back(choices.below(config.num_gpu_blocks + 1));
      if (choices.once_in(3)) numbers->push_back(numbers->front());
    } else if (choices.once_in(2)) {
      numbers->clear();
    } else {
      numbers->resize(config.max_model_len + choices.below(3), 0U);
    }
  } else if (auto* const names = get_if<std::vector<std::string>>(member)) {
    names->push_back(any_name());
    if (choices.once_in(3)) names->push_back(names->front());
  } else if (auto* const samples = get_if<std::vector<Sample>>(member)) {
    samples->push_back({any_name(), {}});
    samples->back().tokens.assign(choices.below(3), 0U);
    if (choices.once_in(3)) samples->push_back(samples->front());
  } else if (auto* const status = get_if<RequestStatus>(member)) {
    *status = draw_enum(RequestStatus::kFinishedRepetition, choices);
  } else if (auto* const pause = get_if<PauseState>(member)) {
    *pause = draw_enum(PauseState::kPausedAll, choices);
  } else if (auto* const role = get_if<EngineRole>(member)) {
    *role = draw_enum(EngineRole::kConsumer, choices);
  }
}

class Generator final : public GeneratorFor<EngineTarget> {
 public:
  Generator(const Config& config, Choices& choices, DrawsList draws)
      : picture_(config, draw_habits(config, choices), choices), draws_(std::move(draws)) {
    for (const auto& facet : draws_) facet->adjust(picture_.habits, choices);
    ActionSwarm::UsualWeights weights{};
    std::size_t num_actions = 0;
    const auto append = [&](Draws* facet, std::span<const std::uint32_t> own) {
      for (std::size_t place = 0; place < own.size(); ++place) {
        KVFENCE_CHECK(num_actions < weights.size(), "kNumActionsMax is too small");
        weights[num_actions++] = {{facet, place}, own[place]};
      }
    };
    append(nullptr, picture_.habits.weights);
    for (const auto& facet : draws_) append(facet.get(), facet->weights());
    swarm_.emplace(weights, kMildHabits, choices);
    // Nothing else happens without these.
    swarm_->raise({of_any_engine(Action::kStep), of_any_engine(Action::kAdd)}, 2);
    skips_gpu_cache_ = config.groups.size() > 1 && config.has_connector() &&
                       !config.is_scripted() && !config.external_blocks_after_hits.value_or(false);
  }

  Command next(Choices& choices, const Observation& now, const World& world) override {
    picture_.world = &world;
    take_in(now);
    Command command = draw(choices);
    if (choices.once_in(picture_.habits.odd_in)) bend(command, choices);
    // Requests that read the GPU's cache are refused here; few are sent.
    const auto skip = [&](auto* added) {
      if (added) added->skip_reading_prefix_cache |= !choices.once_in(64);
    };
    if (skips_gpu_cache_) {
      skip(std::get_if<AddRequest>(&command));
      skip(std::get_if<HandOver>(&command));
    }
    picture_.last = command;
    return command;
  }

  std::optional<Command> next_of_tail(const Observation& now, const World& world) override {
    picture_.world = &world;
    picture_.is_in_tail = true;
    take_in(now);
    burst_left_ = 0;
    picture_.last = draw_of_tail();
    picture_.is_in_tail = picture_.last.has_value();
    return picture_.last;
  }

 private:
  /// One of the weights of a facet, by place. Of no facet: an Action, which every engine has.
  struct FacetAction {
    Draws* facet = nullptr;
    std::size_t place = 0;

    friend bool operator==(const FacetAction&, const FacetAction&) = default;
  };
  static FacetAction of_any_engine(Action action) {
    return {nullptr, static_cast<std::size_t>(action)};
  }
  static constexpr std::size_t kNumActionsMax = 32;
  using ActionSwarm = Swarm<FacetAction, kNumActionsMax>;
  /// Commands per engine before the reset at the end of a tail, and after it.
  static constexpr std::uint32_t kStepsOfTail = 12;

  void take_in(const Observation& now) {
    if (const auto* added = picture_.accepted<AddRequest>(now)) {
      picture_.names.push_back(added->id);
    } else if (const auto* handed_over = picture_.accepted<HandOver>(now)) {
      picture_.names.push_back(handed_over->id);
    } else if (const auto* paused = picture_.accepted<SetPauseState>(now)) {
      picture_.of(paused->engine).pause_state = paused->state;
    } else if (const auto* planned = picture_.accepted<Schedule>(now)) {
      picture_.of(planned->engine)
          .in_flight.push_back(now.of(planned->engine).scheduled.or_empty());
    } else if (const auto* updated = picture_.accepted<Update>(now)) {
      auto& in_flight = picture_.of(updated->engine).in_flight;
      if (!in_flight.empty()) in_flight.pop_front();
    } else if (const auto* drained = picture_.accepted<Drain>(now)) {
      picture_.of(drained->engine).in_flight.clear();
    }
    if (has_ended(now)) picture_.engines = {};
    for (const EngineRole role : kEngineRoles) {
      const auto& requests = now.of(role).requests;
      if (requests.has_value()) picture_.of(role).known = *requests;
    }
    for (const auto& facet : draws_) facet->take_in(picture_, now);
  }

  // ---- What comes next ----

  Command draw(Choices& choices) {
    if (burst_left_ > 0) {
      --burst_left_;
      return add(burst_at_, choices);
    }
    for (const auto& facet : draws_) {
      if (auto command = facet->next(picture_, choices)) return *std::move(command);
    }
    for (const EngineRole role : kEngineRoles) {
      const bool is_paused = picture_.of(role).pause_state != PauseState::kUnpaused;
      if (is_paused && choices.once_in(4)) return SetPauseState{role};
    }
    FacetAction action = swarm_->draw(choices);
    const bool is_idle = picture_.engine().num_live() == 0;
    if (is_idle && choices.once_in(2)) action = of_any_engine(Action::kAdd);
    if (!action.facet) return act(static_cast<Action>(action.place), choices);
    auto command = action.facet->act(action.place, picture_, choices);
    return command ? *std::move(command) : step(picture_.draw_engine(choices), choices);
  }

  /// Steps of the engines in turn until no request is left, and some more. Then the caches are
  /// reset, and the planned steps come back.
  std::optional<Command> draw_of_tail() {
    Choices calm = Choices::from_bytes({});
    const std::uint32_t num_engines = picture_.config.engines;
    const std::uint32_t num_steps = kStepsOfTail * num_engines;
    if (num_last_ < 2 * num_steps + num_engines) {
      for (const auto& facet : draws_) {
        if (auto command = facet->next(picture_, calm)) return command;
      }
    }
    for (const EngineRole role : kEngineRoles) {
      if (picture_.of(role).pause_state != PauseState::kUnpaused) return SetPauseState{role};
    }
    const auto role = static_cast<EngineRole>(num_turns_++ % num_engines);
    if (!picture_.are_gone()) num_last_ = 0;
    const std::uint32_t at = picture_.are_gone() ? num_last_++ : 0;
    if (at >= num_steps && at < num_steps + num_engines) {
      return ResetPrefixCache{static_cast<EngineRole>(at - num_steps),
                              /*reset_running_requests=*/false, /*reset_connector=*/true};
    }
    if (at < 2 * num_steps + num_engines) return step(role, calm);
    for (const EngineRole last : kEngineRoles) {
      if (picture_.of(last).in_flight.empty()) continue;
      if (picture_.config.has_device()) return Drain{last};
      return update(last, calm);
    }
    num_last_ = 0;
    return std::nullopt;
  }

  Command act(Action action, Choices& choices) {
    EngineRole role = picture_.draw_engine(choices);
    // Most requests start at the producer and are handed over.
    if (action == Action::kAdd && choices.once_in(2)) role = EngineRole::kProducer;
    const EnginePicture& engine = picture_.of(role);
    switch (action) {
      case Action::kStep:
        break;
      case Action::kAdd:
        if (engine.num_live() >= picture_.habits.live_max) break;
        burst_left_ = choices.below(picture_.habits.burst_max);
        burst_at_ = role;
        return add(role, choices);
      case Action::kFinish: {
        if (engine.known.empty()) break;
        FinishRequests command{role, {}};
        for (std::uint32_t count = draw_length(choices, 3); count > 0; --count) {
          command.requests.push_back(pick(choices, engine.known).id);
        }
        if (choices.once_in(6)) command.status = RequestStatus::kFinishedStopped;
        return command;
      }
      case Action::kFinishAll:
        return FinishAllRequests{role, choices.once_in(6) ? RequestStatus::kFinishedError
                                                          : RequestStatus::kFinishedAborted};
      case Action::kPause:
        return SetPauseState{role,
                             choices.once_in(2) ? PauseState::kPausedAll : PauseState::kPausedNew};
      case Action::kReset: {
        ResetPrefixCache command{role};
        command.reset_connector = choices.once_in(4);
        // The scheduler's own draws add it to Assembly::kScheduler.
        const Config& config = picture_.config;
        const bool is_scheduler = assembly_of(config) == Assembly::kScheduler;
        command.reset_running_requests =
            !is_scheduler && !config.connector<offloading::Record>() && choices.once_in(3);
        for (const auto& facet : draws_) facet->add_to(command, picture_, choices);
        return command;
      }
    }
    return step(role, choices);
  }

  /// Mostly plans ahead as far as the configuration allows.
  Command step(EngineRole role, Choices& choices) {
    for (const auto& facet : draws_) {
      if (auto command = facet->step(role, picture_, choices)) return *std::move(command);
    }
    const std::size_t num_in_flight = picture_.of(role).in_flight.size();
    const bool has_room = num_in_flight < picture_.config.max_concurrent_batches;
    const std::uint32_t idle_in = picture_.habits.idle_in;
    const bool plans =
        num_in_flight == 0 || (has_room && (idle_in == 0 || !choices.once_in(idle_in)));
    return plans ? Command(Schedule{role}) : update(role, choices);
  }

  /// Prompt blocks have one of two contents, so that requests often share prefixes.
  Command add(EngineRole role, Choices& choices) {
    const Habits& habits = picture_.habits;
    AddRequest command;
    command.engine = role;
    command.id = picture_.new_name();
    const std::uint32_t length_max =
        choices.once_in(16) ? picture_.config.max_model_len - 1 : habits.prompt_max;
    std::uint32_t length =
        1 + (choices.once_in(3) ? skewed(choices, length_max) : choices.below(length_max));
    const bool is_one_block = length == 1 && picture_.config.hash_block_size == 1;
    if (kOneTokenLoaded(is_one_block && picture_.config.connector<offloading::Record>())) ++length;
    while (command.tokens.size() < length) {
      const TokenId symbol = choices.once_in(habits.vary_in) ? 1U : 0U;
      picture_.tokens.append(symbol, habits.unit, choices, command.tokens);
    }
    command.tokens.resize(length);
    command.max_tokens = 1 + choices.below(habits.output_max);
    if (picture_.config.policy == SchedulingPolicy::kPriority) command.priority = choices.below(3);
    picture_.arrival_time += choices.below(2);
    command.arrival_time = picture_.arrival_time;
    if (choices.once_in(16)) command.cache_salt = "salt";
    if (choices.once_in(24)) draw_lora(choices, command.lora_name, command.lora_id);
    command.skip_reading_prefix_cache = choices.once_in(habits.skip_in);
    for (const auto& facet : draws_) facet->add_to(command, picture_, choices);
    return command;
  }

  /// Now and then a request samples other tokens than the rest.
  Update update(EngineRole role, Choices& choices) {
    Update command;
    command.engine = role;
    command.token = choices.once_in(picture_.habits.vary_in) ? 1 : 0;
    const auto& in_flight = picture_.of(role).in_flight;
    if (!in_flight.empty()) {
      for (const ScheduledRequest& scheduled : in_flight.front()) {
        if (!scheduled.samples || !choices.once_in(6)) continue;
        command.samples.push_back({scheduled.request, {choices.below(2)}});
      }
    }
    for (const auto& facet : draws_) facet->add_to(command, picture_, choices);
    return command;
  }

  /// Changes one argument, or the order of commands, to get a refusal or an unusual call.
  void bend(Command& command, Choices& choices) {
    // An extra schedule, or an update without a planned step.
    const bool is_step =
        std::holds_alternative<Schedule>(command) || std::holds_alternative<Update>(command);
    if (is_step && choices.once_in(3)) {
      const EngineRole role = picture_.draw_engine(choices);
      const bool plans = !picture_.of(role).in_flight.empty() && choices.once_in(2);
      command = plans ? Command(Schedule{role}) : update(role, choices);
      return;
    }
    for (const auto& facet : draws_) {
      if (auto odd = facet->bent(picture_, choices)) {
        command = *std::move(odd);
        return;
      }
    }
    const auto bends = [&](std::string_view member) {
      if (member == "engine") return picture_.config.engines > 1;
      return std::ranges::any_of(draws_, [&](const auto& facet) { return facet->bends(member); });
    };
    bend_member(
        command, picture_.config, picture_.habits.unit, bends,
        [&] { return picture_.draw_name(choices); }, choices);
  }

  Picture picture_;
  DrawsList draws_;
  std::optional<ActionSwarm> swarm_;
  bool skips_gpu_cache_ = false;  ///< several groups under a connector that loads
  std::uint32_t burst_left_ = 0;
  EngineRole burst_at_ = EngineRole::kProducer;
  std::uint32_t num_turns_ = 0;  ///< of engines, in the tail
  std::uint32_t num_last_ = 0;   ///< commands of the tail since the last request ended
};

}  // namespace

std::unique_ptr<GeneratorFor<EngineTarget>> make_generator(const Config& config, Choices& choices,
                                                           DrawsList draws) {
  return std::make_unique<Generator>(config, choices, std::move(draws));
}

}  // namespace kvfence::engine
