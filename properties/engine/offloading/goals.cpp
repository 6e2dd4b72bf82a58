/// The coverage goals of runs of engines with an OffloadingConnector. A suite in which no block was
/// reused while it was copied has not tested that.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "contract/connectors/kv_connector_stats.h"
#include "contract/core/lists.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "properties/core/invariant_values.h"
#include "properties/engine/drafts_in_flight.h"
#include "properties/engine/shown_requests.h"

namespace kvfence::engine::offloading {
namespace {

constexpr Goal kGoals[] = {
    {"load", "a request waits while its blocks are copied back"},
    {"store", "blocks were copied to CPU memory"},
    {"load_of_preempted", "a preempted request was loaded"},
    {"load_after_hit", "a load began after blocks that the GPU still held"},
    {"load_within_slot", "a load began in the middle of a slot"},
    {"several_groups_load", "a load brought blocks of several groups"},
    {"several_groups_load_after_hit",
     "a load of several groups began after blocks that the GPU still held"},
    {"windowed_group_loads_less", "a windowed group loaded fewer blocks than the longest"},
    {"windowed_store_leaves_out",
     "a slot was filled in part, without the blocks that a window does not need"},
    {"unrounded_load", "a load ended within a block"},
    {"decoded_stored", "decoded blocks were stored"},
    {"prompt_only_kept", "decoded blocks were not stored, since only prompts are"},
    {"max_offload_tokens", "max_offload_tokens kept blocks of a request from being stored"},
    {"store_refused", "a store was refused, since too few blocks could be evicted"},
    {"store_evicts", "a store took the slot of another block"},
    {"ghost_hit", "a ghost moved ARC's target"},
    {"filter_stops", "a block was looked up too seldom to be stored"},
    {"ask_again_loading", "a request was put off while another one loads its blocks"},
    {"ask_again_writing", "a request was put off while its blocks are being written"},
    {"preempted_while_storing", "a request was preempted while its store was under way"},
    {"aborted_while_storing", "a request was ended from outside while its store was under way"},
    {"aborted_while_loading", "a request was ended from outside while it was loading"},
    {"aborted_load_freed", "the load of a request that had ended was over"},
    {"flush_of_preempted", "a step waits for the transfers of a preempted request"},
    {"flush_of_reused", "a step waits for a transfer whose block it reuses"},
    {"flush_of_idle", "a step waits for all transfers, since no request is left"},
    {"flush_of_reset", "a step waits for all transfers, since the CPU cache was reset"},
    {"held", "the blocks of a request that ended were held for its stores"},
    {"held_freed", "held blocks were freed, since the stores were over"},
    {"late_rank", "a rank had reported a transfer that was under way on another one"},
    {"load_failed", "a load failed"},
    {"load_failed_on_a_rank", "a load failed on one rank and not on another"},
    {"load_recomputed", "a request whose load failed continued"},
    {"load_failed_for_good", "a request ended, since its load failed"},
    {"store_failed", "a store failed"},
    {"store_failed_on_a_rank", "a store failed on one rank and not on another"},
    {"reported_again", "an engine reported a transfer a second time"},
    {"measured_load", "statistics had a load"},
    {"measured_store", "statistics had a store"},
    {"beyond_first_bucket", "statistics had a transfer that is not in the first bucket"},
    {"on_a_bound", "statistics had a transfer as large as a bucket's bound"},
    {"logged_both", "an interval had loads and stores"},
    {"logged_nothing", "an interval had no transfer"},
    {"counted_together", "transfers of an engine index were counted with those of another one"},
    {"two_steps_in_flight", "a step was planned before the one before it came back"},
    {"reset_done", "a reset took keys of the GPU's cache"},
    {"reset_refused", "a reset did not succeed"},
    {"cpu_cache_reset", "the CPU cache was reset"},
    {"reset_with_jobs", "the CPU cache was reset while transfers were under way"},
    {"reset_while_loading", "the CPU cache was reset while a request was loading"},
    {"preempted_priority", "a request was preempted under priority"},
    {"store_failed_of_groups", "a store of several groups failed"},
    {"store_went_down", "a tier has kept stored blocks"},
    {"store_lost_below", "a tier could not keep stored blocks"},
    {"held_went_down", "held blocks went down to a tier that wants whole requests"},
    {"promoted", "a tier has brought blocks up"},
    {"promotion_loaded", "a request loaded blocks that a tier had brought up"},
    {"promotion_evicts", "a promotion took the slot of another block"},
    {"promotion_failed", "a tier could not bring blocks up"},
    {"no_room_to_promote", "a tier had a block for which no slot could be freed"},
    {"ask_again_tier", "a tier wanted to be asked again"},
    {"drafts_rejected", "a draft was rejected while a transfer was under way"},
    {"ended_while_promoting", "a request ended while blocks were brought up for it"},
    {"promoted_from_file", "blocks were brought up from files"},
    {"file_store_failed", "blocks could not be written to files"},
    {"file_load_failed", "a file was missing, not whole, another one, or could not be read"},
};

bool is_under_way(const EngineTransfer& transfer) {
  return transfer.progress == TransferProgress::kSubmitted ||
         transfer.progress == TransferProgress::kPart;
}

bool has_transfer(const Observation& observation, std::string_view name, bool store) {
  return std::ranges::any_of(observation.transfers.or_empty(), [&](const EngineTransfer& transfer) {
    return transfer.request == name && transfer.store == store && is_under_way(transfer);
  });
}

std::vector<std::string> keys_of(const Observation& observation) {
  std::vector<std::string> keys;
  for (const OffloadedBlock* block : observation.blocks()) keys.push_back(block->key);
  return keys;
}

bool has_readers(const Observation& observation) {
  return std::ranges::any_of(observation.blocks(),
                             [](const OffloadedBlock* block) { return block->readers > 0; });
}

class Counter : public GoalCounter<EngineTarget, kGoals> {
 public:
  using GoalCounter::GoalCounter;

  void count_accepted(const Command& command) {
    const bool rejects = drafts_.rejects(command, after());
    add("drafts_rejected",
        rejects && std::ranges::any_of(before().transfers.or_empty(), is_under_way));
    if (after().tier_calls.has_value()) count_tier_calls(command);
    if (const auto ended = ended_from_outside(command, before())) count_finish(*ended);
  }

  void count(const AddRequest& command) { added_[command.id] = command; }
  void count(const TierFinish& command) { tried_.emplace(command.job, command.success); }
  void count(const ReportTransferAgain&) { add("reported_again"); }

  void count(const Schedule&) {
    add("ghost_hit", before().target_t1_size.or_empty() != after().target_t1_size.or_empty());
    add("two_steps_in_flight", num_in_flight_ > 0);
    ++num_in_flight_;
    for (const Transfer& load : *after().loads) count_load(load);
    for (const Transfer& store : *after().stores) count_store(store);
    count_not_stored();
    count_flush();
    add("preempted_priority", config().policy == SchedulingPolicy::kPriority &&
                                  !after().preempted->empty() && !after().never_fits.has_value());
    for (const std::string& name : *after().preempted) {
      add("preempted_while_storing", has_transfer(before(), name, true));
    }
    was_reset_ = false;
    if (!has_state(after())) return;
    for (const std::string& name : *after().skipped_waiting) {
      const RequestState* state = find_state(after(), name);
      if (state && state->status == RequestStatus::kWaitingForRemoteKVs) continue;
      add(has_readers(after()) ? Name("ask_again_loading") : Name("ask_again_writing"));
    }
    if (!has_state(before()) || after().stores->empty()) return;
    const std::vector<std::string> keys = keys_of(after());
    for (const std::string& key : keys_of(before())) {
      add("store_evicts", !contains(keys, key));
    }
  }

  void count(const Update&) {
    if (num_in_flight_ > 0) --num_in_flight_;
    add("load_failed", !after().invalid_blocks->empty());
    add("held_freed", !after().finished_sending->empty());
    for (const CompletedJob& completed : *after().completed_jobs) {
      if (completed.num_failed == 0) continue;
      const bool on_a_rank = completed.num_failed < completed.num_workers;
      const auto store = is_store_.find(completed.job);
      const bool is_store = store != is_store_.end() && store->second;
      add("store_failed", is_store);
      add("store_failed_of_groups", is_store && config().groups.size() > 1);
      add(is_store ? Name("store_failed_on_a_rank") : Name("load_failed_on_a_rank"), on_a_rank);
    }
    for (const Operation& operation : *after().transfer_stats) {
      add(operation.type == "GPU_to_CPU" ? Name("measured_store") : Name("measured_load"));
      count_size(operation.bytes);
    }
    if (!after().transfer_stats->empty()) counted_.insert(engine_idx_);
    for (const std::string& name : *after().finished_recving) {
      const RequestState* state = find_state(before(), name);
      add("aborted_load_freed", state && is_finished(state->status));
    }
    if (!has_state(before()) || !has_state(after())) return;
    // A transfer that another rank reported in this step is under way on a rank.
    for (const EngineTransfer& left : *after().transfers) {
      const auto others_have = [&](const Observation& shown) {
        return std::ranges::any_of(*shown.transfers, [&](const EngineTransfer& other) {
          return other.rank != left.rank && other.job == left.job && other.store == left.store;
        });
      };
      add("late_rank", others_have(before()) && !others_have(after()));
    }
    for (const RequestState& state : *after().requests) {
      const RequestState* state_before = find_state(before(), state.id);
      if (!state_before) continue;
      add("held", is_finished(state.status) && !is_finished(state_before->status) &&
                      state_before->status == RequestStatus::kRunning);
    }
    for (const RequestOutput& output : *after().outputs) {
      add("load_failed_for_good",
          output.status == RequestStatus::kFinishedError && !after().invalid_blocks->empty());
    }
    if (after().invalid_blocks->empty()) return;
    for (const RequestState& state : *after().requests) {
      const RequestState* state_before = find_state(before(), state.id);
      add("load_recomputed", state_before && !is_finished(state.status) &&
                                 state.num_computed_tokens < state_before->num_computed_tokens);
    }
  }

  void count(const ResetPrefixCache& command) {
    add("reset_refused", !*after().success);
    if (has_state(before()) && has_state(after())) {
      add("reset_done", *after().success && *before().keys != *after().keys);
    }
    if (!command.reset_connector || !fences_) return;
    add("cpu_cache_reset");
    was_reset_ = true;
    if (!has_state(before())) return;
    add("reset_with_jobs", !before().transfers->empty());
    for (const RequestState& state : *before().requests) {
      add("reset_while_loading", state.status == RequestStatus::kWaitingForRemoteKVs);
    }
  }

  void count(const LogStats& log) {
    const std::vector<Operation>& operations = *after().interval_stats;
    add("logged_nothing", operations.empty());
    add("logged_both", !operations.empty() && operations.front().type != operations.back().type);
    const auto& values = setup_.metrics.per_engine_labelvalues;
    const bool is_shared = std::ranges::any_of(counted_, [&](std::uint32_t other) {
      return other != engine_idx_ && values.at(other) == values.at(engine_idx_);
    });
    add("counted_together", is_shared && counted_.contains(engine_idx_));
    engine_idx_ = log.engine_idx;
  }

 private:
  // ---- A step is planned ----

  void count_load(const Transfer& load) {
    add("load");
    is_store_[load.job] = false;
    add("promotion_loaded",
        std::ranges::any_of(load.slots, [this](SlotId slot) { return promoted_.count(slot) > 0; }));
    const std::vector<KVCacheSpec>& groups = setup_.scheduler.kv_cache.groups;
    std::size_t num_groups = 0;
    std::uint32_t longest = 0;
    bool is_after_hit = false;
    for (std::size_t group = 0; group < groups.size(); ++group) {
      if (load.group_sizes[group] == 0) continue;
      ++num_groups;
      longest = std::max(longest, load.group_sizes[group]);
      if (!groups[group].is_full_attention()) continue;
      const std::uint32_t first = load.block_indices[group];
      is_after_hit |= first > 0;
      add("load_within_slot", first % setup_.spec.block_size_factor != 0);
    }
    add("load_after_hit", is_after_hit);
    add("several_groups_load", num_groups > 1);
    add("several_groups_load_after_hit", is_after_hit && num_groups > 1);
    for (std::size_t group = 0; group < groups.size(); ++group) {
      add("windowed_group_loads_less",
          !groups[group].is_full_attention() && load.group_sizes[group] < longest);
    }
    const RequestState* state = find_state(after(), load.request);
    add("unrounded_load", state && state->num_computed_tokens % groups.front().block_size != 0);
    const RequestState* state_before = find_state(before(), load.request);
    add("load_of_preempted", state_before && state_before->num_preemptions > 0);
  }

  void count_store(const Transfer& store) {
    add("store");
    is_store_[store.job] = true;
    for (SlotId slot : store.slots) promoted_.erase(slot);
    const std::size_t most = store.slots.size() * setup_.spec.block_size_factor;
    add("windowed_store_leaves_out", store.gpu_blocks.size() < most);
  }

  /// Counts why full blocks of a prompt were not stored, with one group of full attention.
  void count_not_stored() {
    const KVCacheSpec& group = setup_.scheduler.kv_cache.groups.front();
    if (!has_state(before()) || !has_state(after()) ||
        setup_.scheduler.kv_cache.groups.size() > 1 || !group.is_full_attention()) {
      return;
    }
    const std::uint32_t size = group.block_size * setup_.spec.block_size_factor;
    const std::uint32_t hash_block_size = setup_.scheduler.kv_cache.pool.hash.hash_block_size;
    const std::vector<std::string> keys = keys_of(after());
    const std::vector<std::string> keys_before = keys_of(before());
    for (const ScheduledRequest& each : *after().scheduled) {
      const auto added = added_.find(each.request);
      const Request* request = world().requests().find(each.request);
      if (added == added_.end() || !request) continue;
      const std::uint32_t begin =
          num_computed_before(*after().new_reqs, *after().cached_reqs, each.request).value_or(0);
      const std::uint32_t end = begin + each.num_tokens;
      const auto num_prompt = static_cast<std::uint32_t>(added->second.tokens.size());
      const std::uint32_t bound = fences_ ? added->second.max_offload_tokens.value_or(end) : end;
      const bool has_store = find_by(*after().stores, &Transfer::request, each.request) != nullptr;
      add("decoded_stored", has_store && begin >= num_prompt);
      add("prompt_only_kept", fences_ && setup_.spec.offload_prompt_only && !has_store &&
                                  end / size > num_prompt / size);
      add("max_offload_tokens", bound / size < std::min(end, num_prompt) / size);
      const std::uint32_t num_blocks = std::min({end, bound, num_prompt}) / size;
      if (num_blocks == 0 || has_store) continue;
      const BlockHashListView hashes = request->block_hashes(hash_block_size);
      const BlockHashView hash = hashes[num_blocks * (size / hash_block_size) - 1];
      const std::string key = fences_ ? make_block_hash_with_group_id(hash, 0) : std::string(hash);
      // Only blocks that this step fills: earlier ones may have been stored and evicted.
      const bool fills = num_blocks * size > begin;
      if (!fills || contains(keys, key) || contains(keys_before, key)) continue;
      const bool has_filter = setup_.spec.manager.store_threshold >= 2;
      add(has_filter ? Name("filter_stops") : Name("store_refused"));
    }
  }

  void count_flush() {
    add("flush_of_preempted", !after().requests_to_flush->empty());
    if (after().jobs_to_flush->empty()) return;
    const bool is_idle = after().scheduled->empty() && after().num_unfinished == 0;
    add(was_reset_                    ? Name("flush_of_reset")
        : !after().preempted->empty() ? Name("flush_of_preempted")
        : is_idle                     ? Name("flush_of_idle")
                                      : Name("flush_of_reused"));
  }

  // ---- Statistics ----

  void count_size(std::uint64_t bytes) {
    const auto size = static_cast<double>(bytes);
    add("beyond_first_bucket", size > kOffloadSizeBuckets.front());
    add("on_a_bound",
        std::ranges::find(kOffloadSizeBuckets, size) != std::end(kOffloadSizeBuckets));
  }

  // ---- Tiers ----

  void count_tier_calls(const Command& command) {
    const bool plans = std::holds_alternative<Schedule>(command);
    std::vector<std::string> promoted;
    std::vector<std::string> found;
    for (const TierCallRecord& call : *after().tier_calls) {
      if (call.method == "get_finished_jobs") count_tier_results(call);
      if (call.method == "submit_load") {
        promoted.insert(promoted.end(), call.keys.begin(), call.keys.end());
        for (SlotId slot : call.slots) promoted_.erase(slot);
      } else if (call.method == "lookup") {
        add("ask_again_tier", call.answer == "pending");
        if (call.answer == "hit") found.push_back(call.keys.front());
      }
      add("held_went_down", plans && call.method == "submit_store");
      const bool ends = call.method == "on_request_finished";
      add("ended_while_promoting",
          ends && std::ranges::any_of(before().tier_jobs.or_empty(), [&](const TierTransfer& job) {
            return job.promotion && job.request == call.request;
          }));
    }
    for (const std::string& key : found) add("no_room_to_promote", !contains(promoted, key));
    if (promoted.empty() || !has_state(before()) || !has_state(after())) return;
    const std::vector<std::string> keys = keys_of(after());
    for (const std::string& key : keys_of(before())) {
      add("promotion_evicts", after().stores->empty() && !contains(keys, key));
    }
  }

  void count_tier_results(const TierCallRecord& call) {
    std::istringstream results(call.answer);
    std::uint32_t id = 0;
    std::string word;
    while (results >> id >> word) {
      for (const TierTransfer& job : before().tier_jobs.or_empty()) {
        if (job.job != id || job.tier != call.tier) continue;
        const bool success = word == "done";
        add(job.promotion ? success ? Name("promoted") : Name("promotion_failed")
            : success ? Name("store_went_down")
                          : Name("store_lost_below"));
        if (setup_.has_files(job.tier)) count_file_result(job.promotion, success, id);
        if (job.promotion && success) promoted_.insert(job.slots.begin(), job.slots.end());
      }
    }
  }

  void count_file_result(bool promotion, bool success, std::uint32_t job) {
    const auto tried = tried_.find(job);
    const bool could_not = !success && tried != tried_.end() && tried->second;
    add("promoted_from_file", promotion && success);
    add("file_store_failed", !promotion && could_not);
    add("file_load_failed", promotion && could_not);
  }

  // ---- What comes from outside ----

  void count_finish(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const RequestState* state = find_state(before(), name);
      if (!state || is_finished(state->status)) continue;
      const bool loads = state->status == RequestStatus::kWaitingForRemoteKVs;
      add("aborted_while_storing", has_transfer(before(), name, true));
      add("aborted_while_loading", loads && has_transfer(before(), name, false));
    }
  }

  const ConnectorSetup& setup_ = *setup().offloading;
  const bool fences_ = setup_.spec.manager.rules.offload_fences_reuse;
  DraftsInFlight drafts_;
  std::uint32_t num_in_flight_ = 0;
  std::unordered_map<std::string, AddRequest> added_;  ///< by name
  std::unordered_map<JobId, bool> is_store_;           ///< fence: by job
  bool was_reset_ = false;                             ///< since the last step
  std::uint32_t engine_idx_ = 0;                       ///< steps are counted under this index
  std::set<std::uint32_t> counted_;                    ///< indices with transfers
  std::map<std::uint32_t, bool> tried_;  ///< tier jobs that ended and were not given up
  std::set<SlotId> promoted_;            ///< slots that a tier has filled, until the next write
};

}  // namespace

GoalSuite goals() { return goal_suite<EngineTarget, kGoals, Counter>(); }

}  // namespace kvfence::engine::offloading
