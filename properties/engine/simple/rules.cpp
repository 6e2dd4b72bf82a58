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
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "contract/connectors/simple/simple_cpu_offload.h"
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

  /// Runs the oldest step on all ranks. Returns: the first broken rule, if any.
  std::optional<Broken> run(const PlannedStep& step, const Sequences& sequences) {
    for (std::size_t index = 0; index < ranks_.size(); ++index) {
      Rank& rank = ranks_[index];
      while (step.need_flush && !rank.copies.empty()) end_copy(rank, rank.copies.begin());
      if (auto wrong = zero(index, step, sequences)) return wrong;
      if (auto wrong = compute(index, step, sequences)) return wrong;
      for (const Event& event : step.events) {
        if (auto wrong = submit(index, event)) return wrong;
      }
    }
    return std::nullopt;
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
      .no_reuse_under_a_copy = Rule("no_reuse_under_a_copy").place(),
      .a_place_has_one_writer = Rule("no_reuse_under_a_copy").place(),
      .a_load_reads_what_is_complete = Rule("no_reuse_under_a_copy").place(),
      .copies_are_as_planned = Rule("copies_carry_what_they_name").place(),
      .a_step_reads_its_own = Rule("a_step_reads_its_own").place(),
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

  std::optional<Divergence> check(const Command& command, const Observation* before,
                                  const Observation& observation, const World& /*world*/) override {
    before_ = before;
    Found found;
    if (observation.error == ErrorCode::kNone) found = take_in(command, observation);
    if (!found && has_state(observation)) found = check_state(observation);
    return found;
  }

 private:
  using Found = std::optional<Divergence>;

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

  Found take_in(const Command& command, const Observation& observation) {
    if (const auto* added = std::get_if<AddRequest>(&command)) {
      RequestSpec no_tokens{{}, std::nullopt, added->cache_salt, {}};
      if (added->lora_name) no_tokens.lora = LoraRequest{*added->lora_name, added->lora_id};
      requests_.insert_or_assign(added->id, Request(no_tokens, spec().kv_cache.pool.hash));
      sequences_.insert_or_assign(added->id, Prefixes(no_tokens));
      append(added->id, added->tokens);
    } else if (std::holds_alternative<Schedule>(command)) {
      return take_in_step(observation);
    } else if (std::holds_alternative<Update>(command)) {
      return take_in_update(observation);
    } else if (const auto* advance = std::get_if<AdvanceCopy>(&command)) {
      if (advance->progress == TransferProgress::kFinished &&
          !copies_.end_oldest(advance->rank, advance->store)) {
        return broken("workers_do_what_was_planned", "copies", "none of that direction",
                      "one that was not planned");
      }
    } else if (const auto* reset = std::get_if<ResetPrefixCache>(&command)) {
      const bool claims = reset->reset_connector && *observation.success;
      if (!claims || !observation.cpu.keys.has_value()) return std::nullopt;
      const KeyList& keys = *observation.cpu.keys;
      if (std::ranges::any_of(keys, [](const auto& each) { return !each.empty(); })) {
        return broken("a_reset_leaves_nothing", "cpu_keys", "none", "some");
      }
    }
    return std::nullopt;
  }

  Found take_in_step(const Observation& observation) {
    PlannedStep& step = in_flight_.emplace_back();
    engine::take_in_step(observation, setup_.scheduler(), tables_, step);
    std::erase_if(step.runs, [&](const Run& run) { return !requests_.contains(run.request); });
    step.need_flush = *observation.need_flush;
    // A preempted request may have got them in this step.
    if (!step.victims.empty()) {
      step.lost = blocks_of_nobody(observation, spec().kv_cache.pool.num_gpu_blocks);
    }
    for (const ScheduledRequest& each : *observation.scheduled) have_loads_.erase(each.request);
    if (auto found = plan_load(observation, step)) return found;
    return plan_store(observation, step);
  }

  Found take_in_update(const Observation& observation) {
    if (in_flight_.empty()) return std::nullopt;
    PlannedStep step = std::move(in_flight_.front());
    in_flight_.pop_front();
    for (const RequestOutput& output : *observation.outputs) {
      if (requests_.contains(output.request)) append(output.request, output.tokens);
    }
    if (setup_.scheduler().num_speculative_tokens > 0) {
      settle(step.runs, sequences_, *observation.outputs);
    }
    if (const auto wrong = copies_.run(step, sequences_)) {
      return broken_rule(kInvariants[wrong->rule], wrong->where, wrong->expected, wrong->actual);
    }
    if (step.need_flush) {
      for (const Copy& copy : observation.copies.or_empty()) {
        const bool is_own = std::ranges::any_of(step.events, [&](const Event& event) {
          return event.id() == std::pair(copy.store, copy.event);
        });
        if (is_own) continue;
        return broken("workers_do_what_was_planned", "copies", "those of the step that flushes",
                      "event " + std::to_string(copy.event));
      }
    }
    if (auto found = take_in_report(observation)) return found;
    const bool is_quiet = copies_.is_idle() && in_flight_.empty();
    num_quiet_updates_ = is_quiet ? num_quiet_updates_ + 1 : 0;
    if (num_quiet_updates_ < kQuietUpdatesMax || events_.empty()) return std::nullopt;
    return broken("all_comes_to_an_end", "completed_jobs", "copies that have ended",
                  "nothing of event " + std::to_string(events_.begin()->second.job));
  }

  Found take_in_report(const Observation& observation) {
    for (const std::string& name : *observation.finished_recving) {
      const auto load = std::ranges::find_if(
          events_, [&](const auto& each) { return each.second.requests.contains(name); });
      if (load == events_.end() || copies_.num_ranks_ended(load->second) < copies_.ranks().size()) {
        return broken("workers_do_what_was_planned", "finished_recving",
                      "a load that has ended on all ranks", name);
      }
      load->second.requests.erase(name);
      if (load->second.requests.empty()) events_.erase(load);
    }
    for (const CompletedJob& each : *observation.completed_jobs) {
      const auto store = events_.find({true, each.job});
      if (store == events_.end() ||
          store->second.num_reports + each.num_workers > copies_.num_ranks_ended(store->second)) {
        return broken("workers_do_what_was_planned", "completed_jobs",
                      "a store by the ranks on which it has ended",
                      std::to_string(each.job) + " by " + std::to_string(each.num_workers));
      }
      store->second.num_reports += each.num_workers;
      if (store->second.num_reports == copies_.ranks().size()) events_.erase(store);
    }
    return std::nullopt;
  }

  // ---- What a step plans ----

  std::optional<Content> content_of(const std::string& key) const {
    const auto found = contents_.find(key);
    return found == contents_.end() ? std::nullopt : std::optional(found->second);
  }

  Found plan_parts(const std::vector<BlockId>& gpu_blocks, const std::vector<BlockId>& cpu_blocks,
                   Event& event) const {
    bool are_blocks = gpu_blocks.size() == cpu_blocks.size();
    for (std::size_t at = 0; at < gpu_blocks.size() && are_blocks; ++at) {
      are_blocks = gpu_blocks[at] != kNullBlockId && cpu_blocks[at] != kNullBlockId &&
                   gpu_blocks[at] < spec().kv_cache.pool.num_gpu_blocks &&
                   cpu_blocks[at] < spec().num_cpu_blocks;
      event.parts.push_back({gpu_blocks[at], cpu_blocks[at], 0, std::nullopt});
    }
    if (are_blocks) return std::nullopt;
    return broken("copies_carry_what_they_name",
                  event.is_store ? "store_cpu_blocks" : "load_cpu_blocks",
                  "pairs of blocks of both pools", "others");
  }

  Found plan_load(const Observation& observation, PlannedStep& step) {
    if (!observation.load_event.has_value()) return std::nullopt;
    Event load(*observation.load_event, /*is_store=*/false);
    load.requests.insert(observation.load_requests->begin(), observation.load_requests->end());
    have_loads_.insert(load.requests.begin(), load.requests.end());
    if (auto found = plan_parts(*observation.load_gpu_blocks, *observation.load_cpu_blocks, load)) {
      return found;
    }
    for (std::size_t at = 0; at < load.parts.size() && has_state(observation); ++at) {
      CopyPart& part = load.parts[at];
      part.content = content_of((*observation.cpu.keys)[part.place]);
      if (is_loaded_to_its_place(part, load, observation)) continue;
      return broken("copies_carry_what_they_name", element("load_gpu_blocks", at),
                    "a place with the key of the loaded block", std::to_string(part.block));
    }
    events_.insert_or_assign(load.id(), load);
    step.events.push_back(std::move(load));
    return std::nullopt;
  }

  bool is_loaded_to_its_place(const CopyPart& part, const Event& load,
                              const Observation& observation) const {
    const std::string& carried = (*observation.cpu.keys)[part.place];
    return std::ranges::any_of(load.requests, [&](const std::string& name) {
      const BlocksByGroup* table = find_table(*observation.tables, name);
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

  Found plan_store(const Observation& observation, PlannedStep& step) {
    if (!observation.store_event.has_value()) return std::nullopt;
    Event store(*observation.store_event, /*is_store=*/true);
    if (auto found =
            plan_parts(*observation.store_gpu_blocks, *observation.store_cpu_blocks, store)) {
      return found;
    }
    for (std::size_t at = 0; at < store.parts.size() && has_state(observation); ++at) {
      CopyPart& part = store.parts[at];
      part.content = content_of((*observation.keys)[part.block]);
      if (part.content) continue;
      return broken("copies_carry_what_they_name", element("store_gpu_blocks", at),
                    "a block with the key of some request", std::to_string(part.block));
    }
    events_.insert_or_assign(store.id(), store);
    step.events.push_back(std::move(store));
    return std::nullopt;
  }

  // ---- The state ----

  Found check_state(const Observation& observation) const {
    if (auto found = check_holds(observation)) return found;
    if (auto found = check_cpu_numbers(observation)) return found;
    if (auto found = check_keys(observation)) return found;
    if (auto found = check_contents(observation)) return found;
    return check_requests(observation);
  }

  Found check_holds(const Observation& observation) const {
    std::vector<std::uint32_t> gpu(observation.ref_cnts->size(), 0);
    std::vector<std::uint32_t> cpu(observation.cpu.ref_cnts->size(), 0);
    const auto add = [](const std::vector<BlockId>& blocks, std::vector<std::uint32_t>& counts) {
      for (BlockId block : blocks) {
        if (block != kNullBlockId && block < counts.size()) ++counts[block];
      }
    };
    for (const kv_cache::RequestBlocks& table : *observation.tables) {
      for (const std::vector<BlockId>& blocks : table.blocks) add(blocks, gpu);
    }
    for (const auto& [id, event] : events_) {
      for (const CopyPart& part : event.parts) {
        ++gpu[part.block];
        ++cpu[part.place];
      }
    }
    for (const Pin& pin : *observation.pins) {
      add(pin.cpu_blocks, cpu);
      const bool is_there =
          std::ranges::any_of(*observation.requests,
                              [&](const RequestState& state) { return state.id == pin.request; }) &&
          std::ranges::all_of(pin.cpu_blocks, [&](BlockId block) { return block < cpu.size(); });
      if (is_there) continue;
      return broken("cpu_holds_are_explained", "pins", "blocks for known requests", pin.request);
    }
    if (*observation.ref_cnts != gpu) {
      return broken("gpu_holds_are_explained", "ref_cnts", gpu, *observation.ref_cnts);
    }
    if (*observation.cpu.ref_cnts == cpu) return std::nullopt;
    return broken("cpu_holds_are_explained", "cpu_ref_cnts", cpu, *observation.cpu.ref_cnts);
  }

  Found check_cpu_numbers(const Observation& observation) const {
    const std::vector<std::uint32_t>& ref_cnts = *observation.cpu.ref_cnts;
    std::vector<BlockId> unreferenced;
    std::uint32_t num_empty = 0;
    for (BlockId block = 1; block < ref_cnts.size(); ++block) {
      if (ref_cnts[block] > 0) continue;
      unreferenced.push_back(block);
      num_empty += (*observation.cpu.keys)[block].empty();
    }
    std::vector<BlockId> queued = *observation.cpu.free_queue;
    std::ranges::sort(queued);
    const Invariant& rule = kInvariants[Rule("cpu_numbers_add_up").place()];
    if (queued != unreferenced) return broken_rule(rule, "cpu_free_queue", unreferenced, queued);
    const auto num_free = static_cast<std::uint32_t>(unreferenced.size());
    const std::vector<std::uint32_t> expected = {num_empty, num_free - num_empty,
                                                 spec().num_cpu_blocks - num_free};
    const std::vector<std::uint32_t> actual = {*observation.num_empty_cpu_blocks,
                                               *observation.num_cached_cpu_blocks,
                                               *observation.num_referenced_cpu_blocks};
    if (actual == expected) return std::nullopt;
    return broken_rule(rule, "num_empty_cpu_blocks, cached, referenced", expected, actual);
  }

  /// Checks the keys of blocks that are written, and of blocks that are read or will be.
  Found check_keys(const Observation& observation) const {
    const KeyList& keys = *observation.cpu.keys;
    const auto check_held = [&](BlockId block) -> Found {
      const bool is_kept =
          !before_ || !before_->cpu.keys.has_value() || (*before_->cpu.keys)[block] == keys[block];
      if (!keys[block].empty() && is_kept) return std::nullopt;
      return broken("what_is_held_keeps_its_key", element("cpu_keys", block),
                    "its previous key, since it is held", "none or another one");
    };
    for (const auto& [id, event] : events_) {
      for (const CopyPart& part : event.parts) {
        if (!event.is_store) {
          if (auto found = check_held(part.place)) return found;
        } else if (!keys[part.place].empty()) {
          return broken("a_block_being_written_has_no_key", element("cpu_keys", part.place), "none",
                        "a key");
        }
      }
    }
    for (const Pin& pin : *observation.pins) {
      for (BlockId block : pin.cpu_blocks) {
        if (auto found = check_held(block)) return found;
      }
    }
    return std::nullopt;
  }

  Found check_contents(const Observation& observation) const {
    for (BlockId block = 0; block < observation.cpu.keys->size(); ++block) {
      const std::string& key = (*observation.cpu.keys)[block];
      if (key.empty()) continue;
      const std::optional<Content> wanted = content_of(key);
      for (std::size_t rank = 0; rank < copies_.ranks().size(); ++rank) {
        const Content& content = copies_.place(rank, block, 0);
        if (wanted && passes_for(content, *wanted)) continue;
        return broken("a_cpu_block_holds_its_key",
                      element("cpu_keys", block) + " on rank " + std::to_string(rank),
                      wanted ? to_text(*wanted) : "a key of some request", to_text(content));
      }
    }
    return std::nullopt;
  }

  Found check_requests(const Observation& observation) const {
    for (const RequestState& state : *observation.requests) {
      if (state.status == RequestStatus::kWaitingForRemoteKVs && !have_loads_.contains(state.id)) {
        return broken("all_comes_to_an_end", "load_requests", "a load for " + state.id, "none");
      }
    }
    return std::nullopt;
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
  const Observation* before_ = nullptr;  ///< for the current check; null at the first command
};

}  // namespace

RuleSuite<EngineTarget> rules() { return rule_suite<Invariants>(kInvariants); }

}  // namespace kvfence::engine::simple
