/// Draws for a scheduler without connector, or with the scripted one: every setting of the
/// scheduler, drafts, grammars, stop tokens, LoRA adapters. Commands make loads late or failing,
/// and blocks held.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/lists.h"
#include "properties/kv_cache/arithmetic.h"
#include "properties/kv_cache/group_draws.h"
#include "properties/targets/rooms.h"

namespace kvfence::engine::scheduler {
namespace {

/// One configuration in so many runs more than kCrowd requests in a step.
constexpr std::uint32_t kCrowdOnceIn = 24;
constexpr std::uint32_t kCrowd = 32;
constexpr std::uint32_t kHuge = 0xFFFF'FFFF;  // where sums wrap around
constexpr TokenId kEosToken = 2;
constexpr TokenId kStopToken = 3;

// ---- The scheduler itself ----

/// Grammars.
constexpr std::uint32_t kWeights[] = {6};

class SchedulerDraws final : public Draws {
 public:
  SchedulerDraws(const Config& config, Choices& choices)
      : stop_in_(choices.once_in(3) ? 4 : 24),
        is_last_first_(choices.once_in(2)),
        num_seqs_(config.max_num_seqs),
        capacity_(kv_cache::capacity_of(config)) {}

  void adjust(Habits& habits, Choices& choices) const override {
    habits.weights = {160, 24, 6, 1, 5, 3};
    habits.prompt_max = std::max(1U, capacity_ / (2 + choices.below(6)));
    habits.output_max = choices.once_in(3) ? 4 : 1 + capacity_ / (1 + choices.below(2));
    habits.vary_in = 6;
    habits.skip_in = 24;
    habits.live_max = 3 + choices.below(7);
    habits.burst_max = 1 + choices.below(4);
    habits.odd_in = choices.once_in(3) ? 12 : 64;
    if (num_seqs_ <= kCrowd) return;
    habits.prompt_max = std::min(habits.prompt_max, 2 * habits.unit);
    habits.live_max = num_seqs_ + 8;
    habits.burst_max = 24;
  }

  std::span<const std::uint32_t> weights() const override { return kWeights; }
  /// Everything except members for a connector with workers or a second engine.
  bool bends(std::string_view member) const override {
    return member != "max_offload_tokens" && member != "do_remote_decode";
  }

  std::optional<Command> next(Picture& picture, Choices& choices) override {
    return picture.is_in_tail ? act(0, picture, choices) : std::nullopt;
  }

  std::optional<Command> act(std::size_t /*place*/, Picture& picture, Choices& choices) override {
    for (const RequestState& state : picture.engine().known) {
      const bool waits = state.status == RequestStatus::kWaitingForGrammar;
      if (waits && !choices.once_in(3)) return GrammarCompiled{state.id};
    }
    return std::nullopt;
  }

  void add_to(AddRequest& command, const Picture& picture, Choices& choices) override {
    const auto length = static_cast<std::uint32_t>(command.tokens.size());
    if (choices.once_in(32)) command.max_tokens = kHuge - choices.below(2);
    if (choices.once_in(4)) {
      command.min_tokens =
          choices.below(std::min(command.max_tokens, picture.config.max_model_len - length) + 1);
    }
    if (!choices.once_in(4)) command.eos_token_id = kEosToken;
    if (choices.once_in(2)) command.stop_token_ids.push_back(kStopToken);
    if (choices.once_in(16)) command.stop_token_ids.push_back(kEosToken);
    if (is_last_first_) {
      command.priority = 9 - picture.next_name % 10;
    } else if (choices.once_in(8)) {
      command.priority = choices.below(3);
    }
    command.needs_grammar = choices.once_in(8);
  }

  /// Some requests sample tokens of their own.
  void add_to(Update& command, const Picture& picture, Choices& choices) override {
    command.token = draw_token(choices);
    command.samples.clear();
    const auto& in_flight = picture.engine().in_flight;
    if (in_flight.empty()) return;
    for (const ScheduledRequest& scheduled : in_flight.front()) {
      if (!scheduled.samples || !choices.once_in(4)) continue;
      const auto num_drafts = static_cast<std::uint32_t>(scheduled.spec_tokens.size());
      Sample& sample = command.samples.emplace_back();
      sample.request = scheduled.request;
      std::uint32_t count = 1 + choices.below(num_drafts + 1);
      for (; count > 0; --count) sample.tokens.push_back(draw_token(choices));
    }
  }

  void add_to(ResetPrefixCache& command, const Picture& /*picture*/, Choices& choices) override {
    command.reset_running_requests = choices.once_in(2);
  }

 private:
  TokenId draw_token(Choices& choices) const {
    if (choices.once_in(stop_in_)) return choices.once_in(2) ? kStopToken : kEosToken;
    return choices.once_in(6) ? 1 : 0;
  }

  const std::uint32_t stop_in_;   ///< one sampled token in so many may stop a request
  const bool is_last_first_;      ///< later requests have a better priority
  const std::uint32_t num_seqs_;  ///< the maximum of a step's requests
  const std::uint32_t capacity_;
};

// ---- The scripted connector ----

constexpr std::uint32_t kScriptedWeights[] = {3};  // ScriptConnector

class ScriptedDraws final : public Draws {
 public:
  ScriptedDraws(const Config& config, Choices& choices)
      : has_groups_(config.groups.size() > 1),
        external_in_(choices.once_in(4) ? 6 : 2),
        hold_in_(choices.once_in(3) ? 2 : 6),
        late_in_(1 + choices.below(4)),
        fail_in_(choices.once_in(3) ? 2 : 8) {}

  std::span<const std::uint32_t> weights() const override { return kScriptedWeights; }

  void take_in(const Picture& picture, const Observation& now) override {
    update_was_refused_ = now.error != ErrorCode::kNone && picture.last &&
                          std::holds_alternative<Update>(*picture.last);
    if (picture.accepted<Schedule>(now)) {
      take_in_step(picture, now);
    } else if (const auto* updated = picture.accepted<Update>(now)) {
      for (const std::string& name : updated->finished_recving) {
        const auto load = loads_.find(name);
        if (load != loads_.end()) load->second = Load::kReported;
      }
      if (!loaded_.empty()) loaded_.pop_front();
    }
    if (!now.requests.has_value() || !now.tables.has_value()) return;
    tables_ = *now.tables;
    for (const RequestState& state : *now.requests) {
      if (state.status == RequestStatus::kWaitingForRemoteKVs) {
        loads_.try_emplace(state.id, Load::kUnderWay);
        continue;
      }
      const auto load = loads_.find(state.id);
      if (load == loads_.end()) continue;
      if (!is_finished(state.status) || load->second == Load::kReported) {
        loads_.erase(load);
      } else {
        load->second = Load::kAborted;
      }
    }
  }

  std::optional<Command> act(std::size_t /*place*/, Picture& picture, Choices& choices) override {
    if (picture.engine().known.empty()) return std::nullopt;
    const RequestState& state = pick(choices, picture.engine().known);
    ScriptConnector command;
    command.request = state.id;
    draw_script(state.num_tokens, external_in_, 6, hold_in_, choices, command);
    return command;
  }

  void add_to(AddRequest& command, const Picture& /*picture*/, Choices& choices) override {
    draw_script(static_cast<std::uint32_t>(command.tokens.size()), external_in_, 6, hold_in_,
                choices, command);
  }

  void add_to(Update& command, const Picture& picture, Choices& choices) override {
    if (picture.engine().in_flight.empty() || update_was_refused_) return;
    add_reports(picture, choices, command);
    if (!has_groups_) add_invalid_blocks(picture, choices, command);
  }

  void add_to(ResetPrefixCache& command, const Picture& /*picture*/, Choices& choices) override {
    command.connector_fails = command.reset_connector && choices.once_in(3);
  }

 private:
  /// A load for which the request waits.
  enum class Load : std::uint8_t { kUnderWay, kReported, kAborted };

  /// Records the requests whose tokens the connector loads within the step.
  void take_in_step(const Picture& picture, const Observation& now) {
    auto& loaded = loaded_.emplace_back();
    for (const ConnectorCall& call : now.connector_calls.or_empty()) {
      if (call.method != "update_state_after_alloc" || call.num_tokens == 0) continue;
      const auto& step = picture.engine().in_flight.back();
      const bool is_scheduled = contains(step, call.request, &ScheduledRequest::request);
      if (is_scheduled) loaded.push_back(call.request);
    }
  }

  bool is_in(Load load, const std::string& name) const {
    const auto found = loads_.find(name);
    return found != loads_.end() && found->second == load;
  }

  /// Adds due reports of loads and transfers, each with a drawn delay.
  void add_reports(const Picture& picture, Choices& choices, Update& command) const {
    for (const RequestState& state : picture.engine().known) {
      const bool loads = is_in(Load::kUnderWay, state.id);
      if ((!loads && !is_finished(state.status)) || choices.below(late_in_) != 0) continue;
      (loads || is_in(Load::kAborted, state.id) ? command.finished_recving
                                                : command.finished_sending)
          .push_back(state.id);
    }
  }

  void add_invalid_blocks(const Picture& picture, Choices& choices, Update& command) const {
    std::vector<const RequestBlocks*> loading;
    std::vector<const RequestBlocks*> running;
    for (const RequestState& state : picture.engine().known) {
      const auto table = std::ranges::find(tables_, state.id, &RequestBlocks::request);
      if (table == tables_.end()) continue;
      const bool is_loaded = !loaded_.empty() && contains(loaded_.front(), state.id);
      if (is_loaded || is_in(Load::kUnderWay, state.id)) loading.push_back(&*table);
      if (state.status == RequestStatus::kRunning) running.push_back(&*table);
    }
    if (!loading.empty() && choices.once_in(fail_in_)) {
      for (std::uint32_t count = 1 + skewed(choices, 3); count > 0; --count) {
        add_invalid_block(*pick(choices, loading), choices, command);
      }
    }
    if (!running.empty() && choices.once_in(24)) {
      add_invalid_block(*pick(choices, running), choices, command);
    }
  }

  static void add_invalid_block(const RequestBlocks& table, Choices& choices, Update& command) {
    const std::vector<BlockId>& blocks = table.blocks.front();
    if (blocks.empty()) return;
    const BlockId block = pick(choices, blocks);
    if (block != kNullBlockId && !contains(command.invalid_blocks, block)) {
      command.invalid_blocks.push_back(block);
    }
  }

  const bool has_groups_;
  const std::uint32_t external_in_;  ///< the connector has a hit for one request in so many
  const std::uint32_t hold_in_;      ///< one request in so many leaves its blocks held
  const std::uint32_t late_in_;      ///< a report that is due comes once in so many updates
  const std::uint32_t fail_in_;      ///< one step with loads in so many has invalid blocks

  std::map<std::string, Load> loads_;
  std::deque<std::vector<std::string>> loaded_;  ///< by step in flight
  std::vector<RequestBlocks> tables_;
  bool update_was_refused_ = false;
};

// ---- Configurations ----

void draw_cache(Choices& choices, Config& config) {
  static_cast<kv_cache::Config&>(config) = kv_cache::draw_config(choices);
  config.num_gpu_blocks = 5 + choices.below(20);
  config.profile = choices.once_in(3) ? Profile::kV023 : Profile::kV019;
  config.max_num_batched_tokens = 1 + choices.below(choices.once_in(3) ? 8 : 48);
  if (config.hash_block_size > kSmallBlockMax) {
    config.max_num_batched_tokens += 2 * config.hash_block_size;
  }
  const bool has_cross =
      contains(config.groups, KVCacheSpecKind::kCrossAttention, &KVCacheSpec::kind);
  if (has_cross || choices.below(5) < 2) {
    const bool is_align = choices.once_in(6);
    const std::uint32_t block_size = config.hash_block_size;
    config.groups = {is_align ? draw_align(choices, block_size) : full(block_size)};
    config.retention_interval.reset();
    config.eagle_groups.clear();
  }
  if (config.groups.size() > 1) config.external_blocks_after_hits = !choices.once_in(4);
}

void draw_speculation(Choices& choices, Config& config) {
  config.async_scheduling = choices.once_in(2);
  config.max_concurrent_batches = choices.once_in(3) ? 1 : 2;
  draw_drafts(choices, config);
}

/// A pool with one kind of blocks, valid with all other settings.
void make_plain(Config& config) {
  config.groups = {full(config.hash_block_size)};
  config.retention_interval.reset();
  config.use_eagle = false;
  config.eagle_groups.clear();
  config.enable_caching = true;
}

}  // namespace

std::unique_ptr<Draws> make_draws(const Config& config, Choices& choices) {
  return std::make_unique<SchedulerDraws>(config, choices);
}

std::unique_ptr<Draws> make_scripted_draws(const Config& config, Choices& choices) {
  return std::make_unique<ScriptedDraws>(config, choices);
}

Config draw_config(Choices& choices) {
  Config config;
  make_assembly(Assembly::kScheduler, config);
  draw_cache(choices, config);
  draw_speculation(choices, config);
  config.policy = choices.once_in(2) ? SchedulingPolicy::kPriority : SchedulingPolicy::kFCFS;
  config.max_num_seqs = choices.once_in(6) ? 1 : 2 + choices.below(4);
  if (choices.once_in(kCrowdOnceIn)) {
    config.max_num_seqs = kCrowd + 1 + choices.below(16);
    config.num_gpu_blocks += 2 * config.max_num_seqs;
    config.max_num_batched_tokens += 3 * kCrowd;
  }
  if (choices.once_in(4)) config.max_num_scheduled_tokens = 1 + choices.below(24);
  if (choices.once_in(2)) config.long_prefill_token_threshold = 1 + choices.below(6);
  config.enable_chunked_prefill = !choices.once_in(4);
  config.scheduler_reserve_full_isl = !choices.once_in(2);
  config.kv_load_failure_policy =
      choices.once_in(2) ? KVLoadFailurePolicy::kRecompute : KVLoadFailurePolicy::kFail;
  const bool has_connector =
      choices.once_in(2) && (rules_of(config.profile).mamba_align_loads ||
                             std::ranges::none_of(config.groups, kv_cache::is_mamba_align));
  if (has_connector) config.connectors->emplace_back(ScriptedRecord());
  let_states_end_blocks(config);
  // Some profiles refuse a retention interval or eagle by group, and some kinds refuse eagle.
  if (!is_accepted(config)) config.retention_interval.reset();
  if (!is_accepted(config)) config.eagle_groups.clear();
  if (!is_accepted(config)) config.use_eagle = false;
  if (!is_accepted(config)) make_plain(config);
  return config;
}

}  // namespace kvfence::engine::scheduler
