#pragma once

/// The `multi_connector` target: its configuration line, its commands, its observations. Everything
/// that reads or writes them derives from the declarations here (contract/core/declare.h).
///
/// What a child answers stands in the command that asks it; what it was called with, in the
/// observation. There is no scheduler: metadata wait until each rank begins the step that they are
/// of, and what the ranks report waits until all of them have.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/connectors/multi/multi_connector.h"
#include "contract/core/declare.h"
#include "contract/core/status.h"
#include "contract/core/target.h"
#include "contract/kv_cache/kv_cache_target.h"

namespace kvfence {

namespace multi_connector {

using kv_cache::BlockLists;

// ---- What children answer. Those that are left out answer as a default one says. ----

/// To get_num_new_matched_tokens.
struct Match {
  static constexpr std::string_view kWord = "match";
  std::optional<std::uint32_t> num_tokens = 0;  ///< nothing: ask again
  bool load_async = false;
  static void declare(auto& fields) {
    using S = Match;
    fields.add("num_tokens", &S::num_tokens, Domain::kTokenCount, "none: ask again").optional();
    fields.add("load_async", &S::load_async, Domain::kFlag, "loads beside the steps").optional();
  }
  friend bool operator==(const Match&, const Match&) = default;
};

/// To request_finished.
struct Finish {
  static constexpr std::string_view kWord = "finish";
  bool hold = false;
  std::optional<std::string> params;
  static void declare(auto& fields) {
    using S = Finish;
    fields.add("hold", &S::hold, Domain::kFlag, "until it is reported as sent").optional();
    fields.add("params", &S::params, Domain::kText, "for the client").optional();
  }
  friend bool operator==(const Finish&, const Finish&) = default;
};

/// To take_events.
struct Events {
  static constexpr std::string_view kWord = "events";
  std::vector<std::uint32_t> ids;
  static void declare(auto& fields) {
    fields.add("ids", &Events::ids, Domain::kAnswers, "oldest first").optional();
  }
  friend bool operator==(const Events&, const Events&) = default;
};

/// To reset_cache.
struct Reset {
  static constexpr std::string_view kWord = "reset";
  std::optional<bool> done;  ///< nothing: does not say
  static void declare(auto& fields) {
    fields.add("done", &Reset::done, Domain::kFlag, "false: failed").optional();
  }
  friend bool operator==(const Reset&, const Reset&) = default;
};

/// Of a rank, to get_finished, get_block_ids_with_load_errors, get_kv_connector_stats and
/// build_connector_worker_meta.
struct Output {
  static constexpr std::string_view kWord = "output";
  std::vector<std::string> sending;
  std::vector<std::string> recving;
  std::vector<BlockId> invalid;
  std::optional<std::vector<std::uint32_t>> stats;
  std::optional<std::vector<std::uint32_t>> meta;
  static void declare(auto& fields) {
    using S = Output;
    fields.add("sending", &S::sending, Domain::kRequests, "sent").optional();
    fields.add("recving", &S::recving, Domain::kRequests, "received").optional();
    fields.add("invalid", &S::invalid, Domain::kBlocks, "whose load failed").optional();
    fields.add("stats", &S::stats, Domain::kAnswers, "aggregated behind each other").optional();
    fields.add("meta", &S::meta, Domain::kAnswers, "aggregated behind each other").optional();
  }
  friend bool operator==(const Output&, const Output&) = default;
};

// ---- The scheduler's half ----

template <class S>
void add_request_field(auto& fields) {
  fields.add("request", &S::request, Domain::kRequest, "whose");
}

template <class S>
void add_answers_field(auto& fields) {
  fields.add("answers", &S::answers, Domain::kAnswers, "of the children, in order").optional();
}

struct OnNewRequest {
  static constexpr std::string_view kVerb = "on_new_request";
  static constexpr std::string_view kDoc = "a request was added; v0.23 alone";
  std::string request;
  static void declare(auto& fields) { add_request_field<OnNewRequest>(fields); }
  friend bool operator==(const OnNewRequest&, const OnNewRequest&) = default;
};

struct GetNumNewMatchedTokens {
  static constexpr std::string_view kVerb = "get_num_new_matched_tokens";
  static constexpr std::string_view kDoc = "what can be loaded, and who is to load it";
  std::string request;
  std::uint32_t num_computed_tokens = 0;
  std::vector<Match> answers;
  static void declare(auto& fields) {
    using S = GetNumNewMatchedTokens;
    add_request_field<S>(fields);
    fields.add("num_computed_tokens", &S::num_computed_tokens, Domain::kTokenCount, "the local hit")
        .optional();
    add_answers_field<S>(fields);
  }
  friend bool operator==(const GetNumNewMatchedTokens&, const GetNumNewMatchedTokens&) = default;
};

struct UpdateStateAfterAlloc {
  static constexpr std::string_view kVerb = "update_state_after_alloc";
  static constexpr std::string_view kDoc = "a request got blocks: the chosen child is to load";
  std::string request;
  BlockLists blocks;
  std::uint32_t num_external_tokens = 0;
  static void declare(auto& fields) {
    using S = UpdateStateAfterAlloc;
    add_request_field<S>(fields);
    fields.add("blocks", &S::blocks, Domain::kBlocks, "by group; those left out: none").optional();
    fields.add("num_external_tokens", &S::num_external_tokens, Domain::kTokenCount, "to be loaded")
        .optional();
  }
  friend bool operator==(const UpdateStateAfterAlloc&, const UpdateStateAfterAlloc&) = default;
};

struct BuildConnectorMeta {
  static constexpr std::string_view kVerb = "build_connector_meta";
  static constexpr std::string_view kDoc = "what a step tells the workers";
  std::vector<std::string> answers;
  static void declare(auto& fields) { add_answers_field<BuildConnectorMeta>(fields); }
  friend bool operator==(const BuildConnectorMeta&, const BuildConnectorMeta&) = default;
};

struct UpdateConnectorOutput {
  static constexpr std::string_view kVerb = "update_connector_output";
  static constexpr std::string_view kDoc = "hands on what all ranks report of their oldest step";
  static void declare(auto& /*fields*/) {}
  friend bool operator==(const UpdateConnectorOutput&, const UpdateConnectorOutput&) = default;
};

struct RequestFinished {
  static constexpr std::string_view kVerb = "request_finished";
  static constexpr std::string_view kDoc = "a request ended; children may hold its blocks";
  std::string request;
  BlockLists blocks;
  std::vector<Finish> answers;
  static void declare(auto& fields) {
    using S = RequestFinished;
    add_request_field<S>(fields);
    fields.add("blocks", &S::blocks, Domain::kBlocks, "by group; those left out: none").optional();
    add_answers_field<S>(fields);
  }
  friend bool operator==(const RequestFinished&, const RequestFinished&) = default;
};

struct TakeEvents {
  static constexpr std::string_view kVerb = "take_events";
  static constexpr std::string_view kDoc = "hands out the children's events";
  std::vector<Events> answers;
  static void declare(auto& fields) { add_answers_field<TakeEvents>(fields); }
  friend bool operator==(const TakeEvents&, const TakeEvents&) = default;
};

struct ResetCache {
  static constexpr std::string_view kVerb = "reset_cache";
  static constexpr std::string_view kDoc = "resets every child";
  std::vector<Reset> answers;
  static void declare(auto& fields) { add_answers_field<ResetCache>(fields); }
  friend bool operator==(const ResetCache&, const ResetCache&) = default;
};

// ---- The worker's half of a rank, in the order of a step ----

template <class S>
void add_rank_field(auto& fields) {
  fields.add("rank", &S::rank, Domain::kCount, "which worker").optional();
}

template <class S>
void add_layer_field(auto& fields) {
  fields.add("layer", &S::layer, Domain::kText, "its name").optional();
}

struct HandlePreemptions {
  static constexpr std::string_view kVerb = "handle_preemptions";
  static constexpr std::string_view kDoc = "the oldest metadata that wait for a rank, before all";
  std::uint32_t rank = 0;
  static void declare(auto& fields) { add_rank_field<HandlePreemptions>(fields); }
  friend bool operator==(const HandlePreemptions&, const HandlePreemptions&) = default;
};

struct StartLoadKV {
  static constexpr std::string_view kVerb = "start_load_kv";
  static constexpr std::string_view kDoc = "binds the oldest metadata that wait, and begins";
  std::uint32_t rank = 0;
  static void declare(auto& fields) { add_rank_field<StartLoadKV>(fields); }
  friend bool operator==(const StartLoadKV&, const StartLoadKV&) = default;
};

struct WaitForLayerLoad {
  static constexpr std::string_view kVerb = "wait_for_layer_load";
  static constexpr std::string_view kDoc = "a layer is about to be computed";
  std::uint32_t rank = 0;
  std::string layer = "0";
  static void declare(auto& fields) {
    add_rank_field<WaitForLayerLoad>(fields);
    add_layer_field<WaitForLayerLoad>(fields);
  }
  friend bool operator==(const WaitForLayerLoad&, const WaitForLayerLoad&) = default;
};

struct SaveKVLayer {
  static constexpr std::string_view kVerb = "save_kv_layer";
  static constexpr std::string_view kDoc = "a layer was computed";
  std::uint32_t rank = 0;
  std::string layer = "0";
  static void declare(auto& fields) {
    add_rank_field<SaveKVLayer>(fields);
    add_layer_field<SaveKVLayer>(fields);
  }
  friend bool operator==(const SaveKVLayer&, const SaveKVLayer&) = default;
};

struct GetKVConnectorOutput {
  static constexpr std::string_view kVerb = "get_kv_connector_output";
  static constexpr std::string_view kDoc = "ends a step of a rank, which reports";
  std::uint32_t rank = 0;
  bool wait_for_save = true;
  std::vector<std::string> finished_req_ids;
  std::vector<Output> answers;
  static void declare(auto& fields) {
    using S = GetKVConnectorOutput;
    add_rank_field<S>(fields);
    fields.add("wait_for_save", &S::wait_for_save, Domain::kFlag, "false: a step without tokens")
        .optional();
    fields
        .add("finished_req_ids", &S::finished_req_ids, Domain::kRequests, "that the step tells of")
        .optional();
    add_answers_field<S>(fields);
  }
  friend bool operator==(const GetKVConnectorOutput&, const GetKVConnectorOutput&) = default;
};

using Command =
    std::variant<OnNewRequest, GetNumNewMatchedTokens, UpdateStateAfterAlloc, BuildConnectorMeta,
                 UpdateConnectorOutput, RequestFinished, TakeEvents, ResetCache, HandlePreemptions,
                 StartLoadKV, WaitForLayerLoad, SaveKVLayer, GetKVConnectorOutput>;

// ---- The configuration ----

struct Child {
  static constexpr std::string_view kWord = "child";
  std::string connector_class = "a";
  bool hma = true;
  static void declare(auto& fields) {
    using S = Child;
    fields.add("class", &S::connector_class, Domain::kSetting, "names its statistics").optional();
    fields.add("hma", &S::hma, Domain::kSetting, "takes several groups").optional();
  }
  friend bool operator==(const Child&, const Child&) = default;
};

inline constexpr std::uint32_t kNumChildrenMax = 8;
inline constexpr std::uint32_t kNumRanksMax = 8;
inline constexpr std::uint32_t kNumGroupsMax = 8;

struct Config {
  std::string profile = "v0.19";
  std::vector<Child> children = {{}, {}};
  std::uint32_t num_ranks = 1;
  std::uint32_t num_groups = 1;
  static void declare(auto& fields) {
    using S = Config;
    fields.add("profile", &S::profile, Domain::kSetting,
               "the release whose rules hold: v0.19, v0.23");
    fields.add("children", &S::children, Domain::kSetting, "(child class=a hma=true), 1 to 8");
    fields.add("num_ranks", &S::num_ranks, Domain::kSetting, "workers, 1 to 8");
    fields.add("num_groups", &S::num_groups, Domain::kSetting, "of the KV cache, 1 to 8");
  }
  friend bool operator==(const Config&, const Config&) = default;
};

// ---- What is observed ----

/// A call on a child, with what it was called with.
struct ChildCall {
  static constexpr std::string_view kWord = "call";
  std::string method;
  std::uint32_t child = 0;
  std::optional<std::uint32_t> rank;
  std::string request;
  std::optional<std::uint32_t> num_tokens;
  BlockLists blocks;
  std::string metadata;
  std::string layer;
  std::vector<std::string> finished;
  std::vector<std::string> sending;
  std::vector<std::string> recving;
  std::vector<BlockId> invalid;
  std::optional<std::vector<std::uint32_t>> meta;
  static void declare(auto& fields) {
    using S = ChildCall;
    fields.add("method", &S::method, Domain::kResult, "upstream's name");
    fields.add("child", &S::child, Domain::kResult, "of which child");
    fields.add("rank", &S::rank, Domain::kResult, "of which worker").optional();
    fields.add("request", &S::request, Domain::kResult, "whose").optional();
    fields.add("num_tokens", &S::num_tokens, Domain::kResult, "computed, or external").optional();
    fields.add("blocks", &S::blocks, Domain::kResult, "by group").optional();
    fields.add("metadata", &S::metadata, Domain::kResult, "of a step").optional();
    fields.add("layer", &S::layer, Domain::kResult, "its name").optional();
    fields.add("finished", &S::finished, Domain::kResult, "requests, ascending").optional();
    fields.add("sending", &S::sending, Domain::kResult, "sent, ascending").optional();
    fields.add("recving", &S::recving, Domain::kResult, "received, ascending").optional();
    fields.add("invalid", &S::invalid, Domain::kResult, "whose load failed, ascending").optional();
    fields.add("meta", &S::meta, Domain::kResult, "of the workers").optional();
  }
  friend bool operator==(const ChildCall&, const ChildCall&) = default;
};

struct Extra {
  static constexpr std::string_view kWord = "extra";
  std::string request;
  std::uint32_t saves = 0;
  static void declare(auto& fields) {
    fields.add("request", &Extra::request, Domain::kState, "whose");
    fields.add("saves", &Extra::saves, Domain::kState, "notices to be swallowed");
  }
  friend bool operator==(const Extra&, const Extra&) = default;
};

struct Chosen {
  static constexpr std::string_view kWord = "chosen";
  std::string request;
  std::uint32_t child = 0;
  static void declare(auto& fields) {
    fields.add("request", &Chosen::request, Domain::kState, "whose");
    fields.add("child", &Chosen::child, Domain::kState, "who loads it");
  }
  friend bool operator==(const Chosen&, const Chosen&) = default;
};

/// The statistics of all children of a class.
struct ClassStats {
  static constexpr std::string_view kWord = "stats";
  std::string connector_class;
  std::vector<std::uint32_t> numbers;
  static void declare(auto& fields) {
    using S = ClassStats;
    fields.add("class", &S::connector_class, Domain::kResult, "of which children");
    fields.add("numbers", &S::numbers, Domain::kResult, "oldest first");
  }
  friend bool operator==(const ClassStats&, const ClassStats&) = default;
};

/// The metadata of a child's workers.
struct ChildMeta {
  static constexpr std::string_view kWord = "meta";
  std::optional<std::vector<std::uint32_t>> numbers;
  static void declare(auto& fields) {
    fields.add("numbers", &ChildMeta::numbers, Domain::kResult, "nothing: none").optional();
  }
  friend bool operator==(const ChildMeta&, const ChildMeta&) = default;
};

/// A worker.
struct Rank {
  static constexpr std::string_view kWord = "rank";
  std::uint32_t num_waiting = 0;
  bool in_step = false;
  std::uint32_t num_reports = 0;
  std::vector<Extra> extra;
  static void declare(auto& fields) {
    using S = Rank;
    fields.add("num_waiting", &S::num_waiting, Domain::kState, "steps not yet begun");
    fields.add("in_step", &S::in_step, Domain::kState, "metadata are bound");
    fields.add("num_reports", &S::num_reports, Domain::kState, "that wait for other ranks");
    fields.add("extra", &S::extra, Domain::kState, "extra saves, by request");
  }
  friend bool operator==(const Rank&, const Rank&) = default;
};

/// What a connector owes its caller, and its children, after a command.
struct Observation {
  ErrorCode error = ErrorCode::kNone;
  Reusable<std::string> matched;
  Reusable<std::vector<std::string>> metadata;
  Reusable<std::vector<Extra>> extra_async_saves;
  Reusable<bool> hold;
  Reusable<std::optional<std::string>> kv_transfer_params;
  Reusable<std::vector<std::uint32_t>> events;
  Reusable<bool> success;
  Reusable<std::vector<std::string>> finished_sending;
  Reusable<std::vector<std::string>> finished_recving;
  Reusable<std::vector<BlockId>> invalid_block_ids;
  Reusable<std::vector<ClassStats>> stats;
  Reusable<std::vector<ChildMeta>> worker_meta;
  Reusable<std::vector<ChildCall>> calls;  ///< of this command, if any

  std::uint32_t num_chosen = 0;
  std::uint32_t num_extra = 0;

  Reusable<std::vector<Chosen>> chosen;
  Reusable<std::vector<Extra>> extra;
  Reusable<std::vector<Rank>> ranks;

  static void declare(auto& fields) {
    using S = Observation;
    fields.add("matched", &S::matched, Domain::kResult, "\"8\", \"8 async\" or again");
    fields.add("metadata", &S::metadata, Domain::kResult, "of each child");
    fields.add("extra_async_saves", &S::extra_async_saves, Domain::kResult,
               "that the metadata carry, by request");
    fields.add("hold", &S::hold, Domain::kResult, "whether the blocks stay");
    fields.add("kv_transfer_params", &S::kv_transfer_params, Domain::kResult, "for the client");
    fields.add("events", &S::events, Domain::kResult, "oldest first");
    fields.add("success", &S::success, Domain::kResult, "whether the reset happened");
    fields.add("finished_sending", &S::finished_sending, Domain::kResult, "sent, ascending");
    fields.add("finished_recving", &S::finished_recving, Domain::kResult, "received, ascending");
    fields.add("invalid_block_ids", &S::invalid_block_ids, Domain::kResult, "ascending");
    fields.add("stats", &S::stats, Domain::kResult, "of each class, if there are any");
    fields.add("worker_meta", &S::worker_meta, Domain::kResult, "of each child, if any has some");
    fields.add("calls", &S::calls, Domain::kResult, "on the children, oldest first");
    fields.add("num_chosen", &S::num_chosen, Domain::kState, "requests with a chosen child");
    fields.add("num_extra", &S::num_extra, Domain::kState,
               "requests with extra saves, in all halves");
    fields.add("chosen", &S::chosen, Domain::kState, "by request");
    fields.add("extra", &S::extra, Domain::kState, "that no metadata carry yet, by request");
    fields.add("ranks", &S::ranks, Domain::kState, "the workers");
  }
  friend bool operator==(const Observation&, const Observation&) = default;
};

/// Nothing is declared.
class World {
 public:
  void apply(const Command&) {}
};

}  // namespace multi_connector

/// What generic code knows of the target.
struct MultiConnectorTarget {
  static constexpr std::string_view kName = "multi_connector";
  static constexpr std::string_view kDoc =
      "MultiConnector over scripted children: who loads, who is told, when a request is sent";
  using Config = multi_connector::Config;
  using Command = multi_connector::Command;
  using Observation = multi_connector::Observation;
  using World = multi_connector::World;
  using Numbers = Observation;
  using Setup = multi_connector::Config;

  static Parsed<Setup> prepare(const Config& config, std::string_view file, Position position);
  static World make_world(const Config& config, const Setup& setup);
  static const Target& description();
};

}  // namespace kvfence
