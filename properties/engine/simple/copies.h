#pragma once

/// The ranks under a simple CPU offload connector: their memory, and copies in their order.

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
#include "properties/engine/rank_memory.h"

namespace kvfence::engine::simple {

/// The places of the rules in the table of rules.cpp.
enum Rule : std::size_t {
  kGpuHoldsAreExplained,
  kCpuHoldsAreExplained,
  kCpuNumbersAddUp,
  kABlockBeingWrittenHasNoKey,
  kWhatIsHeldKeepsItsKey,
  kACpuBlockHoldsItsKey,
  kCopiesCarryWhatTheyName,
  kAStepReadsItsOwn,
  kNoReuseUnderACopy,
  kWorkersDoWhatTheyAreTold,
  kAResetLeavesNothing,
  kAllComesToAnEnd,
};

/// What a step plans to copy in one direction.
struct Event : PlannedCopy {
  Event(JobId number, bool of_store) {
    serial = 2 * std::uint64_t{number} + (of_store ? 1 : 0);
    job = number;
    is_store = of_store;
  }
  std::set<std::string> requests;  ///< of a load: for whom, not reported
  std::uint32_t num_reports = 0;   ///< of a store: ranks that reported it

  std::pair<bool, JobId> id() const { return {is_store, job}; }
};

/// A planned step as the workers get it.
struct PlannedStep : StepOnBlocks {
  std::vector<Event> events;
  bool need_flush = false;
};

/// A value: copyable.
class Copies : public RankMemory {
 public:
  explicit Copies(const SimpleCPUOffloadSpec& spec);

  /// The oldest step on all ranks. Nothing, or the first rule that it breaks.
  std::optional<Broken> run(const PlannedStep& step, const Sequences& sequences);

  /// The oldest copy of that direction on the rank ends. False: there is none.
  bool end_oldest(std::uint32_t rank, bool is_store);

  std::uint32_t num_ranks_ended(const Event& event) const;
  bool is_idle() const;

 private:
  void end_copy(Rank& rank, std::vector<PlannedCopy>::iterator copy);

  std::map<std::uint64_t, std::uint32_t> num_ranks_ended_;  ///< by serial number
};

}  // namespace kvfence::engine::simple
