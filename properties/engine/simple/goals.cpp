#include "properties/engine/simple/goals.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <variant>

#include "contract/core/check.h"
#include "properties/core/invariant_values.h"
#include "properties/engine/simple/facet.h"

namespace kvfence::engine::simple {
namespace {

using detail::contains;
using detail::find_table;

const RequestState* find_state(const Observation& observation, std::string_view name) {
  if (!observation.requests.has_value()) return nullptr;
  for (const RequestState& state : *observation.requests) {
    if (state.id == name) return &state;
  }
  return nullptr;
}

bool has_cpu_key(const Observation& observation, const std::string& key) {
  return std::any_of(observation.cpu_keys->begin(), observation.cpu_keys->end(),
                     [&](const BlockHash& each) { return each == key; });
}

/// The place of a block in a table of the group; nothing if it stands nowhere there.
std::optional<std::uint32_t> place_of(const std::vector<BlockId>& table, BlockId block) {
  const auto at = std::find(table.begin(), table.end(), block);
  if (at == table.end()) return std::nullopt;
  return static_cast<std::uint32_t>(at - table.begin());
}

bool has_twice(std::vector<BlockId> blocks) {
  std::sort(blocks.begin(), blocks.end());
  return std::adjacent_find(blocks.begin(), blocks.end()) != blocks.end();
}

}  // namespace

void Reach::start(const Config& config) {
  const Parsed<EngineSetup> parsed = EngineTarget::prepare(config, {}, {});
  KVFENCE_CHECK(parsed, "a run under a configuration that was not validated");
  setup_ = *parsed;
  flushes_.clear();
  stores_.clear();
  num_reports_.clear();
}

void Reach::count(const Command& command, const Observation& before, const Observation& after,
                  const World& world) {
  if (after.error != ErrorCode::kNone) {
    add_error(after.error);
    return;
  }
  if (std::holds_alternative<Schedule>(command)) {
    count_step(before, after, world);
  } else if (std::holds_alternative<Update>(command)) {
    count_update(before, after);
  } else if (const auto* finish = std::get_if<FinishRequests>(&command)) {
    count_finish(finish->requests, before);
  } else if (std::holds_alternative<FinishAllRequests>(command) && before.requests.has_value()) {
    std::vector<std::string> names;
    for (const RequestState& state : *before.requests) names.push_back(state.id);
    count_finish(names, before);
  } else if (const auto* reset = std::get_if<ResetPrefixCache>(&command)) {
    count_reset(*reset, before, after);
  }
}

// ---- A step is planned ----

void Reach::count_step(const Observation& before, const Observation& after, const World& world) {
  add(Reached::kTwoStepsInFlight, !flushes_.empty());
  add(Reached::kFlush, *after.need_flush);
  flushes_.push_back(*after.need_flush);
  const bool loads = after.load_event.has_value();
  const bool stores = after.store_event.has_value();
  add(Reached::kStoreBesideLoad, loads && stores);
  if (loads) count_load(before, after);
  if (stores) count_store(before, after, world);
  if (has_state(before) && has_state(after)) {
    count_not_stored(before, after, world);
    for (const Pin& pin : *after.pins) {
      add(Reached::kPinStays, find_state(before, pin.request) != nullptr);
    }
    const bool was_in_use =
        before.lazy_cursor.has_value() && (*before.ref_cnts)[*before.lazy_cursor] > 0;
    add(Reached::kCursorForgotten, was_in_use && after.lazy_cursor.has_value());
  }
  if (stores) stores_[*after.store_event] = *after.store_gpu_blocks;
}

void Reach::count_load(const Observation& before, const Observation& after) {
  add(Reached::kLoad);
  add(Reached::kLoadOfSeveral, after.load_requests->size() > 1);
  add(Reached::kLoadsShareBlock, has_twice(*after.load_cpu_blocks));
  if (!has_state(after)) return;
  const std::vector<KVCacheSpec>& groups = spec().kv_cache.groups;
  for (const std::string& name : *after.load_requests) {
    const RequestState* state = find_state(after, name);
    const BlocksByGroup* table = find_table(*after.tables, name);
    if (!state || !table) continue;
    const RequestState* state_before = find_state(before, name);
    add(Reached::kLoadOfPreempted, state_before && state_before->num_preemptions > 0);
    std::size_t num_groups = 0;
    for (std::size_t group = 0; group < groups.size(); ++group) {
      std::uint32_t num_loaded = 0;
      for (BlockId block : (*table)[group]) {
        num_loaded += contains(*after.load_gpu_blocks, block);
      }
      num_groups += num_loaded > 0;
      const std::uint32_t num_full = state->num_computed_tokens / groups[group].block_size;
      if (!groups[group].is_full_attention()) {
        add(Reached::kNullBlocksPassedOver, num_loaded < num_full);
      } else if (groups.size() == 1) {
        add(Reached::kLoadBehindHit, num_loaded < num_full);
      }
    }
    add(Reached::kSeveralGroupsLoad, num_groups > 1);
  }
}

void Reach::count_store(const Observation& before, const Observation& after, const World& world) {
  const bool is_lazy = spec().lazy_offload;
  add(is_lazy ? Reached::kLazyStore : Reached::kStore);
  for (BlockId block : *after.store_gpu_blocks) {
    add(Reached::kStoredTwice, std::any_of(stores_.begin(), stores_.end(), [&](const auto& store) {
          return contains(store.second, block);
        }));
  }
  if (!has_state(after)) return;
  std::set<std::string> keys;
  for (BlockId block : *after.store_gpu_blocks) {
    add(Reached::kKeyStoredTwice, !keys.insert((*after.keys)[block]).second);
  }
  if (has_state(before)) {
    for (BlockId block : *after.store_cpu_blocks) {
      add(Reached::kStoreEvicts, !(*before.cpu_keys)[block].empty());
    }
  }
  if (is_lazy) return;
  std::size_t num_requests = 0;
  for (const kv_cache::RequestBlocks& table : *after.tables) {
    bool stores = false;
    const Request* request = world.requests().find(table.request);
    for (std::size_t group = 0; group < table.blocks.size(); ++group) {
      for (BlockId block : *after.store_gpu_blocks) {
        const auto place = place_of(table.blocks[group], block);
        if (!place) continue;
        stores = true;
        const std::uint32_t end = (*place + 1) * spec().kv_cache.groups[group].block_size;
        add(Reached::kDecodedStored, request && end > request->all_token_ids().size());
      }
    }
    num_requests += stores;
  }
  add(Reached::kStoreOfSeveral, num_requests > 1);
}

/// One group: what a step could store, and found no room for.
void Reach::count_not_stored(const Observation& before, const Observation& after,
                             const World& world) {
  const bool has_room = *after.num_empty_cpu_blocks + *after.num_cached_cpu_blocks > 0;
  if (spec().lazy_offload || spec().kv_cache.groups.size() > 1 || has_room) return;
  const std::uint32_t size = spec().kv_cache.groups.front().block_size;
  for (const ScheduledRequest& each : *after.scheduled) {
    const RequestState* state = find_state(before, each.request);
    const BlocksByGroup* table = find_table(*after.tables, each.request);
    if (!state || !table || !world.find(each.request)) continue;
    // The block that the step before this one filled.
    const std::uint32_t num_full = state->num_computed_tokens / size;
    if (num_full == 0 || num_full > table->front().size()) continue;
    const BlockId block = table->front()[num_full - 1];
    const std::string& key = (*after.keys)[block];
    const bool is_held = std::any_of(stores_.begin(), stores_.end(), [&](const auto& store) {
      return contains(store.second, block);
    });
    add(Reached::kStoreCutShort, !key.empty() && !is_held && !has_cpu_key(before, key) &&
                                     !contains(*after.store_gpu_blocks, block));
  }
}

// ---- A step comes back ----

void Reach::count_update(const Observation& before, const Observation& after) {
  const bool flushes = !flushes_.empty() && flushes_.front();
  if (!flushes_.empty()) flushes_.pop_front();
  if (before.copies.has_value()) {
    const bool is_under_way =
        std::any_of(before.copies->begin(), before.copies->end(),
                    [](const Copy& copy) { return copy.progress != TransferProgress::kFinished; });
    add(Reached::kFlushEndsCopies, flushes && is_under_way);
  }
  for (const Completed& completed : *after.completed_jobs) {
    std::uint32_t& num_reports = num_reports_[completed.job];
    num_reports += completed.num_workers;
    if (num_reports < spec().num_workers) {
      add(Reached::kLateRank);
      continue;
    }
    num_reports_.erase(completed.job);
    stores_.erase(completed.job);
  }
  for (const std::string& name : *after.finished_recving) {
    const RequestState* state = find_state(before, name);
    add(Reached::kAbortedLoadFreed, state && is_finished(state->status));
  }
  if (!has_state(after)) return;
  for (const auto& store : stores_) {
    const BlockId first = store.second.front();
    const auto has_it = [&](const std::vector<BlockId>& group) { return contains(group, first); };
    const bool is_in_a_table = std::any_of(
        after.tables->begin(), after.tables->end(), [&](const kv_cache::RequestBlocks& table) {
          return std::any_of(table.blocks.begin(), table.blocks.end(), has_it);
        });
    add(Reached::kStoreOutlivesRequest, !spec().lazy_offload && !is_in_a_table);
  }
}

// ---- What comes from outside ----

void Reach::count_finish(const std::vector<std::string>& names, const Observation& before) {
  if (!has_state(before)) return;
  for (const std::string& name : names) {
    const RequestState* state = find_state(before, name);
    if (!state || is_finished(state->status)) continue;
    add(Reached::kAbortedWhileLoading, state->status == RequestStatus::kWaitingForRemoteKVs);
    add(Reached::kPinFreedByAbort,
        std::any_of(before.pins->begin(), before.pins->end(),
                    [&](const Pin& pin) { return pin.request == name; }));
  }
}

void Reach::count_reset(const ResetPrefixCache& command, const Observation& before,
                        const Observation& after) {
  add(Reached::kResetRefused, !*after.success);
  add(Reached::kResetOfConnector, command.reset_connector);
  if (!has_state(before) || !has_state(after)) return;
  add(Reached::kResetDone, *after.success && *before.keys != *after.keys);
}

}  // namespace kvfence::engine::simple
