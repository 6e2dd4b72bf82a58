#pragma once

/// The `engine` target: schedulers, their connectors, and the workers of all ranks with what copies
/// and computes there. The configuration (contract/engine/engine_config.h) says what is combined;
/// the facets in contract/connectors declare what each connector adds. Everything that reads or
/// writes configuration, commands and observations derives from declarations
/// (contract/core/declare.h).
///
/// Over scripted copies a step that was planned goes to the workers when its output is taken in:
/// `update` runs the workers' halves of every rank for the oldest step, aggregates their reports,
/// and gives the result to the scheduler with what was sampled.
///
/// Over a device a step goes through three commands of its own: `execute` gives it to the ranks,
/// `poll` asks their halves what is over, `update` waits for the forward and takes its tokens in,
/// once all ranks were polled.
/// Each rank samples by its own KV (contract/engine/toy_model.h): KV that was never computed, or
/// was overwritten, yields a token that a run without a cache does not have. Where ranks disagree,
/// there is no token.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/target.h"
#include "contract/core/types.h"
#include "contract/engine/engine_config.h"
#include "contract/engine/engine_words.h"
#include "contract/pool/request_table.h"
#include "contract/worker/kv_pages.h"

namespace kvfence {
namespace engine {

// ---- Commands of devices ----

/// Each rank takes the steps in order, and one may be ahead of another; the report of a step
/// aggregates those of all ranks.
/// Source: vLLM v0.23.0 v1/executor/multiproc_executor.py collective_rpc, worker_busy_loop.
struct OfRanks : OfEngine {
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kNoStepInFlight};
  std::optional<std::uint32_t> rank = std::nullopt;
  static void declare(auto& fields) {
    fields.optional("rank", &OfRanks::rank, Domain::kCount,
                    "the rank; by default all that are furthest behind");
    OfEngine::declare(fields);
  }
};

/// Errors: kNotInConfig: no such rank; kNoStepInFlight: no step is planned that such a rank has not
/// executed, or it has not polled the one before.
struct Execute : OfRanks {
  static constexpr Verb kVerb{"execute", "the oldest planned step goes to the device"};
};

/// Errors: kNotInConfig: no such rank or stream.
struct Advance : OfEngine {
  static constexpr Verb kVerb{"advance", "the device runs the next forward or transfer"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig};
  std::string stream = "compute";
  std::uint32_t rank = 0;
  static void declare(auto& fields) {
    fields.add("stream", &Advance::stream, Domain::kChoice, "compute, store or load");
    fields.optional("rank", &Advance::rank, Domain::kCount, "the rank");
    OfEngine::declare(fields);
  }
};

/// Replaces a pending fault.
/// Errors: kNotInConfig: no such rank, stream of copies or fault; no OffloadingConnector, or the
/// simple one beside it, whose copies do not fail; a load where a group has a window, or with
/// several groups, whose lost blocks upstream's scheduler cannot handle; kNotInProfile: a store
/// fails with hold. A late transfer does not fail.
struct FailNext : OfEngine {
  static constexpr Verb kVerb{"fail_next", "the next transfer that a stream is given fails"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kNotInProfile};
  std::string stream = "load";
  std::uint32_t rank = 0;
  std::string fault = "copy";
  static void declare(auto& fields) {
    using S = FailNext;
    fields.add("stream", &S::stream, Domain::kChoice, "store or load");
    fields.optional("rank", &S::rank, Domain::kCount, "the rank");
    fields.optional(
        "fault", &S::fault, Domain::kChoice,
        "copy: nothing is copied; wait: likewise, and it does not wait; record: its end is "
        "known when its stream has nothing left; partial: all that it writes is torn; late: its "
        "end is denied twice");
    OfEngine::declare(fields);
  }
};

/// The report is there once all ranks were polled for the step.
/// Errors: kNotInConfig: no such rank; kNoStepInFlight: such a rank has executed no step that it
/// has not polled.
struct Poll : OfRanks {
  static constexpr Verb kVerb{"poll", "the worker's half asks what is over, for its report"};
};

/// Pending faults are withdrawn. Steps without tokens follow until nothing is held or copied,
/// kNumDrainSteps at most. Copies that they submit are over when they are first polled: where one
/// is under way, a lazy simple connector plans another, as long as there are steps. Of a pair one
/// engine is drained, and what the other one or the network still uses stays held.
struct Drain : OfEngine {
  static constexpr Verb kVerb{"drain", "aborts every request and lets everything come to rest"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig};
};
inline constexpr std::uint32_t kNumDrainSteps = 4;

using Command =
    std::variant<AddRequest, HandOver, Schedule, Execute, Poll, Update, UpdateDraftTokenIds,
                 GrammarCompiled, FinishRequests, FinishAllRequests, SetPauseState,
                 ResetPrefixCache, ScriptConnector, Advance, FailNext, Drain,
                 offloading::AdvanceTransfer, offloading::ReportTransferAgain, offloading::LogStats,
                 offloading::TierFinish, offloading::TierAskAgain, offloading::TierAdd,
                 offloading::TierDrop, offloading::TierFaults, offloading::TierDamage,
                 simple::AdvanceCopy, files::WriteEntry, files::RemoveEntry, files::RemoveFile,
                 files::TruncateFile, files::FailNextFile, nixl::AdvanceRead, nixl::DeliverNotice,
                 nixl::LoseNotice, nixl::RepeatNotice, nixl::AdvanceClock>;

// ---- What is observed ----

/// The report of all ranks together: with the update, or with the poll before it.
struct Report {
  Reusable<std::vector<std::string>> finished_recving;
  Reusable<std::vector<std::string>> finished_sending;
  Reusable<std::vector<BlockId>> invalid_blocks;
  Reusable<std::vector<CompletedJob>> completed_jobs;
  static void declare(auto& fields) {
    using S = Report;
    fields.result("finished_recving", &S::finished_recving, "loads that are over");
    fields.result("finished_sending", &S::finished_sending,
                  "held blocks that are no longer needed");
    fields.result("invalid_blocks", &S::invalid_blocks, "of loads that failed");
    fields.result("completed_jobs", &S::completed_jobs,
                  "that workers report; of the simple connector, its stores");
  }
};

/// A transfer that a rank's device was given.
struct DeviceTransfer {
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
    using S = DeviceTransfer;
    fields.optional("rank", &S::rank, "where");
    fields.add("job", &S::job, "its number");
    fields.add("request", &S::request, "its request");
    fields.optional("store", &S::store, "to CPU memory");
    fields.add("gpu_blocks", &S::gpu_blocks, "group after group, in the order of their tokens");
    fields.add("group_sizes", &S::group_sizes, "GPU blocks by group");
    fields.add("block_indices", &S::block_indices,
               "place of each group's first one in the table; with hold a store has 0");
    fields.add("slots", &S::slots, "one per offloaded block");
  }
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
    fields.optional("rank", &S::rank, "where");
    fields.add("job", &S::job, "its number");
    fields.optional("store", &S::store, "to CPU memory");
    fields.optional("succeeded", &S::succeeded, "whether all was copied");
  }
};

/// What devices show. Ranks come one after the other.
struct DeviceObserved {
  Reusable<std::vector<DeviceTransfer>> submitted;  ///< execute; poll, of the simple connector
  Reusable<bool> advanced;
  Reusable<std::vector<EndedTransfer>> ended;  ///< poll

  // The numbers: after every command.
  Reusable<std::uint32_t> num_steps_in_flight;
  Reusable<std::uint32_t> num_transfers;
  Reusable<std::uint32_t> num_races;
  Reusable<std::uint32_t> num_misuses;

  // The whole state: where asked for, and not with tokens_only.
  Reusable<KVPages> gpu_kv;
  Reusable<KVPages> cpu_kv;

  static void declare(auto& fields) {
    using S = DeviceObserved;
    fields.result("submitted", &S::submitted, "in order");
    fields.result("advanced", &S::advanced, "advance: whether anything ran");
    fields.result("ended", &S::ended, "stores, then loads, in the order of submission");
    fields.state("num_steps_in_flight", &S::num_steps_in_flight, "planned, not taken in");
    fields.state("num_transfers", &S::num_transfers, "enqueued, not reported");
    fields.state("num_races", &S::num_races,
                 "pairs of accesses to the same bytes that nothing orders");
    fields.state("num_misuses", &S::num_misuses,
                 "calls of the runtime that its documentation forbids");
    fields.state("gpu_kv", &S::gpu_kv, "GPU blocks that hold something");
    fields.state("cpu_kv", &S::cpu_kv, "pages of slots that do");
  }
};

/// The observation of one engine: its scheduler, and its devices and connectors if it has some.
/// Storage with files is shared by both engines of a pair, as upstream's connectors share a folder:
/// the producer shows it.
struct EngineObservation : SchedulerObservation,
                           DeviceObserved,
                           offloading::Observed,
                           simple::Observed,
                           files::Observed,
                           multi::Observed {
  static void declare(auto& fields) {
    SchedulerObservation::declare(fields);
    DeviceObserved::declare(fields);
    offloading::Observed::declare(fields);
    simple::Observed::declare(fields);
    files::Observed::declare(fields);
    multi::Observed::declare(fields);
  }
};

/// What an engine, or a pair, returns after a command: the observation of the engine, or of a
/// pair's producer, and what concerns both. A pair's report is that of the engine that the command
/// names.
struct Observation : EngineObservation, Report, nixl::Observed {
  ErrorCode error = ErrorCode::kNone;
  /// Upstream raised, and a new engine, or pair, starts: the only other answer is the calls so far,
  /// and the state is the new one's.
  Reusable<std::string> engine_ended;
  EngineObservation consumer;  ///< of a pair

  EngineObservation& of(EngineRole role) {
    return role == EngineRole::kProducer ? *this : consumer;
  }
  const EngineObservation& of(EngineRole role) const {
    return role == EngineRole::kProducer ? *this : consumer;
  }

  static void declare(auto& fields) {
    fields.result("error", &Observation::error, "none, or why the command was refused");
    SchedulerObservation::declare(fields);
    Report::declare(fields);
    DeviceObserved::declare(fields);
    offloading::Observed::declare(fields);
    simple::Observed::declare(fields);
    files::Observed::declare(fields);
    nixl::Observed::declare(fields);
    fields.result("engine_ended", &Observation::engine_ended, "why, where upstream raises");
    multi::Observed::declare(fields);
    fields.add_part("consumer_", &Observation::consumer);
  }
  friend bool operator==(const Observation&, const Observation&) = default;
};

/// Whether the command ended the engine, and another one starts: a file failed, or upstream raises.
inline bool has_ended(const Observation& shown) {
  const auto has_failed = [](const files::Observed& of_engine) {
    return of_engine.failed.has_value() && !of_engine.failed->empty();
  };
  return shown.engine_ended.has_value() || has_failed(shown) || has_failed(shown.consumer);
}

/// What commands declare and no scheduler owns: which names were used, and the prompts' hashes.
class World {
 public:
  World() = default;
  explicit World(const HashConfig& config) : requests_(config) {}

  /// Takes in AddRequest and HandOver of a new name; every other command leaves the world as it is.
  void apply(const Command& command);

  /// The prompts, for symbols.
  const RequestTable& requests() const { return requests_; }

  struct Entry {
    std::uint32_t number = 0;  ///< in order of declaration
    bool is_new = false;       ///< declared by the last command
  };
  /// Nothing for an unknown name.
  std::optional<Entry> find(const std::string& name) const;

 private:
  void add(const std::string& id, const RequestSpec& spec);

  RequestTable requests_;
  std::optional<std::uint32_t> newest_;  ///< declared by the last command
};

}  // namespace engine

struct EngineSetup;  ///< contract/engine/engine_setup.h

/// What generic code knows of the target.
struct EngineTarget {
  static constexpr std::string_view kName = "engine";
  static constexpr std::string_view kDoc =
      "schedulers, connectors, workers and devices: steps, loads, stores, transfers, failures";
  using Config = engine::Config;
  using Command = engine::Command;
  using Observation = engine::Observation;
  using World = engine::World;
  using Setup = EngineSetup;

  /// If only the assembly is named, fills in its connectors, and device and engines unless named.
  /// Before prepare.
  static void complete(Config& config);
  static Parsed<Setup> prepare(const Config& config, std::string_view file, Position position);
  static World make_world(const Config& config, const Setup& setup);
  static const Target& description();
};

}  // namespace kvfence
