/// The rules for one scheduler with its simple CPU offload connector, workers and copies. They hold
/// for any implementation and release. The core rules, for every assembly, are in
/// properties/engine/rules.cpp.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/core/lists.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "contract/pool/request.h"
#include "properties/core/broken_rule.h"
#include "properties/core/divergence.h"
#include "properties/core/invariant_values.h"
#include "properties/core/named_place.h"
#include "properties/engine/rank_memory.h"
#include "properties/engine/shown_requests.h"
#include "properties/kv_cache/kv_content.h"

namespace kvfence::engine::simple {
namespace {

/// Every invariant, for the command line and the documentation.
constexpr Invariant kInvariants[] = {
    {"simple.1", "gpu_holds_are_explained",
     "a GPU block's ref_cnt is the number of its places in tables, in stores that are not "
     "completed and in loads that are not over"},
    {"simple.2", "cpu_holds_are_explained",
     "a CPU block's ref_cnt is the number of its places in stores that are not completed, in loads "
     "that are not over and in pins, and every pin has an existing request"},
    {"simple.3", "cpu_numbers_add_up",
     "empty, cached and referenced CPU blocks are those of the pool, and its free queue holds the "
     "unreferenced ones, once each"},
    {"simple.4", "a_block_being_written_has_no_key",
     "a CPU block of a store that is not completed has no key"},
    {"simple.5", "what_is_held_keeps_its_key",
     "a CPU block that is pinned or loaded has a key, and keeps it"},
    {"simple.6", "a_cpu_block_holds_its_key",
     "a CPU block with a key holds on each rank the KV of the tokens that the key names"},
    {"simple.7", "copies_carry_what_they_name",
     "a store copies blocks with keys, a load copies blocks to places of its requests that have "
     "the same keys, and on each rank the source holds the KV of the tokens that its key names"},
    {"simple.8", "a_step_reads_its_own",
     "on each rank every token that a step attends to is that of its request, computed, loaded or "
     "shared by a common prefix"},
    {"simple.9", "no_reuse_under_a_copy",
     "nothing else writes a block that a copy under way reads or writes"},
    {"simple.10", "workers_do_what_was_planned",
     "ranks copy what steps plan; a step that flushes leaves no copy of an earlier one under way; "
     "a rank reports a copy once, and not before it has ended"},
    {"simple.11", "a_reset_leaves_nothing",
     "after a successful reset of the connector's cache no CPU block has a key"},
    {"simple.12", "all_comes_to_an_end",
     "a request that waits for a load has one, and a copy that has ended on all ranks is reported"},
};

using Rule = NamedPlace<kInvariants>;
constexpr BrokenRuleOf<kInvariants> broken;

using kvfence::detail::element;
using kvfence::detail::find_table;

/// After so many updates with nothing under way all ends are reported.
constexpr std::uint32_t kQuietUpdatesMax = 3;

/// A step's planned copies in one direction.
struct Event : PlannedCopy {
  Event(JobId number, bool of_store) {
    serial = 2 * std::uint64_t{number} + (of_store ? 1 : 0);
    job = number;
    is_store = of_store;
  }
  std::set<std::string> requests;  ///< of a load: requests, until they are reported
  std::uint32_t num_reports = 0;   ///< of a store: ranks that reported it

  std::pair<bool, JobId> id() const { return {is_store, job}; }
};

/// A planned step as the workers get it.
struct PlannedStep : StepOnBlocks {
  std::vector<Event> events;
  bool need_flush = false;
};

/// Copyable.
class Copies : public RankMemory {
 public:
  explicit Copies(const SimpleCPUOffloadSpec& spec)
      : RankMemory(kWords, spec.kv_cache, spec.num_workers, spec.num_cpu_blocks, 1) {}

  /// Runs the oldest step on all ranks.
  void run(const PlannedStep& step, const Sequences& sequences) {
    for (std::size_t index = 0; index < ranks_.size(); ++index) {
      Rank& rank = ranks_[index];
      while (step.need_flush && !rank.copies.empty()) end_copy(rank, rank.copies.begin());
      zero(index, step, sequences);
      compute(index, step, sequences);
      for (const Event& event : step.events) submit(index, event);
    }
  }

  /// Ends the oldest copy of that direction on the rank. False: there is none.
  bool end_oldest(std::uint32_t rank, bool is_store) {
    if (rank >= ranks_.size()) return false;
    std::vector<PlannedCopy>& copies = ranks_[rank].copies;
    const auto oldest = std::ranges::find(copies, is_store, &PlannedCopy::is_store);
    if (oldest == copies.end()) return false;
    end_copy(ranks_[rank], oldest);
    return true;
  }

  std::uint32_t num_ranks_ended(const Event& event) const {
    const auto found = num_ranks_ended_.find(event.serial);
    return found == num_ranks_ended_.end() ? 0 : found->second;
  }

  bool is_idle() const {
    return std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.copies.empty(); });
  }

 private:
  static constexpr Words kWords = {
      .block = "GPU block",
      .place = "CPU block",
      .no_reuse_under_a_copy = broken.row("no_reuse_under_a_copy"),
      .a_place_has_one_writer = broken.row("no_reuse_under_a_copy"),
      .a_load_reads_what_is_complete = broken.row("no_reuse_under_a_copy"),
      .copies_are_as_planned = broken.row("copies_carry_what_they_name"),
      .a_step_reads_its_own = broken.row("a_step_reads_its_own"),
      .shares_places = true};

  void end_copy(Rank& rank, std::vector<PlannedCopy>::iterator copy) {
    end(rank, *copy, /*success=*/true);
    ++num_ranks_ended_[copy->serial];
    rank.copies.erase(copy);
  }

  std::map<std::uint64_t, std::uint32_t> num_ranks_ended_;  ///< by serial number
};

/// The model follows commands and answers. Rules that need the state are checked on each
/// observation that has it; simple.5 compares it with the previous observation.
class Invariants final : public Rules {
 public:
  explicit Invariants(const EngineSetup& setup) : setup_(setup), copies_(*setup.simple) {}

  void check_all(const Command& command) override {
    if (shown().error == ErrorCode::kNone) take_in(command);
    if (has_state(shown())) check_state();
  }

 private:
  const SimpleCPUOffloadSpec& spec() const { return *setup_.simple; }
  const std::vector<KVCacheSpec>& groups() const { return spec().kv_cache.groups; }

  // ---- The model ----

  /// Empty if the block is not full.
  std::string key(const Request& request, GroupId group, std::size_t place) const {
    const BlockHashListView hashes = request.block_hashes(groups()[group].block_size);
    if (place >= hashes.size()) return {};
    return make_block_hash_with_group_id(hashes[place], group);
  }

  /// Adds tokens to a request, and the keys of the blocks that they complete.
  void append(const std::string& name, const std::vector<TokenId>& tokens) {
    Request& request = requests_.at(name);
    Prefixes& prefixes = sequences_.at(name);
    const std::uint32_t num_before = prefixes.num_tokens();
    request.append_output_token_ids(tokens);
    for (TokenId token : tokens) prefixes.append(token);
    for (GroupId group = 0; group < groups().size(); ++group) {
      const std::uint32_t size = groups()[group].block_size;
      for (std::uint32_t begin = num_before / size * size; begin + size <= prefixes.num_tokens();
           begin += size) {
        const std::uint32_t end = begin + size;
        contents_.insert_or_assign(key(request, group, begin / size),
                                   Content{prefixes.id(end), begin, end, group});
      }
    }
  }

  void take_in(const Command& command) {
    if (const auto* added = std::get_if<AddRequest>(&command)) {
      RequestSpec no_tokens{{}, std::nullopt, added->cache_salt, {}};
      if (added->lora_name) no_tokens.lora = LoraRequest{*added->lora_name, added->lora_id};
      requests_.insert_or_assign(added->id, Request(no_tokens, spec().kv_cache.pool.hash));
      sequences_.insert_or_assign(added->id, Prefixes(no_tokens));
      append(added->id, added->tokens);
    } else if (std::holds_alternative<Schedule>(command)) {
      take_in_step();
    } else if (std::holds_alternative<Update>(command)) {
      take_in_update();
    } else if (const auto* advance = std::get_if<AdvanceCopy>(&command)) {
      if (advance->progress == TransferProgress::kFinished &&
          !copies_.end_oldest(advance->rank, advance->store)) {
        broken("workers_do_what_was_planned", "copies", "none of that direction",
               "one that was not planned");
      }
    } else if (const auto* reset = std::get_if<ResetPrefixCache>(&command)) {
      const bool claims = reset->reset_connector && *shown().success;
      if (!claims || !shown().cpu.keys.has_value()) return;
      const KeyList& keys = *shown().cpu.keys;
      if (std::ranges::any_of(keys, [](const auto& each) { return !each.empty(); })) {
        broken("a_reset_leaves_nothing", "cpu_keys", "none", "some");
      }
    }
  }

  void take_in_step() {
    PlannedStep& step = in_flight_.emplace_back();
    engine::take_in_step(shown(), setup_.scheduler(), tables_, step);
    std::erase_if(step.runs, [&](const Run& run) { return !requests_.contains(run.request); });
    step.need_flush = *shown().need_flush;
    // A preempted request may have got them in this step.
    if (!step.victims.empty()) {
      step.lost = blocks_of_nobody(shown(), spec().kv_cache.pool.num_gpu_blocks);
    }
    for (const ScheduledRequest& each : *shown().scheduled) have_loads_.erase(each.request);
    plan_load(step);
    plan_store(step);
  }

  void take_in_update() {
    if (in_flight_.empty()) return;
    PlannedStep step = std::move(in_flight_.front());
    in_flight_.pop_front();
    for (const RequestOutput& output : *shown().outputs) {
      if (requests_.contains(output.request)) append(output.request, output.tokens);
    }
    settle(step.runs, setup_.scheduler(), sequences_, *shown().outputs);
    copies_.run(step, sequences_);
    if (step.need_flush) {
      for (const Copy& copy : shown().copies.or_empty()) {
        const bool is_own = std::ranges::any_of(step.events, [&](const Event& event) {
          return event.id() == std::pair(copy.store, copy.event);
        });
        if (is_own) continue;
        broken("workers_do_what_was_planned", "copies", "those of the step that flushes",
               "event " + std::to_string(copy.event));
      }
    }
    take_in_report();
    const bool is_quiet = copies_.is_idle() && in_flight_.empty();
    num_quiet_updates_ = is_quiet ? num_quiet_updates_ + 1 : 0;
    if (num_quiet_updates_ < kQuietUpdatesMax || events_.empty()) return;
    broken("all_comes_to_an_end", "completed_jobs", "copies that have ended",
           "nothing of event " + std::to_string(events_.begin()->second.job));
  }

  void take_in_report() {
    for (const std::string& name : *shown().finished_recving) {
      const auto load = std::ranges::find_if(
          events_, [&](const auto& each) { return each.second.requests.contains(name); });
      if (load == events_.end() || copies_.num_ranks_ended(load->second) < copies_.ranks().size()) {
        broken("workers_do_what_was_planned", "finished_recving",
               "a load that has ended on all ranks", name);
      }
      load->second.requests.erase(name);
      if (load->second.requests.empty()) events_.erase(load);
    }
    for (const CompletedJob& each : *shown().completed_jobs) {
      const auto store = events_.find({true, each.job});
      if (store == events_.end() ||
          store->second.num_reports + each.num_workers > copies_.num_ranks_ended(store->second)) {
        broken("workers_do_what_was_planned", "completed_jobs",
               "a store by the ranks on which it has ended",
               std::to_string(each.job) + " by " + std::to_string(each.num_workers));
      }
      store->second.num_reports += each.num_workers;
      if (store->second.num_reports == copies_.ranks().size()) events_.erase(store);
    }
  }

  // ---- What a step plans ----

  std::optional<Content> content_of(const std::string& key) const {
    const auto found = contents_.find(key);
    return found == contents_.end() ? std::nullopt : std::optional(found->second);
  }

  void plan_parts(const std::vector<BlockId>& gpu_blocks, const std::vector<BlockId>& cpu_blocks,
                  Event& event) const {
    bool are_blocks = gpu_blocks.size() == cpu_blocks.size();
    for (std::size_t at = 0; at < gpu_blocks.size() && are_blocks; ++at) {
      are_blocks = gpu_blocks[at] != kNullBlockId && cpu_blocks[at] != kNullBlockId &&
                   gpu_blocks[at] < spec().kv_cache.pool.num_gpu_blocks &&
                   cpu_blocks[at] < spec().num_cpu_blocks;
      event.parts.push_back({gpu_blocks[at], cpu_blocks[at], 0, std::nullopt});
    }
    if (are_blocks) return;
    broken("copies_carry_what_they_name", event.is_store ? "store_cpu_blocks" : "load_cpu_blocks",
           "pairs of blocks of both pools", "others");
  }

  void plan_load(PlannedStep& step) {
    if (!shown().load_event.has_value()) return;
    Event load(*shown().load_event, /*is_store=*/false);
    load.requests.insert(shown().load_requests->begin(), shown().load_requests->end());
    have_loads_.insert(load.requests.begin(), load.requests.end());
    plan_parts(*shown().load_gpu_blocks, *shown().load_cpu_blocks, load);
    for (std::size_t at = 0; at < load.parts.size() && has_state(shown()); ++at) {
      CopyPart& part = load.parts[at];
      part.content = content_of((*shown().cpu.keys)[part.place]);
      if (is_loaded_to_its_place(part, load)) continue;
      broken("copies_carry_what_they_name", element("load_gpu_blocks", at),
             "a place with the key of the loaded block", std::to_string(part.block));
    }
    events_.insert_or_assign(load.id(), load);
    step.events.push_back(std::move(load));
  }

  bool is_loaded_to_its_place(const CopyPart& part, const Event& load) const {
    const std::string& carried = (*shown().cpu.keys)[part.place];
    return std::ranges::any_of(load.requests, [&](const std::string& name) {
      const BlocksByGroup* table = find_table(*shown().tables, name);
      const auto request = requests_.find(name);
      if (!table || request == requests_.end()) return false;
      for (GroupId group = 0; group < table->size(); ++group) {
        for (std::size_t place = 0; place < (*table)[group].size(); ++place) {
          if ((*table)[group][place] != part.block || carried.empty()) continue;
          if (key(request->second, group, place) == carried) return true;
        }
      }
      return false;
    });
  }

  void plan_store(PlannedStep& step) {
    if (!shown().store_event.has_value()) return;
    Event store(*shown().store_event, /*is_store=*/true);
    plan_parts(*shown().store_gpu_blocks, *shown().store_cpu_blocks, store);
    for (std::size_t at = 0; at < store.parts.size() && has_state(shown()); ++at) {
      CopyPart& part = store.parts[at];
      part.content = content_of((*shown().keys)[part.block]);
      if (part.content) continue;
      broken("copies_carry_what_they_name", element("store_gpu_blocks", at),
             "a block with the key of some request", std::to_string(part.block));
    }
    events_.insert_or_assign(store.id(), store);
    step.events.push_back(std::move(store));
  }

  // ---- The state ----

  void check_state() const {
    check_holds();
    check_cpu_numbers();
    check_keys();
    check_contents();
    check_requests();
  }

  void check_holds() const {
    std::vector<std::uint32_t> gpu(shown().ref_cnts->size(), 0);
    std::vector<std::uint32_t> cpu(shown().cpu.ref_cnts->size(), 0);
    const auto add = [](const std::vector<BlockId>& blocks, std::vector<std::uint32_t>& counts) {
      for (BlockId block : blocks) {
        if (block != kNullBlockId && block < counts.size()) ++counts[block];
      }
    };
    for (const kv_cache::RequestBlocks& table : *shown().tables) {
      for (const std::vector<BlockId>& blocks : table.blocks) add(blocks, gpu);
    }
    for (const auto& [id, event] : events_) {
      for (const CopyPart& part : event.parts) {
        ++gpu[part.block];
        ++cpu[part.place];
      }
    }
    for (const Pin& pin : *shown().pins) {
      add(pin.cpu_blocks, cpu);
      const bool is_there =
          contains(*shown().requests, pin.request, &RequestState::id) &&
          std::ranges::all_of(pin.cpu_blocks, [&](BlockId block) { return block < cpu.size(); });
      if (is_there) continue;
      broken("cpu_holds_are_explained", "pins", "blocks for known requests", pin.request);
    }
    broken.unless_equal("gpu_holds_are_explained", "ref_cnts", gpu, *shown().ref_cnts);
    broken.unless_equal("cpu_holds_are_explained", "cpu_ref_cnts", cpu, *shown().cpu.ref_cnts);
  }

  void check_cpu_numbers() const {
    const std::vector<std::uint32_t>& ref_cnts = *shown().cpu.ref_cnts;
    std::vector<BlockId> unreferenced;
    std::uint32_t num_empty = 0;
    for (BlockId block = 1; block < ref_cnts.size(); ++block) {
      if (ref_cnts[block] > 0) continue;
      unreferenced.push_back(block);
      num_empty += (*shown().cpu.keys)[block].empty();
    }
    std::vector<BlockId> queued = *shown().cpu.free_queue;
    std::ranges::sort(queued);
    broken.unless_equal("cpu_numbers_add_up", "cpu_free_queue", unreferenced, queued);
    const auto num_free = static_cast<std::uint32_t>(unreferenced.size());
    const std::vector<std::uint32_t> expected = {num_empty, num_free - num_empty,
                                                 spec().num_cpu_blocks - num_free};
    const std::vector<std::uint32_t> actual = {*shown().num_empty_cpu_blocks,
                                               *shown().num_cached_cpu_blocks,
                                               *shown().num_referenced_cpu_blocks};
    broken.unless_equal("cpu_numbers_add_up", "num_empty_cpu_blocks, cached, referenced", expected,
                        actual);
  }

  /// Checks the keys of blocks that are written, and of blocks that are read or will be.
  void check_keys() const {
    const KeyList& keys = *shown().cpu.keys;
    const auto check_held = [&](BlockId block) {
      const bool is_kept = !before() || !before()->cpu.keys.has_value() ||
                           (*before()->cpu.keys)[block] == keys[block];
      if (!keys[block].empty() && is_kept) return;
      broken("what_is_held_keeps_its_key", element("cpu_keys", block),
             "its previous key, since it is held", "none or another one");
    };
    for (const auto& [id, event] : events_) {
      for (const CopyPart& part : event.parts) {
        if (!event.is_store) {
          check_held(part.place);
        } else if (!keys[part.place].empty()) {
          broken("a_block_being_written_has_no_key", element("cpu_keys", part.place), "none",
                 "a key");
        }
      }
    }
    for (const Pin& pin : *shown().pins) {
      for (BlockId block : pin.cpu_blocks) check_held(block);
    }
  }

  void check_contents() const {
    for (BlockId block = 0; block < shown().cpu.keys->size(); ++block) {
      const std::string& key = (*shown().cpu.keys)[block];
      if (key.empty()) continue;
      const std::optional<Content> wanted = content_of(key);
      for (std::size_t rank = 0; rank < copies_.ranks().size(); ++rank) {
        const Content& content = copies_.place(rank, block, 0);
        if (wanted && passes_for(content, *wanted)) continue;
        broken("a_cpu_block_holds_its_key",
               element("cpu_keys", block) + " on rank " + std::to_string(rank),
               wanted ? to_text(*wanted) : "a key of some request", to_text(content));
      }
    }
  }

  void check_requests() const {
    for (const RequestState& state : *shown().requests) {
      if (state.status == RequestStatus::kWaitingForRemoteKVs && !have_loads_.contains(state.id)) {
        broken("all_comes_to_an_end", "load_requests", "a load for " + state.id, "none");
      }
    }
  }

  EngineSetup setup_;
  Copies copies_;
  // For all added requests, also those that are gone: steps in flight may still run them.
  std::map<std::string, Request> requests_;
  Sequences sequences_;
  WorkerTables tables_;
  std::map<std::string, Content> contents_;  ///< by key
  std::deque<PlannedStep> in_flight_;
  std::map<std::pair<bool, JobId>, Event> events_;  ///< by id, until completed or ended
  std::set<std::string> have_loads_;                ///< requests that did not run since their load
  std::uint32_t num_quiet_updates_ = 0;             ///< in a row: no copy and no step is under way
};

}  // namespace

RuleSuite<EngineTarget> rules() { return rule_suite<Invariants>(kInvariants); }

}  // namespace kvfence::engine::simple
