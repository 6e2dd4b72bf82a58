#pragma once

/// The `engine` target: a scheduler with an offloading connector, and ranks, each with a worker's
/// half and a device that computes and copies (contract/engine/engine_device.h), under one list of
/// commands. Everything that
/// reads or writes its configuration line, commands and observations derives from the declarations
/// here (contract/core/declare.h).
///
/// A step goes through four commands, on all ranks: `schedule` plans it; `execute` runs the
/// worker's half up to get_finished and enqueues the forward; `poll` is get_finished; `update`
/// waits for the forward and gives its tokens and the ranks' report to the scheduler. Steps are
/// executed, polled and taken in the order in which they were planned, and each is polled before
/// the next is executed, as in upstream's model runner. What a request samples is the toy model's
/// (contract/engine/toy_model.h): the forward writes the KV of the step's tokens in each group,
/// then reads what these tokens attend to. A token behind one that was read wrong is written wrong,
/// so that nothing that a forward read is without consequence. A rank samples by its own KV; what
/// ranks do not agree on is no token.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/connectors/offloading/connector_target.h"
#include "contract/core/declare.h"
#include "contract/core/shared_fields.h"
#include "contract/core/target.h"
#include "contract/engine/engine_device.h"
#include "contract/scheduler/scheduler_target.h"
#include "contract/worker/kv_pages.h"

namespace kvfence {

namespace engine {

using connector::AddRequest;
using connector::ResetPrefixCache;
using scheduler::FinishAllRequests;
using scheduler::FinishRequests;
using scheduler::Schedule;

/// Errors: kNoStepInFlight: no step is planned and not executed, or the one before was not polled.
struct Execute {
  static constexpr std::string_view kVerb = "execute";
  static constexpr std::string_view kDoc = "the oldest planned step goes to the device";
  static void declare(auto& /*fields*/) {}
  friend bool operator==(const Execute&, const Execute&) = default;
};

/// Errors: kNotInConfig: no such rank or stream.
struct Advance {
  static constexpr std::string_view kVerb = "advance";
  static constexpr std::string_view kDoc = "the device runs the next forward or transfer";
  std::string stream = "compute";
  std::uint32_t rank = 0;
  static void declare(auto& fields) {
    fields.add("stream", &Advance::stream, Domain::kChoice, "compute, store or load");
    fields.add("rank", &Advance::rank, Domain::kCount, "whose").optional();
  }
  friend bool operator==(const Advance&, const Advance&) = default;
};

/// A fault that waits for its transfer is replaced.
/// Errors: kNotInConfig: no such rank, stream of copies or fault, or a load where a group has a
/// window, or there are several, whose lost blocks upstream's scheduler cannot take in;
/// kNotInProfile: a store fails with hold.
struct FailNext {
  static constexpr std::string_view kVerb = "fail_next";
  static constexpr std::string_view kDoc = "the next transfer that a stream is given fails";
  std::string stream = "load";
  std::uint32_t rank = 0;
  std::string fault = "copy";
  static void declare(auto& fields) {
    using S = FailNext;
    fields.add("stream", &S::stream, Domain::kChoice, "store or load");
    fields.add("rank", &S::rank, Domain::kCount, "whose").optional();
    fields
        .add("fault", &S::fault, Domain::kChoice,
             "copy: nothing is copied; wait: nothing, and it waits for nobody; record: its end is "
             "known when its stream has nothing left")
        .optional();
  }
  friend bool operator==(const FailNext&, const FailNext&) = default;
};

/// Errors: kNoStepInFlight: no step was executed and not polled.
struct Poll {
  static constexpr std::string_view kVerb = "poll";
  static constexpr std::string_view kDoc = "the worker's half asks what is over, for its report";
  static void declare(auto& /*fields*/) {}
  friend bool operator==(const Poll&, const Poll&) = default;
};

/// Errors: kNoStepInFlight: the oldest step was not polled.
struct Update {
  static constexpr std::string_view kVerb = "update";
  static constexpr std::string_view kDoc = "the oldest step's forward is waited for and taken in";
  static void declare(auto& /*fields*/) {}
  friend bool operator==(const Update&, const Update&) = default;
};

/// Faults that wait are taken back. Steps without tokens follow until nothing is held,
/// kNumDrainSteps at most.
struct Drain {
  static constexpr std::string_view kVerb = "drain";
  static constexpr std::string_view kDoc = "aborts every request and lets everything come to rest";
  static void declare(auto& /*fields*/) {}
  friend bool operator==(const Drain&, const Drain&) = default;
};
inline constexpr std::uint32_t kNumDrainSteps = 4;

using Command = std::variant<AddRequest, Schedule, Execute, Advance, Poll, Update, FinishRequests,
                             FinishAllRequests, ResetPrefixCache, Drain, FailNext>;

/// The configuration as it stands on the config line. Groups are of full attention or of a sliding
/// window.
struct Config : scheduler::Config {
  std::uint32_t world_size = 1;
  bool tokens_only = false;
  std::uint32_t num_cpu_blocks = 8;
  std::uint32_t block_size_factor = 1;
  std::string eviction_policy = "lru";
  bool offload_prompt_only = true;
  bool request_level_policy = false;
  static void declare(auto& fields) {
    using S = Config;
    kv_cache::Config::declare(fields);
    add_engine_fields<S>(fields);
    add_load_failure_field<S>(fields);
    fields.add("world_size", &S::world_size, Domain::kSetting, "ranks").optional();
    fields
        .add("tokens_only", &S::tokens_only, Domain::kSetting,
             "nobody looks at races and pages: what is wrong shows in the tokens")
        .optional();
    add_cpu_cache_fields<S>(fields);
    add_stored_fields<S>(fields);
  }
  friend bool operator==(const Config&, const Config&) = default;
};

/// A transfer that a rank's device was given.
struct Transfer {
  static constexpr std::string_view kWord = "transfer";
  std::uint32_t rank = 0;
  std::uint32_t job = 0;
  std::string request;
  bool store = false;
  std::vector<BlockId> gpu_blocks;
  std::vector<std::uint32_t> group_sizes;
  std::vector<std::uint32_t> block_indices;
  std::vector<SlotId> slots;
  static void declare(auto& fields) {
    using S = Transfer;
    fields.add("rank", &S::rank, Domain::kResult, "where").optional();
    fields.add("job", &S::job, Domain::kResult, "its number");
    fields.add("request", &S::request, Domain::kResult, "for whom");
    fields.add("store", &S::store, Domain::kResult, "to CPU memory").optional();
    fields.add("gpu_blocks", &S::gpu_blocks, Domain::kResult,
               "group after group, in the order of their tokens");
    fields.add("group_sizes", &S::group_sizes, Domain::kResult, "GPU blocks by group");
    fields.add("block_indices", &S::block_indices, Domain::kResult,
               "place of each group's first one in the table; with hold a store has 0");
    fields.add("slots", &S::slots, Domain::kResult, "one an offloaded block");
  }
  friend bool operator==(const Transfer&, const Transfer&) = default;
};

/// A transfer that is over.
struct EndedTransfer {
  static constexpr std::string_view kWord = "ended";
  std::uint32_t rank = 0;
  std::uint32_t job = 0;
  bool store = false;
  bool succeeded = true;
  static void declare(auto& fields) {
    using S = EndedTransfer;
    fields.add("rank", &S::rank, Domain::kResult, "where").optional();
    fields.add("job", &S::job, Domain::kResult, "its number");
    fields.add("store", &S::store, Domain::kResult, "to CPU memory").optional();
    fields.add("succeeded", &S::succeeded, Domain::kResult, "whether all was copied").optional();
  }
  friend bool operator==(const EndedTransfer&, const EndedTransfer&) = default;
};

/// The low 32 bits of a symbol, of which 0 and 1 keep their meaning.
inline std::uint32_t shortened(Symbol symbol) { return static_cast<std::uint32_t>(symbol); }

/// What an engine owes its caller after a command: the scheduler's observation, and what concerns
/// the connector and the devices. Ranks come one after the other.
struct Observation : scheduler::Observation {
  // schedule
  Reusable<std::vector<std::string>> requests_to_flush;
  Reusable<std::vector<JobId>> jobs_to_flush;

  Reusable<std::vector<Transfer>> submitted;  ///< execute
  Reusable<bool> advanced;

  // poll
  Reusable<std::vector<EndedTransfer>> ended;
  Reusable<std::vector<std::string>> finished_recving;
  Reusable<std::vector<std::string>> finished_sending;
  Reusable<std::vector<BlockId>> invalid_blocks;
  Reusable<std::vector<connector::Completed>> completed_jobs;

  // The numbers: after every command.
  std::uint32_t num_free_slots = 0;
  std::uint32_t num_steps_in_flight = 0;
  std::uint32_t num_transfers = 0;
  std::uint32_t num_races = 0;
  std::uint32_t num_misuses = 0;

  // The whole state: where asked for, and not with tokens_only.
  Reusable<KVPages> gpu_kv;
  Reusable<KVPages> cpu_kv;

  static void declare(auto& fields) {
    using S = Observation;
    scheduler::Observation::declare(fields);
    fields.add("requests_to_flush", &S::requests_to_flush, Domain::kResult,
               "whose stores end before the step");
    fields.add("jobs_to_flush", &S::jobs_to_flush, Domain::kResult,
               "which transfers end before the step");
    fields.add("submitted", &S::submitted, Domain::kResult, "in order");
    fields.add("advanced", &S::advanced, Domain::kResult, "advance: whether anything ran");
    fields.add("ended", &S::ended, Domain::kResult,
               "stores, then loads, in the order of submission");
    fields.add("finished_recving", &S::finished_recving, Domain::kResult, "loads that are over");
    fields.add("finished_sending", &S::finished_sending, Domain::kResult,
               "held blocks that are not needed any more");
    fields.add("invalid_blocks", &S::invalid_blocks, Domain::kResult, "of loads that failed");
    fields.add("completed_jobs", &S::completed_jobs, Domain::kResult, "that workers report");
    fields.add("num_free_slots", &S::num_free_slots, Domain::kState, "never used, or freed");
    fields.add("num_steps_in_flight", &S::num_steps_in_flight, Domain::kState,
               "planned, not taken in");
    fields.add("num_transfers", &S::num_transfers, Domain::kState, "enqueued, not reported");
    fields.add("num_races", &S::num_races, Domain::kState,
               "pairs of accesses to the same bytes that nothing orders");
    fields.add("num_misuses", &S::num_misuses, Domain::kState,
               "calls of the runtime that its documentation forbids");
    fields.add("gpu_kv", &S::gpu_kv, Domain::kState, "GPU blocks that hold something");
    fields.add("cpu_kv", &S::cpu_kv, Domain::kState, "pages of slots that do");
  }
  friend bool operator==(const Observation&, const Observation&) = default;
};

/// As the scheduler's.
class World : public scheduler::World {
 public:
  using scheduler::World::World;
  void apply(const Command& command);
};

}  // namespace engine

/// What an engine is built from.
struct EngineSetup {
  ConnectorSetup connector;
  engine::DeviceOptions device;        ///< each rank's
  std::vector<std::uint32_t> windows;  ///< by group: tokens; 0: full attention
  bool tokens_only = false;
};

/// The same, or what is wrong with the configuration (position: the config line).
Parsed<EngineSetup> make_engine_setup(const engine::Config& config, std::string_view file = {},
                                      Position position = {});

/// What generic code knows of the target.
struct EngineTarget {
  static constexpr std::string_view kName = "engine";
  static constexpr std::string_view kDoc =
      "scheduler, connector, workers and devices with a toy model: tokens as of a run without a "
      "cache";
  using Config = engine::Config;
  using Command = engine::Command;
  using Observation = engine::Observation;
  using World = engine::World;
  using Numbers = Observation;
  using Setup = EngineSetup;

  static Parsed<Setup> prepare(const Config& config, std::string_view file, Position position);
  static World make_world(const Config& config, const Setup& setup);
  static const Target& description();
};

}  // namespace kvfence
