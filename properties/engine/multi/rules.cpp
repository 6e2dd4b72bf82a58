#include "properties/engine/multi/rules.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "properties/core/broken_rule.h"
#include "properties/engine/refusals.h"

namespace kvfence::engine::multi {
namespace {

// The places of kInvariants, so that code names a rule by its id.
enum Rule : std::size_t { kForeign, kBlocks, kQueue, kTables, kPlaces, kSlots, kCpuBlocks, kRest };

static_assert(kInvariants.size() == kRest + 1);

template <class T>
Divergence broken(Rule rule, std::string_view member, const T& expected, const T& actual) {
  return broken_rule(kInvariants[rule], member, expected, actual);
}

std::uint32_t size_of(const auto& list) { return static_cast<std::uint32_t>(list.size()); }

}  // namespace

std::optional<Divergence> Invariants::check(const Command& command, const Observation& observation,
                                            const World& world, std::size_t step) const {
  std::optional<Divergence> found;
  const auto foreign = kvfence::detail::refusal_of_foreign(command, setup_, world);
  if (foreign && observation.error != *foreign) {
    found = broken(kForeign, "error", *foreign, observation.error);
  }
  if (!found) found = check_numbers(observation);
  if (!found && observation.requests.has_value()) found = check_state(observation);
  if (found) found->step = step;
  return found;
}

std::optional<Divergence> Invariants::check_numbers(const Observation& observation) const {
  const std::uint32_t num_blocks = setup_.scheduler().kv_cache.pool.num_gpu_blocks;
  const std::uint32_t sum = observation.num_empty_blocks + observation.num_cached_blocks +
                            observation.num_referenced_blocks;
  if (sum != num_blocks) return broken(kBlocks, "num_empty_blocks", num_blocks, sum);
  if (!setup_.simple) return std::nullopt;
  const std::uint32_t cpu_sum = *observation.num_empty_cpu_blocks +
                                *observation.num_cached_cpu_blocks +
                                *observation.num_referenced_cpu_blocks;
  if (cpu_sum != setup_.simple->num_cpu_blocks) {
    return broken(kCpuBlocks, "num_empty_cpu_blocks", setup_.simple->num_cpu_blocks, cpu_sum);
  }
  return std::nullopt;
}

std::optional<Divergence> Invariants::check_state(const Observation& observation) const {
  const std::vector<std::uint32_t>& ref_cnts = *observation.ref_cnts;
  std::vector<std::uint32_t> places(ref_cnts.size());
  for (const RequestBlocks& table : *observation.tables) {
    for (const std::vector<BlockId>& group : table.blocks) {
      for (const BlockId block : group) places[block] += block == kNullBlockId ? 0 : 1;
    }
  }
  std::vector<std::uint32_t> queued(ref_cnts.size());
  for (const BlockId block : *observation.free_queue) ++queued[block];
  for (BlockId block = 1; block < ref_cnts.size(); ++block) {
    const std::uint32_t expected = ref_cnts[block] == 0 ? 1 : 0;
    if (queued[block] != expected) {
      return broken(kQueue, "free_queue", expected, queued[block]);
    }
    if (places[block] > ref_cnts[block]) {
      return broken(kTables, "ref_cnts[" + std::to_string(block) + "]", places[block],
                    ref_cnts[block]);
    }
  }

  std::vector<std::string> placed = *observation.running;
  placed.insert(placed.end(), observation.waiting->begin(), observation.waiting->end());
  placed.insert(placed.end(), observation.skipped_waiting->begin(),
                observation.skipped_waiting->end());
  std::sort(placed.begin(), placed.end());
  std::vector<std::string> unfinished;
  for (const RequestState& request : *observation.requests) {
    if (!is_finished(request.status)) unfinished.push_back(request.id);
  }
  std::sort(unfinished.begin(), unfinished.end());
  if (placed != unfinished) return broken(kPlaces, "running", unfinished, placed);

  if (setup_.offloading) {
    const std::uint32_t num_slots = setup_.offloading->spec.manager.cache.capacity;
    const std::uint32_t sum =
        *observation.num_free_slots + size_of(*observation.t1) + size_of(*observation.t2);
    if (sum != num_slots) return broken(kSlots, "num_free_slots", num_slots, sum);
  }
  const bool rests =
      observation.requests->empty() && (!setup_.offloading || observation.transfers->empty()) &&
      (!setup_.simple || (observation.copies->empty() && !*observation.has_pending_stores));
  if (rests && observation.num_referenced_blocks != 1) {
    return broken(kRest, "num_referenced_blocks", 1U, observation.num_referenced_blocks);
  }
  return std::nullopt;
}

}  // namespace kvfence::engine::multi
