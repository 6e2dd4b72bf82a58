#include "contract/connectors/simple/simple_facet.h"

#include "contract/scheduler/scheduler.h"

namespace kvfence {

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
