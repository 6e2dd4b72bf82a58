#pragma once

/// What the memory of every rank holds, by commands and plans alone: GPU blocks are filled by
/// steps, copied to slots and back. Content is a symbol (kv_content.h). So a block that was used
/// again too early, a slot that was read before it was written, and a load into the wrong place all
/// show as content that is not the request's own.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/connectors/offloading/offloading_setup.h"
#include "contract/engine/engine_target.h"
#include "properties/kv_cache/kv_content.h"

namespace kvfence::engine::offloading {

/// Places in kInvariants (rules.h).
enum Rule : std::size_t {
  kPlansNameOwnBlocks,
  kNoReuseUnderACopy,
  kSlotHasOneWriter,
  kLoadReadsWhatIsComplete,
  kCopiesAreTheRequestsOwn,
  kStepReadsItsOwn,
  kSlotsAddUp,
  kReadySlotHoldsItsKey,
  kEachEndIsReportedOnce,
  kPromotionComesWhole,
  kAllComesToAnEnd,
};

struct Broken {
  Rule rule = kPlansNameOwnBlocks;
  std::string where;
  std::string expected;
  std::string actual;
};

/// A GPU block of a copy, its part of a slot, and what it should hold.
struct CopyPart {
  BlockId block = 0;
  SlotId slot = 0;
  std::uint32_t sub_block = 0;
  Content content;
};

/// A planned transfer. `serial` identifies it on all ranks, whatever number each gives it.
struct Copy {
  std::uint64_t serial = 0;
  JobId job = 0;
  std::string request;
  bool is_store = false;
  std::vector<CopyPart> parts;
  TransferProgress progress = TransferProgress::kSubmitted;

  bool is_under_way() const {
    return progress == TransferProgress::kSubmitted || progress == TransferProgress::kPart;
  }
};

/// A planned step as the workers get it.
struct PlannedStep {
  std::vector<Run> runs;
  std::vector<BlockId> zeroed;
  std::vector<Copy> loads;
  std::vector<Copy> stores;
  std::vector<std::string> requests_to_flush;
  std::vector<JobId> jobs_to_flush;

  std::vector<BlocksByGroup> victims;  ///< as forgive_victims wants them
  std::vector<BlockId> lost;
};

/// What ended on the ranks and was not reported before.
struct Report {
  std::vector<std::string> received;  ///< loads that are over on all ranks
  std::set<BlockId> invalid_blocks;   ///< of loads that failed
  std::map<JobId, Completed> jobs;    ///< fence
};

/// The ranks, as the contract says that they work. A value: copyable.
class Copies {
 public:
  struct Rank {
    std::vector<Content> blocks;  ///< by GPU block
    std::vector<Content> slots;   ///< [slot][sub_block]
    std::vector<Copy> queued;     ///< stores, in order
    std::vector<Copy> copies;     ///< in the copy engine: not reported
    JobId next_job = 0;           ///< hold: its own numbers
  };

  explicit Copies(const ConnectorSetup& setup);

  /// The oldest step on all ranks, and what they report after it. Nothing, or the first rule that
  /// it breaks.
  std::optional<Broken> run(const PlannedStep& step, const Sequences& sequences, Report& report);

  /// Passed over where the rank has no such copy under way.
  void advance(const AdvanceTransfer& command);

  const std::vector<Rank>& ranks() const { return ranks_; }

  /// What a part of a slot holds on a rank.
  const Content& slot(std::size_t rank, SlotId slot, std::uint32_t sub_block) const {
    return ranks_[rank].slots[slot * setup_.spec.block_size_factor + sub_block];
  }

  /// A tier has filled a slot, on all ranks; `parts`: by sub-block, empty for nobody knows what.
  void fill_slot(SlotId slot, const std::vector<Content>& parts);

  /// Calls visit(copy) for each that is queued, or has not ended, rank by rank.
  template <class Visit>
  void for_each_under_way(Visit&& visit) const {
    for (const Rank& rank : ranks_) {
      for (const Copy& copy : rank.queued) visit(copy);
      for (const Copy& copy : rank.copies) {
        if (copy.is_under_way()) visit(copy);
      }
    }
  }

  /// Whether some rank has a copy for which `is` holds, queued, under way or not reported.
  template <class Predicate>
  bool has(Predicate&& is) const {
    return std::any_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
      return std::any_of(rank.queued.begin(), rank.queued.end(), is) ||
             std::any_of(rank.copies.begin(), rank.copies.end(), is);
    });
  }

 private:
  std::optional<Broken> submit(std::size_t rank, const Copy& copy);
  void end(Rank& rank, Copy& copy, bool success);
  std::optional<Broken> overwrite(std::size_t rank, BlockId block, const std::string& who,
                                  const Content& content);
  std::optional<Broken> compute(std::size_t rank, const PlannedStep& step,
                                const Sequences& sequences);
  void report_ended(Rank& rank, Report& report);

  ConnectorSetup setup_;
  bool fences_ = false;
  std::vector<Rank> ranks_;
  std::map<std::string, std::uint32_t> num_received_;  ///< ranks that reported its load
};

}  // namespace kvfence::engine::offloading
