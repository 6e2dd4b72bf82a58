#pragma once

/// What a SimpleCPUOffloadConnector adds to an engine: its record in the configuration, its
/// command, and what it shows. Everything that reads or writes them derives from the declarations
/// here (contract/core/declare.h).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/core/declare.h"
#include "contract/core/engine_role.h"
#include "contract/core/status.h"
#include "contract/core/types.h"
#include "contract/pool/pool_values.h"
#include "contract/scripted/transfer_progress.h"

namespace kvfence {
namespace engine::simple {

using kvfence::operator==;

/// The copy is the oldest of its direction that has not ended.
/// Errors: kBadRange: neither part nor finished, for copies do not fail; kNotInConfig: no such
/// rank, or a device copies; kUnknownJob: no copy of that direction is under way there.
struct AdvanceCopy : OfEngine {
  static constexpr Verb kVerb{"advance_copy",
                              "a rank's copy engine makes progress in one direction"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kBadRange,
                                            ErrorCode::kUnknownJob};
  std::uint32_t rank = 0;
  bool store = false;
  TransferProgress progress = TransferProgress::kFinished;
  static void declare(auto& fields) {
    using S = AdvanceCopy;
    fields.optional("rank", &S::rank, Domain::kCount, "the rank");
    fields.optional("store", &S::store, Domain::kFlag, "to CPU memory, else from there");
    fields.optional("progress", &S::progress, Domain::kChoice, "part or finished");
    OfEngine::declare(fields);
  }
};

/// `(simple num_cpu_blocks=8 ...)` in the configuration.
struct Record {
  static constexpr std::string_view kWord = "simple";
  std::uint32_t num_cpu_blocks = 8;
  bool lazy_offload = false;
  std::optional<bool> simple_offload_pins_hits;
  std::optional<bool> simple_offload_skips_stores_under_way;
  std::optional<bool> simple_offload_skips_unhashed_blocks;
  std::optional<bool> simple_offload_aligns_stores;
  static void declare(auto& fields) {
    using S = Record;
    constexpr std::string_view kOverrides = "overrides the profile's rule";
    fields.add("num_cpu_blocks", &S::num_cpu_blocks,
               "blocks of the CPU's pool, with the null block");
    fields.optional("lazy_offload", &S::lazy_offload,
                    "stores what is about to be evicted, else what was computed");
    fields.optional("simple_offload_pins_hits", &S::simple_offload_pins_hits, kOverrides);
    fields.optional("simple_offload_skips_stores_under_way",
                    &S::simple_offload_skips_stores_under_way, kOverrides);
    fields.optional("simple_offload_skips_unhashed_blocks",
                    &S::simple_offload_skips_unhashed_blocks, kOverrides);
    fields.optional("simple_offload_aligns_stores", &S::simple_offload_aligns_stores, kOverrides);
  }
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
    fields.optional("rank", &S::rank, "where");
    fields.optional("store", &S::store, "to CPU memory");
    fields.add("event", &S::event, "its number in its direction");
    fields.add("progress", &S::progress, "its progress");
  }
};

/// What a lookup found and holds.
struct Pin {
  static constexpr std::string_view kWord = "pin";
  std::string request;
  std::vector<BlockId> cpu_blocks;
  static void declare(auto& fields) {
    using S = Pin;
    fields.add("request", &S::request, "its request");
    fields.add("cpu_blocks", &S::cpu_blocks, "group after group");
  }
};

/// What a simple connector shows besides the report of its workers. What it holds in the GPU's
/// pool shows in the scheduler's ref_cnts and free_queue.
struct Observed {
  // schedule: what the workers get. Absent events: none in this step.
  Reusable<JobId> load_event;
  Reusable<std::vector<BlockId>> load_gpu_blocks;
  Reusable<std::vector<BlockId>> load_cpu_blocks;
  Reusable<std::vector<std::string>> load_requests;
  Reusable<JobId> store_event;
  Reusable<std::vector<BlockId>> store_gpu_blocks;
  Reusable<std::vector<BlockId>> store_cpu_blocks;
  Reusable<bool> need_flush;

  // The numbers: after every command.
  Reusable<std::uint32_t> num_empty_cpu_blocks;
  Reusable<std::uint32_t> num_cached_cpu_blocks;
  Reusable<std::uint32_t> num_referenced_cpu_blocks;
  Reusable<bool> has_pending_stores;
  Reusable<BlockId> lazy_cursor;

  // The whole state: where asked for.
  Reusable<std::vector<Copy>> copies;
  Reusable<std::vector<Pin>> pins;
  ShownBlocks cpu;

  static void declare(auto& fields) {
    using S = Observed;
    fields.result("load_event", &S::load_event, "number of this step's loads");
    fields.result("load_gpu_blocks", &S::load_gpu_blocks, "where they go");
    fields.result("load_cpu_blocks", &S::load_cpu_blocks, "where they come from");
    fields.result("load_requests", &S::load_requests, "their requests, in order");
    fields.result("store_event", &S::store_event, "number of this step's stores");
    fields.result("store_gpu_blocks", &S::store_gpu_blocks, "where they come from");
    fields.result("store_cpu_blocks", &S::store_cpu_blocks, "where they go");
    fields.result("need_flush", &S::need_flush, "all copies end before the step");
    fields.state("num_empty_cpu_blocks", &S::num_empty_cpu_blocks, "queued, without a hash");
    fields.state("num_cached_cpu_blocks", &S::num_cached_cpu_blocks, "queued and still findable");
    fields.state("num_referenced_cpu_blocks", &S::num_referenced_cpu_blocks,
                 "held, and the null block");
    fields.state("has_pending_stores", &S::has_pending_stores, "a store event is not completed");
    fields.state("lazy_cursor", &S::lazy_cursor, "the last GPU block that was looked at");
    fields.state("copies", &S::copies,
                 "in the copy engines, rank by rank, in the order of submission");
    fields.state("pins", &S::pins, "what lookups hold, in the order of pinning");
    fields.add_part("cpu_", &S::cpu);
  }
};

}  // namespace engine::simple

struct SchedulerConfig;

/// Returns what the connector of a record is built from, or what is wrong with it. The overrides of
/// rules are the scheduler's.
Parsed<SimpleCPUOffloadSpec> make_simple_spec(const engine::simple::Record& record,
                                              const SchedulerConfig& scheduler,
                                              std::uint32_t num_ranks);

}  // namespace kvfence
