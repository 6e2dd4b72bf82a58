#pragma once

/// What the memory of every rank holds, by commands and plans alone: GPU blocks are filled by
/// steps, copied to slots and back. Content is a symbol (kv_content.h). So a block that was used
/// again too early, a slot that was read before it was written, and a load into the wrong place all
/// show as content that is not the request's own.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/engine/engine_target.h"
#include "properties/kv_cache/kv_content.h"

namespace kvfence::engine::offloading {

/// A GPU block of a copy, its part of a slot, and what it should hold.
struct CopyPart {
  BlockId block = 0;
  SlotId slot = 0;
  std::uint32_t sub_block = 0;
  Content content;
};

/// A planned transfer. `serial` tells it apart on all ranks, whatever number each gives it.
struct Copy {
  std::uint64_t serial = 0;
  JobId job = 0;
  std::string request;
  bool is_store = false;
  std::vector<CopyPart> parts;
  TransferProgress progress = TransferProgress::kSubmitted;
};

/// A planned step as the workers get it.
struct PlannedStep {
  std::vector<ScheduledRequest> scheduled;
  std::vector<Run> runs;
  std::vector<BlockId> zeroed;
  std::vector<std::string> finished;
  std::vector<Copy> loads;
  std::vector<Copy> stores;
  std::vector<std::string> requests_to_flush;
  std::vector<JobId> jobs_to_flush;

  std::vector<BlocksByGroup> victims;  ///< as forgive_victims wants them
  std::vector<BlockId> lost;
};

/// What is wrong with a copy or a step.
enum class CopyRule : std::uint8_t {
  kReuseUnderACopy,
  kSlotHasOneWriter,
  kLoadReadsWhatIsComplete,
  kCopiesAreTheRequestsOwn,
  kStepReadsItsOwn,
};

struct BrokenCopyRule {
  CopyRule rule = CopyRule::kReuseUnderACopy;
  std::string where;
  std::string expected;
  std::string actual;
};

/// The report that the ranks owe behind a step.
struct OwedReport {
  std::vector<std::string> finished_recving;
  std::vector<std::string> finished_sending;
  std::vector<BlockId> invalid_blocks;
  std::map<JobId, Completed> completed_jobs;
  std::vector<Operation> stats;  ///< type by type, in the order in which the types came
};

/// The ranks, as the contract says that they work. A value: copyable.
class Copies {
 public:
  explicit Copies(const ConnectorSetup& setup);

  /// The oldest step on all ranks. Nothing, or the first rule that it breaks.
  std::optional<BrokenCopyRule> run(PlannedStep step, const Sequences& sequences, OwedReport& owed);

  /// The refusal of a copy engine, or none.
  ErrorCode advance(const AdvanceTransfer& command, bool may_fail);
  ErrorCode report_again(std::uint32_t rank, JobId job) const;

  /// In the engines, rank by rank, in the order of submission; reported ones are gone.
  std::vector<EngineTransfer> transfers() const;

  /// What a part of a slot holds on a rank.
  const Content& slot(std::size_t rank, SlotId slot, std::uint32_t sub_block) const {
    return ranks_[rank].slots[slot * setup_.spec.block_size_factor + sub_block];
  }
  std::size_t num_ranks() const { return ranks_.size(); }

  /// A tier has filled a slot, on all ranks; `parts`: by sub-block, empty for nobody knows what.
  void fill_slot(SlotId slot, const std::vector<Content>& parts);

  /// Calls visit(rank, copy) for each that is queued, or has not ended.
  template <class Visit>
  void for_each_under_way(Visit&& visit) const {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const Copy& copy : ranks_[rank].queued) visit(rank, copy);
      for (const Copy& copy : ranks_[rank].copies) {
        if (is_under_way(copy)) visit(rank, copy);
      }
    }
  }

  /// Whether nothing is queued, under way or unreported on any rank.
  bool is_idle() const;

 private:
  struct Ended {
    std::uint64_t serial = 0;
    bool success = true;
    std::uint32_t microseconds = 0;
  };

  struct Rank {
    std::vector<Content> blocks;  ///< by GPU block
    std::vector<Content> slots;   ///< [slot][sub_block]
    std::vector<Copy> queued;     ///< stores, in order
    std::vector<Copy> copies;     ///< not reported
    std::vector<Ended> ended;     ///< not reported, in order
    std::vector<JobId> reported;
    JobId next_job = 0;                               ///< hold: its own numbers
    std::map<std::string, std::uint32_t> num_stores;  ///< hold: of a request, queued or unreported
    std::map<std::string, bool> stores_ended;         ///< hold: stored, and none is left
    std::map<std::string, bool> awaits_stores;        ///< hold: finished
  };

  static bool is_under_way(const Copy& copy) {
    return copy.progress == TransferProgress::kSubmitted ||
           copy.progress == TransferProgress::kPart;
  }

  std::optional<BrokenCopyRule> submit(std::size_t rank, const Copy& copy);
  void end(std::size_t rank, Copy& copy, bool success, std::uint32_t microseconds = 0);
  std::optional<BrokenCopyRule> overwrite(std::size_t rank, BlockId block, const std::string& who,
                                          const Content& content);
  std::optional<BrokenCopyRule> compute(std::size_t rank, const PlannedStep& step,
                                        const Sequences& sequences);
  void queue_stores(Rank& rank, const PlannedStep& step);
  void take_ended(Rank& rank, const PlannedStep& step, OwedReport& owed);
  void count(std::map<std::string, std::uint32_t>& counts, const std::string& name,
             std::vector<std::string>& complete);

  ConnectorSetup setup_;
  bool fences_ = false;
  std::vector<Rank> ranks_;
  std::map<std::string, std::uint32_t> num_recving_;  ///< ranks that reported it
  std::map<std::string, std::uint32_t> num_sending_;
};

}  // namespace kvfence::engine::offloading
