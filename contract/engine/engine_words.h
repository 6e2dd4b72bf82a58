#pragma once

/// The commands of an engine that belong to no connector, and what its schedulers return.
/// Everything that reads or writes them derives from the declarations here
/// (contract/core/declare.h). The target is put together in contract/engine/engine_target.h.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/multi/multi_facet.h"
#include "contract/core/declare.h"
#include "contract/core/engine_role.h"
#include "contract/core/shared_fields.h"
#include "contract/core/status.h"
#include "contract/core/types.h"
#include "contract/kv_cache/kv_cache_config.h"
#include "contract/pool/kv_events.h"
#include "contract/pool/pool_values.h"
#include "contract/scheduler/request_status.h"
#include "contract/scheduler/scheduler.h"
#include "contract/scripted/scripted_connector.h"

namespace kvfence {

namespace engine {

using kv_cache::BlockLists;
using kv_cache::RequestBlocks;

/// Errors, besides the scheduler's: kNotInConfig: several groups under a connector that loads,
/// without skip_reading_prefix_cache, unless with Rules::external_blocks_after_hits and no hit that
/// may overshoot: upstream may take the hit of one group in the GPU's cache for what another one
/// loads, which its connectors cannot handle (vllm#33775); do_remote_decode anywhere but at the
/// producer of a pair, or with a window and max_tokens other than 1 (nixl_facet.h); engine=consumer
/// without a pair; a salt or adapter with files. No multimodal items: a scheduler has no encoder
/// inputs.
struct AddRequest : DeclaredRequest, RequestSettings, ConnectorScript, OfEngine {
  static constexpr Verb kVerb{"add_request", "a new request; a name is used once"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kAlreadyDeclared, ErrorCode::kNotInConfig,
                                            ErrorCode::kNoTokens, ErrorCode::kBadRange,
                                            ErrorCode::kBeyondModelLength};
  std::optional<std::uint32_t> max_offload_tokens;
  bool do_remote_decode = false;
  static void declare(auto& fields) {
    using S = AddRequest;
    fields.add("id", &S::id, Domain::kRequest, "its name");
    fields.add("tokens", &S::tokens, Domain::kTokens, "prompt tokens");
    fields.optional("max_tokens", &S::max_tokens, Domain::kCount, "output tokens at most");
    fields.optional("min_tokens", &S::min_tokens, Domain::kCount, "no stop before");
    fields.optional("eos_token", &S::eos_token_id, Domain::kCount, "stops it");
    fields.optional("stop_tokens", &S::stop_token_ids, Domain::kTokens, "each stops it");
    fields.optional("priority", &S::priority, Domain::kCount, "the smaller, the sooner");
    fields.optional("arrival_time", &S::arrival_time, Domain::kCount, "decides among equals");
    fields.optional("lora_name", &S::lora_name, Domain::kText, "LoRA adapter");
    fields.optional("lora_id", &S::lora_id, Domain::kCount, "LoRA adapter id, shown in events");
    fields.optional("cache_salt", &S::cache_salt, Domain::kText, "enters the first block's hash");
    fields.optional("skip_reading_prefix_cache", &S::skip_reading_prefix_cache, Domain::kFlag,
                    "its lookups find nothing");
    fields.optional("grammar", &S::needs_grammar, Domain::kFlag, "waits for grammar_compiled");
    ConnectorScript::declare(fields);
    fields.optional("max_offload_tokens", &S::max_offload_tokens, Domain::kTokenCount,
                    "leading tokens that may be stored (rule offload_fences_reuse)");
    fields.optional("do_remote_decode", &S::do_remote_decode, Domain::kFlag,
                    "the consumer will read its blocks");
    OfEngine::declare(fields);
  }
};

struct Schedule : OfEngine {
  static constexpr Verb kVerb{"schedule", "plans a step"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kStepsInFlight};
};

/// What one request sampled, if not what the update gives to all.
struct Sample {
  static constexpr std::string_view kWord = "sample";
  std::string request;
  std::vector<TokenId> tokens;
  static void declare(auto& fields) {
    using S = Sample;
    fields.add("request", &S::request, Domain::kRequest, "the request");
    fields.add("tokens", &S::tokens, Domain::kTokens, "what");
  }
};

/// The oldest step in flight comes back: it is executed and polled, unless commands did that, and
/// taken in. Each request that samples gives `token`, and as often again as drafts of it were
/// accepted, unless `samples` names it; on a device the model samples. Under connectors that keep
/// files a draft is accepted only if it is the token that comes, since its KV is there. The members
/// here are the report of the scripted connector, and `reports` has those of scripted children; all
/// others have workers that report.
/// Errors: kNoStepInFlight: nothing was planned; on a device, the oldest step was not polled;
/// kNotInConfig: on a device, something is sampled; without the scripted connector, something is
/// reported, or there is no such scripted child or rank; kListedTwice: two reports of one child and
/// rank; kBadRange: a job from kNumChildJobsMax on.
struct Update : OfEngine {
  static constexpr Verb kVerb{"update", "the oldest planned step comes back from the workers"};
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
  static void declare(auto& fields) {
    using S = Update;
    fields.optional("token", &S::token, Domain::kCount, "what everyone samples");
    fields.optional("accepted", &S::accepted, Domain::kCount, "drafts of each accepted, at most");
    fields.optional("samples", &S::samples, Domain::kSamples, "what some sampled instead");
    fields.optional("finished_recving", &S::finished_recving, Domain::kRequests,
                    "loads that are over");
    fields.optional("finished_sending", &S::finished_sending, Domain::kRequests,
                    "held blocks that are no longer needed");
    fields.optional("invalid_blocks", &S::invalid_blocks, Domain::kBlocks, "loads that failed");
    fields.optional("reports", &S::reports, Domain::kAnswers, "of scripted children");
    OfEngine::declare(fields);
  }
};

/// Errors, besides the scheduler's: kNotInConfig: at the producer of a pair, with a window
/// (nixl_facet.h).
struct UpdateDraftTokenIds : OfEngine {
  static constexpr Verb kVerb{"update_draft_token_ids", "drafts for a request's next step"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownRequest, ErrorCode::kNotInConfig};
  std::string request;
  std::vector<TokenId> tokens;
  static void declare(auto& fields) {
    using S = UpdateDraftTokenIds;
    fields.add("request", &S::request, Domain::kRequest, "the request");
    fields.add("tokens", &S::tokens, Domain::kTokens, "drafts");
    OfEngine::declare(fields);
  }
};

struct GrammarCompiled {
  static constexpr Verb kVerb{"grammar_compiled", "a request's grammar is ready"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownRequest};
  std::string request;
  static void declare(auto& fields) {
    fields.add("request", &GrammarCompiled::request, Domain::kRequest, "the request");
  }
};

struct FinishRequests : OfEngine {
  static constexpr Verb kVerb{"finish_requests", "ends requests from outside, e.g. aborts them"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kUnknownRequest,
                                            ErrorCode::kBadRange};
  std::vector<std::string> requests;
  RequestStatus status = RequestStatus::kFinishedAborted;
  static void declare(auto& fields) {
    using S = FinishRequests;
    fields.add("requests", &S::requests, Domain::kRequests, "which");
    fields.optional("status", &S::status, Domain::kChoice, "how");
    OfEngine::declare(fields);
  }
};

struct FinishAllRequests : OfEngine {
  static constexpr Verb kVerb{"finish_all_requests", "ends every request from outside"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kBadRange};
  RequestStatus status = RequestStatus::kFinishedAborted;
  static void declare(auto& fields) {
    fields.optional("status", &FinishAllRequests::status, Domain::kChoice, "how");
    OfEngine::declare(fields);
  }
};

struct SetPauseState : OfEngine {
  static constexpr Verb kVerb{"set_pause_state", "stops admission, or everything, or neither"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig};
  PauseState state = PauseState::kUnpaused;
  static void declare(auto& fields) {
    fields.add("state", &SetPauseState::state, Domain::kChoice,
               "unpaused, paused_new or paused_all");
    OfEngine::declare(fields);
  }
};

/// Errors: kNotInConfig: what the connector answers, where it is not the scripted one;
/// reset_running_requests under an offloading connector: upstream does not report the requests that
/// a reset preempts to it, so its copies would continue to read their blocks; reset_connector over
/// tiers, as their manager cannot be reset: upstream forgets the transfers under way, but not what
/// they reserve (vllm#44541); a child that is not scripted.
struct ResetPrefixCache : OfEngine {
  static constexpr Verb kVerb{"reset_prefix_cache", "forgets what is cached"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig};
  bool reset_running_requests = false;
  bool reset_connector = false;
  bool connector_fails = false;
  std::vector<std::uint32_t> failing_children = {};
  std::vector<std::uint32_t> silent_children = {};
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
    OfEngine::declare(fields);
  }
};

/// Errors: kNotInConfig: there is no scripted connector, or no scripted child at that place.
struct ScriptConnector : ConnectorScript, OfEngine {
  static constexpr Verb kVerb{"script_connector",
                              "what the connector answers about a request from now on"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownRequest, ErrorCode::kNotInConfig};
  std::string request;
  static void declare(auto& fields) {
    using S = ScriptConnector;
    fields.add("request", &S::request, Domain::kRequest, "the request");
    ConnectorScript::declare(fields);
    OfEngine::declare(fields);
  }
};

/// The consumer gets the prompt of the producer's request, and what the producer reported of
/// it. The same request may be handed over again, since routers try twice, where failed reads are
/// reported (nixl_facet.h): a later reader finds it given back.
/// Errors, besides the scheduler's: kNotInConfig: there is one engine, or several groups without
/// skip_reading_prefix_cache, as of AddRequest; kNotFinished: the producer reported nothing of it,
/// or it may not be handed over again. What is not declared here is as by default.
struct HandOver : RequestSettings {
  static constexpr Verb kVerb{"hand_over", "the router adds a finished request to the consumer"};
  static constexpr ErrorCode kRefusals[] = {
      ErrorCode::kNotInConfig, ErrorCode::kUnknownRequest, ErrorCode::kAlreadyDeclared,
      ErrorCode::kNotFinished, ErrorCode::kNoTokens,       ErrorCode::kBeyondModelLength};
  std::string request;
  std::string id;
  static void declare(auto& fields) {
    using S = HandOver;
    fields.add("request", &S::request, Domain::kRequest, "the producer's");
    fields.add("id", &S::id, Domain::kRequest, "its name at the consumer");
    fields.optional("max_tokens", &S::max_tokens, Domain::kCount, "output tokens at most");
    fields.optional("priority", &S::priority, Domain::kCount, "the smaller, the sooner");
    fields.optional("arrival_time", &S::arrival_time, Domain::kCount, "decides among equals");
    fields.optional("skip_reading_prefix_cache", &S::skip_reading_prefix_cache, Domain::kFlag,
                    "its lookups find nothing");
  }
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
    fields.add("request", &S::request, "the request");
    fields.add("num_tokens", &S::num_tokens, "tokens of this step");
    fields.add("samples", &S::samples, "whether output comes of it");
    fields.optional("spec_tokens", &S::spec_tokens, "drafts among them");
  }
};

/// NewRequestData.
struct ScheduledNew {
  static constexpr std::string_view kWord = "new";
  std::string request;
  std::uint32_t num_computed_tokens = 0;
  BlockLists blocks;
  static void declare(auto& fields) {
    using S = ScheduledNew;
    fields.add("request", &S::request, "the request");
    fields.add("num_computed_tokens", &S::num_computed_tokens, "before this step");
    fields.add("blocks", &S::blocks, "all of its blocks");
  }
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
    fields.add("request", &S::request, "the request");
    fields.optional("resumed", &S::resumed, "blocks are all, not the new ones");
    fields.optional("all_token_ids", &S::all_token_ids, "was not in the step before");
    fields.add("num_computed_tokens", &S::num_computed_tokens, "before this step");
    fields.add("num_output_tokens", &S::num_output_tokens, "with placeholders");
    fields.optional("blocks", &S::blocks, "absent: none in any group");
  }
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
    fields.add("request", &S::request, "the request");
    fields.add("tokens", &S::tokens, "that were kept");
    fields.optional("status", &S::status, "where it finished");
    fields.optional("stop_reason", &S::stop_reason, "the stop token");
  }
};

/// The state of a request.
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
    fields.add("id", &S::id, "its name");
    fields.add("status", &S::status, "its status");
    fields.add("num_tokens", &S::num_tokens, "prompt and output");
    fields.add("num_computed_tokens", &S::num_computed_tokens, "whose KV is there");
    fields.optional("num_output_placeholders", &S::num_output_placeholders,
                    "outputs planned and not there");
    fields.optional("num_preemptions", &S::num_preemptions, "so far");
    fields.optional("spec_tokens", &S::spec_tokens, "drafts for its next step");
  }
};

/// What a scheduler returns after a command.
struct SchedulerObservation : ShownBlocks {
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

  Reusable<bool> success;                                ///< reset_prefix_cache
  Reusable<std::vector<ConnectorCall>> connector_calls;  ///< of this command, if any

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
  Reusable<std::vector<RequestBlocks>> tables;   ///< of requests with blocks

  static void declare(auto& fields) {
    using S = SchedulerObservation;
    fields.result("scheduled", &S::scheduled, "requests of the step, in order");
    fields.result("new_reqs", &S::new_reqs, "scheduled for the first time");
    fields.result("cached_reqs", &S::cached_reqs, "running, then resumed ones");
    fields.result("common_prefix", &S::common_prefix,
                  "blocks that all running requests share, by group");
    fields.result("preempted", &S::preempted, "victims of this step");
    fields.result("finished", &S::finished, "since the step before");
    fields.result("new_block_ids", &S::new_block_ids, "blocks to be zeroed");
    fields.result("never_fits", &S::never_fits, "ended, since it does not fit into the empty pool");
    fields.result("outputs", &S::outputs, "what clients get");
    fields.result("events", &S::events, "the pool's, then the connector's");
    fields.result(
        "stats", &S::stats,
        "[reset requests queries hits preempted_requests preempted_queries preempted_hits]");
    fields.result("connector_stats", &S::connector_stats, "the same of the connector's lookups");
    fields.result("spec_stats", &S::spec_stats,
                  "[drafts draft_tokens accepted accepted_at_0 accepted_at_1 ...]");
    fields.result("success", &S::success, "whether the reset happened");
    fields.result("connector_calls", &S::connector_calls, "touch points of this command, in order");
    fields.state("num_running", &S::num_running, "running requests");
    fields.state("num_waiting", &S::num_waiting, "in waiting");
    fields.state("num_skipped_waiting", &S::num_skipped_waiting, "in skipped_waiting");
    fields.state("num_unfinished", &S::num_unfinished, "get_num_unfinished_requests");
    fields.state("has_finished", &S::has_finished, "has_finished_requests");
    fields.state("num_empty_blocks", &S::num_empty_blocks, "queued, without a hash");
    fields.state("num_cached_blocks", &S::num_cached_blocks, "queued and still findable");
    fields.state("num_referenced_blocks", &S::num_referenced_blocks, "held, and the null block");
    fields.state("running", &S::running, "in order of admission");
    fields.state("waiting", &S::waiting, "head first");
    fields.state("skipped_waiting", &S::skipped_waiting, "head first");
    fields.state("requests", &S::requests, "in the order of adding");
    ShownBlocks::declare(fields);
    fields.state("tables", &S::tables, "(table request=A blocks=[[1 2] [0 3]])");
  }
};

}  // namespace engine
}  // namespace kvfence
