#pragma once

/// The `worker` target: its configuration line, its commands, its observations. Everything that
/// reads or writes them derives from the declarations here (contract/core/declare.h). What the
/// commands do: contract/worker/worker.h.

#include <cstdint>
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

using kvfence::operator==;

struct GetFinished {
  static constexpr Verb kVerb{
      "get_finished",
      "asks which transfers are over; devices that are not commanded, until all are"};
};

struct TransferAsync : Transfer {
  static constexpr Verb kVerb{"transfer_async", "submits a load, or a store, which is deferred"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig,   ErrorCode::kShutDown,
                                            ErrorCode::kJobInFlight,   ErrorCode::kUnknownBlock,
                                            ErrorCode::kCountsDiffer,  ErrorCode::kListedTwice,
                                            ErrorCode::kBlockInFlight, ErrorCode::kNotOrdered};
  static void declare(auto& fields) {
    using S = TransferAsync;
    fields.add("job", &S::job_id, Domain::kCount, "its number");
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
};

struct StartKVTransfers {
  static constexpr Verb kVerb{"start_kv_transfers", "enqueues the deferred stores"};
};

struct Wait {
  static constexpr Verb kVerb{"wait", "blocks until transfers are over"};
  std::vector<std::uint32_t> jobs;
  static void declare(auto& fields) {
    fields.add("jobs", &Wait::jobs, Domain::kCount, "their numbers");
  }
};

struct Shutdown {
  static constexpr Verb kVerb{"shutdown", "ends and reports all transfers; no longer accepts any"};
};

struct Forward {
  static constexpr Verb kVerb{"forward", "enqueues a model's step on the compute stream"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kUnknownBlock, ErrorCode::kListedTwice,
                                            ErrorCode::kBlockInFlight};
  std::vector<std::uint32_t> reads;
  std::vector<std::uint32_t> writes;
  static void declare(auto& fields) {
    using S = Forward;
    fields.optional("reads", &S::reads, Domain::kBlocks, "GPU blocks that it attends to");
    fields.optional("writes", &S::writes, Domain::kBlocks, "GPU blocks that it fills");
  }
};

struct Advance {
  static constexpr Verb kVerb{"advance", "the device runs the next forward or transfer"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig};
  Stream stream = Stream::kCompute;
  std::uint32_t steps = 0;
  std::uint32_t rank = 0;
  static void declare(auto& fields) {
    using S = Advance;
    fields.add("stream", &S::stream, Domain::kChoice, "compute, store or load");
    fields.optional(
        "steps", &S::steps, Domain::kCount,
        "so many reads and writes of pieces of a transfer, but not its last; 0: all of it");
    fields.optional("rank", &S::rank, Domain::kCount, "the rank");
  }
};

struct FailNext {
  static constexpr Verb kVerb{"fail_next", "the next transfer that is enqueued meets a fault"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig};
  Fault fault = Fault::kCopy;
  std::uint32_t rank = 0;
  static void declare(auto& fields) {
    using S = FailNext;
    fields.add("fault", &S::fault, Domain::kChoice,
               "copy, wait, record, late, partial, sticky or none");
    fields.optional("rank", &S::rank, Domain::kCount, "the rank; no other rank keeps a fault");
  }
};

using Command = std::variant<GetFinished, TransferAsync, StartKVTransfers, Wait, Shutdown, Forward,
                             Advance, FailNext>;

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
    fields.add("number", &S::number, "which");
    fields.add("of_block", &S::of_block, "the GPU block that a forward wrote");
    fields.add("generation", &S::generation, "which forward, from 1; 0: nothing");
    fields.optional("torn", &S::torn, "neither empty nor one block");
    fields.optional("undefined", &S::undefined, "a write of it may be under way");
    fields.optional("rank", &S::rank, "the rank");
  }
};

/// What a worker and its device show after a command.
struct Observation : Counts {
  ErrorCode error = ErrorCode::kNone;
  Reusable<std::vector<Ended>> finished_jobs;
  Reusable<bool> advanced;
  Reusable<bool> waited;
  std::vector<Page> seen;
  Reusable<std::vector<Page>> gpu_pages;
  Reusable<std::vector<Page>> cpu_pages;
  Reusable<std::uint32_t> num_stray_bytes;

  static void declare(auto& fields) {
    using S = Observation;
    fields.result("error", &S::error, "none, or why the command was refused");
    fields.result("finished_jobs", &S::finished_jobs,
                  "get_finished, shutdown: stores, then loads, in the order of submission");
    fields.result("advanced", &S::advanced,
                  "advance: whether anything ran; of a device that is not commanded, false");
    fields.result("waited", &S::waited, "wait: whether all of them are known to be over");
    fields.result("seen", &S::seen,
                  "what the forwards that ran found in the blocks that they read");
    fields.state("num_deferred", &S::num_deferred, "stores that are not enqueued");
    fields.state("num_in_flight", &S::num_in_flight, "enqueued, not reported");
    fields.state("num_enqueued", &S::num_enqueued, "transfers, since the start");
    fields.state("num_enqueued_pages", &S::num_enqueued_pages, "of these transfers");
    fields.state("num_failed", &S::num_failed, "of these transfers, so far");
    fields.state("next_fault", &S::next_fault, "of the next transfer enqueued");
    fields.state("num_lost_events", &S::num_lost_events,
                 "events in use that no transfer in flight has");
    fields.state("num_left_behind", &S::num_left_behind,
                 "streams, events and pinned memory that a worker holds after its shutdown");
    fields.state("num_races", &S::num_races,
                 "pairs of accesses to the same bytes that nothing orders");
    fields.state("num_misuses", &S::num_misuses,
                 "calls of the runtime that its documentation forbids");
    fields.state("gpu_pages", &S::gpu_pages, "GPU blocks that hold something");
    fields.state("cpu_pages", &S::cpu_pages, "pages of CPU blocks that do");
    fields.state("num_stray_bytes", &S::num_stray_bytes,
                 "bytes that were changed outside of pages");
  }
  friend bool operator==(const Observation&, const Observation&) = default;
};

using Config = Options;
using World = NoWorld;

}  // namespace worker

/// Returns what a worker is built from, or what is wrong with the configuration (position: the
/// config line).
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
