#include "properties/engine/multi/goals.h"

#include <algorithm>
#include <variant>

#include "contract/connectors/multi/multi_connector.h"

namespace kvfence::engine::multi {
namespace {

bool has_elements(const auto& list) { return list.has_value() && !list->empty(); }

bool has_two_under_way(const Observation& shown) {
  return has_elements(shown.transfers) && has_elements(shown.copies);
}

bool has_file_transfer(const Observation& shown, bool store) {
  return shown.file_transfers.has_value() &&
         std::any_of(shown.file_transfers->begin(), shown.file_transfers->end(),
                     [&](const files::Transfer& each) { return each.store == store; });
}

}  // namespace

void Reach::start(const Config& config) {
  num_children_ = static_cast<std::uint32_t>(config.connector<MultiRecord>()->children.size());
  add(Reached::kThreeChildren, num_children_ > 2);
  add(Reached::kSeveralGroups, config.groups.size() > 1);
  add(Reached::kSeveralRanks, config.ranks > 1);
}

void Reach::count(const Command& command, const Observation& before, const Observation& after,
                  const World&) {
  add(Reached::kOffloadingLoads, has_elements(after.loads));
  add(Reached::kSimpleLoads, has_elements(after.load_requests));
  add(Reached::kFilesLoad, has_file_transfer(after, /*store=*/false));
  const int num_saving = static_cast<int>(has_elements(after.stores)) +
                         static_cast<int>(has_elements(after.store_gpu_blocks)) +
                         static_cast<int>(has_file_transfer(after, /*store=*/true));
  add(Reached::kAllSave, num_saving > 1);
  add(Reached::kTwoUnderWay, has_two_under_way(after));
  if (has_elements(after.completed_jobs)) {
    const auto child_of = [&](const Completed& each) {
      return child_job(each.job, num_children_).child;
    };
    const std::uint32_t first = child_of(after.completed_jobs->front());
    add(Reached::kReportOfTwo,
        std::any_of(after.completed_jobs->begin(), after.completed_jobs->end(),
                    [&](const Completed& each) { return child_of(each) != first; }));
  }
  const bool ends = std::holds_alternative<FinishRequests>(command) ||
                    std::holds_alternative<FinishAllRequests>(command);
  add(Reached::kAbortedUnderWay,
      ends && after.error == ErrorCode::kNone && has_two_under_way(before));
  add(Reached::kPreemptedUnderWay, has_elements(after.preempted) && has_two_under_way(before));
  add(Reached::kLoadFailed, has_elements(after.invalid_blocks));
  add(Reached::kEngineEnded, has_elements(after.failed));
  const auto* const reset = std::get_if<ResetPrefixCache>(&command);
  add(Reached::kResetAll, reset && reset->reset_connector && after.error == ErrorCode::kNone);
}

}  // namespace kvfence::engine::multi
