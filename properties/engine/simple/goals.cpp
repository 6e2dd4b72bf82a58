/// The coverage goals of runs with a SimpleCPUOffloadConnector. A suite in which no hit was pinned
/// has not tested pins.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "contract/core/lists.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "properties/core/invariant_values.h"
#include "properties/engine/drafts_in_flight.h"
#include "properties/engine/shown_requests.h"

namespace kvfence::engine::simple {
namespace {

constexpr Goal kGoals[] = {
    {"load", "a request waits while its blocks are copied back"},
    {"store", "eager: blocks were copied to CPU memory"},
    {"lazy_store", "lazy: blocks that were about to be evicted were copied"},
    {"load_after_hit", "a load began after blocks that the GPU still held"},
    {"load_of_preempted", "a preempted request was loaded"},
    {"load_of_several", "one event loads for several requests"},
    {"loads_share_block", "one CPU block was loaded twice at the same time"},
    {"several_groups_load", "a load brought blocks of several groups"},
    {"several_groups_load_after_hit",
     "a load of several groups began after blocks that the GPU still held"},
    {"null_blocks_passed_over", "a load left out blocks that a window does not need"},
    {"decoded_stored", "a block with decoded tokens was stored"},
    {"store_of_several", "one event stores blocks of several requests"},
    {"store_beside_load", "a step planned a load and a store"},
    {"store_evicts", "a store took the CPU block of another key"},
    {"store_cut_short", "a confirmed block was not stored, since no CPU block was free"},
    {"stored_twice", "a block was stored while its store was under way"},
    {"key_stored_twice", "a key was stored twice at the same time"},
    {"store_outlives_request", "a block was being stored when its last request had gone"},
    {"pin_stays", "a hit stayed pinned after a step, since its request found no room"},
    {"pin_freed_by_abort", "a request was ended while its hit was pinned"},
    {"flush", "a step that preempted a request waits for all copies"},
    {"flush_ends_copies", "a flush ended a copy of an earlier step"},
    {"aborted_while_loading", "a request was ended from outside while it was loading"},
    {"aborted_load_freed", "the load of a request that had ended was over"},
    {"late_rank", "a store was reported by some ranks and not by all"},
    {"cursor_forgotten", "lazy: the walk restarted, since its last block was in use"},
    {"two_steps_in_flight", "a step was planned before the one before it came back"},
    {"reset_done", "a reset took keys of the GPU's cache"},
    {"reset_refused", "a reset did not succeed"},
    {"running_reset", "a reset preempted running requests while copies were under way"},
    {"drafts_rejected", "a draft was rejected while a copy was under way"},
    {"preempted_priority", "a request was preempted under priority"},
    {"reset_of_connector", "a reset went to the connector, which cannot be reset"},
};

using detail::find_table;

bool has_cpu_key(const Observation& observation, const std::string& key) {
  return contains(*observation.cpu.keys, key);
}

/// The place of a block in a table of the group; nothing if it is not there.
std::optional<std::uint32_t> place_of(const std::vector<BlockId>& table, BlockId block) {
  const auto at = std::ranges::find(table, block);
  if (at == table.end()) return std::nullopt;
  return static_cast<std::uint32_t>(at - table.begin());
}

bool has_twice(std::vector<BlockId> blocks) {
  std::ranges::sort(blocks);
  return std::adjacent_find(blocks.begin(), blocks.end()) != blocks.end();
}

class Counter : public GoalCounter<EngineTarget, kGoals> {
 public:
  using GoalCounter::GoalCounter;

  void count_accepted(const Command& command) {
    const bool rejects = drafts_.rejects(command, after());
    add("drafts_rejected", rejects && has_elements(before().copies));
    if (const auto ended = ended_from_outside(command, before())) count_finish(*ended);
  }

  void count(const Schedule&) {
    add("two_steps_in_flight", !flushes_.empty());
    add("flush", *after().need_flush);
    add("preempted_priority", config().policy == SchedulingPolicy::kPriority &&
                                  !after().preempted->empty() && !after().never_fits.has_value());
    flushes_.push_back(*after().need_flush);
    const bool loads = after().load_event.has_value();
    const bool stores = after().store_event.has_value();
    add("store_beside_load", loads && stores);
    if (loads) count_load();
    if (stores) count_store();
    if (has_state(before()) && has_state(after())) {
      count_not_stored();
      for (const Pin& pin : *after().pins) {
        add("pin_stays", find_state(before(), pin.request) != nullptr);
      }
      const bool was_in_use =
          before().lazy_cursor.has_value() && (*before().ref_cnts)[*before().lazy_cursor] > 0;
      add("cursor_forgotten", was_in_use && after().lazy_cursor.has_value());
    }
    if (stores) stores_[*after().store_event] = *after().store_gpu_blocks;
  }

  void count(const Update&) {
    const bool flushes = !flushes_.empty() && flushes_.front();
    if (!flushes_.empty()) flushes_.pop_front();
    const bool is_under_way = std::ranges::any_of(before().copies.or_empty(), [](const Copy& copy) {
      return copy.progress != TransferProgress::kFinished;
    });
    add("flush_ends_copies", flushes && is_under_way);
    for (const CompletedJob& completed : *after().completed_jobs) {
      std::uint32_t& num_reports = num_reports_[completed.job];
      num_reports += completed.num_workers;
      if (num_reports < spec().num_workers) {
        add("late_rank");
        continue;
      }
      num_reports_.erase(completed.job);
      stores_.erase(completed.job);
    }
    for (const std::string& name : *after().finished_recving) {
      const RequestState* state = find_state(before(), name);
      add("aborted_load_freed", state && is_finished(state->status));
    }
    if (!has_state(after())) return;
    for (const auto& store : stores_) {
      const BlockId first = store.second.front();
      const auto has_it = [&](const std::vector<BlockId>& group) { return contains(group, first); };
      const bool is_in_a_table =
          std::ranges::any_of(*after().tables, [&](const kv_cache::RequestBlocks& table) {
            return std::ranges::any_of(table.blocks, has_it);
          });
      add("store_outlives_request", !spec().lazy_offload && !is_in_a_table);
    }
  }

  void count(const ResetPrefixCache& command) {
    add("reset_refused", !*after().success);
    add("reset_of_connector", command.reset_connector);
    add("running_reset", command.reset_running_requests && before().num_running > 0 &&
                             has_elements(before().copies));
    if (!has_state(before()) || !has_state(after())) return;
    add("reset_done", *after().success && *before().keys != *after().keys);
  }

 private:
  // ---- A step is planned ----

  void count_load() {
    add("load");
    add("load_of_several", after().load_requests->size() > 1);
    add("loads_share_block", has_twice(*after().load_cpu_blocks));
    if (!has_state(after())) return;
    const std::vector<KVCacheSpec>& groups = spec().kv_cache.groups;
    for (const std::string& name : *after().load_requests) {
      const RequestState* state = find_state(after(), name);
      const BlocksByGroup* table = find_table(*after().tables, name);
      if (!state || !table) continue;
      const RequestState* state_before = find_state(before(), name);
      add("load_of_preempted", state_before && state_before->num_preemptions > 0);
      std::size_t num_groups = 0;
      bool is_after_hit = false;
      for (std::size_t group = 0; group < groups.size(); ++group) {
        std::uint32_t num_loaded = 0;
        for (BlockId block : (*table)[group]) {
          num_loaded += contains(*after().load_gpu_blocks, block);
        }
        num_groups += num_loaded > 0;
        const std::uint32_t num_full = state->num_computed_tokens / groups[group].block_size;
        if (!groups[group].is_full_attention()) {
          add("null_blocks_passed_over", num_loaded < num_full);
        } else {
          is_after_hit |= num_loaded > 0 && num_loaded < num_full;
        }
      }
      add("load_after_hit", is_after_hit);
      add("several_groups_load", num_groups > 1);
      add("several_groups_load_after_hit", is_after_hit && num_groups > 1);
    }
  }

  void count_store() {
    const bool is_lazy = spec().lazy_offload;
    add(is_lazy ? Name("lazy_store") : Name("store"));
    for (BlockId block : *after().store_gpu_blocks) {
      add("stored_twice", std::ranges::any_of(stores_, [&](const auto& store) {
            return contains(store.second, block);
          }));
    }
    if (!has_state(after())) return;
    std::set<std::string> keys;
    for (BlockId block : *after().store_gpu_blocks) {
      add("key_stored_twice", !keys.insert((*after().keys)[block]).second);
    }
    if (has_state(before())) {
      for (BlockId block : *after().store_cpu_blocks) {
        add("store_evicts", !(*before().cpu.keys)[block].empty());
      }
    }
    if (is_lazy) return;
    std::size_t num_requests = 0;
    for (const kv_cache::RequestBlocks& table : *after().tables) {
      bool stores = false;
      const Request* request = world().requests().find(table.request);
      for (std::size_t group = 0; group < table.blocks.size(); ++group) {
        for (BlockId block : *after().store_gpu_blocks) {
          const auto place = place_of(table.blocks[group], block);
          if (!place) continue;
          stores = true;
          const std::uint32_t end = (*place + 1) * spec().kv_cache.groups[group].block_size;
          add("decoded_stored", request && end > request->all_token_ids().size());
        }
      }
      num_requests += stores;
    }
    add("store_of_several", num_requests > 1);
  }

  /// One group: counts blocks that a step could have stored, but for which no CPU block was free.
  void count_not_stored() {
    const bool has_room = *after().num_empty_cpu_blocks + *after().num_cached_cpu_blocks > 0;
    if (spec().lazy_offload || spec().kv_cache.groups.size() > 1 || has_room) return;
    const std::uint32_t size = spec().kv_cache.groups.front().block_size;
    for (const ScheduledRequest& each : *after().scheduled) {
      const RequestState* state = find_state(before(), each.request);
      const BlocksByGroup* table = find_table(*after().tables, each.request);
      if (!state || !table || !world().find(each.request)) continue;
      // The block that the previous step filled.
      const std::uint32_t num_full = state->num_computed_tokens / size;
      if (num_full == 0 || num_full > table->front().size()) continue;
      const BlockId block = table->front()[num_full - 1];
      const std::string& key = (*after().keys)[block];
      const bool is_held = std::ranges::any_of(
          stores_, [&](const auto& store) { return contains(store.second, block); });
      add("store_cut_short", !key.empty() && !is_held && !has_cpu_key(before(), key) &&
                                 !contains(*after().store_gpu_blocks, block));
    }
  }

  // ---- What comes from outside ----

  void count_finish(const std::vector<std::string>& names) {
    if (!has_state(before())) return;
    for (const std::string& name : names) {
      const RequestState* state = find_state(before(), name);
      if (!state || is_finished(state->status)) continue;
      add("aborted_while_loading", state->status == RequestStatus::kWaitingForRemoteKVs);
      add("pin_freed_by_abort", find_by(*before().pins, &Pin::request, name) != nullptr);
    }
  }

  const SimpleCPUOffloadSpec& spec() const { return *setup().simple; }

  DraftsInFlight drafts_;
  std::deque<bool> flushes_;                      ///< steps in flight, oldest first
  std::map<JobId, std::vector<BlockId>> stores_;  ///< GPU blocks, not completed
  std::map<JobId, std::uint32_t> num_reports_;    ///< by store
};

}  // namespace

GoalSuite goals() { return goal_suite<EngineTarget, kGoals, Counter>(); }

}  // namespace kvfence::engine::simple
