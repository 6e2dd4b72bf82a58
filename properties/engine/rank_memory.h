#pragma once

/// A model of the memory of every rank, from commands and plans only: steps fill GPU blocks, copies
/// move them to places in CPU memory and back. Content is a symbol (kv_content.h). A block reused
/// too early, a place read before it was written, and a load into the wrong place therefore all
/// show as content that is not the request's own.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/engine/engine_target.h"
#include "contract/scheduler/scheduler.h"
#include "properties/core/divergence.h"
#include "properties/kv_cache/kv_content.h"

namespace kvfence::engine {

/// A GPU block of a copy, its part of a place, and the expected content of the source; nothing:
/// unknown.
struct CopyPart {
  BlockId block = 0;
  std::uint32_t place = 0;
  std::uint32_t sub_block = 0;
  std::optional<Content> content;
};

/// A planned copy. `serial` identifies it on all ranks; `job` may differ between ranks.
struct PlannedCopy {
  std::uint64_t serial = 0;
  JobId job = 0;
  std::string request;  ///< empty: of several requests, or of none
  bool is_store = false;
  std::vector<CopyPart> parts;
  TransferProgress progress = TransferProgress::kSubmitted;

  bool is_under_way() const {
    return progress == TransferProgress::kSubmitted || progress == TransferProgress::kPart;
  }
  /// `store 3 of A`
  std::string name() const;
};

/// The effects of a planned step on the GPU blocks of a rank.
struct StepOnBlocks {
  std::vector<Run> runs;
  std::vector<BlockId> zeroed;
  std::vector<PreemptedTable> victims;  ///< for forgive_victims
  std::vector<BlockId> lost;
};

/// The block tables that the workers know. They include requests that are gone, since steps in
/// flight may still run them.
using WorkerTables = std::map<std::string, BlocksByGroup>;

/// Adds a planned step to the tables, and fills `step` except `lost`.
void take_in_step(const SchedulerObservation& shown, const SchedulerConfig& config,
                  WorkerTables& tables, StepOnBlocks& step);

/// With drafts, sets runs to what they have computed for good: from the last token sampled before,
/// even if the step was planned to begin later, up to the last accepted draft. Without outputs of
/// the request, up to its last known token. sequences: with the tokens of the outputs.
void settle(std::vector<Run>& runs, const SchedulerConfig& config, const Sequences& sequences,
            const std::vector<RequestOutput>& outputs);

/// Blocks that are in no shown table.
std::vector<BlockId> blocks_of_nobody(const SchedulerObservation& shown,
                                      std::uint32_t num_gpu_blocks);

/// Blocks that a preempted request may have got in a step, except those `given` to loads: the
/// zeroed blocks that are in no table of the step. Steps do not name the new blocks of a window or
/// state: with such a group, all blocks that are in no table.
std::vector<BlockId> lost_blocks(const SchedulerObservation& shown,
                                 const KVCacheManagerConfig& config,
                                 const std::vector<BlockId>& given);

/// Whether the content of the group's blocks goes unchecked: a window, or a state, in a run with
/// has_drafts_ahead; a state of Mamba in align mode in a run with has_drafts.
bool passes_over(const Run& run, const KVCacheSpec& group);

/// Copyable.
class RankMemory {
 public:
  /// A room's names for blocks and places, and its rules.
  struct Words {
    std::string_view block;
    std::string_view place;
    const Invariant* no_reuse_under_a_copy = nullptr;
    const Invariant* a_place_has_one_writer = nullptr;
    const Invariant* a_load_reads_what_is_complete = nullptr;
    const Invariant* copies_are_as_planned = nullptr;
    const Invariant* a_step_reads_its_own = nullptr;
    /// A place is reused only when all ranks are done with it. False: each rank has its own bytes.
    bool shares_places = false;
  };

  struct Rank {
    std::vector<Content> blocks;      ///< by GPU block
    std::vector<Content> places;      ///< [place][sub_block]
    std::vector<PlannedCopy> copies;  ///< not reported yet, in order of submission
  };

  RankMemory(const Words& words, const KVCacheManagerConfig& config, std::uint32_t num_ranks,
             std::uint32_t num_places, std::uint32_t num_sub_blocks);

  const std::vector<Rank>& ranks() const { return ranks_; }
  /// What a part of a place holds on a rank.
  const Content& place(std::size_t rank, std::uint32_t place, std::uint32_t sub_block) const {
    return ranks_[rank].places[place * num_sub_blocks_ + sub_block];
  }

 protected:
  // Each works on one rank, and throws a broken rule (broken_rule.h).

  /// Before a step computes.
  void zero(std::size_t rank, const StepOnBlocks& step, const Sequences& sequences);
  /// All requests write their tokens, then all read what they attend to.
  void compute(std::size_t rank, const StepOnBlocks& step, const Sequences& sequences);
  /// Checks the places and the sources, then forgets what the copy will write.
  void submit(std::size_t rank, const PlannedCopy& copy);

  void end(Rank& rank, PlannedCopy& copy, bool success);

  std::vector<Rank> ranks_;
  std::uint32_t num_sub_blocks_;

 private:
  /// A place that a copy writes has no other copy under way; one that a load reads, no store.
  void check_place_is_free(std::size_t rank, const PlannedCopy& copy, std::uint32_t place) const;
  bool may_overlap(const PlannedCopy& copy, const PlannedCopy& other, bool is_elsewhere) const;
  /// It has the content that the plan expects.
  void check_source(std::size_t rank, const PlannedCopy& copy, const CopyPart& part) const;
  /// A copy under way that reads or writes the block; null: none.
  const PlannedCopy* copy_over(std::size_t rank, BlockId block) const;
  void overwrite(std::size_t rank, BlockId block, const std::string& who, const Content& content);

  Words words_;
  std::vector<KVCacheSpec> groups_;
};

}  // namespace kvfence::engine
