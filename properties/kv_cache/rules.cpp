#include "properties/kv_cache/rules.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "contract/core/check.h"
#include "properties/kv_cache/arithmetic.h"
#include "properties/kv_cache/rule_parts.h"

namespace kvfence::kv_cache {

using namespace detail;  // NOLINT: the other half of this file

namespace {

/// Whether a code has to come, may come or must not: some depend on what is not observed.
enum class Holds : std::uint8_t { kNo, kMaybe, kYes };

Holds known(bool holds) { return holds ? Holds::kYes : Holds::kNo; }

struct Condition {
  ErrorCode code = ErrorCode::kNone;
  Holds holds = Holds::kNo;
};

const std::string* request_of(const Command& command) {
  return std::visit(
      [](const auto& alternative) -> const std::string* {
        if constexpr (requires { alternative.request; }) return &alternative.request;
        return nullptr;
      },
      command);
}

/// Whether a command leaves blocks, queue, keys and tables alone.
bool is_passive(const Command& command, ErrorCode error) {
  if (error != ErrorCode::kNone) return true;
  return !std::holds_alternative<AllocateSlots>(command) &&
         !std::holds_alternative<CacheBlocks>(command) && !std::holds_alternative<Free>(command) &&
         !std::holds_alternative<RemoveSkippedBlocks>(command) &&
         !std::holds_alternative<EvictBlocks>(command) &&
         !std::holds_alternative<ResetPrefixCache>(command);
}

BlockState blocks_of(const Observation& observation) {
  return {*observation.free_queue, *observation.ref_cnts, *observation.keys, *observation.tables};
}

Rule rule_of(BlockRule rule) {
  switch (rule) {
    case BlockRule::kListAGroup:
      return kK1;
    case BlockRule::kNullAndSinksStayOut:
      return kK4;
    case BlockRule::kRefCntCountsPlaces:
      return kK5;
    case BlockRule::kQueueHoldsTheUnreferenced:
      return kK6;
    case BlockRule::kABlockHasOnePlace:
      return kK7;
    case BlockRule::kKeysFitTheirPlaces:
      return kK8;
  }
  return kK1;
}

/// Whether a lookup before the command finds the same behind it.
bool keeps_hits(const Command& command, ErrorCode error) {
  return is_passive(command, error) && !std::holds_alternative<AppendTokens>(command);
}

}  // namespace

Invariants::Invariants(const KVCacheManagerConfig& config)
    : config_(config), num_sinks_(num_sink_blocks(config)), block_tables_(config) {
  reset();
}

void Invariants::reset() {
  numbers_were_seen_ = false;
  state_was_seen_ = false;
  allocated_.clear();
  aliasing_.clear();
  block_tables_.reset();
  num_allocated_ = 0;
  known_hit_.reset();
  stats_ = {};
  knows_hits_ = true;
  taken_.assign(config_.groups.size(), {});
  knows_taken_ = true;
  mamba_keys_.clear();
  index_.clear();
}

std::optional<Divergence> Invariants::check(const Command& command, const Observation& observation,
                                            const World& world, std::size_t step) {
  const bool has_state = observation.free_queue.has_value() && observation.ref_cnts.has_value() &&
                         observation.keys.has_value() && observation.tables.has_value();
  const bool has_change = has_state && state_was_seen_;
  const bool passive = is_passive(command, observation.error);
  std::optional<Divergence> found = check_error(command, observation, world);
  if (!found) found = check_present(command, observation, world);
  if (!found && has_change && passive) found = check_unchanged(observation, world, true);
  if (!found) found = check_numbers(command, observation, world);
  if (!found && has_state) found = check_blocks(observation, world);
  if (!found) found = check_answer(command, observation, world);
  if (!found) {
    keep_books(command, observation, world);
    if (has_state) found = check_places(observation, world);
  }
  if (!found && has_change && !passive) found = check_change(command, observation, world);
  if (!found && num_allocated_ == 0) {
    const std::uint32_t num_free = config_.pool.num_gpu_blocks - 1 - num_sinks_;
    if (observation.num_free_blocks != num_free) {
      found = broken(kK21, "num_free_blocks", num_free, observation.num_free_blocks, world);
    }
  }
  if (found) {
    found->step = step;
    return found;
  }
  if (!keeps_hits(command, observation.error)) known_hit_.reset();
  if (const auto* lookup = std::get_if<GetComputedBlocks>(&command);
      lookup && observation.error == ErrorCode::kNone) {
    known_hit_ = {world.find(lookup->request)->index, *observation.num_hit_tokens,
                  *observation.blocks};
  }
  if (std::holds_alternative<NewStepStarts>(command)) mamba_keys_.clear();
  for (BlockId block = 0; has_change && block < keys_.size(); ++block) {
    const BlockHash& key = (*observation.keys)[block];
    if (key.empty() || key == keys_[block]) continue;
    const bool is_mamba = config_.groups[get_group_id(key)].kind == KVCacheSpecKind::kMamba;
    if (is_mamba) mamba_keys_.insert(key);
  }
  numbers_were_seen_ = true;
  num_free_before_ = observation.num_free_blocks;
  num_keys_before_ = observation.num_cached_keys;
  state_was_seen_ = has_state;
  if (has_state) {
    queue_ = *observation.free_queue;
    ref_cnts_ = *observation.ref_cnts;
    keys_ = *observation.keys;
    tables_ = *observation.tables;
  }
  return std::nullopt;
}

std::optional<std::uint32_t> Invariants::known_hit_tokens(const World& world,
                                                          const std::string& request) const {
  const World::Entry* entry = world.find(request);
  if (!config_.pool.enable_caching || (entry && entry->skip_reading_prefix_cache)) return 0;
  if (!entry || !known_hit_ || known_hit_->index != entry->index) return std::nullopt;
  return known_hit_->num_tokens;
}

// ---- The answer. ----

std::optional<Divergence> Invariants::check_error(const Command& command,
                                                  const Observation& observation,
                                                  const World& world) const {
  constexpr std::size_t kCodesMax = 6;  // those of allocate_slots
  std::array<Condition, kCodesMax> conditions;
  std::size_t size = 0;
  const auto add = [&](ErrorCode code, Holds holds) {
    KVFENCE_CHECK(size < kCodesMax, "an operation with more codes than allocate_slots");
    conditions[size++] = {code, holds};
  };
  const std::string* name = request_of(command);
  const World::Entry* entry = name ? world.find(*name) : nullptr;
  if (name) add(ErrorCode::kUnknownRequest, known(!entry));
  const bool allocated = entry && is_allocated(entry->index);
  const bool has_gate = config_.pool.rules.full_sequence_gate_in_allocate_slots;

  // A hit of no token is none; how long it is may not be known.
  const auto already_allocated = [&](bool from_cache, std::uint32_t num_computed,
                                     std::uint32_t num_external) {
    if (num_external > 0 && allocated) return Holds::kYes;
    if (!from_cache || (!allocated && num_computed == 0)) return Holds::kNo;
    const auto num_hit = name ? known_hit_tokens(world, *name) : std::nullopt;
    return num_hit && *num_hit > 0 ? Holds::kYes : Holds::kMaybe;
  };

  if (const auto* declared = std::get_if<DeclareRequest>(&command)) {
    add(ErrorCode::kAlreadyDeclared, known(!world.find(declared->id)->is_new));
  } else if (const auto* asked = std::get_if<CanFitFullSequence>(&command)) {
    add(ErrorCode::kNotInProfile, known(has_gate));
    add(ErrorCode::kAlreadyAllocated,
        already_allocated(asked->from_cache, asked->num_computed_tokens,
                          asked->num_external_tokens));
  } else if (const auto* slots = std::get_if<AllocateSlots>(&command)) {
    const bool needs_gate = slots->full_sequence_must_fit || slots->reserved_blocks > 0;
    add(ErrorCode::kNotInProfile, known(needs_gate && !has_gate));
    add(ErrorCode::kNoTokens, known(slots->num_new_tokens == 0 && slots->num_external_tokens == 0));
    const auto num_hit = slots->from_cache && name ? known_hit_tokens(world, *name)
                                                   : std::optional<std::uint32_t>(0);
    const std::uint64_t num_tokens = std::uint64_t{slots->num_computed_tokens} +
                                     slots->num_external_tokens + slots->num_new_tokens +
                                     num_hit.value_or(0);
    const bool is_beyond = num_tokens > config_.max_model_len;
    add(ErrorCode::kBeyondModelLength, num_hit || is_beyond ? known(is_beyond) : Holds::kMaybe);
    add(ErrorCode::kAlreadyAllocated,
        already_allocated(slots->from_cache, slots->num_computed_tokens,
                          slots->num_external_tokens));
    const bool may_shrink = allocated && !config_.pool.rules.mamba_align_keeps_blocks &&
                            std::any_of(config_.groups.begin(), config_.groups.end(),
                                        [](const KVCacheSpec& spec) { return spec.mamba_align; });
    add(ErrorCode::kTableShrinks, may_shrink ? Holds::kMaybe : Holds::kNo);
  } else if (const auto* cached = std::get_if<CacheBlocks>(&command)) {
    const bool caching = config_.pool.enable_caching;
    const Request* request = caching && entry ? world.requests().find(*name) : nullptr;
    add(ErrorCode::kMissingHash,
        known(request && cached->num_computed_tokens > request->all_token_ids().size()));
    const BlocksByGroup* table = name ? find_table(tables_, *name) : nullptr;
    bool is_short = false;
    for (GroupId group = 0; group < config_.groups.size(); ++group) {
      const KVCacheSpec& spec = config_.groups[group];
      // Speculative blocks hold nothing that is to be found.
      const std::uint32_t num_speculative = spec.mamba_align ? spec.num_speculative_blocks : 0;
      const std::size_t length = table ? (*table)[group].size() : 0;
      is_short = is_short || cached->num_computed_tokens / spec.block_size + num_speculative >
                                 std::max<std::size_t>(length, num_speculative);
    }
    const Holds holds = state_was_seen_ ? known(is_short) : Holds::kMaybe;
    add(ErrorCode::kBadRange, caching ? holds : Holds::kNo);
  } else if (const auto* evicted = std::get_if<EvictBlocks>(&command)) {
    const bool is_unknown =
        std::any_of(evicted->blocks.begin(), evicted->blocks.end(),
                    [&](BlockId block) { return block >= config_.pool.num_gpu_blocks; });
    add(ErrorCode::kUnknownBlock, known(is_unknown));
  } else if (std::holds_alternative<GetNumCommonPrefixBlocks>(command)) {
    add(ErrorCode::kNotAllocated, known(!allocated));
  }

  for (std::size_t index = 0; index < size; ++index) {
    const Condition& condition = conditions[index];
    if (observation.error == condition.code && condition.holds != Holds::kNo) return std::nullopt;
    if (condition.holds == Holds::kYes) {
      return broken(kK1, "error", condition.code, observation.error, world);
    }
  }
  if (observation.error == ErrorCode::kNone) return std::nullopt;
  return broken(kK1, "error", ErrorCode::kNone, observation.error, world);
}

std::optional<Divergence> Invariants::check_present(const Command& command,
                                                    const Observation& observation,
                                                    const World& world) const {
  const bool accepted = observation.error == ErrorCode::kNone;
  const auto answers = [&](auto type) {
    using Alternative = typename decltype(type)::type;
    return accepted && std::holds_alternative<Alternative>(command);
  };
  std::optional<Divergence> found;
  const auto check_member = [&](std::string_view member, bool shown, bool wanted) {
    if (found || shown == wanted) return;
    found = broken_values(kK1, member, wanted ? phrase("an answer") : Value(),
                          wanted ? Value() : phrase("an answer"), world);
  };
  const bool slots = answers(std::type_identity<AllocateSlots>{});
  const bool hit = answers(std::type_identity<GetComputedBlocks>{});
  check_member("allocated", observation.allocated.has_value(), slots);
  const bool allocated = slots && observation.allocated.has_value() && *observation.allocated;
  check_member("fits", observation.fits.has_value(),
               answers(std::type_identity<CanFitFullSequence>{}));
  check_member("blocks", observation.blocks.has_value(), hit || allocated);
  check_member("num_hit_tokens", observation.num_hit_tokens.has_value(), hit);
  check_member("success", observation.success.has_value(),
               answers(std::type_identity<ResetPrefixCache>{}));
  check_member("counts", observation.counts.has_value(),
               answers(std::type_identity<GetNumCommonPrefixBlocks>{}));
  check_member("block_ids", observation.block_ids.has_value(),
               answers(std::type_identity<TakeNewBlockIds>{}));
  check_member("events", observation.events.has_value(), answers(std::type_identity<TakeEvents>{}));
  check_member("stats", observation.stats.has_value(),
               answers(std::type_identity<TakePrefixCacheStats>{}));
  if (found) return found;
  constexpr std::size_t kNumStats = 7;
  if (observation.stats.has_value() && observation.stats->size() != kNumStats) {
    return broken_phrase(kK1, "stats", "seven numbers", *observation.stats, world);
  }
  const std::size_t num_groups = config_.groups.size();
  if (observation.blocks.has_value() && observation.blocks->size() != num_groups) {
    return broken_phrase(kK1, "blocks", "a list a group", *observation.blocks, world);
  }
  if (observation.counts.has_value() && observation.counts->size() != num_groups) {
    return broken_phrase(kK1, "counts", "a count a group", *observation.counts, world);
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_answer(const Command& command,
                                                   const Observation& observation,
                                                   const World& world) {
  if (observation.error != ErrorCode::kNone) return std::nullopt;
  if (const auto* lookup = std::get_if<GetComputedBlocks>(&command)) {
    return check_hit(*lookup, observation, world);
  }
  if (std::holds_alternative<ResetPrefixCache>(command)) {
    const bool is_idle = observation.num_free_blocks == config_.pool.num_gpu_blocks - 1;
    if (*observation.success != is_idle) {
      return broken(kK17, "success", is_idle, *observation.success, world);
    }
  }
  if (std::holds_alternative<TakePrefixCacheStats>(command)) {
    return check_stats(*observation.stats, world);
  }
  if (std::holds_alternative<TakeEvents>(command)) return check_events(observation, world);
  if (const auto* asked = std::get_if<GetNumCommonPrefixBlocks>(&command)) {
    return check_common_prefix(*asked, observation, world);
  }
  if (std::holds_alternative<TakeNewBlockIds>(command)) {
    return check_new_block_ids(observation, world);
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_hit(const GetComputedBlocks& command,
                                                const Observation& observation,
                                                const World& world) const {
  const Request& request = *world.requests().find(command.request);
  const std::uint32_t num_hit = *observation.num_hit_tokens;
  const bool reads =
      config_.pool.enable_caching && !world.find(command.request)->skip_reading_prefix_cache;
  const std::size_t num_tokens = request.all_token_ids().size();
  const auto most = static_cast<std::uint32_t>(reads && num_tokens > 0 ? num_tokens - 1 : 0);
  if (num_hit > most) return broken(kK16, "num_hit_tokens", most, num_hit, world);
  if (num_hit % config_.scheduler_block_size() != 0) {
    return broken_phrase(kK16, "num_hit_tokens", "a multiple of every group's block size", num_hit,
                         world);
  }
  for (GroupId group = 0; group < config_.groups.size(); ++group) {
    const std::uint32_t length = num_hit / config_.groups[group].block_size;
    const std::vector<BlockId>& blocks = (*observation.blocks)[group];
    if (!hit_may_overshoot(config_) && blocks.size() != length) {
      return broken_phrase(kK16, "blocks[" + std::to_string(group) + "]",
                           std::to_string(length) + " blocks", blocks, world);
    }
    if (!observation.keys.has_value()) continue;
    if (auto found = check_hit_group(group, request, observation, world)) return found;
  }
  const bool is_plain = reads && config_.groups.size() == 1 &&
                        config_.groups[0].is_full_attention() && observation.keys.has_value();
  if (!is_plain) return std::nullopt;
  // One group of full attention: the hit is simply all that is there from the start.
  const KVCacheSpec& spec = config_.groups[0];
  const KeyList& keys = *observation.keys;
  std::uint32_t longest = 0;
  while ((longest + 1) * spec.block_size <= most &&
         std::any_of(keys.begin(), keys.end(), [&](const BlockHash& key) {
           return is_key_of(key, request, spec.block_size, longest, 0);
         })) {
    ++longest;
  }
  if (longest > 0 && config_.is_eagle_group(0)) --longest;
  if (num_hit == longest * spec.block_size) return std::nullopt;
  return broken(kK16, "num_hit_tokens", longest * spec.block_size, num_hit, world);
}

std::optional<Divergence> Invariants::check_hit_group(GroupId group, const Request& request,
                                                      const Observation& observation,
                                                      const World& world) const {
  const KVCacheSpec& spec = config_.groups[group];
  const std::vector<BlockId>& blocks = (*observation.blocks)[group];
  const KeyList& keys = *observation.keys;
  std::size_t first_needed = 0;
  switch (spec.kind) {
    case KVCacheSpecKind::kSlidingWindow:
      first_needed = blocks.size() - std::min<std::size_t>(blocks.size(), num_window_blocks(spec));
      break;
    case KVCacheSpecKind::kMamba:
      first_needed = blocks.empty() ? 0 : blocks.size() - 1;
      break;
    case KVCacheSpecKind::kChunkedLocal:
      // Chunks that end inside a block leave open where the nulls end.
      first_needed = spec.attention_chunk_size % spec.block_size == 0
                         ? num_skipped_blocks(spec, blocks.size() * spec.block_size)
                         : blocks.size();
      break;
    default:
      break;
  }
  for (std::size_t index = 0; index < blocks.size(); ++index) {
    const BlockId block = blocks[index];
    const std::string place =
        "blocks[" + std::to_string(group) + "][" + std::to_string(index) + "]";
    if (block == kNullBlockId) {
      if (index < first_needed) continue;
      return broken_phrase(kK16, place, "a cached block", block, world);
    }
    if (block >= keys.size() || !is_key_of(keys[block], request, spec.block_size, index, group)) {
      return broken_phrase(kK16, place, "a block with the key of its place", block, world);
    }
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_stats(const std::vector<std::uint32_t>& shown,
                                                  const World& world) {
  std::vector<std::uint32_t> expected;
  for (std::uint64_t number :
       {std::uint64_t{stats_.reset}, stats_.requests, stats_.queries, stats_.hits,
        stats_.preempted_requests, stats_.preempted_queries, stats_.preempted_hits}) {
    expected.push_back(static_cast<std::uint32_t>(number));
  }
  constexpr std::size_t kHits = 3;
  constexpr std::size_t kPreemptedHits = 6;
  if (!knows_hits_) {
    // What lookups inside other commands found is not shown; it is no more than was asked for.
    for (std::size_t at : {kHits, kPreemptedHits}) {
      if (shown[at] >= expected[at] && shown[at] <= expected[at - 1]) expected[at] = shown[at];
    }
  }
  if (shown == expected) return std::nullopt;
  return broken(kK19, "stats", expected, shown, world);
}

std::optional<Divergence> Invariants::check_events(const Observation& observation,
                                                   const World& world) {
  std::optional<Mismatch> found = index_.take(*observation.events, config_.pool);
  if (!found && observation.keys.has_value()) {
    found = index_.compare(*observation.keys, config_.pool);
  }
  if (!found) return std::nullopt;
  return broken_mismatch(kK18, std::move(*found), world);
}

std::optional<Divergence> Invariants::check_common_prefix(const GetNumCommonPrefixBlocks& command,
                                                          const Observation& observation,
                                                          const World& world) const {
  if (!observation.tables.has_value() || !observation.ref_cnts.has_value()) return std::nullopt;
  const BlocksByGroup* table = find_table(*observation.tables, command.request);
  std::vector<std::uint32_t> expected(config_.groups.size());
  for (GroupId group = 0; table && group < config_.groups.size(); ++group) {
    if (!config_.pool.enable_caching || !config_.groups[group].is_full_attention()) continue;
    for (BlockId block : (*table)[group]) {
      if ((*observation.ref_cnts)[block] != num_allocated_) break;
      ++expected[group];
    }
  }
  if (*observation.counts == expected) return std::nullopt;
  return broken(kK20, "counts", expected, *observation.counts, world);
}

std::optional<Divergence> Invariants::check_new_block_ids(const Observation& observation,
                                                          const World& world) {
  std::vector<BlockId> expected;
  for (const std::vector<BlockId>& blocks : taken_) {
    expected.insert(expected.end(), blocks.begin(), blocks.end());
  }
  if (!knows_taken_ || *observation.block_ids == expected) return std::nullopt;
  return broken(kK20, "block_ids", expected, *observation.block_ids, world);
}

// ---- The state. ----

std::optional<Divergence> Invariants::check_numbers(const Command& command,
                                                    const Observation& observation,
                                                    const World& world) const {
  if (numbers_were_seen_ && is_passive(command, observation.error)) {
    if (observation.num_free_blocks != num_free_before_) {
      return broken(kK2, "num_free_blocks", num_free_before_, observation.num_free_blocks, world);
    }
    if (observation.num_cached_keys != num_keys_before_) {
      return broken(kK2, "num_cached_keys", num_keys_before_, observation.num_cached_keys, world);
    }
  }
  if (observation.free_queue.has_value()) {
    const auto num_free = static_cast<std::uint32_t>(observation.free_queue->size());
    if (observation.num_free_blocks != num_free) {
      return broken(kK3, "num_free_blocks", num_free, observation.num_free_blocks, world);
    }
  }
  if (observation.keys.has_value()) {
    std::set<std::string_view> distinct(observation.keys->begin(), observation.keys->end());
    distinct.erase(std::string_view());
    const auto num_keys = static_cast<std::uint32_t>(distinct.size());
    if (observation.num_cached_keys != num_keys) {
      return broken(kK3, "num_cached_keys", num_keys, observation.num_cached_keys, world);
    }
  }
  const std::uint32_t num_usable = config_.pool.num_gpu_blocks - 1;
  const double usage = num_usable == 0 ? 0.0
                                       : 1.0 - static_cast<double>(observation.num_free_blocks) /
                                                   static_cast<double>(num_usable);
  if (observation.usage != usage) return broken(kK3, "usage", usage, observation.usage, world);
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_blocks(const Observation& observation,
                                                   const World& world) {
  auto found = block_tables_.check_blocks(blocks_of(observation));
  if (!found) return std::nullopt;
  return broken_mismatch(rule_of(found->rule), std::move(found->mismatch), world);
}

std::optional<Divergence> Invariants::check_places(const Observation& observation,
                                                   const World& world) {
  owners_.clear();
  for (const RequestBlocks& table : *observation.tables) {
    const RequestIndex index = world.find(table.request)->index;
    if (!is_allocated(index)) {
      return broken_phrase(kK9, "tables", table.request + " without a table", *observation.tables,
                           world);
    }
    owners_.push_back({world.requests().find(table.request), index, aliasing_[index]});
  }
  auto found = block_tables_.check_places(blocks_of(observation), owners_);
  if (!found) return std::nullopt;
  return broken_mismatch(rule_of(found->rule), std::move(found->mismatch), world);
}

// ---- The books. ----

void Invariants::count_lookup(const std::string& request, bool was_preempted, const World& world,
                              std::optional<std::uint32_t> num_hit_tokens) {
  const World::Entry* entry = world.find(request);
  if (!entry || entry->skip_reading_prefix_cache || !config_.pool.enable_caching) return;
  const std::uint64_t num_tokens = world.requests().find(request)->all_token_ids().size();
  (was_preempted ? stats_.preempted_requests : stats_.requests) += 1;
  (was_preempted ? stats_.preempted_queries : stats_.queries) += num_tokens;
  (was_preempted ? stats_.preempted_hits : stats_.hits) += num_hit_tokens.value_or(0);
  knows_hits_ = knows_hits_ && num_hit_tokens.has_value();
}

void Invariants::keep_books(const Command& command, const Observation& observation,
                            const World& world) {
  allocated_.resize(world.entries().size());
  aliasing_.resize(world.entries().size());
  // The lookup inside a command is counted also where the command is refused.
  if (const auto* slots = std::get_if<AllocateSlots>(&command); slots && slots->from_cache) {
    count_lookup(slots->request, slots->was_preempted, world,
                 known_hit_tokens(world, slots->request));
  }
  if (const auto* asked = std::get_if<CanFitFullSequence>(&command); asked && asked->from_cache) {
    count_lookup(asked->request, false, world, known_hit_tokens(world, asked->request));
  }
  if (observation.error != ErrorCode::kNone) return;
  if (const auto* lookup = std::get_if<GetComputedBlocks>(&command)) {
    count_lookup(lookup->request, lookup->was_preempted, world, *observation.num_hit_tokens);
  } else if (std::holds_alternative<TakePrefixCacheStats>(command)) {
    stats_ = {};
    knows_hits_ = true;
  } else if (std::holds_alternative<ResetPrefixCache>(command)) {
    stats_.reset = stats_.reset || *observation.success;
  } else if (std::holds_alternative<TakeNewBlockIds>(command)) {
    taken_.assign(config_.groups.size(), {});
    knows_taken_ = true;
  } else if (const auto* freed = std::get_if<Free>(&command)) {
    const RequestIndex index = world.find(freed->request)->index;
    num_allocated_ -= allocated_[index] ? 1 : 0;
    allocated_[index] = false;
    aliasing_[index] = Aliasing::kNone;
  } else if (const auto* slots = std::get_if<AllocateSlots>(&command);
             slots && *observation.allocated) {
    const RequestIndex index = world.find(slots->request)->index;
    const bool was_allocated = allocated_[index];
    if (!was_allocated) ++num_allocated_;
    allocated_[index] = true;
    if (slots->from_cache && slots->num_external_tokens > 0) {
      aliasing_[index] = observation.tables.has_value() ? Aliasing::kShown : Aliasing::kUnknown;
    }
    // External blocks are not in the answer; the table shows them, behind a hit that is known.
    const auto num_hit = slots->from_cache ? known_hit_tokens(world, slots->request)
                                           : std::optional<std::uint32_t>(0);
    for (GroupId group = 0; group < config_.groups.size(); ++group) {
      if (config_.groups[group].kind != KVCacheSpecKind::kFullAttention) continue;
      std::vector<BlockId> gained = (*observation.blocks)[group];
      if (!was_allocated && slots->num_external_tokens > 0) {
        const BlocksByGroup* table = observation.tables.has_value()
                                         ? find_table(*observation.tables, slots->request)
                                         : nullptr;
        knows_taken_ = knows_taken_ && table && num_hit;
        if (!knows_taken_) continue;
        const std::vector<BlockId>& blocks = (*table)[group];
        const std::size_t hit_blocks =
            *num_hit > 0 && slots->from_cache ? known_hit_->blocks[group].size() : 0;
        gained.assign(
            blocks.begin() + static_cast<std::ptrdiff_t>(std::min(hit_blocks, blocks.size())),
            blocks.end());
      }
      taken_[group].insert(taken_[group].end(), gained.begin(), gained.end());
    }
  }
}

}  // namespace kvfence::kv_cache
