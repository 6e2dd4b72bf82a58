// What a step plans to copy.

#include <algorithm>
#include <string>

#include "properties/engine/simple/rule_parts.h"
#include "properties/engine/simple/rules.h"

namespace kvfence::engine::simple {

using namespace detail;
using kvfence::detail::contains;
using kvfence::detail::find_table;
using kvfence::detail::place_name;

namespace {

std::uint32_t ceil_div(std::uint32_t number, std::uint32_t divisor) {
  return (number + divisor - 1) / divisor;
}

/// Whether the CPU pool had the key before the step, and all through it. Requires: both states.
bool had_cpu_key(const Observation& before, const Observation& after, const std::string& key) {
  return has_cpu_key(before, key) && has_cpu_key(after, key);
}

}  // namespace

Invariants::Found Invariants::check_events(const Observation& observation) const {
  Found found;
  const auto check = [&](std::string_view name, const Reusable<JobId>& event, JobId next,
                         const std::vector<BlockId>& gpu_blocks,
                         const std::vector<BlockId>& cpu_blocks) {
    const std::string member(name);
    if (found) return;
    if (event.has_value() && *event != next) {
      found = broken(kS10, member + "_event", next, *event);
    } else if (event.has_value() == gpu_blocks.empty()) {
      found = broken_phrase(kS10, member + "_event", "an event exactly if there are blocks",
                            event.has_value() ? "an event" : "none");
    } else if (gpu_blocks.size() != cpu_blocks.size()) {
      found = broken_phrase(kS10, member + "_cpu_blocks", "a block for each of the GPU's",
                            std::to_string(cpu_blocks.size()) + " blocks");
    }
  };
  check("load", observation.load_event, num_load_events_, *observation.load_gpu_blocks,
        *observation.load_cpu_blocks);
  check("store", observation.store_event, num_store_events_, *observation.store_gpu_blocks,
        *observation.store_cpu_blocks);
  if (!found && observation.load_event.has_value() == observation.load_requests->empty()) {
    found =
        broken_phrase(kS10, "load_requests", "names exactly if there is a load", "the opposite");
  }
  if (found) return found;
  const bool has_victims = !observation.preempted->empty();
  if (*observation.need_flush != has_victims) {
    return broken(kS12, "need_flush", has_victims, *observation.need_flush);
  }
  return std::nullopt;
}

// ---- Loads ----

Invariants::Found Invariants::plan_load(const Observation& observation, Event& load) const {
  load.event = *observation.load_event;
  load.requests = *observation.load_requests;
  for (const std::string& name : load.requests) {
    if (known_.count(name) > 0) continue;
    return broken_phrase(kS7, "load_requests", "a request that was added", name);
  }
  for (std::size_t at = 0; at < observation.load_gpu_blocks->size(); ++at) {
    const BlockId gpu_block = (*observation.load_gpu_blocks)[at];
    const BlockId cpu_block = (*observation.load_cpu_blocks)[at];
    const bool is_block = gpu_block != kNullBlockId && cpu_block != kNullBlockId &&
                          gpu_block < spec().kv_cache.pool.num_gpu_blocks &&
                          cpu_block < spec().num_cpu_blocks;
    if (!is_block) {
      return broken_phrase(kS7, element("load_gpu_blocks", at), "blocks of both pools",
                           std::to_string(gpu_block) + " from " + std::to_string(cpu_block));
    }
    load.parts.push_back({gpu_block, cpu_block, std::nullopt});
  }
  if (!has_state(observation)) return std::nullopt;
  std::size_t at = 0;
  for (const std::string& name : load.requests) {
    if (auto found = plan_load_of(name, observation, at, load)) return found;
  }
  if (at == load.parts.size()) return std::nullopt;
  return broken_phrase(kS7, element("load_gpu_blocks", at), "no more blocks", "one");
}

/// The part of the load from `at` on that is this request's.
Invariants::Found Invariants::plan_load_of(const std::string& name, const Observation& observation,
                                           std::size_t& at, Event& load) const {
  const RequestState* state = find_state(observation, name);
  const BlocksByGroup* table = find_table(*observation.tables, name);
  if (!state || !table || state->status != RequestStatus::kWaitingForRemoteKVs) {
    return broken_phrase(kS7, "load_requests", "requests that wait for their loads", name);
  }
  if (state->num_computed_tokens >= sequences_.at(name).num_tokens()) {
    return broken_phrase(kS7, "load_requests", "a token of " + name + " that is left to compute",
                         "none");
  }
  GroupId reference = 0;
  while (!groups()[reference].is_full_attention()) ++reference;
  const auto num_found = static_cast<std::uint32_t>(
      std::count_if((*table)[reference].begin(), (*table)[reference].end(),
                    [&](BlockId block) { return !(*observation.keys)[block].empty(); }));
  const std::uint32_t num_local = num_found * groups()[reference].block_size;
  const std::uint32_t num_external =
      state->num_computed_tokens - std::min(state->num_computed_tokens, num_local);
  const Known& known = known_.at(name);
  for (GroupId group = 0; group < groups().size(); ++group) {
    const std::uint32_t size = groups()[group].block_size;
    const std::uint32_t end = ceil_div(state->num_computed_tokens, size);
    for (std::uint32_t place = end - num_external / size; place < end; ++place) {
      const BlockId block = place < (*table)[group].size() ? (*table)[group][place] : kNullBlockId;
      const bool is_next = at < load.parts.size() && load.parts[at].gpu_block == block;
      if (!is_next) {
        if (!groups()[group].is_full_attention()) continue;
        return broken_phrase(kS7, place_name(name, group, place), "a block that is loaded",
                             "one that is not");
      }
      const std::string& carried = (*observation.cpu_keys)[load.parts[at].cpu_block];
      const std::string wanted = key(known, group, place);
      if (wanted.empty() || carried != wanted) {
        return broken_phrase(kS7, element("load_cpu_blocks", at),
                             "the key of " + place_name(name, group, place), "another one");
      }
      load.parts[at++].content = contents_.at(wanted);
    }
  }
  return std::nullopt;
}

/// Whoever begins to wait for a load has one.
Invariants::Found Invariants::check_waiting(const Observation& observation) const {
  if (!has_state(observation)) return std::nullopt;
  for (const RequestState& state : *observation.requests) {
    if (state.status != RequestStatus::kWaitingForRemoteKVs || loaded_.count(state.id) > 0) {
      continue;
    }
    const bool loads = std::any_of(loads_.begin(), loads_.end(), [&](const auto& load) {
      return load.second.requests.count(state.id) > 0;
    });
    if (!loads) return broken_phrase(kS24, "load_requests", "a load for " + state.id, "none");
  }
  return std::nullopt;
}

// ---- Stores ----

Invariants::Found Invariants::plan_store(const Observation& observation, Event& store,
                                         Store& books) const {
  const Rule rule = spec().lazy_offload ? kS9 : kS8;
  store.event = *observation.store_event;
  store.is_store = true;
  std::set<BlockId> cpu_blocks;
  for (std::size_t at = 0; at < observation.store_gpu_blocks->size(); ++at) {
    const BlockId gpu_block = (*observation.store_gpu_blocks)[at];
    const BlockId cpu_block = (*observation.store_cpu_blocks)[at];
    const bool is_block = gpu_block != kNullBlockId && cpu_block != kNullBlockId &&
                          gpu_block < spec().kv_cache.pool.num_gpu_blocks &&
                          cpu_block < spec().num_cpu_blocks;
    if (!is_block || !cpu_blocks.insert(cpu_block).second) {
      return broken_phrase(rule, element("store_cpu_blocks", at), "a block of its own",
                           std::to_string(gpu_block) + " to " + std::to_string(cpu_block));
    }
    CopyPart& part = store.parts.emplace_back();
    part.gpu_block = gpu_block;
    part.cpu_block = cpu_block;
    books.keys.emplace_back();
    if (!has_state(observation)) continue;
    if (auto found = check_stored_block(at, observation)) return found;
    books.keys.back() = (*observation.keys)[gpu_block];
    part.content = contents_.at(books.keys.back());
  }
  books.parts = store.parts;
  return std::nullopt;
}

Invariants::Found Invariants::check_stored_block(std::size_t at,
                                                 const Observation& observation) const {
  const Rule rule = spec().lazy_offload ? kS9 : kS8;
  const std::string member = element("store_gpu_blocks", at);
  const std::vector<BlockId>& stored = *observation.store_gpu_blocks;
  const BlockId block = stored[at];
  const std::string& key = (*observation.keys)[block];
  if (contents_.count(key) == 0) {
    return broken_phrase(rule, member, "a block with the key of some request", "one without");
  }
  if (std::count(stored.begin(), stored.end(), block) > 1) {
    return broken_phrase(rule, member, "a block that is stored once", std::to_string(block));
  }
  if (before_ && had_cpu_key(*before_, observation, key)) {
    return broken_phrase(rule, member, "a block whose key the CPU pool lacks",
                         std::to_string(block));
  }
  return spec().lazy_offload ? check_lazy_block(at, observation)
                             : check_eager_block(at, observation);
}

Invariants::Found Invariants::check_eager_block(std::size_t at,
                                                const Observation& observation) const {
  const std::string member = element("store_gpu_blocks", at);
  const BlockId block = (*observation.store_gpu_blocks)[at];
  const std::string& key = (*observation.keys)[block];
  const bool is_under_way = std::any_of(stores_.begin(), stores_.end(), [&](const auto& store) {
    return std::any_of(store.second.parts.begin(), store.second.parts.end(),
                       [&](const CopyPart& part) { return part.gpu_block == block; });
  });
  if (is_under_way && rules().simple_offload_skips_stores_under_way) {
    return broken_phrase(kS8, member, "a block that is not being stored", std::to_string(block));
  }
  const bool is_own = std::any_of(told_.begin(), told_.end(), [&](const auto& told) {
    return is_confirmed(told.first, block, key);
  });
  if (is_own) return std::nullopt;
  return broken_phrase(kS8, member, "a confirmed block of a request in this step",
                       std::to_string(block));
}

Invariants::Found Invariants::check_lazy_block(std::size_t at,
                                               const Observation& observation) const {
  const BlockId block = (*observation.store_gpu_blocks)[at];
  const std::uint32_t ref_cnt = (*observation.ref_cnts)[block];
  if (ref_cnt == 1) return std::nullopt;
  return broken_phrase(kS9, element("store_gpu_blocks", at), "a block that nothing else holds",
                       std::to_string(ref_cnt) + " holds");
}

bool Invariants::is_confirmed(const std::string& name, BlockId block,
                              const std::string& carried) const {
  const Known& known = known_.at(name);
  for (GroupId group = 0; group < groups().size(); ++group) {
    const std::size_t num_confirmed = num_confirmed_tokens(name) / groups()[group].block_size;
    const std::vector<BlockId>& blocks = known.told[group];
    for (std::size_t place = 0; place < std::min(num_confirmed, blocks.size()); ++place) {
      if (blocks[place] == block && key(known, group, place) == carried) return true;
    }
  }
  return false;
}

/// Tokens whose KV the steps before this one compute, as far as they can be told.
std::uint32_t Invariants::num_confirmed_tokens(const std::string& name) const {
  const Told& told = told_.at(name);
  std::uint32_t num_tokens = told.num_computed_tokens;
  const RequestState* before = before_ ? find_state(*before_, name) : nullptr;
  if (before && !told.resumed) {
    num_tokens -= std::min(num_tokens, before->num_output_placeholders);
  }
  if (!rules().simple_offload_aligns_stores) return num_tokens;
  const std::uint32_t alignment = spec().kv_cache.scheduler_block_size();
  return num_tokens / alignment * alignment;
}

/// Moves the places as the step does, by what both pools show before and behind it. What cannot be
/// told ends it for the request.
Invariants::Found Invariants::check_places(const Observation& observation) {
  if (spec().lazy_offload || groups().size() > 1) return std::nullopt;
  if (!before_ || !has_state(observation)) {
    for (auto& [name, known] : known_) known.place.reset();
    return std::nullopt;
  }
  const bool has_room = *observation.num_empty_cpu_blocks + *observation.num_cached_cpu_blocks > 0;
  for (const auto& [name, told] : told_) {
    Known& known = known_.at(name);
    if (!known.place) continue;
    const std::vector<BlockId>& blocks = known.told.front();
    const std::size_t end = std::min<std::size_t>(
        num_confirmed_tokens(name) / groups().front().block_size, blocks.size());
    for (; known.place && *known.place < end; ++*known.place) {
      const BlockId block = blocks[*known.place];
      if (block == kNullBlockId) continue;
      const std::string& carried = (*observation.keys)[block];
      if (carried.empty() && !rules().simple_offload_skips_unhashed_blocks) break;
      const bool is_under_way = std::any_of(stores_.begin(), stores_.end(), [&](const auto& store) {
        return std::any_of(store.second.parts.begin(), store.second.parts.end(),
                           [&](const CopyPart& part) { return part.gpu_block == block; });
      });
      const bool is_passed_over = carried.empty() || carried != key(known, 0, *known.place) ||
                                  contains(*observation.store_gpu_blocks, block) ||
                                  (is_under_way && rules().simple_offload_skips_stores_under_way) ||
                                  had_cpu_key(*before_, observation, carried);
      if (is_passed_over) continue;
      if (has_room && !has_cpu_key(*before_, carried)) {
        return broken_phrase(kS22, place_name(name, 0, *known.place), "a block that is stored",
                             "one that is not");
      }
      // Its key may have left the CPU pool in this step, before or behind its turn.
      if (has_cpu_key(*before_, carried)) known.place.reset();
      break;
    }
  }
  return std::nullopt;
}

// ---- Hits ----

Invariants::Found Invariants::check_found(const Observation& observation) const {
  if (!before_ || !has_state(observation) || groups().size() > 1) return std::nullopt;
  const auto check = [&](const std::string& name, std::uint32_t num_computed_tokens) -> Found {
    const std::uint32_t size = groups().front().block_size;
    const std::uint32_t place = num_computed_tokens / size;
    if ((place + 1) * size >= sequences_.at(name).num_tokens()) return std::nullopt;
    const std::string wanted = key(known_.at(name), 0, place);
    if (!has_cpu_key(*before_, wanted)) return std::nullopt;
    return broken_phrase(kS23, "load_cpu_blocks", "the block of " + place_name(name, 0, place),
                         "a hit that ends before it");
  };
  for (const auto& [name, told] : told_) {
    const RequestState* before = find_state(*before_, name);
    const bool was_looked_up = before && before->num_computed_tokens == 0 &&
                               before->status != RequestStatus::kWaitingForRemoteKVs;
    if (!was_looked_up) continue;
    if (auto found = check(name, told.num_computed_tokens)) return found;
  }
  for (const std::string& name : *observation.load_requests) {
    if (auto found = check(name, find_state(observation, name)->num_computed_tokens)) return found;
  }
  return std::nullopt;
}

}  // namespace kvfence::engine::simple
