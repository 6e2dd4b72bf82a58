#pragma once

/// The `disaggregated` target: a producer and a consumer engine, each a scheduler with its half of
/// a connector and the workers of all its ranks; between them a router, and a transport and a clock
/// that are commands. Everything that reads or writes its configuration line, commands and
/// observations derives from the declarations here (contract/core/declare.h).
///
/// Each engine steps for itself: `schedule` and `update` say which. A step that was planned goes to
/// the workers when its output is taken in, as in the `connector` target. A name is used once in
/// both engines together: upstream gives every request a random one.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "contract/connectors/offloading/connector_target.h"
#include "contract/core/declare.h"
#include "contract/core/prefixed_fields.h"
#include "contract/core/shared_fields.h"
#include "contract/core/target.h"
#include "contract/scheduler/scheduler_target.h"
#include "contract/scripted/scripted_transport.h"

namespace kvfence {

/// Who of the pair.
enum class EngineRole : std::uint8_t { kProducer, kConsumer };

inline constexpr std::array<EngineRole, 2> kEngineRoles = {EngineRole::kProducer,
                                                           EngineRole::kConsumer};

/// "producer", "consumer".
std::string_view to_text(EngineRole role);

// Words of this target as values (disaggregated_target.cpp).
Value to_value(EngineRole member);
bool from_value(const Value& value, EngineRole& member, std::string& expected);

namespace disaggregated {

/// A command of one engine.
template <class Command>
struct OnEngine : Command {
  EngineRole engine = EngineRole::kProducer;
  static void declare(auto& fields) {
    fields.add("engine", &OnEngine::engine, Domain::kChoice, "producer or consumer");
    Command::declare(fields);
  }
  friend bool operator==(const OnEngine&, const OnEngine&) = default;
};

/// Errors, besides the scheduler's: kNotInConfig: do_remote_decode at the consumer.
struct AddRequest {
  static constexpr std::string_view kVerb = "add_request";
  static constexpr std::string_view kDoc = "a new request; a name is used once";
  EngineRole engine = EngineRole::kProducer;
  std::string id;
  std::vector<TokenId> tokens;
  bool do_remote_decode = false;
  std::uint32_t max_tokens = 16;
  std::vector<TokenId> stop_tokens;
  std::uint32_t priority = 0;
  std::uint32_t arrival_time = 0;
  std::optional<std::string> cache_salt;
  bool skip_reading_prefix_cache = false;
  static void declare(auto& fields) {
    using S = AddRequest;
    fields.add("engine", &S::engine, Domain::kChoice, "producer or consumer");
    fields.add("id", &S::id, Domain::kRequest, "its name");
    fields.add("tokens", &S::tokens, Domain::kTokens, "prompt tokens");
    fields
        .add("do_remote_decode", &S::do_remote_decode, Domain::kFlag,
             "the consumer will read its blocks")
        .optional();
    fields.add("max_tokens", &S::max_tokens, Domain::kCount, "output tokens at most").optional();
    fields.add("stop_tokens", &S::stop_tokens, Domain::kTokens, "each stops it").optional();
    fields.add("priority", &S::priority, Domain::kCount, "the smaller, the sooner").optional();
    fields.add("arrival_time", &S::arrival_time, Domain::kCount, "decides among equals").optional();
    fields.add("cache_salt", &S::cache_salt, Domain::kText, "enters the first block's hash")
        .optional();
    fields
        .add("skip_reading_prefix_cache", &S::skip_reading_prefix_cache, Domain::kFlag,
             "its lookups find nothing")
        .optional();
  }
  friend bool operator==(const AddRequest&, const AddRequest&) = default;
};

/// The consumer gets the prompt of the producer's request, and what the producer told of it. The
/// same request may be handed over again: routers try twice.
/// Errors, besides the scheduler's: kNotFinished: the producer told nothing of it.
struct HandOver {
  static constexpr std::string_view kVerb = "hand_over";
  static constexpr std::string_view kDoc = "the router adds a finished request to the consumer";
  std::string request;
  std::string id;
  std::uint32_t max_tokens = 16;
  std::uint32_t priority = 0;
  std::uint32_t arrival_time = 0;
  static void declare(auto& fields) {
    using S = HandOver;
    fields.add("request", &S::request, Domain::kRequest, "the producer's");
    fields.add("id", &S::id, Domain::kRequest, "its name at the consumer");
    fields.add("max_tokens", &S::max_tokens, Domain::kCount, "output tokens at most").optional();
    fields.add("priority", &S::priority, Domain::kCount, "the smaller, the sooner").optional();
    fields.add("arrival_time", &S::arrival_time, Domain::kCount, "decides among equals").optional();
  }
  friend bool operator==(const HandOver&, const HandOver&) = default;
};

/// Errors of the finishing ones: kBadRange: the status is not finished_aborted or finished_error.
/// Ends of their own come of what requests sample.
using Schedule = OnEngine<scheduler::Schedule>;
using Update = OnEngine<connector::Update>;
using FinishRequests = OnEngine<scheduler::FinishRequests>;
using FinishAllRequests = OnEngine<scheduler::FinishAllRequests>;
using SetPauseState = OnEngine<scheduler::SetPauseState>;
using ResetPrefixCache = OnEngine<connector::ResetPrefixCache>;
using scheduler::Sample;

/// Errors: kBadRange: to "submitted"; kNotInConfig: a failure where none may happen; kUnknownJob:
/// no such read, or it has ended.
struct AdvanceRead {
  static constexpr std::string_view kVerb = "advance_read";
  static constexpr std::string_view kDoc = "a read comes further; one that finishes sends a notice";
  ReadId read = 0;
  TransferProgress progress = TransferProgress::kFinished;
  static void declare(auto& fields) {
    using S = AdvanceRead;
    fields.add("read", &S::read, Domain::kCount, "which");
    fields.add("progress", &S::progress, Domain::kChoice, "part, finished or failed").optional();
  }
  friend bool operator==(const AdvanceRead&, const AdvanceRead&) = default;
};

/// Errors: kUnknownJob: no such notice is under way.
struct DeliverNotice {
  static constexpr std::string_view kVerb = "deliver_notice";
  static constexpr std::string_view kDoc = "a notice reaches the producer's rank";
  NoticeId notice = 0;
  static void declare(auto& fields) {
    fields.add("notice", &DeliverNotice::notice, Domain::kCount, "which");
  }
  friend bool operator==(const DeliverNotice&, const DeliverNotice&) = default;
};

/// Errors: kNotInConfig: nothing may be lost; kUnknownJob: no such notice is under way.
struct LoseNotice {
  static constexpr std::string_view kVerb = "lose_notice";
  static constexpr std::string_view kDoc = "a notice never reaches the producer's rank";
  NoticeId notice = 0;
  static void declare(auto& fields) {
    fields.add("notice", &LoseNotice::notice, Domain::kCount, "which");
  }
  friend bool operator==(const LoseNotice&, const LoseNotice&) = default;
};

/// Errors: kNotInConfig: nothing may be repeated; kUnknownJob: no such notice was delivered.
struct RepeatNotice {
  static constexpr std::string_view kVerb = "repeat_notice";
  static constexpr std::string_view kDoc = "a notice that was delivered is under way once more";
  NoticeId notice = 0;
  static void declare(auto& fields) {
    fields.add("notice", &RepeatNotice::notice, Domain::kCount, "which");
  }
  friend bool operator==(const RepeatNotice&, const RepeatNotice&) = default;
};

/// Errors: kBadRange: beyond kSecondsMax.
struct AdvanceClock {
  static constexpr std::string_view kVerb = "advance_clock";
  static constexpr std::string_view kDoc = "time goes by";
  Seconds seconds = 0;
  static void declare(auto& fields) {
    fields.add("seconds", &AdvanceClock::seconds, Domain::kCount, "how much");
  }
  friend bool operator==(const AdvanceClock&, const AdvanceClock&) = default;
};

using Command = std::variant<AddRequest, HandOver, Schedule, Update, AdvanceRead, DeliverNotice,
                             AdvanceClock, FinishRequests, FinishAllRequests, LoseNotice,
                             RepeatNotice, SetPauseState, ResetPrefixCache>;

/// The configuration as it stands on the config line. Both engines have the same, but for the
/// blocks of their pools and their ranks.
struct Config : scheduler::Config {
  std::uint32_t consumer_num_gpu_blocks = 0;
  std::uint32_t producer_world_size = 1;
  std::uint32_t consumer_world_size = 1;
  Seconds deadline = 30;
  bool transport_may_fail = false;
  static void declare(auto& fields) {
    using S = Config;
    kv_cache::Config::declare(fields);
    add_engine_fields<S>(fields, "steps in flight of each engine, 1 or 2");
    add_load_failure_field<S>(fields);
    fields
        .add("consumer_num_gpu_blocks", &S::consumer_num_gpu_blocks, Domain::kSetting,
             "blocks of the consumer's pool; 0: as many as the producer's")
        .optional();
    fields
        .add("producer_world_size", &S::producer_world_size, Domain::kSetting,
             "ranks of the producer")
        .optional();
    fields
        .add("consumer_world_size", &S::consumer_world_size, Domain::kSetting,
             "ranks of the consumer")
        .optional();
    fields.add("deadline", &S::deadline, Domain::kSetting,
               "seconds that the producer waits for its readers; 0: for ever");
    fields
        .add("transport_may_fail", &S::transport_may_fail, Domain::kSetting,
             "reads can fail, notices can be lost or come twice")
        .optional();
  }
  friend bool operator==(const Config&, const Config&) = default;
};

/// What the producer tells a router.
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
    fields
        .add("local_blocks", &S::local_blocks, Domain::kResult, "into; none: the producer is told")
        .optional();
    fields.add("remote_blocks", &S::remote_blocks, Domain::kResult, "from, one by one").optional();
  }
  friend bool operator==(const Receive&, const Receive&) = default;
};

/// A read that a rank of the consumer started and was not told the end of.
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
    fields.add("rank", &S::rank, Domain::kState, "the consumer's").optional();
    fields.add("remote_rank", &S::remote_rank, Domain::kState, "the producer's").optional();
    fields.add("request", &S::request, Domain::kState, "for whom");
    fields.add("remote_request", &S::remote_request, Domain::kState, "of whom");
    fields.add("local_blocks", &S::local_blocks, Domain::kState, "into");
    fields.add("remote_blocks", &S::remote_blocks, Domain::kState, "from, one by one");
    fields.add("progress", &S::progress, Domain::kState, "how far");
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
    fields.add("rank", &S::rank, Domain::kState, "the consumer's").optional();
    fields.add("remote_rank", &S::remote_rank, Domain::kState, "the producer's").optional();
    fields.add("heartbeat", &S::heartbeat, Domain::kState, "renews leases").optional();
    fields.add("requests", &S::requests, Domain::kState, "the producer's");
    fields.add("delivered", &S::delivered, Domain::kState, "waits until the rank looks").optional();
  }
  friend bool operator==(const NoticeState&, const NoticeState&) = default;
};

/// What each scheduler owes its caller: answers only of the one that was asked. Neither `error`,
/// which is the pair's, nor connector_calls are used.
struct ProducerObservation : scheduler::Observation {
  static constexpr std::string_view kPrefix = "producer_";
  friend bool operator==(const ProducerObservation&, const ProducerObservation&) = default;
};
struct ConsumerObservation : scheduler::Observation {
  static constexpr std::string_view kPrefix = "consumer_";
  friend bool operator==(const ConsumerObservation&, const ConsumerObservation&) = default;
};

/// What the pair owes its caller after a command.
struct Observation : ProducerObservation, ConsumerObservation {
  ErrorCode error = ErrorCode::kNone;

  // schedule of the producer
  Reusable<std::vector<std::string>> reqs_in_batch;
  Reusable<std::vector<std::string>> reqs_not_processed;
  Reusable<std::vector<Send>> reqs_to_send;

  // schedule of the consumer
  Reusable<std::vector<Receive>> reqs_to_recv;
  Reusable<std::vector<std::string>> heartbeats;

  // update: the report of all ranks together
  Reusable<std::vector<std::string>> finished_sending;
  Reusable<std::vector<std::string>> finished_recving;
  Reusable<std::vector<BlockId>> invalid_blocks;
  Reusable<std::vector<FinishedPrefill>> finished_prefills;

  // After every command.
  Seconds now = 0;

  // The whole state: where asked for.
  Reusable<std::vector<ReadState>> reads;
  Reusable<std::vector<NoticeState>> notices;

  scheduler::Observation& of(EngineRole role) {
    if (role == EngineRole::kProducer) return static_cast<ProducerObservation&>(*this);
    return static_cast<ConsumerObservation&>(*this);
  }
  const scheduler::Observation& of(EngineRole role) const {
    if (role == EngineRole::kProducer) return static_cast<const ProducerObservation&>(*this);
    return static_cast<const ConsumerObservation&>(*this);
  }

  static void declare(auto& fields) {
    using S = Observation;

    add_prefixed_fields<ProducerObservation>(fields);
    add_prefixed_fields<ConsumerObservation>(fields);
    fields.add("reqs_in_batch", &S::reqs_in_batch, Domain::kResult,
               "of the producer, that the consumer may read");
    fields.add("reqs_not_processed", &S::reqs_not_processed, Domain::kResult,
               "of the producer, that nobody will read");
    fields.add("reqs_to_send", &S::reqs_to_send, Domain::kResult,
               "of the producer, finished and held");
    fields.add("reqs_to_recv", &S::reqs_to_recv, Domain::kResult, "of the consumer");
    fields.add("heartbeats", &S::heartbeats, Domain::kResult,
               "of the producer, whose lease is to be renewed");
    fields.add("finished_sending", &S::finished_sending, Domain::kResult,
               "read, or waited for in vain");
    fields.add("finished_recving", &S::finished_recving, Domain::kResult, "loads that are over");
    fields.add("invalid_blocks", &S::invalid_blocks, Domain::kResult, "loads that failed");
    fields.add("finished_prefills", &S::finished_prefills, Domain::kResult,
               "what a router can hand over from now on");
    fields.add("now", &S::now, Domain::kState, "seconds");
    fields.add("reads", &S::reads, Domain::kState, "in the order of submission");
    fields.add("notices", &S::notices, Domain::kState, "in the order of sending");
  }
  friend bool operator==(const Observation&, const Observation&) = default;
};

/// As the scheduler's, for both engines.
class World : public scheduler::World {
 public:
  using scheduler::World::World;
  void apply(const Command& command);
};

}  // namespace disaggregated

/// What a pair is built from.
struct DisaggregatedSetup {
  std::array<SchedulerConfig, 2> schedulers;  ///< by EngineRole
  DisaggregatedSpec spec;
};

/// The same, or what is wrong with the configuration (position: the config line): what a scheduler
/// and check_spec say, and one group of full attention.
Parsed<DisaggregatedSetup> make_disaggregated_setup(const disaggregated::Config& config,
                                                    std::string_view file = {},
                                                    Position position = {});

/// What generic code knows of the target.
struct DisaggregatedTarget {
  static constexpr std::string_view kName = "disaggregated";
  static constexpr std::string_view kDoc =
      "prefill and decode engines: remote reads, notices, deadlines and leases, failures";
  using Config = disaggregated::Config;
  using Command = disaggregated::Command;
  using Observation = disaggregated::Observation;
  using World = disaggregated::World;
  using Numbers = Observation;
  using Setup = DisaggregatedSetup;

  static Parsed<Setup> prepare(const Config& config, std::string_view file, Position position);
  static World make_world(const Config& config, const Setup& setup);
  static const Target& description();
};

}  // namespace kvfence
