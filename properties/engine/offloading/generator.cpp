#include "properties/engine/offloading/generator.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "contract/connectors/offloading/offloading_spec_factory.h"
#include "contract/core/check.h"
#include "properties/engine/request_draws.h"
#include "properties/kv_cache/generator.h"
#include "properties/kv_cache/group_draws.h"

namespace kvfence::engine::offloading {
namespace {

/// Jobs of tiers that are not said to be over once more.
constexpr std::size_t kEndedTierJobsMax = 32;

/// Reported transfers that may be reported again.
constexpr std::size_t kReportedMax = 4;

constexpr std::string_view kAlsoBent[] = {"max_offload_tokens"};
constexpr BentMembers kBentMembers{.also = kAlsoBent};

bool is_valid(const Config& config) {
  return static_cast<bool>(EngineTarget::prepare(config, {}, {}));
}

bool has_ended(const EngineTransfer& transfer) {
  return transfer.progress == TransferProgress::kFinished ||
         transfer.progress == TransferProgress::kFailed;
}

void draw_groups(Choices& choices, Config& config) {
  const std::uint32_t small = config.hash_block_size;
  const std::uint32_t large = small * (choices.once_in(2) ? 2 : 1);
  kv_cache::GroupList& groups = config.groups;
  groups = {full(small)};
  if (config.profile == "v0.19") return;
  switch (choices.below(12)) {
    case 0:
      groups = {full(large), draw_window(choices, small)};
      break;
    case 1:
      groups = {full(large), mamba(small)};
      break;
    case 2:
      groups = {full(large), draw_window(choices, small), mamba(small)};
      break;
    case 3:
      groups = {draw_window(choices, small), full(small), draw_window(choices, small)};
      break;
    case 4:
      groups = {draw_window(choices, small)};
      break;
    case 5:
    case 6:
      // Of one block and of two: the longer window is asked first, the shorter one loses its blocks
      // first.
      groups = {window_of(1 + choices.below(small), small),
                window_of(small + 1 + choices.below(small), small)};
      break;
    default:
      break;
  }
}

void draw_connector(Choices& choices, Config& config) {
  Record& record = config.edit_connector<Record>();
  config.ranks = 1 + choices.below(3);
  record.num_cpu_blocks = choices.once_in(3) ? 1 + choices.below(4) : 4 + choices.below(6);
  record.block_size_factor = choices.once_in(2) ? 2 + choices.below(2) : 1;
  record.eviction_policy = choices.once_in(2) ? "arc" : "lru";
  if (choices.once_in(6)) {
    record.store_threshold = 1 + choices.below(3);
    record.max_tracker_size = 1 + choices.below(12);
  }
  record.offload_prompt_only = choices.once_in(3);
  record.request_level_policy = choices.once_in(4);
  record.transfers_may_fail = choices.once_in(2) && config.groups.size() == 1;
  if (config.profile == "v0.19" || !choices.once_in(3)) return;
  record.spec_name = kTieringOffloadingSpec;
  record.store_threshold = 0;
  record.request_level_policy = false;
  record.num_tiers = choices.once_in(16) ? 0 : 1 + choices.below(3);
  for (std::uint32_t tier = 0; tier < record.num_tiers; ++tier) {
    if (choices.once_in(4)) record.request_level_tiers.push_back(tier);
  }
  if (choices.once_in(2)) return;
  for (std::uint32_t tier = 0; tier < record.num_tiers; ++tier) {
    if (!choices.once_in(3)) record.file_tiers.push_back(tier);
  }
}

/// How much an episode may favour each action.
constexpr std::array<std::uint32_t, 8> kUsualWeights = {
    160,  // kStep
    24,   // kAdd
    8,    // kFinish
    1,    // kFinishAll
    2,    // kPause
    12,   // kReset
    2,    // kReportAgain
    16,   // kTier
};

}  // namespace

Config Generator::draw_config(Choices& choices) {
  Config config;
  make_assembly(Assembly::kOffloading, config);
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
  draw_connector(choices, config);
  if (config.groups.size() == 2 && !config.groups.front().is_full_attention()) {
    // Two windows: with these sizes one of them ends the hit of the other now and then.
    Record& record = config.edit_connector<Record>();
    record.num_cpu_blocks = 5 + choices.below(3);
    record.block_size_factor = 1;
  }
  config.async_scheduling = choices.once_in(2);
  config.max_concurrent_batches = choices.once_in(2) ? 2 : 1;
  config.policy = choices.once_in(2) ? "priority" : "fcfs";
  config.max_num_seqs = choices.once_in(6) ? 1 : 2 + choices.below(4);
  if (choices.once_in(4)) config.long_prefill_token_threshold = 1 + choices.below(6);
  config.kv_load_failure_policy = choices.once_in(2) ? "recompute" : "fail";
  if (!is_valid(config)) config.enable_caching = true;
  if (!is_valid(config)) config.groups = {full(config.hash_block_size)};
  return config;
}

Generator::Generator(const Config& config, Choices& choices)
    : config_(config),
      record_(*config.connector<Record>()),
      swarm_(kUsualWeights, kMildHabits, choices) {
  // Without these nothing else happens.
  for (Action action : {Action::kStep, Action::kAdd}) swarm_.raise(action, 2);
  // Two or more fill the pool together, and few do so alone.
  const std::uint32_t capacity = kv_cache::capacity_of(config);
  requests_.unit = kv_cache::common_block_size(config);
  requests_.prompt_max = std::max(1U, capacity / (1 + choices.below(3)));
  live_max_ = 2 + choices.below(6);
  burst_max_ = 1 + choices.below(3);
  requests_.output_max = choices.once_in(3) ? 3 : 1 + capacity / (1 + choices.below(3));
  requests_.vary_in = choices.once_in(3) ? 3 : 12;
  requests_.skip_in = choices.once_in(4) ? 2 : 16;
  idle_in_ = choices.once_in(2) ? 4 : 0;
  part_in_ = choices.once_in(2) ? 2 : 8;
  fail_in_ = choices.once_in(2) ? 3 : 10;
  odd_in_ = choices.once_in(4) ? 12 : 64;
  const Parsed<EngineSetup> setup = EngineTarget::prepare(config, {}, {});
  KVFENCE_CHECK(setup, "commands for a configuration that was not validated");
  spec_ = setup->offloading->spec;
  tier_late_in_ = 1 + choices.below(choices.once_in(2) ? 3 : 12);
  tier_fail_in_ = choices.once_in(2) ? 4 : 20;
  found_in_ = choices.once_in(2) ? 2 : 6;
  spoiled_in_ = choices.once_in(4) ? 40 : 3;

  // Eager, usual, lazy; all alike, each its own way, or one behind the others.
  constexpr std::array<std::uint32_t, 4> kLate = {1, 3, 6, 30};
  late_in_.assign(config.ranks, kLate[choices.below(kLate.size())]);
  if (choices.once_in(2)) return;
  if (choices.once_in(2)) {
    for (std::uint32_t& late_in : late_in_) late_in = kLate[choices.below(kLate.size())];
  } else {
    late_in_.assign(config.ranks, 1);
    late_in_[choices.below(config.ranks)] = 30;
  }
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
  if (now.tier_jobs.has_value()) tier_jobs_ = *now.tier_jobs;
  if (!now.transfers.has_value()) return;
  for (const EngineTransfer& transfer : transfers_) {
    const bool is_there =
        std::any_of(now.transfers->begin(), now.transfers->end(), [&](const EngineTransfer& other) {
          return other.rank == transfer.rank && other.job == transfer.job;
        });
    if (!is_there) reported_.push_back(transfer);
  }
  while (reported_.size() > kReportedMax) reported_.erase(reported_.begin());
  transfers_ = *now.transfers;
}

Command Generator::draw(Choices& choices, const World& world) {
  if (burst_left_ > 0) {
    --burst_left_;
    return add(choices, world);
  }
  if (auto command = copy(choices)) return *command;
  if (auto command = end_tier_job(choices, world)) return *command;
  const auto* added = last_ ? std::get_if<AddRequest>(&*last_) : nullptr;
  if (added && record_.num_tiers > 0 && choices.once_in(found_in_)) {
    if (auto command = change_tier(choices, added->id, world)) return *command;
  }
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
      return FinishAllRequests{RequestStatus::kFinishedAborted};
    case Action::kPause:
      return SetPauseState{choices.once_in(2) ? PauseState::kPausedAll : PauseState::kPausedNew};
    case Action::kReset:
      return ResetPrefixCache{.reset_connector = choices.once_in(3)};
    case Action::kReportAgain: {
      if (reported_.empty()) return step(choices);
      const EngineTransfer& transfer = pick(choices, reported_);
      return ReportTransferAgain{transfer.rank, transfer.job};
    }
    case Action::kTier: {
      if (names_.empty() || record_.num_tiers == 0) return step(choices);
      const std::size_t num_recent = std::min<std::size_t>(names_.size(), 6);
      const std::uint32_t age = choices.below(static_cast<std::uint32_t>(num_recent));
      return change_tier(choices, names_[names_.size() - 1 - age], world).value_or(step(choices));
    }
  }
  KVFENCE_CHECK(false, "an action outside its enumeration");
}

std::optional<Command> Generator::copy(Choices& choices) const {
  for (const EngineTransfer& transfer : transfers_) {
    if (has_ended(transfer) || transfer.rank >= late_in_.size()) continue;
    if (!choices.once_in(late_in_[transfer.rank])) continue;
    AdvanceTransfer command;
    command.rank = transfer.rank;
    command.job = transfer.job;
    command.microseconds = choices.once_in(4) ? 0 : 1 + choices.below(9);
    const bool is_fresh = transfer.progress == TransferProgress::kSubmitted;
    if (is_fresh && choices.once_in(part_in_)) {
      command.progress = TransferProgress::kPart;
    } else if (may_fail(transfer) && choices.once_in(fail_in_)) {
      command.progress = TransferProgress::kFailed;
    } else if (record_.transfers_may_fail && config_.profile == "v0.19" && transfer.store &&
               choices.once_in(fail_in_)) {
      command.progress = TransferProgress::kFailed;  // refused
    }
    return command;
  }
  return std::nullopt;
}

std::optional<Command> Generator::end_tier_job(Choices& choices, const World& world) {
  for (const TierTransfer& job : tier_jobs_) {
    const auto ended = std::find(ended_tier_jobs_.begin(), ended_tier_jobs_.end(), *job.job);
    if (ended != ended_tier_jobs_.end() || !choices.once_in(tier_late_in_)) continue;
    if (auto command = spoil(choices, job, world)) return command;
    ended_tier_jobs_.push_back(*job.job);
    if (ended_tier_jobs_.size() > kEndedTierJobsMax) {
      ended_tier_jobs_.erase(ended_tier_jobs_.begin());
    }
    return TierFinish{job.tier, *job.job, !choices.once_in(tier_fail_in_)};
  }
  return std::nullopt;
}

std::optional<Command> Generator::spoil(Choices& choices, const TierTransfer& job,
                                        const World& world) const {
  const std::vector<std::uint32_t>& places = record_.file_tiers;
  if (!std::binary_search(places.begin(), places.end(), job.tier)) return std::nullopt;
  if (job.keys.empty() || !choices.once_in(spoiled_in_)) return std::nullopt;
  // What is to be written is not there yet.
  if (!job.promotion || choices.once_in(4)) {
    constexpr std::array<FileOperation, 4> kOfLoads = {
        FileOperation::kRead, FileOperation::kOpen, FileOperation::kSize, FileOperation::kRemove};
    constexpr std::array<FileOperation, 5> kOfStores = {
        FileOperation::kWrite, FileOperation::kCreate, FileOperation::kRename,
        FileOperation::kClose, FileOperation::kSize};
    tiering::Fault fault;
    fault.operation = job.promotion ? pick(choices, kOfLoads) : pick(choices, kOfStores);
    fault.call = choices.below(3);
    const bool moves =
        fault.operation == FileOperation::kRead || fault.operation == FileOperation::kWrite;
    if (moves && choices.once_in(2)) {
      fault.num_bytes = choices.below(80);
    } else {
      fault.fails_with = static_cast<FileError>(1 + choices.below(kNumFileErrors - 1));
    }
    // That the folder of writers is gone is for the tests of the file tier.
    const bool is_of_writers =
        fault.operation == FileOperation::kCreate && fault.fails_with == FileError::kENOENT;
    if (is_of_writers) fault.fails_with = FileError::kENOSPC;
    return TierFaults{job.tier, {fault}};
  }
  const Request* prompt = world.requests().find(job.request);
  const std::string& key = job.keys[choices.below(static_cast<std::uint32_t>(job.keys.size()))];
  for (GroupId group = 0; prompt && group < config_.groups.size(); ++group) {
    for (std::uint32_t block = 0;; ++block) {
      const auto found = key_of_prompt_block(spec_, *prompt, group, block);
      if (!found) break;
      if (*found != key) continue;
      TierDamage damage;
      damage.tier = job.tier;
      damage.request = job.request;
      damage.block = block;
      damage.group = group;
      // A flipped bit is what only a digest shows.
      damage.damage = !choices.once_in(3) ? FileDamage::kFlip : pick(choices, kFileDamages);
      damage.at = damage.damage == FileDamage::kReplace
                      ? choices.below(block + 1)
                      : choices.below(static_cast<std::uint32_t>(
                            8 * (kBlockFileHeaderBytes + slot_bytes_of(spec_))));
      return damage;
    }
  }
  return std::nullopt;
}

/// Of the first blocks, as others that share the prefix have them; or of any one.
std::optional<Command> Generator::change_tier(Choices& choices, const std::string& request,
                                              const World& world) const {
  const Request* prompt = world.requests().find(request);
  const GroupId group = choices.below(static_cast<std::uint32_t>(config_.groups.size()));
  std::uint32_t num_blocks = 0;
  while (prompt && key_of_prompt_block(spec_, *prompt, group, num_blocks)) ++num_blocks;
  if (num_blocks == 0) return std::nullopt;
  const std::uint32_t tier = choices.below(record_.num_tiers);
  std::vector<std::uint32_t> blocks = {choices.below(num_blocks)};
  if (!choices.once_in(4)) {
    const std::uint32_t end = blocks.front() + 1;
    blocks.clear();
    for (std::uint32_t block = 0; block < end; ++block) blocks.push_back(block);
  }
  switch (choices.below(6)) {
    case 0:
      return TierAskAgain{tier, request, blocks.back(), group, choices.below(3)};
    case 1:
      return TierDrop{tier, request, std::move(blocks), group};
    default:
      return TierAdd{tier, request, std::move(blocks), group};
  }
}

/// Upstream cannot take in invalid blocks where there are several groups; behind a window it goes
/// on as if the null blocks before the failed ones had been computed.
bool Generator::may_fail(const EngineTransfer& transfer) const {
  if (!record_.transfers_may_fail) return false;
  return transfer.store ? config_.profile != "v0.19"
                        : config_.groups.size() == 1 && config_.groups.front().is_full_attention();
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
  AddRequest command = draw_request<AddRequest>("r" + std::to_string(next_name_++), requests_,
                                                config_, arrival_time_, choices);
  const auto length = static_cast<std::uint32_t>(command.tokens.size());
  if (choices.once_in(12)) command.max_offload_tokens = choices.below(length + 2);
  return command;
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
  if (record_.spec_name == kTieringOffloadingSpec && choices.once_in(4)) {
    const std::uint32_t tier = choices.below(record_.num_tiers + 1);
    const std::uint32_t number = choices.below(24);
    if (choices.once_in(4)) return TierFaults{tier, {tiering::Fault{}}};
    if (choices.once_in(2)) return TierFinish{tier, number, choices.once_in(2)};
    const std::string name = draw_name(known_, names_, choices);
    const GroupId group =
        choices.below(static_cast<std::uint32_t>(config_.groups.size()) + choices.below(2));
    if (choices.once_in(2)) return TierAskAgain{tier, name, number, group, 1};
    return choices.once_in(2) ? Command(TierAdd{tier, name, {number}, group})
                              : Command(TierDrop{tier, name, {number}, group});
  }
  if (choices.once_in(6)) {
    const auto progress = static_cast<TransferProgress>(1 + choices.below(3));
    AdvanceTransfer advance;
    advance.rank = choices.below(config_.ranks + 1);
    advance.job = choices.below(24);
    advance.progress = progress;
    if (!transfers_.empty() && choices.once_in(2)) advance.job = pick(choices, transfers_).job;
    const bool may_fail_here =
        config_.groups.size() == 1 && config_.groups.front().is_full_attention();
    if (advance.progress == TransferProgress::kFailed && !may_fail_here) {
      advance.progress = TransferProgress::kPart;
    }
    return advance;
  }
  bend_member<AddRequest>(
      command, requests_.unit, config_.max_model_len,
      [&] { return draw_name(known_, names_, choices); }, choices, kBentMembers);
  return command;
}

}  // namespace kvfence::engine::offloading
