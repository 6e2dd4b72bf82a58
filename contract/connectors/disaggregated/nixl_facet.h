#pragma once

/// What NIXL adds to a pair of engines: its record in the configuration, its commands, and what it
/// shows. Everything that reads or writes them derives from the declarations here
/// (contract/core/declare.h).
///
/// Between the engines are a router, and a transport and a clock that are commands. A name is used
/// once in both engines together: upstream gives every request a random one.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/status.h"
#include "contract/core/types.h"
#include "contract/scripted/transfer_progress.h"

namespace kvfence {

namespace engine::nixl {

/// Errors: kBadRange: to "submitted"; kNotInConfig: a failure where none may happen; kUnknownJob:
/// no such read, or it has ended.
struct AdvanceRead {
  static constexpr std::string_view kVerb = "advance_read";
  static constexpr std::string_view kDoc = "a read comes further; one that finishes sends a notice";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kBadRange,
                                            ErrorCode::kUnknownJob};
  ReadId read = 0;
  TransferProgress progress = TransferProgress::kFinished;
  static void declare(auto& fields) {
    using S = AdvanceRead;
    fields.add("read", &S::read, Domain::kNumber, "which");
    fields.optional("progress", &S::progress, Domain::kChoice, "part, finished or failed");
  }
  friend bool operator==(const AdvanceRead&, const AdvanceRead&) = default;
};

/// Errors: kUnknownJob: no such notice is under way.
struct DeliverNotice {
  static constexpr std::string_view kVerb = "deliver_notice";
  static constexpr std::string_view kDoc = "a notice reaches the producer's rank";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kUnknownJob};
  NoticeId notice = 0;
  static void declare(auto& fields) {
    fields.add("notice", &DeliverNotice::notice, Domain::kNumber, "which");
  }
  friend bool operator==(const DeliverNotice&, const DeliverNotice&) = default;
};

/// Errors: kNotInConfig: nothing may be lost; kUnknownJob: no such notice is under way.
struct LoseNotice {
  static constexpr std::string_view kVerb = "lose_notice";
  static constexpr std::string_view kDoc = "a notice never reaches the producer's rank";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kUnknownJob};
  NoticeId notice = 0;
  static void declare(auto& fields) {
    fields.add("notice", &LoseNotice::notice, Domain::kNumber, "which");
  }
  friend bool operator==(const LoseNotice&, const LoseNotice&) = default;
};

/// Errors: kNotInConfig: nothing may be repeated; kUnknownJob: no such notice was delivered.
struct RepeatNotice {
  static constexpr std::string_view kVerb = "repeat_notice";
  static constexpr std::string_view kDoc = "a notice that was delivered is under way once more";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kUnknownJob};
  NoticeId notice = 0;
  static void declare(auto& fields) {
    fields.add("notice", &RepeatNotice::notice, Domain::kNumber, "which");
  }
  friend bool operator==(const RepeatNotice&, const RepeatNotice&) = default;
};

/// Errors: kBadRange: beyond kSecondsMax.
struct AdvanceClock {
  static constexpr std::string_view kVerb = "advance_clock";
  static constexpr std::string_view kDoc = "time goes by";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kBadRange};
  Seconds seconds = 0;
  static void declare(auto& fields) {
    fields.add("seconds", &AdvanceClock::seconds, Domain::kCount, "how much");
  }
  friend bool operator==(const AdvanceClock&, const AdvanceClock&) = default;
};

/// `(nixl deadline=30)` in the configuration: the producer's half in the producer, the consumer's
/// in the consumer.
struct Record {
  static constexpr std::string_view kWord = "nixl";
  Seconds deadline = 30;
  bool transport_may_fail = false;
  static void declare(auto& fields) {
    using S = Record;
    fields.add("deadline", &S::deadline, Domain::kSetting,
               "seconds that the producer waits for its readers; 0: for ever");
    fields.optional("transport_may_fail", &S::transport_may_fail, Domain::kSetting,
                    "reads can fail, notices can be lost or come twice");
  }
  friend bool operator==(const Record&, const Record&) = default;
};

/// What the producer reports to a router.
struct FinishedPrefill {
  static constexpr std::string_view kWord = "prefill";
  std::string request;
  std::vector<BlockId> blocks;
  static void declare(auto& fields) {
    using S = FinishedPrefill;
    fields.add("request", &S::request, Domain::kResult, "of whom");
    fields.add("blocks", &S::blocks, Domain::kResult, "where its KV is");
  }
  friend bool operator==(const FinishedPrefill&, const FinishedPrefill&) = default;
};

/// A finished request whose blocks the producer holds.
struct Send {
  static constexpr std::string_view kWord = "send";
  std::string request;
  std::optional<Seconds> expires;
  static void declare(auto& fields) {
    using S = Send;
    fields.add("request", &S::request, Domain::kResult, "whose blocks");
    fields.add("expires", &S::expires, Domain::kResult, "given back unread then");
  }
  friend bool operator==(const Send&, const Send&) = default;
};

/// What the consumer is to read.
struct Receive {
  static constexpr std::string_view kWord = "receive";
  std::string request;
  std::string remote_request;
  std::vector<BlockId> local_blocks;
  std::vector<BlockId> remote_blocks;
  static void declare(auto& fields) {
    using S = Receive;
    fields.add("request", &S::request, Domain::kResult, "for whom");
    fields.add("remote_request", &S::remote_request, Domain::kResult, "of whom");
    fields.optional("local_blocks", &S::local_blocks, Domain::kResult,
                    "into; none: the producer is told");
    fields.optional("remote_blocks", &S::remote_blocks, Domain::kResult, "from, one by one");
  }
  friend bool operator==(const Receive&, const Receive&) = default;
};

/// A read that a rank of the consumer started, and whose end was not reported to it.
struct ReadState {
  static constexpr std::string_view kWord = "read";
  ReadId read = 0;
  std::uint32_t rank = 0;
  std::uint32_t remote_rank = 0;
  std::string request;
  std::string remote_request;
  std::vector<BlockId> local_blocks;
  std::vector<BlockId> remote_blocks;
  TransferProgress progress = TransferProgress::kSubmitted;
  static void declare(auto& fields) {
    using S = ReadState;
    fields.add("read", &S::read, Domain::kState, "its number");
    fields.optional("rank", &S::rank, Domain::kState, "the consumer's");
    fields.optional("remote_rank", &S::remote_rank, Domain::kState, "the producer's");
    fields.add("request", &S::request, Domain::kState, "for whom");
    fields.add("remote_request", &S::remote_request, Domain::kState, "of whom");
    fields.add("local_blocks", &S::local_blocks, Domain::kState, "into");
    fields.add("remote_blocks", &S::remote_blocks, Domain::kState, "from, one by one");
    fields.add("progress", &S::progress, Domain::kState, "how far");
  }
  bool is_under_way() const {
    return progress == TransferProgress::kSubmitted || progress == TransferProgress::kPart;
  }
  friend bool operator==(const ReadState&, const ReadState&) = default;
};

/// A notice that the producer's rank has not seen.
struct NoticeState {
  static constexpr std::string_view kWord = "notice";
  NoticeId notice = 0;
  std::uint32_t rank = 0;
  std::uint32_t remote_rank = 0;
  bool heartbeat = false;
  std::vector<std::string> requests;
  bool delivered = false;
  static void declare(auto& fields) {
    using S = NoticeState;
    fields.add("notice", &S::notice, Domain::kState, "its number");
    fields.optional("rank", &S::rank, Domain::kState, "the consumer's");
    fields.optional("remote_rank", &S::remote_rank, Domain::kState, "the producer's");
    fields.optional("heartbeat", &S::heartbeat, Domain::kState, "renews leases");
    fields.add("requests", &S::requests, Domain::kState, "the producer's");
    fields.optional("delivered", &S::delivered, Domain::kState, "waits until the rank looks");
  }
  friend bool operator==(const NoticeState&, const NoticeState&) = default;
};

/// What the pair shows besides what its schedulers do, and the report of its workers.
struct Observed {
  // schedule of the producer
  Reusable<std::vector<std::string>> reqs_in_batch;
  Reusable<std::vector<std::string>> reqs_not_processed;
  Reusable<std::vector<Send>> reqs_to_send;

  // schedule of the consumer
  Reusable<std::vector<Receive>> reqs_to_recv;
  Reusable<std::vector<std::string>> heartbeats;

  Reusable<std::vector<FinishedPrefill>> finished_prefills;  ///< update

  Reusable<Seconds> now;  ///< after every command

  // The whole state: where asked for.
  Reusable<std::vector<ReadState>> reads;
  Reusable<std::vector<NoticeState>> notices;

  static void declare(auto& fields) {
    using S = Observed;
    fields.add("reqs_in_batch", &S::reqs_in_batch, Domain::kResult,
               "of the producer, that the consumer may read");
    fields.add("reqs_not_processed", &S::reqs_not_processed, Domain::kResult,
               "of the producer, that nobody will read");
    fields.add("reqs_to_send", &S::reqs_to_send, Domain::kResult,
               "of the producer, finished and held");
    fields.add("reqs_to_recv", &S::reqs_to_recv, Domain::kResult, "of the consumer");
    fields.add("heartbeats", &S::heartbeats, Domain::kResult,
               "of the producer, whose lease is to be renewed");
    fields.add("finished_prefills", &S::finished_prefills, Domain::kResult,
               "what a router can hand over from now on");
    fields.add("now", &S::now, Domain::kState, "seconds");
    fields.add("reads", &S::reads, Domain::kState, "in the order of submission");
    fields.add("notices", &S::notices, Domain::kState, "in the order of sending");
  }
  friend bool operator==(const Observed&, const Observed&) = default;
};

}  // namespace engine::nixl

}  // namespace kvfence
