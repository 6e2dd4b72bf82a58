/// The coverage goals of runs of a pair. A suite in which no deadline ended a read has not tested
/// that.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "contract/core/lists.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "properties/core/invariant_values.h"
#include "properties/engine/drafts_in_flight.h"
#include "properties/engine/shown_requests.h"

namespace kvfence::engine::nixl {
namespace {

constexpr Goal kGoals[] = {
    {"read", "a request waits while its prompt is read"},
    {"read_after_hit", "a read began after blocks that the consumer had cached"},
    {"read_of_several_groups", "blocks of several groups were read"},
    {"several_groups_read_after_hit",
     "a read of several groups began after blocks that the consumer had cached"},
    {"read_of_a_window", "one of several groups had blocks before its window, which were not read"},
    {"empty_read", "a request had nothing to read, and the producer was notified"},
    {"part_of_read", "a read progressed without ending"},
    {"several_readers", "several ranks of the consumer read from one"},
    {"several_sources", "a rank of the consumer reads from several"},
    {"late_rank", "a read had ended while another one of its request was under way"},
    {"sent", "held blocks were given back after notices of all readers"},
    {"sent_while_others_are_held",
     "held blocks were given back, and those of another request were not"},
    {"reader_before_producer", "the readers were faster than the producer's own step"},
    {"expired", "held blocks were given back at their deadline"},
    {"expired_unread", "held blocks expired that were never handed over"},
    {"expired_under_read", "held blocks expired while a read of them was under way"},
    {"read_after_expiry", "a read began after the blocks were given back"},
    {"notice_at_deadline", "a last notice and the deadline came in one step"},
    {"late_notice", "a notice came after the blocks were given back"},
    {"notice_lost", "a notice was lost"},
    {"lost_then_expired", "blocks whose notice was lost were given back at their deadline"},
    {"lost_for_ever", "blocks whose notice was lost are held, since there is no deadline"},
    {"notice_repeated", "a notice was sent a second time"},
    {"repeated_while_held", "a rank sent its notice twice while another one had sent none"},
    {"repeated_after_end", "a notice came again after the blocks were given back"},
    {"heartbeat", "leases were renewed"},
    {"heartbeat_of_several", "several leases at once"},
    {"lease_renewed", "blocks were held beyond their first deadline"},
    {"renewed_then_expired", "blocks whose lease was renewed were given back when it expired"},
    {"renewed_beside_expired", "a request expired while one with a renewed lease stayed held"},
    {"read_failed", "a read failed"},
    {"read_failed_on_a_rank", "one read of a request failed, and another one did not"},
    {"failed_for_good", "a request ended, since its read failed"},
    {"failed_recomputed", "a request whose read failed was computed at the consumer"},
    {"failed_after_hit", "a read failed after blocks that the consumer had cached"},
    {"preempted_consumer", "a request that was read was preempted, and computed anew"},
    {"preempted_producer", "a request for a consumer was preempted, and got blocks a second time"},
    {"abort_before_read", "a request that was handed over ended before it got blocks"},
    {"abort_while_reading", "a request ended while it was read"},
    {"aborted_read_freed", "the read of a request that had ended was over"},
    {"aborted_read_failed", "the read of a request that had ended failed"},
    {"abort_after_read", "a request ended between the end of its read and its first step"},
    {"abort_at_producer", "a request for a consumer ended while it ran at the producer"},
    {"abort_at_producer_waiting", "a request for a consumer ended before it ran at the producer"},
    {"abort_while_held", "a client tried to end a request whose blocks are held"},
    {"stopped_sent", "a request that stopped was reported to the router"},
    {"stopped_not_sent", "a request that stopped was not reported to the router"},
    {"finished_without_blocks",
     "a request for a consumer finished after its preemption, and was not reported"},
    {"handed_over_twice", "a request was handed over a second time"},
    {"read_twice_at_once", "two requests read the same blocks at the same time"},
    {"second_read_failed", "the first reader's notice ended the read of a second one"},
    {"local_beside_remote",
     "a request of the consumer's own was served while another one was read"},
    {"decoded_at_producer", "a request that had decoded several tokens was reported to the router"},
    {"two_steps_in_flight", "a step was planned before the one before it came back"},
    {"reset_done", "a reset took keys of a cache"},
    {"reset_refused", "a reset did not succeed"},
    {"running_reset", "a reset preempted running requests while reads were under way"},
    {"preempted_priority", "a request was preempted under priority"},
    {"drafts_rejected", "a draft was rejected at a consumer while a read was under way"},
    {"never_fits", "a request ended, since it does not fit"},
};

template <class Match>
std::size_t count_reads(const Observation& observation, Match&& match) {
  return static_cast<std::size_t>(std::ranges::count_if(observation.reads.or_empty(), match));
}

bool is_read(const Observation& observation, const std::string& remote_request) {
  return count_reads(observation, [&](const ReadState& read) {
           return read.remote_request == remote_request && read.is_under_way();
         }) > 0;
}

/// The notices that the producer's ranks see in their next step.
std::vector<NoticeState> delivered_notices(const Observation& observation) {
  std::vector<NoticeState> delivered;
  std::ranges::copy_if(observation.notices.or_empty(), std::back_inserter(delivered),
                       &NoticeState::delivered);
  return delivered;
}

class Counter : public GoalCounter<EngineTarget, kGoals> {
 public:
  using GoalCounter::GoalCounter;

  void count_accepted(const Command& command) {
    const bool rejects = drafts_.rejects(command, after());
    add("drafts_rejected", rejects && count_reads(before(), &ReadState::is_under_way) > 0);
    if (const auto* added = std::get_if<AddRequest>(&command)) {
      if (added->do_remote_decode) num_outputs_[added->id] = 0;
    } else if (const auto* handed_over = std::get_if<HandOver>(&command)) {
      readers_[handed_over->id].remote_request = handed_over->request;
      add("handed_over_twice", ++sources_[handed_over->request].num_readers > 1);
    } else if (const auto* planned = std::get_if<Schedule>(&command)) {
      count_plan(planned->engine);
      add("preempted_priority", config().policy == SchedulingPolicy::kPriority &&
                                    !after().of(planned->engine).preempted->empty() &&
                                    !after().of(planned->engine).never_fits.has_value());
      if (planned->engine == EngineRole::kConsumer) count_receives();
    } else if (const auto* updated = std::get_if<Update>(&command)) {
      --num_in_flight_[static_cast<std::size_t>(updated->engine)];
      if (updated->engine == EngineRole::kProducer) {
        count_producers_update();
      } else {
        count_consumers_update();
      }
    } else if (const auto* advance = std::get_if<AdvanceRead>(&command)) {
      count_read_end(*advance);
    } else if (const auto* lost = std::get_if<LoseNotice>(&command)) {
      for (const NoticeState& notice : before().notices.or_empty()) {
        if (notice.notice != lost->notice || notice.is_heartbeat) continue;
        add("notice_lost");
        Source& source = sources_[notice.requests.front()];
        source.has_lost_notice = true;
        add("lost_for_ever", source.is_held && deadline_ == 0);
      }
    } else if (std::holds_alternative<RepeatNotice>(command)) {
      add("notice_repeated");
    } else if (const auto* ended = std::get_if<FinishRequests>(&command)) {
      count_finish(*ended);
    } else if (const auto* reset = std::get_if<ResetPrefixCache>(&command)) {
      const bool is_done = *after().of(reset->engine).success;
      add("reset_refused", !is_done);
      add("running_reset",
          reset->reset_running_requests && before().of(reset->engine).num_running > 0 &&
              std::ranges::any_of(before().reads.or_empty(), &ReadState::is_under_way));
      add("reset_done",
          is_done && std::ranges::any_of(before().of(reset->engine).keys.or_empty(),
                                         [](const auto& key) { return !key.empty(); }));
    }
  }

 private:
  // ---- A step is planned ----

  void count_plan(EngineRole role) {
    const SchedulerObservation& shown = after().of(role);
    std::uint32_t& num_in_flight = num_in_flight_[static_cast<std::size_t>(role)];
    add("two_steps_in_flight", num_in_flight > 0);
    ++num_in_flight;
    add("never_fits", shown.never_fits.has_value());
    if (role == EngineRole::kProducer) {
      for (const std::string& name : *shown.preempted) {
        add("preempted_producer", num_outputs_.count(name) > 0);
      }
      std::vector<std::string>& sends = sends_in_flight_.emplace_back();
      for (const Send& send : *after().reqs_to_send) {
        sends.push_back(send.request);
        sources_[send.request].expires = send.expires;
      }
      return;
    }
    for (const std::string& name : *shown.preempted) {
      const auto reader = readers_.find(name);
      add("preempted_consumer", reader != readers_.end() && !reader->second.local_blocks.empty());
    }
    for (const ScheduledNew& each : *shown.new_reqs) {
      const auto reader = readers_.find(each.request);
      if (reader == readers_.end()) {
        add("local_beside_remote", count_reads(after(), std::mem_fn(&ReadState::is_under_way)) > 0);
      } else {
        add("failed_recomputed", reader->second.has_failed);
      }
    }
    add("heartbeat", !after().heartbeats->empty());
    add("heartbeat_of_several", after().heartbeats->size() > 1);
  }

  void count_read_of_groups(const Receive& receive, const SchedulerObservation& consumer) {
    add("read_of_several_groups");
    if (!consumer.tables.has_value()) return;
    const BlocksByGroup* const table = detail::find_table(*consumer.tables, receive.request);
    if (!table) return;
    for (GroupId group = 0; group < table->size(); ++group) {
      if ((*table)[group].empty()) continue;
      const BlockId first = (*table)[group].front();
      const bool is_read = contains(receive.local_blocks, first);
      if (config().groups[group].is_full_attention()) {
        add("several_groups_read_after_hit", !is_read);
      } else {
        add("read_of_a_window", first == kNullBlockId);
      }
    }
  }

  void count_receives() {
    for (const Receive& receive : *after().reqs_to_recv) {
      Reader& reader = readers_[receive.request];
      const std::size_t num_prompt_tokens =
          world().requests().find(receive.request)->all_token_ids().size();
      const std::size_t num_blocks = receive.local_blocks.size();
      if (num_blocks == 0) {
        const auto& scheduled = *after().of(EngineRole::kConsumer).scheduled;
        const auto* const admitted =
            find_by(scheduled, &ScheduledRequest::request, receive.request);
        add(admitted ? Name("empty_read") : Name("abort_before_read"));
        continue;
      }
      reader.local_blocks = receive.local_blocks;
      const std::vector<KVCacheSpec>& groups = config().groups;
      const std::uint32_t size = groups.front().block_size;
      const bool has_all = num_blocks == groups.size() * ((num_prompt_tokens + size - 1) / size);
      reader.has_hit = !has_all && groups.size() == 1 && groups.front().is_full_attention();
      add("read");
      if (groups.size() > 1) count_read_of_groups(receive, after().of(EngineRole::kConsumer));
      add("read_after_hit", reader.has_hit);
      add("several_readers", config().consumer_ranks > config().ranks);
      add("several_sources", config().ranks > config().consumer_ranks);
      add("read_twice_at_once", is_read(after(), receive.remote_request));
    }
  }

  // ---- The producer's step comes back ----

  void count_producers_update() {
    for (const std::string& name : sends_in_flight_.front()) {
      sources_[name].is_known_to_workers = true;
    }
    sends_in_flight_.erase(sends_in_flight_.begin());
    for (const std::string& name : *after().finished_sending) count_sent(name);
    count_notices();
    for (const std::string& name : *after().finished_sending) sources_[name].is_held = false;
    for (auto& [name, source] : sources_) {
      if (!source.is_held || !source.is_known_to_workers) continue;
      if (!source.expires || *source.expires > *after().now) continue;
      add("lease_renewed", !source.was_renewed);
      source.was_renewed = true;
    }
    count_prefills();
  }

  void count_sent(const std::string& name) {
    const Source& source = sources_[name];
    const bool is_over = source.expires && *source.expires <= *after().now;
    const std::vector<NoticeState> notices = delivered_notices(before());
    const bool is_notified = std::ranges::any_of(notices, [&](const NoticeState& notice) {
      return !notice.is_heartbeat && notice.requests.front() == name;
    });
    const bool is_others_held = std::ranges::any_of(sources_, [&](const auto& other) {
      return other.second.is_held && !contains(*after().finished_sending, other.first);
    });
    if (!is_over) {
      add("sent");
      add("sent_while_others_are_held", is_others_held);
      add("reader_before_producer", !source.is_known_to_workers);
      add("second_read_failed", is_read(before(), name));
      return;
    }
    add("expired");
    add("expired_unread", source.num_readers == 0);
    add("expired_under_read", is_read(before(), name) && !is_notified);
    add("notice_at_deadline", is_notified);
    add("lost_then_expired", source.has_lost_notice);
    add("renewed_then_expired", source.was_renewed);
    for (const auto& [other_name, other] : sources_) {
      const bool was_over = other.is_held && other.expires && *other.expires <= *after().now;
      add("renewed_beside_expired", was_over && !contains(*after().finished_sending, other_name));
    }
  }

  void count_notices() {
    const std::vector<NoticeState> notices = delivered_notices(before());
    std::set<std::pair<std::uint32_t, std::string>> said;
    for (const NoticeState& notice : notices) {
      if (notice.is_heartbeat) continue;
      const std::string& name = notice.requests.front();
      const Source& source = sources_[name];
      add("late_notice", !source.is_held);
      const bool is_again =
          !said.emplace(notice.rank * config().ranks + notice.remote_rank, name).second;
      const bool is_held = source.is_held && !contains(*after().finished_sending, name);
      add(is_held ? Name("repeated_while_held") : Name("repeated_after_end"), is_again);
    }
  }

  void count_prefills() {
    std::set<std::string> sent;
    for (const FinishedPrefill& prefill : *after().finished_prefills) sent.insert(prefill.request);
    for (const RequestOutput& output : *after().of(EngineRole::kProducer).outputs) {
      const auto own = num_outputs_.find(output.request);
      if (own == num_outputs_.end()) continue;
      own->second += output.tokens.size();
      const bool is_sent = sent.count(output.request) > 0;
      add("decoded_at_producer", is_sent && own->second > 1);
      if (is_sent) sources_[output.request].is_held = true;
      add("finished_without_blocks",
          !is_sent && output.status == RequestStatus::kFinishedLengthCapped);
      if (output.status != RequestStatus::kFinishedStopped) continue;
      add(is_sent ? Name("stopped_sent") : Name("stopped_not_sent"));
    }
  }

  // ---- The consumer's step comes back ----

  void count_consumers_update() {
    for (auto& [name, reader] : readers_) {
      if (reader.is_reported) continue;
      reader.has_failed |= std::ranges::any_of(reader.local_blocks, [&](BlockId block) {
        return contains(*after().invalid_blocks, block);
      });
    }
    for (const std::string& name : *after().finished_recving) {
      Reader& reader = readers_[name];
      reader.is_reported = true;
      const RequestState* const state = find_state(before().of(EngineRole::kConsumer), name);
      const bool had_ended = state && is_finished(state->status);
      add("aborted_read_freed", had_ended);
      add("aborted_read_failed", had_ended && reader.has_failed);
      add("failed_after_hit", reader.has_failed && reader.has_hit);
      const Source& source = sources_[reader.remote_request];
      const bool began_now =
          before().reads.has_value() && !find_by(*before().reads, &ReadState::request, name);
      add("read_after_expiry", began_now && reader.has_failed && !source.is_held);
    }
    for (const RequestOutput& output : *after().of(EngineRole::kConsumer).outputs) {
      const bool is_failure = output.status == RequestStatus::kFinishedError;
      add("failed_for_good", is_failure && contains(*after().finished_recving, output.request));
    }
  }

  // ---- Clients and transport ----

  void count_finish(const FinishRequests& command) {
    for (const std::string& name : command.requests) {
      const RequestState* const state = find_state(before().of(command.engine), name);
      if (!state) continue;
      if (command.engine == EngineRole::kProducer) {
        if (num_outputs_.count(name) == 0) continue;
        add("abort_while_held", is_finished(state->status));
        add("abort_at_producer", state->status == RequestStatus::kRunning);
        add("abort_at_producer_waiting", state->status == RequestStatus::kWaiting);
        continue;
      }
      if (state->status != RequestStatus::kWaitingForRemoteKVs) continue;
      add("abort_while_reading",
          find_by(before().reads.or_empty(), &ReadState::request, name) != nullptr);
      add("abort_after_read", readers_[name].is_reported);
    }
  }

  void count_read_end(const AdvanceRead& command) {
    add("part_of_read", command.progress == TransferProgress::kPart);
    add("read_failed", command.progress == TransferProgress::kFailed);
    if (!before().reads.has_value() || command.progress == TransferProgress::kPart) return;
    const auto at = std::ranges::find(*before().reads, command.read, &ReadState::read);
    if (at == before().reads->end()) return;
    bool is_late = false;
    bool differs = false;
    for (const ReadState& other : *before().reads) {
      if (other.request != at->request || other.read == at->read) continue;
      is_late = is_late || other.is_under_way();
      differs = differs || (!other.is_under_way() && other.progress != command.progress);
    }
    add("late_rank", is_late);
    add("read_failed_on_a_rank", differs);
  }

  /// A request that was handed over.
  struct Reader {
    std::string remote_request;
    std::vector<BlockId> local_blocks;  ///< empty: it was not read
    bool has_hit = false;
    bool has_failed = false;
    bool is_reported = false;
  };

  /// A request of the producer that finished for a consumer.
  struct Source {
    std::optional<Seconds> expires;
    bool is_known_to_workers = false;
    bool is_held = true;
    bool has_lost_notice = false;
    bool was_renewed = false;
    std::uint32_t num_readers = 0;  ///< how often it was handed over
  };

  const Seconds deadline_ = config().connector<Record>()->deadline;
  DraftsInFlight drafts_{EngineRole::kConsumer};
  std::array<std::uint32_t, 2> num_in_flight_{};
  std::vector<std::vector<std::string>> sends_in_flight_;  ///< reqs_to_send, by step in flight
  std::map<std::string, std::size_t> num_outputs_;         ///< tokens of requests for a consumer
  std::map<std::string, Reader> readers_;
  std::map<std::string, Source> sources_;
};

}  // namespace

GoalSuite goals() { return goal_suite<EngineTarget, kGoals, Counter>(); }

}  // namespace kvfence::engine::nixl
