#pragma once

/// What an offloading connector adds to an engine: its record in the configuration, its commands,
/// and what it shows. Everything that reads or writes them derives from the declarations here
/// (contract/core/declare.h).
///
/// Below the CPU cache there may be scripted tiers (contract/scripted/scripted_tier.h): what
/// happens in them are commands, those that begin with `tier_`. They know keys alone, or are file
/// tiers, in whose file system things go wrong by command, too. Where there is a file tier, slots
/// have bytes: a rank's part of a slot is written when its copy engine has copied it, and what a
/// file holds is what the slot held.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/engine_role.h"
#include "contract/core/shared_fields.h"
#include "contract/core/status.h"
#include "contract/core/types.h"
#include "contract/pool/pool_values.h"
#include "contract/scripted/transfer_progress.h"
#include "contract/tiering/tier_records.h"

namespace kvfence {

/// One key, printed as bytes.
struct KeyBytes {
  std::string bytes;
  friend bool operator==(const KeyBytes&, const KeyBytes&) = default;
};

Value to_value(const KeyBytes& member);
bool from_value(const Value& value, KeyBytes& member, std::string& expected);

namespace engine::offloading {

/// Errors: kNotInConfig: no such rank, or a failure where none may happen; kUnknownJob;
/// kNotInProfile: a store fails with hold.
struct AdvanceTransfer {
  static constexpr std::string_view kVerb = "advance_transfer";
  static constexpr std::string_view kDoc = "a rank's copy engine comes further with a transfer";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kBadRange,
                                            ErrorCode::kNotInProfile, ErrorCode::kUnknownJob};
  std::uint32_t rank = 0;
  JobId job = 0;
  TransferProgress progress = TransferProgress::kFinished;
  std::uint32_t microseconds = 0;
  EngineRole engine = EngineRole::kProducer;
  static void declare(auto& fields) {
    using S = AdvanceTransfer;
    fields.optional("rank", &S::rank, Domain::kCount, "whose");
    fields.add("job", &S::job, Domain::kNumber, "which transfer");
    fields.optional("progress", &S::progress, Domain::kChoice, "part, finished or failed");
    fields.optional("microseconds", &S::microseconds, Domain::kCount,
                    "that it took, if this is its end; 0: the engine does not know");
    add_engine_field<S>(fields);
  }
  friend bool operator==(const AdvanceTransfer&, const AdvanceTransfer&) = default;
};

/// Errors: kNotInConfig, as above; kUnknownJob: it was not reported.
struct ReportTransferAgain {
  static constexpr std::string_view kVerb = "report_transfer_again";
  static constexpr std::string_view kDoc = "a rank's copy engine reports a transfer a second time";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kUnknownJob};
  std::uint32_t rank = 0;
  JobId job = 0;
  EngineRole engine = EngineRole::kProducer;
  static void declare(auto& fields) {
    using S = ReportTransferAgain;
    fields.optional("rank", &S::rank, Domain::kCount, "whose");
    fields.add("job", &S::job, Domain::kNumber, "which transfer");
    add_engine_field<S>(fields);
  }
  friend bool operator==(const ReportTransferAgain&, const ReportTransferAgain&) = default;
};

/// Errors: kNotInConfig: no such tier.
using tiering::TierFinish;

/// What says which blocks a command on a tier is about: those of a request's prompt, by number.
/// Errors: kNotInConfig: no such tier or group; kUnknownRequest; kBadRange: the prompt does not
/// fill such an offloaded block.
template <class S>
void add_prompt_fields(auto& fields) {
  tiering::add_tier_field<S>(fields);
  fields.add("request", &S::request, Domain::kRequest, "whose prompt");
}

template <class S>
void add_group_field(auto& fields) {
  fields.optional("group", &S::group, Domain::kCount, "of which group");
}

struct TierAskAgain {
  static constexpr std::string_view kVerb = "tier_ask_again";
  static constexpr std::string_view kDoc = "the next lookups of a block at a tier are put off";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kUnknownRequest,
                                            ErrorCode::kBadRange};
  std::uint32_t tier = 0;
  std::string request;
  std::uint32_t block = 0;
  std::uint32_t group = 0;
  std::uint32_t times = 1;
  static void declare(auto& fields) {
    using S = TierAskAgain;
    add_prompt_fields<S>(fields);
    fields.add("block", &S::block, Domain::kCount, "which offloaded block");
    add_group_field<S>(fields);
    fields.optional("times", &S::times, Domain::kCount, "how many; 0: none");
  }
  friend bool operator==(const TierAskAgain&, const TierAskAgain&) = default;
};

struct TierAdd {
  static constexpr std::string_view kVerb = "tier_add";
  static constexpr std::string_view kDoc = "a tier holds blocks that another engine stored there";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kUnknownRequest,
                                            ErrorCode::kBadRange};
  std::uint32_t tier = 0;
  std::string request;
  std::vector<std::uint32_t> blocks;
  std::uint32_t group = 0;
  static void declare(auto& fields) {
    using S = TierAdd;
    add_prompt_fields<S>(fields);
    fields.add("blocks", &S::blocks, Domain::kCount, "which offloaded blocks");
    add_group_field<S>(fields);
  }
  friend bool operator==(const TierAdd&, const TierAdd&) = default;
};

struct TierDrop {
  static constexpr std::string_view kVerb = "tier_drop";
  static constexpr std::string_view kDoc = "a tier holds blocks no longer";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kUnknownRequest,
                                            ErrorCode::kBadRange};
  std::uint32_t tier = 0;
  std::string request;
  std::vector<std::uint32_t> blocks;
  std::uint32_t group = 0;
  static void declare(auto& fields) {
    using S = TierDrop;
    add_prompt_fields<S>(fields);
    fields.add("blocks", &S::blocks, Domain::kCount, "which offloaded blocks");
    add_group_field<S>(fields);
  }
  friend bool operator==(const TierDrop&, const TierDrop&) = default;
};

/// Errors: as in `tiering`.
using tiering::TierFaults;

/// A file that is not there stays so.
/// Errors: those of the other commands on tiers; kNotInConfig: no file tier.
struct TierDamage {
  static constexpr std::string_view kVerb = "tier_damage";
  static constexpr std::string_view kDoc = "another process damages a block file";
  static constexpr ErrorCode kRefusals[] = {ErrorCode::kNotInConfig, ErrorCode::kUnknownRequest,
                                            ErrorCode::kBadRange};
  std::uint32_t tier = 0;
  std::string request;
  std::uint32_t block = 0;
  std::uint32_t group = 0;
  FileDamage damage = FileDamage::kFlip;
  std::uint32_t at =
      0;  ///< the bit, modulo those of the file; bytes left; more; which block's file
  static void declare(auto& fields) {
    using S = TierDamage;
    add_prompt_fields<S>(fields);
    fields.add("block", &S::block, Domain::kCount, "which offloaded block");
    add_group_field<S>(fields);
    fields.add("damage", &S::damage, Domain::kChoice, "flip, truncate, grow, replace");
    fields.optional("at", &S::at, Domain::kCount, "a bit; bytes left, or more; the block");
  }
  friend bool operator==(const TierDamage&, const TierDamage&) = default;
};

/// `(offloading num_cpu_blocks=8 ...)` in the configuration.
struct Record {
  static constexpr std::string_view kWord = "offloading";
  std::uint32_t num_cpu_blocks = 8;
  std::uint32_t block_size_factor = 1;
  std::string eviction_policy = "lru";
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
  static void declare(auto& fields) {
    using S = Record;
    add_cpu_cache_fields<S>(fields);
    fields.optional("store_threshold", &S::store_threshold, Domain::kSetting,
                    "lookups before a block may be stored; below 2: no filter");
    fields.optional("max_tracker_size", &S::max_tracker_size, Domain::kSetting,
                    "keys whose lookups are counted");
    add_stored_fields<S>(fields);
    fields.optional("transfers_may_fail", &S::transfers_may_fail, Domain::kSetting,
                    "transfers can fail (upstream asserts that none does)");
    fields.optional("arc_refuses_with_idle_t1", &S::arc_refuses_with_idle_t1, Domain::kSetting,
                    "overrides the profile's rule");
    fields.optional("spec_name", &S::spec_name, Domain::kSetting,
                    "CPUOffloadingSpec or, with tiers, TieringOffloadingSpec (rule tiering)");
    fields.optional("num_tiers", &S::num_tiers, Domain::kSetting, "scripted tiers, 0 to 8");
    fields.optional("request_level_tiers", &S::request_level_tiers, Domain::kSetting,
                    "those that want held blocks of a request, too, by place");
    fields.optional("file_tiers", &S::file_tiers, Domain::kSetting,
                    "those that keep files, by place");
  }
  friend bool operator==(const Record&, const Record&) = default;
};

/// A transfer that the scheduler's half planned.
struct Transfer {
  static constexpr std::string_view kWord = "transfer";
  JobId job = 0;
  std::string request;
  std::vector<BlockId> gpu_blocks;
  std::vector<std::uint32_t> group_sizes;
  std::vector<std::uint32_t> block_indices;
  std::vector<SlotId> slots;
  static void declare(auto& fields) {
    using S = Transfer;
    fields.optional("job", &S::job, Domain::kResult,
                    "its number; with hold each worker has its own");
    fields.add("request", &S::request, Domain::kResult, "for whom");
    fields.add("gpu_blocks", &S::gpu_blocks, Domain::kResult, "group after group");
    fields.add("group_sizes", &S::group_sizes, Domain::kResult, "GPU blocks by group");
    fields.add("block_indices", &S::block_indices, Domain::kResult,
               "place of each group's first one in the table");
    fields.add("slots", &S::slots, Domain::kResult, "one an offloaded block");
  }
  friend bool operator==(const Transfer&, const Transfer&) = default;
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
    fields.optional("rank", &S::rank, Domain::kState, "where");
    fields.add("job", &S::job, Domain::kState, "its number");
    fields.add("request", &S::request, Domain::kState, "for whom");
    fields.optional("store", &S::store, Domain::kState, "to CPU memory");
    fields.add("progress", &S::progress, Domain::kState, "how far");
  }
  friend bool operator==(const EngineTransfer&, const EngineTransfer&) = default;
};

/// One operation of the statistics.
struct Operation {
  static constexpr std::string_view kWord = "operation";
  std::string type;
  std::uint32_t bytes = 0;
  std::uint32_t microseconds = 0;
  static void declare(auto& fields) {
    using S = Operation;
    fields.add("type", &S::type, Domain::kResult, "GPU_to_CPU or CPU_to_GPU");
    fields.add("bytes", &S::bytes, Domain::kResult, "a scripted GPU block counts for 4096");
    fields.add("microseconds", &S::microseconds, Domain::kResult, "that it took");
  }
  friend bool operator==(const Operation&, const Operation&) = default;
};

/// A block in a list of the CPU cache's policy.
struct OffloadedBlock {
  static constexpr std::string_view kWord = "block";
  KeyBytes key;
  SlotId slot = 0;
  bool ready = false;
  std::uint32_t readers = 0;
  static void declare(auto& fields) {
    using S = OffloadedBlock;
    fields.add("key", &S::key, Domain::kState, "which");
    fields.add("slot", &S::slot, Domain::kState, "where it lies");
    fields.optional("ready", &S::ready, Domain::kState, "written");
    fields.optional("readers", &S::readers, Domain::kState, "transfers that read it");
  }
  friend bool operator==(const OffloadedBlock&, const OffloadedBlock&) = default;
};

// The primary tier is the CPU cache.
using TierCallRecord = tiering::CallRecordOf<KeyList>;
using TierTransfer = tiering::TransferOf<KeyList>;
using TierState = tiering::TierStateOf<KeyList>;

/// What an offloading connector shows besides the report of its workers.
struct Observed {
  // schedule
  Reusable<std::vector<Transfer>> loads;
  Reusable<std::vector<Transfer>> stores;
  Reusable<std::vector<std::string>> requests_to_flush;
  Reusable<std::vector<JobId>> jobs_to_flush;

  Reusable<std::vector<Operation>> transfer_stats;  ///< update

  // With TieringOffloadingSpec: of any command that had some.
  Reusable<std::vector<TierCallRecord>> tier_calls;

  // The numbers: after every command; those of tiers where there may be some.
  Reusable<std::uint32_t> num_free_slots;
  Reusable<double> target_t1_size;
  Reusable<std::uint32_t> num_tier_jobs;
  Reusable<std::uint32_t> num_pending_promotions;

  // The whole state: where asked for.
  Reusable<std::vector<EngineTransfer>> transfers;
  Reusable<std::vector<OffloadedBlock>> t1;
  Reusable<std::vector<OffloadedBlock>> t2;
  Reusable<KeyList> b1;
  Reusable<KeyList> b2;
  Reusable<std::vector<TierTransfer>> tier_jobs;
  Reusable<std::vector<TierTransfer>> pending_promotions;
  Reusable<std::vector<TierState>> tiers;
  Reusable<KeyList> damaged;  ///< where there are file tiers

  static void declare(auto& fields) {
    using S = Observed;
    fields.add("loads", &S::loads, Domain::kResult, "planned, in order");
    fields.add("stores", &S::stores, Domain::kResult, "planned, in order");
    fields.add("requests_to_flush", &S::requests_to_flush, Domain::kResult,
               "whose stores end before the step");
    fields.add("jobs_to_flush", &S::jobs_to_flush, Domain::kResult,
               "which transfers end before the step");
    fields.add("transfer_stats", &S::transfer_stats, Domain::kResult,
               "operations that were measured, type by type");
    fields.add("tier_calls", &S::tier_calls, Domain::kResult, "on the tiers, oldest first");
    fields.add("num_free_slots", &S::num_free_slots, Domain::kState, "never used, or freed");
    fields.add("target_t1_size", &S::target_t1_size, Domain::kState, "ARC's");
    fields.add("num_tier_jobs", &S::num_tier_jobs, Domain::kState, "under way");
    fields.add("num_pending_promotions", &S::num_pending_promotions, Domain::kState,
               "keys queued for promotion");
    fields.add("transfers", &S::transfers, Domain::kState,
               "in the copy engines, rank by rank, in the order of submission");
    fields.add("t1", &S::t1, Domain::kState, "oldest first; LRU's list");
    fields.add("t2", &S::t2, Domain::kState, "oldest first");
    fields.add("b1", &S::b1, Domain::kState, "keys, oldest first");
    fields.add("b2", &S::b2, Domain::kState, "keys, oldest first");
    fields.add("tier_jobs", &S::tier_jobs, Domain::kState, "under way, by number");
    fields.add("pending_promotions", &S::pending_promotions, Domain::kState, "queued, in order");
    fields.add("tiers", &S::tiers, Domain::kState, "what the tiers hold");
    fields.add("damaged", &S::damaged, Domain::kState,
               "ready blocks whose slot holds others' bytes, in the order of t1 and t2");
  }
  friend bool operator==(const Observed&, const Observed&) = default;
};

}  // namespace engine::offloading

}  // namespace kvfence
