#include "properties/engine/simple/rules.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "properties/engine/refusals.h"
#include "properties/engine/simple/rule_parts.h"

namespace kvfence::engine::simple {

using namespace detail;
using kvfence::detail::contains;

namespace {

Rule rule_of(CopyRule rule) {
  switch (rule) {
    case CopyRule::kNoReuseUnderACopy:
      return kS20;
    case CopyRule::kCopiesCarryWhatTheyName:
      return kS15;
    case CopyRule::kAStepReadsItsOwn:
      return kS16;
  }
  return kS15;
}

}  // namespace

Invariants::Invariants(const EngineSetup& setup)
    : setup_(setup), copies_(*setup.simple), block_tables_(setup.simple->kv_cache) {}

void Invariants::reset() { *this = Invariants(setup_); }

Invariants::Found Invariants::check(const Command& command, const Observation& observation,
                                    const World& world, std::size_t step) {
  told_.clear();
  completed_keys_.clear();
  Found found;
  const ErrorCode expected = refusal(command, world);
  if (observation.error != expected) found = broken(kS17, "error", expected, observation.error);
  if (!found) found = check_presence(command, observation);
  if (!found) found = check_unchanged(command, observation);
  if (!found && expected == ErrorCode::kNone) found = take_in(command, observation, world);
  if (!found) found = check_state(command, observation);
  if (!found) found = check_end(command, observation);
  if (has_state(observation)) {
    before_ = observation;
  } else {
    before_.reset();
  }
  if (found) found->step = step;
  return found;
}

// ---- Answers ----

ErrorCode Invariants::refusal(const Command& command, const World& world) const {
  const kvfence::detail::InFlight in_flight[] = {kvfence::detail::in_flight_of(in_flight_)};
  if (const auto refused = kvfence::detail::refusal_of_engine(command, setup_, world, in_flight)) {
    return *refused;
  }
  if (const auto* advance = std::get_if<AdvanceCopy>(&command)) {
    Copies copies = copies_;
    return copies.advance(*advance);
  }
  return ErrorCode::kNone;
}

Invariants::Found Invariants::check_presence(const Command& command,
                                             const Observation& observation) const {
  const bool accepted = observation.error == ErrorCode::kNone;
  const bool plans = accepted && std::holds_alternative<Schedule>(command);
  const bool updates = accepted && std::holds_alternative<Update>(command);
  const bool resets = accepted && std::holds_alternative<ResetPrefixCache>(command);
  Found found;
  const auto want = [&](std::string_view name, const auto& member, bool wanted) {
    if (!found && member.has_value() != wanted) {
      found = broken_presence(kInvariants[kS17], name, wanted);
    }
  };
  want("scheduled", observation.scheduled, plans);
  want("new_reqs", observation.new_reqs, plans);
  want("cached_reqs", observation.cached_reqs, plans);
  want("preempted", observation.preempted, plans);
  want("finished", observation.finished, plans);
  want("new_block_ids", observation.new_block_ids, plans);
  want("load_gpu_blocks", observation.load_gpu_blocks, plans);
  want("load_cpu_blocks", observation.load_cpu_blocks, plans);
  want("load_requests", observation.load_requests, plans);
  want("store_gpu_blocks", observation.store_gpu_blocks, plans);
  want("store_cpu_blocks", observation.store_cpu_blocks, plans);
  want("need_flush", observation.need_flush, plans);
  if (!plans) want("load_event", observation.load_event, false);
  if (!plans) want("store_event", observation.store_event, false);
  want("outputs", observation.outputs, updates);
  want("events", observation.events, updates);
  want("finished_recving", observation.finished_recving, updates);
  want("finished_sending", observation.finished_sending, updates);
  want("invalid_blocks", observation.invalid_blocks, updates);
  want("completed_jobs", observation.completed_jobs, updates);
  want("success", observation.success, resets);
  want("connector_calls", observation.connector_calls, false);
  want("num_empty_cpu_blocks", observation.num_empty_cpu_blocks, true);
  want("num_cached_cpu_blocks", observation.num_cached_cpu_blocks, true);
  want("num_referenced_cpu_blocks", observation.num_referenced_cpu_blocks, true);
  want("has_pending_stores", observation.has_pending_stores, true);
  return found;
}

Invariants::Found Invariants::check_unchanged(const Command& command,
                                              const Observation& observation) const {
  if (!before_ || !has_state(observation)) return std::nullopt;
  const bool is_refused = observation.error != ErrorCode::kNone;
  const bool plans = std::holds_alternative<Schedule>(command);
  const bool updates = std::holds_alternative<Update>(command);
  const bool resets = std::holds_alternative<ResetPrefixCache>(command);
  const bool finishes = std::holds_alternative<FinishRequests>(command) ||
                        std::holds_alternative<FinishAllRequests>(command);
  const bool copies = std::holds_alternative<AdvanceCopy>(command);
  const bool adds = std::holds_alternative<AddRequest>(command);
  Found found;
  const auto keep = [&](bool may_change, std::string_view name, const auto& was, const auto& is) {
    if (found || (may_change && !is_refused) || was == is) return;
    found = broken(kS18, name, was, is);
  };
  const bool moves_blocks = plans || updates || finishes;
  keep(moves_blocks, "tables", *before_->tables, *observation.tables);
  keep(moves_blocks, "ref_cnts", *before_->ref_cnts, *observation.ref_cnts);
  keep(moves_blocks, "cpu_ref_cnts", *before_->cpu_ref_cnts, *observation.cpu_ref_cnts);
  keep(moves_blocks, "cpu_free_queue", *before_->cpu_free_queue, *observation.cpu_free_queue);
  keep(moves_blocks, "pins", *before_->pins, *observation.pins);
  keep(moves_blocks || adds, "requests", *before_->requests, *observation.requests);
  keep(plans || updates || resets, "keys", *before_->keys, *observation.keys);
  keep(plans || updates, "cpu_keys", *before_->cpu_keys, *observation.cpu_keys);
  keep(updates || copies, "copies", *before_->copies, *observation.copies);
  return found;
}

// ---- Books ----

std::string Invariants::key(const Known& known, GroupId group, std::size_t place) const {
  const BlockHashListView hashes = known.request.block_hashes(groups()[group].block_size);
  if (place >= hashes.size()) return {};
  return make_block_hash_with_group_id(hashes[place], group);
}

void Invariants::add(const AddRequest& added, const World& world) {
  const RequestSpec salted{{}, std::nullopt, added.cache_salt, {}};
  Known known{Request(salted, spec().kv_cache.pool.hash), world.find(added.id)->number,
              BlocksByGroup(groups().size()), std::nullopt};
  known_.insert_or_assign(added.id, std::move(known));
  const bool has_salt = added.cache_salt && !added.cache_salt->empty();
  sequences_.insert_or_assign(added.id, Prefixes(has_salt ? added.cache_salt : std::nullopt));
  append(added.id, added.tokens);
}

/// Tokens of a request, and the keys of the blocks that they complete.
void Invariants::append(const std::string& name, const std::vector<TokenId>& tokens) {
  Known& known = known_.at(name);
  Prefixes& prefixes = sequences_.at(name);
  const std::uint32_t num_before = prefixes.num_tokens();
  known.request.append_output_token_ids(tokens);
  for (TokenId token : tokens) prefixes.append(token);
  for (GroupId group = 0; group < groups().size(); ++group) {
    const std::uint32_t size = groups()[group].block_size;
    for (std::uint32_t place = num_before / size; (place + 1) * size <= prefixes.num_tokens();
         ++place) {
      const std::uint32_t end = (place + 1) * size;
      contents_.insert_or_assign(key(known, group, place),
                                 Content{prefixes.id(end), end - size, end, group});
    }
  }
}

Invariants::Found Invariants::take_in(const Command& command, const Observation& observation,
                                      const World& world) {
  if (const auto* added = std::get_if<AddRequest>(&command)) {
    add(*added, world);
  } else if (std::holds_alternative<Schedule>(command)) {
    return take_in_step(observation);
  } else if (std::holds_alternative<Update>(command)) {
    return take_in_update(observation, world);
  } else if (const auto* advance = std::get_if<AdvanceCopy>(&command)) {
    copies_.advance(*advance);
  } else if (const auto* paused = std::get_if<SetPauseState>(&command)) {
    pause_state_ = paused->state;
  } else if (const auto* reset = std::get_if<ResetPrefixCache>(&command)) {
    // The connector's own cache cannot be reset.
    if (reset->reset_connector && *observation.success) {
      return broken(kS17, "success", false, true);
    }
  }
  return std::nullopt;
}

Invariants::Found Invariants::take_in_step(const Observation& observation) {
  PlannedStep step;
  if (auto found = check_events(observation)) return found;
  if (auto found = take_in_told(observation, step)) return found;
  step.scheduled = *observation.scheduled;
  step.zeroed = *observation.new_block_ids;
  step.need_flush = *observation.need_flush;
  if (!step.victims.empty()) step.lost = blocks_of_nobody(observation);

  if (observation.load_event.has_value()) {
    Event& load = step.load.emplace();
    if (auto found = plan_load(observation, load)) return found;
    for (const std::string& name : load.requests) loaded_.erase(name);
    loads_[load.event] = {load.parts, {load.requests.begin(), load.requests.end()}};
    ++num_load_events_;
  }
  if (auto found = check_waiting(observation)) return found;
  Store books;
  if (observation.store_event.has_value()) {
    if (auto found = plan_store(observation, step.store.emplace(), books)) return found;
  }
  if (auto found = check_places(observation)) return found;
  if (step.store) stores_[num_store_events_++] = std::move(books);
  in_flight_.push_back(std::move(step));
  return check_found(observation);
}

/// Who is in the step, with which blocks, and what it computes.
Invariants::Found Invariants::take_in_told(const Observation& observation, PlannedStep& step) {
  const auto unknown = [&](std::string_view member, const std::string& name) -> Found {
    if (known_.count(name) > 0) return std::nullopt;
    return broken_phrase(kS17, member, "a request that was added", name);
  };
  if (setup_.scheduler().policy == SchedulingPolicy::kPriority) {
    for (const std::string& name : *observation.preempted) {
      if (auto found = unknown("preempted", name)) return found;
      step.victims.push_back(known_.at(name).told);
    }
  }
  for (const ScheduledNew& each : *observation.new_reqs) {
    if (auto found = unknown("new_reqs", each.request)) return found;
    Known& known = known_.at(each.request);
    known.told = each.blocks;
    known.place = 0;
    told_[each.request] = {each.num_computed_tokens, false};
  }
  for (const ScheduledCached& each : *observation.cached_reqs) {
    if (auto found = unknown("cached_reqs", each.request)) return found;
    Known& known = known_.at(each.request);
    told_[each.request] = {each.num_computed_tokens, each.resumed};
    if (each.resumed) {
      known.told.assign(groups().size(), {});
      known.place = 0;
    }
    if (!each.blocks.has_value()) continue;
    for (std::size_t group = 0; group < groups().size(); ++group) {
      const std::vector<BlockId>& blocks = (*each.blocks)[group];
      known.told[group].insert(known.told[group].end(), blocks.begin(), blocks.end());
    }
  }
  for (const ScheduledRequest& each : *observation.scheduled) {
    const auto told = told_.find(each.request);
    if (told == told_.end()) {
      return broken_phrase(kS17, "scheduled", "a request that the step tells of", each.request);
    }
    const std::uint32_t begin = told->second.num_computed_tokens;
    step.runs.push_back(
        {each.request, begin, begin + each.num_tokens, known_.at(each.request).told});
  }
  return std::nullopt;
}

/// Blocks that a victim may have got in this step, for all that can be told: nobody has them, and
/// they are to be zeroed or got a key.
std::vector<BlockId> Invariants::blocks_of_nobody(const Observation& observation) const {
  std::set<BlockId> had(observation.load_gpu_blocks->begin(), observation.load_gpu_blocks->end());
  const auto add = [&](const BlocksByGroup& table) {
    for (const std::vector<BlockId>& blocks : table) had.insert(blocks.begin(), blocks.end());
  };
  for (const ScheduledNew& each : *observation.new_reqs) add(each.blocks);
  for (const ScheduledCached& each : *observation.cached_reqs) {
    if (each.blocks.has_value()) add(*each.blocks);
  }
  if (has_state(observation)) {
    for (const kv_cache::RequestBlocks& table : *observation.tables) add(table.blocks);
  }
  const bool has_keys = before_ && has_state(observation);
  std::vector<BlockId> lost;
  for (BlockId block = 1; block < spec().kv_cache.pool.num_gpu_blocks; ++block) {
    const bool is_zeroed = contains(*observation.new_block_ids, block);
    const bool has_old_key = has_keys && (*before_->keys)[block] == (*observation.keys)[block];
    if (had.count(block) == 0 && (is_zeroed || !has_old_key)) lost.push_back(block);
  }
  return lost;
}

Invariants::Found Invariants::take_in_update(const Observation& observation, const World& world) {
  const PlannedStep step = std::move(in_flight_.front());
  in_flight_.pop_front();
  OwedReport owed;
  if (auto broken_copy = copies_.run(step, sequences_, owed)) {
    return broken_phrase(rule_of(broken_copy->rule), broken_copy->where, broken_copy->expected,
                         broken_copy->actual);
  }
  if (step.need_flush && observation.copies.has_value()) {
    for (const Copy& copy : *observation.copies) {
      const std::optional<Event>& own = copy.store ? step.store : step.load;
      if (own && own->event == copy.event) continue;
      return broken_phrase(kS12, "copies", "those of this step alone, behind a flush",
                           "event " + std::to_string(copy.event));
    }
  }
  if (auto found = take_in_report(observation, owed, world)) return found;
  for (const RequestOutput& output : *observation.outputs) {
    if (known_.count(output.request) == 0) {
      return broken_phrase(kS17, "outputs", "a request that was added", output.request);
    }
    append(output.request, output.tokens);
  }
  return std::nullopt;
}

Invariants::Found Invariants::take_in_report(const Observation& observation, const OwedReport& owed,
                                             const World& world) {
  std::vector<std::string> recving = owed.finished_recving;
  std::sort(recving.begin(), recving.end(), [&](const std::string& left, const std::string& right) {
    return world.find(left)->number < world.find(right)->number;
  });
  if (*observation.finished_recving != recving) {
    return broken(kS11, "finished_recving", recving, *observation.finished_recving);
  }
  // Nobody holds blocks back, and copies do not fail.
  const std::vector<std::string> no_names;
  if (*observation.finished_sending != no_names) {
    return broken(kS11, "finished_sending", no_names, *observation.finished_sending);
  }
  const std::vector<BlockId> no_blocks;
  if (*observation.invalid_blocks != no_blocks) {
    return broken(kS11, "invalid_blocks", no_blocks, *observation.invalid_blocks);
  }
  std::vector<Completed> completed;
  for (const auto& [event, num_workers] : owed.completed_stores) {
    completed.push_back({event, num_workers, 0});
  }
  if (*observation.completed_jobs != completed) {
    return broken(kS11, "completed_jobs", completed, *observation.completed_jobs);
  }
  for (const std::string& name : recving) {
    loaded_.insert(name);
    for (auto& [event, load] : loads_) load.requests.erase(name);
  }
  std::erase_if(loads_, [](const auto& load) { return load.second.requests.empty(); });
  for (const Completed& each : completed) {
    Store& store = stores_.at(each.job);
    store.num_reports += each.num_workers;
    if (store.num_reports < copies_.num_ranks()) continue;
    for (std::size_t part = 0; part < store.parts.size(); ++part) {
      completed_keys_[store.parts[part].cpu_block] = store.keys[part];
    }
    stores_.erase(each.job);
  }
  return std::nullopt;
}

}  // namespace kvfence::engine::simple
