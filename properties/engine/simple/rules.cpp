#include "properties/engine/simple/rules.h"

#include <algorithm>
#include <variant>

#include "properties/engine/simple/facet.h"

namespace kvfence::engine::simple {

using kvfence::detail::find_table;

namespace {

/// Updates with nothing under way, after which nothing waits for a report.
constexpr std::uint32_t kQuietUpdatesMax = 3;

/// `cpu_keys[3]`
std::string element(std::string_view list, std::size_t index) {
  return std::string(list) + "[" + std::to_string(index) + "]";
}

}  // namespace

Invariants::Invariants(const EngineSetup& setup) : setup_(setup), copies_(*setup.simple) {}

std::optional<Divergence> Invariants::check(const Command& command, const Observation* before,
                                            const Observation& observation, const World& /*world*/,
                                            std::size_t step) {
  before_ = before;
  Found found;
  if (observation.error == ErrorCode::kNone) found = take_in(command, observation);
  if (!found && has_state(observation)) found = check_state(observation);
  if (found) found->step = step;
  return found;
}

// ---- The model ----

std::string Invariants::key(const Request& request, GroupId group, std::size_t place) const {
  const BlockHashListView hashes = request.block_hashes(groups()[group].block_size);
  if (place >= hashes.size()) return {};
  return make_block_hash_with_group_id(hashes[place], group);
}

/// Tokens of a request, and the keys of the blocks that they complete.
void Invariants::append(const std::string& name, const std::vector<TokenId>& tokens) {
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

Invariants::Found Invariants::take_in(const Command& command, const Observation& observation) {
  if (const auto* added = std::get_if<AddRequest>(&command)) {
    const RequestSpec salted{{}, std::nullopt, added->cache_salt, {}};
    const bool has_salt = added->cache_salt && !added->cache_salt->empty();
    requests_.insert_or_assign(added->id, Request(salted, spec().kv_cache.pool.hash));
    sequences_.insert_or_assign(added->id, Prefixes(has_salt ? added->cache_salt : std::nullopt));
    append(added->id, added->tokens);
  } else if (std::holds_alternative<Schedule>(command)) {
    return take_in_step(observation);
  } else if (std::holds_alternative<Update>(command)) {
    return take_in_update(observation);
  } else if (const auto* advance = std::get_if<AdvanceCopy>(&command)) {
    if (advance->progress == TransferProgress::kFinished &&
        !copies_.end_oldest(advance->rank, advance->store)) {
      return broken_phrase(kWorkersDoWhatTheyAreTold, "copies", "none of that direction",
                           "one that nobody planned");
    }
  } else if (const auto* reset = std::get_if<ResetPrefixCache>(&command)) {
    const bool claims = reset->reset_connector && *observation.success;
    if (!claims || !observation.cpu_keys.has_value()) return std::nullopt;
    const KeyList& keys = *observation.cpu_keys;
    if (std::any_of(keys.begin(), keys.end(), [](const auto& each) { return !each.empty(); })) {
      return broken_phrase(kAResetLeavesNothing, "cpu_keys", "none", "some");
    }
  }
  return std::nullopt;
}

Invariants::Found Invariants::take_in_step(const Observation& observation) {
  PlannedStep& step = in_flight_.emplace_back();
  step.zeroed = *observation.new_block_ids;
  step.need_flush = *observation.need_flush;
  if (setup_.scheduler().policy == SchedulingPolicy::kPriority) {
    for (const std::string& name : *observation.preempted) step.victims.push_back(tables_[name]);
  }
  if (!step.victims.empty()) step.lost = blocks_of_nobody(observation);
  take_in_runs(observation, step);
  if (auto found = plan_load(observation, step)) return found;
  return plan_store(observation, step);
}

/// What the step computes, and with which blocks.
void Invariants::take_in_runs(const Observation& observation, PlannedStep& step) {
  std::map<std::string, std::uint32_t> begins;
  for (const ScheduledNew& each : *observation.new_reqs) {
    tables_[each.request] = each.blocks;
    begins[each.request] = each.num_computed_tokens;
  }
  for (const ScheduledCached& each : *observation.cached_reqs) {
    BlocksByGroup& table = tables_[each.request];
    if (each.resumed) table.clear();
    table.resize(groups().size());
    begins[each.request] = each.num_computed_tokens;
    if (!each.blocks.has_value()) continue;
    for (std::size_t group = 0; group < groups().size(); ++group) {
      const std::vector<BlockId>& blocks = (*each.blocks)[group];
      table[group].insert(table[group].end(), blocks.begin(), blocks.end());
    }
  }
  for (const ScheduledRequest& each : *observation.scheduled) {
    have_loads_.erase(each.request);
    const auto begin = begins.find(each.request);
    if (begin == begins.end() || !requests_.contains(each.request)) continue;
    step.runs.push_back(
        {each.request, begin->second, begin->second + each.num_tokens, tables_.at(each.request)});
  }
}

/// Blocks in no table that is shown: a victim may have got them in this step.
std::vector<BlockId> Invariants::blocks_of_nobody(const Observation& observation) const {
  std::set<BlockId> had;
  if (observation.tables.has_value()) {
    for (const kv_cache::RequestBlocks& table : *observation.tables) {
      for (const std::vector<BlockId>& blocks : table.blocks) {
        had.insert(blocks.begin(), blocks.end());
      }
    }
  }
  std::vector<BlockId> lost;
  for (BlockId block = 1; block < spec().kv_cache.pool.num_gpu_blocks; ++block) {
    if (!had.contains(block)) lost.push_back(block);
  }
  return lost;
}

Invariants::Found Invariants::take_in_update(const Observation& observation) {
  if (in_flight_.empty()) return std::nullopt;
  const PlannedStep step = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (auto found = copies_.run(step, sequences_)) return found;
  if (step.need_flush && observation.copies.has_value()) {
    for (const Copy& copy : *observation.copies) {
      const bool is_own = std::any_of(
          step.events.begin(), step.events.end(),
          [&](const Event& event) { return event.id() == std::pair(copy.store, copy.event); });
      if (is_own) continue;
      return broken_phrase(kWorkersDoWhatTheyAreTold, "copies", "those of the step that flushes",
                           "event " + std::to_string(copy.event));
    }
  }
  if (auto found = take_in_report(observation)) return found;
  for (const RequestOutput& output : *observation.outputs) {
    if (requests_.contains(output.request)) append(output.request, output.tokens);
  }
  const bool is_quiet = copies_.is_idle() && in_flight_.empty();
  num_quiet_updates_ = is_quiet ? num_quiet_updates_ + 1 : 0;
  if (num_quiet_updates_ < kQuietUpdatesMax || events_.empty()) return std::nullopt;
  return broken_phrase(kAllComesToAnEnd, "completed_jobs", "what has ended",
                       "nothing of event " + std::to_string(events_.begin()->second.number));
}

Invariants::Found Invariants::take_in_report(const Observation& observation) {
  for (const std::string& name : *observation.finished_recving) {
    const auto load = std::find_if(events_.begin(), events_.end(), [&](const auto& each) {
      return each.second.requests.contains(name);
    });
    if (load == events_.end() || copies_.num_ranks_ended(load->second) < copies_.num_ranks()) {
      return broken_phrase(kWorkersDoWhatTheyAreTold, "finished_recving",
                           "a load that has ended on all ranks", name);
    }
    load->second.requests.erase(name);
    if (load->second.requests.empty()) events_.erase(load);
  }
  for (const Completed& each : *observation.completed_jobs) {
    const auto store = events_.find({true, each.job});
    if (store == events_.end() ||
        store->second.num_reports + each.num_workers > copies_.num_ranks_ended(store->second)) {
      return broken_phrase(kWorkersDoWhatTheyAreTold, "completed_jobs",
                           "a store by the ranks on which it has ended",
                           std::to_string(each.job) + " by " + std::to_string(each.num_workers));
    }
    store->second.num_reports += each.num_workers;
    if (store->second.num_reports == copies_.num_ranks()) events_.erase(store);
  }
  return std::nullopt;
}

// ---- What a step plans ----

std::optional<Content> Invariants::content_of(const std::string& key) const {
  const auto found = contents_.find(key);
  return found == contents_.end() ? std::nullopt : std::optional(found->second);
}

Invariants::Found Invariants::plan_parts(const std::vector<BlockId>& gpu_blocks,
                                         const std::vector<BlockId>& cpu_blocks,
                                         Event& event) const {
  bool are_blocks = gpu_blocks.size() == cpu_blocks.size();
  for (std::size_t at = 0; at < gpu_blocks.size() && are_blocks; ++at) {
    are_blocks = gpu_blocks[at] != kNullBlockId && cpu_blocks[at] != kNullBlockId &&
                 gpu_blocks[at] < spec().kv_cache.pool.num_gpu_blocks &&
                 cpu_blocks[at] < spec().num_cpu_blocks;
    event.parts.push_back({gpu_blocks[at], cpu_blocks[at], std::nullopt});
  }
  if (are_blocks) return std::nullopt;
  return broken_phrase(kCopiesCarryWhatTheyName,
                       event.is_store ? "store_cpu_blocks" : "load_cpu_blocks",
                       "pairs of blocks of both pools", "others");
}

Invariants::Found Invariants::plan_load(const Observation& observation, PlannedStep& step) {
  if (!observation.load_event.has_value()) return std::nullopt;
  Event load{*observation.load_event, /*is_store=*/false, {}};
  load.requests.insert(observation.load_requests->begin(), observation.load_requests->end());
  have_loads_.insert(load.requests.begin(), load.requests.end());
  if (auto found = plan_parts(*observation.load_gpu_blocks, *observation.load_cpu_blocks, load)) {
    return found;
  }
  for (std::size_t at = 0; at < load.parts.size() && has_state(observation); ++at) {
    CopyPart& part = load.parts[at];
    part.content = content_of((*observation.cpu_keys)[part.cpu_block]);
    if (is_loaded_to_its_place(part, load, observation)) continue;
    return broken_phrase(kCopiesCarryWhatTheyName, element("load_gpu_blocks", at),
                         "a place with the key of what is loaded", std::to_string(part.gpu_block));
  }
  events_.insert_or_assign(load.id(), load);
  step.events.push_back(std::move(load));
  return std::nullopt;
}

bool Invariants::is_loaded_to_its_place(const CopyPart& part, const Event& load,
                                        const Observation& observation) const {
  const std::string& carried = (*observation.cpu_keys)[part.cpu_block];
  return std::any_of(load.requests.begin(), load.requests.end(), [&](const std::string& name) {
    const BlocksByGroup* table = find_table(*observation.tables, name);
    const auto request = requests_.find(name);
    if (!table || request == requests_.end()) return false;
    for (GroupId group = 0; group < table->size(); ++group) {
      for (std::size_t place = 0; place < (*table)[group].size(); ++place) {
        if ((*table)[group][place] != part.gpu_block || carried.empty()) continue;
        if (key(request->second, group, place) == carried) return true;
      }
    }
    return false;
  });
}

Invariants::Found Invariants::plan_store(const Observation& observation, PlannedStep& step) {
  if (!observation.store_event.has_value()) return std::nullopt;
  Event store{*observation.store_event, /*is_store=*/true, {}};
  if (auto found =
          plan_parts(*observation.store_gpu_blocks, *observation.store_cpu_blocks, store)) {
    return found;
  }
  for (std::size_t at = 0; at < store.parts.size() && has_state(observation); ++at) {
    CopyPart& part = store.parts[at];
    part.content = content_of((*observation.keys)[part.gpu_block]);
    if (part.content) continue;
    return broken_phrase(kCopiesCarryWhatTheyName, element("store_gpu_blocks", at),
                         "a block with the key of some request", std::to_string(part.gpu_block));
  }
  events_.insert_or_assign(store.id(), store);
  step.events.push_back(std::move(store));
  return std::nullopt;
}

// ---- The state ----

Invariants::Found Invariants::check_state(const Observation& observation) const {
  if (auto found = check_holds(observation)) return found;
  if (auto found = check_cpu_numbers(observation)) return found;
  if (auto found = check_keys(observation)) return found;
  if (auto found = check_contents(observation)) return found;
  return check_requests(observation);
}

Invariants::Found Invariants::check_holds(const Observation& observation) const {
  std::vector<std::uint32_t> gpu(observation.ref_cnts->size(), 0);
  std::vector<std::uint32_t> cpu(observation.cpu_ref_cnts->size(), 0);
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
      ++gpu[part.gpu_block];
      ++cpu[part.cpu_block];
    }
  }
  for (const Pin& pin : *observation.pins) {
    add(pin.cpu_blocks, cpu);
    const bool is_there =
        std::any_of(observation.requests->begin(), observation.requests->end(),
                    [&](const RequestState& state) { return state.id == pin.request; }) &&
        std::all_of(pin.cpu_blocks.begin(), pin.cpu_blocks.end(),
                    [&](BlockId block) { return block < cpu.size(); });
    if (is_there) continue;
    return broken_phrase(kCpuHoldsAreExplained, "pins", "blocks for requests that are there",
                         pin.request);
  }
  if (*observation.ref_cnts != gpu) {
    return broken_rule(kInvariants[kGpuHoldsAreExplained], "ref_cnts", gpu, *observation.ref_cnts);
  }
  if (*observation.cpu_ref_cnts == cpu) return std::nullopt;
  return broken_rule(kInvariants[kCpuHoldsAreExplained], "cpu_ref_cnts", cpu,
                     *observation.cpu_ref_cnts);
}

Invariants::Found Invariants::check_cpu_numbers(const Observation& observation) const {
  const std::vector<std::uint32_t>& ref_cnts = *observation.cpu_ref_cnts;
  std::vector<BlockId> unreferenced;
  std::uint32_t num_empty = 0;
  for (BlockId block = 1; block < ref_cnts.size(); ++block) {
    if (ref_cnts[block] > 0) continue;
    unreferenced.push_back(block);
    num_empty += (*observation.cpu_keys)[block].empty();
  }
  std::vector<BlockId> queued = *observation.cpu_free_queue;
  std::sort(queued.begin(), queued.end());
  const Invariant& rule = kInvariants[kCpuNumbersAddUp];
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

/// Of blocks that are written, and of those that are read or will be.
Invariants::Found Invariants::check_keys(const Observation& observation) const {
  const KeyList& keys = *observation.cpu_keys;
  const auto check_held = [&](BlockId block) -> Found {
    const bool is_kept =
        !before_ || !before_->cpu_keys.has_value() || (*before_->cpu_keys)[block] == keys[block];
    if (!keys[block].empty() && is_kept) return std::nullopt;
    return broken_phrase(kWhatIsHeldKeepsItsKey, element("cpu_keys", block),
                         "the key that it had, for it is held", "none or another one");
  };
  for (const auto& [id, event] : events_) {
    for (const CopyPart& part : event.parts) {
      if (!event.is_store) {
        if (auto found = check_held(part.cpu_block)) return found;
      } else if (!keys[part.cpu_block].empty()) {
        return broken_phrase(kABlockBeingWrittenHasNoKey, element("cpu_keys", part.cpu_block),
                             "none", "a key");
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

Invariants::Found Invariants::check_contents(const Observation& observation) const {
  for (BlockId block = 0; block < observation.cpu_keys->size(); ++block) {
    const std::string& key = (*observation.cpu_keys)[block];
    if (key.empty()) continue;
    const std::optional<Content> wanted = content_of(key);
    for (std::size_t rank = 0; rank < copies_.num_ranks(); ++rank) {
      const Content& content = copies_.cpu_block(rank, block);
      if (wanted && passes_for(content, *wanted)) continue;
      return broken_phrase(kACpuBlockHoldsItsKey,
                           element("cpu_keys", block) + " on rank " + std::to_string(rank),
                           wanted ? to_text(*wanted) : "a key of some request", to_text(content));
    }
  }
  return std::nullopt;
}

Invariants::Found Invariants::check_requests(const Observation& observation) const {
  for (const RequestState& state : *observation.requests) {
    if (state.status == RequestStatus::kWaitingForRemoteKVs && !have_loads_.contains(state.id)) {
      return broken_phrase(kAllComesToAnEnd, "load_requests", "a load for " + state.id, "none");
    }
  }
  return std::nullopt;
}

}  // namespace kvfence::engine::simple
