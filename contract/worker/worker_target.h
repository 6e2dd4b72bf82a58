#pragma once

/// The `worker` target: its configuration line, its commands, its observations. Everything that
/// reads or writes them derives from the declarations here (contract/core/declare.h). What the
/// commands
/// do: contract/worker/worker.h.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/status.h"
#include "contract/core/target.h"
#include "contract/pool/block_pool_target.h"
#include "contract/worker/worker.h"

namespace kvfence {

namespace worker {

struct GetFinished {
  static constexpr std::string_view kVerb = "get_finished";
  static constexpr std::string_view kDoc =
      "asks which transfers are over; devices that are not commanded, until all are";
  static void declare(auto& /*fields*/) {}
  friend bool operator==(const GetFinished&, const GetFinished&) = default;
};

struct TransferAsync {
  static constexpr std::string_view kVerb = "transfer_async";
  static constexpr std::string_view kDoc = "submits a load, or a store, which is deferred";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig,   ErrorCode::kShutDown,
                                            ErrorCode::kJobInFlight,   ErrorCode::kUnknownBlock,
                                            ErrorCode::kCountsDiffer,  ErrorCode::kListedTwice,
                                            ErrorCode::kBlockInFlight, ErrorCode::kNotOrdered};
  std::uint32_t job = 0;
  std::string direction = "store";
  std::vector<std::uint32_t> gpu_blocks;
  std::vector<std::uint32_t> cpu_blocks;
  std::uint32_t block_index = 0;
  bool has_event = true;
  static void declare(auto& fields) {
    using S = TransferAsync;
    fields.add("job", &S::job, Domain::kCount, "its number");
    fields.add("direction", &S::direction, Domain::kChoice, "store or load");
    fields.add("gpu_blocks", &S::gpu_blocks, Domain::kBlocks, "from or to, in order");
    fields.add("cpu_blocks", &S::cpu_blocks, Domain::kBlocks,
               "to or from, each of block_size_factor pages");
    fields.optional(
        "block_index", &S::block_index, Domain::kCount,
        "of the first GPU block in its request, which says where in the first CPU block");
    fields.optional("has_event", &S::has_event, Domain::kFlag,
                    "of a load: what the last readers of its blocks have recorded");
  }
  friend bool operator==(const TransferAsync&, const TransferAsync&) = default;
};

struct StartKVTransfers {
  static constexpr std::string_view kVerb = "start_kv_transfers";
  static constexpr std::string_view kDoc = "enqueues the deferred stores";
  static void declare(auto& /*fields*/) {}
  friend bool operator==(const StartKVTransfers&, const StartKVTransfers&) = default;
};

struct Wait {
  static constexpr std::string_view kVerb = "wait";
  static constexpr std::string_view kDoc = "blocks until transfers are over";
  std::vector<std::uint32_t> jobs;
  static void declare(auto& fields) {
    fields.add("jobs", &Wait::jobs, Domain::kCount, "their numbers");
  }
  friend bool operator==(const Wait&, const Wait&) = default;
};

struct Shutdown {
  static constexpr std::string_view kVerb = "shutdown";
  static constexpr std::string_view kDoc = "ends and reports all transfers; takes none any more";
  static void declare(auto& /*fields*/) {}
  friend bool operator==(const Shutdown&, const Shutdown&) = default;
};

struct Forward {
  static constexpr std::string_view kVerb = "forward";
  static constexpr std::string_view kDoc = "enqueues a model's step on the compute stream";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownBlock, ErrorCode::kListedTwice,
                                            ErrorCode::kBlockInFlight};
  std::vector<std::uint32_t> reads;
  std::vector<std::uint32_t> writes;
  static void declare(auto& fields) {
    using S = Forward;
    fields.optional("reads", &S::reads, Domain::kBlocks, "GPU blocks that it attends to");
    fields.optional("writes", &S::writes, Domain::kBlocks, "GPU blocks that it fills");
  }
  friend bool operator==(const Forward&, const Forward&) = default;
};

struct Advance {
  static constexpr std::string_view kVerb = "advance";
  static constexpr std::string_view kDoc = "the device runs the next forward or transfer";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig};
  std::string stream = "compute";
  std::uint32_t steps = 0;
  std::uint32_t rank = 0;
  static void declare(auto& fields) {
    using S = Advance;
    fields.add("stream", &S::stream, Domain::kChoice, "compute, store or load");
    fields.optional(
        "steps", &S::steps, Domain::kCount,
        "so many reads and writes of pieces of a transfer, but not its last; 0: all of it");
    fields.optional("rank", &S::rank, Domain::kCount, "whose device");
  }
  friend bool operator==(const Advance&, const Advance&) = default;
};

struct FailNext {
  static constexpr std::string_view kVerb = "fail_next";
  static constexpr std::string_view kDoc = "the next transfer that is enqueued meets a fault";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig};
  std::string fault = "copy";
  std::uint32_t rank = 0;
  static void declare(auto& fields) {
    using S = FailNext;
    fields.add("fault", &S::fault, Domain::kChoice,
               "copy, wait, record, late, partial, sticky or none");
    fields.optional("rank", &S::rank, Domain::kCount, "on whose device; on no other any more");
  }
  friend bool operator==(const FailNext&, const FailNext&) = default;
};

using Command = std::variant<GetFinished, TransferAsync, StartKVTransfers, Wait, Shutdown, Forward,
                             Advance, FailNext>;

struct Config {
  std::string layout = "blocks_first";
  std::string path = "batched";
  std::uint32_t num_gpu_blocks = 8;
  std::uint32_t num_cpu_blocks = 4;
  std::uint32_t block_size_factor = 1;
  std::uint32_t batch_entries_max = 64;
  bool host_address_differs = false;
  std::string schedule = "commanded";
  std::uint32_t seed = 1;
  std::uint32_t num_ranks = 1;
  static void declare(auto& fields) {
    using S = Config;
    fields.add("layout", &S::layout, Domain::kSetting,
               "of the KV cache: blocks_first, kv_first, cross_layers, mamba, padded");
    fields.add("path", &S::path, Domain::kSetting,
               "how pages are copied: batched, looped, strided, kernel");
    fields.add("num_gpu_blocks", &S::num_gpu_blocks, Domain::kSetting, "1 to 64");
    fields.add("num_cpu_blocks", &S::num_cpu_blocks, Domain::kSetting, "1 to 64");
    fields.add("block_size_factor", &S::block_size_factor, Domain::kSetting,
               "pages of a CPU block, 1 to 8");
    fields.add("batch_entries_max", &S::batch_entries_max, Domain::kSetting,
               "the device refuses larger batches");
    fields.add("host_address_differs", &S::host_address_differs, Domain::kSetting,
               "the device knows pinned memory by another address");
    fields.optional("schedule", &S::schedule, Domain::kSetting,
                    "who decides when devices run what: commanded, eager, lazy, random, priority");
    fields.optional("seed", &S::seed, Domain::kSetting, "of what the devices choose");
    fields.optional("num_ranks", &S::num_ranks, Domain::kSetting,
                    "workers, each with a device, 1 to 4");
  }
  friend bool operator==(const Config&, const Config&) = default;
};

/// A transfer that is over.
struct FinishedJob {
  static constexpr std::string_view kWord = "finished";
  std::uint32_t job = 0;
  std::string direction = "store";
  bool succeeded = true;
  static void declare(auto& fields) {
    using S = FinishedJob;
    fields.add("job", &S::job, Domain::kResult, "its number");
    fields.add("direction", &S::direction, Domain::kResult, "store or load");
    fields.optional("succeeded", &S::succeeded, Domain::kResult, "whether all was copied");
  }
  friend bool operator==(const FinishedJob&, const FinishedJob&) = default;
};

/// A page that holds something: a GPU block, or the part of a CPU block that takes one.
struct Page {
  static constexpr std::string_view kWord = "page";
  std::uint32_t number = 0;
  std::uint32_t of_block = 0;
  std::uint32_t generation = 0;
  bool torn = false;
  bool undefined = false;
  std::uint32_t rank = 0;
  static void declare(auto& fields) {
    using S = Page;
    fields.add("number", &S::number, Domain::kState, "which");
    fields.add("of_block", &S::of_block, Domain::kState, "the GPU block that a forward wrote");
    fields.add("generation", &S::generation, Domain::kState, "which forward, from 1; 0: nothing");
    fields.optional("torn", &S::torn, Domain::kState, "neither empty nor one block");
    fields.optional("undefined", &S::undefined, Domain::kState, "a write of it may be under way");
    fields.optional("rank", &S::rank, Domain::kState, "whose");
  }
  friend bool operator==(const Page&, const Page&) = default;
};

/// What a worker and its device owe after a command.
struct Observation {
  ErrorCode error = ErrorCode::kNone;
  Reusable<std::vector<FinishedJob>> finished_jobs;
  Reusable<bool> advanced;
  std::vector<Page> seen;

  std::uint32_t num_deferred = 0;
  std::uint32_t num_in_flight = 0;
  std::string next_fault = "none";
  std::uint32_t num_races = 0;
  std::uint32_t num_misuses = 0;

  Reusable<std::vector<Page>> gpu_pages;
  Reusable<std::vector<Page>> cpu_pages;
  Reusable<std::uint32_t> num_stray_bytes;

  static void declare(auto& fields) {
    using S = Observation;
    fields.add("finished_jobs", &S::finished_jobs, Domain::kResult,
               "get_finished, shutdown: stores, then loads, in the order of submission");
    fields.add("advanced", &S::advanced, Domain::kResult,
               "advance: whether anything ran; of a device that is not commanded, false");
    fields.add("seen", &S::seen, Domain::kResult,
               "what the forwards that ran found in the blocks that they read");
    fields.add("num_deferred", &S::num_deferred, Domain::kState, "stores that are not enqueued");
    fields.add("num_in_flight", &S::num_in_flight, Domain::kState, "enqueued, not reported");
    fields.add("next_fault", &S::next_fault, Domain::kState, "of the next transfer enqueued");
    fields.add("num_races", &S::num_races, Domain::kState,
               "pairs of accesses to the same bytes that nothing orders");
    fields.add("num_misuses", &S::num_misuses, Domain::kState,
               "calls of the runtime that its documentation forbids");
    fields.add("gpu_pages", &S::gpu_pages, Domain::kState, "GPU blocks that hold something");
    fields.add("cpu_pages", &S::cpu_pages, Domain::kState, "pages of CPU blocks that do");
    fields.add("num_stray_bytes", &S::num_stray_bytes, Domain::kState,
               "bytes that were changed outside of pages");
  }
  friend bool operator==(const Observation&, const Observation&) = default;
};

using World = NoWorld;

}  // namespace worker

/// What a worker is built from, or what is wrong with the configuration (position: the config
/// line).
Parsed<worker::Options> make_worker_options(const worker::Config& config,
                                            std::string_view file = {}, Position position = {});

/// What generic code knows of the target.
struct WorkerTarget {
  static constexpr std::string_view kName = "worker";
  static constexpr std::string_view kDoc =
      "copy workers on devices whose progress is commanded, or free: what every page holds";
  using Config = worker::Config;
  using Command = worker::Command;
  using Observation = worker::Observation;
  using World = worker::World;
  using Setup = worker::Options;

  static constexpr auto prepare = &make_worker_options;
  static const Target& description();
};

}  // namespace kvfence
