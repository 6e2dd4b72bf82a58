#include "contract/connectors/disaggregated/nixl_facet.h"

#include <utility>

#include "contract/scheduler/scheduler.h"

namespace kvfence {

Parsed<DisaggregatedSpec> make_nixl_spec(const engine::nixl::Record& record,
                                         const SchedulerConfig& scheduler,
                                         std::uint32_t num_producer_ranks,
                                         std::uint32_t num_consumer_ranks) {
  const KVCacheManagerConfig& kv_cache = scheduler.kv_cache;
  if (kv_cache.groups.size() != 1 ||
      kv_cache.groups.front().kind != KVCacheSpecKind::kFullAttention) {
    return InputError{{}, {}, "these groups", "one group of full attention"};
  }
  DisaggregatedSpec spec;
  spec.rules = kv_cache.pool.rules;
  spec.producer_world_size = num_producer_ranks;
  spec.consumer_world_size = num_consumer_ranks;
  if (record.deadline > 0) spec.deadline = record.deadline;
  if (auto expected = check_spec(spec)) {
    return InputError{{}, {}, "this configuration", std::move(*expected)};
  }
  return spec;
}

}  // namespace kvfence
