#pragma once

/// What a suite of runs of a pair has reached: a green suite in which no deadline ended a read has
/// shown nothing about that.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "contract/engine/engine_target.h"
#include "properties/core/goals_counts.h"

namespace kvfence::engine::nixl {

/// The situations that are counted. The order is that of kReachGoals.
enum class Reached : std::uint8_t {
  kRead,
  kReadBehindHit,
  kEmptyRead,
  kPartOfRead,
  kSeveralReaders,
  kSeveralSources,
  kLateRank,
  kSent,
  kSentWhileOthersAreHeld,
  kReaderBeforeProducer,
  kExpired,
  kExpiredUnread,
  kExpiredUnderRead,
  kReadBehindExpiry,
  kNoticeAtDeadline,
  kLateNotice,
  kNoticeLost,
  kLostThenExpired,
  kLostForEver,
  kNoticeRepeated,
  kRepeatedWhileHeld,
  kRepeatedBehindEnd,
  kHeartbeat,
  kHeartbeatOfSeveral,
  kLeaseRenewed,
  kRenewedThenExpired,
  kRenewedBesideExpired,
  kReadFailed,
  kReadFailedOnARank,
  kFailedForGood,
  kFailedRecomputed,
  kFailedBehindHit,
  kPreemptedConsumer,
  kPreemptedProducer,
  kAbortBeforeRead,
  kAbortWhileReading,
  kAbortedReadFreed,
  kAbortedReadFailed,
  kAbortBehindRead,
  kAbortAtProducer,
  kAbortAtProducerWaiting,
  kAbortWhileHeld,
  kStoppedSent,
  kStoppedNotSent,
  kFinishedWithoutBlocks,
  kHandedOverTwice,
  kReadTwiceAtOnce,
  kSecondReadFailed,
  kLocalBesideRemote,
  kDecodedAtProducer,
  kTwoStepsInFlight,
  kResetDone,
  kResetRefused,
  kNeverFits,
  kErrorUnknownRequest,
  kErrorBadRange,
  kErrorAlreadyDeclared,
  kErrorNoTokens,
  kErrorBeyondModelLength,
  kErrorNotInConfig,
  kErrorNotFinished,
  kErrorNoStepInFlight,
  kErrorStepsInFlight,
  kErrorWrongTokenCount,
  kErrorUnknownJob,
};

using ReachGoal = kvfence::ReachGoal<Reached>;

/// Every goal: what the command line and the documentation list.
inline constexpr std::array<ReachGoal, 65> kReachGoals = {{
    {Reached::kRead, "read", "a request waits while its prompt is read"},
    {Reached::kReadBehindHit, "read_behind_hit",
     "a read began behind blocks that the consumer had cached"},
    {Reached::kEmptyRead, "empty_read", "a request had nothing to read, and the producer was told"},
    {Reached::kPartOfRead, "part_of_read", "a read came further without an end"},
    {Reached::kSeveralReaders, "several_readers", "several consumer's ranks read from one"},
    {Reached::kSeveralSources, "several_sources", "a consumer's rank reads from several"},
    {Reached::kLateRank, "late_rank", "a read had ended while another one of its request went on",
     1, true},
    {Reached::kSent, "sent", "held blocks were given back, since all readers said so"},
    {Reached::kSentWhileOthersAreHeld, "sent_while_others_are_held",
     "held blocks were given back, and those of another request were not"},
    {Reached::kReaderBeforeProducer, "reader_before_producer",
     "the readers were faster than the producer's own step", 1, true},
    {Reached::kExpired, "expired", "held blocks were given back, since their time was over"},
    {Reached::kExpiredUnread, "expired_unread", "nobody had been told to read them"},
    {Reached::kExpiredUnderRead, "expired_under_read", "a read of them was under way", 1, true},
    {Reached::kReadBehindExpiry, "read_behind_expiry", "a read began when they were given back", 1,
     true},
    {Reached::kNoticeAtDeadline, "notice_at_deadline",
     "a last notice and the deadline came in one step", 1, true},
    {Reached::kLateNotice, "late_notice", "a notice came when the blocks were given back", 1, true},
    {Reached::kNoticeLost, "notice_lost", "a notice was lost", 1, true},
    {Reached::kLostThenExpired, "lost_then_expired",
     "blocks whose notice was lost were given back at their deadline", 1, true},
    {Reached::kLostForEver, "lost_for_ever",
     "blocks whose notice was lost are held, since there is no deadline", 1, true},
    {Reached::kNoticeRepeated, "notice_repeated", "a notice was sent a second time"},
    {Reached::kRepeatedWhileHeld, "repeated_while_held",
     "a rank said twice that it is done, while another one was not", 1, true},
    {Reached::kRepeatedBehindEnd, "repeated_behind_end",
     "a notice came again when the blocks were given back", 1, true},
    {Reached::kHeartbeat, "heartbeat", "leases were renewed"},
    {Reached::kHeartbeatOfSeveral, "heartbeat_of_several", "several leases at once"},
    {Reached::kLeaseRenewed, "lease_renewed", "blocks were held beyond their first deadline"},
    {Reached::kRenewedThenExpired, "renewed_then_expired",
     "blocks whose lease was renewed were given back when it was over", 1, true},
    {Reached::kRenewedBesideExpired, "renewed_beside_expired",
     "a deadline was over behind one that had been renewed"},
    {Reached::kReadFailed, "read_failed", "a read failed"},
    {Reached::kReadFailedOnARank, "read_failed_on_a_rank",
     "one read of a request failed, and another one did not", 1, true},
    {Reached::kFailedForGood, "failed_for_good", "a request ended, since its read failed"},
    {Reached::kFailedRecomputed, "failed_recomputed",
     "a request whose read failed was computed at the consumer"},
    {Reached::kFailedBehindHit, "failed_behind_hit",
     "a read failed behind blocks that the consumer had cached"},
    {Reached::kPreemptedConsumer, "preempted_consumer",
     "a request that was read was preempted, and computed anew"},
    {Reached::kPreemptedProducer, "preempted_producer",
     "a request for a consumer was preempted, and got blocks a second time"},
    {Reached::kAbortBeforeRead, "abort_before_read",
     "a request that was handed over ended before it got blocks"},
    {Reached::kAbortWhileReading, "abort_while_reading", "a request ended while it was read", 1,
     true},
    {Reached::kAbortedReadFreed, "aborted_read_freed",
     "the read of a request that had ended was over", 1, true},
    {Reached::kAbortedReadFailed, "aborted_read_failed",
     "the read of a request that had ended failed", 1, true},
    {Reached::kAbortBehindRead, "abort_behind_read",
     "a request ended between the end of its read and its first step", 1, true},
    {Reached::kAbortAtProducer, "abort_at_producer",
     "a request for a consumer ended while it ran at the producer", 1, true},
    {Reached::kAbortAtProducerWaiting, "abort_at_producer_waiting",
     "a request for a consumer ended before it ran at the producer", 1, true},
    {Reached::kAbortWhileHeld, "abort_while_held",
     "somebody tried to end a request whose blocks are held", 1, true},
    {Reached::kStoppedSent, "stopped_sent", "a request that stopped was told to the router"},
    {Reached::kStoppedNotSent, "stopped_not_sent", "a request that stopped was not"},
    {Reached::kFinishedWithoutBlocks, "finished_without_blocks",
     "a request for a consumer finished behind its preemption, and was not told", 1, true},
    {Reached::kHandedOverTwice, "handed_over_twice", "a request was handed over a second time"},
    {Reached::kReadTwiceAtOnce, "read_twice_at_once",
     "two requests read the same blocks at the same time", 1, true},
    {Reached::kSecondReadFailed, "second_read_failed",
     "the first reader's notice ended the read of a second one", 1, true},
    {Reached::kLocalBesideRemote, "local_beside_remote",
     "a request of the consumer's own was served while another one was read", 1, true},
    {Reached::kDecodedAtProducer, "decoded_at_producer",
     "a request was told to the router that had decoded several tokens"},
    {Reached::kTwoStepsInFlight, "two_steps_in_flight",
     "a step was planned before the one before it came back"},
    {Reached::kResetDone, "reset_done", "a reset took keys of a cache", 1, true},
    {Reached::kResetRefused, "reset_refused", "a reset did not succeed"},
    {Reached::kNeverFits, "never_fits", "a request ended, since it does not fit"},
    {Reached::kErrorUnknownRequest, "error_unknown_request", "refused with unknown_request"},
    {Reached::kErrorBadRange, "error_bad_range", "refused with bad_range"},
    {Reached::kErrorAlreadyDeclared, "error_already_declared", "refused with already_declared"},
    {Reached::kErrorNoTokens, "error_no_tokens", "refused with no_tokens"},
    {Reached::kErrorBeyondModelLength, "error_beyond_model_length",
     "refused with beyond_model_length"},
    {Reached::kErrorNotInConfig, "error_not_in_config", "refused with not_in_config"},
    {Reached::kErrorNotFinished, "error_not_finished", "refused with not_finished"},
    {Reached::kErrorNoStepInFlight, "error_no_step_in_flight", "refused with no_step_in_flight"},
    {Reached::kErrorStepsInFlight, "error_steps_in_flight", "refused with steps_in_flight"},
    {Reached::kErrorWrongTokenCount, "error_wrong_token_count", "refused with wrong_token_count"},
    {Reached::kErrorUnknownJob, "error_unknown_job", "refused with unknown_job"},
}};

/// Counts of one suite.
class Reach : public ReachCounts<kReachGoals> {
 public:
  /// A run begins under that configuration, which has to be a valid one of a pair; the counts stay.
  void start(const Config& config);

  /// Takes in one command, whatever it was answered. `before` is the whole observation of the
  /// command before, answer included; a default one for the first command of a run.
  ///
  /// Cost: linear in the requests, reads and notices.
  void count(const Command& command, const Observation& before, const Observation& after,
             const World& world);

 private:
  /// A request that the router handed over.
  struct Reader {
    std::string remote_request;
    std::vector<BlockId> local_blocks;  ///< none: it was not read
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
    std::uint32_t num_readers = 0;  ///< handed over so often
  };

  void count_plan(EngineRole role, const Observation& after);
  void count_receives(const Observation& after, const World& world);
  void count_producers_update(const Observation& before, const Observation& after);
  void count_sent(const std::string& name, const Observation& before, const Observation& after);
  void count_notices(const Observation& before, const Observation& after);
  void count_prefills(const Observation& after);
  void count_consumers_update(const Observation& before, const Observation& after);
  void count_finish(const FinishRequests& command, const Observation& before);
  void count_read_end(const AdvanceRead& command, const Observation& before);

  Config config_;
  Seconds deadline_ = 0;
  std::array<std::uint32_t, 2> num_in_flight_{};
  std::vector<std::vector<std::string>> told_in_flight_;  ///< reqs_to_send, by step in flight
  std::map<std::string, std::size_t> num_outputs_;        ///< tokens of requests for a consumer
  std::map<std::string, Reader> readers_;
  std::map<std::string, Source> sources_;
};

}  // namespace kvfence::engine::nixl
