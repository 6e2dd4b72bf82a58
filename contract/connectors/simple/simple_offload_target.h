#pragma once

/// The `simple_offload` target: a scheduler with the SimpleCPUOffloadConnector behind it, the
/// workers' halves of all ranks, and one copy engine a rank whose progress is commands. Everything
/// that reads or writes its configuration line, commands and observations derives from the
/// declarations here (contract/core/declare.h).
///
/// A step that was planned goes to the workers when its output is taken in, as in the `connector`
/// target.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/connectors/offloading/connector_target.h"
#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/core/declare.h"
#include "contract/core/shared_fields.h"
#include "contract/core/target.h"
#include "contract/scheduler/scheduler_target.h"
#include "contract/scripted/scripted_transfer_engine.h"

namespace kvfence {
namespace simple_offload {

/// Errors, besides the scheduler's: kNotInConfig: with several groups, without
/// skip_reading_prefix_cache: upstream may take the hit of one group in the GPU's cache for what
/// another one loads, over which its connector trips (vllm#33775).
struct AddRequest {
  static constexpr std::string_view kVerb = "add_request";
  static constexpr std::string_view kDoc = "a new request; a name is used once";
  std::string id;
  std::vector<TokenId> tokens;
  std::uint32_t max_tokens = 16;
  std::uint32_t priority = 0;
  std::uint32_t arrival_time = 0;
  std::optional<std::string> cache_salt;
  bool skip_reading_prefix_cache = false;
  static void declare(auto& fields) {
    using S = AddRequest;
    fields.add("id", &S::id, Domain::kRequest, "its name");
    fields.add("tokens", &S::tokens, Domain::kTokens, "prompt tokens");
    fields.add("max_tokens", &S::max_tokens, Domain::kCount, "output tokens at most").optional();
    fields.add("priority", &S::priority, Domain::kCount, "the smaller, the sooner").optional();
    fields.add("arrival_time", &S::arrival_time, Domain::kCount, "decides among equals").optional();
    fields.add("cache_salt", &S::cache_salt, Domain::kText, "enters the first block's hash")
        .optional();
    fields
        .add("skip_reading_prefix_cache", &S::skip_reading_prefix_cache, Domain::kFlag,
             "its lookups in the GPU's cache find nothing")
        .optional();
  }
  friend bool operator==(const AddRequest&, const AddRequest&) = default;
};

using connector::ResetPrefixCache;
using connector::Update;
using scheduler::FinishAllRequests;
using scheduler::FinishRequests;
using scheduler::Sample;
using scheduler::Schedule;
using scheduler::SetPauseState;

/// Which copy follows from the order: the oldest of its direction that has not ended.
/// Errors: kBadRange: neither part nor finished, for copies do not fail; kNotInConfig: no such
/// rank; kUnknownJob: no copy of that direction is under way there.
struct AdvanceCopy {
  static constexpr std::string_view kVerb = "advance_copy";
  static constexpr std::string_view kDoc = "a rank's copy engine comes further in one direction";
  std::uint32_t rank = 0;
  bool store = false;
  TransferProgress progress = TransferProgress::kFinished;
  static void declare(auto& fields) {
    using S = AdvanceCopy;
    fields.add("rank", &S::rank, Domain::kCount, "whose").optional();
    fields.add("store", &S::store, Domain::kFlag, "to CPU memory, else from there").optional();
    fields.add("progress", &S::progress, Domain::kChoice, "part or finished").optional();
  }
  friend bool operator==(const AdvanceCopy&, const AdvanceCopy&) = default;
};

using Command = std::variant<AddRequest, Schedule, Update, AdvanceCopy, FinishRequests,
                             FinishAllRequests, SetPauseState, ResetPrefixCache>;

/// The configuration as it stands on the config line: of the scheduler's settings those that matter
/// here, and the connector's.
struct Config : scheduler::Config {
  std::uint32_t world_size = 1;
  std::uint32_t num_cpu_blocks = 8;
  bool lazy_offload = false;
  std::optional<bool> simple_offload_pins_hits;
  std::optional<bool> simple_offload_skips_stores_under_way;
  std::optional<bool> simple_offload_skips_unhashed_blocks;
  std::optional<bool> simple_offload_aligns_stores;
  static void declare(auto& fields) {
    using S = Config;
    constexpr std::string_view kOverrides = "overrides the profile's rule";
    kv_cache::Config::declare(fields);
    add_engine_fields<S>(fields);
    fields.add("world_size", &S::world_size, Domain::kSetting, "ranks").optional();
    fields.add("num_cpu_blocks", &S::num_cpu_blocks, Domain::kSetting,
               "blocks of the CPU's pool, with the null block");
    fields
        .add("lazy_offload", &S::lazy_offload, Domain::kSetting,
             "stores what is about to be evicted, else what was computed")
        .optional();
    fields
        .add("simple_offload_pins_hits", &S::simple_offload_pins_hits, Domain::kSetting, kOverrides)
        .optional();
    fields
        .add("simple_offload_skips_stores_under_way", &S::simple_offload_skips_stores_under_way,
             Domain::kSetting, kOverrides)
        .optional();
    fields
        .add("simple_offload_skips_unhashed_blocks", &S::simple_offload_skips_unhashed_blocks,
             Domain::kSetting, kOverrides)
        .optional();
    fields
        .add("simple_offload_aligns_stores", &S::simple_offload_aligns_stores, Domain::kSetting,
             kOverrides)
        .optional();
  }
  friend bool operator==(const Config&, const Config&) = default;
};

/// A copy in a rank's engine.
struct Copy {
  static constexpr std::string_view kWord = "copy";
  std::uint32_t rank = 0;
  bool store = false;
  JobId event = 0;
  TransferProgress progress = TransferProgress::kSubmitted;
  static void declare(auto& fields) {
    using S = Copy;
    fields.add("rank", &S::rank, Domain::kState, "where").optional();
    fields.add("store", &S::store, Domain::kState, "to CPU memory").optional();
    fields.add("event", &S::event, Domain::kState, "its number in its direction");
    fields.add("progress", &S::progress, Domain::kState, "how far");
  }
  friend bool operator==(const Copy&, const Copy&) = default;
};

/// A store that workers reported.
struct CompletedStore {
  static constexpr std::string_view kWord = "completed";
  JobId event = 0;
  std::uint32_t num_workers = 0;
  static void declare(auto& fields) {
    using S = CompletedStore;
    fields.add("event", &S::event, Domain::kResult, "which");
    fields.add("num_workers", &S::num_workers, Domain::kResult, "that report it now");
  }
  friend bool operator==(const CompletedStore&, const CompletedStore&) = default;
};

/// What a lookup found and holds.
struct Pin {
  static constexpr std::string_view kWord = "pin";
  std::string request;
  std::vector<BlockId> cpu_blocks;
  static void declare(auto& fields) {
    using S = Pin;
    fields.add("request", &S::request, Domain::kState, "for whom");
    fields.add("cpu_blocks", &S::cpu_blocks, Domain::kState, "group after group");
  }
  friend bool operator==(const Pin&, const Pin&) = default;
};

/// What scheduler, connector and workers owe their caller after a command: the scheduler's
/// observation without connector_calls, and what concerns the connector. What the connector holds
/// in the GPU's pool shows in the scheduler's ref_cnts and free_queue.
struct Observation : scheduler::Observation {
  // schedule: what the workers are told. Absent events: none in this step.
  Reusable<JobId> load_event;
  Reusable<std::vector<BlockId>> load_gpu_blocks;
  Reusable<std::vector<BlockId>> load_cpu_blocks;
  Reusable<std::vector<std::string>> load_requests;
  Reusable<JobId> store_event;
  Reusable<std::vector<BlockId>> store_gpu_blocks;
  Reusable<std::vector<BlockId>> store_cpu_blocks;
  Reusable<bool> need_flush;

  // update: the report of all ranks together
  Reusable<std::vector<std::string>> finished_recving;
  Reusable<std::vector<CompletedStore>> completed_stores;

  // The numbers: after every command.
  std::uint32_t num_empty_cpu_blocks = 0;
  std::uint32_t num_cached_cpu_blocks = 0;
  std::uint32_t num_referenced_cpu_blocks = 0;
  bool has_pending_stores = false;
  Reusable<BlockId> lazy_cursor;

  // The whole state: where asked for.
  Reusable<std::vector<Copy>> copies;
  Reusable<std::vector<Pin>> pins;
  Reusable<std::vector<BlockId>> cpu_free_queue;
  Reusable<std::vector<std::uint32_t>> cpu_ref_cnts;
  Reusable<KeyList> cpu_keys;

  static void declare(auto& fields) {
    using S = Observation;
    scheduler::Observation::declare(fields);
    fields.add("load_event", &S::load_event, Domain::kResult, "number of this step's loads");
    fields.add("load_gpu_blocks", &S::load_gpu_blocks, Domain::kResult, "where they go");
    fields.add("load_cpu_blocks", &S::load_cpu_blocks, Domain::kResult, "where they come from");
    fields.add("load_requests", &S::load_requests, Domain::kResult, "for whom, in order");
    fields.add("store_event", &S::store_event, Domain::kResult, "number of this step's stores");
    fields.add("store_gpu_blocks", &S::store_gpu_blocks, Domain::kResult, "where they come from");
    fields.add("store_cpu_blocks", &S::store_cpu_blocks, Domain::kResult, "where they go");
    fields.add("need_flush", &S::need_flush, Domain::kResult, "all copies end before the step");
    fields.add("finished_recving", &S::finished_recving, Domain::kResult, "loads that are over");
    fields.add("completed_stores", &S::completed_stores, Domain::kResult,
               "by workers, in this step");
    fields.add("num_empty_cpu_blocks", &S::num_empty_cpu_blocks, Domain::kState,
               "queued, without a hash");
    fields.add("num_cached_cpu_blocks", &S::num_cached_cpu_blocks, Domain::kState,
               "queued and still findable");
    fields.add("num_referenced_cpu_blocks", &S::num_referenced_cpu_blocks, Domain::kState,
               "held, and the null block");
    fields.add("has_pending_stores", &S::has_pending_stores, Domain::kState,
               "a store event is not completed");
    fields.add("lazy_cursor", &S::lazy_cursor, Domain::kState,
               "the last GPU block that was looked at");
    fields.add("copies", &S::copies, Domain::kState,
               "in the copy engines, rank by rank, in the order of submission");
    fields.add("pins", &S::pins, Domain::kState, "what lookups hold, in the order of pinning");
    fields.add("cpu_free_queue", &S::cpu_free_queue, Domain::kState, "head to tail");
    fields.add("cpu_ref_cnts", &S::cpu_ref_cnts, Domain::kState, "by block id");
    fields.add("cpu_keys", &S::cpu_keys, Domain::kState, "packed keys by block id");
  }
  friend bool operator==(const Observation&, const Observation&) = default;
};

/// As the scheduler's.
class World : public scheduler::World {
 public:
  using scheduler::World::World;
  void apply(const Command& command);
};

}  // namespace simple_offload

/// What both halves of the connector are built from.
struct SimpleOffloadSetup {
  SchedulerConfig scheduler;
  SimpleCPUOffloadSpec spec;
};

/// The same, or what is wrong with the configuration (position: the config line).
Parsed<SimpleOffloadSetup> make_simple_offload_setup(const simple_offload::Config& config,
                                                     std::string_view file = {},
                                                     Position position = {});

/// What generic code knows of the target.
struct SimpleOffloadTarget {
  static constexpr std::string_view kName = "simple_offload";
  static constexpr std::string_view kDoc =
      "scheduler, SimpleCPUOffloadConnector, workers and copy engines: a second block pool";
  using Config = simple_offload::Config;
  using Command = simple_offload::Command;
  using Observation = simple_offload::Observation;
  using World = simple_offload::World;
  using Numbers = Observation;
  using Setup = SimpleOffloadSetup;

  static Parsed<Setup> prepare(const Config& config, std::string_view file, Position position);
  static World make_world(const Config& config, const Setup& setup);
  static const Target& description();
};

}  // namespace kvfence
