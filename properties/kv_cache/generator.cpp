/// Draws configurations and commands for target kv_cache: small pools, every coordinator and kind
/// of group, requests that share prefixes and are allocated and freed as under a scheduler, and
/// sometimes a command that no scheduler sends.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/erased.h"
#include "contract/kv_cache/kv_cache_target.h"
#include "properties/draws/choices.h"
#include "properties/draws/swarm.h"
#include "properties/kv_cache/group_draws.h"
#include "properties/pool/request_draws.h"
#include "properties/targets/rooms.h"

namespace kvfence::kv_cache {
namespace {

constexpr std::uint32_t kHuge = 0xFFFF'FFFF;  // where sums and products wrap around
constexpr std::uint32_t kAnyGroupsOnceIn = 16;

KVCacheSpec sliding(Choices& choices, std::uint32_t block_size) {
  const std::uint32_t num_blocks = choices.once_in(8) ? 16 : 4;
  return window_of(1 + choices.below(num_blocks * block_size), block_size);
}

KVCacheSpec chunked(Choices& choices, std::uint32_t block_size) {
  const bool is_odd = choices.once_in(6);
  return {.kind = KVCacheSpecKind::kChunkedLocal,
          .block_size = block_size,
          .attention_chunk_size =
              is_odd ? 1 + choices.below(3 * block_size) : block_size * (1 + choices.below(3))};
}

KVCacheSpec mamba(Choices& choices, std::uint32_t block_size) {
  return {.kind = KVCacheSpecKind::kMamba,
          .block_size = block_size,
          .mamba_align = choices.once_in(2),
          .num_speculative_blocks = choices.once_in(2) ? choices.below(3) : 0};
}

KVCacheSpec cross(std::uint32_t block_size) {
  return {.kind = KVCacheSpecKind::kCrossAttention, .block_size = block_size};
}

KVCacheSpec sink(Choices& choices, std::uint32_t block_size) {
  return {.kind = KVCacheSpecKind::kSinkFullAttention,
          .block_size = block_size,
          .sink_len = block_size * (1 + choices.below(2))};
}

KVCacheSpec any_group(Choices& choices, std::uint32_t block_size) {
  switch (choices.below(5)) {
    case 0:
      return full(block_size);
    case 1:
      return sliding(choices, block_size);
    case 2:
      return chunked(choices, block_size);
    case 3:
      return mamba(choices, block_size);
    default:
      return sink(choices, block_size);
  }
}

/// Up to eight groups of any kinds, and a pool with room for them.
void draw_any_groups(Choices& choices, Config& config) {
  constexpr std::array<std::uint32_t, 5> kFactors = {1, 2, 4, 8, 16};
  // Many groups take many choices, so a fuzzer would fill its corpus with them, and the cost of
  // each command grows with their number.
  std::uint32_t num_groups = 1;
  while (num_groups < 8 && choices.below(3) > 0) ++num_groups;
  const std::uint32_t common = choices.once_in(2) ? pick(choices, kFactors) : 0;
  config.groups.clear();
  for (std::uint32_t left = num_groups; left > 0; --left) {
    const std::uint32_t factor = common > 0 ? common : pick(choices, kFactors);
    config.groups.push_back(any_group(choices, config.hash_block_size * factor));
  }
  config.num_gpu_blocks += 4 * num_groups;
  if (!choices.once_in(8)) return;
  config.groups.back() = cross(config.groups.back().block_size);
  config.enable_caching = false;
}

/// Groups as real models have them, with blocks of `small` and `large` tokens. Some of them exclude
/// caching.
std::vector<KVCacheSpec> usual_groups(Choices& choices, std::uint32_t small, std::uint32_t large,
                                      bool& enable_caching) {
  switch (choices.below(15)) {
    case 0:
      return {full(small)};
    case 1:
      return {sliding(choices, small)};
    case 2:
      return {any_group(choices, small)};
    case 3:
    case 4:
      return {full(large), sliding(choices, small)};
    case 5:
      return {full(small), sliding(choices, large), sliding(choices, small)};
    case 6:
      return {full(small), mamba(choices, large)};
    case 7:
      return {full(small), chunked(choices, small)};
    case 8:
      return {full(large), sliding(choices, small), mamba(choices, small)};
    case 9:
      return {sliding(choices, small), full(small), full(small)};
    case 10:
      return {sliding(choices, large), mamba(choices, small)};
    case 11:
      return {sink(choices, small), sliding(choices, small)};
    case 12:
      enable_caching = false;
      return {full(small), cross(large)};
    case 13:
      return {mamba(choices, small)};
    default:
      break;
  }
  const std::vector<KVCacheSpec> groups = {any_group(choices, small), any_group(choices, large)};
  enable_caching = choices.once_in(2);
  return groups;
}

void draw_groups(Choices& choices, Config& config) {
  if (choices.once_in(kAnyGroupsOnceIn)) return draw_any_groups(choices, config);
  const std::uint32_t small = config.hash_block_size;
  const std::uint32_t large = small * (choices.once_in(2) ? 2 : 1);
  config.groups = usual_groups(choices, small, large, config.enable_caching);
}

bool is_valid(const Config& config) {
  return static_cast<bool>(KVCacheTarget::prepare(config, {}, {}));
}

/// What may happen next to a request or to the whole cache.
enum class Action : std::uint8_t {
  kDeclare,
  kAdmit,
  kRun,
  kFinish,
  kPreempt,
  kStepStarts,
  kLookUp,
  kRemoveSkipped,
  kCacheBlocks,
  kEvict,
  kReset,
  kCommonPrefix,
  kTakeNewBlocks,
  kTakeEvents,
  kTakeStats,
  kCanFit,
};

using ActionSwarm = Swarm<Action, static_cast<std::size_t>(Action::kCanFit) + 1>;
constexpr ActionSwarm::UsualWeights kUsualWeights = {{
    {Action::kDeclare, 8},
    {Action::kAdmit, 24},
    {Action::kRun, 48},
    {Action::kFinish, 6},
    {Action::kPreempt, 4},
    {Action::kStepStarts, 10},
    {Action::kLookUp, 4},
    {Action::kRemoveSkipped, 3},
    {Action::kCacheBlocks, 2},
    {Action::kEvict, 2},
    {Action::kReset, 1},
    {Action::kCommonPrefix, 2},
    {Action::kTakeNewBlocks, 2},
    {Action::kTakeEvents, 5},
    {Action::kTakeStats, 2},
    {Action::kCanFit, 2},
}};

class Generator final : public GeneratorFor<KVCacheTarget> {
 public:
  /// Draws the weights of this episode, how large chunks are, and how many requests there are at
  /// once.
  Generator(const Config& config, Choices& choices)
      : config_(config),
        rules_(make_kv_cache_manager_config(config)->pool.rules),
        unit_(common_block_size(config)),
        swarm_(kUsualWeights, kWildHabits, choices),
        tokens_(choices) {
    for (const KVCacheSpec& spec : config.groups) {
      has_cross_ = has_cross_ || spec.kind == KVCacheSpecKind::kCrossAttention;
    }
    // Without these nothing else happens.
    swarm_.raise({Action::kDeclare, Action::kAdmit, Action::kRun});
    live_max_ = 2 + choices.below(4);
    chunk_max_ = choices.once_in(3) ? 1 + choices.below(2 * unit_) : 4 * unit_ + choices.below(32);
    num_drafts_ = choices.once_in(2) ? choices.below(4) : 0;
    odd_in_ = choices.once_in(3) ? 8 : 48;
    external_in_ = choices.once_in(3) ? 3 : 12;
  }

  /// The next command, given what a manager answered to the last one and which requests there are.
  /// The caller runs every command that is drawn; the world has taken it in.
  Command next(Choices& choices, const Observation& now, const World& world) override {
    take_in_answer(now, world);
    list_requests(world);
    Command command = draw(choices, now, world);
    if (choices.once_in(odd_in_)) perturb(choices, world, command);
    last_ = command;
    return command;
  }

  /// Frees every request that has, or may have, blocks; then takes events and other pending lists.
  std::optional<Command> next_of_tail(const Observation& now, const World& world) override {
    take_in_answer(now, world);
    last_.reset();
    const auto& entries = world.entries();
    if (num_freed_ < entries.size()) {
      last_ = free(world, entries[num_freed_++].index, true);
      return last_;
    }
    last_ = next_of({ResetPrefixCache{}, NewStepStarts{}, TakeNewBlockIds{}, TakeEvents{},
                     TakePrefixCacheStats{}},
                    num_last_);
    if (!last_) num_freed_ = 0;
    return last_;
  }

 private:
  /// The progress of a request, as far as the answers show. By index of declaration.
  struct Progress {
    bool is_allocated = false;
    bool is_finished = false;
    bool is_loading = false;  ///< external tokens are under way; nothing of it is cached yet
    bool was_preempted = false;
    std::uint32_t num_computed_tokens = 0;
    std::uint32_t num_scheduled_tokens = 0;  ///< slots for them were given; computed by next time
  };

  void take_in_answer(const Observation& now, const World& world) {
    progress_.resize(world.entries().size());
    starved_ = false;
    refused_.reset();
    if (!last_) return;
    const bool accepted = now.error == ErrorCode::kNone;
    if (const auto* allocation = std::get_if<AllocateSlots>(&*last_)) {
      take_in(*allocation, now, world);
    } else if (const auto* freed = std::get_if<Free>(&*last_)) {
      const World::Entry* entry = accepted ? world.find(freed->request) : nullptr;
      if (entry) {
        Progress& progress = progress_[entry->index];
        progress = {.is_finished = progress.is_finished, .was_preempted = true};
      }
    } else if (const auto* cached = std::get_if<CacheBlocks>(&*last_)) {
      const World::Entry* entry = accepted ? world.find(cached->request) : nullptr;
      if (entry) progress_[entry->index].is_loading = false;
    }
    if (const auto* lookup = std::get_if<GetComputedBlocks>(&*last_)) {
      const World::Entry* entry = accepted ? world.find(lookup->request) : nullptr;
      looked_up_.reset();
      if (entry) looked_up_ = entry->index;
      num_hit_tokens_ = now.num_hit_tokens.has_value() ? *now.num_hit_tokens : 0;
    } else if (!std::holds_alternative<CanFitFullSequence>(*last_)) {
      looked_up_.reset();
      num_hit_tokens_ = 0;
    }
  }

  void take_in(const AllocateSlots& command, const Observation& now, const World& world) {
    const World::Entry* entry = world.find(command.request);
    if (!entry) return;
    Progress& progress = progress_[entry->index];
    if (now.error != ErrorCode::kNone) {
      if (progress.is_allocated) refused_ = entry->index;
      return;
    }
    if (!now.allocated.has_value() || !*now.allocated) {
      starved_ = true;
      return;
    }
    const bool knows_hit = command.from_cache && looked_up_ == entry->index;
    progress.is_allocated = true;
    progress.num_computed_tokens = command.num_computed_tokens + (knows_hit ? num_hit_tokens_ : 0) +
                                   command.num_external_tokens;
    progress.num_scheduled_tokens = command.num_new_tokens;
    progress.is_loading = command.delay_cache_blocks;
  }

  void list_requests(const World& world) {
    waiting_.clear();
    running_.clear();
    for (const World::Entry& entry : world.entries()) {
      const Progress& progress = progress_[entry.index];
      if (progress.is_allocated) {
        running_.push_back(entry.index);
      } else if (!progress.is_finished) {
        waiting_.push_back(entry.index);
      }
    }
  }

  Command draw(Choices& choices, const Observation& now, const World& world) {
    if (refused_ && !choices.once_in(4)) return free(world, *refused_, choices.once_in(2));
    // If an allocation failed, mostly preempts the newest running request.
    if (starved_ && !running_.empty() && !choices.once_in(4)) {
      const RequestIndex victim = choices.once_in(4) ? pick(choices, running_) : running_.back();
      return free(world, victim, choices.once_in(4));
    }
    // Mostly takes what a lookup found.
    if (looked_up_ && !progress_[*looked_up_].is_allocated && !choices.once_in(6)) {
      const bool may_ask = last_ && std::holds_alternative<GetComputedBlocks>(*last_) &&
                           choices.once_in(rules_.full_sequence_gate_in_allocate_slots ? 64 : 6);
      if (may_ask) return can_fit(choices, world, *looked_up_);
      return admit(choices, world, *looked_up_, num_hit_tokens_);
    }

    Action action = swarm_.draw(choices);
    for (int tries = 0; tries < 6 && is_idle(action, now); ++tries) action = swarm_.draw(choices);
    if (is_idle(action, now)) action = Action::kStepStarts;
    switch (action) {
      case Action::kDeclare:
        return declare(choices, world);
      case Action::kAdmit:
      case Action::kLookUp: {
        const RequestIndex index = pick(choices, waiting_);
        // Some allocate without a lookup.
        const bool allocates = action == Action::kAdmit && choices.once_in(8);
        if (allocates) return admit(choices, world, index, 0);
        return GetComputedBlocks{world.entries()[index].name, progress_[index].was_preempted};
      }
      case Action::kRun:
        return run(choices, world, pick(choices, running_));
      case Action::kFinish:
        return free(world, pick(choices, running_), true);
      case Action::kPreempt:
        return free(world, running_.back(), false);
      case Action::kStepStarts:
        return NewStepStarts{};
      case Action::kRemoveSkipped: {
        const RequestIndex index = pick(choices, running_);
        return RemoveSkippedBlocks{world.entries()[index].name,
                                   progress_[index].num_computed_tokens};
      }
      case Action::kCacheBlocks: {
        const RequestIndex index = pick(choices, running_);
        return CacheBlocks{
            world.entries()[index].name,
            std::min(progress_[index].num_computed_tokens, num_tokens(world, index))};
      }
      case Action::kEvict:
        return evict(choices, now);
      case Action::kReset:
        return ResetPrefixCache{};
      case Action::kCommonPrefix: {
        const std::string& name = world.entries()[pick(choices, running_)].name;
        if (choices.once_in(2)) return GetUnhashedBlockIds{name};
        return GetNumCommonPrefixBlocks{name};
      }
      case Action::kTakeNewBlocks:
        return TakeNewBlockIds{};
      case Action::kTakeEvents:
        return TakeEvents{};
      case Action::kTakeStats:
        return TakePrefixCacheStats{};
      case Action::kCanFit:
        return can_fit(choices, world, pick(choices, picks_running(choices) ? running_ : waiting_));
    }
    KVFENCE_CHECK(false, "an action outside its enumeration");
  }

  bool is_idle(Action action, const Observation& now) const {
    switch (action) {
      case Action::kDeclare:
        return waiting_.size() + running_.size() >= live_max_;
      case Action::kAdmit:
      case Action::kLookUp:
        return waiting_.empty();
      case Action::kCanFit:
        return waiting_.empty() && running_.empty();
      case Action::kRun:
      case Action::kFinish:
      case Action::kPreempt:
      case Action::kRemoveSkipped:
      case Action::kCacheBlocks:
      case Action::kCommonPrefix:
        return running_.empty();
      case Action::kEvict:
        return now.num_cached_keys == 0;
      default:
        return false;
    }
  }

  /// Blocks with one of two contents, so that requests often share prefixes.
  Command declare(Choices& choices, const World& world) {
    DeclareRequest command;
    while (world.find("r" + std::to_string(next_name_))) ++next_name_;
    command.id = "r" + std::to_string(next_name_++);
    const std::uint32_t length_max = config_.max_model_len;
    const std::uint32_t num_blocks =
        choices.once_in(8) ? choices.below(16) : 1 + skewed(choices, 6);
    for (std::uint32_t block = 0; block < num_blocks; ++block) {
      tokens_.append(choices.once_in(5) ? 1 : 0, unit_, choices, command.tokens);
    }
    tokens_.append(0, choices.below(unit_ + 1), choices, command.tokens);
    if (command.tokens.empty()) command.tokens.push_back(0);
    if (command.tokens.size() > length_max) command.tokens.resize(length_max);
    if (choices.once_in(12)) draw_lora(choices, command.lora_name, command.lora_id);
    if (choices.once_in(12)) command.cache_salt = choices.once_in(2) ? "salt" : "lora";
    if (choices.once_in(12)) draw_items(choices, command.mm_features);
    command.skip_reading_prefix_cache = choices.once_in(16);
    return command;
  }

  Command admit(Choices& choices, const World& world, RequestIndex index, std::uint32_t num_hit) {
    const Progress& progress = progress_[index];
    AllocateSlots command;
    command.request = world.entries()[index].name;
    command.was_preempted = progress.was_preempted;
    command.from_cache = looked_up_ == index || choices.once_in(2);
    std::uint32_t remaining = num_tokens(world, index);
    remaining -= std::min(remaining, num_hit);
    if (remaining > 0 && choices.once_in(external_in_)) {
      command.num_external_tokens = 1 + choices.below(remaining);
      remaining -= command.num_external_tokens;
      command.delay_cache_blocks = !choices.once_in(4);
    }
    command.num_new_tokens = draw_chunk(choices, remaining);
    if (command.delay_cache_blocks && choices.once_in(2)) command.num_new_tokens = 0;
    if (choices.once_in(4)) command.num_lookahead_tokens = num_drafts_;
    if (has_cross_) command.num_encoder_tokens = 1 + choices.below(3 * unit_);
    if (rules_.full_sequence_gate_in_allocate_slots) {
      command.full_sequence_must_fit = choices.once_in(3);
      command.reserved_blocks = choices.once_in(6) ? choices.below(4) : 0;
    }
    return command;
  }

  /// The next step of a request that has blocks: the tokens that got slots are computed now.
  Command run(Choices& choices, const World& world, RequestIndex index) {
    Progress& progress = progress_[index];
    const std::string& name = world.entries()[index].name;
    const std::uint32_t length = num_tokens(world, index);
    if (progress.is_loading) {
      if (choices.once_in(3)) return NewStepStarts{};
      return CacheBlocks{name, std::min(progress.num_computed_tokens, length)};
    }
    std::uint32_t reached = progress.num_computed_tokens + progress.num_scheduled_tokens;
    if (reached >= length) {
      if (length >= config_.max_model_len || choices.once_in(6)) return free(world, index, true);
      // Some of the drafts are accepted, and the model adds a token of its own.
      const std::uint32_t num_right = choices.below(reached - length + 1);
      progress.num_computed_tokens = length + num_right;
      progress.num_scheduled_tokens = 0;
      AppendTokens command{name, {}};
      command.tokens.assign(num_right + 1, choices.once_in(5) ? 1u : 0u);
      return command;
    }
    AllocateSlots command;
    command.request = name;
    command.num_computed_tokens = reached;
    command.num_new_tokens = draw_chunk(choices, length - reached);
    const bool is_last_chunk = reached + command.num_new_tokens == length;
    if (is_last_chunk && num_drafts_ > 0 && !choices.once_in(4)) {
      command.num_new_tokens += choices.below(num_drafts_ + 1);
    }
    command.num_lookahead_tokens = choices.once_in(2) ? num_drafts_ : 0;
    command.was_preempted = progress.was_preempted;
    return command;
  }

  Command free(const World& world, RequestIndex index, bool is_finished) {
    progress_[index].is_finished = is_finished;
    return Free{world.entries()[index].name};
  }

  /// Some blocks; if the state shows keys, those that have one.
  Command evict(Choices& choices, const Observation& now) const {
    EvictBlocks command;
    for (std::uint32_t count = draw_length(choices, 4); count > 0; --count) {
      BlockId block = choices.below(config_.num_gpu_blocks);
      for (BlockId tries = 0; now.keys.has_value() && tries < config_.num_gpu_blocks; ++tries) {
        if (!(*now.keys)[block].empty()) break;
        block = block + 1 == config_.num_gpu_blocks ? 0 : block + 1;
      }
      command.blocks.push_back(block);
    }
    return command;
  }

  /// Whether to ask about a running request: the scheduler asks about waiting ones.
  bool picks_running(Choices& choices) const {
    return !running_.empty() && (waiting_.empty() || choices.once_in(8));
  }

  Command can_fit(Choices& choices, const World& world, RequestIndex index) const {
    CanFitFullSequence command;
    command.request = world.entries()[index].name;
    command.from_cache = !choices.once_in(3);
    if (choices.once_in(4)) command.num_external_tokens = choices.below(2 * unit_ + 1);
    if (has_cross_) command.num_encoder_tokens = 1 + choices.below(3 * unit_);
    return command;
  }

  /// Changes one argument, so that the call is refused or unusual.
  void perturb(Choices& choices, const World& world, Command& command) {
    const DeclaredObject members = erased_type<Command>->declared(&command);
    if (members.size() == 0) return;
    const std::size_t chosen = choices.below(static_cast<std::uint32_t>(members.size()));
    const MemberRef member = members[chosen];
    if (auto* flag = get_if<bool>(member)) {
      *flag = !*flag;
    } else if (auto* number = get_if<std::uint32_t>(member)) {
      // A manager must not be asked for slots after tokens that nobody computed.
      const bool may_grow = !std::holds_alternative<AllocateSlots>(command) || chosen != 1;
      if (*number > 0 && (!may_grow || choices.once_in(2))) {
        *number = choices.below(*number);
      } else if (may_grow && choices.once_in(32)) {
        *number = kHuge - choices.below(2);
      } else if (may_grow) {
        *number += 1 + choices.below(2 * unit_);
      }
    } else if (auto* name = get_if<std::string>(member)) {
      if (world.entries().empty() || choices.once_in(4)) {
        if (!std::holds_alternative<DeclareRequest>(command)) *name = "nobody";
      } else {
        *name = pick(choices, world.entries()).name;
      }
    } else if (auto* list = get_if<std::vector<std::uint32_t>>(member)) {
      if (member.domain() == Domain::kBlocks) {
        list->push_back(config_.num_gpu_blocks - (choices.once_in(2) ? 0 : 1));
      }
    }
  }

  std::uint32_t num_tokens(const World& world, RequestIndex index) const {
    const Request* request = world.requests().find(world.entries()[index].name);
    return static_cast<std::uint32_t>(request->all_token_ids().size());
  }

  std::uint32_t draw_chunk(Choices& choices, std::uint32_t remaining) const {
    if (remaining <= 1) return remaining;
    return std::min(remaining, choices.once_in(3) ? 1 + choices.below(chunk_max_) : chunk_max_);
  }

  Config config_;
  Rules rules_;
  bool has_cross_ = false;
  std::uint32_t unit_ = 1;  ///< tokens: the groups' common block size
  ActionSwarm swarm_;
  TokenDraws tokens_;
  std::uint32_t live_max_ = 1;
  std::uint32_t chunk_max_ = 1;    ///< tokens that one allocation asks for at most
  std::uint32_t num_drafts_ = 0;   ///< speculative tokens of a decoding request at most
  std::uint32_t odd_in_ = 32;      ///< one command in so many is perturbed
  std::uint32_t external_in_ = 8;  ///< one admission in so many brings external tokens

  std::vector<Progress> progress_;
  std::vector<RequestIndex> waiting_;  ///< declared and not allocated
  std::vector<RequestIndex> running_;
  std::optional<Command> last_;
  std::optional<RequestIndex> looked_up_;  ///< by the last command that was not passive
  std::uint32_t num_hit_tokens_ = 0;
  bool starved_ = false;                 ///< the last allocation found too few free blocks
  std::optional<RequestIndex> refused_;  ///< an allocation that was refused
  std::uint32_t next_name_ = 0;
  std::size_t num_freed_ = 0;  ///< in a tail
  std::size_t num_last_ = 0;
};

}  // namespace

std::uint32_t common_block_size(const Config& config) {
  std::uint32_t multiple = 1;
  for (const KVCacheSpec& spec : config.groups) multiple = std::lcm(multiple, spec.block_size);
  return multiple;
}

std::uint32_t capacity_of(const Config& config) {
  std::uint32_t tokens_a_block = config.groups.front().block_size;
  for (const KVCacheSpec& spec : config.groups) {
    tokens_a_block = std::min(tokens_a_block, spec.block_size);
  }
  const auto num_groups = static_cast<std::uint32_t>(config.groups.size());
  const std::uint32_t capacity = (config.num_gpu_blocks - 1) * tokens_a_block / num_groups;
  return std::max(2U, std::min(capacity, config.max_model_len - 1));
}

Config draw_config(Choices& choices) {
  Config config;
  config.profile = choices.once_in(2) ? Profile::kV023 : Profile::kV019;
  config.num_gpu_blocks = 4 + choices.below(21);
  config.enable_caching = !choices.once_in(12);
  config.enable_kv_cache_events = !choices.once_in(3);
  config.hash_block_size = draw_block_size(choices);
  config.hash_algorithm =
      choices.once_in(4) ? HashAlgorithm::kSha256Cbor : HashAlgorithm::kXxhashCbor;
  config.hash_seed = choices.once_in(8) ? "42" : "0";
  config.max_model_len = 16 + choices.below(49);
  config.max_num_batched_tokens = 4 + choices.below(61);
  // So that requests have as many blocks.
  if (config.hash_block_size > kSmallBlockMax) {
    config.max_model_len = config.hash_block_size * (4 + choices.below(13));
    config.max_num_batched_tokens += config.hash_block_size;
  }
  const Rules rules = rules_of(config.profile);
  draw_groups(choices, config);
  config.use_eagle = choices.once_in(3);
  draw_eagle_groups(choices, config);
  if (rules.sliding_window_mask && choices.once_in(3)) {
    config.retention_interval = common_block_size(config) * choices.below(4);
  }
  // Not every kind accepts these settings: the first ones are dropped until it does.
  if (!is_valid(config)) config.retention_interval.reset();
  if (!is_valid(config)) {
    config.use_eagle = false;
    config.eagle_groups.clear();
  }
  if (!is_valid(config)) config.enable_caching = false;
  if (!is_valid(config)) {
    config.enable_caching = true;
    config.groups = {full(config.hash_block_size)};
  }
  return config;
}

GeneratorSuite<KVCacheTarget> generators() { return generator_suite<Generator>(draw_config); }

}  // namespace kvfence::kv_cache
