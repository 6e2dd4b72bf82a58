#pragma once

/// What the memory of every rank holds behind a simple CPU offload connector, by commands and plans
/// alone: GPU blocks are filled by steps, copied to CPU blocks and back. Content is a symbol
/// (kv_content.h).

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/engine/engine_target.h"
#include "properties/kv_cache/kv_content.h"

namespace kvfence::engine::simple {

/// A block that is copied, and what it should hold, where that is known.
struct CopyPart {
  BlockId gpu_block = 0;
  BlockId cpu_block = 0;
  std::optional<Content> content;
};

/// What a step plans in one direction.
struct Event {
  JobId event = 0;
  bool is_store = false;
  std::vector<CopyPart> parts;
  std::vector<std::string> requests;  ///< of a load: for whom
};

/// A planned step as the workers get it.
struct PlannedStep {
  std::vector<ScheduledRequest> scheduled;
  std::vector<Run> runs;
  std::vector<BlockId> zeroed;
  std::optional<Event> load;
  std::optional<Event> store;
  bool need_flush = false;
  std::vector<BlocksByGroup> victims;  ///< as forgive_victims wants them
  std::vector<BlockId> lost;
};

/// What is wrong with a copy or a step.
enum class CopyRule : std::uint8_t {
  kNoReuseUnderACopy,
  kCopiesCarryWhatTheyName,
  kAStepReadsItsOwn,
};

struct BrokenCopyRule {
  CopyRule rule = CopyRule::kNoReuseUnderACopy;
  std::string where;
  std::string expected;
  std::string actual;
};

/// The report that the ranks owe behind a step.
struct OwedReport {
  std::vector<std::string> finished_recving;
  std::map<JobId, std::uint32_t> completed_stores;  ///< event: ranks that report it now
};

/// The ranks, as the contract says that they work. A value: copyable.
class Copies {
 public:
  explicit Copies(const SimpleCPUOffloadSpec& spec);

  /// The oldest step on all ranks. Nothing, or the first rule that it breaks.
  std::optional<BrokenCopyRule> run(const PlannedStep& step, const Sequences& sequences,
                                    OwedReport& owed);

  /// The refusal of a copy engine, or none; then its oldest copy of that direction is so far.
  ErrorCode advance(const AdvanceCopy& command);

  /// In the engines, rank by rank, in the order of submission; reported ones are gone.
  std::vector<Copy> copies() const;

  const Content& cpu_block(std::size_t rank, BlockId block) const {
    return ranks_[rank].cpu_blocks[block];
  }
  std::size_t num_ranks() const { return ranks_.size(); }

  /// Whether nothing is under way or unreported on any rank.
  bool is_idle() const;

 private:
  struct Submitted {
    Event event;
    TransferProgress progress = TransferProgress::kSubmitted;
    bool is_under_way() const { return progress != TransferProgress::kFinished; }
  };

  struct Rank {
    std::vector<Content> gpu_blocks;
    std::vector<Content> cpu_blocks;
    std::vector<Submitted> copies;  ///< not reported, in the order of submission
  };

  std::optional<BrokenCopyRule> submit(std::size_t rank, const Event& event);
  static void end(Rank& rank, Submitted& copy);
  std::optional<BrokenCopyRule> overwrite(std::size_t rank, BlockId block, const std::string& who,
                                          const Content& content);
  std::optional<BrokenCopyRule> compute(std::size_t rank, const PlannedStep& step,
                                        const Sequences& sequences);
  void take_ended(Rank& rank, OwedReport& owed);

  SimpleCPUOffloadSpec spec_;
  std::vector<Rank> ranks_;
  std::map<std::string, std::uint32_t> num_recving_;  ///< ranks that reported it
};

}  // namespace kvfence::engine::simple
