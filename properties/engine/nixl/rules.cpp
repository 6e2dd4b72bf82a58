#include "properties/engine/nixl/rules.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "properties/core/broken_rule.h"
#include "properties/core/invariant_values.h"
#include "properties/engine/refusals.h"

namespace kvfence::engine::nixl {
namespace {

using detail::contains;
using detail::find_table;
using detail::phrase;

// The places of kInvariants, so that code names a rule by its id.
enum Rule : std::size_t {
  kP1,
  kP2,
  kP3,
  kP4,
  kP5,
  kP6,
  kP7,
  kP8,
  kP9,
  kP10,
  kP11,
  kP12,
  kP13,
  kP14,
  kP15,
  kP16,
  kP17,
  kP18
};

static_assert(kInvariants.size() == kP18 + 1);

/// Steps of an engine that holds nothing behind which whoever waits has to be served.
constexpr std::uint32_t kIdleStepsMax = 3;

using Found = std::optional<Divergence>;

template <class T>
Divergence broken(Rule rule, std::string_view member, const T& expected, const T& actual) {
  return broken_rule(kInvariants[rule], member, expected, actual);
}

Divergence broken_phrase(Rule rule, std::string_view member, std::string_view expected,
                         std::string_view actual) {
  return broken_values(kInvariants[rule], member, phrase(expected), phrase(actual));
}

Rule rule_of(CopyRule rule) {
  switch (rule) {
    case CopyRule::kReadBlockStays:
      return kP1;
    case CopyRule::kWrittenBlockStays:
      return kP2;
    case CopyRule::kLoadBringsItsOwn:
      return kP3;
    case CopyRule::kStepReadsItsOwn:
      return kP9;
  }
  return kP9;
}

/// A member of one engine's observation.
std::string of_engine(EngineRole role, std::string_view member) {
  return (role == EngineRole::kProducer ? "" : "consumer_") + std::string(member);
}

std::string element(std::string_view list, std::size_t index, std::string_view member = {}) {
  std::string name = std::string(list) + "[" + std::to_string(index) + "]";
  if (!member.empty()) name += "." + std::string(member);
  return name;
}

bool has_state(const Observation& observation) {
  const auto has_its_own = [&](EngineRole role) {
    const SchedulerObservation& shown = observation.of(role);
    return shown.requests.has_value() && shown.tables.has_value() && shown.ref_cnts.has_value() &&
           shown.keys.has_value() && shown.free_queue.has_value() && shown.running.has_value();
  };
  return has_its_own(EngineRole::kProducer) && has_its_own(EngineRole::kConsumer) &&
         observation.reads.has_value() && observation.notices.has_value();
}

template <class T>
bool has_repeats(std::vector<T> list) {
  std::sort(list.begin(), list.end());
  return std::adjacent_find(list.begin(), list.end()) != list.end();
}

std::vector<std::string> sorted(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return names;
}

bool is_under_way(TransferProgress progress) {
  return progress == TransferProgress::kSubmitted || progress == TransferProgress::kPart;
}

/// The engine that a command is about, if it is about one's steps, requests or cache.
std::optional<EngineRole> engine_of_command(const Command& command) {
  return std::visit(
      [](const auto& alternative) -> std::optional<EngineRole> {
        if constexpr (requires { alternative.engine; }) return alternative.engine;
        return std::nullopt;
      },
      command);
}

/// What a step zeroes and tells nobody of.
std::vector<BlockId> new_blocks_of_nobody(const SchedulerObservation& shown,
                                          const PlannedStep& step) {
  std::set<BlockId> told;
  for (const ScheduledNew& each : *shown.new_reqs) {
    told.insert(each.blocks.front().begin(), each.blocks.front().end());
  }
  for (const ScheduledCached& each : *shown.cached_reqs) {
    if (!each.blocks.has_value()) continue;
    told.insert(each.blocks->front().begin(), each.blocks->front().end());
  }
  for (const Receive& receive : step.reqs_to_recv) {
    told.insert(receive.local_blocks.begin(), receive.local_blocks.end());
  }
  std::vector<BlockId> lost;
  for (const BlockId block : step.zeroed) {
    if (told.count(block) == 0) lost.push_back(block);
  }
  return lost;
}

}  // namespace

Invariants::Invariants(const EngineSetup& setup, bool transport_may_fail)
    : setup_(setup), may_fail_(transport_may_fail), copies_(setup) {
  for (const EngineRole role : kEngineRoles) {
    engines_.push_back({BlockTableInvariants(config_of(role).kv_cache), {}});
  }
}

void Invariants::reset() { *this = Invariants(setup_, may_fail_); }

const SchedulerConfig& Invariants::config_of(EngineRole role) const {
  return setup_.schedulers[static_cast<std::size_t>(role)];
}

std::uint32_t Invariants::num_prompt_blocks(const std::string& request) const {
  const std::uint32_t size = config_of(EngineRole::kConsumer).kv_cache.groups.front().block_size;
  return (sequences_.at(request).num_prompt_tokens + size - 1) / size;
}

Found Invariants::check(const Command& command, const Observation& observation, const World& world,
                        std::size_t step) {
  Found found;
  const ErrorCode expected = refusal(command, world);
  if (observation.error != expected) found = broken(kP18, "error", expected, observation.error);
  if (!found) found = check_presence(command, observation);
  if (!found && expected != ErrorCode::kNone) found = check_unchanged(observation);
  if (!found && expected == ErrorCode::kNone) found = take_in(command, observation, world);
  if (!found && *observation.now != copies_.transport().now()) {
    found = broken(kP18, "now", copies_.transport().now(), *observation.now);
  }
  if (!found && has_state(observation)) found = check_state(observation);
  for (const EngineRole role : kEngineRoles) {
    if (!found) found = check_left(role, observation);
  }
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
  const auto is_new = [&](const std::string& name) {
    const World::Entry* entry = world.find(name);
    return entry && entry->is_new;
  };
  const kvfence::detail::InFlight in_flight[] = {
      kvfence::detail::in_flight_of(engine_of(EngineRole::kProducer).in_flight),
      kvfence::detail::in_flight_of(engine_of(EngineRole::kConsumer).in_flight)};
  if (const auto refused = kvfence::detail::refusal_of_engine(command, setup_, world, in_flight)) {
    return *refused;
  }
  if (const auto* handed_over = std::get_if<HandOver>(&command)) {
    if (!world.find(handed_over->request)) return ErrorCode::kUnknownRequest;
    if (!is_new(handed_over->id)) return ErrorCode::kAlreadyDeclared;
    if (prefills_.count(handed_over->request) == 0) return ErrorCode::kNotFinished;
    return handed_over->max_tokens == 0 ? ErrorCode::kNoTokens : ErrorCode::kNone;
  }
  Copies copies = copies_;
  if (const auto* advance = std::get_if<AdvanceRead>(&command)) {
    return copies.advance(advance->read, advance->progress, may_fail_);
  }
  if (const auto* notice = std::get_if<DeliverNotice>(&command)) {
    return copies.deliver(notice->notice);
  }
  if (const auto* lost = std::get_if<LoseNotice>(&command)) {
    return copies.lose(lost->notice, may_fail_);
  }
  if (const auto* repeated = std::get_if<RepeatNotice>(&command)) {
    return copies.repeat(repeated->notice, may_fail_);
  }
  if (const auto* clock = std::get_if<AdvanceClock>(&command)) {
    return copies.advance_clock(clock->seconds);
  }
  return ErrorCode::kNone;
}

Found Invariants::check_presence(const Command& command, const Observation& observation) const {
  const bool accepted = observation.error == ErrorCode::kNone;
  const bool plans = accepted && std::holds_alternative<Schedule>(command);
  const bool updates = accepted && std::holds_alternative<Update>(command);
  const bool resets = accepted && std::holds_alternative<ResetPrefixCache>(command);
  const std::optional<EngineRole> engine = engine_of_command(command);
  Found found;
  const auto want = [&](const std::string& name, const auto& member, bool wanted) {
    if (!found && member.has_value() != wanted) {
      found = broken_presence(kInvariants[kP18], name, wanted);
    }
  };
  for (const EngineRole role : kEngineRoles) {
    const SchedulerObservation& shown = observation.of(role);
    const bool is_asked = engine == role;
    const auto want_of = [&](std::string_view name, const auto& member, bool wanted) {
      want(of_engine(role, name), member, wanted && is_asked);
    };
    want_of("scheduled", shown.scheduled, plans);
    want_of("new_reqs", shown.new_reqs, plans);
    want_of("cached_reqs", shown.cached_reqs, plans);
    want_of("common_prefix", shown.common_prefix, plans);
    want_of("preempted", shown.preempted, plans);
    want_of("finished", shown.finished, plans);
    want_of("new_block_ids", shown.new_block_ids, plans);
    if (!plans) want_of("never_fits", shown.never_fits, false);
    want_of("outputs", shown.outputs, updates);
    want_of("events", shown.events, updates);
    want_of("stats", shown.stats, updates);
    want_of("connector_stats", shown.connector_stats, updates);
    want_of("spec_stats", shown.spec_stats, updates);
    want_of("success", shown.success, resets);
    want_of("connector_calls", shown.connector_calls, false);
  }
  const bool produces = engine == EngineRole::kProducer;
  const bool consumes = engine == EngineRole::kConsumer;
  want("reqs_in_batch", observation.reqs_in_batch, plans && produces);
  want("reqs_not_processed", observation.reqs_not_processed, plans && produces);
  want("reqs_to_send", observation.reqs_to_send, plans && produces);
  want("reqs_to_recv", observation.reqs_to_recv, plans && consumes);
  want("heartbeats", observation.heartbeats, plans && consumes);
  want("finished_sending", observation.finished_sending, updates);
  want("finished_recving", observation.finished_recving, updates);
  want("invalid_blocks", observation.invalid_blocks, updates);
  want("completed_jobs", observation.completed_jobs, updates);
  want("finished_prefills", observation.finished_prefills, updates && produces);
  want("now", observation.now, true);
  return found;
}

/// By a command that was refused.
Found Invariants::check_unchanged(const Observation& observation) const {
  if (!before_ || !has_state(observation)) return std::nullopt;
  Found found;
  const auto keep = [&](const std::string& name, const auto& was, const auto& is) {
    if (!found && !(was == is)) found = broken(kP18, name, was, is);
  };
  for (const EngineRole role : kEngineRoles) {
    const SchedulerObservation& was = before_->of(role);
    const SchedulerObservation& is = observation.of(role);
    keep(of_engine(role, "tables"), *was.tables, *is.tables);
    keep(of_engine(role, "ref_cnts"), *was.ref_cnts, *is.ref_cnts);
    keep(of_engine(role, "free_queue"), *was.free_queue, *is.free_queue);
    keep(of_engine(role, "keys"), *was.keys, *is.keys);
    keep(of_engine(role, "requests"), *was.requests, *is.requests);
  }
  return found;
}

// ---- Books ----

void Invariants::add(const std::string& name, EngineRole role, const World& world) {
  const RequestSpec& spec = world.requests().find(name)->spec();
  Known known{role, Request(spec, config_of(role).kv_cache.pool.hash), world.find(name)->number};
  known_.insert_or_assign(name, std::move(known));
  const bool has_salt = spec.cache_salt && !spec.cache_salt->empty();
  Sequence sequence{Prefixes(has_salt ? spec.cache_salt : std::nullopt),
                    static_cast<std::uint32_t>(spec.tokens.size())};
  for (const TokenId token : spec.tokens) sequence.prefixes.append(token);
  sequences_.insert_or_assign(name, std::move(sequence));
}

void Invariants::finish(const std::string& name, RequestStatus status) {
  const auto at = known_.find(name);
  if (at == known_.end() || !at->second.is_unfinished) return;
  at->second.is_unfinished = false;
  std::erase_if(leases_, [&](const auto& lease) { return lease.first == name; });
  if (!at->second.for_consumer) return;
  const bool is_sent =
      status == RequestStatus::kFinishedLengthCapped ||
      (spec().rules.stopped_requests_are_sent && status == RequestStatus::kFinishedStopped);
  // What was preempted may finish with an output that was under way: it has no blocks.
  if (!is_sent || at->second.table.empty()) {
    not_processed_.push_back(name);
    return;
  }
  Send& send = to_send_.emplace_back();
  send.request = name;
  if (spec().deadline) send.expires = copies_.transport().now() + *spec().deadline;
  untold_prefills_.push_back(name);
}

Found Invariants::take_in(const Command& command, const Observation& observation,
                          const World& world) {
  if (const auto* added = std::get_if<AddRequest>(&command)) {
    add(added->id, added->engine, world);
    known_.at(added->id).for_consumer = added->do_remote_decode;
  } else if (const auto* handed_over = std::get_if<HandOver>(&command)) {
    add(handed_over->id, EngineRole::kConsumer, world);
    known_.at(handed_over->id).remote_request = handed_over->request;
    if (spec().rules.kv_lease_heartbeats && spec().deadline) {
      leases_.emplace_back(handed_over->id, handed_over->request);
    }
  } else if (const auto* planned = std::get_if<Schedule>(&command)) {
    if (auto found = take_in_step(planned->engine, observation)) return found;
    return check_service(*planned, observation);
  } else if (const auto* update = std::get_if<Update>(&command)) {
    return take_in_update(update->engine, observation, world);
  } else if (const auto* ended = std::get_if<FinishRequests>(&command)) {
    for (const std::string& name : ended->requests) {
      const auto at = known_.find(name);
      if (at == known_.end() || at->second.engine != ended->engine) continue;
      finish(name, ended->status);
    }
  } else if (const auto* all_ended = std::get_if<FinishAllRequests>(&command)) {
    for (const auto& [name, known] : known_) {
      if (known.engine == all_ended->engine) finish(name, all_ended->status);
    }
  } else if (const auto* paused = std::get_if<SetPauseState>(&command)) {
    engine_of(paused->engine).pause_state = paused->state;
  } else if (const auto* advance = std::get_if<AdvanceRead>(&command)) {
    copies_.advance(advance->read, advance->progress, may_fail_);
  } else if (const auto* notice = std::get_if<DeliverNotice>(&command)) {
    copies_.deliver(notice->notice);
  } else if (const auto* lost = std::get_if<LoseNotice>(&command)) {
    copies_.lose(lost->notice, may_fail_);
  } else if (const auto* repeated = std::get_if<RepeatNotice>(&command)) {
    copies_.repeat(repeated->notice, may_fail_);
  } else if (const auto* clock = std::get_if<AdvanceClock>(&command)) {
    copies_.advance_clock(clock->seconds);
  }
  return std::nullopt;
}

// ---- A step is planned ----

Found Invariants::take_in_step(EngineRole role, const Observation& observation) {
  const SchedulerObservation& shown = observation.of(role);
  const auto unknown = [&](std::string_view member, const std::string& name) -> Found {
    const auto at = known_.find(name);
    if (at != known_.end() && at->second.engine == role) return std::nullopt;
    return broken_phrase(kP18, of_engine(role, member), "a request of this engine", name);
  };
  PlannedStep step;
  std::map<std::string, std::uint32_t> num_computed;
  for (const ScheduledNew& each : *shown.new_reqs) {
    if (auto found = unknown("new_reqs", each.request)) return found;
    known_.at(each.request).table = each.blocks.front();
    num_computed[each.request] = each.num_computed_tokens;
  }
  for (const ScheduledCached& each : *shown.cached_reqs) {
    if (auto found = unknown("cached_reqs", each.request)) return found;
    std::vector<BlockId>& table = known_.at(each.request).table;
    num_computed[each.request] = each.num_computed_tokens;
    if (each.resumed) table.clear();
    if (!each.blocks.has_value()) continue;
    table.insert(table.end(), each.blocks->front().begin(), each.blocks->front().end());
  }
  for (const ScheduledRequest& each : *shown.scheduled) {
    if (num_computed.count(each.request) == 0) {
      return broken_phrase(kP18, of_engine(role, "scheduled"), "a request that the step tells of",
                           each.request);
    }
    const std::uint32_t begin = num_computed[each.request];
    step.runs.push_back(
        {each.request, begin, begin + each.num_tokens, known_.at(each.request).table});
  }
  step.scheduled = *shown.scheduled;
  step.zeroed = *shown.new_block_ids;
  for (const std::string& name : *shown.preempted) {
    if (auto found = unknown("preempted", name)) return found;
    std::vector<BlockId>& table = known_.at(name).table;
    if (config_of(role).policy == SchedulingPolicy::kPriority) {
      step.victims.push_back({name, table});
    }
    table.clear();
  }
  const bool produces = role == EngineRole::kProducer;
  if (auto found =
          produces ? take_in_told(observation, step) : take_in_receives(observation, step)) {
    return found;
  }
  if (!step.victims.empty()) step.lost = new_blocks_of_nobody(shown, step);
  engine_of(role).in_flight.push_back(std::move(step));
  // What never fits ends behind the plan.
  if (shown.never_fits.has_value()) finish(*shown.never_fits, RequestStatus::kFinishedError);
  return std::nullopt;
}

Found Invariants::take_in_told(const Observation& observation, PlannedStep& step) {
  for (const std::string& name : *observation.reqs_in_batch) {
    const auto at = known_.find(name);
    if (at != known_.end() && at->second.for_consumer) continue;
    return broken_phrase(kP12, "reqs_in_batch", "a request for a consumer", name);
  }
  if (has_repeats(*observation.reqs_in_batch)) {
    return broken_phrase(kP12, "reqs_in_batch", "each once", "one twice");
  }
  if (sorted(*observation.reqs_not_processed) != sorted(not_processed_)) {
    return broken(kP12, "reqs_not_processed", not_processed_, *observation.reqs_not_processed);
  }
  const auto by_name = [](const Send& left, const Send& right) {
    return left.request < right.request;
  };
  std::vector<Send> shown = *observation.reqs_to_send;
  std::sort(shown.begin(), shown.end(), by_name);
  std::sort(to_send_.begin(), to_send_.end(), by_name);
  if (shown != to_send_) {
    return broken(kP12, "reqs_to_send", to_send_, *observation.reqs_to_send);
  }
  not_processed_.clear();
  to_send_.clear();
  step.reqs_in_batch = *observation.reqs_in_batch;
  step.reqs_not_processed = *observation.reqs_not_processed;
  step.reqs_to_send = *observation.reqs_to_send;
  return std::nullopt;
}

Found Invariants::take_in_receives(const Observation& observation, PlannedStep& step) {
  const std::vector<Receive>& receives = *observation.reqs_to_recv;
  for (std::size_t index = 0; index < receives.size(); ++index) {
    const Receive& receive = receives[index];
    const auto wrong = [&](std::string_view member, std::string_view expected,
                           std::string_view actual) {
      return broken_phrase(kP11, element("reqs_to_recv", index, member), expected, actual);
    };
    const auto at = known_.find(receive.request);
    if (at == known_.end() || at->second.remote_request.empty()) {
      return wrong("request", "a request that was handed over", receive.request);
    }
    Known& known = at->second;
    if (known.is_received) {
      return broken_phrase(kP10, element("reqs_to_recv", index, "request"),
                           "a request that was not there before", receive.request);
    }
    known.is_received = true;
    if (receive.remote_request != known.remote_request) {
      return wrong("remote_request", known.remote_request, receive.remote_request);
    }
    const std::size_t num_blocks = receive.local_blocks.size();
    if (receive.remote_blocks.size() != num_blocks ||
        num_blocks > num_prompt_blocks(receive.request)) {
      return wrong("local_blocks", "as many as remote ones, and no more than the prompt has",
                   "other ones");
    }
    const auto are_in = [](const std::vector<BlockId>& blocks, const SchedulerConfig& config) {
      return std::all_of(blocks.begin(), blocks.end(), [&](BlockId block) {
        return block != kNullBlockId && block < config.kv_cache.pool.num_gpu_blocks;
      });
    };
    if (!are_in(receive.local_blocks, config_of(EngineRole::kConsumer)) ||
        !are_in(receive.remote_blocks, config_of(EngineRole::kProducer)) ||
        has_repeats(receive.local_blocks)) {
      return wrong("local_blocks", "different blocks of the pools", "other ones");
    }
    const bool has_nothing_to_read =
        !known.is_unfinished || sequences_.at(receive.request).num_prompt_tokens == 1;
    if ((num_blocks == 0) != has_nothing_to_read) {
      return wrong("local_blocks", has_nothing_to_read ? "none" : "what is not cached",
                   num_blocks == 0 ? "none" : "blocks");
    }
    if (num_blocks > 0) awaited_.insert(receive.request);
  }
  for (const auto& [name, known] : known_) {
    if (known.remote_request.empty() || known.is_received) continue;
    if (!known.is_unfinished) {
      return broken_phrase(kP11, "reqs_to_recv", name + ", which ended", "others");
    }
    const SchedulerObservation& shown = observation.of(EngineRole::kConsumer);
    const bool has_blocks = shown.tables.has_value() ? find_table(*shown.tables, name) != nullptr
                                                     : !known.table.empty();
    if (!has_blocks) continue;
    return broken_phrase(kP11, "reqs_to_recv", name + ", which has blocks", "others");
  }
  if (auto found = check_heartbeats(observation)) return found;
  step.reqs_to_recv = receives;
  step.heartbeats = *observation.heartbeats;
  return std::nullopt;
}

Found Invariants::check_heartbeats(const Observation& observation) {
  std::vector<std::string> expected;
  const Seconds now = copies_.transport().now();
  const bool is_due =
      !leases_.empty() && (!last_heartbeat_ || now - *last_heartbeat_ >= *spec().deadline / 6);
  if (is_due) {
    last_heartbeat_ = now;
    for (const auto& [request, remote] : leases_) {
      if (!contains(expected, remote)) expected.push_back(remote);
    }
  }
  if (*observation.heartbeats == expected) return std::nullopt;
  return broken(kP14, "heartbeats", expected, *observation.heartbeats);
}

// ---- A step comes back ----

Found Invariants::take_in_update(EngineRole role, const Observation& observation,
                                 const World& world) {
  if (!observation.completed_jobs->empty()) {
    return broken(kP18, "completed_jobs", std::vector<Completed>(), *observation.completed_jobs);
  }
  OwedReport owed;
  Engine& engine = engine_of(role);
  if (auto broken_copy = copies_.run(role, engine.in_flight.front(), sequences_, owed)) {
    return broken_phrase(rule_of(broken_copy->rule), broken_copy->where, broken_copy->expected,
                         broken_copy->actual);
  }
  engine.in_flight.pop_front();
  for (auto* names : {&owed.finished_recving, &owed.finished_sending}) {
    std::sort(names->begin(), names->end(), [&](const std::string& left, const std::string& right) {
      return world.find(left)->number < world.find(right)->number;
    });
  }
  if (auto found = check_sent(owed, observation)) return found;
  if (auto found = check_received(owed, observation)) return found;
  for (const RequestOutput& output : *observation.of(role).outputs) {
    const auto at = known_.find(output.request);
    if (at == known_.end() || at->second.engine != role) {
      return broken_phrase(kP18, of_engine(role, "outputs"), "a request of this engine",
                           output.request);
    }
    at->second.request.append_output_token_ids(output.tokens);
    for (const TokenId token : output.tokens) {
      sequences_.at(output.request).prefixes.append(token);
    }
    if (is_finished(output.status)) finish(output.request, output.status);
  }
  return role == EngineRole::kProducer ? take_in_prefills(observation) : std::nullopt;
}

Found Invariants::check_sent(const OwedReport& owed, const Observation& observation) {
  const std::vector<std::string>& shown = *observation.finished_sending;
  for (std::size_t index = 0; index < shown.size(); ++index) {
    if (held_.erase(shown[index]) == 0) {
      return broken_phrase(kP4, element("finished_sending", index), "a request that is held",
                           shown[index]);
    }
    if (contains(owed.finished_sending, shown[index])) continue;
    return broken_phrase(kP5, element("finished_sending", index),
                         "no request that is still to be read", shown[index]);
  }
  for (const std::string& name : owed.finished_sending) {
    if (contains(shown, name)) continue;
    return broken_phrase(owed.expired.count(name) > 0 ? kP6 : kP5, "finished_sending",
                         name + " among them", "others");
  }
  if (shown == owed.finished_sending) return std::nullopt;
  return broken(kP18, "finished_sending", owed.finished_sending, shown);
}

Found Invariants::check_received(const OwedReport& owed, const Observation& observation) {
  if (*observation.finished_recving != owed.finished_recving) {
    return broken(kP7, "finished_recving", owed.finished_recving, *observation.finished_recving);
  }
  std::vector<BlockId> invalid = *observation.invalid_blocks;
  std::sort(invalid.begin(), invalid.end());
  if (invalid != owed.invalid_blocks) {
    return broken(kP8, "invalid_blocks", owed.invalid_blocks, *observation.invalid_blocks);
  }
  for (const std::string& name : owed.finished_recving) {
    awaited_.erase(name);
    reported_.insert(name);
    std::erase_if(leases_, [&](const auto& lease) { return lease.first == name; });
  }
  return std::nullopt;
}

Found Invariants::take_in_prefills(const Observation& observation) {
  std::vector<std::string> shown;
  for (const FinishedPrefill& prefill : *observation.finished_prefills) {
    shown.push_back(prefill.request);
  }
  if (shown != untold_prefills_) {
    return broken(kP12, "finished_prefills", untold_prefills_, shown);
  }
  for (const FinishedPrefill& prefill : *observation.finished_prefills) {
    held_.insert(prefill.request);
    prefills_[prefill.request] = prefill.blocks;
  }
  untold_prefills_.clear();
  return std::nullopt;
}

// ---- The state ----

Found Invariants::check_state(const Observation& observation) {
  for (const EngineRole role : kEngineRoles) {
    if (auto found = check_blocks(role, observation)) return found;
  }
  if (auto found = check_reads(observation)) return found;
  if (auto found = check_held(observation)) return found;
  if (auto found = check_transport(observation)) return found;
  return check_waiting(observation);
}

Found Invariants::check_blocks(EngineRole role, const Observation& observation) {
  const SchedulerObservation& shown = observation.of(role);
  const BlockState state{*shown.free_queue, *shown.ref_cnts, *shown.keys, *shown.tables};
  const auto broken_block = [&](const BrokenBlockRule& found) {
    return broken_values(kInvariants[kP16], of_engine(role, found.mismatch.field),
                         found.mismatch.expected, found.mismatch.actual);
  };
  BlockTableInvariants& block_tables = engine_of(role).block_tables;
  if (auto found = block_tables.check_blocks(state)) return broken_block(*found);
  std::vector<TableOwner> owners;
  for (const kv_cache::RequestBlocks& table : *shown.tables) {
    const auto at = known_.find(table.request);
    if (at == known_.end() || at->second.engine != role) {
      return broken_phrase(kP16, of_engine(role, "tables"), "a request of this engine",
                           table.request);
    }
    owners.push_back({&at->second.request, at->second.number, Aliasing::kUnknown});
  }
  if (auto found = block_tables.check_places(state, owners)) return broken_block(*found);
  return std::nullopt;
}

/// Reads and notices are those that workers and transport make of what was planned.
Found Invariants::check_transport(const Observation& observation) const {
  std::vector<ReadState> reads;
  for (const ScriptedTransport::Read& read : copies_.transport().reads()) {
    ReadState& state = reads.emplace_back();
    state.read = read.read;
    state.rank = read.spec.rank;
    state.remote_rank = read.spec.remote_rank;
    state.request = read.spec.request;
    state.remote_request = read.spec.remote_request;
    state.local_blocks = read.spec.local_blocks;
    state.remote_blocks = read.spec.remote_blocks;
    state.progress = read.progress;
  }
  if (*observation.reads != reads) return broken(kP11, "reads", reads, *observation.reads);
  std::vector<NoticeState> notices;
  for (const ScriptedTransport::SentNotice& sent : copies_.transport().notices()) {
    NoticeState& state = notices.emplace_back();
    state.notice = sent.number;
    state.rank = sent.notice.rank;
    state.remote_rank = sent.notice.remote_rank;
    state.heartbeat = sent.notice.is_heartbeat;
    state.requests = sent.notice.requests;
    state.delivered = sent.is_delivered;
  }
  if (*observation.notices == notices) return std::nullopt;
  const auto without_heartbeats = [](std::vector<NoticeState> list) {
    std::erase_if(list, [](const NoticeState& notice) { return notice.heartbeat; });
    for (NoticeState& notice : list) notice.notice = 0;
    return list;
  };
  const bool is_heartbeat = without_heartbeats(notices) == without_heartbeats(*observation.notices);
  return broken(is_heartbeat ? kP14 : kP13, "notices", notices, *observation.notices);
}

Found Invariants::check_reads(const Observation& observation) const {
  for (const ReadState& read : *observation.reads) {
    if (!is_under_way(read.progress)) continue;
    const BlocksByGroup* const table =
        find_table(*observation.of(EngineRole::kConsumer).tables, read.request);
    for (const BlockId block : read.local_blocks) {
      if (table && contains(table->front(), block)) continue;
      return broken_phrase(kP2, "consumer_tables",
                           "block " + std::to_string(block) + " with " + read.request +
                               ", under read " + std::to_string(read.read),
                           "elsewhere");
    }
    const BlocksByGroup* const remote =
        find_table(*observation.of(EngineRole::kProducer).tables, read.remote_request);
    for (const BlockId block : read.remote_blocks) {
      if (remote && contains(remote->front(), block)) continue;
      return broken_phrase(kP1, "tables",
                           "block " + std::to_string(block) + " with " + read.remote_request +
                               ", under read " + std::to_string(read.read),
                           "elsewhere");
    }
  }
  return std::nullopt;
}

Found Invariants::check_held(const Observation& observation) const {
  for (const std::string& name : held_) {
    const std::vector<BlockId>& told = prefills_.at(name);
    const BlocksByGroup* const table =
        find_table(*observation.of(EngineRole::kProducer).tables, name);
    if (table && table->front() == told) continue;
    return broken(kP1, "tables[" + name + "]", told,
                  table ? table->front() : std::vector<BlockId>());
  }
  return std::nullopt;
}

Found Invariants::check_waiting(const Observation& observation) const {
  for (const RequestState& state : *observation.of(EngineRole::kConsumer).requests) {
    const bool is_loading = state.status == RequestStatus::kWaitingForRemoteKVs;
    if (!is_loading && !is_finished(state.status)) continue;
    if (awaited_.count(state.id) > 0) continue;
    if (is_loading && reported_.count(state.id) > 0) continue;
    return broken_phrase(kP17, "consumer_requests", "a load under way for " + state.id, "none");
  }
  return std::nullopt;
}

// ---- The end ----

Found Invariants::check_left(EngineRole role, const Observation& observation) const {
  const bool produces = role == EngineRole::kProducer;
  if (produces ? !held_.empty() : !awaited_.empty()) return std::nullopt;
  const bool has_requests = std::any_of(known_.begin(), known_.end(), [&](const auto& each) {
    return each.second.engine == role && each.second.is_unfinished;
  });
  const std::uint32_t num_referenced = observation.of(role).num_referenced_blocks;
  if (has_requests || num_referenced == 1) return std::nullopt;
  return broken(kP15, of_engine(role, "num_referenced_blocks"), std::uint32_t{1}, num_referenced);
}

Found Invariants::check_service(const Schedule& command, const Observation& observation) {
  const EngineRole role = command.engine;
  Engine& engine = engine_of(role);
  const SchedulerObservation& shown = observation.of(role);
  const bool starts_loads = role == EngineRole::kConsumer && !observation.reqs_to_recv->empty();
  const bool goes_on = starts_loads || !shown.scheduled->empty() || shown.never_fits.has_value() ||
                       !shown.preempted->empty();
  const bool waits = shown.num_waiting + shown.num_skipped_waiting > 0;
  const bool is_idle = before_ && before_->of(role).num_referenced_blocks == 1 &&
                       engine.in_flight.size() == 1 && engine.pause_state == PauseState::kUnpaused;
  engine.num_idle_steps = is_idle && waits && !goes_on ? engine.num_idle_steps + 1 : 0;
  if (engine.num_idle_steps < kIdleStepsMax) return std::nullopt;
  return broken_phrase(kP17, of_engine(role, "scheduled"), "somebody, since no block is held",
                       "nobody");
}

}  // namespace kvfence::engine::nixl
