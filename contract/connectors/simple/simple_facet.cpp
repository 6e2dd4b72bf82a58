#include "contract/connectors/simple/simple_facet.h"

#include <utility>

#include "contract/scheduler/scheduler.h"

namespace kvfence {

void override_rules(const engine::simple::Record& record, Rules& rules) {
  const auto take = [](const std::optional<bool>& given, bool& rule) {
    rule = given.value_or(rule);
  };
  take(record.simple_offload_pins_hits, rules.simple_offload_pins_hits);
  take(record.simple_offload_skips_stores_under_way, rules.simple_offload_skips_stores_under_way);
  take(record.simple_offload_skips_unhashed_blocks, rules.simple_offload_skips_unhashed_blocks);
  take(record.simple_offload_aligns_stores, rules.simple_offload_aligns_stores);
}

Parsed<SimpleCPUOffloadSpec> make_simple_spec(const engine::simple::Record& record,
                                              const SchedulerConfig& scheduler,
                                              std::uint32_t num_ranks) {
  SimpleCPUOffloadSpec spec;
  spec.kv_cache = scheduler.kv_cache;
  spec.num_cpu_blocks = record.num_cpu_blocks;
  spec.lazy_offload = record.lazy_offload;
  spec.num_workers = num_ranks;
  if (const auto expected = check_spec(spec)) {
    return errors_at({}, {})("this configuration", *expected);
  }
  return spec;
}

}  // namespace kvfence
