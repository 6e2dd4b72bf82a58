/// The rules for engines with an OffloadingConnector over scripted copies: the content of blocks
/// and slots, the order of copies, their reports, and that all of them end. Only the reference
/// checks which blocks are stored, looked up or put off. The core rules are in
/// properties/engine/rules.cpp.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/connectors/offloading/offloading_setup.h"
#include "contract/core/lists.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "contract/pool/request.h"
#include "properties/core/broken_rule.h"
#include "properties/core/divergence.h"
#include "properties/core/invariant_values.h"
#include "properties/core/left_out.h"
#include "properties/core/named_place.h"
#include "properties/engine/rank_memory.h"
#include "properties/engine/shown_requests.h"

namespace kvfence::engine::offloading {
namespace {

const LeftOut kHeldByALoaded(
    LeftOut::By::kRule, "offloading.11 all_comes_to_an_end: before a loaded request",
    "upstream lets a request that does not fit yet stand before a loaded one, whose blocks it "
    "needs, for ever",
    "engine/offloading/left_out/before_a_loaded_request.kvs");
const LeftOut kPutOffForEver(
    LeftOut::By::kRule, "offloading.11 all_comes_to_an_end: a tier is asked again",
    "upstream lets promotions of one request take each other's slots where there are fewer slots "
    "than it has blocks in a tier",
    "engine/offloading/lives/tier_asks_again.kvs");

/// Every invariant, for the command line and the documentation.
constexpr Invariant kInvariants[] = {
    {"offloading.1", "plans_name_the_requests_own_blocks",
     "a planned transfer has its own number and names full blocks of its request's table, at their "
     "places there, and one slot of its own for each offloaded block"},
    {"offloading.2", "no_reuse_under_a_copy",
     "after the flush of a step nothing else writes or zeroes a block that a copy under way reads "
     "or writes, and no block is freed while a load writes it"},
    {"offloading.3", "a_slot_has_one_writer",
     "no store or promotion begins to write a slot that another copy reads or writes"},
    {"offloading.4", "a_load_reads_what_is_complete",
     "no load begins while a rank still writes one of its slots"},
    {"offloading.5", "copies_are_the_requests_own",
     "on each rank a store's blocks and a load's slots hold the KV of its request's own tokens at "
     "that place"},
    {"offloading.6", "a_step_reads_its_own",
     "on each rank every token that a step attends to is that of its request, computed, loaded or "
     "shared by a common prefix"},
    {"offloading.7", "slots_add_up",
     "each slot of the CPU cache is free or has one block, and no key is there twice"},
    {"offloading.8", "a_ready_slot_holds_its_key",
     "the whole slot of a CPU block that can be found, or goes down to a tier, holds on all ranks "
     "the KV of the tokens that its key names, and the bytes that were stored"},
    {"offloading.9", "each_end_is_reported_once",
     "a rank's copy engine has a transfer until it ends and is reported once, as failed if it "
     "failed, and for a failed load with its blocks as invalid; a load is received when all ranks "
     "have it, and a request is sent when no rank has a store of it left"},
    {"offloading.10", "a_promotion_comes_whole",
     "until its job is reported, a block that a tier brings up has a slot and cannot be found, and "
     "a block that goes down stays and has a reader; a job that was given up is not reported as "
     "done"},
    {"offloading.11", "all_comes_to_an_end",
     "with no transfer left nothing waits for ever: held blocks are freed, an engine without held "
     "blocks admits waiting requests, and no slot has a reader or writer"},
};

using Rule = NamedPlace<kInvariants>;
constexpr BrokenRuleOf<kInvariants> broken;

using detail::find_table;

using Copy = PlannedCopy;

/// With nothing under way, a waiting request has to progress within so many steps.
constexpr std::uint32_t kQuietStepsMax = 3;

const OffloadedBlock* find_block(const Observation& observation, const std::string& key) {
  for (const OffloadedBlock* block : observation.blocks()) {
    if (block->key == key) return block;
  }
  return nullptr;
}

std::string slot_name(SlotId slot) { return "slot " + std::to_string(slot); }

[[noreturn]] void wrong_plan(const std::string& where, const std::string& expected,
                             const std::string& actual) {
  broken("plans_name_the_requests_own_blocks", where, expected, actual);
}

bool has_slot(const Copy& copy, SlotId slot) {
  return contains(copy.parts, slot, &CopyPart::place);
}

/// A planned step as the workers get it.
struct PlannedStep : StepOnBlocks {
  std::vector<Copy> loads;
  std::vector<Copy> stores;
  std::vector<std::string> requests_to_flush;
  std::vector<JobId> jobs_to_flush;
};

/// Transfers that ended on the ranks and were not reported before.
struct Report {
  std::vector<std::string> received;   ///< requests whose loads ended on all ranks
  std::set<BlockId> invalid_blocks;    ///< of loads that failed
  std::map<JobId, CompletedJob> jobs;  ///< fence
};

/// The ranks' copies, as the contract defines them. Copyable.
class Copies : public RankMemory {
 public:
  explicit Copies(const ConnectorSetup& setup)
      : RankMemory(kWords, setup.scheduler.kv_cache, setup.spec.num_workers,
                   setup.spec.manager.cache.capacity, setup.spec.block_size_factor),
        fences_(setup.spec.manager.rules.offload_fences_reuse),
        queued_(ranks_.size()),
        next_jobs_(ranks_.size()) {}

  // ---- A step on all ranks ----

  /// Runs the oldest step on all ranks, and fills their report.
  void run(const PlannedStep& step, const Sequences& sequences, Report& report) {
    for (std::size_t index = 0; index < ranks_.size(); ++index) {
      Rank& rank = ranks_[index];
      for (const Copy& copy : std::exchange(queued_[index], {})) submit(index, copy);
      for (Copy& copy : rank.copies) {
        const bool is_flushed =
            fences_ ? contains(step.jobs_to_flush, copy.job)
                    : copy.is_store && contains(step.requests_to_flush, copy.request);
        if (is_flushed && copy.is_under_way()) end(rank, copy, true);
      }
      zero(index, step, sequences);
      for (Copy copy : step.loads) {
        if (!fences_) copy.job = next_jobs_[index]++;
        submit(index, copy);
      }
      compute(index, step, sequences);
      for (Copy copy : step.stores) {
        if (!fences_) copy.job = next_jobs_[index]++;
        queued_[index].push_back(std::move(copy));
      }
      report_ended(rank, report);
    }
  }

  /// Does nothing if the rank has no such copy under way.
  void advance(const AdvanceTransfer& command) {
    Rank& rank = ranks_[command.rank];
    for (Copy& copy : rank.copies) {
      if (copy.job != command.job || !copy.is_under_way()) continue;
      if (command.progress == TransferProgress::kPart) {
        copy.progress = command.progress;
      } else {
        end(rank, copy, command.progress == TransferProgress::kFinished);
      }
      return;
    }
  }

  /// A tier has filled a slot on all ranks. `parts`: by sub-block; empty: unknown content.
  void fill_slot(SlotId slot, const std::vector<Content>& parts) {
    for (Rank& rank : ranks_) {
      for (std::uint32_t sub = 0; sub < num_sub_blocks_; ++sub) {
        rank.places[slot * num_sub_blocks_ + sub] = sub < parts.size() ? parts[sub] : Content{};
      }
    }
  }

  /// Calls visit(copy) for each copy that is queued or under way, rank by rank.
  template <class Visit>
  void for_each_under_way(Visit&& visit) const {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const Copy& copy : queued_[rank]) visit(copy);
      for (const Copy& copy : ranks_[rank].copies) {
        if (copy.is_under_way()) visit(copy);
      }
    }
  }

  /// Whether `is` holds for some rank's copy that is queued, under way or not reported.
  template <class Predicate>
  bool has(Predicate&& is) const {
    const auto has_one = [&](const std::vector<Copy>& copies) {
      return std::ranges::any_of(copies, is);
    };
    return std::ranges::any_of(queued_, has_one) ||
           std::ranges::any_of(ranks_, [&](const Rank& rank) { return has_one(rank.copies); });
  }

 private:
  static constexpr Words kWords = {
      .block = "block",
      .place = "slot",
      .no_reuse_under_a_copy = broken.row("no_reuse_under_a_copy"),
      .a_place_has_one_writer = broken.row("a_slot_has_one_writer"),
      .a_load_reads_what_is_complete = broken.row("a_load_reads_what_is_complete"),
      .copies_are_as_planned = broken.row("copies_are_the_requests_own"),
      .a_step_reads_its_own = broken.row("a_step_reads_its_own")};

  /// Does get_finished of one rank, and adds its part of the report.
  void report_ended(Rank& rank, Report& report) {
    for (const Copy& copy : rank.copies) {
      if (copy.is_under_way()) continue;
      const bool has_failed = copy.progress == TransferProgress::kFailed;
      if (!copy.is_store && ++num_received_[copy.request] == ranks_.size()) {
        num_received_.erase(copy.request);
        report.received.push_back(copy.request);
      }
      for (const CopyPart& part : copy.parts) {
        if (has_failed && !copy.is_store) report.invalid_blocks.insert(part.block);
      }
      if (!fences_) continue;
      CompletedJob& completed = report.jobs[copy.job];
      completed.job = copy.job;
      ++completed.num_workers;
      completed.num_failed += has_failed;
    }
    std::erase_if(rank.copies, [](const Copy& copy) { return !copy.is_under_way(); });
  }

  bool fences_ = false;
  std::vector<std::vector<Copy>> queued_;              ///< stores, by rank, in order
  std::vector<JobId> next_jobs_;                       ///< hold: by rank, its own numbers
  std::map<std::string, std::uint32_t> num_received_;  ///< ranks that reported its load
};

/// The model follows commands and answers. Rules that need the state are checked on each
/// observation that has it.
class Invariants final : public Rules {
 public:
  explicit Invariants(const EngineSetup& setup)
      : setup_(*setup.offloading),
        fences_(setup_.spec.manager.rules.offload_fences_reuse),
        copies_(setup_) {
    for (std::uint32_t tier = 0; tier < setup_.num_tiers(); ++tier) {
      has_files_ |= setup_.has_files(tier);
    }
  }

  void check_all(const Command& command) override {
    const bool is_accepted = shown().error == ErrorCode::kNone;
    if (is_accepted) take_in(command);
    if (has_state(shown())) check_state();
    if (is_accepted) check_end(command);
  }

 private:
  /// The group and content of a key.
  struct Key {
    GroupId group = 0;
    std::vector<Content> parts;
  };

  /// A transfer under way between the CPU cache and a tier.
  struct TierJob {
    std::uint32_t tier = 0;
    bool is_promotion = false;
    KeyList keys;
    std::vector<SlotId> slots;
  };

  // ---- The model ----

  void take_in(const Command& command) {
    // The ranks run before the scheduler's half gets their report.
    if (std::holds_alternative<Update>(command)) take_in_update();
    take_in_tier_calls();
    if (std::holds_alternative<Schedule>(command)) take_in_step();
    if (const auto* added = std::get_if<AddRequest>(&command)) {
      add(*added);
    } else if (const auto* advance = std::get_if<AdvanceTransfer>(&command)) {
      copies_.advance(*advance);
    } else if (const auto* paused = std::get_if<SetPauseState>(&command)) {
      pause_state_ = paused->state;
    } else if (const auto* finish = std::get_if<TierFinish>(&command)) {
      // A file tier ends only jobs that it has; other tiers also end jobs that come later.
      const auto job = tier_jobs_.find(finish->job);
      const bool is_there = job != tier_jobs_.end() && job->second.tier == finish->tier;
      if (is_there || !has_files_) {
        ended_tier_jobs_[finish->tier].emplace(finish->job, finish->success);
      }
    }
  }

  std::string key(const Request& request, GroupId group, std::uint32_t block) const {
    const KVCacheManagerConfig& kv_cache = setup_.scheduler.kv_cache;
    const std::uint32_t hash_block_size = kv_cache.pool.hash.hash_block_size;
    const std::uint32_t size = kv_cache.groups[group].block_size * setup_.spec.block_size_factor;
    const BlockHashListView hashes = request.block_hashes(hash_block_size);
    const std::uint32_t index = (block + 1) * size / hash_block_size - 1;
    return fences_ ? make_block_hash_with_group_id(hashes[index], group)
                   : std::string(hashes[index]);
  }

  void add(const AddRequest& added) {
    RequestSpec spec{{}, std::nullopt, added.cache_salt, {}};
    if (added.lora_name) spec.lora = LoraRequest{*added.lora_name, added.lora_id};
    known_.insert_or_assign(added.id, Request(spec, setup_.scheduler.kv_cache.pool.hash));
    tables_[added.id].assign(setup_.scheduler.kv_cache.groups.size(), {});
    sequences_.insert_or_assign(added.id, Prefixes(spec));
    append(added.id, added.tokens);
  }

  /// Tokens of a request, and the keys of the blocks that they complete.
  void append(const std::string& name, const std::vector<TokenId>& tokens) {
    Request& request = known_.at(name);
    Prefixes& prefixes = sequences_.at(name);
    const std::uint32_t num_before = prefixes.num_tokens();
    request.append_output_token_ids(tokens);
    for (TokenId token : tokens) prefixes.append(token);
    const std::uint32_t factor = setup_.spec.block_size_factor;
    for (GroupId group = 0; group < setup_.scheduler.kv_cache.groups.size(); ++group) {
      const std::uint32_t part_size = setup_.scheduler.kv_cache.groups[group].block_size;
      const std::uint32_t size = part_size * factor;
      for (std::uint32_t block = num_before / size; (block + 1) * size <= prefixes.num_tokens();
           ++block) {
        Key entry{group, {}};
        for (std::uint32_t sub = 0; sub < factor; ++sub) {
          const std::uint32_t begin = block * size + sub * part_size;
          const std::uint32_t end = begin + part_size;
          entry.parts.push_back({prefixes.id(end), begin, end, group});
        }
        keys_.insert_or_assign(key(request, group, block), std::move(entry));
      }
    }
  }

  void take_in_step() {
    const auto unknown = [](const std::string& member, const std::string& name) {
      wrong_plan(member, "a request of the step", name);
    };
    for (const ScheduledNew& each : *shown().new_reqs) {
      if (!known_.contains(each.request)) unknown("new_reqs", each.request);
    }
    for (const ScheduledCached& each : *shown().cached_reqs) {
      if (!known_.contains(each.request)) unknown("cached_reqs", each.request);
    }
    PlannedStep step;
    engine::take_in_step(shown(), setup_.scheduler, tables_, step);
    for (const ScheduledRequest& each : *shown().scheduled) {
      if (!find_by(step.runs, &Run::request, each.request)) unknown("scheduled", each.request);
    }
    for (const std::string& name : *shown().preempted) {
      if (!known_.contains(name)) unknown("preempted", name);
    }
    step.requests_to_flush = *shown().requests_to_flush;
    step.jobs_to_flush = *shown().jobs_to_flush;
    for (const bool is_store : {false, true}) {
      const std::vector<Transfer>& transfers = is_store ? *shown().stores : *shown().loads;
      std::vector<Copy>& copies = is_store ? step.stores : step.loads;
      const std::string member = is_store ? "stores" : "loads";
      for (std::size_t index = 0; index < transfers.size(); ++index) {
        plan(detail::element(member, index), transfers[index], is_store, copies.emplace_back());
      }
    }
    if (!step.victims.empty()) {
      std::vector<BlockId> loaded;
      for (const Copy& load : step.loads) {
        for (const CopyPart& part : load.parts) loaded.push_back(part.block);
      }
      step.lost = lost_blocks(shown(), setup_.scheduler.kv_cache, loaded);
    }
    in_flight_.push_back(std::move(step));
  }

  /// Whether a transfer that is under way, or in a step in flight, has the number.
  bool is_taken(JobId job) const {
    const auto has_it = [&](const Copy& other) { return other.job == job; };
    return copies_.has(has_it) || std::ranges::any_of(in_flight_, [&](const PlannedStep& step) {
             return std::ranges::any_of(step.loads, has_it) ||
                    std::ranges::any_of(step.stores, has_it);
           });
  }

  /// Converts a planned transfer to a copy. With hold every worker has its own numbers.
  void plan(const std::string& member, const Transfer& transfer, bool is_store, Copy& copy) {
    if (!known_.contains(transfer.request)) {
      wrong_plan(member + ".request", "a request that was added", transfer.request);
    }
    if (fences_ && is_taken(transfer.job)) {
      wrong_plan(member + ".job", "a number that no transfer under way has",
                 std::to_string(transfer.job));
    }
    copy.serial = next_serial_++;
    copy.job = transfer.job;
    copy.request = transfer.request;
    copy.is_store = is_store;
    const std::size_t num_slots = plan_parts(member, transfer, copy);
    const std::set<SlotId> slots(transfer.slots.begin(), transfer.slots.end());
    const bool are_sound = num_slots == transfer.slots.size() && num_slots == slots.size() &&
                           (slots.empty() || *slots.rbegin() < setup_.spec.manager.cache.capacity);
    if (!are_sound) {
      wrong_plan(member + ".slots", "a slot of its own for each offloaded block", "other ones");
    }
  }

  /// The table whose blocks a transfer names; null: it was not shown.
  const BlocksByGroup* table_of(const std::string& member, const Copy& copy) const {
    if (copy.is_store) return &tables_.at(copy.request);
    if (!shown().tables.has_value()) return nullptr;
    const BlocksByGroup* const table = find_table(*shown().tables, copy.request);
    if (table) return table;
    wrong_plan(member + ".gpu_blocks", "blocks of the request", "a request without blocks");
  }

  /// Fills the parts. Returns: the number of slots that they have.
  std::size_t plan_parts(const std::string& member, const Transfer& transfer, Copy& copy) const {
    const std::vector<KVCacheSpec>& groups = setup_.scheduler.kv_cache.groups;
    const std::uint32_t factor = setup_.spec.block_size_factor;
    std::uint32_t sum = 0;
    for (std::uint32_t size : transfer.group_sizes) sum += size;
    // With hold a store starts with a whole slot and does not name its place.
    const bool knows_place = !copy.is_store || fences_;
    const bool has_groups = transfer.group_sizes.size() == groups.size() &&
                            transfer.block_indices.size() == (knows_place ? groups.size() : 0) &&
                            sum == transfer.gpu_blocks.size();
    if (!has_groups) wrong_plan(member + ".group_sizes", "blocks of every group", "other ones");

    const Prefixes& prefixes = sequences_.at(transfer.request);
    const BlocksByGroup* const table = table_of(member, copy);
    std::size_t at = 0;
    std::size_t num_slots = 0;
    for (GroupId group = 0; group < groups.size(); ++group) {
      std::uint32_t place = knows_place ? transfer.block_indices[group] : 0;
      std::uint32_t last_slot = UINT32_MAX;
      for (std::uint32_t index = 0; index < transfer.group_sizes[group]; ++index, ++at) {
        const BlockId block = transfer.gpu_blocks[at];
        // A block that left a window may be in the table again later: the last place counts.
        const auto has_block = [&] {
          if (!table) return true;
          const std::vector<BlockId>& blocks = (*table)[group];
          if (place >= blocks.size() || blocks[place] != block) return false;
          return std::find(blocks.begin() + place + 1, blocks.end(), block) == blocks.end();
        };
        // A store leaves out blocks that are in the CPU cache.
        const bool may_skip = copy.is_store && (index > 0 || !knows_place);
        while (may_skip && place < (*table)[group].size() && !has_block()) ++place;
        if (place / factor != last_slot) {
          last_slot = place / factor;
          ++num_slots;
        }
        const std::uint32_t size = groups[group].block_size;
        const std::uint32_t end = (place + 1) * size;
        if (block == kNullBlockId || !has_block() || num_slots > transfer.slots.size() ||
            end > prefixes.num_tokens()) {
          wrong_plan(member + ".gpu_blocks[" + std::to_string(at) + "]",
                     "the full block at place " + std::to_string(place) + " of group " +
                         std::to_string(group) + ", with a slot",
                     std::to_string(block));
        }
        copy.parts.push_back({block, transfer.slots[num_slots - 1], place % factor,
                              Content{prefixes.id(end), end - size, end, group}});
        ++place;
      }
    }
    return num_slots;
  }

  void take_in_update() {
    if (in_flight_.empty()) return;
    const auto wrong = [](std::string member, std::string expected, std::string actual) {
      broken("each_end_is_reported_once", std::move(member), std::move(expected),
             std::move(actual));
    };
    PlannedStep& step = in_flight_.front();
    for (const RequestOutput& output : *shown().outputs) {
      if (known_.count(output.request) > 0) append(output.request, output.tokens);
    }
    settle(step.runs, setup_.scheduler, sequences_, *shown().outputs);
    Report report;
    copies_.run(step, sequences_, report);
    in_flight_.pop_front();

    std::vector<std::string> received = *shown().finished_recving;
    std::ranges::sort(received);
    std::ranges::sort(report.received);
    if (received != report.received) {
      wrong("finished_recving", "the loads that are over on all ranks", "others");
    }
    for (const std::string& name : *shown().finished_sending) {
      const auto is_store_of = [&](const Copy& copy) {
        return copy.is_store && copy.request == name;
      };
      if (copies_.has(is_store_of)) wrong("finished_sending", "no store of it left", name);
    }
    const std::vector<BlockId>& invalid = *shown().invalid_blocks;
    if (std::set<BlockId>(invalid.begin(), invalid.end()) != report.invalid_blocks) {
      wrong("invalid_blocks", "the blocks of the loads that failed", "others");
    }
    std::vector<CompletedJob> completed;
    for (const auto& [job, each] : report.jobs) completed.push_back(each);
    if (*shown().completed_jobs != completed) {
      wrong("completed_jobs", "the jobs that ended on each rank", "other jobs, ranks or failures");
    }
  }

  // ---- Tiers ----

  void take_in_tier_calls() {
    is_anyone_put_off_ = false;
    for (const TierCallRecord& call : shown().tier_calls.or_empty()) {
      if (call.method == "lookup") is_anyone_put_off_ |= call.answer == "pending";
      if (call.method == "get_finished_jobs") end_tier_jobs(call);
      if (call.method == "submit_store" || call.method == "submit_load") begin_tier_job(call);
    }
  }

  /// Ignores reports of a tier about jobs that are not its own.
  void end_tier_jobs(const TierCallRecord& call) {
    const std::map<std::uint32_t, bool> ended =
        std::exchange(ended_tier_jobs_[call.tier], std::map<std::uint32_t, bool>());
    std::istringstream results(call.answer);
    std::uint32_t id = 0;
    std::string word;
    while (results >> id >> word) {
      const auto at = tier_jobs_.find(id);
      if (at == tier_jobs_.end() || at->second.tier != call.tier) continue;
      const bool is_done = word == "done";
      const auto end = ended.find(id);
      if (end == ended.end() || (is_done && !end->second)) {
        broken("a_promotion_comes_whole", "job " + std::to_string(id),
               end == ended.end() ? "under way" : "failed, since it was given up", word);
      }
      const TierJob& job = at->second;
      for (std::size_t index = 0; job.is_promotion && index < job.slots.size(); ++index) {
        const auto key = keys_.find(job.keys[index]);
        const bool is_known = is_done && key != keys_.end();
        copies_.fill_slot(job.slots[index], is_known ? key->second.parts : std::vector<Content>());
      }
      tier_jobs_.erase(at);
    }
  }

  void begin_tier_job(const TierCallRecord& call) {
    const bool is_promotion = call.method == "submit_load";
    const bool is_sound =
        call.job && tier_jobs_.count(*call.job) == 0 && call.keys.size() == call.slots.size() &&
        std::ranges::all_of(call.slots,
                            [&](SlotId slot) { return slot < setup_.spec.manager.cache.capacity; });
    if (!is_sound) {
      broken("a_promotion_comes_whole", call.method,
             "a number of its own and a slot for each block", "others");
    }
    for (std::size_t index = 0; index < call.slots.size(); ++index) {
      const SlotId slot = call.slots[index];
      if (!is_promotion) {
        check_slot(call.keys[index], slot);
        continue;
      }
      bool is_in_use = false;
      const auto look_at = [&](const Copy& copy) { is_in_use |= has_slot(copy, slot); };
      copies_.for_each_under_way(look_at);
      for (const PlannedStep& step : in_flight_) {
        std::ranges::for_each(step.loads, look_at);
        std::ranges::for_each(step.stores, look_at);
      }
      if (is_in_use) {
        broken("a_slot_has_one_writer", slot_name(slot), "no copy under way",
               "one, under a promotion");
      }
      copies_.fill_slot(slot, {});
    }
    tier_jobs_.emplace(*call.job, TierJob{call.tier, is_promotion, call.keys, call.slots});
  }

  // ---- The state ----

  void check_state() const {
    check_transfers();
    check_copied_blocks();
    check_tier_jobs();
    check_numbers();
    check_slots();
  }

  void check_transfers() const {
    std::size_t num_copies = 0;
    for (const Copies::Rank& rank : copies_.ranks()) num_copies += rank.copies.size();
    for (const EngineTransfer& transfer : *shown().transfers) {
      const std::vector<Copy>& copies = copies_.ranks()[transfer.rank].copies;
      const bool is_there = std::ranges::any_of(copies, [&](const Copy& copy) {
        return copy.job == transfer.job && copy.request == transfer.request &&
               copy.is_store == transfer.store && copy.progress == transfer.progress;
      });
      if (is_there) continue;
      broken("each_end_is_reported_once", "transfers",
             "transfers that were planned and not reported",
             "job " + std::to_string(transfer.job) + " of " + transfer.request);
    }
    if (shown().transfers->size() == num_copies) return;
    broken("each_end_is_reported_once", "transfers", std::to_string(num_copies),
           std::to_string(shown().transfers->size()));
  }

  /// Whether a step in flight, from first_step on, makes the workers wait for a request's stores.
  bool is_flushed(const std::string& request, std::size_t first_step) const {
    for (std::size_t step = first_step; step < in_flight_.size(); ++step) {
      if (contains(in_flight_[step].requests_to_flush, request)) return true;
    }
    return false;
  }

  /// Only its request has a load's blocks until the load has ended on all ranks. With hold a
  /// request keeps a store's blocks until the workers have to wait for it.
  void check_copied_blocks() const {
    const auto check = [&](const Copy& copy) {
      if (copy.is_store && (fences_ || is_flushed(copy.request, 0))) return;
      const BlocksByGroup* table = find_table(*shown().tables, copy.request);
      for (const CopyPart& part : copy.parts) {
        const std::uint32_t ref_cnt = (*shown().ref_cnts)[part.block];
        const bool is_held = table && contains((*table)[part.content->group], part.block) &&
                             (copy.is_store || ref_cnt == 1);
        if (is_held) continue;
        broken("no_reuse_under_a_copy", "tables[" + copy.request + "]",
               "block " + std::to_string(part.block) + ", which a " +
                   (copy.is_store ? "store reads" : "load writes"),
               ref_cnt == 0 ? "a free block" : "a block of another request too");
      }
    };
    copies_.for_each_under_way(check);
    for (const PlannedStep& step : in_flight_) std::ranges::for_each(step.loads, check);
  }

  /// A block coming up has a slot and is not ready; one going down stays and has a reader.
  void check_tier_jobs() const {
    for (const auto& [id, job] : tier_jobs_) {
      for (std::size_t index = 0; index < job.keys.size(); ++index) {
        const OffloadedBlock* block = find_block(shown(), job.keys[index]);
        const bool is_right =
            block && block->slot == job.slots[index] &&
            (job.is_promotion ? !block->ready : block->ready && block->readers > 0);
        if (is_right) continue;
        broken("a_promotion_comes_whole", slot_name(job.slots[index]),
               (job.is_promotion ? "reserved for job " : "held for job ") + std::to_string(id),
               "free, of another block, or already ready");
      }
    }
  }

  void check_numbers() const {
    std::set<SlotId> slots;
    std::set<std::string> keys;
    for (const OffloadedBlock* block : shown().blocks()) {
      if (slots.insert(block->slot).second && keys.insert(block->key).second) continue;
      broken("slots_add_up", slot_name(block->slot), "a slot and a key of its own", "others");
    }
    const std::uint32_t capacity = setup_.spec.manager.cache.capacity;
    if (slots.size() + *shown().num_free_slots == capacity) return;
    broken("slots_add_up", "num_free_slots", std::to_string(capacity - slots.size()),
           std::to_string(*shown().num_free_slots));
  }

  void check_slots() const {
    if (has_elements(shown().damaged)) {
      const OffloadedBlock* block = find_block(shown(), shown().damaged->front());
      broken("a_ready_slot_holds_its_key", slot_name(block ? block->slot : 0),
             "the bytes that were stored", "other bytes, in a block that can be found");
    }
    // With hold a flushed store counts as written at once: the step that flushes it runs before any
    // possible reader.
    std::set<SlotId> flushed;
    const auto add_flushed = [&](const Copy& copy, std::size_t first_step) {
      if (fences_ || !copy.is_store || !is_flushed(copy.request, first_step)) return;
      for (const CopyPart& part : copy.parts) flushed.insert(part.place);
    };
    copies_.for_each_under_way([&](const Copy& copy) { add_flushed(copy, 0); });
    for (std::size_t step = 0; step < in_flight_.size(); ++step) {
      for (const Copy& copy : in_flight_[step].stores) add_flushed(copy, step + 1);
    }
    for (const OffloadedBlock* block : shown().blocks()) {
      if (!block->ready || flushed.contains(block->slot)) continue;
      check_slot(block->key, block->slot);
    }
  }

  /// Whether a slot holds the content that its key names.
  void check_slot(const std::string& key, SlotId slot) const {
    const auto at = keys_.find(key);
    if (at == keys_.end() || slot >= setup_.spec.manager.cache.capacity) {
      broken("a_ready_slot_holds_its_key", slot_name(slot), "a key of some request", "another one");
    }
    const std::vector<Content>& parts = at->second.parts;
    const bool is_mamba =
        setup_.scheduler.kv_cache.groups[at->second.group].kind == KVCacheSpecKind::kMamba;
    for (std::size_t rank = 0; rank < copies_.ranks().size(); ++rank) {
      for (std::uint32_t sub = 0; sub < parts.size(); ++sub) {
        const Content& content = copies_.place(rank, slot, sub);
        // A block of Mamba states needs only the last state.
        const bool may_lack = is_mamba && sub + 1 < parts.size() && content.id == 0;
        if (passes_for(content, parts[sub]) || may_lack) continue;
        broken("a_ready_slot_holds_its_key", slot_name(slot) + " on rank " + std::to_string(rank),
               to_text(parts[sub]), to_text(content));
      }
    }
  }

  // ---- Progress ----

  void check_end(const Command& command) {
    const bool is_quiet =
        !copies_.has([](const Copy&) { return true; }) && in_flight_.empty() && tier_jobs_.empty();
    if (std::holds_alternative<Update>(command)) {
      const bool ends_requests = std::ranges::any_of(
          *shown().outputs, [](const RequestOutput& output) { return is_finished(output.status); });
      num_quiet_updates_ = is_quiet && !ends_requests ? num_quiet_updates_ + 1 : 0;
    } else if (std::holds_alternative<FinishRequests>(command) ||
               std::holds_alternative<FinishAllRequests>(command)) {
      num_quiet_updates_ = 0;
    }
    const bool plans_copies = std::holds_alternative<Schedule>(command) &&
                              (!shown().loads->empty() || !shown().stores->empty());
    if (plans_copies || shown().never_fits.has_value()) num_quiet_updates_ = 0;
    if (!has_state(shown())) return;
    if (std::holds_alternative<Schedule>(command)) check_progress(plans_copies);
    if (!is_quiet || num_quiet_updates_ < kQuietStepsMax) return;
    const auto left = [](std::string where, std::string actual) {
      broken("all_comes_to_an_end", std::move(where), "nothing held, since nothing is under way",
             std::move(actual));
    };
    for (const RequestState& state : *shown().requests) {
      if (is_finished(state.status)) left("requests", state.id);
    }
    // With hold a store is completed when its request ends.
    const bool may_write = !fences_ && !shown().requests->empty();
    for (const OffloadedBlock* block : shown().blocks()) {
      if ((block->ready || may_write) && block->readers == 0) continue;
      left(slot_name(block->slot), block->ready ? "readers" : "a writer");
    }
  }

  /// After a step was planned.
  void check_progress(bool plans_copies) {
    const bool goes_on = plans_copies || !shown().scheduled->empty() ||
                         shown().never_fits.has_value() || !shown().preempted->empty();
    const bool is_idle = shown().num_running == 0 && pause_state_ == PauseState::kUnpaused &&
                         in_flight_.size() == 1 && tier_jobs_.empty() &&
                         !copies_.has([](const Copy&) { return true; });
    const auto num_for_grammar = std::ranges::count(
        *shown().requests, RequestStatus::kWaitingForGrammar, &RequestState::status);
    const bool waits = shown().num_waiting + shown().num_skipped_waiting >
                       static_cast<std::size_t>(num_for_grammar);
    const bool is_stuck = is_idle && waits && !goes_on && !kPutOffForEver(is_anyone_put_off_);
    const bool were_held = std::exchange(are_held_, shown().num_referenced_blocks > 1);
    num_idle_steps_ = is_stuck && were_held == are_held_ ? num_idle_steps_ + 1 : 0;
    if (num_idle_steps_ < kQuietStepsMax || kHeldByALoaded(are_held_)) return;
    broken("all_comes_to_an_end", "scheduled", "a request, since nothing is under way", "none");
  }

  ConnectorSetup setup_;
  bool fences_ = false;
  bool has_files_ = false;  ///< some tier has files
  Copies copies_;
  std::map<std::string, Request> known_;  ///< also requests that are gone: steps may still run them
  WorkerTables tables_;
  Sequences sequences_;
  std::map<std::string, Key> keys_;
  std::deque<PlannedStep> in_flight_;
  std::uint64_t next_serial_ = 0;
  std::map<std::uint32_t, TierJob> tier_jobs_;
  /// By tier: the success of jobs that ended since its last report. The first report counts.
  std::map<std::uint32_t, std::map<std::uint32_t, bool>> ended_tier_jobs_;
  bool is_anyone_put_off_ = false;       ///< by a tier in the last command
  bool are_held_ = false;                ///< requests held blocks in the last step
  std::uint32_t num_idle_steps_ = 0;     ///< in a row: a request waits, nothing happens
  std::uint32_t num_quiet_updates_ = 0;  ///< in a row: nothing is under way afterwards
  PauseState pause_state_ = PauseState::kUnpaused;
};

}  // namespace

RuleSuite<EngineTarget> rules() { return rule_suite<Invariants>(kInvariants); }

}  // namespace kvfence::engine::offloading
