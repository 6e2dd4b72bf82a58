#include "properties/engine/multi/rules.h"

#include <cstdint>

#include "properties/core/broken_rule.h"

namespace kvfence::engine::multi {

std::optional<Divergence> Invariants::check(const Command&, const Observation& observation,
                                            const World&, std::size_t step) const {
  std::optional<Divergence> found;
  const auto add_up = [&](std::size_t rule, std::string_view member, std::uint32_t all,
                          std::size_t sum) {
    if (found || sum == all) return;
    found = broken_rule(kInvariants[rule], member, all, static_cast<std::uint32_t>(sum));
    found->step = step;
  };
  if (setup_.offloading && observation.t1.has_value()) {
    add_up(0, "num_free_slots", setup_.offloading->spec.manager.cache.capacity,
           *observation.num_free_slots + observation.t1->size() + observation.t2->size());
  }
  if (setup_.simple) {
    add_up(1, "num_empty_cpu_blocks", setup_.simple->num_cpu_blocks,
           *observation.num_empty_cpu_blocks + *observation.num_cached_cpu_blocks +
               *observation.num_referenced_cpu_blocks);
  }
  return found;
}

}  // namespace kvfence::engine::multi
