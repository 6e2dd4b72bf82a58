#include "properties/engine/nixl/goals.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>
#include <variant>

#include "properties/core/invariant_values.h"

namespace kvfence::engine::nixl {
namespace {

using detail::contains;

const RequestState* find_state(const Observation& observation, EngineRole role,
                               std::string_view name) {
  const SchedulerObservation& shown = observation.of(role);
  if (!shown.requests.has_value()) return nullptr;
  for (const RequestState& state : *shown.requests) {
    if (state.id == name) return &state;
  }
  return nullptr;
}

template <class Match>
std::size_t count_reads(const Observation& observation, Match&& match) {
  if (!observation.reads.has_value()) return 0;
  return static_cast<std::size_t>(
      std::count_if(observation.reads->begin(), observation.reads->end(), match));
}

bool is_read(const Observation& observation, const std::string& remote_request) {
  return count_reads(observation, [&](const ReadState& read) {
           return read.remote_request == remote_request && read.is_under_way();
         }) > 0;
}

/// What the producer's ranks see in their next step.
std::vector<NoticeState> delivered_notices(const Observation& observation) {
  std::vector<NoticeState> delivered;
  if (!observation.notices.has_value()) return delivered;
  for (const NoticeState& notice : *observation.notices) {
    if (notice.delivered) delivered.push_back(notice);
  }
  return delivered;
}

}  // namespace

void Reach::start(const Config& config) {
  config_ = config;
  deadline_ = config.connector<Record>()->deadline;
  num_in_flight_ = {};
  told_in_flight_.clear();
  num_outputs_.clear();
  readers_.clear();
  sources_.clear();
}

void Reach::count(const Command& command, const Observation& before, const Observation& after,
                  const World& world) {
  if (after.error != ErrorCode::kNone) {
    add_error(after.error);
    return;
  }
  if (const auto* added = std::get_if<AddRequest>(&command)) {
    if (added->do_remote_decode) num_outputs_[added->id] = 0;
  } else if (const auto* handed_over = std::get_if<HandOver>(&command)) {
    readers_[handed_over->id].remote_request = handed_over->request;
    add(Reached::kHandedOverTwice, ++sources_[handed_over->request].num_readers > 1);
  } else if (const auto* planned = std::get_if<Schedule>(&command)) {
    count_plan(planned->engine, after);
    if (planned->engine == EngineRole::kConsumer) count_receives(after, world);
  } else if (const auto* updated = std::get_if<Update>(&command)) {
    --num_in_flight_[static_cast<std::size_t>(updated->engine)];
    if (updated->engine == EngineRole::kProducer) {
      count_producers_update(before, after);
    } else {
      count_consumers_update(before, after);
    }
  } else if (const auto* advance = std::get_if<AdvanceRead>(&command)) {
    count_read_end(*advance, before);
  } else if (const auto* lost = std::get_if<LoseNotice>(&command)) {
    if (!before.notices.has_value()) return;
    for (const NoticeState& notice : *before.notices) {
      if (notice.notice != lost->notice || notice.heartbeat) continue;
      add(Reached::kNoticeLost);
      Source& source = sources_[notice.requests.front()];
      source.has_lost_notice = true;
      add(Reached::kLostForEver, source.is_held && deadline_ == 0);
    }
  } else if (std::holds_alternative<RepeatNotice>(command)) {
    add(Reached::kNoticeRepeated);
  } else if (const auto* ended = std::get_if<FinishRequests>(&command)) {
    count_finish(*ended, before);
  } else if (const auto* reset = std::get_if<ResetPrefixCache>(&command)) {
    const bool is_done = *after.of(reset->engine).success;
    add(Reached::kResetRefused, !is_done);
    const auto& keys = before.of(reset->engine).keys;
    add(Reached::kResetDone,
        is_done && keys.has_value() &&
            std::any_of(keys->begin(), keys->end(), [](const auto& key) { return !key.empty(); }));
  }
}

// ---- A step is planned ----

void Reach::count_plan(EngineRole role, const Observation& after) {
  const SchedulerObservation& shown = after.of(role);
  std::uint32_t& num_in_flight = num_in_flight_[static_cast<std::size_t>(role)];
  add(Reached::kTwoStepsInFlight, num_in_flight > 0);
  ++num_in_flight;
  add(Reached::kNeverFits, shown.never_fits.has_value());
  if (role == EngineRole::kProducer) {
    for (const std::string& name : *shown.preempted) {
      add(Reached::kPreemptedProducer, num_outputs_.count(name) > 0);
    }
    std::vector<std::string>& told = told_in_flight_.emplace_back();
    for (const Send& send : *after.reqs_to_send) {
      told.push_back(send.request);
      sources_[send.request].expires = send.expires;
    }
    return;
  }
  for (const std::string& name : *shown.preempted) {
    const auto reader = readers_.find(name);
    add(Reached::kPreemptedConsumer,
        reader != readers_.end() && !reader->second.local_blocks.empty());
  }
  for (const ScheduledNew& each : *shown.new_reqs) {
    const auto reader = readers_.find(each.request);
    if (reader == readers_.end()) {
      add(Reached::kLocalBesideRemote,
          count_reads(after, std::mem_fn(&ReadState::is_under_way)) > 0);
    } else {
      add(Reached::kFailedRecomputed, reader->second.has_failed);
    }
  }
  add(Reached::kHeartbeat, !after.heartbeats->empty());
  add(Reached::kHeartbeatOfSeveral, after.heartbeats->size() > 1);
}

void Reach::count_receives(const Observation& after, const World& world) {
  for (const Receive& receive : *after.reqs_to_recv) {
    Reader& reader = readers_[receive.request];
    const std::size_t num_prompt_tokens =
        world.requests().find(receive.request)->all_token_ids().size();
    const std::size_t num_blocks = receive.local_blocks.size();
    if (num_blocks == 0) {
      const auto& scheduled = *after.of(EngineRole::kConsumer).scheduled;
      const bool is_admitted =
          std::any_of(scheduled.begin(), scheduled.end(),
                      [&](const auto& each) { return each.request == receive.request; });
      add(is_admitted ? Reached::kEmptyRead : Reached::kAbortBeforeRead);
      continue;
    }
    reader.local_blocks = receive.local_blocks;
    const std::uint32_t size = config_.groups.front().block_size;
    reader.has_hit = num_blocks < (num_prompt_tokens + size - 1) / size;
    add(Reached::kRead);
    add(Reached::kReadBehindHit, reader.has_hit);
    add(Reached::kSeveralReaders, config_.consumer_ranks > config_.ranks);
    add(Reached::kSeveralSources, config_.ranks > config_.consumer_ranks);
    add(Reached::kReadTwiceAtOnce, is_read(after, receive.remote_request));
  }
}

// ---- The producer's step comes back ----

void Reach::count_producers_update(const Observation& before, const Observation& after) {
  for (const std::string& name : told_in_flight_.front()) {
    sources_[name].is_known_to_workers = true;
  }
  told_in_flight_.erase(told_in_flight_.begin());
  for (const std::string& name : *after.finished_sending) count_sent(name, before, after);
  count_notices(before, after);
  for (const std::string& name : *after.finished_sending) sources_[name].is_held = false;
  for (auto& [name, source] : sources_) {
    if (!source.is_held || !source.is_known_to_workers) continue;
    if (!source.expires || *source.expires > *after.now) continue;
    add(Reached::kLeaseRenewed, !source.was_renewed);
    source.was_renewed = true;
  }
  count_prefills(after);
}

void Reach::count_sent(const std::string& name, const Observation& before,
                       const Observation& after) {
  const Source& source = sources_[name];
  const bool is_over = source.expires && *source.expires <= *after.now;
  const std::vector<NoticeState> notices = delivered_notices(before);
  const bool is_told = std::any_of(notices.begin(), notices.end(), [&](const NoticeState& notice) {
    return !notice.heartbeat && notice.requests.front() == name;
  });
  const bool is_others_held = std::any_of(sources_.begin(), sources_.end(), [&](const auto& other) {
    return other.second.is_held && !contains(*after.finished_sending, other.first);
  });
  if (!is_over) {
    add(Reached::kSent);
    add(Reached::kSentWhileOthersAreHeld, is_others_held);
    add(Reached::kReaderBeforeProducer, !source.is_known_to_workers);
    add(Reached::kSecondReadFailed, is_read(before, name));
    return;
  }
  add(Reached::kExpired);
  add(Reached::kExpiredUnread, source.num_readers == 0);
  add(Reached::kExpiredUnderRead, is_read(before, name) && !is_told);
  add(Reached::kNoticeAtDeadline, is_told);
  add(Reached::kLostThenExpired, source.has_lost_notice);
  add(Reached::kRenewedThenExpired, source.was_renewed);
  for (const auto& [other_name, other] : sources_) {
    const bool was_over = other.is_held && other.expires && *other.expires <= *after.now;
    add(Reached::kRenewedBesideExpired, was_over && !contains(*after.finished_sending, other_name));
  }
}

void Reach::count_notices(const Observation& before, const Observation& after) {
  const std::vector<NoticeState> notices = delivered_notices(before);
  std::set<std::pair<std::uint32_t, std::string>> said;
  for (const NoticeState& notice : notices) {
    if (notice.heartbeat) continue;
    const std::string& name = notice.requests.front();
    const Source& source = sources_[name];
    add(Reached::kLateNotice, !source.is_held);
    const bool is_again =
        !said.emplace(notice.rank * config_.ranks + notice.remote_rank, name).second;
    const bool is_held = source.is_held && !contains(*after.finished_sending, name);
    add(is_held ? Reached::kRepeatedWhileHeld : Reached::kRepeatedBehindEnd, is_again);
  }
}

void Reach::count_prefills(const Observation& after) {
  std::set<std::string> told;
  for (const FinishedPrefill& prefill : *after.finished_prefills) told.insert(prefill.request);
  for (const RequestOutput& output : *after.of(EngineRole::kProducer).outputs) {
    const auto own = num_outputs_.find(output.request);
    if (own == num_outputs_.end()) continue;
    own->second += output.tokens.size();
    const bool is_told = told.count(output.request) > 0;
    add(Reached::kDecodedAtProducer, is_told && own->second > 1);
    if (is_told) sources_[output.request].is_held = true;
    add(Reached::kFinishedWithoutBlocks,
        !is_told && output.status == RequestStatus::kFinishedLengthCapped);
    if (output.status != RequestStatus::kFinishedStopped) continue;
    add(is_told ? Reached::kStoppedSent : Reached::kStoppedNotSent);
  }
}

// ---- The consumer's step comes back ----

void Reach::count_consumers_update(const Observation& before, const Observation& after) {
  for (auto& [name, reader] : readers_) {
    if (reader.is_reported) continue;
    reader.has_failed =
        reader.has_failed ||
        std::any_of(reader.local_blocks.begin(), reader.local_blocks.end(),
                    [&](BlockId block) { return contains(*after.invalid_blocks, block); });
  }
  for (const std::string& name : *after.finished_recving) {
    Reader& reader = readers_[name];
    reader.is_reported = true;
    const RequestState* const state = find_state(before, EngineRole::kConsumer, name);
    const bool had_ended = state && is_finished(state->status);
    add(Reached::kAbortedReadFreed, had_ended);
    add(Reached::kAbortedReadFailed, had_ended && reader.has_failed);
    add(Reached::kFailedBehindHit, reader.has_failed && reader.has_hit);
    const Source& source = sources_[reader.remote_request];
    const bool began_now =
        before.reads.has_value() &&
        count_reads(before, [&](const ReadState& read) { return read.request == name; }) == 0;
    add(Reached::kReadBehindExpiry, began_now && reader.has_failed && !source.is_held);
  }
  for (const RequestOutput& output : *after.of(EngineRole::kConsumer).outputs) {
    const bool is_failure = output.status == RequestStatus::kFinishedError;
    add(Reached::kFailedForGood, is_failure && contains(*after.finished_recving, output.request));
  }
}

// ---- Clients and transport ----

void Reach::count_finish(const FinishRequests& command, const Observation& before) {
  for (const std::string& name : command.requests) {
    const RequestState* const state = find_state(before, command.engine, name);
    if (!state) continue;
    if (command.engine == EngineRole::kProducer) {
      if (num_outputs_.count(name) == 0) continue;
      add(Reached::kAbortWhileHeld, is_finished(state->status));
      add(Reached::kAbortAtProducer, state->status == RequestStatus::kRunning);
      add(Reached::kAbortAtProducerWaiting, state->status == RequestStatus::kWaiting);
      continue;
    }
    if (state->status != RequestStatus::kWaitingForRemoteKVs) continue;
    const bool is_reading =
        count_reads(before, [&](const ReadState& read) { return read.request == name; }) > 0;
    add(Reached::kAbortWhileReading, is_reading);
    add(Reached::kAbortBehindRead, readers_[name].is_reported);
  }
}

void Reach::count_read_end(const AdvanceRead& command, const Observation& before) {
  add(Reached::kPartOfRead, command.progress == TransferProgress::kPart);
  add(Reached::kReadFailed, command.progress == TransferProgress::kFailed);
  if (!before.reads.has_value() || command.progress == TransferProgress::kPart) return;
  const auto at = std::find_if(before.reads->begin(), before.reads->end(),
                               [&](const ReadState& read) { return read.read == command.read; });
  if (at == before.reads->end()) return;
  bool is_late = false;
  bool differs = false;
  for (const ReadState& other : *before.reads) {
    if (other.request != at->request || other.read == at->read) continue;
    is_late = is_late || other.is_under_way();
    differs = differs || (!other.is_under_way() && other.progress != command.progress);
  }
  add(Reached::kLateRank, is_late);
  add(Reached::kReadFailedOnARank, differs);
}

}  // namespace kvfence::engine::nixl
