#include "properties/scheduler/refusals.h"

#include <algorithm>
#include <cstddef>

namespace kvfence::detail {

ErrorCode refusal_of_update(const std::vector<scheduler::Sample>& samples,
                            const std::vector<scheduler::ScheduledRequest>* step,
                            const scheduler::World& world) {
  for (const scheduler::Sample& sample : samples) {
    if (!world.find(sample.request)) return ErrorCode::kUnknownRequest;
  }
  if (!step) return ErrorCode::kNoStepInFlight;
  std::size_t num_named = 0;
  for (const scheduler::ScheduledRequest& scheduled : *step) {
    const auto named = std::find_if(
        samples.begin(), samples.end(),
        [&](const scheduler::Sample& each) { return each.request == scheduled.request; });
    if (named == samples.end()) continue;
    ++num_named;
    if (named->tokens.size() != (scheduled.samples ? 1 : 0)) return ErrorCode::kWrongTokenCount;
  }
  return num_named == samples.size() ? ErrorCode::kNone : ErrorCode::kWrongTokenCount;
}

ErrorCode refusal_of_names(const std::vector<std::string>& names, const scheduler::World& world) {
  const bool are_known = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return world.find(name) != nullptr;
  });
  return are_known ? ErrorCode::kNone : ErrorCode::kUnknownRequest;
}

}  // namespace kvfence::detail
