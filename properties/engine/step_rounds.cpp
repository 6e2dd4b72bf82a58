#include "properties/engine/step_rounds.h"

#include <algorithm>
#include <set>
#include <variant>

#include "properties/core/left_out.h"
#include "properties/engine/shown_requests.h"

namespace kvfence::engine {
namespace {

/// Whether the command only completes a step, without other reports.
bool is_bare_update(const Command& command) {
  const auto* const update = std::get_if<Update>(&command);
  return update && update->finished_recving.empty() && update->finished_sending.empty() &&
         update->invalid_blocks.empty() && update->reports.empty();
}

const LeftOut kRoundsBesideOthers(
    LeftOut::By::kRule, "engine.22 steps_do_not_go_round: blocks of others",
    "upstream lets a request that needs the block of one that has loaded and waits for its seat "
    "preempt itself for ever",
    "engine/scheduler/preemption/rounds_beside_a_loaded_request.kvs");

/// Leaves out how often a request was preempted, since that only grows.
StateDigest digest_of(const SchedulerObservation& shown) {
  StateHash hash;
  for (const RequestState& state : *shown.requests) {
    hash.add_all(state.id, state.status, state.num_tokens, state.num_computed_tokens,
                 state.num_output_placeholders, state.spec_tokens);
  }
  hash.add_all(*shown.running, *shown.waiting, *shown.skipped_waiting);
  for (const ScheduledRequest& planned : *shown.scheduled) {
    hash.add_all(planned.request, planned.num_tokens);
  }
  return hash.digest();
}

}  // namespace

bool only_running_hold_blocks(const SchedulerObservation& shown, std::uint32_t num_base_blocks) {
  std::set<BlockId> held;
  for (const RequestBlocks& table : *shown.tables) {
    const RequestState* const state = find_state(shown, table.request);
    if (!state || state->status != RequestStatus::kRunning) return false;
    for (const auto& blocks : table.blocks) {
      for (const BlockId block : blocks) {
        if (block >= num_base_blocks) held.insert(block);
      }
    }
  }
  return held.size() + num_base_blocks == shown.num_referenced_blocks;
}

const StepRounds::Round* StepRounds::take(const Command& command, const SchedulerObservation& shown,
                                          std::uint32_t num_base_blocks) {
  if (is_bare_update(command)) return nullptr;
  if (!std::holds_alternative<Schedule>(command) || !shown.requests.has_value()) {
    forget();
    return nullptr;
  }
  if (shown.scheduled->empty() && shown.preempted->empty()) return nullptr;
  const auto passes_over = [&] {
    return kRoundsBesideOthers(!only_running_hold_blocks(shown, num_base_blocks));
  };
  if (!shown.preempted->empty() && passes_over()) {
    forget();
    return nullptr;
  }
  const StateDigest requests = digest_of(shown);
  const auto first = std::ranges::find(met_, requests, &Met::requests) - met_.begin();
  const auto last = static_cast<std::ptrdiff_t>(met_.size());
  met_.push_back({requests, *shown.preempted});
  if (first == last) return nullptr;
  round_ = {static_cast<std::size_t>(last - first), {}};
  for (auto later = met_.begin() + first + 1; later != met_.end(); ++later) {
    round_.preempted.insert(round_.preempted.end(), later->preempted.begin(),
                            later->preempted.end());
  }
  // Only this state is kept: the next round is compared with it.
  met_.erase(met_.begin(), met_.end() - 1);
  if (passes_over()) return nullptr;
  return &round_;
}

}  // namespace kvfence::engine
