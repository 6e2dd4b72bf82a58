#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "properties/engine/scheduler/rule_parts.h"
#include "properties/engine/scheduler/rules.h"
#include "properties/kv_cache/arithmetic.h"

namespace kvfence::engine::scheduler {

using namespace detail;  // NOLINT: the other parts of this class

namespace {

constexpr std::uint32_t kNoTable = 0xFFFF'FFFF;

/// Where a request stands.
enum Place : std::uint8_t { kNowhere, kInRunning, kInWaiting, kInSkippedWaiting };

/// Whether a command leaves places, tables, queue and keys alone but for what it adds.
bool is_passive(const Command& command, ErrorCode error) {
  if (error != ErrorCode::kNone) return true;
  return std::holds_alternative<AddRequest>(command) ||
         std::holds_alternative<UpdateDraftTokenIds>(command) ||
         std::holds_alternative<GrammarCompiled>(command) ||
         std::holds_alternative<SetPauseState>(command) ||
         std::holds_alternative<ScriptConnector>(command);
}

BlockState blocks_of(const Observation& observation) {
  return {*observation.free_queue, *observation.ref_cnts, *observation.keys, *observation.tables};
}

Rule rule_of(BlockRule rule) {
  switch (rule) {
    case BlockRule::kListAGroup:
      return kS1;
    case BlockRule::kNullAndSinksStayOut:
      return kS4;
    case BlockRule::kRefCntCountsPlaces:
      return kS5;
    case BlockRule::kQueueHoldsTheUnreferenced:
      return kS6;
    case BlockRule::kABlockHasOnePlace:
      return kS7;
    case BlockRule::kKeysFitTheirPlaces:
      return kS8;
  }
  return kS1;
}

std::uint32_t size_of(const auto& list) { return static_cast<std::uint32_t>(list.size()); }

}  // namespace

// ---- Numbers. ----

std::optional<Divergence> Invariants::check_numbers(const Answer& answer) const {
  const Observation& shown = answer.shown;
  const auto differs = [&](Rule rule, std::string_view member, std::uint32_t expected,
                           std::uint32_t actual) -> Found {
    if (expected == actual) return std::nullopt;
    return broken(rule, member, expected, actual, answer.world);
  };
  const std::uint32_t num_blocks = config_.kv_cache.pool.num_gpu_blocks;
  const std::uint32_t num_queued = shown.num_empty_blocks + shown.num_cached_blocks;
  if (auto found = differs(kS3, "num_referenced_blocks", num_blocks - num_queued,
                           shown.num_referenced_blocks)) {
    return found;
  }
  if (shown.free_queue.has_value()) {
    std::uint32_t num_cached = 0;
    for (BlockId block : *shown.free_queue) num_cached += (*shown.keys)[block].empty() ? 0 : 1;
    if (auto found = differs(kS3, "num_cached_blocks", num_cached, shown.num_cached_blocks)) {
      return found;
    }
    if (auto found = differs(kS3, "num_referenced_blocks", num_blocks - size_of(*shown.free_queue),
                             shown.num_referenced_blocks)) {
      return found;
    }
    if (auto found = differs(kS3, "num_running", size_of(*shown.running), shown.num_running)) {
      return found;
    }
    if (auto found = differs(kS3, "num_waiting", size_of(*shown.waiting), shown.num_waiting)) {
      return found;
    }
    if (auto found = differs(kS3, "num_skipped_waiting", size_of(*shown.skipped_waiting),
                             shown.num_skipped_waiting)) {
      return found;
    }
  }
  const std::uint32_t num_waiting = shown.num_waiting + shown.num_skipped_waiting;
  if (!is_lost_) {
    if (auto found = differs(kS3, "num_running", size_of(books_.running), shown.num_running)) {
      return found;
    }
    if (auto found = differs(kS3, "num_waiting", books_.num_queued - shown.num_skipped_waiting,
                             shown.num_waiting)) {
      return found;
    }
    const bool holds_finished = books_.there.size() > books_.running.size() + books_.num_queued;
    const bool has_finished =
        !books_.finished.empty() ||
        (config_.kv_cache.pool.rules.held_requests_are_work && has_connector_ && holds_finished);
    if (shown.has_finished != has_finished) {
      return broken(kS3, "has_finished", has_finished, shown.has_finished, answer.world);
    }
    if (books_.there.empty()) {
      if (auto found = differs(kS27, "num_referenced_blocks", num_base_blocks(),
                               shown.num_referenced_blocks)) {
        return found;
      }
    }
  }
  std::uint32_t num_unfinished = 0;
  if (books_.pause_state != PauseState::kPausedAll) num_unfinished = shown.num_running;
  if (books_.pause_state == PauseState::kUnpaused) num_unfinished += num_waiting;
  if (auto found = differs(kS3, "num_unfinished", num_unfinished, shown.num_unfinished)) {
    return found;
  }
  if (!numbers_were_seen_ || !is_passive(answer.command, shown.error)) return std::nullopt;
  if (auto found = differs(kS2, "num_empty_blocks", counts_.empty, shown.num_empty_blocks)) {
    return found;
  }
  return differs(kS2, "num_cached_blocks", counts_.cached, shown.num_cached_blocks);
}

// ---- The state. ----

std::optional<Divergence> Invariants::check_blocks(const Answer& answer) {
  auto found = block_tables_.check_blocks(blocks_of(answer.shown));
  if (!found) return std::nullopt;
  return broken_mismatch(rule_of(found->rule), std::move(found->mismatch), answer.world);
}

std::optional<Divergence> Invariants::check_state(const Answer& answer) {
  if (auto found = check_requests(answer)) return found;
  if (auto found = check_places(answer)) return found;
  if (auto found = check_tables(answer)) return found;
  if (auto found = check_slots(answer)) return found;
  if (auto found = check_room(answer)) return found;
  if (auto found = check_hits(answer)) return found;
  if (auto found = check_keys(answer)) return found;
  if (auto found = check_unchanged(answer)) return found;
  if (!answer.shown.scheduled.has_value()) return std::nullopt;
  return check_step_lists(answer);
}

std::optional<Divergence> Invariants::check_requests(const Answer& answer) {
  const std::vector<RequestState>& shown = *answer.shown.requests;
  const auto is_named = [this](const RequestState& state, RequestNumber number) {
    return state.id == books_.tracks[number].name;
  };
  if (!std::equal(shown.begin(), shown.end(), books_.there.begin(), books_.there.end(), is_named)) {
    std::vector<std::string> expected;
    std::vector<std::string> actual;
    for (RequestNumber number : books_.there) expected.push_back(books_.tracks[number].name);
    for (const RequestState& state : shown) actual.push_back(state.id);
    return broken(kS12, "requests", expected, actual, answer.world);
  }
  for (std::size_t at = 0; at < shown.size(); ++at) {
    if (auto found = check_request(shown[at], books_.there[at], at, answer)) return found;
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_request(const RequestState& shown, RequestNumber number,
                                                    std::size_t at, const Answer& answer) {
  const Track& track = books_.tracks[number];
  const auto member = [&](std::string_view name) { return member_of("requests", at, name); };
  const auto differs = [&](Rule rule, std::string_view name, std::uint32_t expected,
                           std::uint32_t actual) -> Found {
    if (expected == actual) return std::nullopt;
    return broken(rule, member(name), expected, actual, answer.world);
  };
  if (shown.status != track.status) {
    const RequestStatus promoted =
        track.num_preemptions > 0 ? RequestStatus::kPreempted : RequestStatus::kWaiting;
    const bool is_promoted =
        track.is_blocked() && track.may_be_promoted && shown.status == promoted;
    if (!is_promoted) {
      return broken_values(kS12, member("status"), kvfence::to_value(track.status),
                           kvfence::to_value(shown.status), answer.world);
    }
    books_.promote(number);
  }
  if (auto found = differs(kS12, "num_tokens", track.num_tokens(), shown.num_tokens)) return found;
  if (is_finished(track.status)) return std::nullopt;
  if (auto found = differs(kS12, "num_computed_tokens", track.num_computed_tokens,
                           shown.num_computed_tokens)) {
    return found;
  }
  if (auto found = differs(kS12, "num_preemptions", track.num_preemptions, shown.num_preemptions)) {
    return found;
  }
  if (shown.spec_tokens != track.spec_tokens) {
    return broken(kS12, member("spec_tokens"), track.spec_tokens, shown.spec_tokens, answer.world);
  }
  return differs(kS30, "num_output_placeholders", track.num_output_placeholders,
                 shown.num_output_placeholders);
}

// ---- Places. ----

std::optional<Divergence> Invariants::check_places(const Answer& answer) {
  const Observation& shown = answer.shown;
  place_of_.assign(books_.tracks.size(), kNowhere);
  const auto read = [&](std::string_view place, const std::vector<std::string>& names, Place code,
                        std::vector<RequestNumber>& numbers) -> Found {
    numbers.clear();
    for (std::size_t at = 0; at < names.size(); ++at) {
      const World::Entry* entry = answer.world.find(names[at]);
      const bool fits = entry && books_.tracks[entry->number].is_unfinished() &&
                        place_of_[entry->number] == kNowhere;
      if (!fits) {
        return broken_phrase(kS10, std::string(place) + "[" + std::to_string(at) + "]",
                             "an unfinished request that stands nowhere else", names[at],
                             answer.world);
      }
      place_of_[entry->number] = code;
      numbers.push_back(entry->number);
    }
    return std::nullopt;
  };
  if (auto found = read("running", *shown.running, kInRunning, numbers_)) return found;
  if (auto found = read("waiting", *shown.waiting, kInWaiting, waiting_)) return found;
  if (auto found =
          read("skipped_waiting", *shown.skipped_waiting, kInSkippedWaiting, skipped_waiting_)) {
    return found;
  }
  for (RequestNumber number : books_.there) {
    const Track& track = books_.tracks[number];
    const std::uint8_t place = place_of_[number];
    if (is_finished(track.status)) continue;
    const bool fits = track.status == RequestStatus::kRunning ? place == kInRunning
                      : track.is_blocked()                    ? place == kInSkippedWaiting
                                           : place == kInWaiting || place == kInSkippedWaiting;
    if (fits) continue;
    constexpr std::array<std::string_view, 4> kNames = {"nowhere", "in running", "in waiting",
                                                        "in skipped_waiting"};
    const std::string where = track.name + " " + std::string(kNames[place]);
    return broken_phrase(
        kS10, "requests",
        track.name + " where a status of " + std::string(to_text(track.status)) + " stands", where,
        answer.world);
  }
  return check_place_order(answer);
}

std::optional<Divergence> Invariants::check_place_order(const Answer& answer) {
  const auto names = [this](const std::vector<RequestNumber>& numbers) {
    std::vector<std::string> list;
    for (RequestNumber number : numbers) list.push_back(books_.tracks[number].name);
    return list;
  };
  const auto differs = [&](std::string_view place, const std::vector<RequestNumber>& expected,
                           const std::vector<RequestNumber>& actual) -> Found {
    if (expected == actual) return std::nullopt;
    return broken(kS11, place, names(expected), names(actual), answer.world);
  };
  if (auto found = differs("running", books_.running, numbers_)) return found;
  if (!books_.waiting_is_known) return std::nullopt;
  if (answer.shown.scheduled.has_value()) return check_order_after_step(answer);
  if (auto found = differs("waiting", books_.waiting, waiting_)) return found;
  return differs("skipped_waiting", books_.skipped_waiting, skipped_waiting_);
}

std::optional<Divergence> Invariants::check_order_after_step(const Answer& answer) const {
  const auto wrong = [&](std::string_view place, std::string_view expected) {
    const bool in_waiting = place == "waiting";
    return broken_phrase(kS11, place, expected,
                         in_waiting ? *answer.shown.waiting : *answer.shown.skipped_waiting,
                         answer.world);
  };
  // The books still have those that were skipped where they stood before.
  const std::vector<RequestNumber>& waiting = books_.waiting;
  const std::vector<RequestNumber>& skipped = books_.skipped_waiting;
  for (RequestNumber number : waiting) {
    if (place_of_[number] == kInWaiting) continue;
    if (books_.tracks[number].skipped_step != books_.num_steps) {
      return wrong("waiting", books_.tracks[number].name + ", which was not skipped");
    }
  }
  for (RequestNumber number : skipped) {
    if (place_of_[number] != kInSkippedWaiting) {
      return wrong("skipped_waiting", books_.tracks[number].name + " as before");
    }
  }
  if (config_.policy == SchedulingPolicy::kPriority) {
    const auto is_sorted = [this](const std::vector<RequestNumber>& place) {
      return std::is_sorted(place.begin(), place.end(), [this](RequestNumber a, RequestNumber b) {
        return books_.precedes(a, b);
      });
    };
    if (!is_sorted(waiting_)) return wrong("waiting", "the order of priority");
    if (!is_sorted(skipped_waiting_)) return wrong("skipped_waiting", "the order of priority");
    return std::nullopt;
  }
  // Looked at from the front: what is skipped of waiting stands behind what was skipped before.
  const auto at = [](const auto& first, const auto& second, std::size_t index) {
    return index < first.size() ? first[index] : second[index - first.size()];
  };
  for (std::size_t index = 0; index < skipped.size() + waiting.size(); ++index) {
    if (at(skipped, waiting, index) == at(skipped_waiting_, waiting_, index)) continue;
    return wrong(index < skipped_waiting_.size() ? "skipped_waiting" : "waiting",
                 "the order in which requests stood before");
  }
  return std::nullopt;
}

// ---- Tables. ----

const BlocksByGroup* Invariants::shown_table(RequestNumber number, const Answer& answer) const {
  const std::uint32_t at = table_of_[number];
  return at == kNoTable ? nullptr : &(*answer.shown.tables)[at].blocks;
}

std::optional<Divergence> Invariants::check_tables(const Answer& answer) {
  const auto& tables = *answer.shown.tables;
  owners_.clear();
  table_of_.assign(books_.tracks.size(), kNoTable);
  for (const RequestBlocks& table : tables) {
    const World::Entry* entry = answer.world.find(table.request);
    if (!entry || !books_.tracks[entry->number].is_there) {
      return broken_phrase(kS21, "tables", "none of a request that is gone", table.request,
                           answer.world);
    }
    const Track& track = books_.tracks[entry->number];
    table_of_[entry->number] = static_cast<std::uint32_t>(owners_.size());
    owners_.push_back({&*track.request, entry->number, track.aliasing});
  }
  auto found = block_tables_.check_places(blocks_of(answer.shown), owners_);
  if (found) {
    return broken_mismatch(rule_of(found->rule), std::move(found->mismatch), answer.world);
  }
  for (RequestNumber number : books_.there) {
    const Track& track = books_.tracks[number];
    const std::uint32_t at = table_of_[number];
    if (at != kNoTable) {
      if (auto wrong = check_table(tables[at], track, answer)) return wrong;
      continue;
    }
    const bool had_blocks = state_was_seen_ && std::any_of(track.table.begin(), track.table.end(),
                                                           [](const std::vector<BlockId>& blocks) {
                                                             return !blocks.empty();
                                                           });
    const bool has_blocks = track.change == TableChange::kGrows ||
                            track.change == TableChange::kBegins ||
                            (had_blocks && track.change != TableChange::kEnds);
    if (has_blocks) {
      return broken_values(kS21, "tables[" + track.name + "]", phrase("a table"), Value(),
                           answer.world);
    }
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_table(const RequestBlocks& shown, const Track& track,
                                                  const Answer& answer) const {
  const auto name = [&](GroupId group) {
    return "tables[" + shown.request + "][" + std::to_string(group) + "]";
  };
  if (track.change == TableChange::kEnds) {
    return broken_values(kS21, "tables[" + shown.request + "]", Value(), to_value(shown),
                         answer.world);
  }
  if (track.told_blocks && track.told_blocks->size() != config_.kv_cache.groups.size()) {
    return broken_phrase(kS1, "blocks of " + shown.request, "a list a group", *track.told_blocks,
                         answer.world);
  }
  for (GroupId group = 0; group < config_.kv_cache.groups.size(); ++group) {
    const KVCacheSpec& spec = config_.kv_cache.groups[group];
    const std::vector<BlockId>& now = shown.blocks[group];
    const bool is_told = track.told_blocks != nullptr;
    if (is_told && track.is_told_whole && now != (*track.told_blocks)[group]) {
      return broken(kS16, name(group), (*track.told_blocks)[group], now, answer.world);
    }
    // Mamba moves its speculative blocks along.
    if (!state_was_seen_ || track.change == TableChange::kBegins || kv_cache::is_mamba_align(spec))
      continue;

    const std::vector<BlockId>& before = track.table[group];
    const bool may_grow = track.change == TableChange::kGrows;
    if (now.size() < before.size() || (!may_grow && now.size() > before.size())) {
      return broken(kS21, name(group), before, now, answer.world);
    }
    const std::size_t num_droppable =
        track.change == TableChange::kReleases ? before.size()
        : may_grow ? kv_cache::num_skipped_blocks(spec, track.num_computed_tokens)
                   : 0;
    for (std::size_t index = 0; index < before.size(); ++index) {
      const BlockId block = before[index];
      if (now[index] != block) {
        if (now[index] == kNullBlockId && index < num_droppable) continue;
        return broken(kS21, place_name(shown.request, group, index), block, now[index],
                      answer.world);
      }
      if (keys_[block].empty() || contains(evicted_, block)) continue;
      if ((*answer.shown.keys)[block] != keys_[block]) {
        return broken_values(kS28, "keys[" + std::to_string(block) + "]", key_value(keys_[block]),
                             key_value((*answer.shown.keys)[block]), answer.world);
      }
    }
    if (!may_grow || track.is_told_whole) continue;
    const std::vector<BlockId> gained(now.begin() + static_cast<std::ptrdiff_t>(before.size()),
                                      now.end());
    const std::vector<BlockId> none;
    const std::vector<BlockId>& told = is_told ? (*track.told_blocks)[group] : none;
    if (told != gained)
      return broken(kS16, "blocks of " + shown.request, gained, told, answer.world);
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_slots(const Answer& answer) const {
  const bool is_exact = state_was_seen_ && !kv_cache::hit_may_overshoot(config_.kv_cache);
  for (const Slots& slots : slots_) {
    const Track& track = books_.tracks[slots.number];
    const BlocksByGroup& table = *shown_table(slots.number, answer);
    const std::uint32_t num_tokens = std::min(slots.num_tokens, config_.kv_cache.max_model_len);
    for (GroupId group = 0; group < config_.kv_cache.groups.size(); ++group) {
      const KVCacheSpec& spec = config_.kv_cache.groups[group];
      if (kv_cache::is_mamba_align(spec)) continue;
      std::size_t length = kv_cache::blocks_for(num_tokens, spec.block_size);
      if (spec.kind == KVCacheSpecKind::kMamba) length += spec.num_speculative_blocks;
      if (state_was_seen_ && track.change == TableChange::kGrows) {
        length = std::max(length, track.table[group].size());
      }
      if (table[group].size() == length) continue;
      if (table[group].size() > length && !is_exact) continue;
      return broken_phrase(kS15, "tables[" + track.name + "][" + std::to_string(group) + "]",
                           std::to_string(length) + " places", table[group], answer.world);
    }
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_room(const Answer& answer) const {
  const KVCacheSpec& spec = config_.kv_cache.groups.front();
  const bool is_plain = config_.kv_cache.groups.size() == 1 && spec.is_full_attention();
  if (!is_plain || !state_was_seen_) return std::nullopt;
  const auto num_lacking = [&](RequestNumber number) {
    const std::uint32_t length =
        kv_cache::blocks_for(books_.tracks[number].num_tokens(), spec.block_size);
    const BlocksByGroup* table = shown_table(number, answer);
    return length - std::min(length, table ? size_of(table->front()) : 0);
  };
  // From the last that took blocks backwards: what was free behind each.
  std::uint32_t num_free = size_of(*answer.shown.free_queue);
  for (std::size_t at = slots_.size(); at-- > 0;) {
    const RequestNumber number = slots_[at].number;
    const Track& track = books_.tracks[number];
    if (!slots_[at].is_admission) break;
    const bool is_load = track.status == RequestStatus::kWaitingForRemoteKVs;
    std::uint32_t num_owed = config_.scheduler_reserve_full_isl ? num_lacking(number) : 0;
    if (is_load && config_.kv_cache.pool.rules.reserve_for_prefills) {
      std::uint32_t num_reserved = 0;
      for (RequestNumber other : books_.there) {
        const bool came_later =
            std::any_of(slots_.begin() + static_cast<std::ptrdiff_t>(at), slots_.end(),
                        [&](const Slots& slots) { return slots.number == other; });
        if (books_.tracks[other].is_prefill_under_way && !came_later) {
          num_reserved += num_lacking(other);
        }
      }
      num_owed = std::max(num_owed, num_reserved);
    }
    if (num_free < num_owed) {
      return broken_phrase(kS32, "free blocks behind " + track.name,
                           std::to_string(num_owed) + " or more", num_free, answer.world);
    }
    const std::vector<BlockId>& blocks = shown_table(number, answer)->front();
    num_free +=
        static_cast<std::uint32_t>(std::count_if(blocks.begin(), blocks.end(), [&](BlockId block) {
          return (*answer.shown.ref_cnts)[block] == 1 || contains(queue_, block);
        }));
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_hits(const Answer& answer) const {
  const KeyList& keys = *answer.shown.keys;
  for (const Hit& hit : hits_) {
    const Track& track = books_.tracks[hit.number];
    const BlocksByGroup& table = *shown_table(hit.number, answer);
    for (GroupId group = 0; group < config_.kv_cache.groups.size(); ++group) {
      const KVCacheSpec& spec = config_.kv_cache.groups[group];
      if (!spec.is_full_attention() || track.aliasing != Aliasing::kNone) continue;
      for (std::size_t index = 0; index < hit.num_tokens / spec.block_size; ++index) {
        const BlockId block = index < table[group].size() ? table[group][index] : kNullBlockId;
        if (!keys[block].empty()) continue;
        return broken_phrase(kS19, place_name(track.name, group, index), "a cached block", block,
                             answer.world);
      }
    }
    // A block that has the key before the step and behind it had it at every lookup in between: who
    // takes it over and computes the same caches it at once, and loads cache nothing.
    const KVCacheSpec& spec = config_.kv_cache.groups.front();
    const bool is_plain = config_.kv_cache.groups.size() == 1 && spec.is_full_attention() &&
                          config_.kv_cache.pool.enable_caching && state_was_seen_ &&
                          !track.skip_reading_prefix_cache;
    if (!is_plain) continue;
    std::uint32_t least = 0;
    const auto stayed = [&](std::size_t index) {
      for (BlockId block = 0; block < keys.size(); ++block) {
        if (is_key_of(keys[block], *track.request, spec.block_size, index, 0) &&
            keys[block] == keys_[block]) {
          return true;
        }
      }
      return false;
    };
    while ((least + 1) * spec.block_size < track.num_tokens() && stayed(least)) ++least;
    if (least > 0 && config_.kv_cache.is_eagle_group(0)) --least;
    if (hit.num_tokens < least * spec.block_size) {
      return broken_phrase(kS20, "hit of " + track.name,
                           std::to_string(least * spec.block_size) + " tokens or more",
                           hit.num_tokens, answer.world);
    }
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_keys(const Answer& answer) const {
  const KeyList& keys = *answer.shown.keys;
  for (BlockId block : evicted_) {
    if (keys[block].empty()) continue;
    return broken_values(kS22, "keys[" + std::to_string(block) + "]", Value(),
                         key_value(keys[block]), answer.world);
  }
  if (kv_cache::hit_may_overshoot(config_.kv_cache)) return std::nullopt;
  for (RequestNumber number : books_.there) {
    const Track& track = books_.tracks[number];
    const BlocksByGroup* table = shown_table(number, answer);
    if (!table || is_finished(track.status)) continue;
    for (GroupId group = 0; group < config_.kv_cache.groups.size(); ++group) {
      const std::vector<BlockId>& blocks = (*table)[group];
      const std::uint32_t block_size = config_.kv_cache.groups[group].block_size;
      for (std::size_t index = track.num_cacheable_tokens / block_size; index < blocks.size();
           ++index) {
        const BlockId block = blocks[index];
        if (keys[block].empty() || block_tables_.is_aliased(block)) continue;
        return broken_values(kS22, "keys[" + std::to_string(block) + "]", Value(),
                             key_value(keys[block]), answer.world);
      }
    }
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_unchanged(const Answer& answer) const {
  if (!state_was_seen_) return std::nullopt;
  const Observation& shown = answer.shown;
  const bool is_step = shown.scheduled.has_value() || shown.outputs.has_value();
  const bool was_reset = shown.success.has_value() && shown.num_referenced_blocks == 1;
  if (is_passive(answer.command, shown.error) && *shown.free_queue != queue_) {
    return broken(kS2, "free_queue", queue_, *shown.free_queue, answer.world);
  }
  if (!is_step && !was_reset && *shown.keys != keys_) {
    return broken(kS2, "keys", keys_, *shown.keys, answer.world);
  }
  return std::nullopt;
}

// ---- What a step tells of tables. ----

std::optional<Divergence> Invariants::check_step_lists(const Answer& answer) {
  const Observation& shown = answer.shown;
  const std::vector<KVCacheSpec>& groups = config_.kv_cache.groups;
  if (shown.common_prefix->size() != groups.size()) {
    return broken_phrase(kS1, "common_prefix", "a count a group", *shown.common_prefix,
                         answer.world);
  }
  const BlocksByGroup* first =
      books_.running.empty() ? nullptr : shown_table(books_.running.front(), answer);
  for (GroupId group = 0; group < groups.size(); ++group) {
    std::uint32_t num_common = 0;
    const bool counts =
        first && config_.kv_cache.pool.enable_caching && groups[group].is_full_attention();
    while (counts && num_common < (*first)[group].size() &&
           (*shown.ref_cnts)[(*first)[group][num_common]] == shown.tables->size()) {
      ++num_common;
    }
    if ((*shown.common_prefix)[group] == num_common) continue;
    return broken(kS16, "common_prefix[" + std::to_string(group) + "]", num_common,
                  (*shown.common_prefix)[group], answer.world);
  }

  if (!state_was_seen_ || kv_cache::hit_may_overshoot(config_.kv_cache)) return std::nullopt;
  gained_.clear();
  for (GroupId group = 0; group < groups.size(); ++group) {
    if (groups[group].kind != KVCacheSpecKind::kFullAttention) continue;
    for (const Slots& slots : slots_) {
      const Track& track = books_.tracks[slots.number];
      const std::vector<BlockId>& blocks = (*shown_table(slots.number, answer))[group];
      std::size_t begin = track.table[group].size();
      if (track.change == TableChange::kBegins) {
        const auto hit = std::find_if(hits_.begin(), hits_.end(), [&](const Hit& candidate) {
          return candidate.number == slots.number;
        });
        begin = hit->num_tokens / groups[group].block_size;
      }
      begin = std::min(begin, blocks.size());
      gained_.insert(gained_.end(), blocks.begin() + static_cast<std::ptrdiff_t>(begin),
                     blocks.end());
    }
  }
  // What a victim had taken in the same step is among them too.
  const std::vector<BlockId>& told = *shown.new_block_ids;
  const bool is_told = shown.preempted->empty()
                           ? told == gained_
                           : std::all_of(gained_.begin(), gained_.end(),
                                         [&](BlockId block) { return contains(told, block); });
  if (is_told) return std::nullopt;
  return broken(kS16, "new_block_ids", gained_, told, answer.world);
}

// ---- What the next command is held against. ----

void Invariants::remember(const Answer& answer) {
  const Observation& shown = answer.shown;
  numbers_were_seen_ = true;
  counts_ = {shown.num_empty_blocks, shown.num_cached_blocks, shown.num_referenced_blocks};
  state_was_seen_ = shown.requests.has_value() && !is_lost_;
  if (!state_was_seen_) {
    if (shown.scheduled.has_value()) books_.waiting_is_known = false;
    return;
  }
  queue_ = *shown.free_queue;
  keys_ = *shown.keys;
  books_.waiting = waiting_;
  books_.skipped_waiting = skipped_waiting_;
  books_.waiting_is_known = true;
  for (RequestNumber number : books_.there) {
    BlocksByGroup& table = books_.tracks[number].table;
    if (const BlocksByGroup* blocks = shown_table(number, answer)) {
      table = *blocks;
    } else {
      for (std::vector<BlockId>& group : table) group.clear();
    }
  }
}

}  // namespace kvfence::engine::scheduler
