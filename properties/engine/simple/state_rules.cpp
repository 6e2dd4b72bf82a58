// The state of both pools and of the copy engines, and that nothing stays for ever.

#include <algorithm>
#include <string>
#include <variant>

#include "properties/engine/simple/rule_parts.h"
#include "properties/engine/simple/rules.h"

namespace kvfence::engine::simple {

using namespace detail;
using kvfence::detail::contains;
using kvfence::detail::key_value;

namespace {

/// Steps without anything under way behind which whoever waits has to go on.
constexpr std::uint32_t kQuietStepsMax = 3;

Divergence wrong_key(Rule rule, BlockId block, const BlockHash& expected,
                     const Observation& observation) {
  return broken_values(kInvariants[rule], element("cpu_keys", block), key_value(expected),
                       key_value((*observation.cpu_keys)[block]));
}

}  // namespace

Invariants::Found Invariants::check_state(const Command& command, const Observation& observation) {
  const bool is_pending = !stores_.empty();
  if (*observation.has_pending_stores != is_pending) {
    return broken(kS14, "has_pending_stores", is_pending, *observation.has_pending_stores);
  }
  const std::uint32_t num_blocks = *observation.num_empty_cpu_blocks +
                                   *observation.num_cached_cpu_blocks +
                                   *observation.num_referenced_cpu_blocks;
  if (num_blocks != spec().num_cpu_blocks) {
    return broken(kS14, "num_referenced_cpu_blocks", spec().num_cpu_blocks, num_blocks);
  }
  if (!has_state(observation)) return std::nullopt;
  if (auto found = check_gpu_blocks(observation)) return found;
  if (auto found = check_pins(observation)) return found;
  if (auto found = check_cpu_holds(observation)) return found;
  if (auto found = check_cpu_numbers(observation)) return found;
  if (auto found = check_copied_keys(observation)) return found;
  const std::vector<Copy> copies = copies_.copies();
  if (*observation.copies != copies) return broken(kS19, "copies", copies, *observation.copies);
  if (auto found = check_contents(observation)) return found;
  return check_key_changes(command, observation);
}

// ---- The GPU's blocks ----

/// As if copies had tables.
Invariants::Found Invariants::check_gpu_blocks(const Observation& observation) {
  std::vector<kv_cache::RequestBlocks> holders = *observation.tables;
  const auto add = [&](const auto& events) {
    for (const auto& [event, copied] : events) {
      kv_cache::RequestBlocks& holder = holders.emplace_back();
      static_cast<BlocksByGroup&>(holder.blocks).resize(groups().size());
      for (const CopyPart& part : copied.parts) holder.blocks[0].push_back(part.gpu_block);
    }
  };
  add(stores_);
  add(loads_);
  const auto broken_block = [](const BrokenBlockRule& found) {
    const Rule rule = found.rule == BlockRule::kRefCntCountsPlaces ? kS1 : kS21;
    return broken_values(kInvariants[rule], found.mismatch.field, found.mismatch.expected,
                         found.mismatch.actual);
  };
  const BlockState held{*observation.free_queue, *observation.ref_cnts, *observation.keys, holders};
  if (auto found = block_tables_.check_blocks(held)) return broken_block(*found);
  std::vector<TableOwner> owners;
  for (const kv_cache::RequestBlocks& table : *observation.tables) {
    const auto at = known_.find(table.request);
    if (at == known_.end()) {
      return broken_phrase(kS21, "tables", "a request that was added", table.request);
    }
    owners.push_back({&at->second.request, at->second.number, Aliasing::kNone});
  }
  const BlockState state{*observation.free_queue, *observation.ref_cnts, *observation.keys,
                         *observation.tables};
  if (auto found = block_tables_.check_places(state, owners)) return broken_block(*found);
  return std::nullopt;
}

// ---- The CPU's blocks ----

Invariants::Found Invariants::check_cpu_holds(const Observation& observation) const {
  std::vector<std::uint32_t> ref_cnts(spec().num_cpu_blocks, 0);
  for (const auto& [event, store] : stores_) {
    for (const CopyPart& part : store.parts) ++ref_cnts[part.cpu_block];
  }
  for (const auto& [event, load] : loads_) {
    for (const CopyPart& part : load.parts) ++ref_cnts[part.cpu_block];
  }
  for (const Pin& pin : *observation.pins) {
    for (BlockId block : pin.cpu_blocks) ++ref_cnts[block];
  }
  if (*observation.cpu_ref_cnts == ref_cnts) return std::nullopt;
  return broken(kS2, "cpu_ref_cnts", ref_cnts, *observation.cpu_ref_cnts);
}

Invariants::Found Invariants::check_cpu_numbers(const Observation& observation) const {
  const std::vector<std::uint32_t>& ref_cnts = *observation.cpu_ref_cnts;
  std::vector<BlockId> unreferenced;
  std::uint32_t num_empty = 0;
  for (BlockId block = 1; block < ref_cnts.size(); ++block) {
    if (ref_cnts[block] > 0) continue;
    unreferenced.push_back(block);
    num_empty += (*observation.cpu_keys)[block].empty();
  }
  std::vector<BlockId> queued = *observation.cpu_free_queue;
  std::sort(queued.begin(), queued.end());
  if (queued != unreferenced) return broken(kS14, "cpu_free_queue", unreferenced, queued);
  const auto num_cached = static_cast<std::uint32_t>(unreferenced.size()) - num_empty;
  if (*observation.num_empty_cpu_blocks != num_empty) {
    return broken(kS14, "num_empty_cpu_blocks", num_empty, *observation.num_empty_cpu_blocks);
  }
  if (*observation.num_cached_cpu_blocks != num_cached) {
    return broken(kS14, "num_cached_cpu_blocks", num_cached, *observation.num_cached_cpu_blocks);
  }
  return std::nullopt;
}

/// Of blocks that are written, and of those that are read or will be.
Invariants::Found Invariants::check_copied_keys(const Observation& observation) const {
  const KeyList& keys = *observation.cpu_keys;
  for (const auto& [event, store] : stores_) {
    for (const CopyPart& part : store.parts) {
      if (!keys[part.cpu_block].empty()) return wrong_key(kS3, part.cpu_block, {}, observation);
    }
  }
  const auto check_held = [&](BlockId block) -> Found {
    if (keys[block].empty()) {
      return broken_phrase(kS5, element("cpu_keys", block), "a key, for it is held", "none");
    }
    if (!before_ || (*before_->cpu_keys)[block] == keys[block]) return std::nullopt;
    return wrong_key(kS5, block, (*before_->cpu_keys)[block], observation);
  };
  for (const Pin& pin : *observation.pins) {
    for (BlockId block : pin.cpu_blocks) {
      if (auto found = check_held(block)) return found;
    }
  }
  for (const auto& [event, load] : loads_) {
    for (const CopyPart& part : load.parts) {
      if (auto found = check_held(part.cpu_block)) return found;
    }
  }
  return std::nullopt;
}

Invariants::Found Invariants::check_key_changes(const Command& command,
                                                const Observation& observation) const {
  if (!before_) return std::nullopt;
  const KeyList& keys = *observation.cpu_keys;
  const bool plans =
      std::holds_alternative<Schedule>(command) && observation.error == ErrorCode::kNone;
  for (BlockId block = 0; block < keys.size(); ++block) {
    BlockHash expected = (*before_->cpu_keys)[block];
    if (plans && contains(*observation.store_cpu_blocks, block)) expected = BlockHash();
    if (const auto completed = completed_keys_.find(block); completed != completed_keys_.end()) {
      expected = completed->second.empty() ? keys[block] : BlockHash(completed->second);
    }
    if (keys[block] != expected) return wrong_key(kS4, block, expected, observation);
  }
  return std::nullopt;
}

Invariants::Found Invariants::check_pins(const Observation& observation) const {
  std::set<std::string> pinned;
  for (const Pin& pin : *observation.pins) {
    const RequestState* state = find_state(observation, pin.request);
    const bool waits = state && (state->status == RequestStatus::kWaiting ||
                                 state->status == RequestStatus::kPreempted);
    const bool are_blocks =
        !pin.cpu_blocks.empty() &&
        std::all_of(pin.cpu_blocks.begin(), pin.cpu_blocks.end(), [&](BlockId block) {
          return block != kNullBlockId && block < spec().num_cpu_blocks;
        });
    if (rules().simple_offload_pins_hits && waits && are_blocks &&
        pinned.insert(pin.request).second) {
      continue;
    }
    return broken_phrase(kS13, "pins", "blocks once for a request that waits", pin.request);
  }
  return std::nullopt;
}

Invariants::Found Invariants::check_contents(const Observation& observation) const {
  for (BlockId block = 0; block < observation.cpu_keys->size(); ++block) {
    const std::string& key = (*observation.cpu_keys)[block];
    if (key.empty()) continue;
    const auto wanted = contents_.find(key);
    if (wanted == contents_.end()) {
      return broken_phrase(kS6, element("cpu_keys", block), "a key of some request", "another one");
    }
    for (std::size_t rank = 0; rank < copies_.num_ranks(); ++rank) {
      const Content& content = copies_.cpu_block(rank, block);
      if (passes_for(content, wanted->second)) continue;
      return broken_phrase(kS6, element("cpu_keys", block) + " on rank " + std::to_string(rank),
                           to_text(wanted->second), to_text(content));
    }
  }
  return std::nullopt;
}

// ---- The end ----

Invariants::Found Invariants::check_end(const Command& command, const Observation& observation) {
  const bool is_accepted = observation.error == ErrorCode::kNone;
  const bool is_quiet = copies_.is_idle() && in_flight_.empty();
  if (std::holds_alternative<Update>(command) && is_accepted) {
    const bool ends_requests =
        std::any_of(observation.outputs->begin(), observation.outputs->end(),
                    [](const RequestOutput& output) { return is_finished(output.status); });
    num_quiet_updates_ = is_quiet && !ends_requests ? num_quiet_updates_ + 1 : 0;
  } else if (std::holds_alternative<FinishRequests>(command) ||
             std::holds_alternative<FinishAllRequests>(command)) {
    num_quiet_updates_ = 0;
  }
  if (!before_ || !has_state(observation)) return std::nullopt;

  if (std::holds_alternative<Schedule>(command) && is_accepted) {
    const bool plans_copies =
        observation.load_event.has_value() || observation.store_event.has_value();
    if (plans_copies || observation.never_fits.has_value()) num_quiet_updates_ = 0;
    // One that does not fit yet may stand before a loaded one, for ever: as upstream.
    const bool may_be_stuck = before_->num_referenced_blocks > 1;
    const bool is_idle_engine = !may_be_stuck && copies_.is_idle() && in_flight_.size() == 1 &&
                                before_->running->empty() && pause_state_ == PauseState::kUnpaused;
    const bool waits = observation.num_waiting + observation.num_skipped_waiting > 0;
    const bool goes_on = plans_copies || !observation.scheduled->empty() ||
                         observation.never_fits.has_value() || !observation.preempted->empty();
    num_idle_steps_ = is_idle_engine && waits && !goes_on ? num_idle_steps_ + 1 : 0;
    if (num_idle_steps_ >= kQuietStepsMax) {
      return broken_phrase(kS24, "scheduled", "somebody, since nothing is under way", "nobody");
    }
  }
  if (!is_quiet || num_quiet_updates_ < kQuietStepsMax) return std::nullopt;
  return check_drained(observation);
}

Invariants::Found Invariants::check_drained(const Observation& observation) const {
  for (const RequestState& state : *observation.requests) {
    if (!is_finished(state.status)) continue;
    return broken_phrase(kS24, "requests", "no blocks held, since nothing is under way", state.id);
  }
  if (!observation.requests->empty()) return std::nullopt;
  if (observation.num_referenced_blocks > 1) {
    return broken(kS24, "num_referenced_blocks", std::uint32_t{1},
                  observation.num_referenced_blocks);
  }
  if (*observation.num_referenced_cpu_blocks > 1) {
    return broken(kS24, "num_referenced_cpu_blocks", std::uint32_t{1},
                  *observation.num_referenced_cpu_blocks);
  }
  return std::nullopt;
}

}  // namespace kvfence::engine::simple
