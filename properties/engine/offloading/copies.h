#pragma once

/// The ranks under an OffloadingConnector: their memory, copies and reports.

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
#include "properties/engine/rank_memory.h"

namespace kvfence::engine::offloading {

/// Places in kInvariants (rules.cpp).
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

using Copy = PlannedCopy;

/// A planned step as the workers get it.
struct PlannedStep : StepOnBlocks {
  std::vector<Copy> loads;
  std::vector<Copy> stores;
  std::vector<std::string> requests_to_flush;
  std::vector<JobId> jobs_to_flush;
};

/// What ended on the ranks and was not reported before.
struct Report {
  std::vector<std::string> received;   ///< loads that are over on all ranks
  std::set<BlockId> invalid_blocks;    ///< of loads that failed
  std::map<JobId, CompletedJob> jobs;  ///< fence
};

/// The ranks, as the contract says that they work. A value: copyable.
class Copies : public RankMemory {
 public:
  explicit Copies(const ConnectorSetup& setup);

  /// The oldest step on all ranks, and what they report after it. Nothing, or the first rule that
  /// it breaks.
  std::optional<Broken> run(const PlannedStep& step, const Sequences& sequences, Report& report);

  /// Passed over where the rank has no such copy under way.
  void advance(const AdvanceTransfer& command);

  /// A tier has filled a slot, on all ranks; `parts`: by sub-block, empty for nobody knows what.
  void fill_slot(SlotId slot, const std::vector<Content>& parts);

  /// Calls visit(copy) for each that is queued, or has not ended, rank by rank.
  template <class Visit>
  void for_each_under_way(Visit&& visit) const {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const Copy& copy : queued_[rank]) visit(copy);
      for (const Copy& copy : ranks_[rank].copies) {
        if (copy.is_under_way()) visit(copy);
      }
    }
  }

  /// Whether some rank has a copy for which `is` holds, queued, under way or not reported.
  template <class Predicate>
  bool has(Predicate&& is) const {
    const auto has_one = [&](const std::vector<Copy>& copies) {
      return std::ranges::any_of(copies, is);
    };
    return std::ranges::any_of(queued_, has_one) ||
           std::ranges::any_of(ranks_, [&](const Rank& rank) { return has_one(rank.copies); });
  }

 private:
  void report_ended(Rank& rank, Report& report);

  bool fences_ = false;
  std::vector<std::vector<Copy>> queued_;              ///< stores, by rank, in order
  std::vector<JobId> next_jobs_;                       ///< hold: by rank, its own numbers
  std::map<std::string, std::uint32_t> num_received_;  ///< ranks that reported its load
};

}  // namespace kvfence::engine::offloading
