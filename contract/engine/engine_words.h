#pragma once

/// The commands of an engine that are no connector's, and what its schedulers owe their callers.
/// Everything that reads or writes them derives from the declarations here
/// (contract/core/declare.h). The target is put together in contract/engine/engine_target.h.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/multi/multi_facet.h"
#include "contract/core/declare.h"
#include "contract/core/engine_role.h"
#include "contract/core/status.h"
#include "contract/core/types.h"
#include "contract/kv_cache/kv_cache_config.h"
#include "contract/pool/kv_events.h"
#include "contract/pool/pool_values.h"
#include "contract/scheduler/request_status.h"

namespace kvfence {

// Words of commands and observations as values.
Value to_value(RequestStatus member);
Value to_value(PauseState member);
bool from_value(const Value& value, RequestStatus& member, std::string& expected);
bool from_value(const Value& value, PauseState& member, std::string& expected);

namespace engine {

using kv_cache::BlockLists;
using kv_cache::RequestBlocks;

/// What the scripted connector, or a scripted child of a MultiConnector, answers about a request.
template <class S>
void add_script_fields(auto& fields) {
  fields.optional("external_tokens", &S::external_tokens, Domain::kTokenCount,
                  "leading tokens that the connector could load");
  fields.optional("load_async", &S::load_async, Domain::kFlag, "loads while the request waits");
  fields.optional("ask_again", &S::ask_again, Domain::kCount,
                  "lookups answered with ask again, first");
  fields.optional("hold_blocks", &S::hold_blocks, Domain::kFlag,
                  "at its end its blocks stay until finished_sending");
  fields.optional("child", &S::child, Domain::kCount, "its place under (multi ...)");
  fields.optional("params", &S::params, Domain::kText, "of a child at its end, for the client");
}

/// Errors, besides the scheduler's: kNotInConfig: several groups under a connector that loads,
/// without skip_reading_prefix_cache: upstream may take the hit of one group in the GPU's cache for
/// what another one loads, over which its connectors trip (vllm#33775); do_remote_decode anywhere
/// but at the producer of a pair; engine=consumer of one engine; a salt or adapter with files.
struct AddRequest {
  static constexpr std::string_view kVerb = "add_request";
  static constexpr std::string_view kDoc = "a new request; a name is used once";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kAlreadyDeclared, ErrorCode::kNotInConfig,
                                            ErrorCode::kNoTokens, ErrorCode::kBadRange,
                                            ErrorCode::kBeyondModelLength};
  std::string id;
  std::vector<TokenId> tokens;
  std::uint32_t max_tokens = 16;
  std::uint32_t min_tokens = 0;
  std::optional<TokenId> eos_token;
  std::vector<TokenId> stop_tokens;
  std::uint32_t priority = 0;
  std::uint32_t arrival_time = 0;
  std::optional<std::string> lora_name;
  std::uint32_t lora_id = 0;
  std::optional<std::string> cache_salt;
  bool skip_reading_prefix_cache = false;
  bool grammar = false;
  std::uint32_t external_tokens = 0;
  bool load_async = false;
  std::uint32_t ask_again = 0;
  bool hold_blocks = false;
  std::uint32_t child = 0;
  std::optional<std::string> params;
  std::optional<std::uint32_t> max_offload_tokens;
  bool do_remote_decode = false;
  EngineRole engine = EngineRole::kProducer;
  static void declare(auto& fields) {
    using S = AddRequest;
    fields.add("id", &S::id, Domain::kRequest, "its name");
    fields.add("tokens", &S::tokens, Domain::kTokens, "prompt tokens");
    fields.optional("max_tokens", &S::max_tokens, Domain::kCount, "output tokens at most");
    fields.optional("min_tokens", &S::min_tokens, Domain::kCount, "no stop before");
    fields.optional("eos_token", &S::eos_token, Domain::kCount, "stops it");
    fields.optional("stop_tokens", &S::stop_tokens, Domain::kTokens, "each stops it");
    fields.optional("priority", &S::priority, Domain::kCount, "the smaller, the sooner");
    fields.optional("arrival_time", &S::arrival_time, Domain::kCount, "decides among equals");
    fields.optional("lora_name", &S::lora_name, Domain::kText, "LoRA adapter");
    fields.optional("lora_id", &S::lora_id, Domain::kCount, "LoRA adapter id, shown in events");
    fields.optional("cache_salt", &S::cache_salt, Domain::kText, "enters the first block's hash");
    fields.optional("skip_reading_prefix_cache", &S::skip_reading_prefix_cache, Domain::kFlag,
                    "its lookups find nothing");
    fields.optional("grammar", &S::grammar, Domain::kFlag, "waits for grammar_compiled");
    add_script_fields<S>(fields);
    fields.optional("max_offload_tokens", &S::max_offload_tokens, Domain::kTokenCount,
                    "leading tokens that may be stored (rule offload_fences_reuse)");
    fields.optional("do_remote_decode", &S::do_remote_decode, Domain::kFlag,
                    "the consumer will read its blocks");
    add_engine_field<S>(fields);
  }
  friend bool operator==(const AddRequest&, const AddRequest&) = default;
};

struct Schedule {
  static constexpr std::string_view kVerb = "schedule";
  static constexpr std::string_view kDoc = "plans a step";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kStepsInFlight};
  EngineRole engine = EngineRole::kProducer;
  static void declare(auto& fields) { add_engine_field<Schedule>(fields); }
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// What one request sampled, where that is not the rule of the update.
struct Sample {
  static constexpr std::string_view kWord = "sample";
  std::string request;
  std::vector<TokenId> tokens;
  static void declare(auto& fields) {
    using S = Sample;
    fields.add("request", &S::request, Domain::kRequest, "who");
    fields.add("tokens", &S::tokens, Domain::kTokens, "what");
  }
  friend bool operator==(const Sample&, const Sample&) = default;
};

/// The oldest step in flight comes back: it is executed and polled, where that was not done by
/// itself, and taken in. Each request that samples gives `token`, and as often again as drafts of
/// it were accepted, unless `samples` names it; on a device the model samples. The report of the
/// scripted connector is what stands here, and those of scripted children what `reports` says; all
/// others have workers that report.
/// Errors: kNoStepInFlight: nothing was planned; on a device, the oldest step was not polled;
/// kNotInConfig: on a device, something is sampled; without the scripted connector, something is
/// reported, or there is no such scripted child or rank; kListedTwice: two reports of one child and
/// rank; kBadRange: a job from kNumChildJobsMax on.
struct Update {
  static constexpr std::string_view kVerb = "update";
  static constexpr std::string_view kDoc = "the oldest planned step comes back from the workers";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownRequest, ErrorCode::kNotInConfig,
                                            ErrorCode::kNoStepInFlight, ErrorCode::kWrongTokenCount,
                                            ErrorCode::kBadRange,       ErrorCode::kSingleGroupOnly,
                                            ErrorCode::kUnknownBlock,   ErrorCode::kListedTwice,
                                            ErrorCode::kNotLoading,     ErrorCode::kNotFinished};
  TokenId token = 1;
  std::uint32_t accepted = 0;
  std::vector<Sample> samples;
  std::vector<std::string> finished_recving;
  std::vector<std::string> finished_sending;
  std::vector<BlockId> invalid_blocks;
  std::vector<multi::ChildReport> reports;
  EngineRole engine = EngineRole::kProducer;
  static void declare(auto& fields) {
    using S = Update;
    fields.optional("token", &S::token, Domain::kCount, "what everyone samples");
    fields.optional("accepted", &S::accepted, Domain::kCount, "drafts of each accepted, at most");
    fields.optional("samples", &S::samples, Domain::kSamples, "what some sampled instead");
    fields.optional("finished_recving", &S::finished_recving, Domain::kRequests,
                    "loads that are over");
    fields.optional("finished_sending", &S::finished_sending, Domain::kRequests,
                    "held blocks that are not needed any more");
    fields.optional("invalid_blocks", &S::invalid_blocks, Domain::kBlocks, "loads that failed");
    fields.optional("reports", &S::reports, Domain::kAnswers, "of scripted children");
    add_engine_field<Update>(fields);
  }
  friend bool operator==(const Update&, const Update&) = default;
};

struct UpdateDraftTokenIds {
  static constexpr std::string_view kVerb = "update_draft_token_ids";
  static constexpr std::string_view kDoc = "drafts for a request's next step";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownRequest, ErrorCode::kNotInConfig};
  std::string request;
  std::vector<TokenId> tokens;
  static void declare(auto& fields) {
    using S = UpdateDraftTokenIds;
    fields.add("request", &S::request, Domain::kRequest, "whose");
    fields.add("tokens", &S::tokens, Domain::kTokens, "drafts");
  }
  friend bool operator==(const UpdateDraftTokenIds&, const UpdateDraftTokenIds&) = default;
};

struct GrammarCompiled {
  static constexpr std::string_view kVerb = "grammar_compiled";
  static constexpr std::string_view kDoc = "a request's grammar is ready";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownRequest};
  std::string request;
  static void declare(auto& fields) {
    fields.add("request", &GrammarCompiled::request, Domain::kRequest, "whose");
  }
  friend bool operator==(const GrammarCompiled&, const GrammarCompiled&) = default;
};

struct FinishRequests {
  static constexpr std::string_view kVerb = "finish_requests";
  static constexpr std::string_view kDoc = "ends requests from outside, e.g. aborts them";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kUnknownRequest,
                                            ErrorCode::kBadRange};
  std::vector<std::string> requests;
  RequestStatus status = RequestStatus::kFinishedAborted;
  EngineRole engine = EngineRole::kProducer;
  static void declare(auto& fields) {
    using S = FinishRequests;
    fields.add("requests", &S::requests, Domain::kRequests, "which");
    fields.optional("status", &S::status, Domain::kChoice, "how");
    add_engine_field<FinishRequests>(fields);
  }
  friend bool operator==(const FinishRequests&, const FinishRequests&) = default;
};

struct FinishAllRequests {
  static constexpr std::string_view kVerb = "finish_all_requests";
  static constexpr std::string_view kDoc = "ends every request from outside";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kBadRange};
  RequestStatus status = RequestStatus::kFinishedAborted;
  EngineRole engine = EngineRole::kProducer;
  static void declare(auto& fields) {
    fields.optional("status", &FinishAllRequests::status, Domain::kChoice, "how");
    add_engine_field<FinishAllRequests>(fields);
  }
  friend bool operator==(const FinishAllRequests&, const FinishAllRequests&) = default;
};

struct SetPauseState {
  static constexpr std::string_view kVerb = "set_pause_state";
  static constexpr std::string_view kDoc = "stops admission, or everything, or neither";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig};
  PauseState state = PauseState::kUnpaused;
  EngineRole engine = EngineRole::kProducer;
  static void declare(auto& fields) {
    fields.add("state", &SetPauseState::state, Domain::kChoice,
               "unpaused, paused_new or paused_all");
    add_engine_field<SetPauseState>(fields);
  }
  friend bool operator==(const SetPauseState&, const SetPauseState&) = default;
};

/// Errors: kNotInConfig: what the connector answers, where it is not the scripted one;
/// reset_running_requests under one that copies: upstream does not report the requests that a reset
/// preempts to it, so its copies would go on reading their blocks; reset_connector over tiers,
/// whose manager cannot be reset: upstream forgets the transfers under way, but not what they
/// reserve (vllm#44541); a child that is not scripted.
struct ResetPrefixCache {
  static constexpr std::string_view kVerb = "reset_prefix_cache";
  static constexpr std::string_view kDoc = "forgets what is cached";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig};
  bool reset_running_requests = false;
  bool reset_connector = false;
  bool connector_fails = false;
  std::vector<std::uint32_t> failing_children = {};
  std::vector<std::uint32_t> silent_children = {};
  EngineRole engine = EngineRole::kProducer;
  static void declare(auto& fields) {
    using S = ResetPrefixCache;
    fields.optional("reset_running_requests", &S::reset_running_requests, Domain::kFlag,
                    "preempts running requests first");
    fields.optional("reset_connector", &S::reset_connector, Domain::kFlag,
                    "resets the connector's cache too");
    fields.optional("connector_fails", &S::connector_fails, Domain::kFlag,
                    "the connector answers that it could not");
    fields.optional("failing_children", &S::failing_children, Domain::kAnswers,
                    "places of scripted children that answer so");
    fields.optional("silent_children", &S::silent_children, Domain::kAnswers,
                    "places of those that do not answer");
    add_engine_field<ResetPrefixCache>(fields);
  }
  friend bool operator==(const ResetPrefixCache&, const ResetPrefixCache&) = default;
};

/// Errors: kNotInConfig: there is no scripted connector, or no scripted child at that place.
struct ScriptConnector {
  static constexpr std::string_view kVerb = "script_connector";
  static constexpr std::string_view kDoc = "what the connector answers about a request from now on";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownRequest, ErrorCode::kNotInConfig};
  std::string request;
  std::uint32_t external_tokens = 0;
  bool load_async = false;
  std::uint32_t ask_again = 0;
  bool hold_blocks = false;
  std::uint32_t child = 0;
  std::optional<std::string> params;
  EngineRole engine = EngineRole::kProducer;
  static void declare(auto& fields) {
    using S = ScriptConnector;
    fields.add("request", &S::request, Domain::kRequest, "whose");
    add_script_fields<S>(fields);
    add_engine_field<S>(fields);
  }
  friend bool operator==(const ScriptConnector&, const ScriptConnector&) = default;
};

/// The consumer gets the prompt of the producer's request, and what the producer reported of
/// it. The same request may be handed over again: routers try twice.
/// Errors, besides the scheduler's: kNotInConfig: there is one engine; kNotFinished: the producer
/// reported nothing of it.
struct HandOver {
  static constexpr std::string_view kVerb = "hand_over";
  static constexpr std::string_view kDoc = "the router adds a finished request to the consumer";
  static constexpr ErrorCode kRefusals[] = {
      ErrorCode::kNotInConfig, ErrorCode::kUnknownRequest, ErrorCode::kAlreadyDeclared,
      ErrorCode::kNotFinished, ErrorCode::kNoTokens,       ErrorCode::kBeyondModelLength};
  std::string request;
  std::string id;
  std::uint32_t max_tokens = 16;
  std::uint32_t priority = 0;
  std::uint32_t arrival_time = 0;
  static void declare(auto& fields) {
    using S = HandOver;
    fields.add("request", &S::request, Domain::kRequest, "the producer's");
    fields.add("id", &S::id, Domain::kRequest, "its name at the consumer");
    fields.optional("max_tokens", &S::max_tokens, Domain::kCount, "output tokens at most");
    fields.optional("priority", &S::priority, Domain::kCount, "the smaller, the sooner");
    fields.optional("arrival_time", &S::arrival_time, Domain::kCount, "decides among equals");
  }
  friend bool operator==(const HandOver&, const HandOver&) = default;
};

/// A request of a step, in upstream's order of num_scheduled_tokens.
struct ScheduledRequest {
  static constexpr std::string_view kWord = "scheduled";
  std::string request;
  std::uint32_t num_tokens = 0;
  bool samples = false;
  std::vector<TokenId> spec_tokens;
  static void declare(auto& fields) {
    using S = ScheduledRequest;
    fields.add("request", &S::request, Domain::kResult, "who");
    fields.add("num_tokens", &S::num_tokens, Domain::kResult, "tokens of this step");
    fields.add("samples", &S::samples, Domain::kResult, "whether output comes of it");
    fields.optional("spec_tokens", &S::spec_tokens, Domain::kResult, "drafts among them");
  }
  friend bool operator==(const ScheduledRequest&, const ScheduledRequest&) = default;
};

/// NewRequestData.
struct ScheduledNew {
  static constexpr std::string_view kWord = "new";
  std::string request;
  std::uint32_t num_computed_tokens = 0;
  BlockLists blocks;
  static void declare(auto& fields) {
    using S = ScheduledNew;
    fields.add("request", &S::request, Domain::kResult, "who");
    fields.add("num_computed_tokens", &S::num_computed_tokens, Domain::kResult, "before this step");
    fields.add("blocks", &S::blocks, Domain::kResult, "all of its blocks");
  }
  friend bool operator==(const ScheduledNew&, const ScheduledNew&) = default;
};

/// An entry of CachedRequestData.
struct ScheduledCached {
  static constexpr std::string_view kWord = "cached";
  std::string request;
  bool resumed = false;
  bool all_token_ids = false;
  std::uint32_t num_computed_tokens = 0;
  std::uint32_t num_output_tokens = 0;
  Reusable<BlockLists> blocks;
  static void declare(auto& fields) {
    using S = ScheduledCached;
    fields.add("request", &S::request, Domain::kResult, "who");
    fields.optional("resumed", &S::resumed, Domain::kResult, "blocks are all, not the new ones");
    fields.optional("all_token_ids", &S::all_token_ids, Domain::kResult,
                    "was not in the step before");
    fields.add("num_computed_tokens", &S::num_computed_tokens, Domain::kResult, "before this step");
    fields.add("num_output_tokens", &S::num_output_tokens, Domain::kResult, "with placeholders");
    fields.optional("blocks", &S::blocks, Domain::kResult, "absent: none in any group");
  }
  friend bool operator==(const ScheduledCached&, const ScheduledCached&) = default;
};

/// EngineCoreOutput.
struct RequestOutput {
  static constexpr std::string_view kWord = "output";
  std::string request;
  std::vector<TokenId> tokens;
  RequestStatus status = RequestStatus::kRunning;
  std::optional<TokenId> stop_reason;
  static void declare(auto& fields) {
    using S = RequestOutput;
    fields.add("request", &S::request, Domain::kResult, "whose");
    fields.add("tokens", &S::tokens, Domain::kResult, "that were kept");
    fields.optional("status", &S::status, Domain::kResult, "where it finished");
    fields.optional("stop_reason", &S::stop_reason, Domain::kResult, "the stop token");
  }
  friend bool operator==(const RequestOutput&, const RequestOutput&) = default;
};

/// A request as it stands.
struct RequestState {
  static constexpr std::string_view kWord = "request";
  std::string id;
  RequestStatus status = RequestStatus::kWaiting;
  std::uint32_t num_tokens = 0;
  std::uint32_t num_computed_tokens = 0;
  std::uint32_t num_output_placeholders = 0;
  std::uint32_t num_preemptions = 0;
  std::vector<TokenId> spec_tokens;
  static void declare(auto& fields) {
    using S = RequestState;
    fields.add("id", &S::id, Domain::kState, "its name");
    fields.add("status", &S::status, Domain::kState, "where it stands");
    fields.add("num_tokens", &S::num_tokens, Domain::kState, "prompt and output");
    fields.add("num_computed_tokens", &S::num_computed_tokens, Domain::kState, "whose KV is there");
    fields.optional("num_output_placeholders", &S::num_output_placeholders, Domain::kState,
                    "outputs planned and not there");
    fields.optional("num_preemptions", &S::num_preemptions, Domain::kState, "so far");
    fields.optional("spec_tokens", &S::spec_tokens, Domain::kState, "drafts for its next step");
  }
  friend bool operator==(const RequestState&, const RequestState&) = default;
};

/// A touch point of the scripted connector, or of a scripted child.
struct ConnectorCallRecord {
  static constexpr std::string_view kWord = "call";
  std::string method;
  std::string request;
  std::uint32_t num_tokens = 0;
  std::string answer;
  BlockLists blocks;
  std::optional<std::uint32_t> child = {};
  std::optional<std::uint32_t> rank = {};
  std::string metadata = {};
  std::vector<std::string> finished = {};
  std::vector<std::string> sending = {};
  std::vector<std::string> recving = {};
  std::vector<BlockId> invalid = {};
  std::vector<JobId> jobs = {};
  static void declare(auto& fields) {
    using S = ConnectorCallRecord;
    fields.add("method", &S::method, Domain::kResult, "upstream's name");
    fields.optional("child", &S::child, Domain::kResult, "of which child");
    fields.optional("rank", &S::rank, Domain::kResult, "of which worker of a child");
    fields.optional("request", &S::request, Domain::kResult, "about whom");
    fields.optional("num_tokens", &S::num_tokens, Domain::kResult, "what was passed");
    fields.optional("answer", &S::answer, Domain::kResult, "what was answered");
    fields.optional("blocks", &S::blocks, Domain::kResult, "what was passed");
    fields.optional("metadata", &S::metadata, Domain::kResult, "of a step");
    fields.optional("finished", &S::finished, Domain::kResult, "requests, ascending");
    fields.optional("sending", &S::sending, Domain::kResult, "sent, ascending");
    fields.optional("recving", &S::recving, Domain::kResult, "received, ascending");
    fields.optional("invalid", &S::invalid, Domain::kResult, "whose load failed, ascending");
    fields.optional("jobs", &S::jobs, Domain::kResult, "its own, one per worker");
  }
  friend bool operator==(const ConnectorCallRecord&, const ConnectorCallRecord&) = default;
};

/// What a scheduler owes its caller after a command.
struct SchedulerObservation {
  // schedule
  Reusable<std::vector<ScheduledRequest>> scheduled;
  Reusable<std::vector<ScheduledNew>> new_reqs;
  Reusable<std::vector<ScheduledCached>> cached_reqs;
  Reusable<std::vector<std::uint32_t>> common_prefix;
  Reusable<std::vector<std::string>> preempted;
  Reusable<std::vector<std::string>> finished;
  Reusable<std::vector<BlockId>> new_block_ids;
  Reusable<std::string> never_fits;

  // update
  Reusable<std::vector<RequestOutput>> outputs;
  Reusable<std::vector<KVCacheEvent>> events;
  Reusable<std::vector<std::uint32_t>> stats;
  Reusable<std::vector<std::uint32_t>> connector_stats;
  Reusable<std::vector<std::uint32_t>> spec_stats;

  Reusable<bool> success;                                      ///< reset_prefix_cache
  Reusable<std::vector<ConnectorCallRecord>> connector_calls;  ///< of this command, if any

  // The numbers: after every command.
  std::uint32_t num_running = 0;
  std::uint32_t num_waiting = 0;
  std::uint32_t num_skipped_waiting = 0;
  std::uint32_t num_unfinished = 0;
  bool has_finished = false;
  std::uint32_t num_empty_blocks = 0;
  std::uint32_t num_cached_blocks = 0;
  std::uint32_t num_referenced_blocks = 0;

  // The whole state: where asked for.
  Reusable<std::vector<std::string>> running;
  Reusable<std::vector<std::string>> waiting;
  Reusable<std::vector<std::string>> skipped_waiting;
  Reusable<std::vector<RequestState>> requests;  ///< held ones too, in the order of adding
  Reusable<std::vector<BlockId>> free_queue;
  Reusable<std::vector<std::uint32_t>> ref_cnts;
  Reusable<KeyList> keys;
  Reusable<std::vector<RequestBlocks>> tables;  ///< of requests with blocks

  static void declare(auto& fields) {
    using S = SchedulerObservation;
    fields.add("scheduled", &S::scheduled, Domain::kResult, "requests of the step, in order");
    fields.add("new_reqs", &S::new_reqs, Domain::kResult, "scheduled for the first time");
    fields.add("cached_reqs", &S::cached_reqs, Domain::kResult, "running, then resumed ones");
    fields.add("common_prefix", &S::common_prefix, Domain::kResult,
               "blocks that all running requests share, by group");
    fields.add("preempted", &S::preempted, Domain::kResult, "victims of this step");
    fields.add("finished", &S::finished, Domain::kResult, "since the step before");
    fields.add("new_block_ids", &S::new_block_ids, Domain::kResult, "blocks to be zeroed");
    fields.add("never_fits", &S::never_fits, Domain::kResult,
               "ended, since it does not fit into the empty pool");
    fields.add("outputs", &S::outputs, Domain::kResult, "what clients are told");
    fields.add("events", &S::events, Domain::kResult, "the pool's, then the connector's");
    fields.add("stats", &S::stats, Domain::kResult,
               "[reset requests queries hits preempted_requests preempted_queries preempted_hits]");
    fields.add("connector_stats", &S::connector_stats, Domain::kResult,
               "the same of the connector's lookups");
    fields.add("spec_stats", &S::spec_stats, Domain::kResult,
               "[drafts draft_tokens accepted accepted_at_0 accepted_at_1 ...]");
    fields.add("success", &S::success, Domain::kResult, "whether the reset happened");
    fields.add("connector_calls", &S::connector_calls, Domain::kResult,
               "touch points of this command, in order");
    fields.add("num_running", &S::num_running, Domain::kState, "running requests");
    fields.add("num_waiting", &S::num_waiting, Domain::kState, "in waiting");
    fields.add("num_skipped_waiting", &S::num_skipped_waiting, Domain::kState,
               "in skipped_waiting");
    fields.add("num_unfinished", &S::num_unfinished, Domain::kState, "get_num_unfinished_requests");
    fields.add("has_finished", &S::has_finished, Domain::kState, "has_finished_requests");
    fields.add("num_empty_blocks", &S::num_empty_blocks, Domain::kState, "queued, without a hash");
    fields.add("num_cached_blocks", &S::num_cached_blocks, Domain::kState,
               "queued and still findable");
    fields.add("num_referenced_blocks", &S::num_referenced_blocks, Domain::kState,
               "held, and the null block");
    fields.add("running", &S::running, Domain::kState, "in order of admission");
    fields.add("waiting", &S::waiting, Domain::kState, "head first");
    fields.add("skipped_waiting", &S::skipped_waiting, Domain::kState, "head first");
    fields.add("requests", &S::requests, Domain::kState, "in the order of adding");
    fields.add("free_queue", &S::free_queue, Domain::kState, "head to tail");
    fields.add("ref_cnts", &S::ref_cnts, Domain::kState, "by block id");
    fields.add("keys", &S::keys, Domain::kState, "packed keys by block id");
    fields.add("tables", &S::tables, Domain::kState, "(table request=A blocks=[[1 2] [0 3]])");
  }
  friend bool operator==(const SchedulerObservation&, const SchedulerObservation&) = default;
};

}  // namespace engine
}  // namespace kvfence
