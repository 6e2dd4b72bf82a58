#pragma once

/// A model of what the memory of every rank holds under a simple CPU offload connector: steps fill
/// GPU blocks, copies carry them to CPU blocks and back. Content is a symbol (kv_content.h).

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/engine/engine_target.h"
#include "properties/core/divergence.h"
#include "properties/kv_cache/kv_content.h"

namespace kvfence::engine::simple {

/// A pair of blocks, and what the source should hold, where that is known.
struct CopyPart {
  BlockId gpu_block = 0;
  BlockId cpu_block = 0;
  std::optional<Content> content;
};

/// What a step plans to copy in one direction.
struct Event {
  JobId number = 0;
  bool is_store = false;
  std::vector<CopyPart> parts;
  std::set<std::string> requests = {};  ///< of a load: for whom, not reported
  std::uint32_t num_reports = 0;        ///< of a store: ranks that reported it

  std::pair<bool, JobId> id() const { return {is_store, number}; }
};

/// A planned step as the workers get it.
struct PlannedStep {
  std::vector<Run> runs;
  std::vector<BlockId> zeroed;
  std::vector<Event> events;
  bool need_flush = false;
  std::vector<BlocksByGroup> victims;  ///< as forgive_victims wants them
  std::vector<BlockId> lost;
};

/// A value: copyable.
class Copies {
 public:
  explicit Copies(const SimpleCPUOffloadSpec& spec);

  /// The oldest step on all ranks. Nothing, or the first rule that it breaks.
  std::optional<Divergence> run(const PlannedStep& step, const Sequences& sequences);

  /// The oldest copy of that direction on the rank ends. False: there is none.
  bool end_oldest(std::uint32_t rank, bool is_store);

  const Content& cpu_block(std::size_t rank, BlockId block) const {
    return ranks_[rank].cpu_blocks[block];
  }
  std::size_t num_ranks() const { return ranks_.size(); }
  std::uint32_t num_ranks_ended(const Event& event) const;
  bool is_idle() const;

 private:
  struct Rank {
    std::vector<Content> gpu_blocks;
    std::vector<Content> cpu_blocks;
    std::vector<Event> under_way;  ///< in the order of submission
  };

  std::optional<Divergence> submit(std::size_t rank, const Event& event);
  std::optional<Divergence> overwrite(std::size_t rank, BlockId block, const std::string& who,
                                      const Content& content);
  std::optional<Divergence> compute(std::size_t rank, const PlannedStep& step,
                                    const Sequences& sequences);
  void end(Rank& rank, std::size_t index);

  SimpleCPUOffloadSpec spec_;
  std::vector<Rank> ranks_;
  std::map<std::pair<bool, JobId>, std::uint32_t> num_ranks_ended_;  ///< by event
};

}  // namespace kvfence::engine::simple
