#pragma once

/// What NIXL adds to a pair of engines: its record in the configuration, its commands, and what it
/// shows. Everything that reads or writes them derives from the declarations here
/// (contract/core/declare.h).
///
/// Between the engines are a router, and a transport and a clock that commands drive. A name is
/// used once in both engines together: upstream gives every request a random one.
///
/// With a window, or several groups, no read may fail: there is no deadline, and a request is
/// handed over once. (Upstream, v0.23.0 nixl/worker.py _handle_failed_transfer, reports no invalid
/// block there, and the request continues with blocks that were not read.) With a window a
/// producer's request that is for a consumer has max_tokens=1, and no request there gets drafts: a
/// token later its window has moved on.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "contract/core/declare.h"
#include "contract/core/status.h"
#include "contract/core/types.h"
#include "contract/kv_cache/kv_cache_spec.h"
#include "contract/scripted/scripted_transport.h"

namespace kvfence {

namespace engine::nixl {

using kvfence::operator==;

/// Errors: kBadRange: to "submitted"; kNotInConfig: a failure where none may happen; kUnknownJob:
/// no such read, or it has ended.
struct AdvanceRead {
  static constexpr Verb kVerb{"advance_read",
                              "a read makes progress; one that finishes sends a notice"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kBadRange,
                                            ErrorCode::kUnknownJob};
  ReadId read = 0;
  TransferProgress progress = TransferProgress::kFinished;
  static void declare(auto& fields) {
    using S = AdvanceRead;
    fields.add("read", &S::read, Domain::kNumber, "which");
    fields.optional("progress", &S::progress, Domain::kChoice, "part, finished or failed");
  }
};

/// A command about one notice.
struct OfNotice {
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kUnknownJob};
  NoticeId notice = 0;
  static void declare(auto& fields) {
    fields.add("notice", &OfNotice::notice, Domain::kNumber, "which");
  }
};

/// Errors: kUnknownJob: no such notice is under way.
struct DeliverNotice : OfNotice {
  static constexpr Verb kVerb{"deliver_notice", "a notice reaches the producer's rank"};
};

/// Errors: kNotInConfig: nothing may be lost; kUnknownJob: no such notice is under way.
struct LoseNotice : OfNotice {
  static constexpr Verb kVerb{"lose_notice", "a notice never reaches the producer's rank"};
};

/// Errors: kNotInConfig: nothing may be repeated; kUnknownJob: no such notice was delivered.
struct RepeatNotice : OfNotice {
  static constexpr Verb kVerb{"repeat_notice",
                              "a notice that was delivered is under way once more"};
};

/// Errors: kBadRange: beyond kSecondsMax.
struct AdvanceClock {
  static constexpr Verb kVerb{"advance_clock", "time goes by"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kBadRange};
  Seconds seconds = 0;
  static void declare(auto& fields) {
    fields.add("seconds", &AdvanceClock::seconds, Domain::kCount, "seconds to add");
  }
};

/// `(nixl deadline=30)` in the configuration: the producer's half in the producer, the consumer's
/// in the consumer.
struct Record {
  static constexpr std::string_view kWord = "nixl";
  Seconds deadline = 30;
  bool transport_may_fail = false;
  static void declare(auto& fields) {
    using S = Record;
    fields.add("deadline", &S::deadline,
               "seconds that the producer waits for its readers; 0: for ever");
    fields.optional("transport_may_fail", &S::transport_may_fail,
                    "reads can fail, notices can be lost or come twice");
  }
};

/// What the producer reports to a router.
struct FinishedPrefill {
  static constexpr std::string_view kWord = "prefill";
  std::string request;
  std::vector<BlockId> blocks;
  static void declare(auto& fields) {
    using S = FinishedPrefill;
    fields.add("request", &S::request, "the finished request");
    fields.add("blocks", &S::blocks, "where its KV is, group by group");
  }
};

using Send = ProducerMetadata::Send;
using Receive = ConsumerMetadata::Receive;

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
    fields.result("reqs_in_batch", &S::reqs_in_batch,
                  "of the producer, that the consumer may read");
    fields.result("reqs_not_processed", &S::reqs_not_processed,
                  "of the producer, that will not be read");
    fields.result("reqs_to_send", &S::reqs_to_send, "of the producer, finished and held");
    fields.result("reqs_to_recv", &S::reqs_to_recv, "of the consumer");
    fields.result("heartbeats", &S::heartbeats, "of the producer, whose lease is to be renewed");
    fields.result("finished_prefills", &S::finished_prefills,
                  "what a router can hand over from now on");
    fields.state("now", &S::now, "seconds");
    fields.state("reads", &S::reads, "in the order of submission");
    fields.state("notices", &S::notices, "in the order of sending");
  }
};

}  // namespace engine::nixl

struct SchedulerConfig;

/// Whether a read that fails is reported: with one group of full attention.
bool reports_failed_reads(std::span<const KVCacheSpec> groups);
bool has_window(std::span<const KVCacheSpec> groups);

/// Returns what both halves of a record are built from, or what is wrong with it. Besides
/// check_spec: groups have one block size and full attention, or windows of at least 2 tokens; a
/// window needs Rules::finish_drops_by_computed_tokens; no read may fail where failed reads are not
/// reported.
Parsed<DisaggregatedSpec> make_nixl_spec(const engine::nixl::Record& record,
                                         const SchedulerConfig& scheduler,
                                         std::uint32_t num_producer_ranks,
                                         std::uint32_t num_consumer_ranks);

}  // namespace kvfence
