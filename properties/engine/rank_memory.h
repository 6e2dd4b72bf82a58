#pragma once

/// A model of what the memory of every rank holds, by commands and plans alone: steps fill GPU
/// blocks, copies carry them to places in CPU memory and back. Content is a symbol (kv_content.h).
/// So a block that was used again too early, a place that was read before it was written, and a
/// load into the wrong place all show as content that is not the request's own.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/kv_output_aggregator.h"
#include "contract/engine/engine_target.h"
#include "contract/scheduler/scheduler.h"
#include "properties/kv_cache/kv_content.h"

namespace kvfence::engine {

/// A rule that is broken, by its place in the table of its room.
struct Broken {
  std::size_t rule = 0;
  std::string where;
  std::string expected;
  std::string actual;
};

/// A GPU block of a copy, its part of a place, and what the source should hold; nothing: unknown.
struct CopyPart {
  BlockId block = 0;
  std::uint32_t place = 0;
  std::uint32_t sub_block = 0;
  std::optional<Content> content;
};

/// A planned copy. `serial` identifies it on all ranks, whatever number each gives it.
struct PlannedCopy {
  std::uint64_t serial = 0;
  JobId job = 0;
  std::string request;  ///< none: of several, or of nobody
  bool is_store = false;
  std::vector<CopyPart> parts;
  TransferProgress progress = TransferProgress::kSubmitted;

  bool is_under_way() const {
    return progress == TransferProgress::kSubmitted || progress == TransferProgress::kPart;
  }
  /// `store 3 of A`
  std::string name() const;
};

/// What a planned step does to the GPU blocks of a rank.
struct StepOnBlocks {
  std::vector<Run> runs;
  std::vector<BlockId> zeroed;
  std::vector<PreemptedTable> victims;  ///< as forgive_victims wants them
  std::vector<BlockId> lost;
  bool has_drafts_ahead = false;  ///< it may be planned with drafts that are rejected
};

/// The block tables as the workers know them; those of requests that are gone are kept, since steps
/// may still run them.
using WorkerTables = std::map<std::string, BlocksByGroup>;

/// Takes a planned step into the tables, and fills `step` but for what is lost.
void take_in_step(const SchedulerObservation& shown, const SchedulerConfig& config,
                  WorkerTables& tables, StepOnBlocks& step);

/// What runs have computed for good where there are drafts: from the token on that was sampled
/// before, wherever the step was planned to begin, up to the last draft that was accepted; where
/// nobody takes what they say, up to the last token that is known. sequences: with the tokens of
/// the outputs.
void settle(std::vector<Run>& runs, const Sequences& sequences,
            const std::vector<RequestOutput>& outputs);

/// Blocks in no table that is shown.
std::vector<BlockId> blocks_of_nobody(const SchedulerObservation& shown,
                                      std::uint32_t num_gpu_blocks);

/// Blocks that a victim may have got in a step, but for those `given` to loads: those that are
/// zeroed and in no table of the step. No step names the new blocks of a window or state: where a
/// group has one, all blocks that are in no table.
std::vector<BlockId> lost_blocks(const SchedulerObservation& shown,
                                 const KVCacheManagerConfig& config,
                                 const std::vector<BlockId>& given);

/// Whether what the group's blocks contain is not claimed: a window, or a state, in such a step.
bool passes_over(const StepOnBlocks& step, const KVCacheSpec& group);

/// A value: copyable.
class RankMemory {
 public:
  /// How a room speaks of what is here, and which of its rules is broken.
  struct Words {
    std::string_view block;
    std::string_view place;
    std::size_t no_reuse_under_a_copy = 0;
    std::size_t a_place_has_one_writer = 0;
    std::size_t a_load_reads_what_is_complete = 0;
    std::size_t copies_are_as_planned = 0;
    std::size_t a_step_reads_its_own = 0;
    /// A place changes hands when all ranks are done with it; else each rank's bytes are its own.
    bool shares_places = false;
  };

  struct Rank {
    std::vector<Content> blocks;      ///< by GPU block
    std::vector<Content> places;      ///< [place][sub_block]
    std::vector<PlannedCopy> copies;  ///< in the copy engine, in order: not reported
  };

  RankMemory(const Words& words, const KVCacheManagerConfig& config, std::uint32_t num_ranks,
             std::uint32_t num_places, std::uint32_t num_sub_blocks);

  const std::vector<Rank>& ranks() const { return ranks_; }
  /// What a part of a place holds on a rank.
  const Content& place(std::size_t rank, std::uint32_t place, std::uint32_t sub_block) const {
    return ranks_[rank].places[place * num_sub_blocks_ + sub_block];
  }

 protected:
  // Each on one rank; nothing, or the first rule that it breaks.

  /// Before a step computes.
  std::optional<Broken> zero(std::size_t rank, const StepOnBlocks& step,
                             const Sequences& sequences);
  /// All requests write their tokens, then all read what they attend to.
  std::optional<Broken> compute(std::size_t rank, const StepOnBlocks& step,
                                const Sequences& sequences);
  std::optional<Broken> submit(std::size_t rank, const PlannedCopy& copy);

  void end(Rank& rank, PlannedCopy& copy, bool success);

  std::vector<Rank> ranks_;
  std::uint32_t num_sub_blocks_;

 private:
  std::optional<Broken> overwrite(std::size_t rank, BlockId block, const std::string& who,
                                  const Content& content);

  Words words_;
  std::vector<KVCacheSpec> groups_;
};

}  // namespace kvfence::engine
