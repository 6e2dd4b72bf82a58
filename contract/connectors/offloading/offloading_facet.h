#pragma once

/// What an offloading connector adds to an engine: its record in the configuration, its commands,
/// and what it shows. Everything that reads or writes them derives from the declarations here
/// (contract/core/declare.h).
///
/// Below the CPU cache there may be scripted tiers (contract/scripted/scripted_tier.h), which the
/// commands that begin with `tier_` drive. A tier holds keys alone, or is a file tier, whose file
/// system fails by command. With a file tier, slots have bytes: a rank's part of a slot is written
/// when its copy engine has copied it, and a file holds what the slot held.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/transfer_engine.h"
#include "contract/core/declare.h"
#include "contract/core/engine_role.h"
#include "contract/core/status.h"
#include "contract/core/types.h"
#include "contract/eviction/eviction_target.h"
#include "contract/pool/pool_values.h"
#include "contract/scripted/scripted_transfer_engine.h"
#include "contract/scripted/transfer_progress.h"
#include "contract/tiering/tier_records.h"

namespace kvfence {

namespace engine::offloading {

using kvfence::operator==;

/// Errors: kNotInConfig: no such rank, or a failure where none may happen, a load of several groups
/// among them (upstream cannot take in invalid blocks of several); kUnknownJob;
/// kNotInProfile: a store fails with hold.
struct AdvanceTransfer : OfEngine {
  static constexpr Verb kVerb{"advance_transfer",
                              "a rank's copy engine makes progress with a transfer"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kBadRange,
                                            ErrorCode::kNotInProfile, ErrorCode::kUnknownJob};
  std::uint32_t rank = 0;
  JobId job = 0;
  TransferProgress progress = TransferProgress::kFinished;
  std::uint32_t microseconds = 0;
  static void declare(auto& fields) {
    using S = AdvanceTransfer;
    fields.optional("rank", &S::rank, Domain::kCount, "the rank");
    fields.add("job", &S::job, Domain::kNumber, "which transfer");
    fields.optional("progress", &S::progress, Domain::kChoice, "part, finished or failed");
    fields.optional("microseconds", &S::microseconds, Domain::kCount,
                    "that it took, if this is its end; 0: the engine does not know");
    OfEngine::declare(fields);
  }
};

/// Errors: kNotInConfig, as above; kUnknownJob: it was not reported.
struct ReportTransferAgain : OfEngine {
  static constexpr Verb kVerb{"report_transfer_again",
                              "a rank's copy engine reports a transfer a second time"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kUnknownJob};
  std::uint32_t rank = 0;
  JobId job = 0;
  static void declare(auto& fields) {
    using S = ReportTransferAgain;
    fields.optional("rank", &S::rank, Domain::kCount, "the rank");
    fields.add("job", &S::job, Domain::kNumber, "which transfer");
    OfEngine::declare(fields);
  }
};

/// The loggers got the statistics of each step that was taken in, under an engine index: the one
/// that writes the text of the interval, which ends here, and Prometheus, which keeps counting.
/// Source: vLLM v0.23.0 v1/metrics/loggers.py LoggingStatLogger, PrometheusStatLogger;
/// kv_connector/v1/metrics.py KVConnectorLogging.
/// Errors: kNotInConfig: no OffloadingConnector, or one over a device, which measures nothing;
/// kBadRange: no such engine index.
struct LogStats : OfEngine {
  static constexpr Verb kVerb{"log_stats", "the loggers write what they have of the transfers"};
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kBadRange};
  std::uint32_t engine_idx = 0;
  static void declare(auto& fields) {
    fields.optional("engine_idx", &LogStats::engine_idx, Domain::kCount,
                    "under which the steps from now on are counted");
    OfEngine::declare(fields);
  }
};

/// Errors: kNotInConfig: no such tier.
using tiering::TierFinish;

/// Names the blocks of a command on a tier: those of a request's prompt, by number.
/// Errors: kNotInConfig: no such tier or group; kUnknownRequest; kBadRange: the prompt does not
/// fill such an offloaded block.
struct OfPrompt : tiering::OfTier {
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kUnknownRequest,
                                            ErrorCode::kBadRange};
  std::string request;
  static void declare(auto& fields) {
    OfTier::declare(fields);
    fields.add("request", &OfPrompt::request, Domain::kRequest, "whose prompt");
  }
};

struct OfPromptBlock : OfPrompt {
  std::uint32_t block = 0;
  std::uint32_t group = 0;
  static void declare(auto& fields) {
    OfPrompt::declare(fields);
    fields.add("block", &OfPromptBlock::block, Domain::kCount, "which offloaded block");
    fields.optional("group", &OfPromptBlock::group, Domain::kCount, "of which group");
  }
};

struct OfPromptBlocks : OfPrompt {
  std::vector<std::uint32_t> blocks;
  std::uint32_t group = 0;
  static void declare(auto& fields) {
    OfPrompt::declare(fields);
    fields.add("blocks", &OfPromptBlocks::blocks, Domain::kCount, "which offloaded blocks");
    fields.optional("group", &OfPromptBlocks::group, Domain::kCount, "of which group");
  }
};

struct TierAskAgain : OfPromptBlock {
  static constexpr Verb kVerb{"tier_ask_again",
                              "the next lookups of a block at a tier are put off"};
  std::uint32_t times = 1;
  static void declare(auto& fields) {
    using S = TierAskAgain;
    OfPromptBlock::declare(fields);
    fields.optional("times", &S::times, Domain::kCount, "how many; 0: none");
  }
};

struct TierAdd : OfPromptBlocks {
  static constexpr Verb kVerb{"tier_add", "a tier holds blocks that another engine stored there"};
};

struct TierDrop : OfPromptBlocks {
  static constexpr Verb kVerb{"tier_drop", "a tier holds blocks no longer"};
};

/// Errors: as in `tiering`.
using tiering::TierFaults;

/// No effect on a missing file.
/// Errors: those of the other commands on tiers; kNotInConfig: no file tier.
struct TierDamage : OfPromptBlock {
  static constexpr Verb kVerb{"tier_damage", "another process damages a block file"};
  FileDamage damage = FileDamage::kFlip;
  /// The bit, modulo those of the file; bytes left; more; which block's file.
  std::uint32_t at = 0;
  static void declare(auto& fields) {
    using S = TierDamage;
    OfPromptBlock::declare(fields);
    fields.add("damage", &S::damage, Domain::kChoice, "flip, truncate, grow, replace");
    fields.optional("at", &S::at, Domain::kCount, "a bit; bytes left, or more; the block");
  }
};

/// `(offloading num_cpu_blocks=8 ...)` in the configuration.
struct Record {
  static constexpr std::string_view kWord = "offloading";
  std::uint32_t num_cpu_blocks = 8;
  std::uint32_t block_size_factor = 1;
  EvictionPolicy eviction_policy = EvictionPolicy::kLRU;
  std::uint32_t store_threshold = 0;
  std::uint32_t max_tracker_size = 64'000;
  bool offload_prompt_only = true;
  bool request_level_policy = false;
  bool transfers_may_fail = false;
  std::optional<bool> arc_refuses_with_idle_t1;
  std::string spec_name = "CPUOffloadingSpec";
  std::uint32_t num_tiers = 0;
  std::vector<std::uint32_t> request_level_tiers;
  std::vector<std::uint32_t> file_tiers;
  std::uint32_t block_bytes = kScriptedBlockBytes;
  std::vector<std::uint32_t> engine_labels = {0};
  static void declare(auto& fields) {
    using S = Record;
    fields.add("num_cpu_blocks", &S::num_cpu_blocks, "slots, one per offloaded block");
    fields.optional("block_size_factor", &S::block_size_factor, "GPU blocks per offloaded block");
    fields.optional("eviction_policy", &S::eviction_policy, "lru or arc");
    fields.optional("store_threshold", &S::store_threshold,
                    "lookups before a block may be stored; below 2: no filter");
    fields.optional("max_tracker_size", &S::max_tracker_size, "keys whose lookups are counted");
    fields.optional("offload_prompt_only", &S::offload_prompt_only,
                    "nothing that decoding adds is stored (rule offload_fences_reuse)");
    fields.optional("request_level_policy", &S::request_level_policy,
                    "a loaded prefix is stored again (rule offload_fences_reuse)");
    fields.optional("transfers_may_fail", &S::transfers_may_fail,
                    "transfers can fail (upstream asserts that none does)");
    fields.optional("arc_refuses_with_idle_t1", &S::arc_refuses_with_idle_t1,
                    "overrides the profile's rule");
    fields.optional("spec_name", &S::spec_name,
                    "CPUOffloadingSpec or, with tiers, TieringOffloadingSpec (rule tiering)");
    fields.optional("num_tiers", &S::num_tiers, "scripted tiers, 0 to 8");
    fields.optional("request_level_tiers", &S::request_level_tiers,
                    "those that want held blocks of a request, too, by place");
    fields.optional("file_tiers", &S::file_tiers, "those that keep files, by place");
    fields.optional("block_bytes", &S::block_bytes,
                    "what a GPU block counts for in statistics; not on a device");
    fields.optional("engine_labels", &S::engine_labels,
                    "by engine index: the value of label engine in metrics; not on a device");
  }
};

/// A transfer that the scheduler's half planned.
struct Transfer : TransferSpec {
  static constexpr std::string_view kWord = "transfer";
  JobId job = 0;
  std::string request;
  static void declare(auto& fields) {
    using S = Transfer;
    fields.optional("job", &S::job, "its number; with hold each worker has its own");
    fields.add("request", &S::request, "its request");
    fields.add("gpu_blocks", &S::gpu_blocks, "group after group");
    fields.add("group_sizes", &S::group_sizes, "GPU blocks by group");
    fields.add("block_indices", &S::block_indices, "place of each group's first one in the table");
    fields.add("slots", &S::slots, "one per offloaded block");
  }
};

/// A transfer in a rank's copy engine.
struct EngineTransfer {
  static constexpr std::string_view kWord = "transfer";
  std::uint32_t rank = 0;
  JobId job = 0;
  std::string request;
  bool store = false;
  TransferProgress progress = TransferProgress::kSubmitted;
  static void declare(auto& fields) {
    using S = EngineTransfer;
    fields.optional("rank", &S::rank, "where");
    fields.add("job", &S::job, "its number");
    fields.add("request", &S::request, "its request");
    fields.optional("store", &S::store, "to CPU memory");
    fields.add("progress", &S::progress, "its progress");
  }
};

/// One operation of the statistics.
struct Operation {
  static constexpr std::string_view kWord = "operation";
  std::string type;
  std::uint64_t bytes = 0;
  std::uint32_t microseconds = 0;
  static void declare(auto& fields) {
    using S = Operation;
    fields.add("type", &S::type, "GPU_to_CPU or CPU_to_GPU");
    fields.add("bytes", &S::bytes, "block_bytes per GPU block");
    fields.add("microseconds", &S::microseconds, "that it took");
  }
};

// Of the CPU cache's policy.
using OffloadedBlock = eviction::EntryOf<BlockHash>;
using Lists = eviction::ListsOf<OffloadedBlock, KeyList>;

// The primary tier is the CPU cache.
using TierCallRecord = tiering::CallRecordOf<KeyList>;
using TierTransfer = tiering::TransferOf<KeyList>;
using TierState = tiering::TierStateOf<KeyList>;

/// What an offloading connector shows besides the report of its workers.
struct Observed : Lists {
  // schedule
  Reusable<std::vector<Transfer>> loads;
  Reusable<std::vector<Transfer>> stores;
  Reusable<std::vector<std::string>> requests_to_flush;
  Reusable<std::vector<JobId>> jobs_to_flush;

  Reusable<std::vector<Operation>> transfer_stats;  ///< update

  // log_stats
  Reusable<std::vector<Operation>> interval_stats;
  Reusable<std::vector<std::string>> logged;
  Reusable<std::vector<std::string>> metrics;

  // With TieringOffloadingSpec: of any command that had some.
  Reusable<std::vector<TierCallRecord>> tier_calls;

  // The numbers: after every command; those of tiers where there may be some.
  Reusable<std::uint32_t> num_free_slots;
  Reusable<double> target_t1_size;
  Reusable<std::uint32_t> num_tier_jobs;
  Reusable<std::uint32_t> num_pending_promotions;

  // The whole state: where asked for.
  Reusable<std::vector<EngineTransfer>> transfers;
  Reusable<std::vector<TierTransfer>> tier_jobs;
  Reusable<std::vector<TierTransfer>> pending_promotions;
  Reusable<std::vector<TierState>> tiers;
  Reusable<KeyList> damaged;  ///< where there are file tiers

  static void declare(auto& fields) {
    using S = Observed;
    fields.result("loads", &S::loads, "planned, in order");
    fields.result("stores", &S::stores, "planned, in order");
    fields.result("requests_to_flush", &S::requests_to_flush, "whose stores end before the step");
    fields.result("jobs_to_flush", &S::jobs_to_flush, "which transfers end before the step");
    fields.result("transfer_stats", &S::transfer_stats,
                  "operations that were measured, type by type");
    fields.result("interval_stats", &S::interval_stats,
                  "operations since the log_stats before, type by type");
    fields.result("logged", &S::logged, "their totals; nothing without operations");
    fields.result("metrics", &S::metrics,
                  "what Prometheus reads: operations since the start, line by line");
    fields.result("tier_calls", &S::tier_calls, "on the tiers, oldest first");
    fields.state("num_free_slots", &S::num_free_slots, "never used, or freed");
    fields.state("target_t1_size", &S::target_t1_size, "ARC's");
    fields.state("num_tier_jobs", &S::num_tier_jobs, "under way");
    fields.state("num_pending_promotions", &S::num_pending_promotions, "keys queued for promotion");
    fields.state("transfers", &S::transfers,
                 "in the copy engines, rank by rank, in the order of submission");
    Lists::declare(fields);
    fields.state("tier_jobs", &S::tier_jobs, "under way, by number");
    fields.state("pending_promotions", &S::pending_promotions, "queued, in order");
    fields.state("tiers", &S::tiers, "what the tiers hold");
    fields.state("damaged", &S::damaged,
                 "ready blocks whose slot holds others' bytes, in the order of t1 and t2");
  }
};

}  // namespace engine::offloading

}  // namespace kvfence
